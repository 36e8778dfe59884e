//! How far the body reaches along a direction,
//!
//! ```text
//! low = min { ⟨u, θ⟩ : θ ∈ K },      high = max { ⟨u, θ⟩ : θ ∈ K },      width = high − low
//! ```

use super::interior::{self, Solution};
use super::program::Objective;
use super::{Body, Residuals, Settings, Status, inflation};
use crate::{Error, Result};

/// The extent of a body along a direction `u`; without meaning when the body is empty.
#[derive(Clone, Debug)]
pub struct Extent {
    /// `min ⟨u, θ⟩`.
    pub low: f64,
    /// `max ⟨u, θ⟩`.
    pub high: f64,
    /// A point where the minimum is taken.
    pub argmin: Vec<f64>,
    /// A point where the maximum is taken.
    pub argmax: Vec<f64>,
    /// The worse of the two programs' residuals, relative.
    pub residuals: Residuals,
    /// Interior-point steps of both programs.
    pub iterations: usize,
    /// Solved, empty or stalled: the worse of the two.
    pub status: Status,
}

impl Extent {
    /// `high − low`.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// `min` and `max` of `⟨u, θ⟩` over `K`.
pub fn extent(body: &Body, direction: &[f64], settings: &Settings) -> Result<Extent> {
    settings.check()?;
    if direction.len() != body.dimension() {
        let problem = format!("it has {} coordinates and the body {}", direction.len(), body.dimension());
        return Err(Error::input("direction of an extent", problem, "give a direction of the same space"));
    }
    let norm = direction.iter().map(|u| u * u).sum::<f64>().sqrt();
    if !(norm > 0.0 && norm.is_finite()) {
        return Err(Error::input("direction of an extent", format!("its length is {norm}"), "give a finite, non-zero direction"));
    }
    let against: Vec<f64> = direction.iter().map(|u| -u).collect();
    let minimise = |c: &[f64]| interior::solve(body, body.lower(), body.upper(), Objective::Linear(c), settings);
    let at_low = minimise(direction);
    let at_high = if let Status::Empty { .. } = at_low.status { at_low.clone() } else { minimise(&against) };

    let along = |solution: &Solution| solution.point.iter().zip(direction).map(|(t, u)| t * u).sum::<f64>();
    let status = match (at_low.status, at_high.status) {
        (Status::Solved, Status::Solved) => Status::Solved,
        (empty @ Status::Empty { .. }, _) | (_, empty @ Status::Empty { .. }) => empty,
        _ => inflation::settle(body, Status::Stalled, settings),
    };
    let worse = |f: fn(&Residuals) -> f64| f(&at_low.residuals).max(f(&at_high.residuals));
    Ok(Extent {
        low: along(&at_low),
        high: along(&at_high),
        residuals: Residuals { primal: worse(|r| r.primal), dual: worse(|r| r.dual), gap: worse(|r| r.gap) },
        iterations: at_low.iterations + at_high.iterations,
        argmin: at_low.point,
        argmax: at_high.point,
        status,
    })
}
