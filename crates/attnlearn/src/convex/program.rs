//! A program over a body, in the units of the interior-point method:
//!
//! ```text
//! minimise    q/2 ‖θ‖² + ⟨c, θ⟩ + γ t
//! subject to  lower_r − w_r t ≤ ⟨a_r, θ⟩ ≤ upper_r + w_r t,     |θ_j| ≤ R,     t ≥ 0
//! ```
//!
//! with `q = 1` for the minimum norm, `c = ±u` for the extent along `u`, and `γ = 1` for the least inflation; without `t`
//! in the first two. Rows have length 1 and `θ` is measured by a length taken from the rows, so that every tolerance is
//! relative and nothing depends on how the caller scaled rows, bounds or direction.

use super::constraint::Constraint;
use super::{Body, Settings};

/// What is minimised.
#[derive(Clone, Copy, Debug)]
pub(super) enum Objective<'a> {
    /// `½ ‖θ‖²`.
    Norm,
    /// `⟨c, θ⟩`.
    Linear(&'a [f64]),
    /// `t`, with these weights `w > 0`.
    Inflation(&'a [f64]),
}

/// A slab whose half-width is below this part of the tolerance is an equation.
const THIN: f64 = 0.1;

/// A body counts as empty when some row of length 1 must be violated by this many tolerances.
pub(super) const EMPTY: f64 = 10.0;

/// The program, scaled.
pub(super) struct Program<'a> {
    /// The rows `v` of the body; the method's `a` are these times the constraints' `scale`.
    pub rows: &'a [f64],
    pub p: usize,
    pub q: f64,
    pub c: Vec<f64>,
    pub radius: f64,
    pub constraints: Vec<Constraint>,
    /// `|θ_j| ≤ R`.
    pub box_sides: Vec<Constraint>,
    /// `t ≥ 0`, when there is a `t`.
    pub floor: Option<Constraint>,
    /// The unit of `θ`.
    pub length: f64,
    /// The unit of `t`.
    pub inflation_unit: f64,
    /// The unit of the objective.
    pub objective_unit: f64,
}

impl<'a> Program<'a> {
    /// Minimises `objective` over `lower ≤ V θ ≤ upper` within the box of `body`. When one row alone shows that there is
    /// no such point, returns the violation that none can avoid, in units of the row's length.
    pub fn new(
        body: &'a Body,
        lower: &[f64],
        upper: &[f64],
        objective: Objective<'_>,
        softness: f64,
        settings: &Settings,
    ) -> Result<Self, f64> {
        let (p, n) = (body.dimension(), body.count());
        let weights = if let Objective::Inflation(weights) = objective { Some(weights) } else { None };
        let norms = nonzero_norms(body);
        // A bound that the box cannot reach says nothing.
        let bounds = |r: usize| {
            let reach = body.reaches()[r];
            let lower = if lower[r] <= -reach { f64::NEG_INFINITY } else { lower[r] };
            let upper = if upper[r] >= reach { f64::INFINITY } else { upper[r] };
            (lower, upper)
        };

        // The unit of length: how far the rows are from the origin.
        let distance = |r: usize| {
            let (lower, upper) = bounds(r);
            let distance = match objective {
                Objective::Norm => lower.max(-upper).max(0.0), // of the slab: the minimum norm is no less
                _ => lower.abs().min(upper.abs()),             // of its nearer face
            };
            if distance.is_finite() { distance / norms[r] } else { 0.0 }
        };
        let length = (0..n).map(distance).fold(0.0, f64::max).min(body.radius() * (p as f64).sqrt());
        let length = if length > 0.0 { length } else { body.radius() };

        // The unit of t: such that rows open at speed 1 on (geometric) average.
        let log_speed = weights.map_or(0.0, |w| (0..n).map(|r| (w[r] / norms[r]).ln()).sum::<f64>() / n.max(1) as f64);
        let inflation_unit = length / log_speed.exp();

        let row = |r: usize| {
            let (lower, upper) = bounds(r);
            let (scale, unit) = (1.0 / norms[r], norms[r] * length);
            if let Some(w) = weights {
                return Ok(Constraint::slab(scale, lower / unit, upper / unit, w[r] * inflation_unit / unit, softness));
            }
            let by = (lower - body.reaches()[r]).max(-upper - body.reaches()[r]) / norms[r];
            if by > EMPTY * settings.tolerance * length {
                Err(by)
            } else if body.norms()[r] > 0.0 && upper - lower <= 2.0 * THIN * settings.tolerance * unit {
                Ok(Constraint::equation(scale, 0.5 * (lower + upper) / unit, softness))
            } else if body.norms()[r] > 0.0 {
                Ok(Constraint::slab(scale, lower / unit, upper / unit, 0.0, softness))
            } else {
                Ok(Constraint::slab(scale, f64::NEG_INFINITY, f64::INFINITY, 0.0, softness)) // 0 is within its bounds: says nothing
            }
        };
        let constraints = (0..n).map(row).collect::<Result<_, f64>>()?;

        let (q, c, objective_unit) = match objective {
            Objective::Norm => (1.0, vec![0.0; p], length * length),
            Objective::Linear(u) => {
                let norm = u.iter().map(|u| u * u).sum::<f64>().sqrt();
                (0.0, u.iter().map(|u| u / norm).collect(), norm * length)
            }
            Objective::Inflation(_) => (0.0, vec![0.0; p], inflation_unit),
        };
        let radius = body.radius() / length;
        Ok(Self {
            rows: body.rows(),
            p,
            q,
            c,
            radius,
            constraints,
            box_sides: (0..p).map(|_| Constraint::slab(1.0, -radius, radius, 0.0, softness)).collect(),
            floor: weights.map(|_| Constraint::slab(1.0, 0.0, f64::INFINITY, 0.0, softness)),
            length,
            inflation_unit,
            objective_unit,
        })
    }

    /// `γ`.
    pub fn gamma(&self) -> f64 {
        if self.floor.is_some() { 1.0 } else { 0.0 }
    }

    /// All constraints.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Constraint> {
        self.constraints.iter_mut().chain(&mut self.box_sides).chain(&mut self.floor)
    }
}

/// `‖v_r‖`, and for a row of zeros, which has no length of its own, the largest.
pub(super) fn nonzero_norms(body: &Body) -> Vec<f64> {
    let largest = body.norms().iter().copied().fold(0.0, f64::max);
    let spare = if largest > 0.0 { largest } else { 1.0 };
    body.norms().iter().map(|norm| if *norm > 0.0 { *norm } else { spare }).collect()
}
