//! Noise: how near heads can be told, and whether the learner comes as near as the data allow.
//!
//! Outputs have independent normal noise of `σ` times their standard deviation. Where noise is small a least-squares estimate is off by `J⁺ε`, `J` the derivative of
//! all outputs by all unknowns:
//!
//! ```text
//! error of heads  ∝  σ (n − n₀)^−½,   n₀ = 2 m d² / (k d)
//! ```
//!
//! n₀ sequences have as many numbers as there are unknowns: `E tr (JᵀJ)⁻¹` goes as one over what there is beyond them, exactly so for normal rows of `J`.
//! The statistical limit is the estimate that Gauss–Newton reaches from the teacher itself; the learner sees examples alone. Errors are the largest over the heads,
//! `‖Θ̂ − Θ‖_F/‖Θ‖_F`. The examples of a seed are the first n of one stream, and its noise is the same up to σ: exponents are fitted seed by seed, and their spread over seeds is
//! the uncertainty.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::recovery::{Inputs, add_noise, descend_starts, draw_examples, judge, part, statistical_limit, unexplained};
use crate::stats::{self, Estimate, short};
use attnlearn::Result;
use attnlearn::teacher::TeacherSpec;
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// An error at most this much larger than the limit's is the limit's.
const AS_NEAR: f64 = 1.05;
/// Sequences without noise that outputs are judged on.
const FRESH: usize = 1000;
/// Errors of the limit up to which noise is small.
const SMALL: f64 = 0.1;
/// Rates of theory, of σ and of n − n₀.
const RATES: [f64; 2] = [1.0, -0.5];
/// Exponents as near as that are alike: noise is small, not zero.
const ALIKE: f64 = 0.005;

/// The experiment.
pub struct Noise;

/// What can be chosen.
#[derive(Serialize, Deserialize)]
pub struct Config {
    /// Teachers.
    seeds: u64,
    /// Heads, dimension and tokens.
    m: usize,
    d: usize,
    k: usize,
    /// `‖Θ‖_F`.
    norm: f64,
    /// σ.
    levels: Vec<f64>,
    /// n.
    examples: Vec<usize>,
    /// Most starts of the learner.
    starts: usize,
}

/// One teacher, so many examples, so much noise.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    level: f64,
    n: usize,
    m: usize,
    d: usize,
    k: usize,
    norm: f64,
    starts: usize,
    seed: u64,
}

/// Errors of the learner and of the limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Worst Θ of the learner; none where heads are missing or left over.
    theta_error: Option<f64>,
    /// Worst W.
    w_error: Option<f64>,
    /// The same of the limit.
    limit_theta: Option<f64>,
    limit_w: Option<f64>,
    /// Share of the variance of fresh outputs without noise that the learner leaves unexplained.
    nmse: f64,
    /// The same of the limit.
    limit_nmse: f64,
}

type Found = Measured<Point, Row>;

impl Experiment for Noise {
    const NAME: &'static str = "noise";
    const TITLE: &'static str = "Noise in the outputs";
    const QUESTION: &'static str = "How near do heads come under noise? Least squares has errors proportional to σ/√n for large n; no learner can be expected to come nearer than Gauss–Newton does \
                                    from the teacher itself.";
    const CLAIM: &'static str = "The papers have no noise. Least squares has errors proportional to σ (n − n₀)^−½ where noise is small, n₀ the sequences with as many numbers as there are \
                                 unknowns, and no learner can be expected to do better.";
    const TOGETHER: bool = true;
    const REVISION: u32 = 1;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            seeds: scale.pick(4, 6),
            m: scale.pick(2, 3),
            d: 8,
            k: 4,
            norm: 2.0,
            levels: scale.pick(vec![0.01, 0.03, 0.1, 0.3], vec![0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]),
            examples: scale.pick(vec![100, 200, 400, 800], vec![100, 200, 400, 800, 1600, 3200, 6400, 12_800]),
            starts: scale.pick(15, 31),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.examples);
        ascending(&mut config.levels);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let Config { m, d, k, norm, starts, .. } = *config;
        let mut points = Vec::new();
        for &n in &config.examples {
            for &level in &config.levels {
                let of = |seed: u64| Point { level, n, m, d, k, norm, starts, seed };
                points.extend(seeds(seed, config.seeds).map(of));
            }
        }
        points
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let Point { level, n, m, d, k, norm, starts, seed } = *point;
        let teacher = TeacherSpec::dense(d, m, norm).draw_from(seed)?;
        let mut examples = draw_examples(&teacher, k, Inputs::Boolean, n, part(seed, 1))?;
        let fresh = draw_examples(&teacher, k, Inputs::Boolean, FRESH, part(seed, 2))?;
        add_noise(&mut examples, level, part(seed, 3))?;
        let learned = descend_starts(&examples, m, None, starts, seed, stop)?.layer;
        let limit = statistical_limit(&teacher, &examples)?;
        let (ours, best) = (judge(&teacher, &learned), judge(&teacher, &limit));
        let told = |error: f64| error.is_finite().then_some(error);
        Ok(vec![Row {
            theta_error: told(ours.theta_error),
            w_error: told(ours.w_error),
            limit_theta: told(best.theta_error),
            limit_w: told(best.w_error),
            nmse: unexplained(&learned, &fresh)?,
            limit_nmse: unexplained(&limit, &fresh)?,
        }])
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        Ok(Summary {
            findings: vec![rates(config, rows), Finding::open(nearness(rows)?)],
            figures: vec![figure(config, rows)],
            tables: vec![table(config, rows)],
        })
    }
}

/// n₀: sequences that have as many numbers as there are unknowns.
fn enough(config: &Config) -> f64 {
    (2 * config.m * config.d) as f64 / config.k as f64
}

/// Exponents of σ and of n − `less` where noise is small, of one seed after another: the mean over what the other is.
fn exponents(
    config: &Config,
    rows: &Measurements<Noise>,
    less: f64,
    error: &dyn Fn(&Row) -> Option<f64>,
) -> [Option<Estimate>; 2] {
    let seeds: BTreeSet<u64> = rows.iter().map(|row| row.point.seed).collect();
    let at = |seed: u64, level: f64, n: usize| {
        let same = |row: &&Found| row.point.seed == seed && row.point.n == n && row.point.level.total_cmp(&level).is_eq();
        rows.iter()
            .find(same)
            .filter(|row| row.row.limit_theta.is_some_and(|limit| limit <= SMALL))
            .and_then(|row| error(&row.row))
    };
    let over = |lines: Vec<Vec<(f64, f64)>>| {
        let slopes: Vec<f64> = lines.iter().filter_map(|line| stats::exponent(line)).map(|slope| slope.value).collect();
        (!slopes.is_empty()).then(|| slopes.iter().sum::<f64>() / slopes.len() as f64)
    };
    let of_level = |seed: &u64| {
        let line = |n: &usize| config.levels.iter().filter_map(|level| Some((*level, at(*seed, *level, *n)?))).collect();
        over(config.examples.iter().map(line).collect())
    };
    let of_n = |seed: &u64| {
        let line =
            |level: &f64| config.examples.iter().filter_map(|n| Some((*n as f64 - less, at(*seed, *level, *n)?))).collect();
        over(config.levels.iter().map(line).collect())
    };
    let spread = |slopes: Vec<f64>| (slopes.len() > 1).then(|| stats::mean(&slopes));
    [spread(seeds.iter().filter_map(of_level).collect()), spread(seeds.iter().filter_map(of_n).collect())]
}

fn rates(config: &Config, rows: &Measurements<Noise>) -> Finding {
    let less = enough(config);
    let ours = exponents(config, rows, less, &|row| row.theta_error);
    let limit = exponents(config, rows, less, &|row| row.limit_theta);
    let plain = exponents(config, rows, 0.0, &|row| row.theta_error);
    let ([Some(level), Some(n)], [Some(best_level), Some(best_n)], [_, Some(plain)]) = (ours, limit, plain) else {
        return Finding::open("Too few teachers were tried, or too few heads found, to say how errors grow with noise.");
    };
    let theory =
        |fits: [Estimate; 2]| fits.iter().zip(RATES).all(|(fit, rate)| !fit.above(rate + ALIKE) && !fit.below(rate - ALIKE));
    let verdict = match (theory([level, n]), theory([best_level, best_n])) {
        (true, _) => "as theory has it",
        (false, true) => "not the σ (n − n₀)^−0.5 of theory, which the limit does follow",
        (false, false) => "not quite the σ (n − n₀)^−0.5 of theory, and neither does the limit follow it",
    };
    let text = format!(
        "While the limit is below {} % the error of the worst head grows as σ^{level} (n − n₀)^{n}, {verdict}: the statistical limit itself grows as σ^{best_level} (n − n₀)^{best_n}; as a power of n \
         alone the exponent is {plain}. n₀ = {} sequences have as many numbers as there are unknowns.",
        short(100.0 * SMALL),
        short(less)
    );
    Finding::judged(text, theory([level, n]), !theory([level, n]))
}

fn nearness(rows: &Measurements<Noise>) -> Result<String> {
    let ratio = |row: &Found| Some(row.row.theta_error? / row.row.limit_theta?);
    let ratios: Vec<f64> = rows.iter().filter_map(ratio).collect();
    let near = ratios.iter().filter(|ratio| (AS_NEAR.recip()..=AS_NEAR).contains(*ratio)).count();
    if ratios.is_empty() {
        return Ok(format!("No heads were found in {} tries.", rows.len()));
    }
    let mut parts = Vec::new();
    let below: Vec<&Found> = rows.iter().filter(|row| ratio(row).is_some_and(|ratio| ratio < AS_NEAR.recip())).collect();
    if !below.is_empty() {
        let least = below.iter().filter_map(|row| row.row.limit_theta).fold(f64::INFINITY, f64::min);
        parts.push(format!(
            "; it is less in {}, where the limit itself is off by {} % or more",
            below.len(),
            short(100.0 * least)
        ));
    }
    let away: Vec<&Found> = rows.iter().filter(|row| ratio(row).is_none_or(|ratio| ratio > AS_NEAR)).collect();
    if !away.is_empty() {
        let least = away.iter().map(|row| row.point.level).fold(f64::INFINITY, f64::min);
        let missed = away.iter().filter(|row| row.row.theta_error.is_none()).count();
        let missing = if missed > 0 { format!(", with heads missing in {missed}") } else { String::new() };
        parts.push(format!("; it is more in {}, all with noise of {} or more{missing}", away.len(), short(least)));
    }
    Ok(format!(
        "The learner's error is that of the statistical limit (within {} %) in {near} of {} cases, a rate of {}, and {} times it in the mean{}.",
        short(100.0 * (AS_NEAR - 1.0)),
        rows.len(),
        stats::rate(near, rows.len())?,
        stats::geometric(&ratios),
        parts.concat()
    ))
}

fn cell(rows: &Measurements<Noise>, level: f64, n: usize, error: &dyn Fn(&Row) -> Option<f64>) -> Vec<f64> {
    let here = rows.iter().filter(|row| row.point.n == n && row.point.level.total_cmp(&level).is_eq());
    here.filter_map(|row| error(&row.row)).collect()
}

fn figure(config: &Config, rows: &Measurements<Noise>) -> Figure {
    type Error<'a> = &'a dyn Fn(&Row) -> Option<f64>;
    let ours: Error<'_> = &|row| row.theta_error;
    let best: Error<'_> = &|row| row.limit_theta;
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| stats::geometric(&values));
    let (mut by_n, mut by_level) = (Vec::new(), Vec::new());
    for &level in &config.levels {
        let line = |error: Error<'_>| {
            config.examples.iter().filter_map(|n| Some((*n as f64, mean(cell(rows, level, *n, error))?))).collect::<Vec<_>>()
        };
        by_n.push(Series::new(format!("σ = {}", short(level)), line(ours)));
        by_n.push(Series::theory(
            format!("limit, σ = {}", short(level)),
            line(best).into_iter().map(|(n, error)| (n, error.value)),
        ));
    }
    for n in [config.examples.iter().min(), config.examples.iter().max()].into_iter().flatten() {
        let line = |error: Error<'_>| {
            config.levels.iter().filter_map(|level| Some((*level, mean(cell(rows, *level, *n, error))?))).collect::<Vec<_>>()
        };
        by_level.push(Series::new(format!("n = {n}"), line(ours)));
        by_level
            .push(Series::theory(format!("limit, n = {n}"), line(best).into_iter().map(|(level, error)| (level, error.value))));
    }
    let chart = |title: &str, x: Axis, series| {
        Panel::Chart(Chart { title: title.into(), x, y: Axis::log("error of Θ, relative"), series })
    };
    Figure {
        name: "noise-errors".into(),
        title: "Error of the worst head under noise".into(),
        caption: "Geometric means over teachers of which as many heads were found as there are. Dashed: the statistical limit, which the dots should lie on. Slope −½ against n, if n is large; 1 against σ.".into(),
        panels: vec![
            chart("against examples", Axis::log("sequences n"), by_n),
            chart("against noise", Axis::log("noise σ, share of the outputs' standard deviation"), by_level),
        ],
    }
}

fn table(config: &Config, rows: &Measurements<Noise>) -> Table {
    let mut lines = Vec::new();
    for &level in &config.levels {
        for &n in &config.examples {
            let tried = cell(rows, level, n, &|_| Some(0.0)).len();
            let told = |error: &dyn Fn(&Row) -> Option<f64>| {
                let values = cell(rows, level, n, error);
                if values.is_empty() { "–".into() } else { stats::geometric(&values).to_string() }
            };
            lines.push(vec![
                short(level),
                n.to_string(),
                format!("{} of {tried}", cell(rows, level, n, &|row| row.theta_error).len()),
                told(&|row| row.theta_error),
                told(&|row| row.limit_theta),
                told(&|row| row.w_error),
                told(&|row| row.limit_w),
                told(&|row| Some(row.nmse)),
                told(&|row| Some(row.limit_nmse)),
            ]);
        }
    }
    let columns = ["σ", "n", "as many heads", "worst Θ", "its limit", "worst W", "its limit", "unexplained, fresh", "its limit"];
    Table {
        caption: "Teachers of which as many heads were found as there are, however far off; relative errors beside those of the statistical limit, geometric means over those teachers".into(),
        columns: columns.map(String::from).into(),
        rows: lines,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::Stance;

    /// Errors `σ^a (n − n₀)^b` of the learner, `times` those of a limit that follows theory.
    fn made_up(powers: [f64; 2], times: f64) -> Vec<Found> {
        let row = |point: Point| {
            let wobble = 1.0 + 0.02 * ((point.seed % 4) as f64 - 1.5) * (point.n as f64).ln();
            let spare = point.n as f64 - enough(&Noise::config(Scale::Quick));
            let error = |a: f64, b: f64| Some(wobble * point.level.powf(a) * spare.powf(b));
            let (limit, ours) = (error(1.0, -0.5), error(powers[0], powers[1]).map(|e| e * times));
            let row = Row { theta_error: ours, w_error: ours, limit_theta: limit, limit_w: limit, nmse: 0.1, limit_nmse: 0.1 };
            Measured { row, point, seconds: 1.0 }
        };
        Noise::points(&Noise::config(Scale::Quick), 1).into_iter().map(row).collect()
    }

    #[test]
    fn sentences_follow_the_errors() {
        let config = Noise::config(Scale::Quick);
        let told = |powers, times| Noise::summarise(&config, &made_up(powers, times)).unwrap().findings;
        let good = told([1.0, -0.5], 1.0);
        assert!(
            good[0].headline().contains("as theory has it")
                && good[0].stance == Stance::Agrees
                && good[1].text.contains("in 64 of 64 cases")
                && !good[1].text.contains("it is"),
            "{good:?}"
        );
        let slow = told([1.0, -0.25], 1.0);
        assert!(
            slow[0].headline().contains("which the limit does follow")
                && slow[0].stance == Stance::Differs
                && slow[1].text.contains("in 0 of 64"),
            "{slow:?}"
        );
        let far = told([1.0, -0.5], 2.0);
        assert!(
            far[0].text.contains("as theory has it")
                && far[1].text.contains("2.00 (2.00 to 2.00) times")
                && far[1].text.contains("noise of 0.0100 or more"),
            "{far:?}"
        );
        // Nearer than the limit is not within 5 % of it.
        let near = told([1.0, -0.5], 0.5);
        assert!(near[1].text.contains("in 0 of 64 cases") && near[1].text.contains("it is less in 64"), "{near:?}");
        let mut none = made_up([1.0, -0.5], 1.0);
        none.iter_mut().for_each(|row| row.row.theta_error = None);
        let none = Noise::summarise(&config, &none).unwrap().findings;
        assert!(none[0].text.contains("Too few") && none[1].text.contains("No heads"), "{none:?}");
    }

    #[test]
    fn a_little_noise_leaves_a_little_error() {
        let point = Point { level: 0.01, n: 200, m: 2, d: 4, k: 3, norm: 2.0, starts: 15, seed: 5 };
        let row = Noise::measure(&point, &|| false).unwrap();
        assert_eq!(row, Noise::measure(&point, &|| false).unwrap());
        let (ours, limit) = (row[0].theta_error.unwrap(), row[0].limit_theta.unwrap());
        assert!(ours < 1.05 * limit && limit < 0.1 && limit > 1e-4, "{row:?}");
    }
}
