//! The forward pass, sixteen examples at a time.
//!
//! Per head: `t_a = Θᵀ x_a + c`, logits `ℓ_ab = t_aᵀ x_b = x_aᵀ Θ x_b + cᵀ x_b`, `p = softmax(ℓ)`, `u_b = Wᵀ x_b`, `F_a += Σ_b p_ab u_b`.
//! About `k (d² + k d + d d_out + k d_out)` multiply-adds and `k²` exponentials per head and example. Long sequences are attended in
//! [tiles](super::tiles), which needs no memory for `k²` logits.

use super::{AttentionLayer, Mask, Theta};
use crate::data::Block;
use crate::linalg::lanes::{LANES, Real, softmax, vectorised};
use crate::linalg::product::{apply_matrix, dots, mix};
use crate::linalg::{Aligned, Mat, MatRef, row_major};
use crate::{Error, Result};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Sequences of more tokens than this are attended in tiles. Up to it the logits of a panel fit in a few megabytes.
pub(super) const LONG: usize = 256;

/// The weights of a layer in one precision, laid out for the forward pass.
#[derive(Clone, Debug)]
pub struct Evaluator<T> {
    pub(super) d: usize,
    pub(super) d_out: usize,
    pub(super) heads: Vec<HeadWeights<T>>,
    bias: Option<Vec<T>>,
    pub(super) mask: Mask,
}

#[derive(Clone, Debug)]
pub(super) struct HeadWeights<T> {
    theta: ThetaWeights<T>,
    key_bias: Option<Vec<T>>,
    /// `Wᵀ`, row by row.
    pub w_t: Vec<T>,
}

impl<T: Real> HeadWeights<T> {
    /// `Θᵀ x_a + c` of some tokens; `inner` is working memory.
    #[inline(always)]
    pub fn queries<S: Simd>(&self, simd: S, d: usize, tokens: usize, x: &[T], inner: &mut Aligned<T>, out: &mut [T]) {
        let bias = self.key_bias.as_deref();
        match &self.theta {
            ThetaWeights::Dense { theta_t } => apply_matrix(simd, theta_t, d, d, bias, tokens, x, out),
            ThetaWeights::LowRank { r, a_t, b } => {
                inner.fit(tokens * r * LANES);
                apply_matrix(simd, a_t, *r, d, None, tokens, x, inner);
                apply_matrix(simd, b, d, *r, bias, tokens, inner, out);
            }
        }
    }
}

/// `Θᵀ`, which turns a query into the vector that its keys are multiplied with, row by row.
#[derive(Clone, Debug)]
enum ThetaWeights<T> {
    Dense { theta_t: Vec<T> },
    LowRank { r: usize, a_t: Vec<T>, b: Vec<T> },
}

/// Working memory of one thread.
#[derive(Default)]
struct Scratch<T: Real> {
    queries: Aligned<T>,
    inner: Aligned<T>,
    values: Aligned<T>,
    p: Aligned<T>,
}

fn cast<T: Real>(a: MatRef<'_, f64>) -> Vec<T> {
    row_major(a).into_iter().map(T::from_f64).collect()
}

impl<T: Real> Evaluator<T> {
    /// Prepares a layer for evaluation.
    pub fn new(layer: &AttentionLayer) -> Self {
        let numbers = |v: &[f64]| v.iter().map(|&v| T::from_f64(v)).collect::<Vec<T>>();
        let heads = layer
            .heads
            .iter()
            .map(|head| HeadWeights {
                theta: match &head.theta {
                    // Two thin products beat one square product only when 2r < d.
                    Theta::LowRank { a, b } if 2 * a.ncols() < layer.d => {
                        ThetaWeights::LowRank { r: a.ncols(), a_t: cast(a.transpose()), b: cast(b.as_ref()) }
                    }
                    theta => ThetaWeights::Dense { theta_t: cast(theta.to_dense().transpose()) },
                },
                key_bias: head.key_bias.as_deref().map(numbers),
                w_t: cast(head.w.transpose()),
            })
            .collect();
        Self { d: layer.d, d_out: layer.d_out, heads, bias: layer.bias.as_deref().map(numbers), mask: layer.mask }
    }

    /// Writes `Y = F(X)` into the block. Long sequences are shared out to all threads.
    pub fn outputs(&self, block: &mut Block<T>) {
        // Nobody stops it.
        let _ = self.outputs_until(block, &|| false);
    }

    /// The same, unless `stop` says otherwise, which is asked many times a second where sequences are long. A block of short ones takes no
    /// longer than that, and is not interrupted.
    pub fn outputs_until(&self, block: &mut Block<T>, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
        if block.shape().k <= LONG {
            vectorised(Forward { layer: self, block });
            return Ok(());
        }
        let mut values = Aligned::default();
        let done = block.panels_mut().all(|(x, y)| self.long_panel(x, y, &mut values, stop));
        if done { Ok(()) } else { Err(Error::Interrupted) }
    }

    /// Sets outputs to the bias.
    #[inline(always)]
    pub(super) fn begin(&self, y: &mut [T]) {
        match &self.bias {
            None => y.fill(T::ZERO),
            Some(bias) => {
                for (i, out) in y.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    *out = [bias[i % self.d_out]; LANES];
                }
            }
        }
    }

    /// `F(X)` of one panel, all logits at once.
    #[cfg(test)]
    pub(super) fn short_panel(&self, x: &[T], y: &mut [T]) {
        struct Whole<'a, T>(&'a Evaluator<T>, &'a [T], &'a mut [T]);
        impl<T: Real> WithSimd for Whole<'_, T> {
            type Output = ();
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                self.0.panel(simd, self.1, self.2, &mut Scratch::default());
            }
        }
        vectorised(Whole(self, x, y));
    }

    /// `F(X)` of one panel; `x` is `[k][d][LANES]`, `y` is `[k][d_out][LANES]`.
    #[inline(always)]
    fn panel<S: Simd>(&self, simd: S, x: &[T], y: &mut [T], scratch: &mut Scratch<T>) {
        let (d, d_out) = (self.d, self.d_out);
        let k = x.len() / (d * LANES);
        scratch.queries.fit(k * d * LANES);
        scratch.values.fit(k * d_out * LANES);
        scratch.p.fit(k * k * LANES);
        self.begin(y);
        for head in &self.heads {
            head.queries(simd, d, k, x, &mut scratch.inner, &mut scratch.queries);
            apply_matrix(simd, &head.w_t, d_out, d, None, k, x, &mut scratch.values);
            dots(simd, k, d, &scratch.queries, x, &mut scratch.p);
            match self.mask {
                Mask::None => softmax(simd, k, |_| k, &mut scratch.p),
                Mask::Causal => softmax(simd, k, |a| a + 1, &mut scratch.p),
            }
            mix(simd, k, d_out, &scratch.p, &scratch.values, y);
        }
    }
}

/// The forward pass over the panels of a block.
struct Forward<'a, T> {
    layer: &'a Evaluator<T>,
    block: &'a mut Block<T>,
}

impl<T: Real> WithSimd for Forward<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut scratch = Scratch::default();
        for (x, y) in self.block.panels_mut() {
            self.layer.panel(simd, x, y, &mut scratch);
        }
    }
}

impl AttentionLayer {
    /// `F(X)` for sequences in plain order: `x` is `[n][k][d]`, the result `[n][k][d_out]`. Runs on all threads.
    pub fn forward<T: Real>(&self, k: usize, x: &[T]) -> Vec<T> {
        // Nobody stops it.
        self.forward_until(k, x, &|| false).unwrap_or_default()
    }

    /// The same, unless `stop` says otherwise: see [`Evaluator::outputs_until`].
    pub fn forward_until<T: Real>(&self, k: usize, x: &[T], stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<T>> {
        let evaluator = Evaluator::<T>::new(self);
        let shape = crate::data::Shape { k, d: self.d, d_out: self.d_out };
        let mut y = vec![T::ZERO; x.len() / self.d * self.d_out];
        // A block of short sequences is for one thread; threads share long ones themselves, so a panel of them will do.
        let sequences = if k <= LONG { Block::<T>::CAPACITY } else { LANES };
        let apply = |block: &mut Block<T>, x: &[T], y: &mut [T]| {
            block.set_inputs(x);
            evaluator.outputs_until(block, stop)?;
            block.copy_outputs(y);
            Ok(())
        };
        let (per_x, per_y) = (sequences * k * self.d, sequences * k * self.d_out);
        if k > LONG {
            let mut block = Block::new(shape);
            x.chunks(per_x).zip(y.chunks_mut(per_y)).try_for_each(|(x, y)| apply(&mut block, x, y))?;
        } else {
            let parts = x.par_chunks(per_x).zip(y.par_chunks_mut(per_y));
            parts.try_for_each_init(
                || Block::new(shape),
                |block, (x, y)| if stop() { Err(Error::Interrupted) } else { apply(block, x, y) },
            )?;
        }
        Ok(y)
    }

    /// `F(X)` of one sequence as a matrix: the definition, written plainly. For tests and small uses.
    pub fn forward_one(&self, x: MatRef<'_, f64>) -> Mat<f64> {
        let k = x.nrows();
        let mut out = Mat::from_fn(k, self.d_out, |_, o| self.bias.as_ref().map_or(0.0, |b| b[o]));
        for head in &self.heads {
            let logits = x * head.theta.to_dense() * x.transpose();
            let shift = |b: usize| head.key_bias.as_ref().map_or(0.0, |c| (0..self.d).map(|e| c[e] * x[(b, e)]).sum());
            let p = Mat::from_fn(k, k, |a, b| match self.mask {
                Mask::Causal if b > a => 0.0,
                _ => (logits[(a, b)] + shift(b)).exp(),
            });
            let total: Vec<f64> = (0..k).map(|a| (0..k).map(|b| p[(a, b)]).sum()).collect();
            let p = Mat::from_fn(k, k, |a, b| p[(a, b)] / total[a]);
            out += p * x * &head.w;
        }
        out
    }
}
