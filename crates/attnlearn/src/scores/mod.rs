//! What the scores of a head are made of: the one place that knows.
//!
//! For the query `x_a` and the key token `z_b` of one sequence (`z = x` but in cross-attention) the logit of a head is
//!
//! ```text
//! q_a = x_a A + a°      k_b = z_b B + b°      ℓ_ab = ⟨R_a N_γ(q_a), R_b N_κ(k_b)⟩ + ⟨c, z_b⟩ + β(a − b)      p = softmax over b ∈ seen(a)
//! ```
//!
//! | part | what it is | where |
//! |---|---|---|
//! | `seen(a)` | all keys, those up to `a`, or a window of them | [`Mask`] |
//! | `R_a` | rotary positions: pairs of coordinates turned by `ω_j a` | [`Rotation`] |
//! | `N_γ` | query/key norms: `γ ∘ q / rms(q)` | [`norm`] |
//! | `K_m` | matrices that are free, one for every function of the distance, while pairs are looked for | [`Distances`] |
//! | `β` | a relative bias: a table of distances, or a slope | [`Relative`] |
//!
//! A head without rotation and norm has the bilinear score `x_a Θ z_bᵀ`, `Θ = ABᵀ`, and its query bias is the key bias `c = B a°`. The rest of the crate
//! asks a [`Scores`] for what it needs: the keys that a query sees, and the map [`Inner`] from raw queries and keys to those whose inner products are logits, with its derivative and
//! adjoint. Vectors may be interleaved, as panels are: see [`Inner`].

mod distances;
pub mod inner;
mod mask;
pub mod norm;
mod relative;
mod rotation;

pub use distances::Distances;
pub use inner::Inner;
pub use mask::Mask;
pub use relative::Relative;
pub use rotation::Rotation;

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How the scores of a layer are made, beyond its numbers: what all heads have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Which keys a query may attend to.
    pub mask: Mask,
    /// Rotary positions.
    pub rotation: Option<Rotation>,
    /// Query/key norms: the `ε` beside the mean square.
    pub norm: Option<f64>,
    /// Functions of the distance with matrices that are free, in place of a rotation: for students on their way to one.
    pub distances: Option<Distances>,
}

impl From<Mask> for Scores {
    fn from(mask: Mask) -> Self {
        Self::of(mask)
    }
}

impl Scores {
    /// Bilinear scores under a mask.
    pub const fn of(mask: Mask) -> Self {
        Self { mask, rotation: None, norm: None, distances: None }
    }

    /// Whether scores are `x_a Θ z_bᵀ + ⟨c, z_b⟩`, up to a relative bias: no rotation, no norm.
    pub fn is_bilinear(&self) -> bool {
        self.rotation.is_none() && self.norm.is_none() && self.distances.is_none()
    }

    /// Refuses what no head of dimension `r` can have.
    pub fn check(&self, r: usize, place: &str) -> Result<()> {
        self.mask.check(place)?;
        if let Some(epsilon) = self.norm.filter(|epsilon| !(epsilon.is_finite() && *epsilon >= 0.0)) {
            return Err(Error::input(
                place,
                format!("an ε of {epsilon} beside the mean square"),
                "give a number that is not negative",
            ));
        }
        self.rotation.as_ref().map_or(Ok(()), |rotation| rotation.check(r, place))
    }
}
