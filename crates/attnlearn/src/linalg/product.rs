//! Products of small matrices, sixteen examples at a time: panels by fixed matrices, and panels by panels.
//!
//! One kernel does all three products of the forward pass: `Θᵀ x_a`, `⟨q_a, x_b⟩` and `Σ_b p_ab u_b`. Frozen heads are the same
//! products with heads in the lanes and the inputs as scalars.

// Bounds are asserted once a product rather than at every load: reasons beside each use.
#![allow(unsafe_code)]

use super::lanes::{Real, chunks};
use pulp::Simd;

/// A factor of a [`product`]: what stands at `(i, c)`, in every lane.
pub(crate) trait Factor<T: Real, S: Simd>: Copy {
    /// Whether all entries `(i, c)` with `i < rows`, `c < inner` are there.
    fn has(self, rows: usize, inner: usize) -> bool;
    /// Entry `(i, c)`, vector `chunk` of its lanes.
    ///
    /// # Safety
    /// The factor must [have](Factor::has) the entry. [`product`] asks once; asking at every load costs a third of its time.
    unsafe fn at(self, simd: S, i: usize, c: usize, chunk: usize) -> T::Vector<S>;
}

/// A panel whose entry `(i, c)` is number `i · outer + c · inner`.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a, V> {
    pub entries: &'a [V],
    pub outer: usize,
    pub inner: usize,
}

impl<T: Real, S: Simd> Factor<T, S> for Panel<'_, T::Vector<S>> {
    #[inline(always)]
    fn has(self, rows: usize, inner: usize) -> bool {
        rows == 0 || inner == 0 || (last(rows, self.outer, inner, self.inner) + 1) * chunks::<T, S>() <= self.entries.len()
    }
    #[inline(always)]
    unsafe fn at(self, _: S, i: usize, c: usize, chunk: usize) -> T::Vector<S> {
        // Safety: promised by the caller.
        unsafe { *self.entries.get_unchecked((i * self.outer + c * self.inner) * chunks::<T, S>() + chunk) }
    }
}

/// A matrix that is the same in all lanes, whose entry `(i, c)` is number `i · outer + c · inner`.
#[derive(Clone, Copy)]
pub(crate) struct Scalars<'a, T> {
    pub entries: &'a [T],
    pub outer: usize,
    pub inner: usize,
}

impl<T: Real, S: Simd> Factor<T, S> for Scalars<'_, T> {
    #[inline(always)]
    fn has(self, rows: usize, inner: usize) -> bool {
        rows == 0 || inner == 0 || last(rows, self.outer, inner, self.inner) < self.entries.len()
    }
    #[inline(always)]
    unsafe fn at(self, simd: S, i: usize, c: usize, _: usize) -> T::Vector<S> {
        // Safety: promised by the caller.
        T::splat(simd, unsafe { *self.entries.get_unchecked(i * self.outer + c * self.inner) })
    }
}

/// Number of the last of `rows × inner` entries.
#[inline(always)]
const fn last(rows: usize, outer: usize, cols: usize, inner: usize) -> usize {
    (rows - 1) * outer + (cols - 1) * inner
}

/// A panel to be written, whose entry `(i, j)` is number `i · outer + j · inner`.
pub(crate) struct Place<'a, V> {
    pub entries: &'a mut [V],
    pub outer: usize,
    pub inner: usize,
}

impl<V> Place<'_, V> {
    #[inline(always)]
    fn at(&mut self, i: usize, j: usize, chunk: usize, chunks: usize) -> &mut V {
        &mut self.entries[(i * self.outer + j * self.inner) * chunks + chunk]
    }
}

/// What a [`product`] is added to.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a, T> {
    Zero,
    /// This vector, in every row.
    Row(&'a [T]),
    /// What is there.
    Out,
}

/// What becomes of the sums of a [`product`] while they are in registers.
#[derive(Clone, Copy)]
pub(crate) enum Finish {
    Sum,
    /// Their positive parts.
    Relu,
}

/// `out(i, j) = finish(start + Σ_c a(i, c) b(j, c))`, lane by lane, for `(rows, cols, inner)` values of `(i, j, c)`: in tiles whose sums stay in
/// registers, so that `I + J` loads feed `I · J` multiply-adds. Each sum runs over `c` in order, whatever its tile: an entry has the same
/// bits in every product that it is part of.
#[inline(always)]
pub(crate) fn product<T: Real, S: Simd>(
    simd: S,
    (rows, cols, inner): (usize, usize, usize),
    a: impl Factor<T, S>,
    b: impl Factor<T, S>,
    (start, finish): (Start<'_, T>, Finish),
    mut out: Place<'_, T::Vector<S>>,
) {
    assert!(a.has(rows, inner) && b.has(cols, inner), "a factor is too small for a {rows}×{inner} by {inner}×{cols} product");
    let ends = (start, finish);
    // Columns outside: what `b` has for a tile of them stays in the nearest cache while all rows pass.
    let mut j = 0;
    while j + 4 <= cols {
        tile_column::<T, S, 4>(simd, j, rows, inner, a, b, ends, &mut out);
        j += 4;
    }
    if j + 2 <= cols {
        tile_column::<T, S, 2>(simd, j, rows, inner, a, b, ends, &mut out);
        j += 2;
    }
    if j < cols {
        tile_column::<T, S, 1>(simd, j, rows, inner, a, b, ends, &mut out);
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn tile_column<T: Real, S: Simd, const J: usize>(
    simd: S,
    j: usize,
    rows: usize,
    inner: usize,
    a: impl Factor<T, S>,
    b: impl Factor<T, S>,
    ends: (Start<'_, T>, Finish),
    out: &mut Place<'_, T::Vector<S>>,
) {
    let tallest = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
    let mut i = 0;
    while i < rows {
        let height = tallest.min(rows - i);
        match height {
            4 => tile::<T, S, 4, J>(simd, (i, j), inner, a, b, ends, out),
            3 => tile::<T, S, 3, J>(simd, (i, j), inner, a, b, ends, out),
            2 => tile::<T, S, 2, J>(simd, (i, j), inner, a, b, ends, out),
            _ => tile::<T, S, 1, J>(simd, (i, j), inner, a, b, ends, out),
        }
        i += height;
    }
}

/// Plain loops: the closures of `array::from_fn` are not always inlined, and what is not inlined is not compiled for the instruction set.
#[inline(always)]
#[allow(clippy::too_many_arguments, clippy::needless_range_loop)]
fn tile<T: Real, S: Simd, const I: usize, const J: usize>(
    simd: S,
    (i0, j0): (usize, usize),
    inner: usize,
    a: impl Factor<T, S>,
    b: impl Factor<T, S>,
    (start, finish): (Start<'_, T>, Finish),
    out: &mut Place<'_, T::Vector<S>>,
) {
    let chunks = chunks::<T, S>();
    for chunk in 0..chunks {
        let mut sum = [[T::splat(simd, T::ZERO); J]; I];
        for i in 0..I {
            for j in 0..J {
                match start {
                    Start::Zero => {}
                    Start::Row(row) => sum[i][j] = T::splat(simd, row[j0 + j]),
                    Start::Out => sum[i][j] = *out.at(i0 + i, j0 + j, chunk, chunks),
                }
            }
        }
        for c in 0..inner {
            let mut b_c = [T::splat(simd, T::ZERO); J];
            for j in 0..J {
                // Safety: `product` has asserted that the factors have rows×inner and cols×inner entries.
                b_c[j] = unsafe { b.at(simd, j0 + j, c, chunk) };
            }
            for i in 0..I {
                // Safety: as above.
                let a_c = unsafe { a.at(simd, i0 + i, c, chunk) };
                for j in 0..J {
                    sum[i][j] = T::fma(simd, a_c, b_c[j], sum[i][j]);
                }
            }
        }
        for i in 0..I {
            for j in 0..J {
                *out.at(i0 + i, j0 + j, chunk, chunks) = match finish {
                    Finish::Sum => sum[i][j],
                    Finish::Relu => T::larger(simd, sum[i][j], T::splat(simd, T::ZERO)),
                };
            }
        }
    }
}

/// `out[t] = M x[t] (+ start)` for `tokens` vectors at once; `m` is `rows × cols` row-major, `x` is
/// `[tokens][cols][LANES]`, `out` is `[tokens][rows][LANES]`. With `start`, that vector is added to every token's result.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn apply_matrix<T: Real, S: Simd>(
    simd: S,
    m: &[T],
    rows: usize,
    cols: usize,
    start: Option<&[T]>,
    tokens: usize,
    x: &[T],
    out: &mut [T],
) {
    let x = Panel { entries: T::vectors::<S>(x), outer: cols, inner: 1 };
    let start = start.map_or(Start::Zero, Start::Row);
    let out = Place { entries: T::vectors_mut::<S>(out), outer: rows, inner: 1 };
    product(simd, (tokens, rows, cols), x, Scalars { entries: m, outer: cols, inner: 1 }, (start, Finish::Sum), out);
}

/// `out[i][t] = ⟨m_i, x[t]⟩` for the rows of the `rows × cols` matrix `m` and `tokens` vectors; `x` is `[tokens][cols][LANES]`,
/// `out` is `[rows][tokens][LANES]`.
#[inline(always)]
pub fn row_dots<T: Real, S: Simd>(simd: S, m: &[T], rows: usize, cols: usize, tokens: usize, x: &[T], out: &mut [T]) {
    let x = Panel { entries: T::vectors::<S>(x), outer: cols, inner: 1 };
    let out = Place { entries: T::vectors_mut::<S>(out), outer: tokens, inner: 1 };
    product(simd, (rows, tokens, cols), Scalars { entries: m, outer: cols, inner: 1 }, x, (Start::<T>::Zero, Finish::Sum), out);
}

/// `out[a][b] = ⟨q[a], x[b]⟩` for all pairs of `tokens` vectors, lane by lane; `q` and `x` are `[tokens][d][LANES]`.
#[inline(always)]
pub fn dots<T: Real, S: Simd>(simd: S, tokens: usize, d: usize, q: &[T], x: &[T], out: &mut [T]) {
    let q = Panel { entries: T::vectors::<S>(q), outer: d, inner: 1 };
    let x = Panel { entries: T::vectors::<S>(x), outer: d, inner: 1 };
    let out = Place { entries: T::vectors_mut::<S>(out), outer: tokens, inner: 1 };
    product(simd, (tokens, tokens, d), q, x, (Start::<T>::Zero, Finish::Sum), out);
}

/// `out[a] += Σ_b p[a][b] x[b]`, lane by lane; `p` is `[tokens][tokens][LANES]`, `x` and `out` are `[tokens][d][LANES]`.
#[inline(always)]
pub fn mix<T: Real, S: Simd>(simd: S, tokens: usize, d: usize, p: &[T], x: &[T], out: &mut [T]) {
    let p = Panel { entries: T::vectors::<S>(p), outer: tokens, inner: 1 };
    let x = Panel { entries: T::vectors::<S>(x), outer: 1, inner: d };
    let out = Place { entries: T::vectors_mut::<S>(out), outer: d, inner: 1 };
    product(simd, (tokens, d, tokens), p, x, (Start::<T>::Out, Finish::Sum), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::lanes::{LANES, vectorised};
    use proptest::prelude::*;
    use pulp::WithSimd;

    /// `M x_t + start`, `⟨q_a, x_b⟩` and `start + Σ_b ⟨q_a, x_b⟩ x_b`.
    #[derive(Clone)]
    struct All {
        rows: usize,
        d: usize,
        tokens: usize,
        m: Vec<f64>,
        start: Vec<f64>,
        q: Vec<f64>,
        x: Vec<f64>,
    }

    impl WithSimd for All {
        type Output = [Vec<f64>; 3];
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [Vec<f64>; 3] {
            let Self { rows, d, tokens, m, start, q, x } = self;
            let mut applied = vec![f64::NAN; tokens * rows * LANES];
            apply_matrix(simd, &m, rows, d, Some(&start), tokens, &x, &mut applied);
            let mut logits = vec![f64::NAN; tokens * tokens * LANES];
            dots(simd, tokens, d, &q, &x, &mut logits);
            let mut mixed = q.clone();
            mix(simd, tokens, d, &logits, &x, &mut mixed);
            [applied, logits, mixed]
        }
    }

    proptest! {
        #[test]
        fn products_are_the_plain_sums(rows in 1usize..10, d in 1usize..10, tokens in 1usize..8, seed in 0u64..100) {
            let value = |i: usize| (((i as u64 * 2_654_435_761 + seed * 97) % 1000) as f64) / 500.0 - 1.0;
            let values = |n: usize, from: usize| (from..from + n).map(value).collect::<Vec<f64>>();
            let panel = tokens * d * LANES;
            let all = All {
                rows, d, tokens, m: values(rows * d, 0), start: values(rows, 7), q: values(panel, 13), x: values(panel, 29),
            };
            let at = |p: &[f64], t: usize, e: usize, l: usize| p[(t * d + e) * LANES + l];
            for [applied, logits, mixed] in [vectorised(all.clone()), all.clone().with_simd(pulp::Scalar)] {
                for l in 0..LANES {
                    for t in 0..tokens {
                        for r in 0..rows {
                            let plain: f64 = all.start[r] + (0..d).map(|c| all.m[r * d + c] * at(&all.x, t, c, l)).sum::<f64>();
                            prop_assert!((applied[(t * rows + r) * LANES + l] - plain).abs() < 1e-13);
                        }
                        let logit = |b: usize| (0..d).map(|e| at(&all.q, t, e, l) * at(&all.x, b, e, l)).sum::<f64>();
                        for b in 0..tokens {
                            prop_assert!((logits[(t * tokens + b) * LANES + l] - logit(b)).abs() < 1e-13);
                        }
                        for e in 0..d {
                            let plain = at(&all.q, t, e, l) + (0..tokens).map(|b| logit(b) * at(&all.x, b, e, l)).sum::<f64>();
                            prop_assert!((at(&mixed, t, e, l) - plain).abs() < 1e-12);
                        }
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "too small")]
    fn a_short_factor_is_refused() {
        apply_matrix(pulp::Scalar, &[1.0; 5], 2, 3, None, 1, &[0.0; 3 * LANES], &mut [0.0; 2 * LANES]);
    }
}
