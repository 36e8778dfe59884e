//! Convex programs over a body of slabs,
//!
//! ```text
//! K = { θ ∈ R^p :  |⟨v_r, θ⟩ − ℓ_r| ≤ ξ_r  (r = 1 … N),   |θ_j| ≤ R }
//! ```
//!
//! with few coordinates (p ≤ 256 or so) and many dense rows (N up to 10⁵ and more); rows may be one-sided.
//! Phases 2 to 5 of the provable learner are questions about such a body:
//!
//! - [`minimum_norm`]: its point nearest to the origin, with the multipliers that prove it;
//! - [`extent`]: how far it reaches along a direction;
//! - [`wide_directions`]: the directions in which it is widest;
//! - [`least_inflation`], [`least_widening`]: by how much its rows must give way for a point to satisfy them all.
//!
//! Each is a linear or quadratic program for one interior-point method ([`interior`]). An empty body is an outcome,
//! proven by a certificate ([`Status::Empty`]), not an error. Results have the same bits on any number of threads.

mod body;
mod constraint;
mod extent;
mod inflation;
mod interior;
mod minimum_norm;
mod normal;
mod program;
mod rows;
mod settings;
#[cfg(test)]
mod tests;
mod wide;

pub use body::Body;
pub use extent::{Extent, extent};
pub use inflation::{Inflation, least_inflation, least_widening};
pub use minimum_norm::{MinimumNorm, minimum_norm};
pub use settings::{Residuals, Settings, Status};
pub use wide::{WideDirections, WideSettings, wide_directions};
