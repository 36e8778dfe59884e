//! How much the rows must give way before a point satisfies them all: the Chebyshev programs
//!
//! ```text
//! least inflation   min { t ≥ 0 : |⟨v_r, θ⟩ − ℓ_r| ≤ t w_r,                         |θ_j| ≤ R }
//! least widening    min { t ≥ 0 : lower_r − t w_r ≤ ⟨v_r, θ⟩ ≤ upper_r + t w_r,    |θ_j| ≤ R }
//! ```
//!
//! The first forgets the half-widths and asks what they should have been; the second asks whether the body is empty,
//! which it is exactly when `t > 0`.

use super::interior::{self, Solution};
use super::program::{EMPTY, Objective, nonzero_norms};
use super::{Body, Residuals, Settings, Status};
use crate::{Error, Result};

/// The least inflation of a body, and where it leaves a point.
#[derive(Clone, Debug)]
pub struct Inflation {
    /// The least `t ≥ 0`.
    pub t: f64,
    /// A point of the inflated body.
    pub point: Vec<f64>,
    /// How far this is from optimal, relative.
    pub residuals: Residuals,
    /// Interior-point steps taken.
    pub iterations: usize,
    /// Solved or stalled; an inflated body is never empty.
    pub status: Status,
}

/// The smallest `t ≥ 0` such that some `θ` in the box has `|⟨v_r, θ⟩ − ℓ_r| ≤ t w_r` for all rows, `ℓ_r` the middle of the
/// bounds; a one-sided row asks `⟨v_r, θ⟩ ≥ lower_r − t w_r` (or `≤ upper_r + t w_r`). The weights must be positive.
pub fn least_inflation(body: &Body, weights: &[f64], settings: &Settings) -> Result<Inflation> {
    let centre = |r: usize| {
        let (lower, upper) = (body.lower()[r], body.upper()[r]);
        let middle = 0.5 * lower + 0.5 * upper;
        if middle.is_finite() { (middle, middle) } else { (lower, upper) }
    };
    let (lower, upper): (Vec<f64>, Vec<f64>) = (0..body.count()).map(centre).unzip();
    inflate(body, &lower, &upper, weights, settings)
}

/// The smallest `t ≥ 0` such that some `θ` in the box has `lower_r − t w_r ≤ ⟨v_r, θ⟩ ≤ upper_r + t w_r` for all rows:
/// 0 unless the body is empty. The weights must be positive.
pub fn least_widening(body: &Body, weights: &[f64], settings: &Settings) -> Result<Inflation> {
    inflate(body, body.lower(), body.upper(), weights, settings)
}

fn inflate(body: &Body, lower: &[f64], upper: &[f64], weights: &[f64], settings: &Settings) -> Result<Inflation> {
    settings.check()?;
    if weights.len() != body.count() {
        let problem = format!("there are {} and the body has {} rows", weights.len(), body.count());
        return Err(Error::input("weights of an inflation", problem, "give one weight for each row"));
    }
    if let Some(w) = weights.iter().find(|w| !(**w > 0.0 && w.is_finite())) {
        return Err(Error::input("weights of an inflation", format!("one is {w}"), "give positive finite weights"));
    }
    let Solution { t, point, residuals, iterations, status, .. } =
        interior::solve(body, lower, upper, Objective::Inflation(weights), settings);
    Ok(Inflation { t: t.max(0.0), point, residuals, iterations, status })
}

/// The last word on a program that stalled: the least widening of a body always exists, and when it is positive its
/// multipliers prove the body empty.
pub(super) fn settle(body: &Body, status: Status, settings: &Settings) -> Status {
    if status != Status::Stalled {
        return status;
    }
    let norms = nonzero_norms(body);
    let widening = interior::solve(body, body.lower(), body.upper(), Objective::Inflation(&norms), settings);
    let by = widening.proven_violation;
    if by > EMPTY * settings.tolerance * widening.length { Status::Empty { by } } else { Status::Stalled }
}
