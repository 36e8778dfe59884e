//! What a layer misses on examples: one streaming pass over `(X, Y)` that compares `Y` with `F̂(X)`.
//!
//! Per example
//!
//! ```text
//! e = ‖Y − F̂(X)‖_∞ = max_{a,o} |Y_ao − F̂(X)_ao|,      s = ‖Y − F̂(X)‖_F² / (k d_out),
//! ```
//!
//! and over all examples the mean of `s` (the mean squared error), and for each output o the mean and variance of `Y_ao` over
//! examples and tokens. Blocks are read on all threads and merged in their order: the result has the same bits on any number
//! of threads.

use super::{AttentionLayer, Evaluator};
use crate::data::{Block, ExampleSource, IN_FLIGHT, Shape, work_bytes};
use crate::linalg::Moments;
use crate::linalg::lanes::LANES;
use crate::memory::at_once;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Blocks in flight at a time: enough for any number of threads; of long sequences there are fewer. No effect on the result.
const WAVE: usize = 256;

/// The comparison of a layer with examples.
#[derive(Clone, Debug)]
pub(crate) struct Residuals {
    /// Examples.
    pub n: u64,
    /// Of `s`, over examples.
    pub squares: Moments,
    /// Of `Y_ao`, over examples and tokens, for each output o.
    pub outputs: Vec<Moments>,
    /// The largest `e`.
    pub max_error: f64,
}

impl Residuals {
    /// `E s`: the mean squared error of an output.
    pub fn mse(&self) -> f64 {
        self.squares.mean()
    }

    /// Variance of an output about its mean, averaged over the outputs.
    pub fn variance(&self) -> f64 {
        self.average(Moments::variance)
    }

    /// `√(E Y_ao²)`, averaged over everything.
    pub fn rms(&self) -> f64 {
        self.average(|y| y.mean() * y.mean() + y.variance()).sqrt()
    }

    /// Mean squared error in units of the variance; `None` when the outputs are constant.
    pub fn nmse(&self) -> Option<f64> {
        ratio(self.mse(), self.variance())
    }

    fn average(&self, of: impl Fn(&Moments) -> f64) -> f64 {
        self.outputs.iter().map(of).sum::<f64>() / self.outputs.len() as f64
    }
}

/// `a / b`; `None` when that is no number.
pub(crate) fn ratio(a: f64, b: f64) -> Option<f64> {
    Some(a / b).filter(|r| r.is_finite())
}

/// One block's part.
struct Part {
    errors: Vec<f64>,
    squares: Moments,
    outputs: Vec<Moments>,
}

/// Compares `layer` with the examples of `blocks`, as far as there are any; `visit` sees every `e`, in order.
pub(crate) fn residuals(
    layer: &AttentionLayer,
    source: &dyn ExampleSource,
    blocks: Range<u64>,
    mut visit: impl FnMut(&[f64]),
) -> Result<Residuals> {
    let shape = source.shape();
    if (shape.d, shape.d_out) != (layer.d(), layer.d_out()) || shape.k == 0 {
        let problem = format!(
            "have k = {}, d = {}, d_out = {} for a layer with d = {}, d_out = {}",
            shape.k,
            shape.d,
            shape.d_out,
            layer.d(),
            layer.d_out()
        );
        return Err(Error::input("examples", problem, "give examples of the layer's own shape"));
    }
    let evaluator = Evaluator::<f64>::new(layer);
    let mut total =
        Residuals { n: 0, squares: Moments::default(), outputs: vec![Moments::default(); shape.d_out], max_error: 0.0 };
    let last = source.len().map_or(blocks.end, |len| blocks.end.min(len.div_ceil(Block::<f64>::CAPACITY as u64)));
    let at_once = at_once(work_bytes(shape, source.len()), IN_FLIGHT, WAVE) as u64;
    let mut start = blocks.start;
    while start < last {
        let wave = start..last.min(start.saturating_add(at_once));
        start = wave.end;
        let parts: Vec<Result<Part>> = wave
            .into_par_iter()
            .map_init(|| (Block::new(shape), Vec::new()), |(block, y), index| part(&evaluator, source, index, block, y))
            .collect();
        let mut ended = false;
        for part in parts {
            let part = part?;
            ended |= part.errors.is_empty();
            visit(&part.errors);
            total.n += part.errors.len() as u64;
            total.squares.merge(&part.squares);
            total.outputs.iter_mut().zip(&part.outputs).for_each(|(all, block)| all.merge(block));
            total.max_error = part.errors.iter().copied().fold(total.max_error, f64::max);
        }
        // A source that does not tell its length shows its end by an empty block.
        if ended {
            break;
        }
    }
    if total.n == 0 {
        let problem = format!("blocks {} to {} hold no examples", blocks.start, blocks.end);
        return Err(Error::input("examples", problem, "give at least one example that no learner has seen"));
    }
    if !(total.squares.standard_error().unwrap_or(0.0).is_finite() && total.variance().is_finite() && total.rms().is_finite()) {
        return Err(Error::input("examples", "have outputs whose squares overflow", "scale the outputs down"));
    }
    Ok(total)
}

/// Compares one block; `y` is working memory for its outputs.
fn part(
    evaluator: &Evaluator<f64>,
    source: &dyn ExampleSource,
    index: u64,
    block: &mut Block<f64>,
    y: &mut Vec<f64>,
) -> Result<Part> {
    source.fill_f64(index, block)?;
    y.clear();
    block.panels().for_each(|(_, panel)| y.extend_from_slice(panel));
    evaluator.outputs_until(block, &|| source.interrupted())?;

    let Shape { k, d_out, .. } = block.shape();
    let entries = k * d_out;
    let lanes_of = |panel: usize| LANES.min(block.len() - panel * LANES);
    let (mut errors, mut squares) = (Vec::with_capacity(block.len()), Vec::with_capacity(block.len()));
    for (panel, (y, (x, predicted))) in y.chunks_exact(entries * LANES).zip(block.panels()).enumerate() {
        let (mut e, mut s) = ([0.0; LANES], [0.0; LANES]);
        for (y, predicted) in y.chunks_exact(LANES).zip(predicted.chunks_exact(LANES)) {
            for l in 0..LANES {
                let difference = y[l] - predicted[l];
                e[l] = f64::max(e[l], difference.abs());
                s[l] += difference * difference;
            }
        }
        for l in 0..lanes_of(panel) {
            // A number that is not finite anywhere in X or Y ends up in s: attention weights are never exactly 0.
            if !s[l].is_finite() {
                return Err(not_finite(index, panel * LANES + l, [x, y, predicted].map(|v| v.iter().skip(l).step_by(LANES))));
            }
            errors.push(e[l]);
            squares.push(s[l] / entries as f64);
        }
    }
    let output = |o: usize| {
        let of_o = y.chunks_exact(LANES).enumerate().skip(o).step_by(d_out);
        Moments::of(of_o.flat_map(|(i, lanes)| &lanes[..lanes_of(i / entries)]))
    };
    Ok(Part { squares: Moments::of(squares.iter()), outputs: (0..d_out).map(output).collect(), errors })
}

/// Names the culprit among `X`, `Y` and `F̂(X)` of one example.
fn not_finite<'a>(block: u64, at: usize, parts: [impl Iterator<Item = &'a f64>; 3]) -> Error {
    let names = ["a number in X", "a number in Y", "the layer's output"];
    let culprit = parts.into_iter().zip(names).find_map(|(mut part, name)| part.any(|v| !v.is_finite()).then_some(name));
    let example = u128::from(block) * Block::<f64>::CAPACITY as u128 + at as u128;
    let (problem, remedy) = match culprit {
        Some(culprit) => (format!("{culprit} is not finite"), "repair or remove the example"),
        None => ("the error is so large that its square is no number".into(), "scale the outputs down"),
    };
    Error::input(format!("example {example}"), problem, remedy)
}
