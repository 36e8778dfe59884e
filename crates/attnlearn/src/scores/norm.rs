//! Query/key norms: a vector is divided by its root mean square, and its coordinates weighted.
//!
//! ```text
//! n = v / rms,   rms² = |v|²/r + ε      v̂ = γ ∘ n
//! dv̂ = γ ∘ (dv − n ⟨n, dv⟩/r)/rms + dγ ∘ n             ∂γ = Σ ∂v̂ ∘ n,   ∂v = (γ∘∂v̂ − n ⟨n, γ∘∂v̂⟩/r)/rms
//! ```
//!
//! Vectors are `[width][L]`: `L` of them interleaved.

use crate::linalg::lanes::Real;

/// `1/rms` of each of the vectors.
#[inline(always)]
fn inverse_rms<T: Real, const L: usize>(v: &[T], epsilon: f64) -> [T; L] {
    let mut sums = [T::ZERO; L];
    for entry in v.as_chunks::<L>().0 {
        for l in 0..L {
            sums[l] = entry[l].mul_add(entry[l], sums[l]);
        }
    }
    let width = (v.len() / L) as f64;
    sums.map(|sum| T::from_f64(1.0 / (sum.to_f64() / width + epsilon).max(f64::MIN_POSITIVE).sqrt()))
}

/// `⟨a, b⟩/r` of each pair.
#[inline(always)]
fn mean_product<T: Real, const L: usize>(a: &[T], b: &[T]) -> [T; L] {
    let mut sums = [T::ZERO; L];
    for (a, b) in a.as_chunks::<L>().0.iter().zip(b.as_chunks::<L>().0) {
        for l in 0..L {
            sums[l] = a[l].mul_add(b[l], sums[l]);
        }
    }
    let width = T::from_f64((a.len() / L) as f64);
    sums.map(|sum| sum / width)
}

/// `v ← γ ∘ v/rms`.
#[inline(always)]
pub fn normalise<T: Real, const L: usize>(v: &mut [T], gains: &[T], epsilon: f64) {
    let scale = inverse_rms::<T, L>(v, epsilon);
    for (v, gain) in v.as_chunks_mut::<L>().0.iter_mut().zip(gains) {
        for l in 0..L {
            v[l] = v[l] * scale[l] * *gain;
        }
    }
}

/// `dv ← dv̂` at the raw `v`, along `dv` and `dγ`.
#[inline(always)]
pub fn derivative<T: Real, const L: usize>(v: &[T], gains: &[T], along_gains: &[T], dv: &mut [T], epsilon: f64) {
    let scale = inverse_rms::<T, L>(v, epsilon);
    // ⟨n, dv⟩/r, n = v/rms.
    let mut mean = mean_product::<T, L>(v, dv);
    (0..L).for_each(|l| mean[l] = mean[l] * scale[l]);
    for (i, (dv, v)) in dv.as_chunks_mut::<L>().0.iter_mut().zip(v.as_chunks::<L>().0).enumerate() {
        for l in 0..L {
            let n = v[l] * scale[l];
            dv[l] = gains[i] * (dv[l] - n * mean[l]) * scale[l] + along_gains[i] * n;
        }
    }
}

/// `∂v̂ → ∂v` in place at the raw `v`; `∂γ` is added to.
#[inline(always)]
pub fn adjoint<T: Real, const L: usize>(v: &[T], gains: &[T], of_gains: &mut [T], dv: &mut [T], epsilon: f64) {
    let scale = inverse_rms::<T, L>(v, epsilon);
    for (i, (dv, v)) in dv.as_chunks_mut::<L>().0.iter_mut().zip(v.as_chunks::<L>().0).enumerate() {
        for l in 0..L {
            of_gains[i] += dv[l] * v[l] * scale[l];
            dv[l] = dv[l] * gains[i];
        }
    }
    let mut mean = mean_product::<T, L>(v, dv);
    (0..L).for_each(|l| mean[l] = mean[l] * scale[l]);
    for (dv, v) in dv.as_chunks_mut::<L>().0.iter_mut().zip(v.as_chunks::<L>().0) {
        for l in 0..L {
            dv[l] = (dv[l] - v[l] * scale[l] * mean[l]) * scale[l];
        }
    }
}
