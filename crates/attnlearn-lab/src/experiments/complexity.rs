//! How many examples does a harder target need? Errors of many targets, of growing degrees (p, q) and of mixtures (γ), against theory's measure of difficulty.
//!
//! That measure is `B(f*)`, the squared norm of the target (scaled to variance 1) in the space of the kernel: the excess risk is at most
//!
//! ```text
//! √(B/n) + √(B d²/M)        up to constants and logarithms,
//! ```
//!
//! so `n ∝ B` examples suffice. `features::complexity` computes upper bounds on B: for polynomials the norm of their coefficients, divided by the weight that the kernel
//! gives to their degrees. The question is whether B orders targets as their errors do, and whether the examples needed grow with it as fast as the bound allows.

use crate::experiment::{Experiment, Finding, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::{Errors, Kind, NOTHING, Named, Ratio, Scored, Task, column_texts, joined, parse_targets, points, title};
use crate::stats::{self, Estimate, short};
use attnlearn::Result;
use attnlearn::features::{Precision, Target, TargetSpec};
use attnlearn_page::plot::{Axis, Chart, Figure, Look, Panel, Point as Dot, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The experiment.
pub struct Complexity;

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Dimension of query and keys.
    pub d: usize,
    /// Keys, N.
    pub keys: usize,
    /// Heads, M.
    pub heads: usize,
    /// Sets to learn from.
    pub n: Vec<u64>,
    /// Fresh sets.
    pub n_test: u64,
    /// Seeds.
    pub seeds: u64,
    /// Precision of features.
    pub precision: Precision,
    /// The error for which examples are counted.
    pub goal: f64,
    /// Learners whose B is known.
    pub learners: Vec<Named>,
    /// Targets.
    pub targets: Vec<String>,
    /// Weights γ of the simple part of a mixture.
    pub gammas: Vec<f64>,
    /// The simple part.
    pub simple: String,
    /// The hard part.
    pub hard: String,
}

/// A learner and a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    learner: Named,
    d: usize,
    keys: usize,
    heads: usize,
    n: u64,
    n_test: u64,
    precision: Precision,
    targets: String,
    seed: u64,
}

/// A target, its difficulty and its error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    target: String,
    /// Mean squared error over the variance of the target.
    error: f64,
    /// The ridge λ.
    ridge: f64,
    /// The bound B for the target scaled to variance 1, with the symmetric tensor.
    bound: Option<f64>,
    /// The same with the tensor as written.
    plain_bound: Option<f64>,
}

/// What an error belongs to.
type Key = (String, Named, u64);

/// The mixture of weight γ.
fn mixed(config: &Config, gamma: f64) -> String {
    format!("mixed:gamma={gamma},simple={},hard={}", config.simple, config.hard)
}

impl Experiment for Complexity {
    const NAME: &'static str = "complexity";
    const TITLE: &'static str = "Sample size against target complexity";
    const QUESTION: &'static str =
        "Does the norm B(f*) of a target, theory's measure of difficulty, say how hard it is to learn?";
    const CLAIM: &'static str =
        "An error of √(B(f*)/n) at most, so that n ∝ B examples suffice; degrees p and q and the weight of a hard part raise B.";
    const TOGETHER: bool = false;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        let targets = [
            "query:p=1",
            "query:p=2",
            "query:p=3",
            "query:p=4",
            "average:p=1",
            "average:p=2",
            "average:p=3",
            "average:p=4",
            "average:p=5",
            "correlation:p=1,q=0",
            "correlation:p=1,q=1",
            "correlation:p=1,q=2",
            "correlation:p=2,q=0",
            "correlation:p=2,q=1",
            "correlation:p=2,q=2",
            "correlation:p=3,q=1",
            "correlation:p=4,q=2",
        ];
        Config {
            d: scale.pick(8, 16),
            keys: scale.pick(8, 16),
            heads: scale.pick(200, 1000),
            n: scale.pick(vec![32, 64, 128, 256, 512, 1024], vec![64, 128, 256, 512, 1024, 2048, 4096]),
            n_test: scale.pick(1000, 4000),
            seeds: scale.pick(4, 5),
            precision: scale.pick(Precision::F64, Precision::F32),
            goal: 0.2,
            learners: vec![Named::Rfa, Named::Rfmlp],
            targets: targets.map(str::to_owned).to_vec(),
            gammas: vec![0.1, 0.3, 0.5, 0.7, 0.9],
            simple: "average:p=1".into(),
            hard: "correlation:p=2,q=2".into(),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.n);
        ascending(&mut config.gammas);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let mut targets = config.targets.clone();
        targets.extend(config.gammas.iter().map(|&gamma| mixed(config, gamma)));
        let mut all = Vec::new();
        for &n in &config.n {
            for seed in seeds(seed, config.seeds) {
                for &learner in &config.learners {
                    let &Config { d, keys, heads, n_test, precision, .. } = config;
                    all.push(Point { learner, d, keys, heads, n, n_test, precision, targets: column_texts(&targets), seed });
                }
            }
        }
        all
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let &Point { learner, d, keys, heads, n, n_test, precision, seed, .. } = point;
        let task = Task { d, keys, n, n_test, columns: parse_targets(&point.targets)?, seed };
        let scored = task.score(&learner.learner(d, keys, heads, precision, task.stream()), stop)?;
        let kernel = learner.kernel();
        let row = |(scored, target): (Scored, &TargetSpec)| {
            let variance = Target::new(target, task.inputs(), task.stream())?.variance();
            let bound = kernel.as_ref().and_then(|kernel| target.complexity(kernel, &task.inputs()));
            let (bound, plain_bound) = (bound.map(|b| b.sharp / variance), bound.map(|b| b.plain / variance));
            Ok(Row { target: scored.target, error: scored.error, ridge: scored.ridge, bound, plain_bound })
        };
        scored.into_iter().zip(task.columns.iter().map(|column| &column.target)).map(row).collect()
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let all = rows.iter().map(|m| ((m.row.target.clone(), m.point.learner, m.point.n), m.point.seed, m.row.error));
        // Mixtures are scaled by an estimate that differs from seed to seed by about a per cent.
        let bounds = rows.iter().filter_map(|m| Some(((m.row.target.clone(), m.point.learner), m.point.seed, m.row.bound?)));
        let seen = Seen { config, errors: Errors::new(all), bounds: Errors::new(bounds) };
        let mut findings = Vec::new();
        for &learner in &config.learners {
            findings.extend([seen.order(learner), seen.growth(learner)].into_iter().flatten());
        }
        findings.extend(seen.mixtures().map(Finding::open));
        Ok(Summary { findings, figures: seen.figures(), tables: vec![seen.table()] })
    }
}

/// The rank of every number, from 0; equal numbers share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |v: &f64| {
        let (below, equal) = values.iter().fold((0.0, 0.0), |(below, equal), w| match w.total_cmp(v) {
            std::cmp::Ordering::Less => (below + 1.0, equal),
            std::cmp::Ordering::Equal => (below, equal + 1.0),
            std::cmp::Ordering::Greater => (below, equal),
        });
        below + (equal - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Spearman's correlation of ranks, of three pairs or more.
fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let centred = |of: fn(&(f64, f64)) -> f64| {
        let ranks = ranks(&pairs.iter().map(of).collect::<Vec<_>>());
        let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
        ranks.into_iter().map(|rank| rank - mean).collect::<Vec<f64>>()
    };
    let (a, b) = (centred(|p| p.0), centred(|p| p.1));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let size = (dot(&a, &a) * dot(&b, &b)).sqrt();
    (pairs.len() >= 3 && size > 0.0).then(|| dot(&a, &b) / size)
}

/// The interval of a rank correlation of so many targets, by Fisher's transform: `tanh(artanh ρ ± 1.96 · 1.06/√(T − 3))`. Of few targets a perfect order may be chance: ρ is
/// taken to be half a swap of neighbours below it.
fn over_targets(correlation: f64, targets: usize) -> Option<Estimate> {
    let count = targets as f64;
    let most = 1.0 - 6.0 / (count * (count * count - 1.0));
    let (z, half) = (correlation.clamp(-most, most).atanh(), 1.96 * 1.06 / (count - 3.0).sqrt());
    (targets > 3).then(|| Estimate { value: correlation, low: (z - half).tanh(), high: (z + half).tanh() })
}

/// Examples that a curve of errors needs for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Needed {
    /// No more than the smallest size.
    Early(f64),
    /// So many, between two sizes on the line through their logarithms; from there on the error stays below.
    At(f64),
    /// More than the largest size.
    Never,
}

fn needed(curve: &[(u64, f64)], goal: f64) -> Needed {
    let Some(last) = curve.iter().rposition(|(_, error)| *error > goal) else {
        return curve.first().map_or(Needed::Never, |(n, _)| Needed::Early(*n as f64));
    };
    let (Some(&(n, e)), Some(&(n_next, e_next))) = (curve.get(last), curve.get(last + 1)) else { return Needed::Never };
    let share = (e / goal).ln() / (e / e_next).ln();
    Needed::At(n as f64 * (n_next as f64 / n as f64).powf(share))
}

/// Those of all seeds: their geometric mean if all of them reach the goal and some only after the smallest size, which counts for those that were there from the first.
fn together(seeds: &[Needed]) -> Option<Estimate> {
    let counted = |needed: &Needed| match *needed {
        Needed::Early(n) | Needed::At(n) => Some(n),
        Needed::Never => None,
    };
    let some_later = seeds.iter().any(|needed| matches!(needed, Needed::At(_)));
    let all: Option<Vec<f64>> = seeds.iter().map(counted).collect();
    all.filter(|_| some_later).map(|all| stats::geometric(&all))
}

struct Seen<'a> {
    config: &'a Config,
    errors: Errors<Key>,
    bounds: Errors<(String, Named)>,
}

impl Seen<'_> {
    fn most(&self) -> u64 {
        self.errors.keys().map(|key| key.2).max().unwrap_or(0)
    }

    fn bound(&self, target: &str, learner: Named) -> Option<f64> {
        self.bounds.mean(&(target.to_owned(), learner)).map(|bound| bound.value)
    }

    /// All targets that have been measured, mixtures last.
    fn targets(&self) -> Vec<String> {
        let mixtures = self.config.gammas.iter().map(|&gamma| mixed(self.config, gamma));
        self.config.targets.iter().cloned().chain(mixtures).collect()
    }

    /// Examples that every seed needs.
    fn examples(&self, target: &str, learner: Named) -> Vec<Needed> {
        let mut curves: BTreeMap<u64, Vec<(u64, f64)>> = BTreeMap::new();
        for &n in &self.config.n {
            for (seed, error) in self.errors.of(&(target.to_owned(), learner, n)).into_iter().flatten() {
                curves.entry(*seed).or_default().push((n, *error));
            }
        }
        curves.values().map(|curve| needed(curve, self.config.goal)).collect()
    }

    /// Whether B orders targets as their errors do; mixtures aside, whose simple parts are learnt whatever their B, and targets of which nothing is learnt, whose errors are all alike.
    fn order(&self, learner: Named) -> Option<Finding> {
        let n = self.most();
        let error = |target: &String| Some(self.errors.mean(&(target.clone(), learner, n))?.value);
        let known: Vec<&String> = self
            .config
            .targets
            .iter()
            .filter(|target| error(target).is_some() && self.bound(target, learner).is_some())
            .collect();
        let pairs: Vec<(f64, f64)> = known
            .iter()
            .filter_map(|target| Some((self.bound(target, learner)?, error(target)?)))
            .filter(|(_, error)| *error <= NOTHING)
            .collect();
        let nothing = match known.len() - pairs.len() {
            0 => String::new(),
            count => format!("; of {count} more nothing is learnt (errors above {NOTHING})"),
        };
        let name = learner.name();
        let Some(correlation) = rank_correlation(&pairs).and_then(|found| over_targets(found, pairs.len())) else {
            let text = format!("For {name} at n = {n} too few targets are learnt to say whether B orders them{nothing}.");
            return (!known.is_empty()).then(|| Finding::open(text));
        };
        let said = match () {
            () if correlation.above(0.7) => "B orders targets much as their errors do",
            () if correlation.above(0.0) => "B orders targets in part as their errors do",
            () if correlation.below(0.0) => "B orders targets against their errors",
            () => "no relation between B and errors is to be told from chance",
        };
        let text = format!(
            "For {name} at n = {n} {said}, rank correlation {correlation}, an interval over targets, of {} targets{nothing}.",
            pairs.len()
        );
        Some(Finding::judged(text, correlation.above(0.0), correlation.below(0.0)))
    }

    /// How the examples needed grow with B.
    fn growth(&self, learner: Named) -> Option<Finding> {
        let goal = self.config.goal;
        let (mut dots, mut missed) = (Vec::new(), 0);
        for target in &self.config.targets {
            let Some(bound) = self.bound(target, learner) else { continue };
            let needed = self.examples(target, learner);
            dots.extend(together(&needed).map(|n| (bound, n.value)));
            missed += usize::from(needed.contains(&Needed::Never));
        }
        let name = learner.name();
        let missing = match missed {
            0 => String::new(),
            count => format!("; {count} targets fail to reach it with n = {} in some seed", self.most()),
        };
        let Some(exponent) = stats::exponent(&dots) else {
            return Some(Finding::open(format!(
                "For {name} {} targets reach an error of {goal} between two sizes, too few for an exponent{missing}.",
                dots.len()
            )));
        };
        let said = match () {
            () if exponent.above(1.0) => "faster than the n ∝ B that theory's bound has",
            () if exponent.below(1.0) && exponent.above(0.0) => "more slowly than the n ∝ B that suffices by theory's bound",
            () if exponent.below(1.0) => "hardly at all, or it is too uncertain to say; theory's bound has n ∝ B",
            () => "consistent with theory's n ∝ B",
        };
        let text = format!(
            "For {name} the examples needed for an error of {goal} grow as B^b, b = {exponent} over {} targets, {said}{missing}.",
            dots.len()
        );
        // The bound is from above.
        Some(Finding::judged(text, !exponent.above(1.0), exponent.above(1.0)))
    }

    /// Whether mixtures err as their parts do. Parts have variance 1 and are uncorrelated: if each is learnt as it would be alone, the error is
    /// `s e_hard + (1 − s) e_simple`, with `s = (1−γ)²/((1−γ)² + γ²)` the share of the variance that is hard.
    fn mixtures(&self) -> Option<String> {
        let n = self.most();
        let (mut parts, mut alike, mut all) = (Vec::new(), 0, 0);
        for &learner in &self.config.learners {
            let of = |target: &String| self.errors.of(&(target.clone(), learner, n));
            let (Some(simple), Some(hard)) = (of(&self.config.simple), of(&self.config.hard)) else { continue };
            let ratio = |gamma: f64| {
                let share = (1.0 - gamma).powi(2) / ((1.0 - gamma).powi(2) + gamma.powi(2));
                let each =
                    |(seed, seen): (&u64, &f64)| Some(seen / (share * hard.get(seed)? + (1.0 - share) * simple.get(seed)?));
                let ratios: Vec<f64> = of(&mixed(self.config, gamma))?.iter().filter_map(each).collect();
                (!ratios.is_empty()).then(|| Ratio { times: stats::geometric(&ratios), pairs: ratios.len() })
            };
            let mut told = Vec::new();
            for &gamma in &self.config.gammas {
                if let Some(ratio) = ratio(gamma) {
                    alike += usize::from(ratio.close());
                    all += 1;
                    told.push(format!("{} (γ = {gamma})", ratio.times));
                }
            }
            parts.extend((!told.is_empty()).then(|| format!("{} for {}", joined(&told), learner.name())));
        }
        let (simple, hard) = (title(&self.config.simple), title(&self.config.hard));
        (all > 0).then(|| {
            format!(
                "At n = {n} mixtures of {simple} and {hard} err as each part would alone, weighed by its share of the variance, in {alike} of {all} cases (within a quarter): the \
                 error over that is {}.",
                joined(&parts)
            )
        })
    }

    fn figures(&self) -> Vec<Figure> {
        let families: [Kind; 4] = [
            ("query", |target| target.starts_with("query")),
            ("average", |target| target.starts_with("average")),
            ("correlation", |target| target.starts_with("correlation")),
            ("mixed", |target| target.starts_with("mixed")),
        ];
        // One dot a target, one series a family.
        let dots = |learner: Named, y: &dyn Fn(&str) -> Option<Estimate>| -> Vec<Series> {
            let of = |(name, of): &Kind| {
                let mut points: Vec<Dot> = self
                    .targets()
                    .iter()
                    .filter(|target| of(target))
                    .filter_map(|target| Some(Dot { x: self.bound(target, learner)?, y: y(target)?, note: title(target) }))
                    .collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                Series { label: (*name).into(), look: Look::Dots, points }
            };
            families.iter().map(of).filter(|series| !series.points.is_empty()).collect()
        };
        let n = self.most();
        let x = || Axis::log("squared norm B of the target, variance 1");
        let error = |&learner: &Named| {
            let mut series = dots(learner, &|target| self.errors.mean(&(target.to_owned(), learner, n)));
            let ends: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.x)).filter(|b| *b < n as f64).collect();
            let (low, high) = ends.iter().fold((f64::INFINITY, n as f64), |(low, high), &b| (low.min(b), high.max(b)));
            if low.is_finite() {
                series.push(Series::theory("√(B/n)", [low, high].map(|b| (b, (b / n as f64).sqrt()))));
            }
            Panel::Chart(Chart { title: learner.name().into(), x: x(), y: Axis::log("test error, MSE / Var"), series })
        };
        let count = |&learner: &Named| {
            let mut series = dots(learner, &|target| together(&self.examples(target, learner)));
            let all: Vec<(f64, f64)> = series.iter().flat_map(|s| s.points.iter().map(|p| (p.x, p.y.value))).collect();
            if let Some(&(b0, n0)) = all.iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
                let most = all.iter().map(|p| p.1).fold(n0, f64::max);
                series.push(Series::theory("slope of n ∝ B", [(b0, n0), (b0 * most / n0, most)]));
            }
            Panel::Chart(Chart { title: learner.name().into(), x: x(), y: Axis::log("examples needed, n"), series })
        };
        let gamma = |&learner: &Named| {
            let line = |&n: &u64| {
                points(
                    format!("n = {n}"),
                    &self.errors,
                    self.config.gammas.iter().map(|&g| (g, (mixed(self.config, g), learner, n))),
                )
            };
            let sizes = &self.config.n[self.config.n.len().saturating_sub(4)..];
            Panel::Chart(Chart {
                title: learner.name().into(),
                x: Axis::linear("weight γ of the simple part"),
                y: Axis::log("test error, MSE / Var"),
                series: sizes.iter().map(line).collect(),
            })
        };
        let figure = |name: &str, title: &str, caption: String, panels: Vec<Panel>| Figure {
            name: name.into(),
            title: title.into(),
            caption,
            panels,
        };
        let all = &self.config.learners;
        let sizes = format!(
            "d = {}, N = {}, M = {}; 95 % intervals over {} seeds.",
            self.config.d, self.config.keys, self.config.heads, self.config.seeds
        );
        vec![
            figure(
                "error-against-norm",
                "Error against the norm of the target",
                format!(
                    "One dot a target, at n = {n}: further right is harder by theory's measure, higher is harder in fact. Dashed, the bound where it is below 1. Odd powers have a \
                     linear part, which is learnt long before the rest. {sizes}"
                ),
                all.iter().map(error).collect(),
            ),
            figure(
                "examples-against-norm",
                "Examples needed against the norm of the target",
                format!(
                    "Sets with which the error falls to {}, between the measured sizes; targets that never reach it, or did from the first, are left out. Dashed, the slope of \
                     n ∝ B. {sizes}",
                    self.config.goal
                ),
                all.iter().map(count).collect(),
            ),
            figure(
                "mixtures",
                "Mixtures of a simple and a hard target",
                format!(
                    "γ of {} and 1 − γ of {}: to the left there is more of the hard part. {sizes}",
                    title(&self.config.simple),
                    title(&self.config.hard)
                ),
                all.iter().map(gamma).collect(),
            ),
        ]
    }

    fn table(&self) -> Table {
        let n = self.most();
        let mut rows = Vec::new();
        for target in self.targets() {
            for &learner in &self.config.learners {
                let Some(error) = self.errors.mean(&(target.clone(), learner, n)) else { continue };
                let needed = self.examples(&target, learner);
                let count = match (together(&needed), needed.contains(&Needed::Never)) {
                    (Some(n), _) => n.to_string(),
                    (None, true) => format!("above {n}"),
                    (None, false) => format!("at most {}", self.config.n.iter().min().unwrap_or(&0)),
                };
                let bound = self.bound(&target, learner).map_or_else(|| "–".into(), short);
                rows.push(vec![title(&target), learner.name().into(), bound, error.to_string(), count]);
            }
        }
        Table {
            caption: format!(
                "Norm B of every target scaled to variance 1, error at n = {n} and examples needed for an error of {}.",
                self.config.goal
            ),
            columns: ["target", "learner", "B", "MSE / Var", "examples needed"].map(str::to_owned).to_vec(),
            rows,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::{Measured, Stance};

    fn config() -> Config {
        let targets = ["query:p=1", "query:p=2", "average:p=2", "average:p=3", "average:p=1", "query:p=3", "correlation:p=2,q=2"];
        let targets = targets.map(str::to_owned).to_vec();
        let n = vec![20, 80, 320, 1280];
        Config {
            d: 4,
            keys: 3,
            heads: 5,
            n,
            n_test: 200,
            seeds: 3,
            targets,
            gammas: vec![0.1, 0.9],
            ..Complexity::config(Scale::Quick)
        }
    }

    #[test]
    fn ranks_and_counts_are_the_textbooks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [2.5, 0.0, 2.5, 1.0]);
        assert!((rank_correlation(&[(1.0, 2.0), (2.0, 4.0), (3.0, 100.0)]).unwrap() - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&[(1.0, 9.0), (2.0, 4.0), (3.0, 1.0)]).unwrap() + 1.0).abs() < 1e-12);
        assert!(rank_correlation(&[(1.0, 9.0), (2.0, 4.0)]).is_none());
        // Errors 1/n: ½ at n = 2, between 1 and 4.
        let Needed::At(n) = needed(&[(1, 1.0), (4, 0.25)], 0.5) else { panic!("it is reached between the two") };
        assert!((n - 2.0).abs() < 1e-12);
        assert_eq!(needed(&[(1, 1.0), (4, 0.75)], 0.5), Needed::Never);
        assert_eq!(needed(&[(1, 0.4), (4, 0.2)], 0.5), Needed::Early(1.0));
        assert!(together(&[Needed::Early(1.0); 2]).is_none() && together(&[Needed::At(2.0), Needed::Never]).is_none());
        assert!((together(&[Needed::Early(1.0), Needed::At(4.0)]).unwrap().value - 2.0).abs() < 1e-12);
    }

    #[test]
    fn points_are_measured_alike_every_time() {
        for point in Complexity::points(&config(), 1).iter().filter(|point| point.n == 80 && point.seed == 1000) {
            let rows = Complexity::measure(point, &|| false).unwrap();
            assert_eq!(rows, Complexity::measure(point, &|| false).unwrap());
            assert!(rows.len() == 9 && rows.iter().all(|row| row.error > 0.0 && row.error < 2.0 && row.bound <= row.plain_bound));
            assert!(rows[0].bound < rows[1].bound && rows[2].bound < rows[3].bound, "{rows:?}");
        }
    }

    fn made(error: fn(f64, f64) -> f64) -> Summary {
        let mut rows = Vec::new();
        for point in Complexity::points(&config(), 1) {
            for (i, target) in point.targets.split("; ").enumerate() {
                let bound = 10.0 * 2.0_f64.powi(i as i32);
                let wobble = 1.0 + 0.01 * ((point.seed % 3 + i as u64) % 3) as f64;
                let error = wobble * error(bound, point.n as f64);
                let row = Row { target: target.into(), error, ridge: 0.1, bound: Some(bound), plain_bound: None };
                rows.push(Measured { point: point.clone(), row, seconds: 0.0 });
            }
        }
        Complexity::summarise(&config(), &rows).unwrap()
    }

    #[test]
    fn findings_follow_the_data() {
        let theory = made(|b, n| (b / n).sqrt());
        assert!(theory.findings[0].text.contains("B orders targets much as their errors do"), "{}", theory.findings[0].text);
        assert!(theory.findings[1].text.contains("consistent with theory's n ∝ B"), "{}", theory.findings[1].text);
        let against = made(|b, n| 1.0 / (b * n.sqrt()));
        assert!(against.findings[0].text.contains("B orders targets against their errors"), "{}", against.findings[0].text);
        let slow = made(|b, n| 2.0 * (b.sqrt() / n).sqrt());
        assert!(slow.findings[1].text.contains("more slowly than"), "{}", slow.findings[1].text);
        let never = made(|_, _| 0.9);
        assert!(
            never.findings[1].text.contains("too few for an exponent; 7 targets fail to reach it"),
            "{}",
            never.findings[1].text
        );
        let stances = |summary: &Summary| [0, 1].map(|i| summary.findings[i].stance);
        assert_eq!(stances(&theory), [Stance::Agrees; 2]);
        assert_eq!(stances(&slow), [Stance::Agrees; 2]);
        let fast = made(|b, n| 0.1 * (b * b / n).sqrt());
        assert_eq!(stances(&fast), [Stance::Agrees, Stance::Differs], "{}", fast.findings[1].text);
        assert_eq!(against.findings[0].stance, Stance::Differs);
        assert_eq!(stances(&never)[1], Stance::Open);
        assert!(theory.figures.len() == 3 && theory.tables[0].rows.len() == 18);
    }

    /// Errors 0.1 and 0.6 of the parts, and of mixtures what follows from them, times something.
    #[test]
    fn mixtures_are_compared_with_their_parts() {
        let told = |times: f64| {
            let mut rows = Vec::new();
            for point in Complexity::points(&config(), 1) {
                for target in point.targets.split("; ") {
                    let error = match target.parse::<TargetSpec>().unwrap() {
                        TargetSpec::Mixed { gamma, .. } if gamma < 0.5 => times * (81.0 * 0.6 + 0.1) / 82.0,
                        TargetSpec::Mixed { .. } => times * (0.6 + 81.0 * 0.1) / 82.0,
                        TargetSpec::Average { .. } => 0.1,
                        _ => 0.6,
                    };
                    let row = Row { target: target.into(), error, ridge: 0.1, bound: Some(1.0), plain_bound: None };
                    rows.push(Measured { point: point.clone(), row, seconds: 0.0 });
                }
            }
            Complexity::summarise(&config(), &rows).unwrap().findings.last().unwrap().text.clone()
        };
        assert!(told(1.0).contains("in 4 of 4 cases") && told(1.0).contains("1.00 (1.00 to 1.00) (γ = 0.1)"), "{}", told(1.0));
        assert!(told(2.0).contains("in 0 of 4 cases") && told(2.0).contains("2.00 (2.00 to 2.00) (γ = 0.9)"), "{}", told(2.0));
    }

    /// A perfect order of four targets comes about by chance once in twelve times, of nine hardly ever.
    #[test]
    fn few_targets_say_little() {
        assert!(over_targets(1.0, 3).is_none() && !over_targets(1.0, 4).unwrap().above(0.0));
        assert!(over_targets(1.0, 9).unwrap().above(0.7) && over_targets(-1.0, 9).unwrap().below(-0.7));
        assert!(!over_targets(0.414, 17).unwrap().above(0.0));
    }
}
