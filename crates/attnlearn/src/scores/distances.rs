//! Functions of the distance: what takes the place of a rotation while its pairs are still being looked for.
//!
//! A rotary head sees the distance `Δ = a − b` through `cos ω_jΔ` and `sin ω_jΔ` alone (and through 1, where some coordinates stand still). On the few distances within a sequence
//! these functions span far fewer dimensions than there are pairs: with an orthonormal basis `φ_1 … φ_M` of them
//!
//! ```text
//! ⟨R_a q, R_b k⟩ = q R_{−Δ} kᵀ = Σ_m φ_m(Δ) q S_m kᵀ,     S_m = Σ_Δ φ_m(Δ) R_{−Δ}
//! ```
//!
//! and a student whose matrices `K_m` are free, where `S_m` are given, has no pairs that could stand in each other's place.

use super::{Mask, Rotation};
use crate::linalg::Mat;
use serde::{Deserialize, Serialize};

/// Singular values below this share of the largest are none: what the functions say there is lost in rounding.
const NONE: f64 = 1e-10;

/// An orthonormal basis of the functions of the distance that a rotation knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distances {
    /// The least distance.
    first: isize,
    /// M.
    functions: usize,
    /// `φ_m(Δ)`, `[Δ][m]`.
    values: Vec<f64>,
}

impl Distances {
    /// Of a rotation of heads of dimension `r`, over the distances that a mask shows in sequences of `k` tokens; `None` if that is not to be had.
    pub fn of(rotation: &Rotation, r: usize, mask: Mask, k: usize) -> Option<Self> {
        let last = match mask {
            Mask::Window(window) => k.min(window),
            _ => k,
        } as isize
            - 1;
        let first = if mask.is_causal() { 0 } else { -last };
        let (count, n) = ((last - first) as usize + 1, rotation.frequencies.len());
        let still = usize::from(r > rotation.turned());
        let sampled = Mat::from_fn(count, 2 * n + still, |at, j| {
            let distance = (first + at as isize) as f64;
            match j {
                j if j < n => (rotation.frequencies[j] * distance).cos(),
                j if j < 2 * n => (rotation.frequencies[j - n] * distance).sin(),
                _ => 1.0,
            }
        });
        let svd = sampled.thin_svd().ok()?;
        let (u, s) = (svd.U(), svd.S().column_vector());
        let largest = (0..s.nrows()).map(|j| s[j]).fold(0.0, f64::max);
        let functions = (0..s.nrows()).filter(|j| s[*j] > NONE * largest).count();
        let values = (0..count).flat_map(|at| (0..functions).map(move |m| (at, m))).map(|at| u[at]).collect();
        Some(Self { first, functions, values })
    }

    /// The least distance.
    pub fn first(&self) -> isize {
        self.first
    }

    /// How many distances there are.
    pub fn count(&self) -> usize {
        self.values.len() / self.functions.max(1)
    }

    /// M.
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// `φ_m(Δ)`, `[Δ][m]`.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// `S_m`, r × r each.
    pub fn of_rotation(&self, rotation: &Rotation, r: usize) -> Vec<Mat<f64>> {
        let n = rotation.frequencies.len();
        let matrix = |m: usize| {
            let mut sum = Mat::zeros(r, r);
            for at in 0..self.count() {
                let (distance, weight) = ((self.first + at as isize) as f64, self.values[at * self.functions + m]);
                for (j, frequency) in rotation.frequencies.iter().enumerate() {
                    let (sin, cos) = (frequency * distance).sin_cos();
                    // (x + iy)(x' − iy')e^{iωΔ}: xx' + yy' with the cosine, xy' − yx' with the sine.
                    sum[(j, j)] += weight * cos;
                    sum[(j + n, j + n)] += weight * cos;
                    sum[(j, j + n)] += weight * sin;
                    sum[(j + n, j)] -= weight * sin;
                }
                (2 * n..r).for_each(|i| sum[(i, i)] += weight);
            }
            sum
        };
        (0..self.functions).map(matrix).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::{Inner, Scores};

    /// `Σ_m φ_m(Δ) q S_m kᵀ` is the product of the turned vectors, for all distances, whatever turns; and slow pairs need few functions.
    #[test]
    fn functions_of_the_distance_say_what_a_rotation_says() {
        for (mask, base, turned, r) in [(Mask::Causal, 1e4, 8, 8), (Mask::None, 100.0, 6, 8), (Mask::Window(5), 1e4, 8, 9)] {
            let (rotation, k) = (Rotation::of_base(base, turned), 12);
            let basis = Distances::of(&rotation, r, mask, k).expect("small");
            let matrices = basis.of_rotation(&rotation, r);
            assert!(basis.functions() <= basis.count().min(r + 1));
            let inner = Inner::<f64>::new(&Scores { rotation: Some(rotation), ..Scores::default() }, r, k).expect("it turns");
            let q: Vec<f64> = (0..r).map(|i| (i as f64 + 0.3).sin()).collect();
            let key: Vec<f64> = (0..r).map(|i| (2.0 * i as f64 + 0.1).cos()).collect();
            for a in 0..k {
                for b in mask.seen(a, k) {
                    let turned = |v: &[f64], position: usize| {
                        let mut v = v.to_vec();
                        inner.apply::<1>(position, &[], &mut v);
                        v
                    };
                    let exact: f64 = turned(&q, a).iter().zip(turned(&key, b)).map(|(q, k)| q * k).sum();
                    let at = (a as isize - b as isize - basis.first()).unsigned_abs() * basis.functions();
                    let product = |m: &Mat<f64>| (0..r * r).map(|ij| q[ij / r] * m[(ij / r, ij % r)] * key[ij % r]).sum::<f64>();
                    let said: f64 = matrices.iter().enumerate().map(|(m, s)| basis.values()[at + m] * product(s)).sum();
                    assert!((said - exact).abs() < 1e-9, "{mask} {a} {b}: {said} and {exact}");
                }
            }
        }
    }
}
