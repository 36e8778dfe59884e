//! The wall: heads that compute a parity.
//!
//! In the worst case no learner avoids time exponential in the number of heads (lower bounds of the paper, statistical-query and cryptographic). Such layers exist with two
//! tokens: [`parity_teacher`] has m heads whose sum is a parity of `2⌊m/2⌋ + 1` bits. All correlations of an output with fewer bits vanish, so descent sees nothing until it sees
//! everything, and starts are draws of a lottery. With S starts in all, s of which succeeded, one succeeds with probability about s/S, and
//!
//! ```text
//! starts a success  S/s ∝ e^{cm}
//! ```
//!
//! from two heads on: one head has a single bit, which is there to be seen. Starts come in rounds of 1, 2, 4, …, and a round counts whole, also where more than one of its starts
//! succeeds: prices are up to twice too large, the same for all m, and their intervals are those of so many independent starts.
//!
//! Beside them stand random heads of the same size, m, d, k and norm, from as many examples: what is hard about parities is not their size. Outputs do not determine heads
//! of a parity: a layer is judged by the share of the variance of fresh examples that it leaves unexplained.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::recovery::{Inputs, counting_bound, descend_starts, draw_examples, part, unexplained};
use crate::stats::{self, Estimate, short};
use attnlearn::Result;
use attnlearn::teacher::{TeacherSpec, parity_teacher};
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};

/// Tokens of a sequence.
const TOKENS: usize = 2;
/// Sequences, as multiples of the counting bound for every dimension: one output says something, and only where the two tokens differ in the first bit.
const EXAMPLES: f64 = 8.0;
/// Sequences that a layer is judged on.
const FRESH: usize = 1000;
/// Unexplained variance of what is found.
const SOLVED: f64 = 1e-10;

/// The experiment.
pub struct Parity;

/// What can be chosen.
#[derive(Serialize, Deserialize)]
pub struct Config {
    /// Sets of examples of every size.
    seeds: u64,
    /// m; five heads have the bits of four.
    heads: Vec<usize>,
    /// d; heads that a dimension has no room for are left out, and the most heads are tried in the least dimension alone: they are the dearest by far.
    dims: Vec<usize>,
    /// Most starts of the practical learner.
    starts: usize,
}

/// Which teachers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Heads of a parity.
    Parity,
    /// Random ones of the same norm.
    Random,
}

/// One set of examples.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    kind: Kind,
    m: usize,
    d: usize,
    starts: usize,
    seed: u64,
}

/// What was learned from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Whether fresh examples are explained.
    solved: bool,
    /// Share of their variance that is not.
    nmse: f64,
    /// Starts that it took.
    starts: usize,
    /// Bits of the parity; 0 for random heads.
    bits: usize,
    /// Sequences.
    examples: usize,
}

type Found = Measured<Point, Row>;

/// Root of the mean of `‖Θ_i‖_F² = 4(m + t_i²)` over the heads of a parity.
fn norm(m: usize) -> f64 {
    let m = m as f64;
    2.0 * (m + (m * m - 1.0) / 3.0).sqrt()
}

impl Experiment for Parity {
    const NAME: &'static str = "parity";
    const TITLE: &'static str = "Worst-case heads: parities";
    const QUESTION: &'static str = "Where is the wall in m? Heads that compute a parity are an example of the worst case.";
    const CLAIM: &'static str = "In the worst case no learner avoids time exponential in the number of heads (the paper's lower bounds, statistical-query and cryptographic).";
    const TOGETHER: bool = true;
    const REVISION: u32 = 1;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            seeds: scale.pick(3, 5),
            heads: vec![1, 2, 3, 4, 6],
            dims: scale.pick(vec![7], vec![7, 8]),
            starts: scale.pick(7, 31),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.heads);
        ascending(&mut config.dims);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let mut points = Vec::new();
        for &m in &config.heads {
            let last = config.heads.len() > 1 && Some(&m) == config.heads.last();
            let dims = config.dims.iter().filter(|d| m < **d).take(if last { 1 } else { usize::MAX });
            for &d in dims {
                for kind in [Kind::Random, Kind::Parity] {
                    let of = |seed: u64| Point { kind, m, d, starts: config.starts, seed };
                    points.extend(seeds(seed, config.seeds).map(of));
                }
            }
        }
        points
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let Point { kind, m, d, starts, seed } = *point;
        let (teacher, bits) = match kind {
            Kind::Parity => (parity_teacher(d, m)?, m / 2 * 2 + 1),
            Kind::Random => (TeacherSpec::dense(d, m, norm(m)).draw_from(seed)?, 0),
        };
        let n = (EXAMPLES * d as f64 * counting_bound(d, d, m, TOKENS)).ceil() as usize;
        let examples = draw_examples(&teacher, TOKENS, Inputs::Boolean, n, part(seed, 1))?;
        let fresh = draw_examples(&teacher, TOKENS, Inputs::Boolean, FRESH, part(seed, 2))?;
        let answer = descend_starts(&examples, m, None, starts, seed, stop)?;
        let nmse = unexplained(&answer.layer, &fresh)?;
        Ok(vec![Row { solved: nmse <= SOLVED, nmse, starts: answer.starts, bits, examples: n }])
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let findings = vec![Finding::open(wall(config, rows)?), lottery(config, rows)?, Finding::open(beside(rows)?)];
        Ok(Summary { findings, figures: vec![figure(config, rows)?], tables: vec![table(config, rows)] })
    }
}

fn of(rows: &Measurements<Parity>, kind: Kind) -> impl Iterator<Item = &Found> {
    rows.iter().filter(move |row| row.point.kind == kind)
}

/// Solved and tried.
fn count<'a>(rows: impl Iterator<Item = &'a Found>) -> (usize, usize) {
    rows.fold((0, 0), |(solved, all), row| (solved + usize::from(row.row.solved), all + 1))
}

/// The least m from which on fewer than half are found.
fn wall(config: &Config, rows: &Measurements<Parity>) -> Result<String> {
    let here = |m: usize| of(rows, Kind::Parity).filter(move |row| row.point.m == m);
    let counts: Vec<(usize, (usize, usize))> =
        config.heads.iter().map(|&m| (m, count(here(m)))).filter(|(_, (_, all))| *all > 0).collect();
    let below = counts.iter().rev().take_while(|(_, (solved, all))| 2 * solved < *all).count();
    let (before, behind) = counts.split_at(counts.len() - below);
    let told = |counts: &[(usize, (usize, usize))]| -> Result<String> {
        let (solved, all) = counts.iter().fold((0, 0), |sum, (_, (solved, all))| (sum.0 + solved, sum.1 + all));
        Ok(format!("{solved} of {all} found, a rate of {}", stats::rate(solved, all)?))
    };
    let bits = |m: usize| m / 2 * 2 + 1;
    Ok(match (before.last(), behind.first()) {
        (None, None) => "No parity was tried.".into(),
        (Some((m, _)), None) => format!("No wall is seen up to {m} heads and parities of {} bits, {}.", bits(*m), told(before)?),
        (None, Some((m, _))) => {
            format!("The wall is at the fewest heads tried, {m}, parities of {} bits, {}.", bits(*m), told(behind)?)
        }
        (Some((last, _)), Some((m, _))) => format!(
            "Up to {last} heads and parities of {} bits, {}, from {m} heads and {} bits on {}: that is the wall within {} starts.",
            bits(*last),
            told(before)?,
            bits(*m),
            told(behind)?,
            config.starts
        ),
    })
}

/// Starts a success of so many heads: the inverse of a rate, whose interval is known for no success at all.
fn price<'a>(rows: impl Iterator<Item = &'a Found>) -> Result<Estimate> {
    let (solved, starts) =
        rows.fold((0, 0), |(solved, starts), row| (solved + usize::from(row.row.solved), starts + row.row.starts));
    let rate = stats::rate(solved, starts)?;
    let least = rate.high.recip();
    Ok(Estimate { value: if solved > 0 { rate.value.recip() } else { least }, low: least, high: rate.low.recip() })
}

/// How starts a success grow with m from two heads on, the factor of a further head as far as there are successes.
fn lottery(config: &Config, rows: &Measurements<Parity>) -> Result<Finding> {
    let mut prices = Vec::new();
    for &m in config.heads.iter().filter(|m| **m > 1) {
        let here = || of(rows, Kind::Parity).filter(move |row| row.point.m == m);
        if here().next().is_some() {
            prices.push((m, count(here()).0 > 0, price(here())?));
        }
    }
    let (Some(first), Some(last)) = (prices.first(), prices.last()) else {
        return Ok(Finding::open("No parity of several bits was tried."));
    };
    let told = |(m, known, price): &(usize, bool, Estimate)| {
        if *known {
            format!("{price} starts a success with m = {m}")
        } else {
            format!("more than {} with m = {m}", short(price.low))
        }
    };
    let logs: Vec<(f64, f64)> =
        prices.iter().filter(|(_, known, _)| *known).map(|(m, _, price)| (*m as f64, price.value.ln())).collect();
    let factor = stats::slope(&logs).map(|log| Estimate { value: log.value.exp(), low: log.low.exp(), high: log.high.exp() });
    let further = match factor {
        // Of three sizes hardly anything is known.
        Some(factor) if factor.high < 100.0 * factor.low => format!(", times {factor} for a further head where any succeed"),
        _ => String::new(),
    };
    let (more, fewer) = (last.2.above(first.2.high), last.2.below(first.2.low));
    let verdict = match () {
        () if more => "more with more heads, as lower bounds say",
        () if fewer => "fewer with more heads, against what lower bounds say of the worst case",
        () => "no growth is to be told from chance",
    };
    let text = format!("A parity takes {} and {}{further}, {verdict}.", told(first), told(last));
    Ok(Finding::judged(text, more, fewer))
}

/// Parities beside random heads, of the same m, d and seeds.
fn beside(rows: &Measurements<Parity>) -> Result<String> {
    let (parity, random) = (count(of(rows, Kind::Parity)), count(of(rows, Kind::Random)));
    if parity.1 == 0 || random.1 == 0 {
        return Ok("Parities were not tried beside random heads.".into());
    }
    let (p, r) = (stats::rate(parity.0, parity.1)?, stats::rate(random.0, random.1)?);
    let (dear, cheap) = (price(of(rows, Kind::Parity))?, price(of(rows, Kind::Random))?);
    let verdict = if p.below(r.low) || dear.above(cheap.high) {
        "what is hard about parities is not their size"
    } else if p.above(r.high) || dear.below(cheap.low) {
        "parities are the easier ones"
    } else {
        "no difference is seen"
    };
    Ok(format!(
        "Random heads of the same size and norm are found at a rate of {r} with {cheap} starts a success, parities at {p} with {dear}, so {verdict}."
    ))
}

fn figure(config: &Config, rows: &Measurements<Parity>) -> Result<Figure> {
    let (mut rates, mut starts) = (Vec::new(), Vec::new());
    for (kind, name) in [(Kind::Parity, "parity"), (Kind::Random, "random")] {
        for &d in &config.dims {
            let label = if config.dims.len() > 1 { format!("{name}, d = {d}") } else { name.into() };
            let (mut solved, mut taken) = (Vec::new(), Vec::new());
            for &m in &config.heads {
                let at: Vec<&Found> = of(rows, kind).filter(|row| (row.point.m, row.point.d) == (m, d)).collect();
                if at.is_empty() {
                    continue;
                }
                let (found, all) = count(at.iter().copied());
                solved.push((m as f64, stats::rate(found, all)?));
                taken.push((m as f64, price(at.iter().copied())?));
            }
            rates.push(Series::new(label.clone(), solved));
            starts.push(Series::new(label, taken));
        }
    }
    let chart = |title: &str, y: Axis, series: Vec<Series>| {
        Panel::Chart(Chart { title: title.into(), x: Axis::linear("heads m"), y, series })
    };
    Ok(Figure {
        name: "parity-wall".into(),
        title: "The wall in m".into(),
        caption: "Left: share of sets of examples from which the layer is found, with exact binomial intervals. Right: starts a success, rounds counted whole; where there was none, the dot is the \
                  least that is likely: on this scale exponential growth is a straight line."
            .into(),
        panels: vec![
            chart("found", Axis::linear("success rate"), rates),
            chart("starts", Axis::log("starts a success"), starts),
        ],
    })
}

fn table(config: &Config, rows: &Measurements<Parity>) -> Table {
    let mut lines = Vec::new();
    for &d in &config.dims {
        let tried = |m: &&usize| rows.iter().any(|row| (row.point.m, row.point.d) == (**m, d));
        for &m in config.heads.iter().filter(tried) {
            let mut line = vec![m.to_string(), d.to_string(), (m / 2 * 2 + 1).to_string()];
            for kind in [Kind::Parity, Kind::Random] {
                let at: Vec<&Found> = of(rows, kind).filter(|row| (row.point.m, row.point.d) == (m, d)).collect();
                let (found, all) = count(at.iter().copied());
                if all == 0 {
                    line.extend(["–"; 3].map(String::from));
                    continue;
                }
                let median = |value: &dyn Fn(&Row) -> f64| {
                    short(stats::median(&at.iter().map(|row| value(&row.row)).collect::<Vec<_>>()).value)
                };
                line.push(format!("{found} of {all}"));
                line.push(median(&|row| row.nmse));
                line.push(median(&|row| row.starts as f64));
            }
            lines.push(line);
        }
    }
    let columns = ["m", "d", "bits", "parity found", "unexplained", "starts", "random found", "unexplained", "starts"];
    Table {
        caption: "Found, median of the unexplained share of fresh examples, and median of the starts".into(),
        columns: columns.map(String::from).into(),
        rows: lines,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::Stance;

    fn made_up(solved: impl Fn(&Point) -> bool, starts: impl Fn(&Point) -> usize) -> Vec<Found> {
        let row = |point: Point| {
            let row = Row { solved: solved(&point), nmse: 0.1, starts: starts(&point), bits: 3, examples: 10 };
            Measured { row, point, seconds: 1.0 }
        };
        Parity::points(&Config { seeds: 6, ..Parity::config(Scale::Quick) }, 1).into_iter().map(row).collect()
    }

    #[test]
    fn sentences_follow_the_wall() {
        let config = Parity::config(Scale::Quick);
        let told = |solved: &dyn Fn(&Point) -> bool, starts: &dyn Fn(&Point) -> usize| {
            Parity::summarise(&config, &made_up(solved, starts)).unwrap().findings
        };
        let parity = |point: &Point| point.kind == Kind::Parity;
        let dear = |point: &Point| if parity(point) { 4_usize.pow(point.m as u32) } else { 1 };
        let hard = told(&|point| !parity(point) || point.m < 4, &dear);
        assert!(hard[0].text.contains("Up to 3 heads and parities of 3 bits, 18 of 18"), "{hard:?}");
        assert!(hard[0].text.contains("from 4 heads and 5 bits on 0 of 12"), "{hard:?}");
        assert!(hard[1].text.contains("with m = 2 and more than"), "{hard:?}");
        assert!(hard[1].text.contains("as lower bounds say") && hard[2].text.contains("not their size"), "{hard:?}");
        let same = told(&|_| true, &|_| 1);
        assert!(
            same[0].text.contains("No wall") && same[1].text.contains("no growth") && same[2].text.contains("no difference"),
            "{same:?}"
        );
        let easy = told(&|_| true, &|point| if parity(point) { 1 } else { 8 });
        assert!(easy[2].text.contains("easier"), "{easy:?}");
        let steep = told(&|_| true, &dear);
        assert!(steep[1].text.contains("times 4.00 (4.00 to 4.00)"), "{steep:?}");
        let fewer = told(&|_| true, &|point| if point.m == 2 { 64 } else { 1 });
        assert!(fewer[1].text.contains("fewer with more heads"), "{fewer:?}");
        let stances = [&hard, &same, &fewer].map(|findings| findings[1].stance);
        assert_eq!(stances, [Stance::Agrees, Stance::Open, Stance::Differs]);
    }

    #[test]
    fn small_parities_are_found_again() {
        for kind in [Kind::Parity, Kind::Random] {
            let point = Point { kind, m: 2, d: 4, starts: 15, seed: 3 };
            let row = Parity::measure(&point, &|| false).unwrap();
            assert!(row[0].solved && row[0].starts > 0, "{row:?}");
            assert_eq!(row, Parity::measure(&point, &|| false).unwrap());
        }
    }
}
