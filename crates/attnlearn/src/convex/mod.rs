//! Convex programs over a body of slabs,
//!
//! ```text
//! K = { θ ∈ R^p :  |⟨v_r, θ⟩ − ℓ_r| ≤ ξ_r  (r = 1 … N),   |θ_j| ≤ R }
//! ```
//!
//! with few coordinates (p ≤ 256 or so) and many dense rows (N up to 10⁵ and more); rows may be one-sided.
//! Phases 2 to 5 of the provable learner are questions about such a body:
//!
//! - [`minimum_norm()`]: its point nearest to the origin, with the multipliers that prove it;
//! - [`extent()`]: how far it reaches along a direction;
//! - [`wide_directions`]: the directions in which it is widest;
//! - [`least_inflation`], [`least_widening`]: by how much its rows must give way for a point to satisfy them all.
//!
//! Each is a linear or quadratic program for one interior-point method. Tolerances are relative to the size of the
//! problem (how far the rows are from the origin): values are accurate to about [`Settings::tolerance`] times that size,
//! a slab thinner than a tenth of it is an equation, and a body counts as empty when it is empty by ten times as much.
//! An empty body is an outcome with a certificate ([`Status::Empty`]), not an error. Results have the same bits on any
//! number of threads.

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
