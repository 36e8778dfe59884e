//! How fast examples and time grow with heads, dimension and tokens.
//!
//! The theorem allows `(dk)^{O(m³)}` for both. Sizes are varied one at a time from a base problem of random heads, and exponents fitted:
//!
//! ```text
//! n ∝ m^α d^β k^γ,        log n / log(dk) ∝ m^ω        the theorem: ω ≤ 3
//! ```
//!
//! from sizes of which every teacher was found, and needed more than the fewest examples tried: others say only that it took more, or less. As examples are tried between
//! two limits, ω cannot come out larger than from the lower limit at the fewest heads to the upper one at the most; where that is below 3, nothing is said about the theorem.
//!
//! A layer of m heads of full rank has `2md²` unknowns and a sequence `kd` numbers: no learner can do with fewer than `2md/k` sequences, the counting bound
//! (α, β, γ = 1, 1, −1). The practical learner is asked for the least multiple of it above which it never failed, and for its time at four times the bound. The six phases
//! are asked how many examples agreement alone needs, as the paper has it, for an answer that explains all but [`AGREED`] of held-out outputs; and how many examples and how
//! much time a whole run takes, with its separated round and its polish. Whole runs read 2¹⁹ examples in phase 3 even where fewer would do.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::recovery::{Inputs, agreement, counting_bound, descend_starts, draw_examples, judge, part, sculpt};
use crate::stats::{self, Estimate, short};
use attnlearn::Result;
use attnlearn::layer::AttentionLayer;
use attnlearn::learn::Answer;
use attnlearn::teacher::TeacherSpec;
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Multiples of the counting bound, the easiest first.
const MULTIPLES: [f64; 10] = [8.0, 4.0, 3.0, 2.5, 2.0, 1.75, 1.5, 1.35, 1.2, 1.1];
/// That at which the practical learner's time is taken.
const PLENTY: f64 = 4.0;
/// Fewest examples that the six phases are given.
const FEWEST: u64 = 1 << 11;
/// Held-out error at which the six phases' own answer counts.
const AGREED: f64 = 1e-2;
/// Of the theorem.
const THEOREM: f64 = 3.0;

/// The experiment.
pub struct Growth;

/// What can be chosen.
#[derive(Serialize, Deserialize)]
pub struct Config {
    /// Teachers of every size.
    seeds: u64,
    /// `‖Θ‖_F`.
    norm: f64,
    /// Starts of the practical learner.
    starts: usize,
    /// Its m, d and k where they are not varied.
    descend_base: [usize; 3],
    /// Its sizes.
    descend_heads: Vec<usize>,
    descend_dims: Vec<usize>,
    descend_tokens: Vec<usize>,
    /// Most examples of the six phases.
    most_examples: u64,
    /// Their m, d and k where they are not varied.
    sculpt_base: [usize; 3],
    /// Their sizes.
    sculpt_heads: Vec<usize>,
    sculpt_dims: Vec<usize>,
    sculpt_tokens: Vec<usize>,
}

/// Who learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Learner {
    /// The practical one.
    Descend,
    /// The six phases.
    Sculpt,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// The fewest examples that suffice.
    Fewest,
    /// How long a run takes that has enough of them.
    Time,
}

/// One learner on one teacher.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    learner: Learner,
    asked: Asked,
    m: usize,
    d: usize,
    k: usize,
    norm: f64,
    /// Starts of the practical learner, most examples of the six phases.
    limit: f64,
    seed: u64,
}

/// What it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Whether the layer was found.
    found: bool,
    /// Sequences that it took, or the most that were allowed.
    examples: u64,
}

/// What is varied.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    Heads,
    Dimension,
    Tokens,
}

const SIZES: [Size; 3] = [Size::Heads, Size::Dimension, Size::Tokens];

impl Size {
    fn letter(self) -> &'static str {
        ["m", "d", "k"][self as usize]
    }

    fn label(self) -> &'static str {
        ["heads m", "token dimension d", "tokens k"][self as usize]
    }
}

impl Config {
    fn base(&self, learner: Learner) -> [usize; 3] {
        match learner {
            Learner::Descend => self.descend_base,
            Learner::Sculpt => self.sculpt_base,
        }
    }

    fn values(&self, learner: Learner, size: Size) -> &[usize] {
        let of_all = match learner {
            Learner::Descend => [&self.descend_heads, &self.descend_dims, &self.descend_tokens],
            Learner::Sculpt => [&self.sculpt_heads, &self.sculpt_dims, &self.sculpt_tokens],
        };
        of_all[size as usize]
    }

    /// All (m, d, k) of a learner, the base once.
    fn problems(&self, learner: Learner) -> Vec<[usize; 3]> {
        let mut problems = vec![self.base(learner)];
        for size in SIZES {
            for value in self.values(learner, size) {
                let mut problem = self.base(learner);
                problem[size as usize] = *value;
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        problems
    }
}

impl Experiment for Growth {
    const NAME: &'static str = "growth";
    const TITLE: &'static str = "Growth with heads, dimension and tokens";
    const QUESTION: &'static str =
        "How do examples and time grow with m, d and k, of the six phases and of the practical learner?";
    const CLAIM: &'static str = "The theorem allows (dk)^O(m³), in time and so in examples. Unknowns are so many that at least 2md/k sequences are needed.";
    const TOGETHER: bool = false;
    const REVISION: u32 = 1;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            seeds: scale.pick(3, 4),
            norm: 6.0,
            starts: scale.pick(7, 31),
            descend_base: [2, 8, 4],
            descend_heads: scale.pick(vec![1, 2, 3, 4], vec![1, 2, 3, 4, 6, 8]),
            descend_dims: scale.pick(vec![4, 6, 8, 12], vec![4, 6, 8, 12, 16, 24]),
            descend_tokens: scale.pick(vec![2, 3, 4, 8], vec![2, 3, 4, 6, 8, 12, 16]),
            most_examples: scale.pick(1 << 21, 1 << 23),
            sculpt_base: [2, 10, 3],
            sculpt_heads: scale.pick(vec![1, 2, 3], vec![1, 2, 3, 4]),
            sculpt_dims: scale.pick(vec![8, 10, 12], vec![6, 8, 10, 12, 14, 16]),
            sculpt_tokens: scale.pick(vec![3, 4, 5], vec![2, 3, 4, 5, 6]),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.descend_heads);
        ascending(&mut config.descend_dims);
        ascending(&mut config.descend_tokens);
        ascending(&mut config.sculpt_heads);
        ascending(&mut config.sculpt_dims);
        ascending(&mut config.sculpt_tokens);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let mut points = Vec::new();
        for (learner, limit) in [(Learner::Descend, config.starts as f64), (Learner::Sculpt, config.most_examples as f64)] {
            for [m, d, k] in config.problems(learner) {
                for asked in [Asked::Time, Asked::Fewest] {
                    let of = |seed: u64| Point { learner, asked, m, d, k, norm: config.norm, limit, seed };
                    points.extend(seeds(seed, config.seeds).map(of));
                }
            }
        }
        points
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let teacher = TeacherSpec::dense(point.d, point.m, point.norm).draw_from(point.seed)?;
        let row = match (point.learner, point.asked) {
            (Learner::Descend, Asked::Fewest) => fewest_multiple(point, &teacher, stop)?,
            (Learner::Descend, Asked::Time) => by_descent(point, &teacher, PLENTY, stop)?,
            (Learner::Sculpt, asked) => {
                let source = Inputs::Boolean.stream(&teacher, point.k, part(point.seed, 1))?;
                let most = point.limit as u64;
                match asked {
                    Asked::Fewest => {
                        fewest_agreeing(most, |n| Ok(explains(&agreement(source.as_ref(), point.m, n, point.seed, stop)?)))?
                    }
                    Asked::Time => {
                        let learned = sculpt(source.as_ref(), point.m, most, point.seed, stop)?;
                        Row { found: learned.recovered, examples: learned.examples }
                    }
                }
            }
        };
        Ok(vec![row])
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let examples = |found: &Found| found.row.examples as f64;
        let seconds = |found: &Found| found.seconds;
        let told = |learner, asked, value: &dyn Fn(&Found) -> f64| Fits::of(config, rows, learner, asked, value);
        let counting = told(Learner::Descend, Asked::Fewest, &examples);
        let pace = told(Learner::Descend, Asked::Time, &seconds);
        let agreeing = told(Learner::Sculpt, Asked::Fewest, &examples);
        let whole = told(Learner::Sculpt, Asked::Time, &seconds);
        let findings = vec![
            Finding::open(counting_sentence(rows, &counting)),
            Finding::open(format!(
                "The practical learner's time at {} times the counting bound grows as {}.",
                short(PLENTY),
                pace.powers()
            )),
            agreement_sentence(config, rows, &agreeing),
            Finding::open(whole_sentence(rows, &whole)),
        ];
        let figures = vec![
            Figure {
                name: "growth-examples".into(),
                title: "Examples needed".into(),
                caption: "Fewest sequences that suffice, geometric means over teachers, one size varied at a time. Dashed: the counting bound, fewer than which no learner can \
                          do with. The six phases are those of agreement alone, and their answers need only explain all but a hundredth of held-out outputs; the practical learner's have every \
                          matrix within a millionth."
                    .into(),
                panels: panels(config, rows, Asked::Fewest, "sequences", &examples),
            },
            Figure {
                name: "growth-time".into(),
                title: "Time of a run".into(),
                caption: "Seconds of runs that found the layer: the practical learner from four times the counting bound, the six phases from as many examples as they ask for."
                    .into(),
                panels: panels(config, rows, Asked::Time, "seconds", &seconds),
            },
        ];
        Ok(Summary { findings, figures, tables: vec![table(config, rows)] })
    }
}

type Found = Measured<Point, Row>;

fn by_descent(point: &Point, teacher: &AttentionLayer, multiple: f64, stop: &(dyn Fn() -> bool + Sync)) -> Result<Row> {
    let n = (multiple * counting_bound(point.d, point.d, point.m, point.k)).ceil() as usize;
    let examples = draw_examples(teacher, point.k, Inputs::Boolean, n, part(point.seed, 1))?;
    let answer = descend_starts(&examples, point.m, None, point.limit as usize, point.seed, stop)?;
    Ok(Row { found: judge(teacher, &answer.layer).recovered(), examples: n as u64 })
}

/// From plenty of examples downwards to the first failure: that alone takes all the starts.
fn fewest_multiple(point: &Point, teacher: &AttentionLayer, stop: &(dyn Fn() -> bool + Sync)) -> Result<Row> {
    let mut fewest = None;
    for multiple in MULTIPLES {
        let row = by_descent(point, teacher, multiple, stop)?;
        if !row.found {
            return Ok(fewest.unwrap_or(row));
        }
        fewest = Some(row);
    }
    Ok(fewest.unwrap_or(Row { found: false, examples: 0 }))
}

/// The least power of two that suffices: in ever longer strides to the first that does, then by bisection.
fn fewest_agreeing(most: u64, suffice: impl Fn(u64) -> Result<bool>) -> Result<Row> {
    let tried = |power: u32| FEWEST << power;
    let powers = (most / FEWEST).max(1).ilog2() + 1;
    let (mut low, mut high, mut stride) = (0, powers, 0);
    while low < high {
        let next = if high < powers { low.midpoint(high) } else { (low + stride).min(powers - 1) };
        if suffice(tried(next))? {
            high = next;
        } else {
            low = next + 1;
            stride = 2 * stride + 1;
        }
    }
    Ok(Row { found: low < powers, examples: tried(low.min(powers - 1)) })
}

/// Whether the six phases' own answer holds on held-out examples.
fn explains(learned: &Answer) -> bool {
    learned.before_polish.as_ref().is_some_and(|stage| stage.nmse <= AGREED)
}

/// Fitted exponents of one learner.
struct Fits {
    /// α, β, γ.
    powers: [Option<Estimate>; 3],
    /// ω.
    order: Option<Estimate>,
    /// Growth with one head more.
    factor: Option<Estimate>,
    /// m of the sizes that ω is fitted to.
    heads: Vec<usize>,
}

/// Whether all of a size were found, with more than the fewest examples tried.
fn complete(of: &[&Found]) -> bool {
    let cut = |found: &Found| {
        found.point.learner == Learner::Sculpt && found.point.asked == Asked::Fewest && found.row.examples <= FEWEST
    };
    !of.is_empty() && of.iter().all(|found| found.row.found && !cut(found))
}

impl Fits {
    fn of(config: &Config, rows: &Measurements<Growth>, learner: Learner, asked: Asked, value: &dyn Fn(&Found) -> f64) -> Self {
        let along = |size: Size| -> Vec<&Found> {
            let at = |value: &usize| sized(config, rows, learner, asked, size, *value).collect::<Vec<_>>();
            config.values(learner, size).iter().map(at).filter(|of| complete(of)).flatten().collect()
        };
        let powers = SIZES.map(|size| {
            let at = |found: &&Found| (found.point.seed, problem(&found.point)[size as usize] as f64, value(found));
            stats::exponent_over_seeds(along(size).iter().map(at))
        });
        let heads = along(Size::Heads);
        let order = |found: &&Found| {
            let Point { m, d, k, seed, .. } = found.point;
            (seed, m as f64, value(found).ln() / ((d * k) as f64).ln())
        };
        let log = |found: &&Found| (found.point.seed, found.point.m as f64, value(found).ln());
        let factor = stats::slope_over_seeds(heads.iter().map(log));
        let factor = factor.map(|log| Estimate { value: log.value.exp(), low: log.low.exp(), high: log.high.exp() });
        let order = stats::exponent_over_seeds(heads.iter().map(order));
        let distinct: BTreeSet<usize> = heads.iter().map(|found| found.point.m).collect();
        Self { powers, order, factor, heads: distinct.into_iter().collect() }
    }

    /// `m^1.0 (0.9 to 1.1), …`.
    fn powers(&self) -> String {
        let one = |(size, power): (Size, &Option<Estimate>)| match power {
            Some(power) => format!("{}^{power}", size.letter()),
            None => format!("{}^? (too few sizes)", size.letter()),
        };
        SIZES.into_iter().zip(&self.powers).map(one).collect::<Vec<_>>().join(", ")
    }
}

fn problem(point: &Point) -> [usize; 3] {
    [point.m, point.d, point.k]
}

/// Rows of the base problem with one of its sizes replaced.
fn sized<'a>(
    config: &Config,
    rows: &'a Measurements<Growth>,
    learner: Learner,
    asked: Asked,
    size: Size,
    value: usize,
) -> impl Iterator<Item = &'a Found> + use<'a> {
    let mut wanted = config.base(learner);
    wanted[size as usize] = value;
    rows.iter().filter(move |row| row.point.learner == learner && row.point.asked == asked && problem(&row.point) == wanted)
}

fn asked_of(rows: &Measurements<Growth>, learner: Learner, asked: Asked) -> impl Iterator<Item = &Found> {
    rows.iter().filter(move |row| row.point.learner == learner && row.point.asked == asked)
}

/// `27 of 27 teachers`.
fn found_of(rows: &Measurements<Growth>, learner: Learner, asked: Asked) -> String {
    let (found, all) =
        (asked_of(rows, learner, asked).filter(|row| row.row.found).count(), asked_of(rows, learner, asked).count());
    format!("{found} of {all} teachers")
}

/// Sizes at which none was found.
fn missed(rows: &Measurements<Growth>, learner: Learner, asked: Asked) -> String {
    let mut missing: BTreeSet<[usize; 3]> = asked_of(rows, learner, asked).map(|row| problem(&row.point)).collect();
    asked_of(rows, learner, asked).filter(|row| row.row.found).for_each(|row| {
        missing.remove(&problem(&row.point));
    });
    if missing.is_empty() { String::new() } else { format!(" (none with {})", sizes(missing)) }
}

/// `m, d, k = 2, 8, 3 or …`.
fn sizes(of: BTreeSet<[usize; 3]>) -> String {
    of.into_iter().map(|[m, d, k]| format!("m, d, k = {m}, {d}, {k}")).collect::<Vec<_>>().join(" or ")
}

fn bound(point: &Point) -> f64 {
    counting_bound(point.d, point.d, point.m, point.k)
}

/// Examples of the practical learner beside the counting bound.
fn counting_sentence(rows: &Measurements<Growth>, fits: &Fits) -> String {
    let counted = [1.0, 1.0, -1.0];
    let faster =
        SIZES.into_iter().zip(&fits.powers).filter(|(size, power)| power.is_some_and(|p| p.above(counted[*size as usize])));
    let faster: Vec<&str> = faster.map(|(size, _)| size.letter()).collect();
    let verdict = if fits.powers.iter().any(Option::is_none) {
        "too few sizes to compare".into()
    } else if faster.is_empty() {
        "no faster".into()
    } else {
        format!("faster in {}", faster.join(" and "))
    };
    let mut times: BTreeMap<[usize; 3], Vec<f64>> = BTreeMap::new();
    for row in asked_of(rows, Learner::Descend, Asked::Fewest).filter(|row| row.row.found) {
        times.entry(problem(&row.point)).or_default().push(row.row.examples as f64 / bound(&row.point));
    }
    let times: Vec<f64> = times.values().map(|of| stats::geometric(of).value).collect();
    let most = |pick: fn(f64, f64) -> f64| times.iter().copied().reduce(pick).map(short);
    let times = match (most(f64::min), most(f64::max)) {
        (Some(least), Some(most)) => format!("; it needs {least} to {most} times that bound, depending on the size"),
        _ => String::new(),
    };
    let starts = asked_of(rows, Learner::Descend, Asked::Fewest).map(|row| row.point.limit).fold(0.0, f64::max);
    format!(
        "Within {} starts the practical learner finds {}{}; its fewest examples grow as {}, and counting unknowns says m^1, d^1, k^−1, so {verdict}{times}.",
        short(starts),
        found_of(rows, Learner::Descend, Asked::Fewest),
        missed(rows, Learner::Descend, Asked::Fewest),
        fits.powers()
    )
}

/// The largest ω that limits on examples let through.
fn attainable(config: &Config, heads: &[usize]) -> Option<f64> {
    let (least, most) = (*heads.first()? as f64, *heads.last()? as f64);
    (least < most).then(|| ((config.most_examples as f64).ln() / (FEWEST as f64).ln()).ln() / (most / least).ln())
}

/// Time of whole runs, all of which read some examples however easy the problem.
fn whole_sentence(rows: &Measurements<Growth>, fits: &Fits) -> String {
    let read = || asked_of(rows, Learner::Sculpt, Asked::Time).map(|row| row.row.examples);
    let least = read().min().unwrap_or(0);
    format!(
        "Whole runs of the six phases, separated round and polish included, find {}; their time grows as {}, though {} of {} read no more than {least} examples, the fewest that any reads.",
        found_of(rows, Learner::Sculpt, Asked::Time),
        fits.powers(),
        read().filter(|examples| *examples == least).count(),
        read().count(),
    )
}

/// Examples of agreement alone beside the theorem, and beside the practical learner.
fn agreement_sentence(config: &Config, rows: &Measurements<Growth>, fits: &Fits) -> Finding {
    // The theorem is beyond what could have been seen.
    let most = attainable(config, &fits.heads);
    let telling = most.is_some_and(|most| most > THEOREM);
    let order = match (fits.order, fits.factor, most) {
        (Some(order), Some(factor), Some(most)) => {
            let verdict = match () {
                () if !telling => format!(
                    "which says nothing about the theorem's 3, as no more than {} could be seen with {FEWEST} to {} examples",
                    short(most),
                    config.most_examples
                ),
                () if order.below(THEOREM) => "below the theorem's 3".into(),
                () if order.above(THEOREM) => "above the theorem's 3".into(),
                () => "not to be told from the theorem's 3".into(),
            };
            let heads = fits.heads.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            format!("times {factor} for a further head (m = {heads}), their logarithm over that of dk as m^{order}, {verdict}")
        }
        _ => "too few sizes to say how they grow with heads".into(),
    };
    let ratio = |row: &Found| {
        let same = |other: &&Found| {
            other.row.found && other.point.seed == row.point.seed && problem(&other.point) == problem(&row.point)
        };
        let other = asked_of(rows, Learner::Descend, Asked::Fewest).find(same)?;
        row.row.found.then(|| row.row.examples as f64 / other.row.examples as f64)
    };
    let ratios: Vec<([usize; 3], f64)> =
        asked_of(rows, Learner::Sculpt, Asked::Fewest).filter_map(|row| Some((problem(&row.point), ratio(row)?))).collect();
    let both: BTreeSet<[usize; 3]> = ratios.iter().map(|(problem, _)| *problem).collect();
    let ratios: Vec<f64> = ratios.into_iter().map(|(_, ratio)| ratio).collect();
    let beside = match ratios.len() {
        0 => String::new(),
        n => format!(
            "; for a hundredth of the outputs unexplained they need {} times what the practical learner needs for matrices within a millionth ({n} teachers of {})",
            stats::geometric(&ratios),
            sizes(both)
        ),
    };
    let least = asked_of(rows, Learner::Sculpt, Asked::Fewest).filter(|row| row.row.found && row.row.examples == FEWEST).count();
    let least =
        if least > 0 { format!(" ({least} of them need no more than {FEWEST}, the fewest tried)") } else { String::new() };
    let none = missed(rows, Learner::Sculpt, Asked::Fewest);
    let text = format!(
        "By agreement alone the six phases find {}{least}{none}; the examples that they need grow as {}, {order}{beside}.",
        found_of(rows, Learner::Sculpt, Asked::Fewest),
        fits.powers()
    );
    let order = |is: fn(&Estimate, f64) -> bool| telling && fits.order.is_some_and(|order| is(&order, THEOREM));
    Finding::judged(text, order(Estimate::below), order(Estimate::above))
}

fn panels(config: &Config, rows: &Measurements<Growth>, asked: Asked, unit: &str, value: &dyn Fn(&Found) -> f64) -> Vec<Panel> {
    let panel = |size: Size| {
        let mut series = Vec::new();
        for (learner, name) in [(Learner::Descend, "practical"), (Learner::Sculpt, "six phases")] {
            let values = config.values(learner, size);
            let at = |x: &usize| {
                let found = sized(config, rows, learner, asked, size, *x).filter(|row| row.row.found);
                let measured: Vec<f64> = found.map(value).collect();
                (!measured.is_empty()).then(|| (*x as f64, stats::geometric(&measured)))
            };
            series.push(Series::new(name, values.iter().filter_map(at)));
        }
        if asked == Asked::Fewest {
            let bound = |x: &usize| {
                let mut sizes = config.base(Learner::Descend);
                sizes[size as usize] = *x;
                (*x as f64, counting_bound(sizes[1], sizes[1], sizes[0], sizes[2]))
            };
            series.push(Series::theory("counting bound", config.values(Learner::Descend, size).iter().map(bound)));
        }
        let fixed = |learner: Learner| {
            let others = SIZES.into_iter().filter(|other| *other != size);
            others
                .map(|other| format!("{} = {}", other.letter(), config.base(learner)[other as usize]))
                .collect::<Vec<_>>()
                .join(", ")
        };
        Panel::Chart(Chart {
            title: format!("{}; six phases {}", fixed(Learner::Descend), fixed(Learner::Sculpt)),
            x: Axis::log(size.label()),
            y: Axis::log(unit),
            series,
        })
    };
    SIZES.map(panel).into()
}

fn table(config: &Config, rows: &Measurements<Growth>) -> Table {
    let mut lines = Vec::new();
    for (learner, name) in [(Learner::Descend, "practical"), (Learner::Sculpt, "six phases")] {
        for [m, d, k] in config.problems(learner) {
            let of = |asked: Asked| asked_of(rows, learner, asked).filter(move |row| problem(&row.point) == [m, d, k]);
            let cell = |asked: Asked, value: &dyn Fn(&Found) -> f64| {
                let found: Vec<f64> = of(asked).filter(|row| row.row.found).map(value).collect();
                let mean = if found.is_empty() { "–".into() } else { stats::geometric(&found).to_string() };
                format!("{mean}, {} of {}", found.len(), of(asked).count())
            };
            lines.push(vec![
                name.into(),
                format!("{m}, {d}, {k}"),
                short(counting_bound(d, d, m, k)),
                cell(Asked::Fewest, &|row| row.row.examples as f64),
                cell(Asked::Time, &|row| row.row.examples as f64),
                cell(Asked::Time, &|row| row.seconds),
            ]);
        }
    }
    Table {
        caption: "Geometric means over teachers that were found, and how many were; the six phases' fewest examples are those of agreement alone".into(),
        columns: ["learner", "m, d, k", "counting bound", "fewest sequences", "sequences of a whole run", "its seconds"].map(String::from).into(),
        rows: lines,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::experiment::Stance;

    fn config() -> Config {
        Config {
            seeds: 2,
            descend_base: [2, 4, 3],
            descend_heads: vec![1, 2, 3],
            descend_dims: vec![4, 8, 16],
            descend_tokens: vec![3, 6],
            sculpt_base: [2, 8, 3],
            sculpt_heads: vec![1, 2, 3],
            sculpt_dims: vec![8, 16],
            sculpt_tokens: vec![3],
            ..Growth::config(Scale::Quick)
        }
    }

    /// Rows of powers: the practical learner's `n = 1000 m^a d^b k^c`, the six phases' `(dk)^(2m)`.
    fn made_up(powers: [i32; 3]) -> Vec<Found> {
        let points = Growth::points(&config(), 1);
        let row = |point: Point| {
            let [m, d, k] = problem(&point).map(|size| size as f64);
            let wobble = if point.seed.is_multiple_of(2) { 1.02 } else { 0.98 };
            let n = match point.learner {
                Learner::Descend => 1000.0 * m.powi(powers[0]) * d.powi(powers[1]) * k.powi(powers[2]),
                Learner::Sculpt => (d * k).powf(2.0 * m),
            };
            Measured { row: Row { found: true, examples: (wobble * n) as u64 }, seconds: n * wobble / 1e4, point }
        };
        points.into_iter().map(row).collect()
    }

    #[test]
    fn sentences_follow_the_exponents() {
        let told = |powers| Growth::summarise(&config(), &made_up(powers)).unwrap().findings;
        let (slow, fast) = (told([1, 1, -1]), told([2, 1, -1]));
        assert!(slow[0].text.contains("no faster") && fast[0].text.contains("faster in m;"), "{slow:?} {fast:?}");
        assert!(fast[1].text.contains("m^2.00") && slow[2].text.contains("as m^1.00"), "{slow:?} {fast:?}");
        // One head needs fewer examples than the fewest tried, and is left out.
        assert!(slow[2].text.contains("times 576 (") && slow[2].text.contains("(m = 2, 3)"), "{slow:?}");
        let order = |value: f64, most_examples: u64| {
            let order = Some(Estimate { value, low: value - 0.5, high: value + 0.5 });
            let fits = Fits { powers: [None; 3], order, factor: Some(Estimate::exact(9.0)), heads: vec![2, 3] };
            agreement_sentence(&Config { most_examples, ..config() }, &made_up([1, 1, -1]), &fits)
        };
        let stances = [2.0, 3.2, 4.0].map(|value| order(value, 1 << 62).stance);
        assert_eq!(stances, [Stance::Agrees, Stance::Open, Stance::Differs]);
        assert!(order(2.0, 1 << 62).text.contains("below the theorem's 3"));
        assert!(order(4.0, 1 << 62).text.contains("above the theorem's 3"));
        assert!(order(3.2, 1 << 62).text.contains("not to be told from the theorem's 3"));
        // With fewer examples 3 could never be seen: a smaller exponent is no evidence.
        let blind = order(1.0, 1 << 21);
        assert!(blind.stance == Stance::Open && blind.text.contains("no more than 1.59 could be seen"), "{blind:?}");
    }

    /// A size with a teacher that was not found says only that it takes more.
    #[test]
    fn sizes_cut_by_limits_are_left_out() {
        let mut rows = made_up([1, 1, -1]);
        let mut missed = rows.iter_mut().filter(|row| row.point.learner == Learner::Descend && row.point.m == 3);
        missed.next().unwrap().row.found = false;
        let examples = |found: &Found| found.row.examples as f64;
        let fits = |asked| Fits::of(&config(), &rows, Learner::Descend, asked, &examples).heads;
        assert_eq!([fits(Asked::Time), fits(Asked::Fewest)], [vec![1, 2], vec![1, 2, 3]]);
    }

    #[test]
    fn too_few_successes_are_said() {
        let mut rows = made_up([1, 1, -1]);
        rows.iter_mut().for_each(|row| row.row.found = false);
        let findings = Growth::summarise(&config(), &rows).unwrap().findings;
        assert!(
            findings[0].text.contains("too few")
                && findings[0].text.contains("finds 0 of 12 teachers (none with m, d, k = 1, 4, 3 or")
                && findings[2].text.contains("too few"),
            "{findings:?}"
        );
    }

    /// Small problems are found, with no fewer examples than can be counted on, and the same ones every time.
    #[test]
    fn points_are_reproducible() {
        for point in Growth::points(&Config { seeds: 1, ..config() }, 2) {
            let small = matches!(point, Point { learner: Learner::Descend, m: 1, d: 4, .. })
                || matches!(point, Point { learner: Learner::Sculpt, m: 1, .. });
            if small {
                let row = Growth::measure(&point, &|| false).unwrap();
                assert_eq!(row, Growth::measure(&point, &|| false).unwrap());
                assert!(row[0].found && row[0].examples as f64 >= bound(&point), "{row:?}");
            }
        }
    }

    #[test]
    fn the_least_power_of_two_is_found() {
        let fewest = |suffices: u64| fewest_agreeing(1 << 15, |n| Ok(n >= suffices)).unwrap();
        for power in 11..=15 {
            assert_eq!(fewest((1 << power) - 1), Row { found: true, examples: 1 << power });
        }
        assert_eq!(fewest(1 << 20), Row { found: false, examples: 1 << 15 });
    }
}
