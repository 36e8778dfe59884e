//! The forward pass, sixteen examples at a time.
//!
//! Per head: `t_a = Θᵀ x_a + c`, logits `ℓ_ab = t_aᵀ x_b = x_aᵀ Θ x_b + cᵀ x_b`, `p = softmax(ℓ)`, `u_b = Wᵀ x_b`, `F_a += Σ_b p_ab u_b`.
//! Where scores are not bilinear queries and keys are `R_a N_γ(x_a A + a°)` and `R_b N_κ(x_b B + b°)` instead ([`crate::scores`]), and the key bias is added apart.
//! About `k (d² + k d + d d_out + k d_out)` multiply-adds and `k²` exponentials per head and example. Long sequences are attended in
//! [tiles](super::tiles), which needs no memory for `k²` logits.

use super::{AttentionLayer, Head, Scores, Theta};
use crate::data::Block;
use crate::linalg::lanes::{LANES, Real, softmax, vectorised};
use crate::linalg::product::{apply_matrix, dots, mix};
use crate::linalg::{Aligned, Mat, MatRef, row_major};
use crate::scores::{Inner, Relative};
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
    pub(super) scores: Scores,
}

#[derive(Clone, Debug)]
pub(super) struct HeadWeights<T> {
    theta: ThetaWeights<T>,
    key_bias: Option<Vec<T>>,
    relative: Option<Relative>,
    /// `Wᵀ`, row by row.
    pub w_t: Vec<T>,
}

/// What turns tokens into the vectors whose inner products are logits, row by row.
#[derive(Clone, Debug)]
enum ThetaWeights<T> {
    /// `Θᵀ`: keys are the tokens.
    Dense { theta_t: Vec<T> },
    /// `B Aᵀ`, likewise.
    LowRank { r: usize, a_t: Vec<T>, b: Vec<T> },
    /// Queries and keys of dimension r, each `Mᵀ`, bias and gains, which are turned afterwards.
    Factors { r: usize, query: Factor<T>, key: Factor<T> },
}

/// One factor of `Θ`.
#[derive(Clone, Debug)]
struct Factor<T> {
    transposed: Vec<T>,
    bias: Option<Vec<T>>,
    gains: Vec<T>,
}

impl<T: Real> HeadWeights<T> {
    fn new(layer: &AttentionLayer, head: &Head) -> Self {
        let factor = |matrix: &Mat<f64>, bias: &Option<Vec<f64>>, gains: Option<&[f64]>| Factor {
            transposed: cast(matrix.transpose()),
            bias: bias.as_deref().map(numbers),
            gains: gains.map_or_else(|| vec![T::ONE; matrix.ncols()], numbers),
        };
        let terms = &head.terms;
        let gains = |side: usize| terms.gains.as_ref().map(|gains| gains[side].as_slice());
        Self {
            theta: match &head.theta {
                Theta::LowRank { a, b } if !layer.scores.is_bilinear() => ThetaWeights::Factors {
                    r: a.ncols(),
                    query: factor(a, &terms.query, gains(0)),
                    key: factor(b, &terms.key, gains(1)),
                },
                // Two thin products beat one square product only when 2r < d.
                Theta::LowRank { a, b } if 2 * a.ncols() < layer.d => {
                    ThetaWeights::LowRank { r: a.ncols(), a_t: cast(a.transpose()), b: cast(b.as_ref()) }
                }
                theta => ThetaWeights::Dense { theta_t: cast(theta.to_dense().transpose()) },
            },
            key_bias: head.key_bias.as_deref().map(numbers),
            relative: terms.relative.clone(),
            w_t: cast(head.w.transpose()),
        }
    }

    /// Entries of queries and keys.
    pub fn width(&self, d: usize) -> usize {
        match &self.theta {
            // One more for ⟨c, x_b⟩.
            ThetaWeights::Factors { r, .. } => r + usize::from(self.key_bias.is_some()),
            _ => d,
        }
    }

    /// The map that queries and keys go through in sequences of `k` tokens.
    pub fn inner(&self, scores: &Scores, k: usize) -> Option<Inner<T>> {
        match &self.theta {
            ThetaWeights::Factors { r, .. } => Inner::new(scores, *r, k),
            _ => None,
        }
    }

    /// Queries of some tokens, the first of which stands at `position`; `room` is working memory.
    #[inline(always)]
    pub fn queries<S: Simd>(
        &self,
        simd: S,
        inner: Option<&Inner<T>>,
        (d, position): (usize, usize),
        x: &[T],
        room: &mut Aligned<T>,
        out: &mut [T],
    ) {
        let (bias, tokens) = (self.key_bias.as_deref(), x.len() / (d * LANES));
        match &self.theta {
            ThetaWeights::Dense { theta_t } => apply_matrix(simd, theta_t, d, d, bias, tokens, x, out),
            ThetaWeights::LowRank { r, a_t, b } => {
                room.fit(tokens * r * LANES);
                apply_matrix(simd, a_t, *r, d, None, tokens, x, room);
                apply_matrix(simd, b, d, *r, bias, tokens, room, out);
            }
            ThetaWeights::Factors { r, query, .. } => {
                self.factor(simd, query, *r, inner, (d, position), x, room, out);
                if bias.is_some() {
                    out.chunks_exact_mut((r + 1) * LANES).for_each(|q| q[r * LANES..].fill(T::ONE));
                }
            }
        }
    }

    /// Keys of some tokens: `None` where they are the tokens themselves.
    #[inline(always)]
    pub fn keys<S: Simd>(
        &self,
        simd: S,
        inner: Option<&Inner<T>>,
        (d, position): (usize, usize),
        x: &[T],
        room: &mut Aligned<T>,
        out: &mut [T],
    ) {
        let ThetaWeights::Factors { r, key, .. } = &self.theta else { return };
        self.factor(simd, key, *r, inner, (d, position), x, room, out);
        if let Some(c) = &self.key_bias {
            for (key, x) in out.chunks_exact_mut((r + 1) * LANES).zip(x.chunks_exact(d * LANES)) {
                let along = key[r * LANES..].iter_mut().enumerate();
                along.for_each(|(l, along)| *along = (0..d).map(|e| c[e] * x[e * LANES + l]).sum());
            }
        }
    }

    /// Whether keys are the tokens themselves.
    pub fn keys_are_tokens(&self) -> bool {
        !matches!(self.theta, ThetaWeights::Factors { .. })
    }

    /// `R_a N_γ(x_a M + m°)` of some tokens, in rows of [`Self::width`].
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // what a product needs, and where it goes
    fn factor<S: Simd>(
        &self,
        simd: S,
        factor: &Factor<T>,
        r: usize,
        inner: Option<&Inner<T>>,
        (d, position): (usize, usize),
        x: &[T],
        room: &mut Aligned<T>,
        out: &mut [T],
    ) {
        let (tokens, width) = (x.len() / (d * LANES), self.width(d));
        room.fit(tokens * r * LANES);
        apply_matrix(simd, &factor.transposed, r, d, factor.bias.as_deref(), tokens, x, room);
        for (at, (out, made)) in out.chunks_exact_mut(width * LANES).zip(room.chunks_exact(r * LANES)).enumerate() {
            let out = &mut out[..r * LANES];
            out.copy_from_slice(made);
            if let Some(inner) = inner {
                inner.apply::<LANES>(position + at, &factor.gains, out);
            }
        }
    }

    /// Adds `β(a − b)` to the logits of queries from `first` on for keys from `begin` on; `p` is `[queries][keys][LANES]`.
    #[inline(always)]
    pub fn add_relative(&self, first: usize, begin: usize, keys: usize, p: &mut [T]) {
        let Some(relative) = &self.relative else { return };
        for (a, row) in p.chunks_exact_mut(keys * LANES).enumerate() {
            for (b, logits) in row.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let bias = T::from_f64(relative.at((first + a) as isize - (begin + b) as isize));
                logits.iter_mut().for_each(|logit| *logit += bias);
            }
        }
    }
}

/// Working memory of one thread.
#[derive(Default)]
struct Scratch<T: Real> {
    queries: Aligned<T>,
    keys: Aligned<T>,
    room: Aligned<T>,
    values: Aligned<T>,
    p: Aligned<T>,
}

/// Keys and values of all tokens of a long sequence for one head, which threads share.
#[derive(Default)]
pub(super) struct Shared<T: Real> {
    pub keys: Aligned<T>,
    pub values: Aligned<T>,
}

fn numbers<T: Real>(v: &[f64]) -> Vec<T> {
    v.iter().map(|&v| T::from_f64(v)).collect()
}

fn cast<T: Real>(a: MatRef<'_, f64>) -> Vec<T> {
    row_major(a).into_iter().map(T::from_f64).collect()
}

impl<T: Real> Evaluator<T> {
    /// Prepares a layer for evaluation.
    pub fn new(layer: &AttentionLayer) -> Self {
        let heads = layer.heads.iter().map(|head| HeadWeights::new(layer, head)).collect();
        Self { d: layer.d, d_out: layer.d_out, heads, bias: layer.bias.as_deref().map(numbers), scores: layer.scores.clone() }
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
        let mut shared = Shared::default();
        let done = block.panels_mut().all(|(x, y)| self.long_panel(x, y, &mut shared, stop));
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
        scratch.values.fit(k * d_out * LANES);
        scratch.p.fit(k * k * LANES);
        self.begin(y);
        for head in &self.heads {
            let (width, inner) = (head.width(d), head.inner(&self.scores, k));
            scratch.queries.fit(k * width * LANES);
            head.queries(simd, inner.as_ref(), (d, 0), x, &mut scratch.room, &mut scratch.queries);
            let keys = if head.keys_are_tokens() {
                x
            } else {
                scratch.keys.fit(k * width * LANES);
                head.keys(simd, inner.as_ref(), (d, 0), x, &mut scratch.room, &mut scratch.keys);
                &scratch.keys
            };
            apply_matrix(simd, &head.w_t, d_out, d, None, k, x, &mut scratch.values);
            dots(simd, k, width, &scratch.queries, keys, &mut scratch.p);
            head.add_relative(0, 0, k, &mut scratch.p);
            let mask = self.scores.mask;
            softmax(simd, k, |a| mask.seen(a, k), &mut scratch.p);
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
            let logits = head.logits(&self.scores, x);
            let p = Mat::from_fn(k, k, |a, b| if self.scores.mask.seen(a, k).contains(&b) { logits[(a, b)].exp() } else { 0.0 });
            let total: Vec<f64> = (0..k).map(|a| (0..k).map(|b| p[(a, b)]).sum()).collect();
            let p = Mat::from_fn(k, k, |a, b| p[(a, b)] / total[a]);
            out += p * x * &head.w;
        }
        out
    }
}

impl Head {
    /// `ℓ` of one sequence: the definition, written plainly.
    pub(crate) fn logits(&self, scores: &Scores, x: MatRef<'_, f64>) -> Mat<f64> {
        let k = x.nrows();
        let mut logits = match &self.theta {
            Theta::LowRank { a, b } if !scores.is_bilinear() => {
                let inner = Inner::<f64>::new(scores, a.ncols(), k);
                let side = |matrix: &Mat<f64>, bias: &Option<Vec<f64>>, side: usize| {
                    let gains = self.terms.gains.as_ref().map_or_else(|| vec![1.0; matrix.ncols()], |gains| gains[side].clone());
                    let raw = x * matrix;
                    let mut rows = Mat::zeros(k, matrix.ncols());
                    for position in 0..k {
                        let mut v: Vec<f64> =
                            (0..matrix.ncols()).map(|j| raw[(position, j)] + bias.as_ref().map_or(0.0, |bias| bias[j])).collect();
                        if let Some(inner) = &inner {
                            inner.apply::<1>(position, &gains, &mut v);
                        }
                        v.iter().enumerate().for_each(|(j, v)| rows[(position, j)] = *v);
                    }
                    rows
                };
                side(a, &self.terms.query, 0) * side(b, &self.terms.key, 1).transpose()
            }
            theta => x * theta.to_dense() * x.transpose(),
        };
        for b in 0..k {
            let along: f64 = self.key_bias.as_ref().map_or(0.0, |c| (0..x.ncols()).map(|e| c[e] * x[(b, e)]).sum());
            for a in 0..k {
                let relative = self.terms.relative.as_ref().map_or(0.0, |relative| relative.at(a as isize - b as isize));
                logits[(a, b)] += along + relative;
            }
        }
        logits
    }
}
