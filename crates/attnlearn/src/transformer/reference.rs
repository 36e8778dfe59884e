//! What a layer computes, straight from the tensors of the file.
//!
//! The check of an import: plain loops over the numbers as they are stored, every tensor of the attention module among them (the keys' bias,
//! which the canonical form drops, too). With [`super::Projections`] and the canonical form it shares the names of the tensors, the number
//! of heads, the scale and the mask, and no arithmetic.

use super::Projections;
use super::model::ModelFile;
use super::naming::{Parts, SEPARATE, Scheme};
use crate::Result;
use crate::layer::{AttentionLayer, Mask};
use crate::linalg::Mat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Tokens, row by row.
type Rows = Vec<Vec<f64>>;

/// A linear map as it is stored.
struct Linear {
    shape: [usize; 2],
    weight: Vec<f64>,
    bias: Option<Vec<f64>>,
    input_first: bool,
}

impl Linear {
    fn read(model: &ModelFile, weight: &str, bias: &str, input_first: bool) -> Result<Self> {
        let (shape, weight) = model.numbers(weight)?;
        // Two dimensions: the layer has been read from it.
        let shape = [shape.first().copied().unwrap_or(0), shape.get(1).copied().unwrap_or(0)];
        let bias = if model.has(bias) { Some(model.numbers(bias)?.1) } else { None };
        Ok(Self { shape, weight, bias, input_first })
    }

    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let [rows, cols] = self.shape;
        let mut y = self.bias.clone().unwrap_or_else(|| vec![0.0; if self.input_first { cols } else { rows }]);
        for (i, row) in self.weight.chunks_exact(cols).enumerate() {
            if self.input_first {
                y.iter_mut().zip(row).for_each(|(y, w)| *y += x[i] * w);
            } else {
                y[i] += x.iter().zip(row).map(|(x, w)| x * w).sum::<f64>();
            }
        }
        y
    }
}

/// The attention module.
struct Module {
    /// One map for queries, keys and values, or one each.
    inner: Vec<Linear>,
    /// Biases that stand apart.
    separate: [Option<Vec<f64>>; 3],
    output: Linear,
}

impl Module {
    fn read(model: &ModelFile, scheme: &Scheme, prefix: &str) -> Result<Self> {
        let at = |weight: &str, bias: &str| {
            Linear::read(model, &format!("{prefix}{weight}"), &format!("{prefix}{bias}"), scheme.input_first)
        };
        let linear = |name: &str| at(&format!("{name}.weight"), &format!("{name}.bias"));
        let inner = match scheme.parts {
            Parts::Three(names) => names.into_iter().map(linear).collect::<Result<_>>()?,
            Parts::Fused(name) => vec![linear(name)?],
            Parts::InProj => vec![at("in_proj_weight", "in_proj_bias")?],
        };
        let mut separate = [None, None, None];
        for (bias, name) in separate.iter_mut().zip(SEPARATE) {
            let name = scheme.separate_biases.map(|start| format!("{prefix}{start}{name}"));
            if let Some(name) = name.filter(|name| model.has(name)) {
                *bias = Some(model.numbers(&name)?.1);
            }
        }
        Ok(Self { inner, separate, output: linear(scheme.output)? })
    }

    /// Queries, keys and values, side by side.
    fn inner(&self, x: &[f64]) -> Vec<f64> {
        let mut all: Vec<f64> = self.inner.iter().flat_map(|map| map.apply(x)).collect();
        let third = all.len() / 3;
        for (part, bias) in all.chunks_mut(third.max(1)).zip(&self.separate) {
            part.iter_mut().zip(bias.iter().flatten()).for_each(|(v, b)| *v += b);
        }
        all
    }

    fn forward(&self, x: &Rows, heads: usize, scale: f64, mask: Mask) -> Rows {
        let inner: Rows = x.iter().map(|x| self.inner(x)).collect();
        let width = inner[0].len() / 3;
        let r = width / heads;
        let mut y = Rows::new();
        for (a, query) in inner.iter().enumerate() {
            let seen = &inner[..if mask == Mask::Causal { a + 1 } else { inner.len() }];
            let mut pooled = vec![0.0; width];
            for from in (0..width).step_by(r) {
                let part = from..from + r;
                let dot = |key: &Vec<f64>| part.clone().map(|j| query[j] * key[width + j]).sum::<f64>() * scale;
                let logits: Vec<f64> = seen.iter().map(dot).collect();
                let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = logits.iter().map(|logit| (logit - top).exp()).collect();
                let total: f64 = weights.iter().sum();
                for (key, weight) in seen.iter().zip(&weights) {
                    part.clone().for_each(|j| pooled[j] += weight / total * key[2 * width + j]);
                }
            }
            y.push(self.output.apply(&pooled));
        }
        y
    }
}

/// Largest difference between the module and `layer`, over the largest output, on random sequences; NaN if anything overflows.
pub(super) fn gap(
    model: &ModelFile,
    scheme: &Scheme,
    prefix: &str,
    projections: &Projections,
    layer: &AttentionLayer,
) -> Result<f64> {
    let module = Module::read(model, scheme, prefix)?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut gap, mut size) = (0.0_f64, f64::MIN_POSITIVE);
    for tokens in [1, 2, 5, 9] {
        let x: Rows = (0..tokens).map(|_| (0..layer.d()).map(|_| rng.sample(StandardNormal)).collect()).collect();
        let ours = layer.forward_one(Mat::from_fn(tokens, layer.d(), |a, e| x[a][e]).as_ref());
        let theirs = module.forward(&x, projections.heads, projections.scale, projections.mask);
        for (a, row) in theirs.iter().enumerate() {
            for (e, theirs) in row.iter().enumerate() {
                let difference = (ours[(a, e)] - theirs).abs();
                // `max` would forget a NaN.
                gap = if difference.is_nan() {
                    f64::NAN
                } else if gap.is_nan() {
                    gap
                } else {
                    gap.max(difference)
                };
                size = size.max(theirs.abs());
            }
        }
    }
    Ok(gap / size)
}
