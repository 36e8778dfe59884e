//! Rows of features against vectors: `⟨φ_i, x⟩` and `Σ_i c_i φ_i`, added up in double precision whatever the features are in.
//!
//! With one right-hand side both wait for memory, so the wider sums cost nothing, and conjugate gradients meet an operator that is
//! symmetric to sixteen digits even where the features are stored in single precision.

use crate::linalg::lanes::{Real, vectorised};
use pulp::{Simd, WithSimd};

const LANES: usize = 16;

/// `out_i = ⟨φ_i, x⟩` for the rows `φ_i` of `rows`.
pub(super) fn dots<T: Real>(rows: &[T], x: &[f64], out: &mut [f64]) {
    struct Dots<'a, T>(&'a [T], &'a [f64], &'a mut [f64]);
    impl<T: Real> WithSimd for Dots<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            let Self(rows, x, out) = self;
            let p = x.len();
            let whole = out.len() / 4 * 4;
            for (rows, out) in rows.chunks_exact(4 * p).zip(out.chunks_exact_mut(4)) {
                out.copy_from_slice(&tile::<T, 4>(rows, x));
            }
            for (row, out) in rows[whole * p..].chunks_exact(p).zip(&mut out[whole..]) {
                [*out] = tile::<T, 1>(row, x);
            }
        }
    }
    /// Plain loops over arrays: closures are not compiled for the vector unit, and sums that are indexed by them live in memory.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    fn tile<T: Real, const R: usize>(rows: &[T], x: &[f64]) -> [f64; R] {
        let p = x.len();
        let mut sums = [[0.0; LANES]; R];
        let whole = p / LANES * LANES;
        for e in (0..whole).step_by(LANES) {
            let x = &x[e..e + LANES];
            for r in 0..R {
                let row = &rows[r * p + e..r * p + e + LANES];
                for l in 0..LANES {
                    sums[r][l] = f64::mul_add(row[l].to_f64(), x[l], sums[r][l]);
                }
            }
        }
        let mut out = [0.0; R];
        for r in 0..R {
            for l in 0..LANES {
                out[r] += sums[r][l];
            }
            for e in whole..p {
                out[r] = f64::mul_add(rows[r * p + e].to_f64(), x[e], out[r]);
            }
        }
        out
    }
    if !x.is_empty() {
        vectorised(Dots(rows, x, out));
    }
}

/// Whether all are finite.
pub(super) fn finite<T: Real>(values: &[T]) -> bool {
    struct Finite<'a, T>(&'a [T]);
    impl<T: Real> WithSimd for Finite<'_, T> {
        type Output = bool;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> bool {
            // Zero times a finite number is zero, times any other it is not a number: no branch, so that it is done by vectors.
            const WIDE: usize = 4 * LANES;
            let mut sums = [0.0; WIDE];
            let whole = self.0.len() / WIDE * WIDE;
            for e in (0..whole).step_by(WIDE) {
                let values = &self.0[e..e + WIDE];
                for l in 0..WIDE {
                    sums[l] += 0.0 * values[l].to_f64();
                }
            }
            let mut sum = 0.0;
            for l in 0..WIDE {
                sum += sums[l];
            }
            for e in whole..self.0.len() {
                sum += 0.0 * self.0[e].to_f64();
            }
            sum == 0.0
        }
    }
    vectorised(Finite(values))
}

/// `out += Σ_i c_i φ_i`.
pub(super) fn combine<T: Real>(rows: &[T], c: &[f64], out: &mut [f64]) {
    struct Combine<'a, T>(&'a [T], &'a [f64], &'a mut [f64]);
    impl<T: Real> WithSimd for Combine<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            let Self(rows, c, out) = self;
            let p = out.len();
            let whole = c.len() / 4 * 4;
            for (rows, c) in rows.chunks_exact(4 * p).zip(c.chunks_exact(4)) {
                let (r0, rest) = rows.split_at(p);
                let (r1, rest) = rest.split_at(p);
                let (r2, r3) = rest.split_at(p);
                for ((((out, a), b), d), e) in out.iter_mut().zip(r0).zip(r1).zip(r2).zip(r3) {
                    let sum = f64::mul_add(a.to_f64(), c[0], *out);
                    let sum = f64::mul_add(b.to_f64(), c[1], sum);
                    let sum = f64::mul_add(d.to_f64(), c[2], sum);
                    *out = f64::mul_add(e.to_f64(), c[3], sum);
                }
            }
            for (row, c) in rows[whole * p..].chunks_exact(p).zip(&c[whole..]) {
                for (out, a) in out.iter_mut().zip(row) {
                    *out = f64::mul_add(a.to_f64(), *c, *out);
                }
            }
        }
    }
    if !out.is_empty() {
        vectorised(Combine(rows, c, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_that_is_not_finite_is_found_anywhere() {
        for len in [0, 1, 63, 64, 200] {
            let values = vec![-f32::MAX; len];
            assert!(finite(&values));
            for at in 0..len {
                for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = values.clone();
                    values[at] = wrong;
                    assert!(!finite(&values), "{wrong} at {at} of {len}");
                    let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
                    assert!(!finite(&wide));
                }
            }
        }
    }
}
