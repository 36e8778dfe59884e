//! The point of the body nearest to the origin,
//!
//! ```text
//! θ̄ = argmin { ½ ‖θ‖² : θ ∈ K }
//! ```
//!
//! It is characterised by multipliers `λ` of the rows and `β` of the box (Karush, Kuhn and Tucker):
//!
//! ```text
//! θ̄ = Vᵀ λ + β,      λ_r > 0 ⇒ ⟨v_r, θ̄⟩ = lower_r,     λ_r < 0 ⇒ ⟨v_r, θ̄⟩ = upper_r,     likewise β for |θ_j| ≤ R
//! ```

use super::interior;
use super::program::Objective;
use super::{Body, Residuals, Settings, Status, inflation};
use crate::Result;

/// The minimum-norm point of a body, with the multipliers that prove it.
#[derive(Clone, Debug)]
pub struct MinimumNorm {
    /// `θ̄`.
    pub point: Vec<f64>,
    /// `λ`: positive where the lower bound is met, negative where the upper one is.
    pub multipliers: Vec<f64>,
    /// `β`: positive where `θ_j = −R`, negative where `θ_j = R`.
    pub box_multipliers: Vec<f64>,
    /// How far point and multipliers are from optimality, relative.
    pub residuals: Residuals,
    /// Interior-point steps taken.
    pub iterations: usize,
    /// Solved, empty or stalled.
    pub status: Status,
}

/// `argmin { ½ ‖θ‖² : θ ∈ K }`.
pub fn minimum_norm(body: &Body, settings: &Settings) -> Result<MinimumNorm> {
    settings.check()?;
    let origin = vec![0.0; body.dimension()];
    if (0..body.count()).all(|r| body.lower()[r] <= 0.0 && body.upper()[r] >= 0.0) {
        return Ok(MinimumNorm {
            multipliers: vec![0.0; body.count()],
            box_multipliers: origin.clone(),
            point: origin,
            residuals: Residuals { primal: 0.0, dual: 0.0, gap: 0.0 },
            iterations: 0,
            status: Status::Solved,
        });
    }
    let mut solution = interior::solve(body, body.lower(), body.upper(), Objective::Norm, settings);
    solution.status = inflation::settle(body, solution.status, settings);
    Ok(MinimumNorm {
        point: solution.point,
        multipliers: solution.multipliers,
        box_multipliers: solution.box_multipliers,
        residuals: solution.residuals,
        iterations: solution.iterations,
        status: solution.status,
    })
}
