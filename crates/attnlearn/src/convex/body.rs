//! The convex body
//!
//! ```text
//! K = { θ ∈ R^p :  lower_r ≤ ⟨v_r, θ⟩ ≤ upper_r  (r = 1 … N),   |θ_j| ≤ R }
//! ```
//!
//! A slab `|⟨v, θ⟩ − ℓ| ≤ ξ` has the bounds `ℓ ± ξ`; a one-sided row has an infinite bound.

use super::rows;
use crate::{Error, Result};

/// A body of slabs, `K = { θ : lower_r ≤ ⟨v_r, θ⟩ ≤ upper_r, |θ_j| ≤ R }`; it may turn out to be empty.
#[derive(Clone, Debug)]
pub struct Body {
    p: usize,
    radius: f64,
    /// The `v_r`, one after the other.
    rows: Vec<f64>,
    lower: Vec<f64>,
    upper: Vec<f64>,
    /// `‖v_r‖`.
    norms: Vec<f64>,
    /// `max { ⟨v_r, θ⟩ : |θ_j| ≤ R } = R ‖v_r‖₁`.
    reaches: Vec<f64>,
}

impl Body {
    /// The box `|θ_j| ≤ radius` in `R^p`, to be cut by rows.
    pub fn new(p: usize, radius: f64) -> Result<Self> {
        if p == 0 {
            return Err(Error::input("convex body", "it has no coordinates", "give p ≥ 1"));
        }
        if !(radius > 0.0 && radius.is_finite()) {
            return Err(Error::input("convex body", format!("its radius is {radius}"), "give a positive finite radius"));
        }
        Ok(Self { p, radius, rows: vec![], lower: vec![], upper: vec![], norms: vec![], reaches: vec![] })
    }

    /// Makes room for `n` more rows.
    pub fn reserve(&mut self, n: usize) {
        self.rows.reserve(n * self.p);
        for list in [&mut self.lower, &mut self.upper, &mut self.norms, &mut self.reaches] {
            list.reserve(n);
        }
    }

    /// Cuts with `|⟨v, θ⟩ − centre| ≤ half_width`.
    pub fn push_slab(&mut self, v: &[f64], centre: f64, half_width: f64) -> Result<()> {
        if half_width.is_nan() || half_width < 0.0 {
            let place = format!("convex body, row {}", self.count());
            return Err(Error::input(place, format!("its half-width is {half_width}"), "give a half-width ≥ 0"));
        }
        self.push(v, centre - half_width, centre + half_width)
    }

    /// Cuts with `⟨v, θ⟩ ≥ bound`.
    pub fn push_lower(&mut self, v: &[f64], bound: f64) -> Result<()> {
        self.push(v, bound, f64::INFINITY)
    }

    /// Cuts with `lower ≤ ⟨v, θ⟩ ≤ upper`, where either bound may be infinite.
    pub fn push(&mut self, v: &[f64], lower: f64, upper: f64) -> Result<()> {
        let place = || format!("convex body, row {}", self.count());
        if v.len() != self.p {
            let problem = format!("it has {} entries and the body {} coordinates", v.len(), self.p);
            return Err(Error::input(place(), problem, "give one entry for each coordinate"));
        }
        // Scaled against overflow: the norm of a finite row is finite unless an entry is within √p of the largest number.
        let largest = v.iter().fold(0.0, |largest: f64, v| if v.is_nan() { f64::NAN } else { largest.max(v.abs()) });
        let norm = if largest > 0.0 { largest * v.iter().map(|v| (v / largest).powi(2)).sum::<f64>().sqrt() } else { 0.0 };
        let reach = self.radius * v.iter().map(|v| v.abs()).sum::<f64>();
        if largest.is_nan() || !norm.is_finite() || !reach.is_finite() {
            return Err(Error::input(place(), "an entry is infinite or not a number", "give finite rows"));
        }
        if !(lower <= upper && lower < f64::INFINITY && upper > f64::NEG_INFINITY) {
            let problem = format!("its bounds are {lower} and {upper}");
            return Err(Error::input(place(), problem, "give lower ≤ upper, infinite only outwards"));
        }
        // One over a length below this would overflow: such a row says no more than a row of zeros.
        let norm = if norm < 1e-290 { 0.0 } else { norm };
        self.rows.extend_from_slice(v);
        self.lower.push(lower);
        self.upper.push(upper);
        self.norms.push(norm);
        self.reaches.push(reach);
        Ok(())
    }

    /// The number of coordinates, `p`.
    pub fn dimension(&self) -> usize {
        self.p
    }

    /// The number of rows, `N`.
    pub fn count(&self) -> usize {
        self.lower.len()
    }

    /// The half-width `R` of the box.
    pub fn radius(&self) -> f64 {
        self.radius
    }

    /// All rows, one after the other.
    pub fn rows(&self) -> &[f64] {
        &self.rows
    }

    /// The row `v_r`.
    pub fn row(&self, r: usize) -> &[f64] {
        &self.rows[r * self.p..(r + 1) * self.p]
    }

    /// The lower bounds; −∞ where there is none.
    pub fn lower(&self) -> &[f64] {
        &self.lower
    }

    /// The upper bounds; +∞ where there is none.
    pub fn upper(&self) -> &[f64] {
        &self.upper
    }

    /// The norms `‖v_r‖`.
    pub fn norms(&self) -> &[f64] {
        &self.norms
    }

    /// `R ‖v_r‖₁`, the most that `⟨v_r, θ⟩` can be inside the box.
    pub(super) fn reaches(&self) -> &[f64] {
        &self.reaches
    }

    /// `(⟨v_r, θ⟩)_r`.
    pub fn values(&self, theta: &[f64]) -> Result<Vec<f64>> {
        self.check_point(theta)?;
        let mut values = vec![0.0; self.count()];
        let mut nothing = rows::panels(self.count(), || ());
        rows::sweep(&self.rows, self.p, &mut values, &mut nothing, |v, values, ()| rows::products(v, theta, values));
        Ok(values)
    }

    /// How far `θ` is outside, `max_r max(lower_r − ⟨v_r, θ⟩, ⟨v_r, θ⟩ − upper_r, |θ_j| − R, 0)`; 0 inside.
    pub fn violation(&self, theta: &[f64]) -> Result<f64> {
        let values = self.values(theta)?;
        let rows = (0..self.count()).map(|r| (self.lower[r] - values[r]).max(values[r] - self.upper[r]));
        let sides = theta.iter().map(|t| t.abs() - self.radius);
        Ok(rows.chain(sides).fold(0.0, f64::max))
    }

    fn check_point(&self, theta: &[f64]) -> Result<()> {
        if theta.len() != self.p {
            let problem = format!("it has {} coordinates and the body {}", theta.len(), self.p);
            return Err(Error::input("point of a convex body", problem, "give a point of the same space"));
        }
        if theta.iter().any(|t| !t.is_finite()) {
            return Err(Error::input("point of a convex body", "a coordinate is not finite", "give finite coordinates"));
        }
        Ok(())
    }
}
