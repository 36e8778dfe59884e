//! What `attnlearn inspect` says about files of sets and fitted models.

use crate::console::{Console, grouped, number};
use attnlearn::Result;
use attnlearn::features::{KernelSpec, Mean, Precision, SetBlock, SetSource};
use attnlearn::inspect::ModelSummary;
use attnlearn::linalg::Moments;
use serde::Serialize;

/// Targets that are shown one by one; the JSON has all of them.
const MOST_TARGETS: usize = 12;

/// The first sets of a file.
#[derive(Serialize)]
pub struct SetSample {
    /// How many were looked at.
    n: u64,
    /// The fewest and the most keys.
    lengths: [usize; 2],
    /// Whether all queries and keys have norm 1 (to five digits, for single precision).
    unit: bool,
    x_mean: f64,
    x_variance: f64,
    /// Of every target.
    y: Vec<Spread>,
    /// The smallest and the largest weight.
    weights: [f64; 2],
}

/// Of one target.
#[derive(Serialize)]
struct Spread {
    mean: f64,
    variance: f64,
}

impl SetSample {
    /// Reads the first `blocks` blocks.
    pub fn read(source: &dyn SetSource, blocks: u64) -> Result<Self> {
        let shape = source.shape();
        let mut block = SetBlock::new(shape);
        let (mut n, mut unit, mut x) = (0, true, Moments::default());
        let mut y: Vec<Moments> = (0..shape.targets).map(|_| Moments::default()).collect();
        let (mut lengths, mut weights) = ([usize::MAX, 0], [f64::INFINITY, 0.0f64]);
        for index in 0..blocks.min(source.blocks()) {
            source.fill(index, &mut block)?;
            n += block.len() as u64;
            for i in 0..block.len() {
                for token in block.query(i).chunks_exact(shape.d).chain(block.keys(i).chunks_exact(shape.d)) {
                    unit &= (token.iter().map(|v| v * v).sum::<f64>() - 1.0).abs() < 1e-5;
                    x.merge(&Moments::of(token.iter()));
                }
                block.targets(i).iter().zip(&mut y).for_each(|(v, sums)| sums.merge(&Moments::of([*v].iter())));
                lengths = [lengths[0].min(block.lengths[i]), lengths[1].max(block.lengths[i])];
                weights = [weights[0].min(block.weights[i]), weights[1].max(block.weights[i])];
            }
        }
        let y = y.iter().map(|sums| Spread { mean: sums.mean(), variance: sums.variance() }).collect();
        Ok(Self { n, lengths, unit, x_mean: x.mean(), x_variance: x.variance(), y, weights })
    }

    /// Prints it.
    pub fn say(&self, console: &Console) {
        console.heading(&format!("First {} sets", grouped(self.n)));
        let [fewest, most] = self.lengths;
        console.say(if fewest == most { format!("  {most} keys each") } else { format!("  {fewest} to {most} keys") });
        let unit = if self.unit { ", all of norm 1" } else { "" };
        console.say(format!("  x  mean {}, variance {}{unit}", number(self.x_mean), number(self.x_variance)));
        for (t, y) in self.y.iter().enumerate().take(MOST_TARGETS) {
            let name = if self.y.len() == 1 { "y".into() } else { format!("y{t}") };
            console.say(format!("  {name}  mean {}, variance {}", number(y.mean), number(y.variance)));
        }
        if self.y.len() > MOST_TARGETS {
            console.say(format!("  … {} targets in all", self.y.len()));
        }
        let [least, largest] = self.weights;
        if (least, largest) != (1.0, 1.0) {
            console.say(format!("  weights from {} to {}", number(least), number(largest)));
        }
    }
}

/// A model in one line.
pub fn describe(model: &ModelSummary) -> String {
    let (size, t) = (grouped(model.size as u64), model.shape.targets);
    let sizes = format!("N = {}, d = {}, {t} target{}", model.shape.keys, model.shape.d, if t == 1 { "" } else { "s" });
    let what = match (&model.map, &model.kernel) {
        (Some(map), _) => format!("{} with {} heads, {size} features", map.model.name(), grouped(map.heads as u64)),
        (None, Some(KernelSpec::Rfa)) => format!("kernel-rfa on {size} sets"),
        (None, Some(KernelSpec::Brfa { .. })) => format!("kernel-brfa on {size} sets"),
        (None, Some(KernelSpec::Rfmlp)) => format!("kernel-rfmlp on {size} sets"),
        (None, None) => "nothing".into(),
    };
    format!("model: {what}; {sizes}")
}

/// The numbers of a model.
pub fn say_model(console: &Console, model: &ModelSummary) {
    console.heading("Model");
    if let Some(map) = &model.map {
        console.say(format!("  seed of the heads  {}", map.seed));
        let precision = if model.precision == Some(Precision::F64) { "double" } else { "single" };
        console.say(format!("  precision          {precision}"));
    }
    let mean = match (&model.map, &model.kernel) {
        (Some(map), _) => Some(&map.mean),
        (None, Some(KernelSpec::Brfa { mean })) => Some(mean),
        _ => None,
    };
    match mean {
        Some(Mean::Identity { scale }) => console.say(format!("  mean of the heads  {} · diag(I, 0)", number(*scale))),
        Some(Mean::Matrix(_)) => console.say("  mean of the heads  a matrix"),
        Some(Mean::Zero) | None => {}
    }
    let ridge = if model.ridge > 0.0 { format!("{:.3e}", model.ridge) } else { "none".into() };
    console.say(format!("  ridge              {ridge}"));
    let norm = if model.map.is_some() { "‖v‖" } else { "‖α‖" };
    for (t, (size, b)) in model.norms.iter().zip(&model.intercept).enumerate().take(MOST_TARGETS) {
        let name = if model.norms.len() == 1 { "y".into() } else { format!("y{t}") };
        console.say(format!("  {name:<17}  {norm} {}, intercept {}", number(*size), number(*b)));
    }
}
