//! The small products of a pass, sequence by sequence and head by head, compiled for the vector unit.
//!
//! ```text
//! P = softmax(QKᵀ + 1tᵀ)                H = PU
//! L̇ = Q̇Kᵀ + QK̇ᵀ + 1ṫᵀ                   Ḣ = (P∘(L̇ − (P∘L̇)1 1ᵀ))U + PU̇
//! ∂L = P∘(∂P − (P∘∂P)1 1ᵀ), ∂P = ∂H Uᵀ    ∂Q = ∂L K,  ∂K = ∂LᵀQ,  ∂t = ∂Lᵀ1,  ∂U = Pᵀ∂H
//! ```

use crate::linalg::lanes::Real;
use pulp::{Simd, WithSimd};

/// How sequences and heads lie in the rows of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Rows of the chunk: k for every sequence.
    pub rows: usize,
    pub k: usize,
    pub heads: usize,
    pub causal: bool,
}

impl Layout {
    /// Keys that query `a` sees: the first ones.
    #[inline(always)]
    fn seen(&self, a: usize) -> usize {
        if self.causal { a + 1 } else { self.k }
    }

    /// Where the k × k matrix of a head of the sequence that begins at row `first` stands.
    #[inline(always)]
    fn square(&self, first: usize, h: usize) -> usize {
        (first * self.heads + h * self.k) * self.k
    }
}

/// A vector for every row and head.
#[derive(Clone, Copy)]
pub(crate) struct Vectors<'a, T> {
    pub values: &'a [T],
    /// From row to row, and from head to head: nothing where all heads share the tokens themselves.
    pub stride: usize,
    pub step: usize,
    pub width: usize,
}

impl<'a, T> Vectors<'a, T> {
    /// `[row][head][width]`.
    pub fn of_heads(values: &'a [T], heads: usize, width: usize) -> Self {
        Self { values, stride: heads * width, step: width, width }
    }

    /// `[row][width]`, the same for all heads.
    pub fn shared(values: &'a [T], width: usize) -> Self {
        Self { values, stride: width, step: 0, width }
    }

    #[inline(always)]
    fn at(self, row: usize, h: usize) -> &'a [T] {
        &self.values[row * self.stride + h * self.step..][..self.width]
    }
}

const LANES: usize = 16;

/// `⟨a, b⟩`.
#[inline(always)]
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::ZERO; LANES];
    let (whole_a, whole_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (rest_a, rest_b) = (whole_a.remainder(), whole_b.remainder());
    for (a, b) in whole_a.zip(whole_b) {
        for l in 0..LANES {
            sums[l] = a[l].mul_add(b[l], sums[l]);
        }
    }
    let (half_a, half_b) = (rest_a.chunks_exact(LANES / 2), rest_b.chunks_exact(LANES / 2));
    let (rest_a, rest_b) = (half_a.remainder(), half_b.remainder());
    for (a, b) in half_a.zip(half_b) {
        for l in 0..LANES / 2 {
            sums[l] = a[l].mul_add(b[l], sums[l]);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            sums[l] += sums[l + width];
        }
        width /= 2;
    }
    for (a, b) in rest_a.iter().zip(rest_b) {
        sums[0] = a.mul_add(*b, sums[0]);
    }
    sums[0]
}

/// `out ← [out] + Σ_c w_c v_c`, `w_c` number `c · stride` of the weights, `v_c` that of head `h` in row `first + c`.
#[inline(always)]
fn mix<T: Real>(
    out: &mut [T],
    add: bool,
    (weights, stride, count): (&[T], usize, usize),
    vectors: Vectors<'_, T>,
    (first, h): (usize, usize),
) {
    let mut start = 0;
    while start + LANES <= out.len() {
        let mut sums = [T::ZERO; LANES];
        for c in 0..count {
            let (w, v) = (weights[c * stride], &vectors.at(first + c, h)[start..start + LANES]);
            for l in 0..LANES {
                sums[l] = w.mul_add(v[l], sums[l]);
            }
        }
        for (out, sum) in out[start..start + LANES].iter_mut().zip(sums) {
            *out = if add { *out + sum } else { sum };
        }
        start += LANES;
    }
    let out = &mut out[start..];
    if !add {
        for out in &mut *out {
            *out = T::ZERO;
        }
    }
    for c in 0..count {
        let (w, v) = (weights[c * stride], &vectors.at(first + c, h)[start..]);
        for (out, v) in out.iter_mut().zip(v) {
            *out = w.mul_add(*v, *out);
        }
    }
}

/// `P` and `H` from `Q`, `K`, `t` and `U`.
pub(crate) struct Attend<'a, T> {
    pub layout: Layout,
    pub q: Vectors<'a, T>,
    pub key: Vectors<'a, T>,
    /// `[row][head]`, or empty.
    pub t: &'a [T],
    pub u: Vectors<'a, T>,
    /// `[sequence][head][a][b]`.
    pub p: &'a mut [T],
    /// `[row][head][s]`.
    pub h: &'a mut [T],
}

impl<T: Real> WithSimd for Attend<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, q, key, t, u, p, h: pooled } = self;
        let (k, heads) = (layout.k, layout.heads);
        for first in (0..layout.rows).step_by(k) {
            for h in 0..heads {
                for a in 0..k {
                    let seen = layout.seen(a);
                    let row = &mut p[layout.square(first, h) + a * k..][..k];
                    let query = q.at(first + a, h);
                    let mut top = T::LOWEST;
                    for b in 0..seen {
                        let mut logit = dot(query, key.at(first + b, h));
                        if !t.is_empty() {
                            logit += t[(first + b) * heads + h];
                        }
                        row[b] = logit;
                        top = top.max(logit);
                    }
                    let mut total = T::ZERO;
                    for p in &mut row[..seen] {
                        *p = (*p - top).exp();
                        total += *p;
                    }
                    let scale = T::ONE / total;
                    for p in &mut row[..seen] {
                        *p = *p * scale;
                    }
                    for p in &mut row[seen..] {
                        *p = T::ZERO;
                    }
                    let out = &mut pooled[((first + a) * heads + h) * u.width..][..u.width];
                    mix(out, false, (row, 1, seen), u, (first, h));
                }
            }
        }
    }
}

/// `Ḣ` from `Q̇`, `K̇`, `ṫ` and `U̇`.
pub(crate) struct Derivative<'a, T> {
    pub layout: Layout,
    pub q: Vectors<'a, T>,
    pub key: Vectors<'a, T>,
    pub u: Vectors<'a, T>,
    pub p: &'a [T],
    pub dq: Vectors<'a, T>,
    /// `None` where keys are the tokens themselves.
    pub dk: Option<Vectors<'a, T>>,
    /// Empty where there is no key bias.
    pub dt: &'a [T],
    /// `None` where values are the tokens themselves.
    pub du: Option<Vectors<'a, T>>,
    pub dh: &'a mut [T],
}

impl<T: Real> WithSimd for Derivative<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, q, key, u, p, dq, dk, dt, du, dh } = self;
        let (k, heads) = (layout.k, layout.heads);
        let mut dl = vec![T::ZERO; k];
        for first in (0..layout.rows).step_by(k) {
            for h in 0..heads {
                for a in 0..k {
                    let seen = layout.seen(a);
                    let p = &p[layout.square(first, h) + a * k..][..k];
                    let mut mean = T::ZERO;
                    for b in 0..seen {
                        let mut along = dot(dq.at(first + a, h), key.at(first + b, h));
                        if let Some(dk) = dk {
                            along += dot(q.at(first + a, h), dk.at(first + b, h));
                        }
                        if !dt.is_empty() {
                            along += dt[(first + b) * heads + h];
                        }
                        dl[b] = along;
                        mean = p[b].mul_add(along, mean);
                    }
                    for b in 0..seen {
                        dl[b] = p[b] * (dl[b] - mean);
                    }
                    let out = &mut dh[((first + a) * heads + h) * u.width..][..u.width];
                    mix(out, false, (&dl, 1, seen), u, (first, h));
                    if let Some(du) = du {
                        mix(out, true, (p, 1, seen), du, (first, h));
                    }
                }
            }
        }
    }
}

/// `∂Q`, `∂K`, `∂t` and `∂U` from `∂H`.
pub(crate) struct Adjoint<'a, T> {
    pub layout: Layout,
    pub q: Vectors<'a, T>,
    pub key: Vectors<'a, T>,
    pub u: Vectors<'a, T>,
    pub p: &'a [T],
    pub dh: Vectors<'a, T>,
    pub dq: &'a mut [T],
    /// Empty where keys are the tokens themselves.
    pub dk: &'a mut [T],
    /// Empty where there is no key bias.
    pub dt: &'a mut [T],
    /// Empty where values are the tokens themselves.
    pub du: &'a mut [T],
}

impl<T: Real> WithSimd for Adjoint<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, q, key, u, p, dh, dq, dk, dt, du } = self;
        let (k, heads) = (layout.k, layout.heads);
        let mut dl = vec![T::ZERO; k * k];
        for first in (0..layout.rows).step_by(k) {
            for h in 0..heads {
                let p = &p[layout.square(first, h)..][..k * k];
                for a in 0..k {
                    let (seen, p, dl) = (layout.seen(a), &p[a * k..][..k], &mut dl[a * k..][..k]);
                    let mut mean = T::ZERO;
                    for b in 0..seen {
                        dl[b] = dot(dh.at(first + a, h), u.at(first + b, h));
                        mean = p[b].mul_add(dl[b], mean);
                    }
                    for b in 0..seen {
                        dl[b] = p[b] * (dl[b] - mean);
                    }
                    // Keys out of sight: the buffer has another head's.
                    for dl in &mut dl[seen..] {
                        *dl = T::ZERO;
                    }
                    mix(&mut dq[((first + a) * heads + h) * q.width..][..q.width], false, (dl, 1, seen), key, (first, h));
                }
                for b in 0..k {
                    if !dk.is_empty() {
                        let out = &mut dk[((first + b) * heads + h) * q.width..][..q.width];
                        mix(out, false, (&dl[b..], k, k), q, (first, h));
                    }
                    if !du.is_empty() {
                        let out = &mut du[((first + b) * heads + h) * u.width..][..u.width];
                        mix(out, false, (&p[b..], k, k), dh, (first, h));
                    }
                    if !dt.is_empty() {
                        let mut sum = T::ZERO;
                        for a in 0..k {
                            sum += dl[a * k + b];
                        }
                        dt[(first + b) * heads + h] = sum;
                    }
                }
            }
        }
    }
}
