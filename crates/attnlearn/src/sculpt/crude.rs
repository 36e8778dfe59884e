//! Phase 1: the crude sum of projections.
//!
//! For tokens of covariance `I` the paper correlates inputs and outputs, `E[(1/k) Xᵀ J Y] ≈ S = Σ_i W_i`. Leaving out the terms
//! where the key is the query itself removes most of the bias:
//!
//! ```text
//! Ŝ = k/(k−1) · Σ⁻¹ · mean over examples and rows a of Σ_{c≠a} x_c Y_aᵀ,     Σ = E[x xᵀ]
//! ```
//!
//! (`Σ⁻¹` makes the statistic indifferent to a linear change of the tokens.)

use crate::Result;
use crate::data::{Block, ExampleSource, scan};
use crate::linalg::lanes::LANES;
use crate::linalg::{Mat, solve_spd};
use std::ops::Range;

/// Sums over examples from which phase 1 and the scale of the problem are read.
#[derive(Clone, Debug)]
pub(crate) struct Moments {
    /// Examples seen.
    pub examples: u64,
    /// Rows seen.
    pub rows: u64,
    /// `Σ x xᵀ` over tokens.
    pub tokens: Mat<f64>,
    /// `Σ_a Σ_{c≠a} x_c Y_aᵀ`.
    pub cross: Mat<f64>,
    /// `Σ Y_a`.
    pub y: Vec<f64>,
    /// `Σ ‖Y_a‖²`.
    pub y_square: f64,
}

impl Moments {
    /// Gathers the sums over a range of blocks.
    pub fn gather(source: &dyn ExampleSource, blocks: Range<u64>) -> Result<Self> {
        let shape = source.shape();
        let mut total = Self::zero(shape.d, shape.d_out);
        scan(source, blocks, Self::of_block, |part| total.add(&part))?;
        Ok(total)
    }

    fn zero(d: usize, d_out: usize) -> Self {
        Self { examples: 0, rows: 0, tokens: Mat::zeros(d, d), cross: Mat::zeros(d, d_out), y: vec![0.0; d_out], y_square: 0.0 }
    }

    fn add(&mut self, other: &Self) {
        self.examples += other.examples;
        self.rows += other.rows;
        self.tokens += &other.tokens;
        self.cross += &other.cross;
        self.y.iter_mut().zip(&other.y).for_each(|(a, b)| *a += b);
        self.y_square += other.y_square;
    }

    fn of_block(block: &Block<f32>) -> Self {
        let shape = block.shape();
        let (k, d, d_out) = (shape.k, shape.d, shape.d_out);
        let mut sums = Self::zero(d, d_out);
        sums.examples = block.len() as u64;
        sums.rows = sums.examples * k as u64;
        let mut tokens = vec![[0.0f32; LANES]; d * d];
        let mut cross = vec![[0.0f32; LANES]; d * d_out];
        for (x, y) in block.panels() {
            let (x, y) = (x.as_chunks::<LANES>().0, y.as_chunks::<LANES>().0);
            for e in 0..d {
                let mut others = [0.0f32; LANES]; // Σ_c x_c[e]
                for c in 0..k {
                    for l in 0..LANES {
                        others[l] += x[c * d + e][l];
                    }
                }
                for a in 0..k {
                    let x_a = &x[a * d..(a + 1) * d];
                    for f in 0..=e {
                        for l in 0..LANES {
                            tokens[e * d + f][l] += x_a[e][l] * x_a[f][l];
                        }
                    }
                    for o in 0..d_out {
                        for l in 0..LANES {
                            cross[e * d_out + o][l] += (others[l] - x_a[e][l]) * y[a * d_out + o][l];
                        }
                    }
                }
            }
            for (i, y) in y.iter().enumerate() {
                sums.y[i % d_out] += y.iter().map(|&v| f64::from(v)).sum::<f64>();
                sums.y_square += y.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>();
            }
        }
        let total = |lanes: &[f32; LANES]| lanes.iter().map(|&v| f64::from(v)).sum::<f64>();
        sums.tokens = Mat::from_fn(d, d, |e, f| total(&tokens[e.max(f) * d + e.min(f)]));
        sums.cross = Mat::from_fn(d, d_out, |e, o| total(&cross[e * d_out + o]));
        sums
    }

    /// Variance of the outputs about their mean, summed over coordinates: `E‖Y_a − E Y_a‖²`.
    pub fn y_variance(&self) -> f64 {
        let n = self.rows as f64;
        self.y_square / n - self.y.iter().map(|s| (s / n).powi(2)).sum::<f64>()
    }

    /// The crude sum `Ŝ`.
    pub fn crude_sum(&self, k: usize) -> Mat<f64> {
        let scale = faer::Scale(1.0 / (k as f64 - 1.0) * k as f64);
        solve_spd(self.tokens.as_ref(), self.cross.as_ref()) * scale
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{examples, relative, teacher, true_sum};
    use super::*;
    use crate::layer::{AttentionLayer, Head, Mask};

    /// With Θ = 0 every weight is 1/k and the statistic has no bias: only the noise of 51 200 examples is left.
    #[test]
    fn uniform_attention_leaves_no_bias() {
        for seed in 0..3 {
            let w = teacher(6, 1, 1.0, seed).heads()[0].w.clone();
            let layer = AttentionLayer::new(vec![Head::dense(Mat::zeros(6, 6), w)], None, Mask::None).expect("finite");
            let moments = Moments::gather(&examples(&layer, 4), 0..100).expect("a stream never fails");
            assert!(relative(&moments.crude_sum(4), &true_sum(&layer)) < 0.02);
            assert_eq!(moments.examples, 51_200);
        }
    }

    /// Stated accuracy: 0.4 for sharp heads at this size, over 5 seeds.
    #[test]
    fn the_sum_is_found_crudely() {
        for seed in 0..5 {
            let layer = teacher(8, 2, 6.0, seed);
            let moments = Moments::gather(&examples(&layer, 4), 0..100).expect("a stream never fails");
            let error = relative(&moments.crude_sum(4), &true_sum(&layer));
            assert!(error < 0.4, "seed {seed}: {error}");
        }
    }
}
