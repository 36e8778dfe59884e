//! The bridge: one attention head, learnt with frozen heads and by recovery.
//!
//! What is to be learnt is the output of a head for one query among k tokens,
//!
//! ```text
//! f(x_0; x_0, …, x_{k−1}) = Σ_b softmax_b(x_0ᵀ Θ x_b) x_bᵀ W
//! ```
//!
//! as a function of the query and its keys, tokens uniform on a sphere. Random features freeze M random heads and fit their values by ridge regression, the ridge by leave-one-out
//! errors; recovery ([`descend_starts`]) fits Θ and W themselves, told that there is one head and its rank. An example of the first is one query of a sequence; an example of recovery is a
//! sequence with the outputs of all k tokens as queries. Both are given the same number n of outputs: n sequences for random features, which are the better for being independent, and
//! n/k for recovery. Errors are those of query 0 of fresh sequences.
//!
//! **Which head.** A random one as transformers have them, `Θ` of rank r and norm 3, or one of a checkpoint: tokens are confined to the d directions that the
//! largest singular values of its Θ read, d/2 of queries and d/2 of keys, and outputs to the directions in which W then has any. For such tokens logits and outputs are the
//! head's own: with `U` an orthonormal basis of the directions, `Θ' = UᵀΘU` and `W' = UᵀWB`. Biases and the mask are left out.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::capital;
use crate::recovery::{Inputs, descend_starts, draw_examples, part};
use crate::stats::{self, Estimate, short};
use attnlearn::engine::Batch;
use attnlearn::features::ridge::Options;
use attnlearn::features::{Learner as Frozen, MapSpec, Model, Precision, SetBlock, SetShape, Sets};
use attnlearn::layer::{AttentionLayer, Head, Mask};
use attnlearn::linalg::Mat;
use attnlearn::teacher::{Family, TeacherSpec};
use attnlearn::transformer::{ModelFile, Request};
use attnlearn::{Error, Result};
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Norm of a random head's Θ: the standard deviation of its logits.
const NORM: f64 = 3.0;
/// Sequences that all are judged on.
const FRESH: usize = 1000;
/// Unexplained variance of what is found exactly.
const EXACT: f64 = 1e-12;
/// What random features are asked to come to.
const GOAL: f64 = 1e-2;

/// The experiment.
pub struct Bridge;

/// What can be chosen.
#[derive(Serialize, Deserialize)]
pub struct Config {
    /// Heads to be learnt; of a checkpoint, sets of examples.
    seeds: u64,
    /// Token dimension.
    d: usize,
    /// Rank of a random head, and numbers that it puts out.
    rank: usize,
    /// Tokens.
    k: usize,
    /// Outputs seen, multiples of k.
    outputs: Vec<usize>,
    /// Frozen heads M.
    frozen: usize,
    /// Most starts of recovery.
    starts: usize,
    /// A transformer, whose head is learnt instead of a random one.
    checkpoint: String,
    /// Which layer of it.
    layer: usize,
    /// Which head of the layer.
    head: usize,
}

/// Who learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learner {
    /// ReLU features.
    Rfa,
    /// ReLU features that lean towards keys like the query.
    Brfa,
    /// Softmax features, logits of standard deviation 1.
    Softmax,
    /// The same as sharp as a random head's.
    SharpSoftmax,
    /// Θ and W themselves.
    Recovery,
}

const LEARNERS: [Learner; 5] = [Learner::Rfa, Learner::Brfa, Learner::Softmax, Learner::SharpSoftmax, Learner::Recovery];

impl Learner {
    fn name(self) -> &'static str {
        match self {
            Self::Rfa => "RFA",
            Self::Brfa => "BRFA",
            Self::Softmax => "softmax features",
            Self::SharpSoftmax => "sharp softmax features",
            Self::Recovery => "recovery",
        }
    }

    /// The frozen map.
    fn map(self, point: &Point) -> Option<MapSpec> {
        let (model, inverse_temperature) = match self {
            Self::Rfa => (Model::Rfa, 1.0),
            Self::Brfa => (Model::Brfa, 1.0),
            Self::Softmax => (Model::Softmax, 1.0),
            Self::SharpSoftmax => (Model::Softmax, NORM),
            Self::Recovery => return None,
        };
        Some(MapSpec { inverse_temperature, ..MapSpec::new(model, point.d, point.k, point.frozen, part(point.seed, 3)) })
    }
}

/// One learner, so many outputs.
#[derive(Clone, Serialize, Deserialize)]
pub struct Point {
    learner: Learner,
    /// n.
    outputs: usize,
    d: usize,
    rank: usize,
    k: usize,
    /// M; 0 for recovery.
    frozen: usize,
    /// Of recovery; 0 for random features.
    starts: usize,
    checkpoint: String,
    layer: usize,
    head: usize,
    seed: u64,
}

/// How well it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Share of the variance of fresh outputs that is left unexplained.
    nmse: f64,
    /// Sequences seen.
    sequences: usize,
    /// Numbers seen: outputs times what each has.
    numbers: usize,
    /// Numbers fitted.
    parameters: usize,
}

type Found = Measured<Point, Row>;

impl Experiment for Bridge {
    const NAME: &'static str = "bridge";
    const TITLE: &'static str = "The bridge: what freezing the heads costs";
    const QUESTION: &'static str = "What does freezing the heads cost? One attention head is learnt by random features, whose heads are frozen at random, and by recovery, which finds the head.";
    const CLAIM: &'static str = "Frozen heads come to any target of their class with enough heads and examples, at a rate of √B(f*)(√(1/n) + √(d²/M)); what freezing costs beside recovery is claimed nowhere.";
    const TOGETHER: bool = true;
    const REVISION: u32 = 1;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            seeds: scale.pick(4, 6),
            d: scale.pick(8, 16),
            rank: scale.pick(2, 4),
            k: 8,
            outputs: scale.pick(vec![32, 64, 128, 256, 512, 1024, 2048], vec![32, 64, 128, 256, 512, 1024, 2048, 4096]),
            frozen: scale.pick(128, 1000),
            starts: scale.pick(15, 31),
            checkpoint: String::new(),
            layer: 0,
            head: 0,
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.outputs);
    }

    fn check(config: &Config) -> Result<()> {
        if config.checkpoint.is_empty() || Path::new(&config.checkpoint).is_file() {
            return Ok(());
        }
        Err(Error::input(
            &config.checkpoint,
            "there is no such file",
            "give the path of a checkpoint, or leave it out for a random head",
        ))
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let Config { d, rank, k, layer, head, .. } = *config;
        let mut points = Vec::new();
        for &outputs in &config.outputs {
            for learner in LEARNERS {
                let (frozen, starts) = if learner == Learner::Recovery { (0, config.starts) } else { (config.frozen, 0) };
                points.extend(seeds(seed, config.seeds).map(|seed| Point {
                    learner,
                    outputs,
                    d,
                    rank,
                    k,
                    frozen,
                    starts,
                    checkpoint: config.checkpoint.clone(),
                    layer,
                    head,
                    seed,
                }));
            }
        }
        points
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let (teacher, rank) = teacher(point)?;
        let fresh = draw_examples(&teacher, point.k, Inputs::Sphere, FRESH, part(point.seed, 2))?;
        let sequences = if point.learner == Learner::Recovery { point.outputs.div_ceil(point.k) } else { point.outputs };
        let examples = draw_examples(&teacher, point.k, Inputs::Sphere, sequences, part(point.seed, 1))?;
        let (predicted, parameters) = match point.learner.map(point) {
            None => {
                let layer = descend_starts(&examples, 1, (rank < point.d).then_some(rank), point.starts, point.seed, stop)?.layer;
                let theta = if rank < point.d { 2 * point.d * rank } else { point.d * point.d };
                (queries(&layer.forward(point.k, &fresh.x), &fresh).collect(), theta + point.d * teacher.d_out())
            }
            Some(map) => {
                let parameters = map.features() * teacher.d_out();
                let frozen = Frozen::Frozen { map, precision: Precision::F32 };
                let model = frozen.fit(&sets(&examples), &Options::default())?;
                (model.prepare()?.predict(sets(&fresh).block())?, parameters)
            }
        };
        let truth: Vec<f64> = queries(&fresh.y, &fresh).collect();
        let nmse = unexplained(&truth, &predicted, teacher.d_out());
        let numbers = if point.learner == Learner::Recovery { sequences * point.k } else { sequences } * teacher.d_out();
        Ok(vec![Row { nmse, sequences, numbers, parameters }])
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        Ok(Summary {
            findings: [cost(config, rows), rate(config, rows), crossing(config, rows)].map(Finding::open).into(),
            figures: vec![figure(config, rows)],
            tables: vec![table(config, rows)],
        })
    }
}

/// Outputs of query 0 of every sequence.
fn queries<'a>(y: &'a [f64], of: &Batch<f64>) -> impl Iterator<Item = f64> + use<'a> {
    let (per, d_out) = (of.shape.k * of.shape.d_out, of.shape.d_out);
    y.chunks_exact(per).flat_map(move |sequence| &sequence[..d_out]).copied()
}

/// Sequences as sets: query 0 and all tokens as its keys, itself among them, on the unit sphere that feature maps are made for.
fn sets(examples: &Batch<f64>) -> Sets {
    let (k, d, d_out) = (examples.shape.k, examples.shape.d, examples.shape.d_out);
    let scale = (d as f64).sqrt().recip();
    let mut block = SetBlock::new(SetShape { keys: k, d, targets: d_out });
    for (x, y) in examples.x.chunks_exact(k * d).zip(examples.y.chunks_exact(k * d_out)) {
        let tokens: Vec<f64> = x[..d].iter().chain(x).map(|x| x * scale).collect();
        block.push(&tokens, &y[..d_out], 1.0);
    }
    Sets::new(block)
}

/// Share of the variance of all targets together.
fn unexplained(truth: &[f64], predicted: &[f64], targets: usize) -> f64 {
    let n = (truth.len() / targets) as f64;
    let mean: Vec<f64> = (0..targets).map(|t| truth.iter().skip(t).step_by(targets).sum::<f64>() / n).collect();
    let variance: f64 = truth.iter().enumerate().map(|(i, y)| (y - mean[i % targets]).powi(2)).sum();
    truth.iter().zip(predicted).map(|(y, p)| (y - p).powi(2)).sum::<f64>() / variance
}

/// The head to be learnt, and the rank of its Θ.
fn teacher(point: &Point) -> Result<(AttentionLayer, usize)> {
    if !point.checkpoint.is_empty() {
        return of_checkpoint(point);
    }
    let spec =
        TeacherSpec { family: Family::LowRank { rank: point.rank }, d_out: point.rank, ..TeacherSpec::dense(point.d, 1, NORM) };
    Ok((spec.draw_from(point.seed)?, point.rank))
}

fn of_checkpoint(point: &Point) -> Result<(AttentionLayer, usize)> {
    let request = Request { layer: point.layer, ..Request::default() };
    let (projections, _) = ModelFile::open(Path::new(&point.checkpoint))?.attention(&request)?;
    let bad = |problem: String, remedy: &str| Error::input(&point.checkpoint, problem, remedy);
    let layer = projections.fold()?;
    let head = layer.heads().get(point.head).ok_or_else(|| {
        bad(format!("layer {} has {} heads, not {}", point.layer, layer.heads().len(), point.head + 1), "count from 0")
    })?;
    let (d, rank) = (point.d, projections.head_dim());
    if d < 2 || !d.is_multiple_of(2) || d > 2 * rank || d > layer.d() {
        return Err(bad(
            format!("d = {d} for heads of rank {rank}"),
            "give an even number of directions, at most twice the rank",
        ));
    }
    confine(head, d, rank)
        .ok_or_else(|| bad("its singular values do not converge".into(), "look for numbers that are not finite"))?
}

/// The head on the d directions that its largest singular values read, with the numbers that it then puts out; and the rank of its Θ.
fn confine(head: &Head, d: usize, rank: usize) -> Option<Result<(AttentionLayer, usize)>> {
    let theta = head.theta.to_dense();
    let svd = theta.svd().ok()?;
    let (left, right) = (svd.U(), svd.V());
    let read = Mat::from_fn(theta.nrows(), d, |i, j| if j < d / 2 { left[(i, j)] } else { right[(i, j - d / 2)] });
    let u = read.qr().compute_thin_Q();
    let w = u.transpose() * &head.w;
    let b = w.svd().ok()?.V().subcols(0, rank.min(d)).to_owned();
    let head = Head::dense(u.transpose() * theta * &u, w * b);
    Some(AttentionLayer::new(vec![head], None, Mask::None).map(|layer| (layer, rank.min(d))))
}

fn errors(rows: &Measurements<Bridge>, learner: Learner, outputs: usize) -> Vec<f64> {
    let here = rows.iter().filter(|row| row.point.learner == learner && row.point.outputs == outputs);
    here.map(|row| row.row.nmse).collect()
}

/// The random features of least error from so many outputs.
fn best_frozen(rows: &Measurements<Bridge>, outputs: usize) -> Option<(Learner, Estimate)> {
    let frozen = LEARNERS.into_iter().filter(|learner| *learner != Learner::Recovery);
    let of = frozen.map(|learner| (learner, errors(rows, learner, outputs))).filter(|(_, errors)| !errors.is_empty());
    of.map(|(learner, errors)| (learner, stats::geometric(&errors))).min_by(|a, b| a.1.value.total_cmp(&b.1.value))
}

/// Which head it is about.
fn head_of(config: &Config) -> String {
    if config.checkpoint.is_empty() {
        "a random head".into()
    } else {
        format!("head {} of layer {} of the checkpoint", config.head, config.layer)
    }
}

/// What is left unexplained in the end, and from where on recovery leaves nothing.
fn cost(config: &Config, rows: &Measurements<Bridge>) -> String {
    let sizes = &config.outputs;
    let Some((most, (learner, error))) = sizes.last().and_then(|most| Some((*most, best_frozen(rows, *most)?))) else {
        return "No random features were fitted.".into();
    };
    let exact = |n: &&usize| {
        let errors = errors(rows, Learner::Recovery, **n);
        !errors.is_empty() && errors.iter().all(|error| *error <= EXACT)
    };
    let recovery = match sizes.iter().rev().take_while(exact).last() {
        Some(least) => format!("recovery finds the head exactly from {least} outputs on"),
        None => {
            let errors = errors(rows, Learner::Recovery, most);
            let found = errors.iter().filter(|error| **error <= EXACT).count();
            format!("recovery finds the head exactly in {found} of {} cases", errors.len())
        }
    };
    format!(
        "From {most} outputs of {} the best of the random features, {} with {} heads, leave {error} of the variance unexplained; {recovery}.",
        head_of(config),
        learner.name(),
        config.frozen
    )
}

/// How fast the best random features improve, and how many outputs they would need.
fn rate(config: &Config, rows: &Measurements<Bridge>) -> String {
    let sizes = &config.outputs;
    let Some((most, (learner, last))) = sizes.last().and_then(|most| Some((*most, best_frozen(rows, *most)?))) else {
        return "No random features were fitted.".into();
    };
    // Where there are few outputs errors have not begun to fall.
    let late = &sizes[sizes.len() / 2..];
    let fall = |sizes: &[usize]| {
        let here = rows.iter().filter(|row| row.point.learner == learner && sizes.contains(&row.point.outputs));
        stats::exponent_over_seeds(here.map(|row| (row.point.seed, row.point.outputs as f64, row.row.nmse)))
    };
    let (Some(slope), Some(end)) = (fall(late), fall(&late[late.len().saturating_sub(2)..])) else {
        return "Too few outputs were tried to say how errors of random features fall.".into();
    };
    let name = learner.name();
    // A rate that changes is no ground for saying how it goes on.
    if slope.below(0.0) && last.value > GOAL && (end.below(slope.low) || end.above(slope.high)) {
        let how = if end.below(slope.low) { "faster" } else { "more slowly" };
        return format!(
            "The error of {name} falls as n^{slope} from {} outputs on, and {how} at the end, as n^{end}: how many outputs {} % would take is not to be told from that.",
            late[0],
            short(100.0 * GOAL)
        );
    }
    if !slope.below(0.0) {
        return format!("The error of {name} goes as n^{slope} from {} outputs on: it is not seen to fall.", late[0]);
    }
    if last.value <= GOAL {
        return format!(
            "The error of {name} falls as n^{slope} from {} outputs on, and is below {} % at {most}.",
            late[0],
            short(100.0 * GOAL)
        );
    }
    let needed = |slope: f64| most as f64 * (last.value / GOAL).powf(-1.0 / slope);
    format!(
        "The error of {name} falls as n^{slope} from {} outputs on: at that rate {} % would take {} outputs ({} to {}), if {} frozen heads can come to it at all.",
        late[0],
        short(100.0 * GOAL),
        many(needed(slope.value)),
        many(needed(slope.low)),
        many(needed(slope.high)),
        config.frozen
    )
}

/// Numbers of outputs that nobody will ever see are all alike.
fn many(outputs: f64) -> String {
    if outputs > 1e12 { "over 10¹²".into() } else { short(outputs) }
}

/// Who is better, from how many outputs on.
fn crossing(config: &Config, rows: &Measurements<Bridge>) -> String {
    let sizes = &config.outputs;
    // Ratio of recovery's error to that of the best random features, seed by seed.
    let ratio = |n: usize| -> Option<Estimate> {
        let (learner, _) = best_frozen(rows, n)?;
        let here = rows.iter().filter(|row| row.point.learner == Learner::Recovery && row.point.outputs == n);
        let pair = |row: &Found| {
            let same =
                |other: &&Found| other.point.learner == learner && other.point.outputs == n && other.point.seed == row.point.seed;
            Some((row.row.nmse.max(f64::MIN_POSITIVE) / rows.iter().find(same)?.row.nmse).max(f64::MIN_POSITIVE))
        };
        let ratios: Vec<f64> = here.filter_map(pair).collect();
        (ratios.len() > 1).then(|| stats::geometric(&ratios))
    };
    let told: Vec<(usize, Estimate)> = sizes.iter().filter_map(|n| Some((*n, ratio(*n)?))).collect();
    if told.is_empty() {
        return "Too few seeds to say who is better.".into();
    }
    let better: Vec<usize> = told.iter().rev().take_while(|(_, ratio)| ratio.below(1.0)).map(|(n, _)| *n).collect();
    let worse: Vec<usize> = told.iter().filter(|(_, ratio)| ratio.above(1.0)).map(|(n, _)| *n).collect();
    let below = match worse.last() {
        Some(n) => format!("frozen heads are the better choice up to {n}"),
        None => "frozen heads are nowhere seen to be better".into(),
    };
    match better.last() {
        Some(n) if told.len() == better.len() => format!("Recovery is better from the fewest outputs tried, {n}; {below}."),
        Some(n) => format!("Recovery is better from {n} outputs on, and {below}."),
        None => format!("Recovery is not seen to be better than random features with the most outputs, and {below}."),
    }
}

fn figure(config: &Config, rows: &Measurements<Bridge>) -> Figure {
    let line = |learner: Learner, seen: &dyn Fn(&Row) -> usize| {
        let at = |n: usize| {
            let row = rows.iter().find(|row| row.point.learner == learner && row.point.outputs == n)?;
            Some((seen(&row.row) as f64, stats::geometric(&errors(rows, learner, n))))
        };
        Series::new(learner.name(), config.outputs.iter().copied().filter_map(at))
    };
    let panel = |title: &str, x: &str, learners: &[Learner], seen: &dyn Fn(&Row) -> usize| {
        Panel::Chart(Chart {
            title: title.into(),
            x: Axis::log(x),
            y: Axis::log("unexplained share of the variance of fresh outputs"),
            series: learners.iter().map(|&learner| line(learner, seen)).collect(),
        })
    };
    let frozen: Vec<Learner> = LEARNERS.into_iter().filter(|learner| *learner != Learner::Recovery).collect();
    Figure {
        name: "bridge-error".into(),
        title: "One head, frozen features and recovery".into(),
        caption: format!(
            "{}, d = {}, k = {}. Where the error of recovery is rounding, it has the head. First: both beside the numbers that they have seen. Then: frozen heads alone, whose fall \
             the scale of recovery hides. Last: beside sequences, of which recovery sees all k outputs and random features one.",
            capital(&head_of(config)),
            config.d,
            config.k
        ),
        panels: vec![
            panel("against numbers seen", "output numbers seen", &LEARNERS, &|row| row.numbers),
            panel("frozen heads, close up", "output numbers seen", &frozen, &|row| row.numbers),
            panel("against sequences", "sequences seen", &LEARNERS, &|row| row.sequences),
        ],
    }
}

fn table(config: &Config, rows: &Measurements<Bridge>) -> Table {
    let of = |n: usize| {
        let cell = |learner: Learner| {
            let errors = errors(rows, learner, n);
            if errors.is_empty() { "–".into() } else { stats::geometric(&errors).to_string() }
        };
        std::iter::once(n.to_string()).chain(LEARNERS.map(cell)).collect()
    };
    let parameters = |learner: Learner| rows.iter().find(|row| row.point.learner == learner).map_or(0, |row| row.row.parameters);
    let columns = LEARNERS.map(|learner| format!("{} ({} numbers fitted)", learner.name(), parameters(learner)));
    Table {
        caption: "Unexplained share of the variance of fresh outputs, geometric means over seeds".into(),
        columns: std::iter::once("outputs seen".into()).chain(columns).collect(),
        rows: config.outputs.iter().copied().map(of).collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn made_up(error: impl Fn(&Point) -> f64) -> Vec<Found> {
        let row = |point: Point| {
            let wobble = 1.0 + 0.01 * (point.seed % 4) as f64;
            let row = Row { nmse: error(&point) * wobble, sequences: point.outputs, numbers: point.outputs, parameters: 1 };
            Measured { row, point, seconds: 1.0 }
        };
        Bridge::points(&Bridge::config(Scale::Quick), 1).into_iter().map(row).collect()
    }

    #[test]
    fn sentences_follow_the_errors() {
        let config = Bridge::config(Scale::Quick);
        let root = |point: &Point| (point.outputs as f64).powf(-0.5);
        let frozen = |point: &Point| if point.learner == Learner::Brfa { root(point) } else { 0.9 };
        let found = made_up(|point| match point.learner {
            Learner::Recovery if point.outputs >= 128 => 1e-28,
            Learner::Recovery => 2.0,
            _ => frozen(point),
        });
        let told = Bridge::summarise(&config, &found).unwrap().findings;
        assert!(told[0].text.contains("BRFA") && told[0].text.contains("exactly from 128 outputs on"), "{told:?}");
        assert!(told[1].text.contains("falls as n^−0.50") && told[1].text.contains("% would take"), "{told:?}");
        assert!(told[2].text.contains("better from 128 outputs on") && told[2].text.contains("up to 64"), "{told:?}");
        // A fall that becomes faster is not drawn out.
        let bent = made_up(|point| match point.learner {
            Learner::Recovery => 2.0,
            _ => 0.9 / (1.0 + (point.outputs as f64 / 1000.0).powi(2)),
        });
        let told = Bridge::summarise(&config, &bent).unwrap().findings;
        assert!(told[1].text.contains("faster at the end") && !told[1].text.contains("would take 1"), "{told:?}");
        let alone =
            Bridge::summarise(&config, &found.into_iter().filter(|row| row.point.seed == 1000).collect::<Vec<_>>()).unwrap();
        assert!(alone.findings[2].text.contains("Too few seeds"), "{:?}", alone.findings);
        let failed = made_up(|point| if point.learner == Learner::Recovery { 1.5 } else { 0.9 });
        let told = Bridge::summarise(&config, &failed).unwrap().findings;
        assert!(told[0].text.contains("in 0 of 4 cases") && told[1].text.contains("not seen to fall"), "{told:?}");
        assert!(told[2].text.contains("not seen to be better") && told[2].text.contains("up to 2048"), "{told:?}");
    }

    /// A head of rank 2 from plenty of outputs: recovery is exact, random features are not, and both are what they were.
    #[test]
    fn recovery_is_exact_where_random_features_are_not() {
        let of = |learner: Learner| {
            let config = Config { seeds: 1, d: 6, rank: 2, k: 4, outputs: vec![200], frozen: 20, ..Bridge::config(Scale::Quick) };
            let point = Bridge::points(&config, 1).into_iter().find(|point| point.learner == learner).unwrap();
            let row = Bridge::measure(&point, &|| false).unwrap();
            assert_eq!(row, Bridge::measure(&point, &|| false).unwrap());
            row[0].clone()
        };
        let (recovery, softmax) = (of(Learner::Recovery), of(Learner::Softmax));
        assert!(recovery.nmse < EXACT && softmax.nmse > 1e-3 && softmax.nmse < 1.0, "{recovery:?} {softmax:?}");
        assert_eq!((recovery.numbers, recovery.sequences, softmax.numbers, softmax.sequences), (400, 50, 400, 200));
    }

    /// On tokens of the directions kept the confined head is the head itself.
    #[test]
    fn confined_heads_are_the_head_itself() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut normal = |rows: usize, cols: usize| Mat::from_fn(rows, cols, |_, _| rng.sample::<f64, _>(StandardNormal));
        let (a, b, v, o, z) = (normal(20, 4), normal(20, 4), normal(20, 4), normal(4, 20), normal(5, 6));
        let head = Head::factored(a, b, v * o);
        let (confined, rank) = confine(&head, 6, 4).unwrap().unwrap();
        assert_eq!((rank, confined.d(), confined.d_out()), (4, 6, 4));
        let theta = head.theta.to_dense();
        let svd = theta.svd().unwrap();
        let read = Mat::from_fn(20, 6, |i, j| if j < 3 { svd.U()[(i, j)] } else { svd.V()[(i, j - 3)] });
        let u = read.qr().compute_thin_Q();
        let whole = AttentionLayer::new(vec![head], None, Mask::None).unwrap();
        let (y, part) = (whole.forward_one((&z * u.transpose()).as_ref()), confined.forward_one(z.as_ref()));
        // Outputs are turned, not changed: inner products between them are the same.
        let (gram, other) = (&y * y.transpose(), &part * part.transpose());
        assert!((&gram - &other).norm_max() < 1e-10 * gram.norm_max());
    }
}
