//! Do attention matrices of standard implementations meet the non-degeneracy conditions, when they are drawn and when they are trained?
//!
//! A head of dimension r has `Θ = s Q Kᵀ`, `W = V O`, with entries of variance `σ_q², σ_k²` and so on:
//!
//! ```text
//! E‖Θ‖_F² = s² d² r σ_q² σ_k²
//! ```
//!
//! | | Q, K, V | O | s | ‖Θ‖_F |
//! |---|---|---|---|---|
//! | PyTorch `MultiheadAttention` | Xavier uniform of the 3d×d matrix that has all three: variance 1/2d | uniform in ±1/√d | 1/√r | 1/2 |
//! | GPT-2 | N(0, 0.02²) | that over √(2·layers) | 1/√r | 0.0004 d |
//! | BERT (its first release) | N(0, 0.02²) cut off at two standard deviations | the same | 1/√r | 0.0003 d |
//! | ViT (its first release, JAX) | Xavier uniform, d×d each: variance 1/d | the same | 1/√r | 1 |
//! | ViT (timm, Hugging Face) | N(0, 0.02²), cut off at ±2, which is never | the same | 1/√r | 0.0004 d |
//! | muP, scale 1/r | N(0, 1/d) | the same | 1/r | 1/√r |
//! | muP, zero queries | Q = 0, others N(0, 1/d) | the same | 1/√r | 0 |
//!
//! Layers have heads of dimension 64, or four smaller ones. Biases are 0 in all of them.
//!
//! **Scale of the tokens.** Conditions are those for tokens of norm `√d`, what signs have and what layer norm leaves. Tokens `cx` see `c²Θ` and `cW`: sharpness
//! and saturation are multiplied by c², all other measures stay. So the root mean square of tokens at which a layer would be sharp enough is
//! `c = √(0.3 / sharpness)`.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::{Errors, joined};
use crate::stats::{Estimate, geometric, mean, short};
use attnlearn::degeneracy::{self, Conditions, Verdict, margin};
use attnlearn::layer::{AttentionLayer, Mask};
use attnlearn::linalg::Mat;
use attnlearn::transformer::{ModelFile, Projections, Request};
use attnlearn::words::plural;
use attnlearn::{Error, Result};
use attnlearn_page::plot::{Axis, Chart, Figure, Look, Panel, Point as Dot, Series};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Sharpness from which heads are sharp enough, and `‖Θ‖_F` from which they saturate.
const SHARP: f64 = degeneracy::SHARPNESS[0];
const SATURATED: f64 = degeneracy::SATURATION[0];
/// Conditions with a panel of their own: where they begin to be met.
const SHOWN: [(&str, f64); 6] = [
    ("sharpness", SHARP),
    ("effective rank", degeneracy::EFFECTIVE_RANK[0]),
    ("separation", degeneracy::SEPARATION[0]),
    ("independence", degeneracy::INDEPENDENCE[0]),
    ("sum of projections", degeneracy::SUM_OF_PROJECTIONS[0]),
    ("incoherence", degeneracy::INCOHERENCE[0]),
];
/// Local exponents that differ by more are those of no power.
const BEND: f64 = 0.2;

/// Where a layer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// `torch.nn.MultiheadAttention`.
    Pytorch,
    /// GPT-2.
    Gpt2,
    /// BERT, as first released.
    Bert,
    /// ViT, as first released.
    VitXavier,
    /// ViT of timm and Hugging Face.
    VitNormal,
    /// muP with scores over r.
    MupScale,
    /// muP with zero queries.
    MupZero,
    /// A checkpoint.
    Trained,
}

impl Origin {
    const DRAWN: [Self; 7] =
        [Self::Pytorch, Self::Gpt2, Self::Bert, Self::VitXavier, Self::VitNormal, Self::MupScale, Self::MupZero];

    fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "PyTorch",
            Self::Gpt2 => "GPT-2",
            Self::Bert => "BERT",
            Self::VitXavier => "ViT (Xavier)",
            Self::VitNormal => "ViT (0.02)",
            Self::MupScale => "muP (1/r)",
            Self::MupZero => "muP (Q = 0)",
            Self::Trained => "trained",
        }
    }

    /// A layer at initialisation, one of `layers`.
    fn draw(self, d: usize, layers: usize, rng: &mut impl Rng) -> Result<AttentionLayer> {
        let m = heads(d);
        if d == 0 || layers == 0 || !d.is_multiple_of(m) {
            let problem = format!("d = {d} with {m} heads, {layers} layers");
            return Err(Error::input(
                "conditions",
                problem,
                "give multiples of 4 up to 256 and of 64 beyond, and at least one layer",
            ));
        }
        let (r, size) = ((d / m) as f64, d as f64);
        let fan = (1.0 / size).sqrt();
        let (queries, others, output) = match self {
            Self::Pytorch => {
                (Draw::Uniform((6.0 / (4.0 * size)).sqrt()), Draw::Uniform((6.0 / (4.0 * size)).sqrt()), Draw::Uniform(fan))
            }
            Self::Gpt2 => (Draw::Normal(0.02), Draw::Normal(0.02), Draw::Normal(0.02 / (2.0 * layers as f64).sqrt())),
            Self::Bert => (Draw::Truncated(0.02), Draw::Truncated(0.02), Draw::Truncated(0.02)),
            Self::VitXavier => {
                (Draw::Uniform((3.0 / size).sqrt()), Draw::Uniform((3.0 / size).sqrt()), Draw::Uniform((3.0 / size).sqrt()))
            }
            Self::VitNormal => (Draw::Normal(0.02), Draw::Normal(0.02), Draw::Normal(0.02)),
            Self::MupScale => (Draw::Normal(fan), Draw::Normal(fan), Draw::Normal(fan)),
            Self::MupZero => (Draw::Normal(0.0), Draw::Normal(fan), Draw::Normal(fan)),
            Self::Trained => return Err(Error::input("conditions", "trained layers are not drawn", "give a checkpoint")),
        };
        let projections = Projections {
            heads: m,
            scale: if self == Self::MupScale { 1.0 / r } else { 1.0 / r.sqrt() },
            mask: if self == Self::Gpt2 { Mask::Causal } else { Mask::None },
            q: queries.matrix(d, rng),
            k: others.matrix(d, rng),
            v: others.matrix(d, rng),
            o: output.matrix(d, rng),
            q_bias: vec![0.0; d],
            k_bias: vec![0.0; d],
            v_bias: vec![0.0; d],
            o_bias: vec![0.0; d],
        };
        projections.fold()
    }
}

/// Heads of a layer: of dimension 64, at least four.
fn heads(d: usize) -> usize {
    (d / 64).max(4)
}

/// How entries are drawn.
#[derive(Clone, Copy)]
enum Draw {
    /// Up to this size.
    Uniform(f64),
    /// Of this deviation.
    Normal(f64),
    /// The same, drawn anew beyond twice that.
    Truncated(f64),
}

impl Draw {
    fn matrix(self, d: usize, rng: &mut impl Rng) -> Mat<f64> {
        Mat::from_fn(d, d, |_, _| match self {
            Self::Uniform(most) => most * (2.0 * rng.random::<f64>() - 1.0),
            Self::Normal(deviation) => deviation * rng.sample::<f64, _>(StandardNormal),
            Self::Truncated(deviation) => loop {
                let z: f64 = rng.sample(StandardNormal);
                if z.abs() <= 2.0 {
                    break deviation * z;
                }
            },
        })
    }
}

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Token dimensions.
    pub dims: Vec<usize>,
    /// Layers drawn of each kind.
    pub seeds: u64,
    /// Tokens of a sequence: heads must win against that many.
    pub k: usize,
    /// Layers that the drawn one is one of: GPT-2 makes outputs smaller by that.
    pub layers: usize,
    /// A trained model: a safetensors file, an index of several, or their folder. Empty: none.
    pub checkpoint: String,
    /// Its heads; 0: what its `config.json` says.
    pub checkpoint_heads: usize,
}

/// A layer, or all layers of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where from.
    pub origin: Origin,
    /// Token dimension, where it is drawn.
    pub d: Option<usize>,
    /// Tokens of a sequence.
    pub k: usize,
    /// Layers of the model that it is drawn for.
    pub layers: usize,
    /// Where it is read from; empty where it is drawn.
    pub checkpoint: String,
    /// Its heads, or 0.
    pub checkpoint_heads: usize,
    /// Seed.
    pub seed: u64,
}

/// One condition of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Number of the layer in its model; none where it is drawn.
    pub layer: Option<usize>,
    /// Token dimension.
    pub width: usize,
    /// Heads.
    pub heads: usize,
    /// What is measured.
    pub condition: String,
    /// How much it is; none where it does not apply.
    pub value: Option<f64>,
    /// `met`, `weak` or `fails`.
    pub verdict: String,
    /// Root mean square of tokens at which it would begin to be met, or end to; none where no scale changes anything.
    pub rms: Option<f64>,
}

/// All conditions of a layer.
fn rows_of(layer: &AttentionLayer, k: usize, number: Option<usize>) -> Result<Vec<Row>> {
    let row = |condition: &degeneracy::Condition| Row {
        layer: number,
        width: layer.d(),
        heads: layer.heads().len(),
        condition: condition.name.to_owned(),
        value: condition.value,
        verdict: match condition.verdict {
            Verdict::Met => "met",
            Verdict::Weak => "weak",
            Verdict::Fails => "fails",
        }
        .to_owned(),
        rms: match (condition.name, condition.value) {
            ("sharpness", Some(value)) => Some((SHARP / value).sqrt()),
            ("saturation", Some(value)) => Some((SATURATED / value).sqrt()),
            _ => None,
        }
        .filter(|rms| rms.is_finite()),
    };
    Ok(Conditions::of(layer, k)?.conditions.iter().map(row).collect())
}

/// What is wrong with a checkpoint of other layers, and what to do.
const UNKNOWN: [&str; 2] = ["has no attention layer that is known", "see `attnlearn import --help`"];

/// The experiment.
pub struct OfInitialisations;

impl Experiment for OfInitialisations {
    const NAME: &'static str = "conditions";
    const TITLE: &'static str = "Non-degeneracy of attention as it is initialised and trained";
    const QUESTION: &'static str =
        "Do attention matrices of standard implementations meet the conditions under which layers can provably be learned?";
    const CLAIM: &'static str = "The theorem asks for heads that are sharp (‖Θ‖_F of order √(m log kd)), of large effective rank, apart from one another and independent, and for \
        projections whose sum is well conditioned and that are incoherent. Whether attention as it is used meets that is left open.";
    const TOGETHER: bool = true;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            dims: scale.pick(vec![16, 64, 256, 768], vec![16, 32, 64, 128, 256, 512, 768]),
            seeds: scale.pick(3, 5),
            k: 128,
            layers: 12,
            checkpoint: String::new(),
            checkpoint_heads: 0,
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.dims);
    }

    fn check(config: &Config) -> Result<()> {
        if config.checkpoint.is_empty() {
            return Ok(());
        }
        let path = Path::new(&config.checkpoint);
        if !path.exists() {
            let remedy = "give a path as seen from where the command is run, or leave `checkpoint` empty";
            return Err(Error::input(&config.checkpoint, "there is no such checkpoint", remedy));
        }
        let model = ModelFile::open(path)?;
        if model.layers().is_empty() {
            return Err(Error::input(&config.checkpoint, UNKNOWN[0], UNKNOWN[1]));
        }
        Ok(())
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let Config { k, layers, .. } = *config;
        let drawn =
            |origin, d, seed| Point { origin, d: Some(d), k, layers, checkpoint: String::new(), checkpoint_heads: 0, seed };
        let mut points: Vec<Point> = Vec::new();
        // The one that can go wrong is first.
        if !config.checkpoint.is_empty() {
            let (checkpoint, checkpoint_heads) = (config.checkpoint.clone(), config.checkpoint_heads);
            points.push(Point { origin: Origin::Trained, d: None, k, layers: 0, checkpoint, checkpoint_heads, seed: 0 });
        }
        for &d in &config.dims {
            for origin in Origin::DRAWN {
                points.extend(seeds(seed, config.seeds).map(|seed| drawn(origin, d, seed)));
            }
        }
        points
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        if let Some(d) = point.d {
            let mut rng = ChaCha8Rng::seed_from_u64(point.seed);
            // No two kinds have the same numbers up to scale.
            rng.set_stream(point.origin as u64);
            let layer = point.origin.draw(d, point.layers, &mut rng)?;
            return rows_of(&layer, point.k, None);
        }
        let model = ModelFile::open(Path::new(&point.checkpoint))?;
        let mut rows = Vec::new();
        let heads = (point.checkpoint_heads > 0).then_some(point.checkpoint_heads);
        for found in model.layers() {
            if stop() {
                return Err(Error::Interrupted);
            }
            let request = Request { layer: found.layer, heads, prefix: Some(found.prefix), causal: None };
            let (projections, found) = model.attention(&request)?;
            rows.extend(rows_of(&projections.fold()?, point.k, Some(found.layer))?);
        }
        if rows.is_empty() {
            return Err(Error::input(&point.checkpoint, UNKNOWN[0], UNKNOWN[1]));
        }
        Ok(rows)
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let data = Data { config, rows };
        let findings = [data.verdicts(), data.sharpness(), data.growth()].into_iter().chain(data.trained());
        let findings = findings.map(Finding::open).collect();
        Ok(Summary { findings, figures: vec![data.conditions(), data.scales()], tables: vec![data.table()] })
    }
}

/// How a measure goes with d.
struct Law {
    /// The exponent of d, fitted for every draw.
    exponent: Estimate,
    /// Where it is no power: a dimension in the middle, and the exponents up to it and beyond.
    bend: Option<(usize, f64, f64)>,
}

impl Law {
    /// Of values by dimension and draw; none for fewer than two draws or three dimensions.
    fn of(values: &Errors<usize>) -> Option<Self> {
        let dims: Vec<usize> = values.keys().copied().collect();
        let exponent = values.exponent(&dims.iter().map(|d| (*d as f64, *d)).collect::<Vec<_>>())?;
        let ends = [dims[0], dims[(dims.len() - 1) / 2], dims[dims.len() - 1]];
        let [a, b, c] = ends.map(|d| values.of(&d));
        let local = |from: usize, to: usize, ratio: f64| ratio.ln() / (to as f64 / from as f64).ln();
        let halves = |(draw, a): (&u64, &f64)| {
            let (b, c) = (b?.get(draw)?, c?.get(draw)?);
            Some((local(ends[0], ends[1], b / a), local(ends[1], ends[2], c / b)))
        };
        let (first, last): (Vec<f64>, Vec<f64>) = a?.iter().filter_map(halves).unzip();
        let change = mean(&first.iter().zip(&last).map(|(a, b)| b - a).collect::<Vec<_>>());
        let bends = change.value.abs() > BEND && (change.above(0.0) || change.below(0.0));
        let bend = bends.then(|| (ends[1], mean(&first).value, mean(&last).value));
        exponent.low.is_finite().then_some(Self { exponent, bend })
    }
}

/// `0.986 (0.976 to 0.996)`, or that there is none.
impl std::fmt::Display for Law {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bend {
            None => self.exponent.fmt(f),
            Some((middle, first, last)) => {
                write!(f, "none (no power of d: {} up to d = {middle}, {} beyond)", short(first), short(last))
            }
        }
    }
}

/// Rows and what is asked of them.
struct Data<'a> {
    config: &'a Config,
    rows: &'a Measurements<OfInitialisations>,
}

impl Data<'_> {
    /// Rows of one condition of layers of one origin and width.
    fn select<'s>(&'s self, origin: Origin, width: usize, condition: &'s str) -> impl Iterator<Item = &'s Row> {
        let of = move |(from, row): &(Origin, &Row)| *from == origin && row.width == width && row.condition == condition;
        self.rows.iter().map(|measured| (measured.point.origin, &measured.row)).filter(of).map(|(_, row)| row)
    }

    fn mean(&self, origin: Origin, width: usize, condition: &str) -> Option<Estimate> {
        let values: Vec<f64> = self.select(origin, width, condition).filter_map(|row| row.value).collect();
        // Zero queries have measures of exactly 0.
        (!values.is_empty()).then(|| if values.iter().all(|v| *v <= 0.0) { Estimate::exact(0.0) } else { geometric(&values) })
    }

    fn widest(&self) -> usize {
        self.config.dims.iter().copied().max().unwrap_or(0)
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for measured in self.rows {
            if !names.contains(&measured.row.condition.as_str()) {
                names.push(&measured.row.condition);
            }
        }
        names
    }

    /// Which conditions are met at the largest width, by which initialisations.
    fn verdicts(&self) -> String {
        let d = self.widest();
        let (mut by_all, mut by_some, mut by_none) = (Vec::new(), Vec::new(), Vec::new());
        for name in self.names() {
            let (met, not): (Vec<Origin>, Vec<Origin>) = Origin::DRAWN.into_iter().partition(|origin| {
                let (met, of) = self.met(*origin, d, name);
                2 * met > of
            });
            let list = |origins: &[Origin]| origins.iter().map(|origin| origin.name()).collect::<Vec<_>>().join(" and ");
            match (met.len(), not.len()) {
                (_, 0) => by_all.push(name.to_owned()),
                (0, _) => by_none.push(name.to_owned()),
                (yes, no) if yes > no => by_some.push(format!("{name} by all but {}", list(&not))),
                _ => by_some.push(format!("{name} by {} alone", list(&met))),
            }
        }
        let none = if by_none.is_empty() { "each is met by some".into() } else { format!("{} by none", joined(&by_none)) };
        let all = if by_all.is_empty() { "none by all".into() } else { format!("{} by all", by_all.join(", ")) };
        let some = if by_some.is_empty() { String::new() } else { format!("; {}", by_some.join("; ")) };
        format!(
            "At initialisation, d = {d} and {} heads, {} of {} conditions are met by all {} initialisations, and {none}: {all}{some} (in most of {} draws each).",
            heads(d),
            by_all.len(),
            self.names().len(),
            Origin::DRAWN.len(),
            self.config.seeds
        )
    }

    /// In how many draws a condition is met, of how many.
    fn met(&self, origin: Origin, d: usize, name: &str) -> (usize, usize) {
        let rows = || self.select(origin, d, name);
        (rows().filter(|row| row.verdict == "met").count(), rows().count())
    }

    /// How far from sharp heads are, and what tokens it would take.
    fn sharpness(&self) -> String {
        let d = self.widest();
        let mut of: Vec<(Origin, Estimate)> =
            Origin::DRAWN.into_iter().filter_map(|origin| Some((origin, self.mean(origin, d, "sharpness")?))).collect();
        of.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        let positive: Vec<&(Origin, Estimate)> = of.iter().filter(|(_, value)| value.value > 0.0).collect();
        let (Some((sharpest, high)), Some((flattest, low))) = (positive.first(), positive.last()) else {
            return "No sharpness was measured.".to_owned();
        };
        let needed = |value: &Estimate| short((SHARP / value.value).sqrt());
        let verdict = if high.below(SHARP) {
            "no initialisation is as sharp as the six phases need"
        } else if low.above(SHARP) {
            "every initialisation with queries is as sharp as the six phases need"
        } else {
            "some initialisations are as sharp as the six phases need"
        };
        let silent: Vec<&str> = of.iter().filter(|(_, value)| value.value <= 0.0).map(|(origin, _)| origin.name()).collect();
        let silent = if silent.is_empty() { String::new() } else { format!("; for {} no scale helps", silent.join(" and ")) };
        format!(
            "With tokens of norm √d, as layer norm leaves them, {verdict} at d = {d}: ‖Θ‖_F is {high} of √(m ln kd) for {} and {low} for {}, where {SHARP} is asked for. \
             Tokens would have to be {} to {} times as large{silent}. Of all conditions only sharpness and saturation depend on that scale.",
            sharpest.name(),
            flattest.name(),
            needed(high),
            needed(low),
        )
    }

    /// How a measure of drawn layers goes with d; none of layers without it, or from too few draws or dimensions.
    fn law(&self, of: impl Fn(Origin) -> bool, condition: &str) -> Option<Law> {
        let mine =
            |m: &&Measured<Point, Row>| m.point.origin != Origin::Trained && of(m.point.origin) && m.row.condition == condition;
        let value = |m: &Measured<Point, Row>| {
            // Draws of one seed differ between initialisations.
            let draw = m.point.seed.wrapping_mul(Origin::DRAWN.len() as u64).wrapping_add(m.point.origin as u64);
            Some((m.row.width, draw, m.row.value.filter(|value| *value > 0.0)?))
        };
        Law::of(&Errors::new(self.rows.iter().filter(mine).filter_map(value)))
    }

    /// How conditions change with d.
    fn growth(&self) -> String {
        let each =
            Origin::DRAWN.into_iter().filter_map(|origin| Some((origin, self.law(|other| other == origin, "saturation")?)));
        let laws: Vec<(Origin, Law)> = each.collect();
        // The scale of V and O cancels in it: all initialisations can be fitted together.
        let Some(sum) = self.law(|_| true, "sum of projections").filter(|_| !laws.is_empty()) else {
            return "Too few dimensions or draws to say how conditions grow with d.".to_owned();
        };
        let verdict = match sum.exponent {
            Estimate { high, .. } if high < 0.0 => "becomes worse with d",
            Estimate { low, .. } if low > 0.0 => "becomes better with d",
            _ => "does not clearly change with d",
        };
        let parts: Vec<String> = laws.iter().map(|(origin, law)| format!("{} {law}", origin.name())).collect();
        format!(
            "From d = {} to {}, the largest ‖Θ‖_F of a layer goes as a power of d for {} of {} initialisations with queries, and the conditioning of Σ W_i {verdict}: exponents of the norm, \
             fitted draw by draw, are {}; that of the conditioning is {sum}.",
            self.config.dims.iter().copied().min().unwrap_or(0),
            self.widest(),
            laws.iter().filter(|(_, law)| law.bend.is_none()).count(),
            laws.len(),
            joined(&parts),
        )
    }

    /// `‖Θ‖_F` of the least sharp head: sharpness itself would compare numbers of heads.
    fn least_norm(measured: &Measured<Point, Row>) -> Option<f64> {
        let Measured { point, row, .. } = measured;
        row.value.filter(|_| row.condition == "sharpness").map(|value| value * margin(row.heads, point.k, row.width))
    }

    /// The largest of these norms among layers drawn at the widths next to this one, with its origin, and the widths.
    fn sharpest_drawn(&self, width: usize) -> Option<(f64, Origin, Vec<usize>)> {
        let dims = || self.config.dims.iter().copied();
        let mut next: Vec<usize> =
            [dims().filter(|d| *d <= width).max(), dims().filter(|d| *d >= width).min()].into_iter().flatten().collect();
        next.dedup();
        let drawn = self.rows.iter().filter(|m| m.point.d.is_some_and(|d| next.contains(&d)));
        let norms = drawn.filter_map(|m| Some((Self::least_norm(m)?, m.point.origin)));
        norms.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(norm, origin)| (norm, origin, next))
    }

    /// Trained layers beside those drawn at the widths next to theirs.
    fn trained(&self) -> Option<String> {
        let trained = || self.rows.iter().filter(|m| m.point.origin == Origin::Trained);
        let width = trained().next()?.row.width;
        let values =
            |name: &str| -> Vec<f64> { trained().filter(|m| m.row.condition == name).filter_map(|m| m.row.value).collect() };
        let range = |values: &[f64]| {
            let ends = (values.iter().copied().fold(f64::INFINITY, f64::min), values.iter().copied().fold(0.0, f64::max));
            format!("{} to {}", short(ends.0), short(ends.1))
        };
        let norms: Vec<f64> = trained().filter_map(Self::least_norm).collect();
        let (most, origin, next) = self.sharpest_drawn(width)?;
        let larger = norms.iter().filter(|norm| **norm > most).count();
        let unmet: Vec<String> = self
            .names()
            .into_iter()
            .filter_map(|name| {
                let not = trained().filter(|m| m.row.condition == name && m.row.verdict != "met").count();
                (not > 0).then(|| format!("{name} in {not}"))
            })
            .collect();
        let one = norms.len() == 1;
        let unmet = if unmet.is_empty() {
            format!("{} all conditions", if one { "meets" } else { "meet" })
        } else {
            let miss = if one { "misses" } else { "miss" };
            format!("{miss} {} of {} conditions ({})", unmet.len(), self.names().len(), unmet.join(", "))
        };
        let next: Vec<String> = next.iter().map(usize::to_string).collect();
        Some(format!(
            "{} of d = {width} {unmet}; in {larger} of {} even the least ‖Θ‖_F of a head is larger than in every layer drawn at d = {}: it is {} in trained layers, {} of √(m ln kd), and at most \
             {} in drawn ones ({}); the largest ‖Θ‖_F of a trained layer is {}.",
            plural(norms.len(), "trained layer"),
            norms.len(),
            joined(&next),
            range(&norms),
            range(&values("sharpness")),
            short(most),
            origin.name(),
            range(&values("saturation")),
        ))
    }

    /// One line an initialisation.
    fn series(&self, of: impl Fn(Origin, usize) -> Option<Estimate>) -> Vec<Series> {
        let dims = &self.config.dims;
        let line = |origin: Origin| Series::new(origin.name(), dims.iter().filter_map(|d| Some((*d as f64, of(origin, *d)?))));
        Origin::DRAWN.into_iter().map(line).filter(|series| !series.points.is_empty()).collect()
    }

    /// Trained layers as dots.
    fn dots(&self, condition: &str, of: impl Fn(&Row) -> Option<f64>) -> Option<Series> {
        let rows = self.rows.iter().filter(|m| m.point.origin == Origin::Trained && m.row.condition == condition).map(|m| &m.row);
        let dot = |row: &Row| {
            let note = row.layer.map_or(String::new(), |layer| format!("layer {layer}"));
            Some(Dot { x: row.width as f64, y: Estimate::exact(of(row)?), note })
        };
        let points: Vec<Dot> = rows.filter_map(dot).collect();
        (!points.is_empty()).then(|| Series { label: "trained".into(), look: Look::Dots, points })
    }

    /// A dashed line over all widths.
    fn level(&self, label: &str, y: f64) -> Series {
        let ends = [self.config.dims.iter().copied().min(), self.config.dims.iter().copied().max()];
        Series::theory(label, ends.into_iter().flatten().map(|d| (d as f64, y)))
    }

    fn conditions(&self) -> Figure {
        let panel = |(name, met): (&str, f64)| {
            let mut series = self.series(|origin, d| self.mean(origin, d, name));
            series.extend(self.dots(name, |row| row.value));
            series.push(self.level("met from here", met));
            let (x, y) = (Axis::log("token dimension d"), Axis::log(format!("{name} (no unit)")));
            Panel::Chart(Chart { title: name.to_owned(), x, y, series })
        };
        Figure {
            name: "conditions".into(),
            title: "Conditions against the token dimension".into(),
            caption: "Layers as standard implementations initialise them, geometric mean over draws; dots: layers of the checkpoint, if one was given. Conditions are met above the dashed \
                      line, incoherence below it. Zero queries have no sharpness and are left out of logarithmic axes."
                .into(),
            panels: SHOWN.into_iter().map(panel).collect(),
        }
    }

    fn scales(&self) -> Figure {
        let of = |condition: &'static str| {
            move |origin: Origin, d: usize| {
                let values: Vec<f64> = self.select(origin, d, condition).filter_map(|row| row.rms).collect();
                (!values.is_empty()).then(|| geometric(&values))
            }
        };
        let panel = |condition: &'static str, title: &str| {
            let mut series = self.series(of(condition));
            series.extend(self.dots(condition, |row| row.rms));
            series.push(self.level("layer norm", 1.0));
            let (x, y) = (Axis::log("token dimension d"), Axis::log("root mean square of tokens"));
            Panel::Chart(Chart { title: title.to_owned(), x, y, series })
        };
        Figure {
            name: "scales".into(),
            title: "Tokens that would make heads sharp, and too sharp".into(),
            caption: "Left: how large tokens must be for heads to be sharp enough for the six phases; right: how large they may be before a head saturates. Layer norm leaves 1, the dashed \
                      line; embeddings of deviation 0.02 without it are fifty times smaller."
                .into(),
            panels: vec![panel("sharpness", "sharp enough from here"), panel("saturation", "saturated from here")],
        }
    }

    fn table(&self) -> Table {
        let d = self.widest();
        let cell = |origin: Origin, name: &str| {
            let Some(value) = self.mean(origin, d, name) else { return "–".to_owned() };
            let (met, of) = self.met(origin, d, name);
            if met == of { short(value.value) } else { format!("{} (met in {met} of {of})", short(value.value)) }
        };
        let row = |name: &str| {
            std::iter::once(name.to_owned()).chain(Origin::DRAWN.into_iter().map(|origin| cell(origin, name))).collect()
        };
        Table {
            caption: format!("All conditions at d = {d}: geometric means over draws; met in all draws unless it says otherwise."),
            columns: std::iter::once("condition").chain(Origin::DRAWN.into_iter().map(Origin::name)).map(str::to_owned).collect(),
            rows: self.names().into_iter().map(row).collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use attnlearn::layer::Head;
    use attnlearn::teacher::TeacherSpec;

    fn config() -> Config {
        Config { dims: vec![16, 32, 64], seeds: 2, ..OfInitialisations::config(Scale::Quick) }
    }

    fn measured(change: impl Fn(&mut Row)) -> Vec<Measured<Point, Row>> {
        let rows = OfInitialisations::points(&config(), 1).into_iter().flat_map(|point| {
            let rows = OfInitialisations::measure(&point, &|| false).unwrap();
            rows.into_iter().map(move |row| Measured { point: point.clone(), row, seconds: 0.0 })
        });
        let mut rows: Vec<_> = rows.collect();
        rows.iter_mut().for_each(|measured| change(&mut measured.row));
        rows
    }

    /// Norms of heads are those of the table above.
    #[test]
    fn initialisations_have_the_norms_that_they_should() {
        let d = 128.0;
        let cut = 0.02_f64.powi(2) * 0.7737; // the variance of a normal cut off at two deviations
        let expected = [0.5, 4e-4 * d, cut * d, 1.0, 4e-4 * d, 1.0 / 32_f64.sqrt(), 0.0];
        for (origin, expected) in Origin::DRAWN.into_iter().zip(expected) {
            let layer = origin.draw(128, 12, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
            let all = Conditions::of(&layer, 128).unwrap();
            assert!(all.heads.iter().all(|head| (head.theta_norm - expected).abs() <= 0.05 * expected), "{origin:?}");
        }
        assert!(Origin::Bert.draw(30, 12, &mut ChaCha8Rng::seed_from_u64(1)).is_err());
    }

    /// Tokens c times as large see c²Θ, and only two measures know; thresholds are the library's.
    #[test]
    fn the_scale_of_tokens_matters_to_two_conditions() {
        let layer = TeacherSpec::dense(8, 2, 0.1).draw(&mut ChaCha8Rng::seed_from_u64(4)).unwrap();
        let rms = |name: &str| rows_of(&layer, 4, None).unwrap().iter().find(|row| row.condition == name).unwrap().rms.unwrap();
        let times = |c: f64| {
            let scaled = |a: &Mat<f64>, c: f64| Mat::from_fn(a.nrows(), a.ncols(), |i, j| c * a[(i, j)]);
            let head = |head: &Head| Head::dense(scaled(&head.theta.to_dense(), c * c), scaled(&head.w, c));
            let heads = layer.heads().iter().map(head).collect();
            rows_of(&AttentionLayer::new(heads, None, Mask::None).unwrap(), 4, None).unwrap()
        };
        for name in ["sharpness", "saturation"] {
            let verdict = |c: f64| times(c).into_iter().find(|row| row.condition == name).unwrap().verdict;
            let (below, above) = (verdict(rms(name) * 0.999), verdict(rms(name) * 1.001));
            assert_eq!((below.as_str(), above.as_str()), if name == "sharpness" { ("weak", "met") } else { ("met", "weak") });
        }
        let others =
            |rows: Vec<Row>| rows.into_iter().filter(|row| row.rms.is_none()).map(|row| row.value.unwrap()).collect::<Vec<_>>();
        assert!(others(times(3.0)).iter().zip(others(times(1.0))).all(|(a, b)| (a - b).abs() < 1e-9));
        for row in measured(|_| ()).into_iter().map(|m| m.row) {
            if let Some((name, met)) = SHOWN.iter().find(|(name, _)| *name == row.condition) {
                let inside = if *name == "incoherence" { row.value.unwrap() <= *met } else { row.value.unwrap() >= *met };
                assert_eq!(inside, row.verdict == "met", "{name}");
            }
        }
    }

    /// What is said follows the rows.
    #[test]
    fn findings_follow_the_data() {
        let findings = |change: &dyn Fn(&mut Row)| OfInitialisations::summarise(&config(), &measured(change)).unwrap().findings;
        let as_is = findings(&|_| ());
        assert!(
            as_is[0].headline().contains("and sharpness and sum of projections by none")
                && as_is[1].text.contains("no initialisation is as sharp"),
            "{as_is:?}"
        );
        let power = |name: &str| {
            as_is[2]
                .text
                .split(name)
                .nth(1)
                .and_then(|rest| rest.split(' ').next())
                .and_then(|number| number.replace('−', "-").parse::<f64>().ok())
        };
        assert!(
            power("GPT-2 ").is_some_and(|b| (b - 1.0).abs() < 0.1) && power("PyTorch ").is_some_and(|b| b.abs() < 0.1),
            "{}",
            as_is[2].text
        );
        assert!(as_is[2].headline().contains("becomes worse with d"), "{}", as_is[2].text);
        assert!(
            as_is[2].headline().contains("the largest ‖Θ‖_F of a layer goes as a power of d for 6 of 6"),
            "{}",
            as_is[2].text
        );
        let sharp = findings(&|row| {
            if row.condition == "sharpness" {
                row.value = row.value.map(|value| 0.5 + value);
                row.verdict = "met".into();
            }
        });
        assert!(sharp[0].text.contains(": sharpness") && sharp[1].text.contains("every initialisation"), "{sharp:?}");
        assert_eq!(as_is.len(), 3, "nothing was trained");
    }

    /// What stops growing in the middle is no power, however well a line fits; what wobbles is.
    #[test]
    fn bent_lines_are_no_powers() {
        let values = |of: fn(f64) -> f64| {
            let dims = [16, 32, 64, 128, 256, 512, 768];
            let wobble = move |d: usize, draw: u64| 1.0 + 0.02 * ((7 * draw + d as u64 / 16) % 5) as f64;
            Errors::new(dims.into_iter().flat_map(move |d| (0..4).map(move |draw| (d, draw, of(d as f64) * wobble(d, draw)))))
        };
        let mup = Law::of(&values(|d| (d / 4.0).min(64.0).powf(-0.5))).unwrap();
        assert!(mup.bend.is_some_and(|(d, first, last)| d == 128 && first < -0.4 && last > -0.3), "{mup}");
        assert!(mup.to_string().starts_with("none (no power of d: −0."), "{mup}");
        let gpt = Law::of(&values(|d| 4e-4 * d)).unwrap();
        assert!(gpt.bend.is_none() && (gpt.exponent.value - 1.0).abs() < 0.05, "{gpt}");
        assert!(Law::of(&Errors::new([(16, 1, 1.0), (32, 1, 2.0), (64, 1, 4.0)])).is_none(), "one draw");
    }

    /// A checkpoint's layers stand beside those drawn, and it is read first; a missing one is refused before anything is measured.
    #[test]
    fn checkpoints_are_read() {
        let with = Config { checkpoint: "no/such/file".into(), ..config() };
        let point = OfInitialisations::points(&with, 1).remove(0);
        assert!(point.origin == Origin::Trained && OfInitialisations::measure(&point, &|| false).is_err());
        let refused = OfInitialisations::check(&with).unwrap_err().to_string();
        assert!(refused.starts_with("no/such/file: ") && refused.contains("leave `checkpoint` empty"), "{refused}");
        assert!(OfInitialisations::check(&config()).is_ok());
        let empty = tempfile::NamedTempFile::with_suffix(".safetensors").unwrap();
        let unreadable = Config { checkpoint: empty.path().display().to_string(), ..config() };
        assert!(OfInitialisations::check(&unreadable).unwrap_err().to_string().contains(&unreadable.checkpoint));
        let mut rows = measured(|_| ());
        let layer = TeacherSpec::dense(32, 4, 40.0).draw(&mut ChaCha8Rng::seed_from_u64(4)).unwrap();
        let own = rows_of(&layer, 128, Some(3)).unwrap();
        rows.extend(own.into_iter().map(|row| Measured { point: point.clone(), row, seconds: 0.0 }));
        let summary = OfInitialisations::summarise(&with, &rows).unwrap();
        assert!(
            summary.findings[3].headline().starts_with("1 trained layer of d = 32 misses")
                && summary.findings[3].headline().contains("in 1 of 1 even the least ‖Θ‖_F of a head is larger")
                && summary.findings[3].headline().contains("saturation in 1"),
            "{}",
            summary.findings[3].text
        );
        let Panel::Chart(chart) = &summary.figures[0].panels[0] else { unreachable!() };
        assert!(chart.series.iter().any(|series| series.look == Look::Dots && series.points[0].note == "layer 3"));
    }

    /// More heads have less sharpness at the same norm: it is norms that are compared, at the widths on both sides.
    #[test]
    fn numbers_of_heads_are_not_compared() {
        let mut rows = measured(|_| ());
        let point = OfInitialisations::points(&Config { checkpoint: "file".into(), ..config() }, 1).remove(0);
        let layer = TeacherSpec::dense(48, 16, 1.5).draw(&mut ChaCha8Rng::seed_from_u64(4)).unwrap();
        let own = rows_of(&layer, 128, Some(0)).unwrap();
        let sharpness = |row: &Row| (row.condition == "sharpness").then_some(row.value).flatten();
        let drawn = rows.iter().filter_map(|m| sharpness(&m.row)).fold(0.0, f64::max);
        assert!(own.iter().find_map(sharpness).unwrap() < drawn);
        rows.extend(own.into_iter().map(|row| Measured { point: point.clone(), row, seconds: 0.0 }));
        let said = &OfInitialisations::summarise(&config(), &rows).unwrap().findings[3];
        assert!(
            said.headline()
                .contains("in 1 of 1 even the least ‖Θ‖_F of a head is larger than in every layer drawn at d = 32 and 64")
                && said.text.contains("it is 1.50 to 1.50 in trained layers"),
            "{}",
            said.text
        );
    }
}
