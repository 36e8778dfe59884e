//! Arithmetic on sixteen examples at a time.
//!
//! A *panel* holds [`LANES`] examples interleaved: the entry `[row][column]` of all sixteen stands in sixteen
//! consecutive numbers. Every operation on small matrices then becomes the same operation on vectors of sixteen,
//! whatever the sizes k and d.
//! Call the kernels inside [`vectorised`], which picks the best instruction set of the machine at run time.

use crate::data::{Block, ExampleSource};
use pulp::{Arch, Simd, WithSimd};
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// Examples per panel: one AVX-512 vector of `f32`, two of `f64`.
pub const LANES: usize = 16;

/// The floating-point type of a pass: `f32` where speed counts, `f64` where digits count.
pub trait Real:
    Copy
    + Send
    + Sync
    + Default
    + Debug
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + Sum
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The most negative finite number.
    const LOWEST: Self;
    /// `self · a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// `e^self`, to one unit or so in the last place: a branch-free polynomial, the same bits on every machine.
    fn exp(self) -> Self;
    /// The larger of the two.
    fn max(self, other: Self) -> Self;
    /// Nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// The value in double precision.
    fn to_f64(self) -> f64;
    /// A vector of the instruction set `S`.
    type Vector<S: Simd>: Copy;
    /// Whole panels as vectors.
    fn vectors<S: Simd>(panel: &[Self]) -> &[Self::Vector<S>];
    /// Whole panels as vectors, to be written.
    fn vectors_mut<S: Simd>(panel: &mut [Self]) -> &mut [Self::Vector<S>];
    /// The value in every lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// `a · b + c` in every lane.
    fn fma<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// Reads block `index` of `source` in this precision.
    fn fill(source: &dyn ExampleSource, index: u64, block: &mut Block<Self>) -> crate::Result<()>;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const LOWEST: Self = f32::MIN;
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        f32::mul_add(self, a, b)
    }
    /// `e^x = 2^n e^r`, `n = round(x / ln 2)`, `|r| ≤ ln 2 / 2`, `e^r` by its Taylor series to degree 7.
    #[inline(always)]
    fn exp(self) -> Self {
        const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer held in the low bits
        let x = if self < -87.0 { -87.0 } else { self };
        let x = if x > 88.0 { 88.0 } else { x };
        let shifted = f32::mul_add(x, std::f32::consts::LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = f32::mul_add(n, -0.693_145_75, x);
        let r = f32::mul_add(n, -1.428_606_8e-6, r);
        let mut e = 1.0 / 5040.0;
        for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            e = f32::mul_add(e, r, c);
        }
        e * f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    type Vector<S: Simd> = S::f32s;
    #[inline(always)]
    fn vectors<S: Simd>(panel: &[Self]) -> &[S::f32s] {
        S::as_simd_f32s(panel).0
    }
    #[inline(always)]
    fn vectors_mut<S: Simd>(panel: &mut [Self]) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(panel).0
    }
    #[inline(always)]
    fn splat<S: Simd>(simd: S, value: Self) -> S::f32s {
        simd.splat_f32s(value)
    }
    #[inline(always)]
    fn fma<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        simd.mul_add_f32s(a, b, c)
    }
    fn fill(source: &dyn ExampleSource, index: u64, block: &mut Block<Self>) -> crate::Result<()> {
        source.fill_f32(index, block)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const LOWEST: Self = f64::MIN;
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        f64::mul_add(self, a, b)
    }
    /// As for `f32`, with the Taylor series to degree 13.
    #[inline(always)]
    fn exp(self) -> Self {
        const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52
        let x = if self < -708.0 { -708.0 } else { self };
        let x = if x > 709.0 { 709.0 } else { x };
        let shifted = f64::mul_add(x, std::f64::consts::LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = f64::mul_add(n, -6.931_471_803_691_238e-1, x);
        let r = f64::mul_add(n, -1.908_214_929_270_587_7e-10, r);
        let mut e = 1.0 / 6_227_020_800.0;
        for c in [
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
            1.0,
            1.0,
        ] {
            e = f64::mul_add(e, r, c);
        }
        e * f64::from_bits((shifted.to_bits() << 52).wrapping_add(0x3ff0_0000_0000_0000))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    type Vector<S: Simd> = S::f64s;
    #[inline(always)]
    fn vectors<S: Simd>(panel: &[Self]) -> &[S::f64s] {
        S::as_simd_f64s(panel).0
    }
    #[inline(always)]
    fn vectors_mut<S: Simd>(panel: &mut [Self]) -> &mut [S::f64s] {
        S::as_mut_simd_f64s(panel).0
    }
    #[inline(always)]
    fn splat<S: Simd>(simd: S, value: Self) -> S::f64s {
        simd.splat_f64s(value)
    }
    #[inline(always)]
    fn fma<S: Simd>(simd: S, a: S::f64s, b: S::f64s, c: S::f64s) -> S::f64s {
        simd.mul_add_f64s(a, b, c)
    }
    fn fill(source: &dyn ExampleSource, index: u64, block: &mut Block<Self>) -> crate::Result<()> {
        source.fill_f64(index, block)
    }
}

/// Runs a kernel compiled for the best instruction set that this machine has. Its `with_simd` must be
/// `#[inline(always)]`, and so must all it calls: only what is inlined is compiled for that instruction set.
#[inline]
pub fn vectorised<K: WithSimd>(kernel: K) -> K::Output {
    Arch::new().dispatch(kernel)
}

/// Vectors that make up the lanes of one entry of a panel.
#[inline(always)]
const fn chunks<T: Real, S: Simd>() -> usize {
    LANES * size_of::<T>() / size_of::<T::Vector<S>>()
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
    for t in 0..tokens {
        let x = T::vectors::<S>(&x[t * cols * LANES..(t + 1) * cols * LANES]);
        let out = T::vectors_mut::<S>(&mut out[t * rows * LANES..(t + 1) * rows * LANES]);
        let mut r = 0;
        while r + 8 <= rows {
            apply_tile::<T, S, 8>(simd, m, cols, start, r, x, out);
            r += 8;
        }
        while r + 4 <= rows {
            apply_tile::<T, S, 4>(simd, m, cols, start, r, x, out);
            r += 4;
        }
        while r < rows {
            apply_tile::<T, S, 1>(simd, m, cols, start, r, x, out);
            r += 1;
        }
    }
}

/// Rows `first..first + R` of a row-major matrix. A plain loop: the closures of `array::from_fn` are not always inlined, and what is
/// not inlined is not compiled for the instruction set.
#[inline(always)]
fn rows_of<V, const R: usize>(matrix: &[V], first: usize, cols: usize) -> [&[V]; R] {
    let mut rows: [&[V]; R] = [&[]; R];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = &matrix[(first + i) * cols..(first + i + 1) * cols];
    }
    rows
}

/// `R` rows of the matrix by one token, the sums held in registers.
#[inline(always)]
fn apply_tile<T: Real, S: Simd, const R: usize>(
    simd: S,
    m: &[T],
    cols: usize,
    start: Option<&[T]>,
    r: usize,
    x: &[T::Vector<S>],
    out: &mut [T::Vector<S>],
) {
    let chunks = chunks::<T, S>();
    let rows = rows_of::<T, R>(m, r, cols);
    for chunk in 0..chunks {
        let mut sum = [T::splat(simd, T::ZERO); R];
        if let Some(start) = start {
            for i in 0..R {
                sum[i] = T::splat(simd, start[r + i]);
            }
        }
        for c in 0..cols {
            let x = x[c * chunks + chunk];
            for i in 0..R {
                sum[i] = T::fma(simd, T::splat(simd, rows[i][c]), x, sum[i]);
            }
        }
        for i in 0..R {
            out[(r + i) * chunks + chunk] = sum[i];
        }
    }
}

/// `out[b] = ⟨q, x[b]⟩` for `tokens` vectors `x[b]`, lane by lane; `q` is `[d][LANES]`, `x` is `[tokens][d][LANES]`.
#[inline(always)]
pub fn dots<T: Real, S: Simd>(simd: S, q: &[T], x: &[T], tokens: usize, out: &mut [T]) {
    let (q, x, out) = (T::vectors::<S>(q), T::vectors::<S>(x), T::vectors_mut::<S>(out));
    let mut b = 0;
    while b + 4 <= tokens {
        dots_tile::<T, S, 4>(simd, q, x, b, out);
        b += 4;
    }
    while b < tokens {
        dots_tile::<T, S, 1>(simd, q, x, b, out);
        b += 1;
    }
}

#[inline(always)]
fn dots_tile<T: Real, S: Simd, const B: usize>(
    simd: S,
    q: &[T::Vector<S>],
    x: &[T::Vector<S>],
    b: usize,
    out: &mut [T::Vector<S>],
) {
    let (chunks, len) = (chunks::<T, S>(), q.len());
    let x = rows_of::<T::Vector<S>, B>(x, b, len);
    for chunk in 0..chunks {
        let mut sum = [T::splat(simd, T::ZERO); B];
        let mut e = chunk;
        while e < len {
            for i in 0..B {
                sum[i] = T::fma(simd, q[e], x[i][e], sum[i]);
            }
            e += chunks;
        }
        for i in 0..B {
            out[(b + i) * chunks + chunk] = sum[i];
        }
    }
}

/// `‖x − y‖²`, lane by lane, of two vectors `[d][LANES]`: one vector of sums for each `S`-vector that makes up a panel entry.
#[inline(always)]
pub fn square_distance<S: Simd>(simd: S, x: &[f32], y: &[f32], out: &mut [f32]) {
    let chunks = chunks::<f32, S>();
    let (x, y, out) = (f32::vectors::<S>(x), f32::vectors::<S>(y), f32::vectors_mut::<S>(out));
    for chunk in 0..chunks {
        let mut sum = simd.splat_f32s(0.0);
        let mut e = chunk;
        while e < x.len() {
            let gap = simd.sub_f32s(x[e], y[e]);
            sum = simd.mul_add_f32s(gap, gap, sum);
            e += chunks;
        }
        out[chunk] = sum;
    }
}

/// `out += Σ_b p[b] x[b]`, lane by lane; `p` is `[tokens][LANES]`, `x` is `[tokens][d][LANES]`, `out` is `[d][LANES]`.
#[inline(always)]
pub fn mix<T: Real, S: Simd>(simd: S, p: &[T], x: &[T], out: &mut [T]) {
    let chunks = chunks::<T, S>();
    let (p, x, out) = (T::vectors::<S>(p), T::vectors::<S>(x), T::vectors_mut::<S>(out));
    let mut e = 0;
    while e + 4 * chunks <= out.len() {
        mix_tile::<T, S, 4>(simd, p, x, e, out);
        e += 4 * chunks;
    }
    while e < out.len() {
        mix_tile::<T, S, 1>(simd, p, x, e, out);
        e += chunks;
    }
}

#[inline(always)]
fn mix_tile<T: Real, S: Simd, const E: usize>(
    simd: S,
    p: &[T::Vector<S>],
    x: &[T::Vector<S>],
    e: usize,
    out: &mut [T::Vector<S>],
) {
    let (chunks, len) = (chunks::<T, S>(), out.len());
    for chunk in 0..chunks {
        let mut sum = [T::splat(simd, T::ZERO); E];
        for i in 0..E {
            sum[i] = out[e + i * chunks + chunk];
        }
        for b in 0..p.len() / chunks {
            let x = &x[b * len..(b + 1) * len];
            for i in 0..E {
                sum[i] = T::fma(simd, p[b * chunks + chunk], x[e + i * chunks + chunk], sum[i]);
            }
        }
        for i in 0..E {
            out[e + i * chunks + chunk] = sum[i];
        }
    }
}

/// `p ← softmax(p)` over the `[tokens][LANES]` logits, lane by lane.
#[inline(always)]
pub fn softmax<T: Real>(p: &mut [T]) {
    let mut top = [T::LOWEST; LANES];
    for logits in p.chunks_exact(LANES) {
        for l in 0..LANES {
            top[l] = top[l].max(logits[l]);
        }
    }
    for logits in p.chunks_exact_mut(LANES) {
        for l in 0..LANES {
            logits[l] = logits[l] - top[l];
        }
    }
    // One long loop over all exponentials: the loop vectoriser takes it whole.
    for v in p.iter_mut() {
        *v = v.exp();
    }
    let mut total = [T::ZERO; LANES];
    for p in p.chunks_exact(LANES) {
        for l in 0..LANES {
            total[l] += p[l];
        }
    }
    for l in 0..LANES {
        total[l] = T::ONE / total[l];
    }
    for p in p.chunks_exact_mut(LANES) {
        for l in 0..LANES {
            p[l] = p[l] * total[l];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exp_is_accurate(x in -80.0..80.0f64) {
            let exact = f64::exp(x);
            prop_assert!((Real::exp(x) / exact - 1.0).abs() < 4e-16);
            let x32 = x as f32;
            prop_assert!((f64::from(Real::exp(x32)) / f64::exp(f64::from(x32)) - 1.0).abs() < 3e-7);
        }

        #[test]
        fn matrix_application_is_the_plain_product(rows in 1usize..10, cols in 1usize..10, tokens in 1usize..6, seed in 0u64..100) {
            let value = |i: usize| (((i as u64 * 2_654_435_761 + seed * 97) % 1000) as f64) / 500.0 - 1.0;
            let m: Vec<f64> = (0..rows * cols).map(value).collect();
            let start: Vec<f64> = (0..rows).map(|i| value(i + 7)).collect();
            let x: Vec<f64> = (0..tokens * cols * LANES).map(|i| value(i + 13)).collect();
            let mut out = vec![f64::NAN; tokens * rows * LANES];
            apply_matrix(pulp::Scalar, &m, rows, cols, Some(&start), tokens, &x, &mut out);
            for t in 0..tokens {
                for r in 0..rows {
                    for l in 0..LANES {
                        let plain: f64 = start[r] + (0..cols).map(|c| m[r * cols + c] * x[(t * cols + c) * LANES + l]).sum::<f64>();
                        prop_assert!((out[(t * rows + r) * LANES + l] - plain).abs() < 1e-13);
                    }
                }
            }
        }
    }

    #[test]
    fn exp_saturates_without_infinities() {
        assert!(Real::exp(-1e9f64) < 1e-300 && Real::exp(-1e9f64) >= 0.0);
        assert!(Real::exp(-1e9f32) < 1e-37);
        assert!(Real::exp(1e9f32).is_finite());
    }
}
