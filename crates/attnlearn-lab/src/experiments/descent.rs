//! What does the ridge save? Errors against n without a ridge, with fixed ones, and with the best, through `n = p`, the number of trained values.
//!
//! The solution of least norm fits all examples while `n ≤ p = M(d+1)`. Near `n = p` there is one solution, whatever its norm: small singular values of the features are
//! divided by, and the error peaks (double descent). A ridge bounds what is divided by,
//!
//! ```text
//! v = Σ_k  s_k ⟨u_k, y⟩ / (s_k² + nλ)  w_k,        Φ = Σ_k s_k u_k w_kᵀ
//! ```
//!
//! and the best one, chosen by leave-one-out errors, should leave no peak. Fixed ridges are `λ = r · U`, `U` the number of heads or neurons, which the squared norm of the
//! features is proportional to. Noise is on the examples only: errors are against the target itself.

use crate::experiment::{Experiment, Finding, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::{Column, Errors, Named, Ratio, Task, Verdict, best_ridges, errors_of, fit, joined, points, predict, title};
use crate::stats::{self, Estimate, short};
use attnlearn::features::Precision;
use attnlearn::features::ridge::{Options, Ridge, Solver};
use attnlearn::{Error, Result};
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The experiment.
pub struct Descent;

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Dimension of query and keys.
    pub d: usize,
    /// Keys, N.
    pub keys: usize,
    /// Numbers of heads, M.
    pub heads: Vec<usize>,
    /// Sets to learn from, as multiples of p = M(d+1).
    pub ratios: Vec<f64>,
    /// Heads of a larger layer that is fitted without a ridge only; 0 for none.
    pub large_heads: usize,
    /// Its ratios.
    pub large_ratios: Vec<f64>,
    /// Its seeds.
    pub large_seeds: u64,
    /// Fresh sets.
    pub n_test: u64,
    /// Seeds.
    pub seeds: u64,
    /// Learners.
    pub learners: Vec<Named>,
    /// Fixed ridges over the number of heads or neurons.
    pub shares: Vec<f64>,
    /// Targets.
    pub targets: Vec<String>,
    /// Standard deviations of the noise on the examples; targets have 1.
    pub noises: Vec<f64>,
}

/// How large the ridge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// None.
    Ridgeless,
    /// A fixed share of the number of heads or neurons.
    Fixed,
    /// That of least leave-one-out error, for every target its own.
    Best,
}

/// A learner, a ridge and a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    learner: Named,
    d: usize,
    keys: usize,
    heads: usize,
    n: u64,
    n_test: u64,
    way: Way,
    /// λ over the number of heads or neurons, where it is fixed.
    share: f64,
    targets: String,
    /// Noise of every target, in the same order.
    noises: String,
    seed: u64,
}

/// A target with its noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    target: String,
    noise: f64,
    /// Mean squared error over the variance of the target.
    error: f64,
    /// The ridge λ.
    lambda: f64,
    /// Sets over trained values.
    ratio: f64,
}

/// A curve: learner, heads, target, noise in millionths.
type Curve = (Named, usize, String, i64);
/// A curve with one ridge: the way, and the logarithm of the share.
type Ridged = (Way, i64);

fn millionths(noise: f64) -> i64 {
    (noise * 1e6).round() as i64
}

fn ridged(way: Way, share: f64) -> Ridged {
    (way, if share > 0.0 { (share.ln() * 1e6).round() as i64 } else { 0 })
}

fn label(way: Way, share: f64) -> String {
    match way {
        Way::Ridgeless => "no ridge".into(),
        Way::Fixed => format!("λ = {share:.0e} U").replace('-', "−"),
        Way::Best => "best ridge".into(),
    }
}

impl Config {
    /// All ridges: none, fixed shares of the number of heads or neurons, and the best.
    fn ways(&self) -> Vec<(Way, f64)> {
        let fixed = self.shares.iter().map(|&share| (Way::Fixed, share));
        [(Way::Ridgeless, 0.0)].into_iter().chain(fixed).chain([(Way::Best, 0.0)]).collect()
    }
}

impl Experiment for Descent {
    const NAME: &'static str = "descent";
    const TITLE: &'static str = "Double descent and the ridge";
    const QUESTION: &'static str =
        "Where does the error peak without a ridge, how high, and does the ridge of least leave-one-out error remove the peak?";
    const CLAIM: &'static str = "Without a ridge the error peaks where there are as many examples as trained values, n = M(d+1).";
    const TOGETHER: bool = false;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            d: scale.pick(8, 16),
            keys: scale.pick(8, 16),
            heads: scale.pick(vec![20, 60], vec![30, 120]),
            ratios: vec![0.125, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0],
            large_heads: scale.pick(0, 1000),
            large_ratios: vec![0.8, 1.0, 1.2],
            large_seeds: 2,
            n_test: scale.pick(1000, 2000),
            seeds: 5,
            learners: vec![Named::Rfa, Named::Rfmlp],
            shares: vec![1e-5, 1e-3],
            targets: ["average:p=2", "correlation:p=1,q=1"].map(str::to_owned).to_vec(),
            noises: vec![0.0, 0.5],
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.heads);
        ascending(&mut config.ratios);
        ascending(&mut config.large_ratios);
        ascending(&mut config.shares);
        ascending(&mut config.noises);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let columns =
            config.targets.iter().flat_map(|target| config.noises.iter().map(move |noise| (target.clone(), noise.to_string())));
        let (targets, noises): (Vec<String>, Vec<String>) = columns.unzip();
        let (targets, noises) = (targets.join("; "), noises.join("; "));
        let ways = config.ways();
        let mut all = Vec::new();
        let mut add = |learner: Named, heads: usize, ratio: f64, (way, share): (Way, f64), seed: u64| {
            let &Config { d, keys, n_test, .. } = config;
            let n = (ratio * (heads * (d + 1)) as f64).round() as u64;
            all.push(Point {
                learner,
                d,
                keys,
                heads,
                n,
                n_test,
                way,
                share,
                targets: targets.clone(),
                noises: noises.clone(),
                seed,
            });
        };
        for &heads in &config.heads {
            for seed in seeds(seed, config.seeds) {
                for &learner in &config.learners {
                    for &ratio in &config.ratios {
                        ways.iter().for_each(|&way| add(learner, heads, ratio, way, seed));
                    }
                }
            }
        }
        if config.large_heads > 0 {
            for seed in seeds(seed, config.large_seeds) {
                config.large_ratios.iter().for_each(|&ratio| add(Named::Rfa, config.large_heads, ratio, ways[0], seed));
            }
        }
        all
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let &Point { learner, d, keys, heads, n, n_test, way, share, seed, .. } = point;
        let columns = columns(&point.targets, &point.noises)?;
        let task = Task { d, keys, n, n_test, columns, seed };
        let p = heads * (d + 1);
        let units = if learner == Named::Rfmlp { p } else { heads };
        let options = match way {
            Way::Ridgeless => Options { ridge: Ridge::Ridgeless, ..Options::default() },
            Way::Best => best_ridges(),
            // Directly: conjugate gradients would stop short of the last digits.
            Way::Fixed => {
                let solver = if n > p as u64 { Solver::Gram } else { Solver::Dual };
                Options { ridge: Ridge::Given(share * units as f64), solver, ..Options::default() }
            }
        };
        let drawn = task.draw(&stop)?;
        let fitted = fit(&learner.learner(d, keys, heads, Precision::F64, task.stream()), &drawn.train, &options, stop)?;
        let errors = errors_of(&predict(&fitted.model, &drawn.test, stop)?, &drawn.test)?;
        let row = |((column, error), lambda): ((&Column, f64), f64)| Row {
            target: column.target.to_string(),
            noise: column.noise,
            error,
            lambda,
            ratio: n as f64 / p as f64,
        };
        Ok(task.columns.iter().zip(errors).zip(fitted.ridges).map(row).collect())
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let all = rows.iter().map(|m| {
            let curve = (m.point.learner, m.point.heads, m.row.target.clone(), millionths(m.row.noise));
            ((curve, ridged(m.point.way, m.point.share), m.point.n), m.point.seed, m.row.error)
        });
        let seen = Seen { config, errors: Errors::new(all) };
        let findings =
            [seen.place(), seen.height().map(Finding::open), seen.tamed().map(Finding::open)].into_iter().flatten().collect();
        Ok(Summary { findings, figures: seen.figures(), tables: vec![seen.table()] })
    }
}

fn columns(targets: &str, noises: &str) -> Result<Vec<Column>> {
    let number = |text: &str| text.parse().map_err(|_| Error::input("noises", format!("`{text}` is no number"), "give numbers"));
    targets
        .split("; ")
        .zip(noises.split("; "))
        .map(|(t, noise)| Ok(Column { target: t.parse()?, noise: number(noise)? }))
        .collect()
}

struct Seen<'a> {
    config: &'a Config,
    errors: Errors<(Curve, Ridged, u64)>,
}

const NONE: Ridged = (Way::Ridgeless, 0);
const BEST: Ridged = (Way::Best, 0);

impl Seen<'_> {
    /// All curves, in order.
    fn curves(&self) -> Vec<Curve> {
        let mut all: Vec<Curve> = self.errors.keys().map(|key| key.0.clone()).collect();
        all.dedup();
        all
    }

    fn parameters(&self, curve: &Curve) -> f64 {
        (curve.1 * (self.config.d + 1)) as f64
    }

    /// Sizes of a curve, in order.
    fn sizes(&self, curve: &Curve, ridge: Ridged) -> Vec<u64> {
        self.errors.keys().filter(|key| key.0 == *curve && key.1 == ridge).map(|key| key.2).collect()
    }

    /// Errors of a curve, seed by seed.
    fn by_seed(&self, curve: &Curve, ridge: Ridged) -> BTreeMap<u64, Vec<(u64, f64)>> {
        let mut all: BTreeMap<u64, Vec<(u64, f64)>> = BTreeMap::new();
        for n in self.sizes(curve, ridge) {
            for (seed, error) in self.errors.of(&(curve.clone(), ridge, n)).into_iter().flatten() {
                all.entry(*seed).or_default().push((n, *error));
            }
        }
        all
    }

    /// The size of largest error, over p; nothing if it is one of the ends.
    fn peak(&self, curve: &Curve, errors: &[(u64, f64)]) -> Option<f64> {
        let top = (0..errors.len()).max_by(|&a, &b| errors[a].1.total_cmp(&errors[b].1))?;
        (top > 0 && top + 1 < errors.len()).then(|| errors[top].0 as f64 / self.parameters(curve))
    }

    /// Where errors peak without a ridge.
    fn place(&self) -> Option<Finding> {
        let (mut peaks, mut curves) = (Vec::new(), 0);
        for curve in self.curves() {
            for errors in self.by_seed(&curve, NONE).values() {
                curves += 1;
                peaks.extend(self.peak(&curve, errors));
            }
        }
        if curves == 0 {
            return None;
        }
        let near = peaks.iter().filter(|at| (0.85..=1.15).contains(*at)).count();
        let share = stats::rate(near, curves).ok()?;
        let said = match () {
            () if share.above(0.5) => "as theory has it",
            () if share.below(0.5) => "which is not what theory has",
            () => "too few to say whether theory has it right",
        };
        let at = if peaks.is_empty() {
            "no curve has a peak".into()
        } else {
            format!("the median of {} peaks is at n/p = {}", peaks.len(), stats::median(&peaks))
        };
        let text = format!(
            "Without a ridge {near} of {curves} curves (a seed each) have their largest error within 15 % of n = p = M(d+1), {said}: {at}."
        );
        Some(Finding::judged(text, share.above(0.5), share.below(0.5)))
    }

    /// The size nearest to p.
    fn at_peak(&self, curve: &Curve) -> Option<u64> {
        let gap = |n: &u64| (*n as f64 / self.parameters(curve)).ln().abs();
        self.sizes(curve, NONE).into_iter().min_by(|a, b| gap(a).total_cmp(&gap(b)))
    }

    /// How much the ridge saves at n = p, where both have been measured.
    fn saved(&self, curve: &Curve) -> Option<Ratio> {
        let n = self.at_peak(curve)?;
        self.errors.ratio(&(curve.clone(), NONE, n), &(curve.clone(), BEST, n))
    }

    fn name(&self, curve: &Curve) -> String {
        format!("{} of {} heads, {}, noise {}", curve.0.name(), curve.1, title(&curve.2), curve.3 as f64 / 1e6)
    }

    fn height(&self) -> Option<String> {
        let mut all: Vec<(Ratio, String)> =
            self.curves().iter().filter_map(|curve| Some((self.saved(curve)?, self.name(curve)))).collect();
        all.sort_by(|a, b| a.0.times.value.total_cmp(&b.0.times.value));
        let (least, most) = (all.first()?, all.last()?);
        let worse = all.iter().filter(|(ratio, _)| ratio.verdict() == Verdict::Second).count();
        Some(format!(
            "At n = p no ridge errs more than the best ridge in {worse} of {} cases: from {} times ({}) to {} times ({}).",
            all.len(),
            least.0.times,
            least.1,
            most.0.times,
            most.1
        ))
    }

    /// Whether a ridge leaves a peak: the error at p over that of half as many examples, in pairs.
    fn bump(&self, curve: &Curve, ridge: Ridged) -> Option<Ratio> {
        let (top, sizes) = (self.at_peak(curve)?, self.sizes(curve, ridge));
        let half = sizes.iter().copied().filter(|&n| n < top).min_by_key(|&n| n.abs_diff(top / 2))?;
        self.errors.ratio(&(curve.clone(), ridge, top), &(curve.clone(), ridge, half))
    }

    fn tamed(&self) -> Option<String> {
        let count = |ridge: Ridged| {
            let all: Vec<Ratio> = self.curves().iter().filter_map(|curve| self.bump(curve, ridge)).collect();
            (all.iter().filter(|ratio| ratio.verdict() == Verdict::Second).count(), all.len())
        };
        let said = |&(way, share): &(Way, f64)| {
            let (higher, of) = count(ridged(way, share));
            (of > 0).then(|| format!("in {higher} of {of} cases with {}", label(way, share)))
        };
        let parts: Vec<String> = self.config.ways().iter().filter_map(said).collect();
        let (left, of) = count(BEST);
        let end = match () {
            () if of == 0 => "the best ridge was not measured",
            () if left == 0 => "the best ridge leaves no peak",
            () => "the best ridge does not remove every peak",
        };
        (!parts.is_empty())
            .then(|| format!("Twice as many examples make the error larger on the way to n = p {}: {end}.", joined(&parts)))
    }

    fn figures(&self) -> Vec<Figure> {
        let (ways, curves) = (self.config.ways(), self.curves());
        let line = |curve: &Curve, name: String, ridge: Ridged| {
            let keys =
                self.sizes(curve, ridge).into_iter().map(|n| (n as f64 / self.parameters(curve), (curve.clone(), ridge, n)));
            points(name, &self.errors, keys)
        };
        let chart = |title: String, series: Vec<Series>| {
            let series = series.into_iter().filter(|series| !series.points.is_empty()).collect();
            Panel::Chart(Chart {
                title,
                x: Axis::log("examples over trained values, n/p"),
                y: Axis::log("test error, MSE / Var"),
                series,
            })
        };
        let mut figures = Vec::new();
        for target in &self.config.targets {
            let largest = |curve: &&Curve| curve.2 == *target && self.config.heads.iter().max() == Some(&curve.1);
            let panels = curves.iter().filter(largest).map(|curve| {
                let name = format!("{}, noise {}", curve.0.name(), curve.3 as f64 / 1e6);
                chart(name, ways.iter().map(|&(way, share)| line(curve, label(way, share), ridged(way, share))).collect())
            });
            figures.push(Figure {
                name: format!("ridges-{}", target.replace(|c: char| !c.is_ascii_alphanumeric(), "-")),
                title: format!("Errors through n = p on {}", title(target)),
                caption: format!(
                    "M = {} heads, or as many trained values, d = {}, N = {}. Without a ridge the error peaks at n/p = 1, where as many values are trained as there are examples; \
                     the best ridge (least leave-one-out error) should not. U is the number of heads or neurons. 95 % intervals over {} seeds.",
                    self.config.heads.iter().max().unwrap_or(&0), self.config.d, self.config.keys, self.config.seeds
                ),
                panels: panels.collect(),
            });
        }
        let panels = self.config.targets.iter().flat_map(|target| self.config.noises.iter().map(move |&noise| (target, noise)));
        let sizes = panels.map(|(target, noise)| {
            let those = curves.iter().filter(|curve| curve.0 == Named::Rfa && curve.2 == *target && curve.3 == millionths(noise));
            chart(
                format!("{}, noise {noise}", title(target)),
                those.map(|curve| line(curve, format!("M = {}", curve.1), NONE)).collect(),
            )
        });
        figures.push(Figure {
            name: "sizes".into(),
            title: "The peak of layers of several sizes".into(),
            caption: format!(
                "RFA without a ridge, d = {}, N = {}: whatever the number of heads, the peak should be at n/p = 1.",
                self.config.d, self.config.keys
            ),
            panels: sizes.collect(),
        });
        figures
    }

    fn table(&self) -> Table {
        let mut rows = Vec::new();
        for curve in self.curves() {
            let Some(n) = self.at_peak(&curve) else { continue };
            let peaks: Vec<f64> = self.by_seed(&curve, NONE).values().filter_map(|errors| self.peak(&curve, errors)).collect();
            let show = |estimate: Option<Estimate>| estimate.map_or_else(|| "–".into(), |estimate| estimate.to_string());
            rows.push(vec![
                curve.0.name().into(),
                curve.1.to_string(),
                title(&curve.2),
                short(curve.3 as f64 / 1e6),
                if peaks.is_empty() { "–".into() } else { short(stats::median(&peaks).value) },
                show(self.errors.mean(&(curve.clone(), NONE, n))),
                show(self.errors.mean(&(curve.clone(), BEST, n))),
            ]);
        }
        Table {
            caption: "Where errors peak without a ridge (median over seeds), and errors at n = p without a ridge and with the best one (MSE / Var).".into(),
            columns: ["learner", "M", "target", "noise", "peak, n/p", "no ridge", "best ridge"].map(str::to_owned).to_vec(),
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
        let targets = vec!["average:p=2".to_owned()];
        Config {
            d: 3,
            keys: 3,
            heads: vec![10],
            ratios: vec![0.25, 0.5, 1.0, 2.0],
            n_test: 200,
            seeds: 3,
            targets,
            ..Descent::config(Scale::Quick)
        }
    }

    /// Without a ridge and with noise the peak is there already in a tiny layer; with the best ridge it is not.
    #[test]
    fn a_tiny_layer_peaks() {
        let error = |ratio: f64, way: Way| {
            let points = Descent::points(&config(), 1);
            let n = (ratio * 40.0) as u64;
            let point = points.iter().find(|p| p.n == n && p.way == way && p.learner == Named::Rfa && p.seed == 1000).unwrap();
            let rows = Descent::measure(point, &|| false).unwrap();
            assert_eq!(rows, Descent::measure(point, &|| false).unwrap());
            assert!(rows.len() == 2 && rows[1].noise > 0.0);
            rows[1].error
        };
        assert!(error(1.0, Way::Ridgeless) > 3.0 * error(0.25, Way::Ridgeless).max(error(2.0, Way::Ridgeless)));
        assert!(error(1.0, Way::Best) < 0.5 * error(1.0, Way::Ridgeless) && error(1.0, Way::Fixed) > 0.0);
    }

    fn made(error: fn(Way, f64) -> f64) -> Summary {
        Descent::summarise(&config(), &made_rows(error)).unwrap()
    }

    fn made_rows(error: fn(Way, f64) -> f64) -> Vec<Measured<Point, Row>> {
        let mut rows = Vec::new();
        for point in Descent::points(&config(), 1) {
            for noise in [0.0, 0.5] {
                let ratio = point.n as f64 / 40.0;
                let error = error(point.way, ratio) * (1.0 + 0.01 * (point.seed % 3) as f64 * ratio);
                let row = Row { target: "average:p=2".into(), noise, error, lambda: 0.0, ratio };
                rows.push(Measured { point: point.clone(), row, seconds: 0.0 });
            }
        }
        rows
    }

    #[test]
    fn findings_follow_the_data() {
        let theory = made(|way, ratio| if way == Way::Ridgeless { 1.0 / (0.01 + ratio.ln().abs()) } else { 0.5 / (1.0 + ratio) });
        assert!(
            theory.findings[0].text.contains("12 of 12 curves") && theory.findings[0].text.contains("as theory has it"),
            "{}",
            theory.findings[0].text
        );
        assert!(theory.findings[1].text.contains("errs more than the best ridge in 4 of 4 cases"), "{}", theory.findings[1].text);
        assert!(theory.findings[2].text.contains("the best ridge leaves no peak"), "{}", theory.findings[2].text);
        let flat = made(|_, ratio| 1.0 / ratio);
        assert!(
            flat.findings[0].text.contains("0 of 12") && flat.findings[0].text.contains("not what theory has"),
            "{}",
            flat.findings[0].text
        );
        assert!(flat.findings[1].text.contains("in 0 of 4 cases"), "{}", flat.findings[1].text);
        let stubborn = made(|_, ratio| 1.0 / (0.01 + ratio.ln().abs()));
        assert!(stubborn.findings[2].text.contains("does not remove every peak"), "{}", stubborn.findings[2].text);
        assert!(theory.findings[0].stance == Stance::Agrees && flat.findings[0].stance == Stance::Differs);
        // Five of five are too few to be sure.
        let rows = made_rows(|way, ratio| if way == Way::Ridgeless { 1.0 / (0.01 + ratio.ln().abs()) } else { 0.5 });
        let five: Vec<_> = rows.into_iter().filter(|one| one.point.learner == Named::Rfa && one.row.noise < 0.1).collect();
        assert_eq!(Descent::summarise(&config(), &five).unwrap().findings[0].stance, Stance::Open);
        assert!(theory.figures.len() == 2 && theory.tables[0].rows.len() == 4);
    }
}
