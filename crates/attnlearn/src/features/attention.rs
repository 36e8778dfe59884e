//! Features of frozen attention heads.
//!
//! With `ℓ_mi = ⟨W_m, x̃_0 x̃_iᵀ⟩`, head m of a set with `n` keys has the `d+1` features
//!
//! ```text
//! φ_m = Σ_{i≤n} a_mi x̃_i,     a_mi = relu(ℓ_mi) / n   |   softmax_i(β ℓ_mi)   |   relu(ℓ_mi) / Σ_j relu(ℓ_mj)
//! ```
//!
//! (the last is 0 where no logit is positive). Heads stand in the lanes, [`LANES`] to a panel, and a strip is computed for eight sets
//! (four in double precision) and four panels at a time, as three products in register tiles:
//!
//! ```text
//! q_m = W_mᵀ (r x̃_0)          sets × (d+1), sum over d+1
//! a_mi = finish(⟨q_m, x̃_i⟩)   keys × panels, sum over d+1
//! φ_m = Σ_i a_mi x̃_i          (d+1) × panels, sum over keys
//! ```
//!
//! That is `(d+1)² + 2n(d+1)` multiply-adds a head. The factor `1/n` (relu is positively homogeneous) or `β` is taken into the query as
//! `r`. Between the products a thread keeps `q` and `a` of these: nothing grows with the number of sets or heads.
//!
//! # What depends on the order of the keys
//!
//! The logits do not. The sums over keys do, in their rounding: with `u` half the machine epsilon, permuting the keys changes `φ_me` by at
//! most `4 (n+1) u Σ_i a_mi |x̃_ie|`.

use super::map::check_sets;
use super::{FeatureMap, SetBlock, SetShape};
use crate::Result;
use crate::linalg::Aligned;
use crate::linalg::lanes::{LANES, Real, chunks, vectorised};
use crate::linalg::product::{Finish, Panel, Place, Scalars, Start, product};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Number of the feature `φ_{m,e}` among the `heads · (d+1)`: panels of [`LANES`] heads (the last may have fewer) follow one another,
/// `[e][head]` within a panel.
pub fn feature_index(heads: usize, d: usize, m: usize, e: usize) -> usize {
    let first = m / LANES * LANES;
    first * (d + 1) + e * LANES.min(heads - first) + (m - first)
}

/// How logits become weights of the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// `relu(ℓ_i) / n`.
    Relu,
    /// `softmax_i(β ℓ_i)`.
    Softmax(f64),
    /// `relu(ℓ_i) / Σ_j relu(ℓ_j)`.
    RowRelu,
}

/// Frozen attention heads in precision `T`.
pub(super) struct Attention<T> {
    d: usize,
    heads: usize,
    rule: Rule,
    /// `[panel][c][e][LANES]`: entry `(c, e)` of the matrices of the heads of a panel; zeros for heads that are not there.
    weights: Aligned<T>,
}

impl<T: Real> Attention<T> {
    /// Panels to a strip: the weights of 128 heads stay in the second-level cache up to d of about 40.
    const STRIP: usize = 8;

    /// `weights` is `[panel][c][e][LANES]`.
    pub fn new(d: usize, heads: usize, rule: Rule, weights: Aligned<T>) -> Self {
        debug_assert_eq!(weights.len(), heads.div_ceil(LANES) * (d + 1) * (d + 1) * LANES);
        Self { d, heads, rule, weights }
    }

    fn panels(&self) -> usize {
        self.heads.div_ceil(LANES)
    }
}

impl<T: Real> FeatureMap<T> for Attention<T> {
    fn features(&self) -> usize {
        self.heads * (self.d + 1)
    }

    fn strips(&self) -> usize {
        self.panels().div_ceil(Self::STRIP)
    }

    fn strip(&self, strip: usize) -> Range<usize> {
        let first = |s: usize| (s * Self::STRIP * LANES).min(self.heads) * (self.d + 1);
        first(strip)..first(strip + 1)
    }

    fn check_sets(&self, shape: SetShape) -> Result<()> {
        check_sets(shape, self.d, None)
    }

    fn fill(&self, sets: &SetBlock, strip: usize, stride: usize, out: &mut [T]) {
        assert_eq!(sets.shape.d, self.d, "sets of another dimension than the map's");
        let panels = strip * Self::STRIP..((strip + 1) * Self::STRIP).min(self.panels());
        vectorised(Kernel { map: self, sets, panels, stride, out });
    }
}

/// Panels that share what is read of the keys.
const PANELS: usize = 4;

/// Sets that share what is read of the weights: as many as have their `q` in the nearest cache.
const fn sets_at_once<T>() -> usize {
    if size_of::<T>() > 4 { 4 } else { 8 }
}

struct Kernel<'a, T> {
    map: &'a Attention<T>,
    sets: &'a SetBlock,
    panels: Range<usize>,
    stride: usize,
    out: &'a mut [T],
}

impl<T: Real> WithSimd for Kernel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { map, sets, panels, stride, out } = self;
        let (side, most, at_once) = (map.d + 1, sets.shape.keys, const { sets_at_once::<T>() });
        let softmax = matches!(map.rule, Rule::Softmax(_));
        let finish = if softmax { Finish::Sum } else { Finish::Relu };
        let weights = T::vectors::<S>(&map.weights);
        let panel_size = side * side * chunks::<T, S>();
        let mut queries = Aligned::<T>::zeros(at_once * side);
        let mut keys = Aligned::<T>::zeros(at_once * most * side);
        let mut q = Aligned::<T>::zeros(PANELS * at_once * side * LANES);
        let mut a = Aligned::<T>::zeros(most * PANELS * LANES);
        let mut ragged = Aligned::<T>::zeros(PANELS * side * LANES);

        for first_set in (0..sets.len()).step_by(at_once) {
            let group = at_once.min(sets.len() - first_set);
            for s in 0..group {
                let n = sets.lengths[first_set + s];
                let factor = match map.rule {
                    Rule::Relu => 1.0 / n as f64,
                    Rule::Softmax(beta) => beta,
                    Rule::RowRelu => 1.0,
                };
                extend(sets.query(first_set + s), factor, map.d, &mut queries[s * side..]);
                extend(sets.keys(first_set + s), 1.0, map.d, &mut keys[s * most * side..]);
            }
            for first in panels.clone().step_by(PANELS) {
                let count = PANELS.min(panels.end - first);
                for (p, q) in q.chunks_exact_mut(at_once * side * LANES).take(count).enumerate() {
                    let x = Scalars { entries: &queries, outer: side, inner: 1 };
                    let w = Panel { entries: &weights[(first + p) * panel_size..][..panel_size], outer: 1, inner: side };
                    let q = Place { entries: T::vectors_mut::<S>(q), outer: side, inner: 1 };
                    product(simd, (group, side, side), x, w, (Start::Zero, Finish::Sum), q);
                }
                let heads = first * LANES..((first + count) * LANES).min(map.heads);
                let offset = (first - panels.start) * LANES * side;
                for s in 0..group {
                    let n = sets.lengths[first_set + s];
                    let (keys, a) = (&keys[s * most * side..], &mut a[..n * count * LANES]);

                    let x = Scalars { entries: keys, outer: side, inner: 1 };
                    let q = T::vectors::<S>(&q[s * side * LANES..]);
                    let q = Panel { entries: q, outer: at_once * side, inner: 1 };
                    let logits = Place { entries: T::vectors_mut::<S>(a), outer: count, inner: 1 };
                    product(simd, (n, count, side), x, q, (Start::Zero, finish), logits);
                    if softmax {
                        exponentials(simd, n, a);
                    }
                    if map.rule != Rule::Relu {
                        normalise(simd, n, a);
                    }

                    let x = Scalars { entries: keys, outer: 1, inner: side };
                    let a = Panel { entries: T::vectors::<S>(a), outer: 1, inner: count };
                    let out = &mut out[(first_set + s) * stride + offset..][..heads.len() * side];
                    let whole = heads.len() == count * LANES;
                    let pooled = if whole { &mut *out } else { &mut ragged[..] };
                    let place = Place { entries: T::vectors_mut::<S>(pooled), outer: 1, inner: side };
                    product(simd, (side, count, n), x, a, (Start::Zero, Finish::Sum), place);
                    if !whole {
                        compact(&ragged, heads.len(), side, out);
                    }
                }
            }
        }
    }
}

/// Writes `factor · [x; 1]` for one vector `x ∈ R^d` after another.
#[inline(always)]
fn extend<T: Real>(x: &[f64], factor: f64, d: usize, out: &mut [T]) {
    for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(d + 1)) {
        for e in 0..d {
            out[e] = T::from_f64(factor * x[e]);
        }
        out[d] = T::from_f64(factor);
    }
}

/// `a_i ← e^(a_i − max_j a_j)` for `a` of `[n][lanes]`.
#[inline(always)]
fn exponentials<T: Real, S: Simd>(simd: S, n: usize, a: &mut [T]) {
    let v = T::vectors_mut::<S>(a);
    let width = v.len() / n;
    for j in 0..width {
        let mut top = v[j];
        for i in 1..n {
            top = T::larger(simd, top, v[i * width + j]);
        }
        for i in 0..n {
            v[i * width + j] = T::minus(simd, v[i * width + j], top);
        }
    }
    for v in a.iter_mut() {
        *v = v.exp();
    }
}

/// `a_i ← a_i / Σ_j a_j` for `a ≥ 0` of `[n][lanes]`; 0 where the sum is 0.
#[inline(always)]
fn normalise<T: Real, S: Simd>(simd: S, n: usize, a: &mut [T]) {
    // The reciprocal of anything above this is finite in both precisions.
    let least = T::splat(simd, T::from_f64(1e-37));
    let v = T::vectors_mut::<S>(a);
    let width = v.len() / n;
    for j in 0..width {
        let mut total = v[j];
        for i in 1..n {
            total = T::plus(simd, total, v[i * width + j]);
        }
        let scale = T::over(simd, T::splat(simd, T::ONE), T::larger(simd, total, least));
        for i in 0..n {
            v[i * width + j] = T::times(simd, v[i * width + j], scale);
        }
    }
}

/// Copies panels whose last has lanes that are no heads, without these lanes.
#[inline(always)]
fn compact<T: Real>(panels: &[T], heads: usize, side: usize, out: &mut [T]) {
    let whole = heads / LANES * LANES * side;
    out[..whole].copy_from_slice(&panels[..whole]);
    let width = heads % LANES;
    for e in 0..side {
        out[whole + e * width..][..width].copy_from_slice(&panels[whole + e * LANES..][..width]);
    }
}
