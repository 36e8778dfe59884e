//! Arithmetic on sixteen examples at a time.
//!
//! A *panel* holds [`LANES`] examples interleaved: the entry `[row][column]` of all sixteen stands in sixteen
//! consecutive numbers. Every operation on small matrices then becomes the same operation on vectors of sixteen,
//! whatever the sizes k and d.
//! Call the kernels inside [`vectorised`], which picks the best instruction set of the machine at run time.

use pulp::{Arch, Simd, WithSimd};
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Range, Sub};

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
    /// `a + b` in every lane.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a − b` in every lane.
    fn minus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a · b` in every lane.
    fn times<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a / b` in every lane.
    fn over<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// The larger of the two in every lane.
    fn larger<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
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
    #[inline(always)]
    fn plus<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.add_f32s(a, b)
    }
    #[inline(always)]
    fn minus<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.sub_f32s(a, b)
    }
    #[inline(always)]
    fn times<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.mul_f32s(a, b)
    }
    #[inline(always)]
    fn over<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.div_f32s(a, b)
    }
    #[inline(always)]
    fn larger<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.max_f32s(a, b)
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
    #[inline(always)]
    fn plus<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.add_f64s(a, b)
    }
    #[inline(always)]
    fn minus<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.sub_f64s(a, b)
    }
    #[inline(always)]
    fn times<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.mul_f64s(a, b)
    }
    #[inline(always)]
    fn over<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.div_f64s(a, b)
    }
    #[inline(always)]
    fn larger<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.max_f64s(a, b)
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
pub(crate) const fn chunks<T: Real, S: Simd>() -> usize {
    LANES * size_of::<T>() / size_of::<T::Vector<S>>()
}

/// `out[b] = ‖x[b] − y‖²` for `tokens` vectors `x[b]`, lane by lane; `y` is `[d][LANES]`, `x` is `[tokens][d][LANES]`.
#[inline(always)]
pub fn square_distances<S: Simd>(simd: S, y: &[f32], x: &[f32], tokens: usize, out: &mut [f32]) {
    let (y, x, out) = (f32::vectors::<S>(y), f32::vectors::<S>(x), f32::vectors_mut::<S>(out));
    let mut b = 0;
    while b + 4 <= tokens {
        distances_tile::<S, 4>(simd, y, x, b, out);
        b += 4;
    }
    if b + 2 <= tokens {
        distances_tile::<S, 2>(simd, y, x, b, out);
        b += 2;
    }
    if b < tokens {
        distances_tile::<S, 1>(simd, y, x, b, out);
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn distances_tile<S: Simd, const B: usize>(simd: S, y: &[S::f32s], x: &[S::f32s], first: usize, out: &mut [S::f32s]) {
    let (chunks, len) = (chunks::<f32, S>(), y.len());
    let x = &x[first * len..(first + B) * len];
    for chunk in 0..chunks {
        let mut sum = [simd.splat_f32s(0.0); B];
        for e in (chunk..len).step_by(chunks) {
            for b in 0..B {
                let gap = simd.sub_f32s(x[b * len + e], y[e]);
                sum[b] = simd.mul_add_f32s(gap, gap, sum[b]);
            }
        }
        for b in 0..B {
            out[(first + b) * chunks + chunk] = sum[b];
        }
    }
}

/// Row by row, lane by lane, `p[a] ← softmax(p[a])` over those of the `tokens` logits that are `visible`, 0 for the others;
/// `p` is `[tokens][tokens][LANES]`.
#[inline(always)]
pub fn softmax<T: Real, S: Simd>(simd: S, tokens: usize, visible: impl Fn(usize) -> Range<usize>, p: &mut [T]) {
    let width = chunks::<T, S>();
    for (a, row) in T::vectors_mut::<S>(p).chunks_exact_mut(tokens * width).enumerate() {
        for chunk in 0..width {
            let mut top = row[visible(a).start * width + chunk];
            for b in visible(a) {
                top = T::larger(simd, top, row[b * width + chunk]);
            }
            for b in 0..tokens {
                row[b * width + chunk] = T::minus(simd, row[b * width + chunk], top);
            }
        }
    }
    // One long loop over all exponentials: the loop vectoriser takes it whole.
    for v in p.iter_mut() {
        *v = v.exp();
    }
    for (a, row) in T::vectors_mut::<S>(p).chunks_exact_mut(tokens * width).enumerate() {
        for chunk in 0..width {
            let Range { start, end } = visible(a);
            let mut total = row[start * width + chunk];
            for b in start + 1..end {
                total = T::plus(simd, total, row[b * width + chunk]);
            }
            let scale = T::over(simd, T::splat(simd, T::ONE), total);
            for b in start..end {
                row[b * width + chunk] = T::times(simd, row[b * width + chunk], scale);
            }
            for b in (0..start).chain(end..tokens) {
                row[b * width + chunk] = T::splat(simd, T::ZERO);
            }
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
    }

    #[test]
    fn exp_saturates_without_infinities() {
        assert!(Real::exp(-1e9f64) < 1e-300 && Real::exp(-1e9f64) >= 0.0);
        assert!(Real::exp(-1e9f32) < 1e-37);
        assert!(Real::exp(1e9f32).is_finite());
    }
}
