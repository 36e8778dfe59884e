//! Random-feature layers with infinitely many heads: exact kernels on sets.
//!
//! A layer whose values are trained sees its frozen heads only through the inner products of their features, and with ever more heads
//! those converge (at rate `M^{-1/2}`) to kernels. A head `W` has independent entries of mean `W_0` and standard deviation ½, so its
//! pre-activation at key `i`, `⟨W, x̃_0 x̃_iᵀ⟩`, has mean `t_i = ⟨W_0, x̃_0 x̃_iᵀ⟩` and standard deviation `σ_i = |x̃_0||x̃_i|/2`
//! (1 on the unit sphere), and between two sets the correlation
//!
//! ```text
//! ρ_ij = ⟨x̃_0, x̃_0'⟩⟨x̃_i, x̃_j'⟩ / |x̃_0||x̃_0'||x̃_i||x̃_j'|
//! ```
//!
//! | layer | kernel |
//! |---|---|
//! | RFA | `(1/NN') Σ_ij ⟨x̃_i, x̃_j'⟩ σ_i σ_j' κ(ρ_ij)` |
//! | BRFA | `(1/NN') Σ_ij ⟨x̃_i, x̃_j'⟩ σ_i σ_j' F(t_i/σ_i, t_j'/σ_j'; ρ_ij)` |
//! | RFMLP | `(\|z\|\|z'\|/(N+2)) κ(⟨z, z'⟩/\|z\|\|z'\|)`, `z = [vec(x_{0:N}); 1]` |
//!
//! with `κ(ρ) = E[relu(u) relu(u')]` and `F(a, b; ρ) = E[relu(a+u) relu(b+u')]` over unit Gaussians of correlation ρ. Sets may differ in
//! length (the perceptron reads missing keys as zeros) and inputs may have any norm.

mod arc;
mod biased;
mod pack;
#[cfg(test)]
mod tests;
mod tiles;

use super::{Mean, SetBlock};
use crate::linalg::Mat;
use crate::{Error, Result};
pub(super) use arc::series;
use pack::Packed;
use serde::{Deserialize, Serialize};
use tiles::Expectation;

/// Which layer has infinitely many heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelSpec {
    /// Random-feature attention: centred heads.
    Rfa,
    /// Biased random-feature attention: heads about a mean.
    Brfa {
        /// `W_0`.
        mean: Mean,
    },
    /// Random features of the whole set: the perceptron.
    Rfmlp,
}

impl KernelSpec {
    /// `K(a_i, a_j)`: symmetric, each pair computed once.
    pub fn matrix(&self, a: &SetBlock) -> Result<Mat<f64>> {
        self.matrix_until(a, &|| false)
    }

    /// The same, unless `stop` says otherwise, which is asked before every tile, on any thread.
    pub fn matrix_until(&self, a: &SetBlock, stop: &(dyn Fn() -> bool + Sync)) -> Result<Mat<f64>> {
        let (expectation, packed) = (self.expectation(), self.pack(a)?);
        tiles::matrix(&expectation, &packed, &packed, true, stop).ok_or(Error::Interrupted)
    }

    /// `K(a_i, b_j)`.
    pub fn cross(&self, a: &SetBlock, b: &SetBlock) -> Result<Mat<f64>> {
        let (x, y) = (a.shape, b.shape);
        if x.d != y.d || (matches!(self, Self::Rfmlp) && x.keys != y.keys) {
            return Err(Error::input(
                "kernel",
                format!("sets of {} keys in dimension {} beside sets of {} keys in dimension {}", x.keys, x.d, y.keys, y.d),
                "give sets of one dimension (and, for the perceptron, one number of keys)",
            ));
        }
        tiles::matrix(&self.expectation(), &self.pack(a)?, &self.pack(b)?, false, &|| false).ok_or(Error::Interrupted)
    }

    fn expectation(&self) -> Expectation {
        match self {
            Self::Rfa => Expectation::Centred,
            Self::Brfa { .. } => Expectation::Biased(Box::new(biased::Biased::new())),
            Self::Rfmlp => Expectation::Perceptron,
        }
    }

    fn pack(&self, block: &SetBlock) -> Result<Packed> {
        if let Some(place) = block.x.iter().position(|v| !v.is_finite()) {
            let set = place / ((block.shape.keys + 1) * block.shape.d).max(1);
            return Err(Error::input(format!("set {set}"), "an entry is not finite", "give finite numbers"));
        }
        Ok(match self {
            Self::Rfa => Packed::attention(block, None),
            Self::Brfa { mean } => Packed::attention(block, Some(&mean.entries(block.shape.d)?)),
            Self::Rfmlp => Packed::perceptron(block),
        })
    }
}
