//! Input distributions over sequences `X ∈ R^{k×d}` with independent tokens of covariance `I`.

use super::Block;
use crate::linalg::lanes::{LANES, Real, vectorised};
use pulp::{Simd, WithSimd};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InputDistribution {
    /// Uniform on `{±1}^d`.
    #[default]
    Boolean,
    /// Standard normal.
    Gaussian,
    /// Uniform on the sphere of radius √d.
    Sphere,
}

impl InputDistribution {
    /// Draws the inputs of a full block.
    pub fn fill<T: Real>(self, rng: &mut impl Rng, block: &mut Block<T>) {
        self.fill_first(rng, block, Block::<T>::CAPACITY);
    }

    /// Draws the first `n` inputs of a block: those that [`Self::fill`] draws first.
    pub(crate) fn fill_first<T: Real>(self, rng: &mut impl Rng, block: &mut Block<T>, n: usize) {
        let d = block.shape().d;
        block.set_len(n);
        for (x, _) in block.panels_mut() {
            match self {
                Self::Boolean => signs(rng, x),
                Self::Gaussian => normals(rng, x),
                Self::Sphere => {
                    normals(rng, x);
                    x.chunks_exact_mut(d * LANES).for_each(|token| to_sphere(token, d));
                }
            }
        }
    }
}

/// One random bit a number; 32 bits serve two entries of the panel.
fn signs<T: Real>(rng: &mut impl Rng, x: &mut [T]) {
    struct Unpack<'a, T> {
        bits: &'a [u32],
        x: &'a mut [T],
    }
    impl<T: Real> WithSimd for Unpack<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            for (i, entry) in self.x.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let bits = self.bits[i / 2] >> (i % 2 * LANES);
                for l in 0..LANES {
                    entry[l] = if (bits >> l) & 1 == 1 { T::ONE } else { -T::ONE };
                }
            }
        }
    }
    let bits: Vec<u32> = (0..x.len().div_ceil(2 * LANES)).map(|_| rng.next_u32()).collect();
    vectorised(Unpack { bits: &bits, x });
}

fn normals<T: Real>(rng: &mut impl Rng, x: &mut [T]) {
    for v in x {
        *v = T::from_f64(rng.sample(StandardNormal));
    }
}

/// Scales one token of a panel to norm √d, lane by lane.
fn to_sphere<T: Real>(token: &mut [T], d: usize) {
    for l in 0..LANES {
        let square: f64 = (0..d).map(|e| token[e * LANES + l].to_f64().powi(2)).sum();
        let scale = T::from_f64((d as f64 / square).sqrt());
        for e in 0..d {
            token[e * LANES + l] = token[e * LANES + l] * scale;
        }
    }
}
