//! `attnlearn inspect`: what a file is.

use crate::cli::Ending;
use crate::console::{Console, grouped, number};
use crate::heatmap::{self, Panel};
use crate::inspect_sets::{SetSample, describe, say_model};
use crate::output::Files;
use crate::session::Session;
use attnlearn::data::{Block, ExampleFile, ExampleSource, InputFile, Shape, check_size};
use attnlearn::features::{Targets, open_sets};
use attnlearn::inspect::{FileKind, FileSummary, inspect};
use attnlearn::layer::AttentionLayer;
use attnlearn::linalg::{Mat, Moments, frobenius, inner};
use attnlearn::words::{self, quoted};
use attnlearn::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Blocks of examples that are looked at.
const BLOCKS: u64 = 8;

/// Heads of a layer up to which every two are compared.
const MOST_COSINES: usize = 64;

/// Say what a file is: a layer, examples, inputs or outputs; sets, predictions or a fitted model.
///
/// Of a layer: the norms of every head. The effective rank of Θ is the exponential of the entropy of its singular values,
/// taken as shares of their sum: between 1 and d. Of examples and sets: their sizes and, from the first few thousand, their scale.
/// Of a fitted model: its heads, seed, ridge and the norm of its values.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn inspect layer.safetensors
  attnlearn inspect layer.safetensors --maps
  attnlearn inspect examples.npz --json -
  attnlearn inspect sets.parquet
  attnlearn inspect model.safetensors")]
pub struct Args {
    /// The file (.safetensors, .npz or .parquet).
    file: PathBuf,
    /// Show the attention matrices of a layer.
    #[arg(long)]
    maps: bool,
}

/// What was found, as it stands in the JSON.
#[derive(Serialize)]
struct InspectReport<'a> {
    file: &'a FileSummary,
    /// Of a layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    heads: Option<Vec<HeadSummary>>,
    /// Of a layer without too many heads: cosine of the angle between every two attention matrices.
    #[serde(skip_serializing_if = "Option::is_none")]
    cosines: Option<Vec<Vec<Option<f64>>>>,
    /// Of examples and inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
    /// Of sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    sets: Option<SetSample>,
}

/// Sizes of a head.
#[derive(Serialize)]
struct HeadSummary {
    theta_frobenius: f64,
    theta_operator: Option<f64>,
    effective_rank: Option<f64>,
    key_bias_norm: f64,
    w_frobenius: f64,
}

impl HeadSummary {
    fn of(layer: &AttentionLayer) -> Vec<Self> {
        layer
            .heads()
            .iter()
            .map(|head| {
                let theta = head.theta.to_dense();
                let singular = theta.singular_values().ok();
                Self {
                    theta_frobenius: frobenius(theta.as_ref()),
                    theta_operator: singular.as_deref().map(|s| s.iter().copied().fold(0.0, f64::max)),
                    effective_rank: singular.as_deref().and_then(effective_rank),
                    key_bias_norm: head.key_bias.as_deref().map_or(0.0, |c| c.iter().map(|v| v * v).sum::<f64>().sqrt()),
                    w_frobenius: frobenius(head.w.as_ref()),
                }
            })
            .collect()
    }
}

/// `exp(−Σ p ln p)` with `p` the singular values as shares of their sum; `None` if they are all 0.
fn effective_rank(singular: &[f64]) -> Option<f64> {
    let total: f64 = singular.iter().sum();
    let entropy = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    (total > 0.0).then(|| singular.iter().map(|s| entropy(s / total)).sum::<f64>().exp())
}

/// The first examples of a file.
#[derive(Serialize)]
struct Sample {
    /// How many were looked at.
    n: u64,
    /// Whether all inputs are +1 or −1.
    signs: bool,
    x_mean: f64,
    x_variance: f64,
    /// Of examples: over everything.
    y_mean: Option<f64>,
    /// Of examples: about the overall mean.
    y_variance: Option<f64>,
}

impl Sample {
    /// Reads the first blocks.
    fn read(shape: Shape, has_outputs: bool, fill: impl Fn(u64, &mut Block<f64>) -> Result<()>) -> Result<Self> {
        let mut block = Block::new(shape);
        let (mut x, mut y, mut n, mut signs) = (Moments::default(), Moments::default(), 0, true);
        for index in 0..BLOCKS {
            fill(index, &mut block)?;
            if block.is_empty() {
                break;
            }
            n += block.len() as u64;
            for i in 0..block.len() {
                for a in 0..shape.k {
                    let token = block.token(i, a);
                    signs &= token.iter().all(|v| (v.abs() - 1.0).abs() <= 0.0);
                    x.merge(&Moments::of(token.iter()));
                    if has_outputs {
                        y.merge(&Moments::of(block.output(i, a).iter()));
                    }
                }
            }
        }
        Ok(Self {
            n,
            signs,
            x_mean: x.mean(),
            x_variance: x.variance(),
            y_mean: has_outputs.then(|| y.mean()),
            y_variance: has_outputs.then(|| y.variance()),
        })
    }

    fn say(&self, console: &Console) {
        console.heading(&format!("First {} sequences", grouped(self.n)));
        let kind = if self.signs { ", all ±1" } else { "" };
        console.say(format!("  x  mean {}, variance {}{kind}", number(self.x_mean), number(self.x_variance)));
        if let (Some(mean), Some(variance)) = (self.y_mean, self.y_variance) {
            console.say(format!("  y  mean {}, variance {}", number(mean), number(variance)));
        }
    }
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.file])
    }

    /// Looks.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let console = &session.console;
        let summary = inspect(&self.file)?;
        if self.maps && !matches!(summary.content, FileKind::Layer { .. }) {
            let problem = format!("{} is no layer, and nothing else has attention matrices", summary.path);
            return Err(Error::input("--maps", problem, "leave it out"));
        }
        say_summary(console, &summary);
        let mut report = InspectReport { file: &summary, heads: None, cosines: None, sample: None, sets: None };
        match &summary.content {
            FileKind::Layer { .. } => {
                let layer = AttentionLayer::load(&self.file)?;
                let heads = HeadSummary::of(&layer);
                let thetas: Vec<Mat<f64>> = layer.heads().iter().map(|head| head.theta.to_dense()).collect();
                let cosines = (thetas.len() <= MOST_COSINES).then(|| cosines(&thetas));
                if let Some(scores) = scores(&layer) {
                    console.say(&scores);
                }
                say_heads(console, &heads, cosines.as_deref());
                if self.maps {
                    say_maps(console, &thetas);
                }
                report.heads = Some(heads);
                report.cosines = cosines;
            }
            FileKind::Examples { n, k, d, d_out } => {
                let shape = Shape { k: *k, d: *d, d_out: *d_out };
                check_size(shape, Some(*n as u64), &summary.path)?;
                let file = ExampleFile::open(&self.file)?;
                let sample = Sample::read(shape, true, |index, block| file.fill_f64(index, block))?;
                sample.say(console);
                report.sample = Some(sample);
            }
            FileKind::Inputs { n, k, d } => {
                let shape = Shape { k: *k, d: *d, d_out: 1 };
                check_size(shape, Some(*n as u64), &summary.path)?;
                let file = InputFile::open(&self.file)?;
                let sample = Sample::read(shape, false, |index, block| file.fill(index, block))?;
                sample.say(console);
                report.sample = Some(sample);
            }
            FileKind::Sets { targets, .. } => {
                let targets = if *targets > 0 { Targets::Required } else { Targets::Ignored };
                let sample = SetSample::read(open_sets(&self.file, targets)?.as_ref(), BLOCKS)?;
                sample.say(console);
                report.sets = Some(sample);
            }
            FileKind::Model(model) => say_model(console, model),
            FileKind::Outputs { .. } | FileKind::Targets { .. } | FileKind::Unknown { .. } => {}
        }
        session.publish("inspect", &report)?;
        Ok(Ending::Done)
    }
}

/// How scores are made, where they are more than Θ and a key bias.
fn scores(layer: &AttentionLayer) -> Option<String> {
    let scores = layer.scores();
    let groups = layer.groups().iter().max().map_or(0, |most| most + 1);
    let rotary = scores
        .rotation
        .as_ref()
        .map(|rotation| format!("rotary positions of {} pairs (Θ is that of a token with itself)", rotation.frequencies.len()));
    let shared = (groups < layer.heads().len()).then(|| format!("{groups} key groups"));
    let norm = scores.norm.map(|_| "query/key norms".to_owned());
    let relative = layer.heads().iter().any(|head| head.terms.relative.is_some()).then(|| "relative biases".to_owned());
    let parts: Vec<String> = [rotary, shared, norm, relative].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("scores: {}", parts.join(", ")))
}

fn say_summary(console: &Console, summary: &FileSummary) {
    let what = match &summary.content {
        FileKind::Layer { m, d, d_out, mask, key_bias, bias } => {
            let yes = |yes: bool| if yes { "yes" } else { "no" };
            let (key_bias, bias) = (yes(*key_bias), yes(*bias));
            format!("layer: m = {m}, d = {d}, d_out = {d_out}, mask {mask}, key bias {key_bias}, output bias {bias}")
        }
        FileKind::Examples { n, k, d, d_out } => {
            format!("examples: n = {}, k = {k}, d = {d}, d_out = {d_out}", grouped(*n as u64))
        }
        FileKind::Inputs { n, k, d } => format!("inputs: n = {}, k = {k}, d = {d}", grouped(*n as u64)),
        FileKind::Outputs { n, k, d_out } => format!("outputs: n = {}, k = {k}, d_out = {d_out}", grouped(*n as u64)),
        FileKind::Sets { n, keys, d, targets, lengths, weights } => {
            let keys = if *lengths { format!("up to {keys}") } else { keys.to_string() };
            let targets = match targets {
                0 => "no targets".into(),
                1 => "1 target".into(),
                t => format!("{t} targets"),
            };
            let weights = if *weights { ", weighted" } else { "" };
            format!("sets: n = {}, N = {keys}, d = {d}, {targets}{weights}", grouped(*n as u64))
        }
        FileKind::Targets { n, targets } => format!("targets of sets: n = {}, t = {targets}", grouped(*n as u64)),
        FileKind::Model(model) => describe(model),
        FileKind::Unknown { reason } => format!("not a file of attnlearn: {reason}"),
    };
    console.say(console.bold(&what));
    let format = format!("{:?}", summary.format).to_lowercase();
    console.say(console.dim(&format!("{}, {format}, {} bytes", summary.path, grouped(summary.bytes))));
    console.heading("Tensors");
    let rows: Vec<[String; 4]> = summary
        .tensors
        .iter()
        .map(|t| {
            let problem = t.problem.clone().unwrap_or_default();
            [quoted(&t.name), quoted(&t.dtype), words::shape(&t.shape), problem]
        })
        .collect();
    console.table(["name", "format", "shape", ""], &rows);
    if !summary.metadata.is_empty() {
        console.heading("Notes");
        // A hostile file must not be able to speak to the terminal.
        let keys: Vec<String> = summary.metadata.keys().map(|key| quoted(key)).collect();
        let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or(0);
        for (key, value) in keys.iter().zip(summary.metadata.values()) {
            console.say(format!("  {key:<width$}  {}", printable(value)));
        }
    }
}

/// Without control characters, and not too long: unlike [`quoted`], it leaves the quotes of JSON alone.
fn printable(text: &str) -> String {
    const MOST: usize = 200;
    let clean: String = text.chars().map(|c| if c.is_control() { '�' } else { c }).take(MOST).collect();
    if text.chars().count() > MOST { clean + "…" } else { clean }
}

fn say_heads(console: &Console, heads: &[HeadSummary], cosines: Option<&[Vec<Option<f64>>]>) {
    console.heading("Heads");
    let optional = |v: Option<f64>| v.map_or_else(|| "–".into(), number);
    let rows: Vec<[String; 6]> = heads
        .iter()
        .enumerate()
        .map(|(i, h)| {
            [
                (i + 1).to_string(),
                number(h.theta_frobenius),
                optional(h.theta_operator),
                optional(h.effective_rank),
                number(h.key_bias_norm),
                number(h.w_frobenius),
            ]
        })
        .collect();
    console.table(["head", "‖Θ‖_F", "‖Θ‖_op", "effective rank", "‖c‖", "‖W‖_F"], &rows);
    if let Some(cosines) = cosines.filter(|c| (2..=12).contains(&c.len())) {
        console.heading("Cosines between attention matrices");
        for (i, row) in cosines.iter().enumerate() {
            let cells: Vec<String> = row[..=i].iter().map(|c| c.map_or("     –".into(), |c| format!("{c:>6.3}"))).collect();
            console.say(format!("  {}", cells.join(" ")));
        }
    }
}

/// `⟨Θ_i, Θ_j⟩ / (‖Θ_i‖ ‖Θ_j‖)`; `None` where one of them is 0.
fn cosines(thetas: &[Mat<f64>]) -> Vec<Vec<Option<f64>>> {
    let cosine = |a: &Mat<f64>, b: &Mat<f64>| {
        let sizes = frobenius(a.as_ref()) * frobenius(b.as_ref());
        (sizes > 0.0).then(|| inner(a.as_ref(), b.as_ref()) / sizes)
    };
    thetas.iter().map(|a| thetas.iter().map(|b| cosine(a, b)).collect()).collect()
}

fn say_maps(console: &Console, thetas: &[Mat<f64>]) {
    console.heading("Attention matrices Θ");
    let scale = heatmap::scale(thetas);
    for (i, matrix) in thetas.iter().enumerate() {
        let title = format!("head {}", i + 1);
        for line in heatmap::side_by_side(&[Panel { title: &title, matrix }], scale, console.colour()) {
            console.say(format!("  {line}"));
        }
    }
    console.say(format!("  {}", heatmap::legend(scale, console.colour())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_rank_counts_equal_singular_values() {
        for r in 1..6 {
            let singular: Vec<f64> = (0..6).map(|i| if i < r { 2.5 } else { 0.0 }).collect();
            assert!((effective_rank(&singular).expect("not zero") - r as f64).abs() < 1e-12);
        }
        assert_eq!(effective_rank(&[0.0, 0.0]), None);
    }
}
