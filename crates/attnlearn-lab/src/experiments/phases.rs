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

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, seeds};
use crate::stats::{self, Estimate, short};
use attnlearn::Result;
use attnlearn::data::InputDistribution;
use attnlearn::linalg::{Mat, frobenius};
use attnlearn::sculpt::{self, Heads, Settings};
use attnlearn::teacher::{TeacherSpec, TeacherStream};
use attnlearn_page::plot::{Axis, Chart, Figure, Heat, Panel, Series};
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
    const REVISION: u32 = 1;
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
        seeds(seed, config.seeds).map(|seed| Point { d, k, m, norm, most_examples, seed }).collect()
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let Point { d, k, m, norm, most_examples, seed } = *point;
        let teacher = TeacherSpec::dense(d, m, norm).draw_from(seed)?;
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
        let mut findings = shrinking(config, rows);
        findings.push(answer(config, rows));
        Ok(Summary {
            findings,
            figures: [Some(widths(config, rows)), matrices(config, rows)].into_iter().flatten().collect(),
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

/// The largest distance between two heads of every teacher of which all were found.
fn distances(config: &Config, rows: &Measurements<Phases>) -> BTreeMap<u64, f64> {
    let mut truths: BTreeMap<u64, Vec<Mat<f64>>> = BTreeMap::new();
    for ((seed, _), [truth, _]) in heads(config, rows) {
        truths.entry(seed).or_default().push(truth);
    }
    let largest = |heads: Vec<Mat<f64>>| {
        let pairs = (0..heads.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        pairs.map(|(i, j)| frobenius((&heads[i] - &heads[j]).as_ref())).reduce(f64::max)
    };
    let whole = truths.into_iter().filter(|(_, heads)| heads.len() == config.m);
    whole.filter_map(|(seed, heads)| Some((seed, largest(heads)?))).collect()
}

/// How wide the body of so many slabs is in one teacher.
struct Body {
    /// Along the direction of the hull in which it is widest.
    along: f64,
    /// Across the hull, the geometric mean over directions.
    across: f64,
    /// Whether it is as wide along the hull as it must be to hold all heads.
    holds: bool,
}

/// The bodies of every number of slabs, a teacher each.
///
/// Two heads are `D` apart along a hull of `m − 1` orthonormal directions, so a body with both is `D/√(m−1)` wide or more in one of them.
fn bodies(config: &Config, rows: &Measurements<Phases>) -> BTreeMap<u64, Vec<Body>> {
    let mut widths: BTreeMap<(u64, u64), [Vec<f64>; 2]> = BTreeMap::new();
    for (place, what) in [What::Hull, What::Across].into_iter().enumerate() {
        of(rows, what).for_each(|seen| widths.entry((seen.row.rows, seen.point.seed)).or_default()[place].push(seen.row.value));
    }
    let apart = distances(config, rows);
    let mut bodies: BTreeMap<u64, Vec<Body>> = BTreeMap::new();
    for ((slabs, seed), [along, across]) in widths {
        let (Some(along), Some(apart)) = (along.into_iter().reduce(f64::max), apart.get(&seed)) else { continue };
        let holds = along >= apart / ((config.m.max(2) - 1) as f64).sqrt();
        bodies.entry(slabs).or_default().push(Body { along, across: stats::geometric(&across).value, holds });
    }
    bodies
}

/// Whether the body is cut down to the hull and holds all heads, and what becomes of it with the most slabs.
fn shrinking(config: &Config, rows: &Measurements<Phases>) -> Vec<Finding> {
    let bodies = bodies(config, rows);
    let Some((most, last)) = bodies.last_key_value() else {
        return vec![Finding::open(format!("Too few rows agree for a body: none of {} teachers had one.", config.seeds))];
    };
    let held = |bodies: &[Body]| bodies.iter().filter(|body| body.holds).count();
    let ratio = |bodies: &[Body]| stats::geometric(&bodies.iter().map(|body| body.along / body.across).collect::<Vec<_>>());
    let wide = |bodies: &[Body], of: fn(&Body) -> f64| stats::geometric(&bodies.iter().map(of).collect::<Vec<_>>());
    let told = |slabs: u64, bodies: &[Body]| {
        format!(
            "with {slabs} slabs it is {} wide along the hull and {} across it, and wide enough for all heads in {} of {} teachers",
            wide(bodies, |body| body.along),
            wide(bodies, |body| body.across),
            held(bodies),
            bodies.len()
        )
    };
    // The most slabs with which most bodies can still hold all heads.
    let Some((slabs, good)) = bodies.iter().rev().find(|(_, bodies)| 2 * held(bodies) > bodies.len()) else {
        let text = format!("The body holds all heads of most teachers at no number of slabs: {}.", told(*most, last));
        return vec![Finding::differs(text)];
    };
    let times = ratio(good);
    let narrow = Finding::judged(
        format!(
            "While it can hold all heads of most teachers, up to {slabs} slabs, the body becomes {times} times as wide along their hull as across it: {}.",
            told(*slabs, good)
        ),
        times.above(1.0),
        times.below(1.0),
    );
    if slabs == most {
        return vec![narrow];
    }
    let text = format!(
        "With {most} slabs the body is too narrow for all heads of {} of {} teachers: {}. Rows on which heads agree only nearly have slabs without a point in common, which are widened alike \
         until they have one.",
        last.len() - held(last),
        last.len(),
        told(*most, last)
    );
    vec![narrow, Finding::differs(text)]
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
        "Before any polish attention matrices are off by {} % in the geometric mean (there is an answer for {} of {} heads).",
        percent(stats::geometric(&errors)),
        errors.len(),
        config.seeds as usize * config.m
    ))
}

fn percent(of: Estimate) -> Estimate {
    Estimate { value: 100.0 * of.value, low: 100.0 * of.low, high: 100.0 * of.high }
}

fn widths(config: &Config, rows: &Measurements<Phases>) -> Figure {
    let series =
        [(What::Hull, "along the hull"), (What::Centre, "along its centre"), (What::Across, "across it")].map(|(what, label)| {
            let mut by_rows: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            of(rows, what).for_each(|seen| by_rows.entry(seen.row.rows).or_default().push(seen.row.value));
            Series::new(label, by_rows.into_iter().map(|(rows, widths)| (rows as f64, stats::geometric(&widths))))
        });
    let mut series: Vec<Series> = series.into();
    let apart = distances(config, rows);
    if !apart.is_empty() {
        let apart = stats::geometric(&apart.into_values().collect::<Vec<_>>()).value;
        let slabs = || of(rows, What::Hull).map(|seen| seen.row.rows);
        let ends = [slabs().min(), slabs().max()].into_iter().flatten();
        series.push(Series::theory("distance of the heads", ends.map(|rows| (rows as f64, apart))));
    }
    let chart =
        Chart { title: String::new(), x: Axis::log("slabs, the best rows accepted"), y: Axis::log("width of the body"), series };
    Figure {
        name: "phases-body".into(),
        title: "The body being sculpted".into(),
        caption: "Widths by linear programs, geometric means over teachers and directions. While all heads are in the body it is as wide along their hull as they are apart, the dashed line; \
                  everywhere else more slabs should make it narrow. Slabs without a point in common are widened alike until they have one."
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

    /// Two heads 10 apart, and widths along and across their hull, slabs by slabs.
    fn made_up(widths: &[(u64, f64, f64)]) -> Vec<Seen> {
        let mut rows = Vec::new();
        for point in Phases::points(&config(), 1) {
            let mut put = |what, slabs, index, value| {
                rows.push(Measured { point: point.clone(), row: Row { what, rows: slabs, index, value }, seconds: 1.0 });
            };
            let wobble = 1.0 + 0.01 * (point.seed % 7) as f64;
            for &(slabs, along, across) in widths {
                put(What::Hull, slabs, 0, along * wobble);
                (0..2).for_each(|i| put(What::Across, slabs, i, across));
            }
            for head in 0..2 {
                put(What::Truth, head, 0, 10.0 * head as f64);
                put(What::Found, head, 0, 10.0 * head as f64);
            }
        }
        rows
    }

    #[test]
    fn sentences_follow_the_widths() {
        let told = |widths: &[(u64, f64, f64)]| Phases::summarise(&config(), &made_up(widths)).unwrap().findings;
        let stances = |widths: &[(u64, f64, f64)]| told(widths).iter().map(|one| one.stance).collect::<Vec<_>>();
        // Cut down to the hull, heads and all.
        assert_eq!(stances(&[(10, 90.0, 80.0), (40, 12.0, 0.1)]), [Stance::Agrees, Stance::Open]);
        // The same, but more slabs cut heads off: nobody may call that as claimed.
        let cut = told(&[(10, 90.0, 80.0), (40, 12.0, 0.1), (160, 2.0, 0.1)]);
        assert_eq!([cut[0].stance, cut[1].stance], [Stance::Agrees, Stance::Differs]);
        assert!(cut[0].text.contains("up to 40 slabs") && cut[1].text.contains("in 0 of 2 teachers"), "{cut:?}");
        // Wider across than along, and never wide enough.
        assert_eq!(stances(&[(10, 12.0, 80.0)]), [Stance::Differs, Stance::Open]);
        assert_eq!(stances(&[(10, 2.0, 0.1)]), [Stance::Differs, Stance::Open]);
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
        let bodies = bodies(&config(), &rows);
        assert!(bodies.len() > 2 && bodies.values().flatten().filter(|body| body.across < 0.2 * body.along).count() > 1);
        assert_eq!(matrices(&config(), &rows).unwrap().panels.len(), 4);
    }
}
