//! The six phases, watched: the body of attention matrices while it is sculpted, and what comes out.
//!
//! Rows on which all heads attend alike are slabs that hold every `Θ_i`; with more of them the body
//!
//! ```text
//! K = {Θ : |⟨Θ, v_r⟩ − ℓ_r| ≤ ξ_r for every accepted row r}
//! ```
//!
//! should shrink onto the affine hull of the heads: its widths along the hull's `m − 1` directions stay, those across it vanish. Widths are compared between the first body, of
//! `d²/4` rows, and the last, of `8d²`.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary};
use crate::plot::{Axis, Chart, Figure, Heat, Panel, Series};
use crate::stats::{self, Estimate, short};
use attnlearn::Result;
use attnlearn::data::{InputDistribution, TeacherSpec, TeacherStream};
use attnlearn::linalg::{Mat, frobenius};
use attnlearn::sculpt::{self, Heads, Settings};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The experiment.
pub struct Phases;

/// What can be chosen.
#[derive(Serialize, Deserialize)]
pub struct Config {
    /// Teachers.
    seeds: u64,
    /// Dimension, tokens and heads.
    d: usize,
    k: usize,
    m: usize,
    /// `‖Θ‖_F`.
    norm: f64,
    /// Most examples of the six phases.
    most_examples: u64,
}

/// One teacher.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    d: usize,
    k: usize,
    m: usize,
    norm: f64,
    most_examples: u64,
    seed: u64,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A width along a direction of the hull.
    Hull,
    /// The width along its centre.
    Centre,
    /// A width across it.
    Across,
    /// An entry of an attention matrix of the teacher.
    Truth,
    /// The same of the six phases' own answer.
    Found,
}

/// A number, and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    what: What,
    /// Rows accepted; of entries, the head.
    rows: u64,
    /// Which direction; of entries, where it stands in its matrix.
    index: usize,
    value: f64,
}

type Seen = Measured<Point, Row>;

impl Experiment for Phases {
    const NAME: &'static str = "phases";
    const TITLE: &'static str = "The six phases, watched";
    const QUESTION: &'static str =
        "Is the body of attention matrices sculpted as the proof has it, and what comes out of it before any polish?";
    const CLAIM: &'static str = "Rows on which all heads agree cut the body down to the affine hull of the attention matrices: it stays wide along the hull, and vanishes across it.";
    const TOGETHER: bool = false;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            seeds: scale.pick(3, 10),
            d: scale.pick(6, 8),
            k: scale.pick(3, 4),
            m: 2,
            norm: 6.0,
            most_examples: scale.pick(4_000_000, 100_000_000),
        }
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let Config { d, k, m, norm, most_examples, .. } = *config;
        (0..config.seeds).map(|s| Point { d, k, m, norm, most_examples, seed: seed.wrapping_mul(1000) + s }).collect()
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let Point { d, k, m, norm, most_examples, seed } = *point;
        let teacher = TeacherSpec::dense(d, m, norm).draw(&mut ChaCha8Rng::seed_from_u64(seed))?;
        let stream = TeacherStream::new(&teacher, k, InputDistribution::Boolean, seed, None);
        let settings = Settings {
            heads: Heads::Given(m),
            most_examples,
            seed,
            sculpture: true,
            polish: false,
            separate: false,
            ..Settings::default()
        }
        .check(&stream)?;
        let learned = sculpt::learn(&stream, &settings, &Stopped(stop))?;
        let mut rows = Vec::new();
        if let Some(sculpture) = learned.records.iter().rev().map(|record| &record.sculpture).find(|widths| !widths.is_empty()) {
            for widths in sculpture {
                let mut put = |what, index, value| rows.push(Row { what, rows: widths.rows, index, value });
                widths.hull.iter().enumerate().for_each(|(i, width)| put(What::Hull, i, *width));
                put(What::Centre, 0, widths.centre);
                widths.others.iter().enumerate().for_each(|(i, width)| put(What::Across, i, *width));
            }
        }
        if let Some(stage) = &learned.before_polish {
            let distance = teacher.distance(&stage.layer)?;
            for pair in &distance.heads {
                for (what, layer, head) in [(What::Truth, &teacher, pair.reference), (What::Found, &stage.layer, pair.other)] {
                    let theta = layer.heads()[head].theta.to_dense();
                    let entry =
                        |index: usize| Row { what, rows: pair.reference as u64, index, value: theta[(index / d, index % d)] };
                    rows.extend((0..d * d).map(entry));
                }
            }
        }
        Ok(rows)
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let findings = vec![shrinking(config, rows)?, answer(config, rows)];
        Ok(Summary {
            findings,
            figures: [Some(widths(rows)), matrices(config, rows)].into_iter().flatten().collect(),
            tables: Vec::new(),
        })
    }
}

/// Nobody watches, but it can be stopped.
struct Stopped<'a>(&'a (dyn Fn() -> bool + Sync));

impl sculpt::Watch for Stopped<'_> {
    fn interrupted(&self) -> bool {
        self.0()
    }
}

fn of(rows: &Measurements<Phases>, what: What) -> impl Iterator<Item = &Seen> {
    rows.iter().filter(move |seen| seen.row.what == what)
}

/// Last width over first, of every seed and direction.
fn ratios(rows: &Measurements<Phases>, what: What) -> Vec<f64> {
    let mut lines: BTreeMap<(u64, usize), Vec<(u64, f64)>> = BTreeMap::new();
    for seen in of(rows, what) {
        lines.entry((seen.point.seed, seen.row.index)).or_default().push((seen.row.rows, seen.row.value));
    }
    let ratio = |line: Vec<(u64, f64)>| {
        let (first, last) = (line.iter().min_by_key(|one| one.0)?, line.iter().max_by_key(|one| one.0)?);
        (first.0 < last.0 && first.1 > 0.0).then(|| last.1 / first.1)
    };
    lines.into_values().filter_map(ratio).collect()
}

/// Whether the body shrinks across the hull and not along it.
fn shrinking(config: &Config, rows: &Measurements<Phases>) -> Result<Finding> {
    let (along, across) = (ratios(rows, What::Hull), ratios(rows, What::Across));
    let seeds = config.seeds as usize;
    let grown: Vec<u64> = of(rows, What::Across).map(|seen| seen.row.rows).collect();
    let (Some(fewest), Some(most)) = (grown.iter().min(), grown.iter().max()) else {
        return Ok(Finding::open(format!("Too few rows agree for a body: none of {seeds} teachers had one.")));
    };
    let (along, across) = (stats::geometric(&along), stats::geometric(&across));
    let text = |verdict: &str| {
        format!(
            "From {fewest} slabs to {most} the body's width falls to {across} of what it was across the heads' hull, and to {along} along it, so {verdict}."
        )
    };
    Ok(if across.below(along.low) {
        Finding::agrees(text("it is cut down to the hull"))
    } else if across.above(along.high) {
        Finding::differs(text("it stays wider across the hull than along it"))
    } else {
        Finding::open(text("no difference is to be told"))
    })
}

/// Matrices of a head: true and found.
fn heads(config: &Config, rows: &Measurements<Phases>) -> BTreeMap<(u64, u64), [Mat<f64>; 2]> {
    let d = config.d;
    let mut heads: BTreeMap<(u64, u64), [Mat<f64>; 2]> = BTreeMap::new();
    for (place, what) in [What::Truth, What::Found].into_iter().enumerate() {
        for seen in of(rows, what).filter(|seen| seen.row.index < d * d) {
            let both = heads.entry((seen.point.seed, seen.row.rows)).or_insert_with(|| [Mat::zeros(d, d), Mat::zeros(d, d)]);
            both[place][(seen.row.index / d, seen.row.index % d)] = seen.row.value;
        }
    }
    heads
}

/// How near the six phases come by themselves.
fn answer(config: &Config, rows: &Measurements<Phases>) -> Finding {
    let error = |[truth, found]: &[Mat<f64>; 2]| frobenius((found - truth).as_ref()) / frobenius(truth.as_ref());
    let errors: Vec<f64> = heads(config, rows).values().map(error).collect();
    if errors.is_empty() {
        return Finding::open("By agreement alone no head was found.");
    }
    Finding::open(format!(
        "Before any polish attention matrices are off by {} % ({} of {} heads found).",
        percent(stats::geometric(&errors)),
        errors.len(),
        config.seeds as usize * config.m
    ))
}

fn percent(of: Estimate) -> Estimate {
    Estimate { value: 100.0 * of.value, low: 100.0 * of.low, high: 100.0 * of.high }
}

fn widths(rows: &Measurements<Phases>) -> Figure {
    let series =
        [(What::Hull, "along the hull"), (What::Centre, "along its centre"), (What::Across, "across it")].map(|(what, label)| {
            let mut by_rows: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            of(rows, what).for_each(|seen| by_rows.entry(seen.row.rows).or_default().push(seen.row.value));
            Series::new(label, by_rows.into_iter().map(|(rows, widths)| (rows as f64, stats::geometric(&widths))))
        });
    let chart = Chart {
        title: String::new(),
        x: Axis::log("slabs, the best rows accepted"),
        y: Axis::log("width of the body"),
        series: series.into(),
    };
    Figure {
        name: "phases-body".into(),
        title: "The body being sculpted".into(),
        caption: "Widths by linear programs, geometric means over teachers and directions. All heads are in the body, so it stays wide along their hull; everywhere else more slabs should \
                  make it narrow."
            .into(),
        panels: vec![Panel::Chart(chart)],
    }
}

/// The heads of the first teacher, true and found.
fn matrices(config: &Config, rows: &Measurements<Phases>) -> Option<Figure> {
    let heads = heads(config, rows);
    let seed = heads.keys().next()?.0;
    let shown = || heads.range((seed, 0)..=(seed, u64::MAX));
    let full = shown().flat_map(|(_, both)| both).map(|matrix| matrix.norm_max()).fold(0.0, f64::max);
    let panels = shown().flat_map(|((_, head), [truth, found])| {
        let error = frobenius((found - truth).as_ref()) / frobenius(truth.as_ref());
        let titles = [format!("head {}: true", head + 1), format!("found, off by {} %", short(100.0 * error))];
        titles.into_iter().zip([truth, found]).map(move |(title, values)| {
            Panel::Heat(Heat { title, values: values.clone(), rows: "query".into(), columns: "key".into(), full })
        })
    });
    Some(Figure {
        name: "phases-matrices".into(),
        title: "Attention matrices, true and found".into(),
        caption: format!("Of the first teacher (seed {seed}), before any polish, all in the same colours."),
        panels: panels.collect(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::Stance;

    fn config() -> Config {
        Config { seeds: 2, d: 6, k: 3, m: 2, norm: 6.0, most_examples: 1_000_000 }
    }

    /// Widths that fall by powers of the number of rows.
    fn made_up(along: i32, across: i32) -> Vec<Seen> {
        let mut rows = Vec::new();
        for point in Phases::points(&config(), 1) {
            for (what, power, index) in [(What::Hull, along, 0), (What::Across, across, 0), (What::Across, across, 1)] {
                for n in [10_u64, 40, 160] {
                    let wobble = 1.0 + 0.01 * (point.seed % 7 + index as u64) as f64;
                    let value = wobble * (n as f64).powi(-power);
                    rows.push(Measured {
                        point: point.clone(),
                        row: Row { what, rows: n, index, value: value * if n == 160 { wobble } else { 1.0 } },
                        seconds: 1.0,
                    });
                }
            }
        }
        rows
    }

    #[test]
    fn sentences_follow_the_widths() {
        let stance = |along, across| Phases::summarise(&config(), &made_up(along, across)).unwrap().findings[0].stance;
        assert_eq!([stance(0, 1), stance(1, 0), stance(1, 1)], [Stance::Agrees, Stance::Differs, Stance::Open]);
        let none = Phases::summarise(&config(), &[]).unwrap();
        assert!(none.findings[0].text.contains("none of 2") && none.findings[1].text.contains("no head"));
    }

    /// One teacher for real: the body is cut down, and matrices come out.
    #[test]
    fn a_body_is_sculpted() {
        let points = Phases::points(&config(), 0);
        let measured = |point: &Point| Phases::measure(point, &|| false).unwrap();
        let rows = measured(&points[0]);
        assert_eq!(rows, measured(&points[0]));
        let rows: Vec<Seen> = rows.into_iter().map(|row| Measured { point: points[0].clone(), row, seconds: 1.0 }).collect();
        let (along, across) = (ratios(&rows, What::Hull), ratios(&rows, What::Across));
        assert!(!across.is_empty() && across.iter().all(|ratio| *ratio < along[0]), "{along:?} {across:?}");
        assert_eq!(matrices(&config(), &rows).unwrap().panels.len(), 4);
    }
}
