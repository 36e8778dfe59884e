//! Softmax or ReLU? The paper's heads weight keys by `relu(ℓ_i)/N`; trained layers by `softmax(ℓ)_i`. Frozen heads of both kinds, on the same targets, and on a real softmax
//! attention head.
//!
//! | learner | weight of key i, `ℓ_i = ⟨W_m, x̃_0 x̃_iᵀ⟩` |
//! |---|---|
//! | RFA, BRFA | `relu(ℓ_i)/N` |
//! | row-ReLU | `relu(ℓ_i) / Σ_j relu(ℓ_j)`: normalised, but piecewise linear |
//! | softmax | `e^{ℓ_i} / Σ_j e^{ℓ_j}`, also with logits four times as large |
//!
//! Biased ones have the mean `diag(I_d, 0)`. A weight that is divided by a sum depends on all keys at once, as in the head
//! `Σ_i softmax_i(⟨x_0, Θ x_i⟩) ⟨β, x_i⟩`, which is no sum over keys of a function of query and key. Theory speaks of ReLU alone; later work credits softmax over it.

use crate::experiment::{Experiment, Finding, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::{
    Errors, Kind, Named, Ratio, Scored, Task, Verdict, column_texts, compare, joined, parse_targets, points, title,
};
use attnlearn::Result;
use attnlearn::features::Precision;
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};

/// The experiment.
pub struct Softmax;

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
    /// Learners.
    pub learners: Vec<Named>,
    /// Targets.
    pub targets: Vec<String>,
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

/// What an error belongs to.
type Key = (String, Named, u64);

impl Experiment for Softmax {
    const NAME: &'static str = "softmax";
    const TITLE: &'static str = "Softmax against ReLU features";
    const QUESTION: &'static str = "Do frozen softmax heads learn better or worse than the paper's ReLU heads, on its targets and on a real softmax attention head?";
    const CLAIM: &'static str = "Theory covers ReLU heads alone; whether softmax is better or worse is left open.";
    const TOGETHER: bool = false;
    type Config = Config;
    type Point = Point;
    type Row = Scored;

    fn config(scale: Scale) -> Config {
        let targets = [
            "average:p=2",
            "average:p=3",
            "correlation:p=1,q=0",
            "correlation:p=1,q=1",
            "softmax:scale=1",
            "softmax:scale=4",
            "softmax:scale=16",
        ];
        Config {
            d: scale.pick(8, 16),
            keys: scale.pick(8, 16),
            heads: scale.pick(100, 1000),
            n: scale.pick(vec![128, 256, 512, 1024], vec![256, 512, 1024, 2048, 4096]),
            n_test: scale.pick(1000, 4000),
            seeds: 5,
            precision: scale.pick(Precision::F64, Precision::F32),
            learners: vec![Named::Rfa, Named::Brfa, Named::RowRelu, Named::Softmax, Named::SharpSoftmax, Named::BiasedSoftmax],
            targets: targets.map(str::to_owned).to_vec(),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.n);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let mut all = Vec::new();
        for &n in &config.n {
            for seed in seeds(seed, config.seeds) {
                for &learner in &config.learners {
                    let &Config { d, keys, heads, n_test, precision, .. } = config;
                    all.push(Point {
                        learner,
                        d,
                        keys,
                        heads,
                        n,
                        n_test,
                        precision,
                        targets: column_texts(&config.targets),
                        seed,
                    });
                }
            }
        }
        all
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Scored>> {
        let &Point { learner, d, keys, heads, n, n_test, precision, seed, .. } = point;
        let task = Task { d, keys, n, n_test, columns: parse_targets(&point.targets)?, seed };
        task.score(&learner.learner(d, keys, heads, precision, task.stream()), stop)
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let all = rows.iter().map(|m| ((m.row.target.clone(), m.point.learner, m.point.n), m.point.seed, m.row.error));
        let seen = Seen { config, errors: Errors::new(all) };
        let mut findings = Vec::new();
        for (what, of) in KINDS {
            let targets: Vec<&String> = config.targets.iter().filter(|target| of(target)).collect();
            findings.extend(seen.compared(what, &targets).map(Finding::open));
        }
        findings.extend(seen.best().map(Finding::open));
        let figures = KINDS.iter().filter_map(|(what, of)| seen.figure(what, of)).collect();
        Ok(Summary { findings, figures, tables: vec![seen.table()] })
    }
}

/// Kinds of targets.
const KINDS: [Kind; 2] = [
    ("sums over keys", |target| !target.starts_with("softmax")),
    ("softmax attention heads", |target| target.starts_with("softmax")),
];

/// Who is compared with whom: what differs is the function of the logits alone.
const PAIRS: [(Named, Named); 3] =
    [(Named::Softmax, Named::Rfa), (Named::BiasedSoftmax, Named::Brfa), (Named::Softmax, Named::RowRelu)];

struct Seen<'a> {
    config: &'a Config,
    errors: Errors<Key>,
}

impl Seen<'_> {
    fn most(&self) -> u64 {
        self.errors.keys().map(|key| key.2).max().unwrap_or(0)
    }

    /// Softmax beside ReLU at the largest n, in pairs that differ in nothing else.
    fn compared(&self, what: &str, targets: &[&String]) -> Option<String> {
        let n = self.most();
        let said = |(a, b): (Named, Named)| {
            let ratio = |target: &String| self.errors.ratio(&(target.clone(), a, n), &(target.clone(), b, n));
            let on: Vec<(String, Ratio)> = targets.iter().filter_map(|target| Some((title(target), ratio(target)?))).collect();
            let wins = |verdict| on.iter().filter(|(_, ratio)| ratio.verdict() == verdict).count();
            let (won, lost) = (wins(Verdict::First), wins(Verdict::Second));
            let count = format!("{} beats {} on {won} of {} targets and is beaten on {lost}", a.name(), b.name(), on.len());
            (!on.is_empty()).then(|| (count, compare(a.name(), b.name(), &on)))
        };
        let (counts, parts): (Vec<String>, Vec<String>) = PAIRS.into_iter().filter_map(said).unzip();
        (!parts.is_empty()).then(|| format!("On {what} at n = {n} {}: {}.", joined(&counts), parts.join("; ")))
    }

    /// Who errs least on every target.
    fn best(&self) -> Option<String> {
        let n = self.most();
        let least = |target: &String| {
            let errors = self.config.learners.iter().filter_map(|&l| Some((l, self.errors.mean(&(target.clone(), l, n))?)));
            let (learner, error) = errors.min_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
            Some((learner, format!("{} on {} ({error})", learner.name(), title(target))))
        };
        let (best, parts): (Vec<Named>, Vec<String>) = self.config.targets.iter().filter_map(least).unzip();
        let wins = |learner: &Named| best.iter().filter(|best| *best == learner).count();
        let mut winners = self.config.learners.clone();
        winners.retain(|learner| wins(learner) > 0);
        winners.sort_by_key(|learner| std::cmp::Reverse(wins(learner)));
        let winners: Vec<String> = winners.iter().map(|learner| format!("{} on {}", learner.name(), wins(learner))).collect();
        (!parts.is_empty()).then(|| {
            let (kinds, all) = (self.config.learners.len(), parts.len());
            format!(
                "Of {kinds} kinds of heads the least error at n = {n} has, of {all} targets, {}: {}.",
                joined(&winners),
                joined(&parts)
            )
        })
    }

    fn figure(&self, what: &str, of: &fn(&str) -> bool) -> Option<Figure> {
        let chart = |target: &String| {
            let line = |&learner: &Named| {
                points(learner.name(), &self.errors, self.config.n.iter().map(|&n| (n as f64, (target.clone(), learner, n))))
            };
            let series: Vec<Series> = self.config.learners.iter().map(line).collect();
            Panel::Chart(Chart {
                title: title(target),
                x: Axis::log("sets to learn from, n"),
                y: Axis::log("test error, MSE / Var"),
                series,
            })
        };
        let panels: Vec<Panel> = self.config.targets.iter().filter(|target| of(target)).map(chart).collect();
        (!panels.is_empty()).then(|| Figure {
            name: what.replace(' ', "-"),
            title: format!("Error on {what}"),
            caption: format!(
                "Lower is better, 1 is what a constant reaches. All learners have M = {} frozen heads on the same sets, d = {}, N = {}; the scale of a head is the standard deviation \
                 of its logits. 95 % intervals over {} seeds.",
                self.config.heads, self.config.d, self.config.keys, self.config.seeds
            ),
            panels,
        })
    }

    fn table(&self) -> Table {
        let n = self.most();
        let cell = |target: &String, learner: Named| {
            self.errors.mean(&(target.clone(), learner, n)).map_or_else(|| "–".into(), |error| error.to_string())
        };
        let row = |target: &String| {
            let cells = self.config.learners.iter().map(|&learner| cell(target, learner));
            [title(target)].into_iter().chain(cells).collect()
        };
        let names = self.config.learners.iter().map(|learner| learner.name().to_owned());
        Table {
            caption: format!("Errors at n = {n}, MSE / Var on fresh sets, with 95 % intervals."),
            columns: ["target".to_owned()].into_iter().chain(names).collect(),
            rows: self.config.targets.iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::Measured;

    fn config() -> Config {
        let targets = ["average:p=2", "softmax:scale=4"].map(str::to_owned).to_vec();
        Config { d: 3, keys: 3, heads: 6, n: vec![40, 80], n_test: 200, seeds: 3, targets, ..Softmax::config(Scale::Quick) }
    }

    #[test]
    fn points_are_measured_alike_every_time() {
        let points = Softmax::points(&config(), 1);
        assert_eq!(points.len(), 2 * 3 * 6);
        for point in points.iter().filter(|point| point.n == 80 && point.seed == 1000) {
            let rows = Softmax::measure(point, &|| false).unwrap();
            assert_eq!(rows, Softmax::measure(point, &|| false).unwrap());
            assert!(rows.len() == 2 && rows.iter().all(|row| row.error > 0.0 && row.error < 2.0), "{point:?} {rows:?}");
        }
    }

    fn made(error: fn(Named, bool) -> f64) -> Summary {
        let mut rows = Vec::new();
        for point in Softmax::points(&config(), 1) {
            for target in config().targets {
                let wobble = 1.0 + 0.01 * (point.seed % 3) as f64 * if point.learner == Named::Rfa { 1.0 } else { 0.3 };
                let error = wobble * error(point.learner, target.starts_with("softmax"));
                rows.push(Measured { point: point.clone(), row: Scored { target, error, ridge: 0.1 }, seconds: 0.0 });
            }
        }
        Softmax::summarise(&config(), &rows).unwrap()
    }

    #[test]
    fn findings_follow_the_data() {
        let one = made(|learner, head| if head == (learner == Named::Softmax) { 0.2 } else { 0.4 });
        assert!(one.findings[0].text.contains("is beaten on 1: RFA beats softmax on average p=2"), "{}", one.findings[0].text);
        assert!(
            one.findings[1].text.starts_with("On softmax attention heads at n = 80 softmax beats RFA on 1 of 1 targets"),
            "{}",
            one.findings[1].text
        );
        assert!(one.findings[2].text.contains("softmax on softmax head (scale 4)"), "{}", one.findings[2].text);
        let other = made(|learner, head| if head == (learner == Named::Softmax) { 0.4 } else { 0.2 });
        assert!(
            other.findings[0].text.contains("softmax beats RFA on average p=2")
                && other.findings[1].text.contains("RFA beats softmax on softmax head")
        );
        assert!(one.figures.len() == 2 && one.tables[0].rows.len() == 2);
    }
}
