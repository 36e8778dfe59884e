//! How hard the convex solver tries, and how it says how it went.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Settings of the interior-point method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Relative size of the residuals and of the duality gap at which a point counts as optimal. Default 1e-9.
    pub tolerance: f64,
    /// Most interior-point steps for one program. Default 100.
    pub max_iterations: usize,
    /// Part of the way to the boundary that a step may go. Default 0.995.
    pub step_fraction: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { tolerance: 1e-9, max_iterations: 100, step_fraction: 0.995 }
    }
}

impl Settings {
    /// Whether the settings can be used.
    pub fn check(&self) -> Result<()> {
        let problem =
            |field: &str, problem: String, remedy: &str| Err(Error::input(format!("convex settings, {field}"), problem, remedy));
        if !(self.tolerance >= 1e-13 && self.tolerance <= 1e-2) {
            return problem("tolerance", format!("it is {}", self.tolerance), "choose it between 1e-13 and 1e-2");
        }
        if self.max_iterations == 0 {
            return problem("max_iterations", "it is 0".into(), "allow at least one step");
        }
        if !(self.step_fraction >= 0.5 && self.step_fraction < 1.0) {
            return problem("step_fraction", format!("it is {}", self.step_fraction), "choose it in [0.5, 1)");
        }
        Ok(())
    }
}

/// How a convex program ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Optimal to the tolerance.
    Solved,
    /// The body is empty: multipliers were found which prove that every point of the box violates some row `r` by at
    /// least `by · ‖v_r‖`. The point returned is none of the body's.
    Empty {
        /// A proven lower bound on `min_θ max_r violation_r(θ) / ‖v_r‖`.
        by: f64,
    },
    /// Neither optimal to the tolerance nor proven empty: the best point found, of the quality that the residuals say.
    Stalled,
}

/// How far a point and its multipliers are from the conditions of optimality, relative to the size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Residuals {
    /// Largest violation of a row of length 1.
    pub primal: f64,
    /// Largest entry of the gradient of the Lagrange function.
    pub dual: f64,
    /// Difference of the primal and the dual objective.
    pub gap: f64,
}

impl Residuals {
    /// The largest of the three; infinite when one is not a number.
    pub fn worst(&self) -> f64 {
        let worst = |worst: f64, residual: f64| if residual.is_nan() { f64::INFINITY } else { worst.max(residual) };
        [self.primal, self.dual, self.gap].into_iter().fold(0.0, worst)
    }
}
