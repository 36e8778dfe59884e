//! The small products of a pass, sequence by sequence and head by head, compiled for the vector unit.
//!
//! ```text
//! P = softmax(QKᵀ + 1tᵀ + β)             H = PU
//! L̇ = Q̇Kᵀ + QK̇ᵀ + 1ṫᵀ + β̇                Ḣ = (P∘(L̇ − (P∘L̇)1 1ᵀ))U + PU̇
//! ∂L = P∘(∂P − (P∘∂P)1 1ᵀ), ∂P = ∂H Uᵀ    ∂Q = ∂L K,  ∂K = ∂LᵀQ,  ∂t = ∂Lᵀ1,  ∂U = Pᵀ∂H,  ∂β_Δ = Σ_{a−b=Δ} ∂L_ab
//! ```
//!
//! Where scores are free in the distance a key is M vectors `k_bm`, and `⟨q_a, k_b⟩` stands for `Σ_m φ_m(a − b) ⟨q_a, k_bm⟩`, in derivative and adjoint too.
//!
//! Queries and keys have been normalised and turned before. Heads of a group share keys and values; their adjoints are added.

use crate::linalg::lanes::Real;
use crate::scores::Mask;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// How sequences and heads lie in the rows of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a, T> {
    /// Rows of the chunk: k for every sequence.
    pub rows: usize,
    pub k: usize,
    pub heads: usize,
    pub mask: Mask,
    /// The least distance that has a relative bias.
    pub first: isize,
    /// `φ_m(Δ)`, `[Δ][m]`, from the least distance on; empty where keys are one vector each.
    pub functions: &'a [T],
    pub count: usize,
    pub least: isize,
}

impl<'a, T: Real> Layout<'a, T> {
    /// `φ(a − b)`.
    #[inline(always)]
    fn weights(&self, a: usize, b: usize) -> &'a [T] {
        let at = (a as isize - b as isize - self.least).unsigned_abs() * self.count;
        &self.functions[at..at + self.count]
    }

    /// `⟨q_a, k_b⟩`.
    #[inline(always)]
    fn product(&self, a: usize, b: usize, q: &[T], key: &[T]) -> T {
        if self.count == 0 {
            return dot(q, key);
        }
        let mut sum = T::ZERO;
        for (weight, key) in self.weights(a, b).iter().zip(key.chunks_exact(q.len())) {
            sum = weight.mul_add(dot(q, key), sum);
        }
        sum
    }

    /// `out ← out + c Σ_m φ_m(a − b) k_bm`.
    #[inline(always)]
    fn add_key(&self, a: usize, b: usize, c: T, key: &[T], out: &mut [T]) {
        for (weight, key) in self.weights(a, b).iter().zip(key.chunks_exact(out.len())) {
            let c = c * *weight;
            for (out, key) in out.iter_mut().zip(key) {
                *out = c.mul_add(*key, *out);
            }
        }
    }

    /// `∂k_bm ← ∂k_bm + c φ_m(a − b) q_a`.
    #[inline(always)]
    fn add_query(&self, a: usize, b: usize, c: T, q: &[T], of_key: &mut [T]) {
        for (weight, out) in self.weights(a, b).iter().zip(of_key.chunks_exact_mut(q.len())) {
            let c = c * *weight;
            for (out, q) in out.iter_mut().zip(q) {
                *out = c.mul_add(*q, *out);
            }
        }
    }

    /// Keys that query `a` sees.
    #[inline(always)]
    fn seen(&self, a: usize) -> Range<usize> {
        self.mask.seen(a, self.k)
    }

    /// Where the relative bias of a head stands for a query and a key: `[distance][head]`, the ends standing for all beyond.
    #[inline(always)]
    fn relative(&self, table: usize, a: usize, b: usize, h: usize) -> usize {
        let last = (table / self.heads) as isize - 1;
        (a as isize - b as isize - self.first).clamp(0, last).unsigned_abs() * self.heads + h
    }

    /// Where the k × k matrix of a head of the sequence that begins at row `first` stands.
    #[inline(always)]
    fn square(&self, first: usize, h: usize) -> usize {
        (first * self.heads + h * self.k) * self.k
    }
}

/// A vector for every row and head, or every row and group of heads.
#[derive(Clone, Copy)]
pub(crate) struct Vectors<'a, T> {
    pub values: &'a [T],
    /// From row to row, and from head to head: nothing where all heads share the tokens themselves.
    pub stride: usize,
    pub step: usize,
    pub width: usize,
    /// Heads that share a vector.
    pub share: usize,
}

impl<'a, T> Vectors<'a, T> {
    /// `[row][head][width]`.
    pub fn of_heads(values: &'a [T], heads: usize, width: usize) -> Self {
        Self { values, stride: heads * width, step: width, width, share: 1 }
    }

    /// `[row][group][width]`.
    pub fn of_groups(values: &'a [T], (heads, groups): (usize, usize), width: usize) -> Self {
        Self { values, stride: groups * width, step: width, width, share: heads / groups }
    }

    /// `[row][width]`, the same for all heads.
    pub fn shared(values: &'a [T], width: usize) -> Self {
        Self { values, stride: width, step: 0, width, share: 1 }
    }

    #[inline(always)]
    fn at(self, row: usize, h: usize) -> &'a [T] {
        &self.values[row * self.stride + h / self.share * self.step..][..self.width]
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

/// `out ← [out] + Σ_c w_c v_c` over a range of `c`, `w_c` number `c · stride` of the weights, `v_c` that of head `h` in row `first + c`.
#[inline(always)]
fn mix<T: Real>(
    out: &mut [T],
    add: bool,
    (weights, stride, range): (&[T], usize, Range<usize>),
    vectors: Vectors<'_, T>,
    (first, h): (usize, usize),
) {
    let mut start = 0;
    while start + LANES <= out.len() {
        let mut sums = [T::ZERO; LANES];
        for c in range.clone() {
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
    for c in range.clone() {
        let (w, v) = (weights[c * stride], &vectors.at(first + c, h)[start..]);
        for (out, v) in out.iter_mut().zip(v) {
            *out = w.mul_add(*v, *out);
        }
    }
}

/// `P` and `H` from `Q`, `K`, `t` and `U`.
pub(crate) struct Attend<'a, T> {
    pub layout: Layout<'a, T>,
    pub q: Vectors<'a, T>,
    pub key: Vectors<'a, T>,
    /// `[row][head]`, or empty.
    pub t: &'a [T],
    /// `[distance][head]`, or empty.
    pub relative: &'a [T],
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
        let Self { layout, q, key, t, relative, u, p, h: pooled } = self;
        let (k, heads) = (layout.k, layout.heads);
        for first in (0..layout.rows).step_by(k) {
            for h in 0..heads {
                for a in 0..k {
                    let seen = layout.seen(a);
                    let row = &mut p[layout.square(first, h) + a * k..][..k];
                    let query = q.at(first + a, h);
                    let mut top = T::LOWEST;
                    for b in seen.clone() {
                        let mut logit = layout.product(a, b, query, key.at(first + b, h));
                        if !t.is_empty() {
                            logit += t[(first + b) * heads + h];
                        }
                        if !relative.is_empty() {
                            logit += relative[layout.relative(relative.len(), a, b, h)];
                        }
                        row[b] = logit;
                        top = top.max(logit);
                    }
                    let mut total = T::ZERO;
                    for p in &mut row[seen.clone()] {
                        *p = (*p - top).exp();
                        total += *p;
                    }
                    let scale = T::ONE / total;
                    for p in &mut row[seen.clone()] {
                        *p = *p * scale;
                    }
                    row[..seen.start].fill(T::ZERO);
                    row[seen.end..].fill(T::ZERO);
                    let out = &mut pooled[((first + a) * heads + h) * u.width..][..u.width];
                    mix(out, false, (row, 1, seen), u, (first, h));
                }
            }
        }
    }
}

/// `Ḣ` from `Q̇`, `K̇`, `ṫ` and `U̇`.
pub(crate) struct Derivative<'a, T> {
    pub layout: Layout<'a, T>,
    pub q: Vectors<'a, T>,
    pub key: Vectors<'a, T>,
    pub u: Vectors<'a, T>,
    pub p: &'a [T],
    pub dq: Vectors<'a, T>,
    /// `None` where keys are the tokens themselves.
    pub dk: Option<Vectors<'a, T>>,
    /// Empty where there is no key bias.
    pub dt: &'a [T],
    /// Empty where there is no relative bias.
    pub d_relative: &'a [T],
    /// `None` where values are the tokens themselves.
    pub du: Option<Vectors<'a, T>>,
    pub dh: &'a mut [T],
}

impl<T: Real> WithSimd for Derivative<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, q, key, u, p, dq, dk, dt, d_relative, du, dh } = self;
        let (k, heads) = (layout.k, layout.heads);
        let mut dl = vec![T::ZERO; k];
        for first in (0..layout.rows).step_by(k) {
            for h in 0..heads {
                for a in 0..k {
                    let seen = layout.seen(a);
                    let p = &p[layout.square(first, h) + a * k..][..k];
                    let mut mean = T::ZERO;
                    for b in seen.clone() {
                        let mut along = layout.product(a, b, dq.at(first + a, h), key.at(first + b, h));
                        if let Some(dk) = dk {
                            along += layout.product(a, b, q.at(first + a, h), dk.at(first + b, h));
                        }
                        if !dt.is_empty() {
                            along += dt[(first + b) * heads + h];
                        }
                        if !d_relative.is_empty() {
                            along += d_relative[layout.relative(d_relative.len(), a, b, h)];
                        }
                        dl[b] = along;
                        mean = p[b].mul_add(along, mean);
                    }
                    for b in seen.clone() {
                        dl[b] = p[b] * (dl[b] - mean);
                    }
                    let out = &mut dh[((first + a) * heads + h) * u.width..][..u.width];
                    mix(out, false, (&dl, 1, seen.clone()), u, (first, h));
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
    pub layout: Layout<'a, T>,
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
    /// Added to; empty where there is no relative bias.
    pub d_relative: &'a mut [T],
    /// Empty where values are the tokens themselves.
    pub du: &'a mut [T],
}

impl<T: Real> WithSimd for Adjoint<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { layout, q, key, u, p, dh, dq, dk, dt, d_relative, du } = self;
        let (k, heads) = (layout.k, layout.heads);
        let mut dl = vec![T::ZERO; k * k];
        for first in (0..layout.rows).step_by(k) {
            for h in 0..heads {
                let p = &p[layout.square(first, h)..][..k * k];
                for a in 0..k {
                    let (seen, p, dl) = (layout.seen(a), &p[a * k..][..k], &mut dl[a * k..][..k]);
                    let mut mean = T::ZERO;
                    for b in seen.clone() {
                        dl[b] = dot(dh.at(first + a, h), u.at(first + b, h));
                        mean = p[b].mul_add(dl[b], mean);
                    }
                    for b in seen.clone() {
                        dl[b] = p[b] * (dl[b] - mean);
                    }
                    // Keys out of sight: the buffer has another head's.
                    dl[..seen.start].fill(T::ZERO);
                    dl[seen.end..].fill(T::ZERO);
                    if !d_relative.is_empty() {
                        for b in seen.clone() {
                            d_relative[layout.relative(d_relative.len(), a, b, h)] += dl[b];
                        }
                    }
                    let out = &mut dq[((first + a) * heads + h) * q.width..][..q.width];
                    if layout.count == 0 {
                        mix(out, false, (dl, 1, seen), key, (first, h));
                        continue;
                    }
                    out.fill(T::ZERO);
                    for b in seen {
                        layout.add_key(a, b, dl[b], key.at(first + b, h), out);
                    }
                }
                // The first head of a group sets its keys and values, the others add.
                for b in 0..k {
                    if !dk.is_empty() {
                        let out = &mut dk[(first + b) * key.stride + h / key.share * key.width..][..key.width];
                        let add = h % key.share > 0;
                        if layout.count == 0 {
                            mix(out, add, (&dl[b..], k, 0..k), q, (first, h));
                        } else {
                            if !add {
                                out.fill(T::ZERO);
                            }
                            for a in (0..k).filter(|a| layout.seen(*a).contains(&b)) {
                                layout.add_query(a, b, dl[a * k + b], q.at(first + a, h), out);
                            }
                        }
                    }
                    if !du.is_empty() {
                        let out = &mut du[(first + b) * u.stride + h / u.share * u.width..][..u.width];
                        mix(out, h % u.share > 0, (&p[b..], k, 0..k), dh, (first, h));
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
