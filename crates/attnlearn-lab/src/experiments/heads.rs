//! How many heads are as good as infinitely many? Layers of M frozen heads beside their kernel, on the same sets.
//!
//! The products of features are `U` times those of the kernel, `U = M` heads or `K = M(d+1)` neurons, up to `U^{−1/2}`. So heads with ridge `λU` solve nearly the
//! equations of the kernel with ridge `λ`, and with `f_M`, `f` the predictions on fresh sets
//!
//! ```text
//! gap_M = √(mean (f_M − f)² / Var f*)  ∝  M^{−1/2}
//! ```
//!
//! which is the `√(d²/M)` of theory's excess risk. λ is the kernel's best for every target; heads of larger M contain those of smaller.

use crate::experiment::{Experiment, Finding, Measurements, Scale, Summary, Table, seeds};
use crate::features::{
    Column, Errors, NOTHING, Named, Task, best_ridges, column_texts, errors_of, fit, joined, parse_targets, points, predict,
    title,
};
use crate::stats::{self, Estimate, short};
use attnlearn::features::ridge::{Options, Ridge, Solver};
use attnlearn::features::{Learner, Precision, Sets};
use attnlearn::{Error, Result};
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The experiment.
pub struct Heads;

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Dimension of query and keys.
    pub d: usize,
    /// Keys, N.
    pub keys: usize,
    /// The fewest heads; the numbers of heads double.
    pub fewest: usize,
    /// The most heads.
    pub most: usize,
    /// Sets to learn from.
    pub n: u64,
    /// Fresh sets.
    pub n_test: u64,
    /// Seeds.
    pub seeds: u64,
    /// Learners that have a kernel.
    pub learners: Vec<Named>,
    /// Targets.
    pub targets: Vec<String>,
}

/// A learner and a task, for all numbers of heads: the kernel is fitted once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    learner: Named,
    d: usize,
    keys: usize,
    fewest: usize,
    most: usize,
    n: u64,
    n_test: u64,
    targets: String,
    seed: u64,
}

/// A number of heads and a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    target: String,
    /// Heads, M.
    heads: usize,
    /// Mean squared error of M heads over the variance of the target.
    error: f64,
    /// That of the kernel.
    kernel_error: f64,
    /// Root of the mean squared difference of their predictions, over the standard deviation of the target.
    gap: f64,
    /// The kernel's ridge λ.
    ridge: f64,
}

/// What a number belongs to: target, learner, heads.
type Key = (String, Named, usize);

/// Exponents are fitted where there are this many trained values for every example: with as many values as examples errors peak (double descent), far from the limit.
const MANY: u64 = 4;

/// As good as infinitely many: an error at most this many times the kernel's.
const AS_GOOD: f64 = 1.1;
/// Theory's rate: that of a mean over M independent heads.
const RATE: f64 = -0.5;
/// Exponents as near as that are alike: the rate is one for large M.
const ALIKE: f64 = 0.02;

fn doubling(fewest: usize, most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(fewest.max(1)), |heads| heads.checked_mul(2)).take_while(move |heads| *heads <= most)
}

impl Experiment for Heads {
    const NAME: &'static str = "heads";
    const TITLE: &'static str = "Finitely many heads beside infinitely many";
    const QUESTION: &'static str = "How fast do M frozen heads approach the kernel of infinitely many, and how many are as good?";
    const CLAIM: &'static str =
        "Predictions of M heads differ from those of infinitely many by about M^−½, and the excess risk has a term √(d²/M).";
    const TOGETHER: bool = false;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            d: scale.pick(8, 16),
            keys: scale.pick(8, 16),
            fewest: scale.pick(8, 16),
            most: scale.pick(2048, 8192),
            n: scale.pick(256, 2048),
            n_test: scale.pick(500, 2000),
            seeds: 5,
            learners: vec![Named::Rfa, Named::Brfa, Named::Rfmlp],
            targets: ["average:p=2", "correlation:p=1,q=1"].map(str::to_owned).to_vec(),
        }
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let mut all = Vec::new();
        for seed in seeds(seed, config.seeds) {
            for &learner in &config.learners {
                let &Config { d, keys, fewest, most, n, n_test, .. } = config;
                all.push(Point { learner, d, keys, fewest, most, n, n_test, targets: column_texts(&config.targets), seed });
            }
        }
        all
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let &Point { learner, d, keys, n, n_test, seed, .. } = point;
        let task = Task { d, keys, n, n_test, columns: parse_targets(&point.targets)?, seed };
        let kernel = learner
            .kernel()
            .ok_or_else(|| Error::input("learners", format!("{} has no kernel", learner.name()), "choose rfa, brfa or rfmlp"))?;
        let drawn = task.draw(&stop)?;
        let limit = fit(&Learner::Kernel(kernel), &drawn.train, &best_ridges(), stop)?;
        let limits = predict(&limit.model, &drawn.test, stop)?;
        let limit_errors = errors_of(&limits, &drawn.test)?;
        let mut rows = Vec::new();
        for heads in doubling(point.fewest, point.most) {
            let units = if learner == Named::Rfmlp { heads * (d + 1) } else { heads };
            let finite = learner.learner(d, keys, heads, Precision::F64, task.stream());
            for (j, (Column { target, .. }, &ridge)) in task.columns.iter().zip(&limit.ridges).enumerate() {
                let train = column(&drawn.train, j);
                let options = Options { ridge: Ridge::Given(ridge * units as f64), solver: Solver::Dual, ..Options::default() };
                let found = predict(&fit(&finite, &train, &options, stop)?.model, &drawn.test, stop)?;
                let test = column(&drawn.test, j);
                let limit: Vec<f64> = limits.iter().copied().skip(j).step_by(task.columns.len()).collect();
                rows.push(Row {
                    target: target.to_string(),
                    heads,
                    error: errors_of(&found, &test)?.iter().sum(),
                    kernel_error: limit_errors[j],
                    gap: gap(&found, &limit, &test.block().y),
                    ridge,
                });
            }
        }
        Ok(rows)
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let of = |value: fn(&Row) -> f64| {
            Errors::new(rows.iter().map(|m| ((m.row.target.clone(), m.point.learner, m.row.heads), m.point.seed, value(&m.row))))
        };
        let seen = Seen { config, gaps: of(|row| row.gap), errors: of(|row| row.error), kernels: of(|row| row.kernel_error) };
        let findings = [seen.convergence(), seen.enough().map(Finding::open)].into_iter().flatten().collect();
        Ok(Summary { findings, figures: vec![seen.gap_figure(), seen.error_figure()], tables: vec![seen.table()] })
    }
}

/// The sets with one of their targets.
fn column(sets: &Sets, j: usize) -> Sets {
    let mut block = sets.block().clone();
    block.y = block.y.iter().copied().skip(j).step_by(block.shape.targets.max(1)).collect();
    block.shape.targets = 1;
    Sets::new(block)
}

/// Root mean square of `a − b` over the standard deviation of `y`.
fn gap(a: &[f64], b: &[f64], y: &[f64]) -> f64 {
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let spread: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
    (a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / spread).sqrt()
}

struct Seen<'a> {
    config: &'a Config,
    gaps: Errors<Key>,
    errors: Errors<Key>,
    kernels: Errors<Key>,
}

impl Seen<'_> {
    fn heads(&self) -> Vec<usize> {
        doubling(self.config.fewest, self.config.most).collect()
    }

    /// Targets with learners.
    fn curves(&self) -> impl Iterator<Item = (&String, Named)> {
        self.config.targets.iter().flat_map(|target| self.config.learners.iter().map(move |&learner| (target, learner)))
    }

    fn keys(&self, target: &str, learner: Named) -> Vec<(f64, Key)> {
        self.heads().into_iter().map(|heads| (heads as f64, (target.to_owned(), learner, heads))).collect()
    }

    /// The fewest heads whose trained values are [`MANY`] times as many as the examples.
    fn from(&self) -> usize {
        let many = (MANY * self.config.n) as usize;
        self.heads().into_iter().find(|heads| heads * (self.config.d + 1) >= many).unwrap_or(usize::MAX)
    }

    /// The exponent of the gap, from there on.
    fn exponent(&self, target: &str, learner: Named) -> Option<Estimate> {
        let keys: Vec<(f64, Key)> = self.keys(target, learner).into_iter().filter(|(_, key)| key.2 >= self.from()).collect();
        self.gaps.exponent(&keys)
    }

    fn convergence(&self) -> Option<Finding> {
        let mut fitted = Vec::new();
        for (target, learner) in self.curves() {
            fitted.extend(self.exponent(target, learner).map(|b| (b, format!("{} on {}", learner.name(), title(target)))));
        }
        let (from, most) = (self.from(), self.heads().last().copied()?);
        let parts: Vec<String> = fitted.iter().map(|(b, what)| format!("{b} for {what}")).collect();
        let agree = fitted.iter().filter(|(b, _)| !b.above(RATE + ALIKE) && !b.below(RATE - ALIKE)).count();
        let converging = fitted.iter().filter(|(b, _)| b.below(0.0)).count();
        let slower = fitted.iter().any(|(b, _)| b.above(RATE + ALIKE));
        if fitted.iter().any(|(b, _)| !(b.low.is_finite() && b.high.is_finite())) {
            return Some(Finding::open("One seed does not say how fast predictions of M heads approach the kernel's."));
        }
        (!parts.is_empty()).then(|| {
            let text = format!(
                "Predictions of M heads approach the kernel's in {converging} of {} cases, from M = {from} to {most} as M^b with a b that is not to be told from theory's −0.5 (within {ALIKE}) in \
                 {agree} of them: b = {}.",
                parts.len(),
                joined(&parts)
            );
            Finding::judged(text, !slower && converging == fitted.len(), slower)
        })
    }

    /// How many heads err at most so much more than the kernel, in the mean over seeds, from there on; kernels that learn nothing are left out.
    fn enough(&self) -> Option<String> {
        let (mut parts, mut idle, mut needed) = (Vec::new(), Vec::new(), Vec::new());
        for (target, learner) in self.curves() {
            let ratio = |heads: usize| {
                let key = (target.clone(), learner, heads);
                let kernels: &BTreeMap<u64, f64> = self.kernels.of(&key)?;
                let ratios: Vec<f64> =
                    self.errors.of(&key)?.iter().filter_map(|(seed, e)| Some(e / kernels.get(seed)?)).collect();
                Some(stats::geometric(&ratios))
            };
            let ratios: Vec<(usize, Estimate)> =
                self.heads().into_iter().filter_map(|heads| Some((heads, ratio(heads)?))).collect();
            let Some(&(most, last)) = ratios.last() else { continue };
            let what = format!("{} on {}", learner.name(), title(target));
            if self.kernels.mean(&(target.clone(), learner, most)).is_some_and(|error| error.value > NOTHING) {
                idle.push(what);
                continue;
            }
            let far = ratios.iter().rposition(|(_, ratio)| ratio.value > AS_GOOD).map_or(0, |i| i + 1);
            needed.push(ratios.get(far).map(|(heads, _)| *heads));
            parts.push(match ratios.get(far) {
                Some((heads, _)) => format!("M = {heads} for {what}"),
                None => format!("more than {most} for {what} (there {last} times)"),
            });
        }
        let idle = if idle.is_empty() {
            String::new()
        } else {
            format!("; there is nothing to approach for {}, where the kernel learns nothing", joined(&idle))
        };
        let known: Vec<usize> = needed.iter().flatten().copied().collect();
        let range = match (known.iter().min(), known.iter().max()) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most} heads"),
            (Some(only), _) => format!("{only} heads"),
            _ => "more heads than were tried".into(),
        };
        (!parts.is_empty()).then(|| {
            format!(
                "To err at most {AS_GOOD} times as much as infinitely many heads do at n = {} takes {range} in {} of {} cases: {}{idle}.",
                self.config.n,
                if known.is_empty() { needed.len() } else { known.len() },
                needed.len(),
                joined(&parts)
            )
        })
    }

    fn gap_figure(&self) -> Figure {
        let chart = |target: &String| {
            let line = |&learner: &Named| points(learner.name(), &self.gaps, self.keys(target, learner));
            let mut series: Vec<Series> = self.config.learners.iter().map(line).collect();
            let end = series.first().and_then(|series| series.points.last()).map(|point| (point.x, point.y.value));
            if let Some((x, y)) = end {
                series.push(Series::theory(
                    "slope of M^(−1/2)",
                    self.heads().iter().map(|&m| (m as f64, y * (x / m as f64).sqrt())),
                ));
            }
            Panel::Chart(Chart {
                title: title(target),
                x: Axis::log("heads, M"),
                y: Axis::log("distance to the kernel's predictions, in sd of the target"),
                series,
            })
        };
        Figure {
            name: "gap".into(),
            title: "Distance to infinitely many heads".into(),
            caption: format!(
                "Root mean square difference of the predictions of M heads and of the kernel, both fitted to the same {} sets with matching ridges; RFMLP has M(d+1) neurons. \
                 95 % intervals over {} seeds. The dashed line has theory's slope. Where M(d+1) is about n, \
                 finite layers have their double descent.",
                self.config.n, self.config.seeds
            ),
            panels: self.config.targets.iter().map(chart).collect(),
        }
    }

    fn error_figure(&self) -> Figure {
        let chart = |target: &String| {
            let mut series = Vec::new();
            for &learner in &self.config.learners {
                series.push(points(learner.name(), &self.errors, self.keys(target, learner)));
                let limit =
                    self.keys(target, learner).into_iter().filter_map(|(x, key)| Some((x, self.kernels.mean(&key)?.value)));
                series.push(Series::theory(format!("{} kernel", learner.name()), limit));
            }
            Panel::Chart(Chart { title: title(target), x: Axis::log("heads, M"), y: Axis::log("test error, MSE / Var"), series })
        };
        Figure {
            name: "error".into(),
            title: "Error against the number of heads".into(),
            caption: format!(
                "Dashed, the mean error of the kernel, measured on the same sets; n = {}, d = {}, N = {}. Finite heads have the kernel's ridge, not their own best.",
                self.config.n, self.config.d, self.config.keys
            ),
            panels: self.config.targets.iter().map(chart).collect(),
        }
    }

    fn table(&self) -> Table {
        let mut rows = Vec::new();
        for (target, learner) in self.curves() {
            for heads in self.heads() {
                let key = (target.clone(), learner, heads);
                let (Some(gap), Some(error)) = (self.gaps.mean(&key), self.errors.mean(&key)) else { continue };
                let kernel = self.kernels.mean(&key).map_or_else(|| "–".into(), |error| short(error.value));
                rows.push(vec![
                    title(target),
                    learner.name().into(),
                    heads.to_string(),
                    gap.to_string(),
                    error.to_string(),
                    kernel,
                ]);
            }
        }
        Table {
            caption: "Distance to the kernel's predictions (sd of the target), errors of M heads and of the kernel (MSE / Var)."
                .into(),
            columns: ["target", "learner", "M", "distance", "error", "kernel's error"].map(str::to_owned).to_vec(),
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
        Config { d: 3, keys: 3, fewest: 16, most: 1024, n: 40, n_test: 100, seeds: 3, ..Heads::config(Scale::Quick) }
    }

    /// The gap falls, at about the right rate, for every learner.
    #[test]
    fn heads_approach_their_kernel() {
        for point in Heads::points(&config(), 1).iter().filter(|point| point.seed == 1000) {
            let rows = Heads::measure(point, &|| false).unwrap();
            assert_eq!(rows.len(), 2 * 7);
            let gap = |heads: usize| rows.iter().find(|row| row.heads == heads).unwrap().gap;
            assert!(gap(1024) < 0.4 * gap(16), "{point:?} {} {}", gap(16), gap(1024));
            assert_eq!(rows, Heads::measure(point, &|| false).unwrap());
        }
        let wrong = Point { learner: Named::Softmax, ..Heads::points(&config(), 1).remove(0) };
        assert!(Heads::measure(&wrong, &|| false).is_err());
    }

    fn made(exponent: f64, excess: f64) -> Summary {
        let mut rows = Vec::new();
        for point in Heads::points(&config(), 1) {
            for target in config().targets {
                for heads in doubling(16, 1024) {
                    let wobble = 1.0 + 0.02 * (point.seed % 3) as f64;
                    let gap = wobble * (heads as f64).powf(exponent + 0.001 * (point.seed % 3) as f64);
                    let (error, kernel_error) = (0.1 * wobble * (1.0 + excess / heads as f64), 0.1 * wobble);
                    let row = Row { target: target.clone(), heads, error, kernel_error, gap, ridge: 0.1 };
                    rows.push(Measured { point: point.clone(), row, seconds: 0.0 });
                }
            }
        }
        Heads::summarise(&config(), &rows).unwrap()
    }

    #[test]
    fn findings_follow_the_data() {
        let theory = made(-0.501, 10.0);
        assert!(
            theory.findings[0].text.contains("in 6 of 6 cases")
                && theory.findings[0].headline().ends_with("(within 0.02) in 6 of them"),
            "{}",
            theory.findings[0].text
        );
        assert!(theory.findings[1].text.contains("M = 128 for RFA on average p=2"), "{}", theory.findings[1].text);
        let idle = made(-0.5, -2.0);
        assert!(idle.findings[1].text.contains("M = 16 for RFA"), "{}", idle.findings[1].text);
        let other = made(0.1, 1e5);
        assert!(
            other.findings[0].text.contains("in 0 of 6 cases") && other.findings[0].text.contains("in 0 of them: b = "),
            "{}",
            other.findings[0].text
        );
        assert!(other.findings[1].text.contains("more than 1024 for RFA on average p=2"), "{}", other.findings[1].text);
        assert!(theory.findings[0].stance == Stance::Agrees && other.findings[0].stance == Stance::Differs);
        assert_eq!(made(-0.7, 1.0).findings[0].stance, Stance::Agrees);
        assert!(theory.figures.len() == 2 && theory.tables[0].rows.len() == 42);
    }
}
