//! Preconditioned conjugate gradients on `(A + μI) X = R`, all columns at once: one product with `A` serves every target.
//!
//! The recurrence keeps a residual of its own, which drifts from `R − (A + μ)X` as rounding adds up: when it says that the work is
//! done the residual is computed anew, and if it is still too large the iteration begins again from there. What is reported is the
//! residual that was computed.
//!
//! **When to stop.** Where no residual is asked for, when the objective `J = ‖c − Φ̃v‖² + μ‖v‖²` of every column is within a share of its
//! least. How far it is above that has a bound:
//!
//! - the dual form, `v = Φ̃ᵀα`: `J(v) − J* = rᵀ A (A + μ)⁻¹ r ≤ ‖r‖²`;
//! - the primal form: `J(v) − J* = rᵀ (A + μ)⁻¹ r ≤ γ rᵀz` by Gauss–Radau quadrature (Golub, Meurant; Meurant, Tichý), with `γ = 1/μ` in the
//!   beginning and `γ ← (γ − α)/(μ(γ − α) + β)` after a step of length `α` whose next direction is `z + βd`. It takes a lower bound of the
//!   spectrum of `P⁻¹(A + μ)`, and `μ` is one: the Nyström approximation is below `A`, so `μP` is below `A + μ`.
//!
//! Both are bounds in exact arithmetic. Rounding in the recurrence moves them by far less than the shares that make sense to ask for: the tests
//! hold them against direct solves in both precisions. A share `ε` of `J` leaves the fitted values within `√ε` of the root of `J` of where
//! they would end.

use super::nystrom::Preconditioner;
use super::operator::Operator;
use super::{Accuracy, Stage, Watch};
use crate::linalg::Mat;
use crate::linalg::symmetric::Field;
use crate::memory::{clamp, numbers};
use crate::{Error, Result};
use std::cell::Cell;

/// How often the iteration may begin again.
const RESTARTS: usize = 5;

/// Where an iteration stands.
#[derive(Clone)]
pub(super) struct State {
    pub x: Mat<f64>,
    /// `R − (A + μ)X`, as the recurrence has it.
    pub r: Mat<f64>,
}

impl State {
    /// `X = 0`.
    pub fn new(rhs: &Mat<f64>) -> Self {
        Self { x: Mat::zeros(rhs.nrows(), rhs.ncols()), r: rhs.clone() }
    }

    /// The same `X` when the ridge goes from `from` to `to`: the residual changes by `(from − to)X`.
    pub fn reshift(&mut self, from: f64, to: f64) {
        for j in 0..self.x.ncols() {
            axpy(from - to, &self.x, &mut self.r, j);
        }
    }

    /// The first `t` columns.
    pub fn columns(&self, t: usize) -> Self {
        Self { x: self.x.subcols(0, t).to_owned(), r: self.r.subcols(0, t).to_owned() }
    }
}

/// A solution and how it was reached.
pub(super) struct Solution {
    pub x: Mat<f64>,
    pub iterations: usize,
    /// Largest `‖R_j − (A + μ)X_j‖ / ‖R_j‖`, by a product of its own.
    pub residual: f64,
    /// Whether it is as exact as was asked for.
    pub reached: bool,
}

/// Bytes of the vectors of `columns` columns: right-hand side, `X`, `R`, `D`, two of `Z`, the product, and the best `X` and `R` of a walk.
pub(super) fn bytes(size: usize, columns: usize) -> u64 {
    clamp(numbers::<f64>(&[9, size, columns]))
}

/// `A + μI` and what makes it easy.
pub(super) struct System<'a, T> {
    pub a: &'a Operator<'a, T>,
    pub mu: f64,
    pub preconditioner: Option<Preconditioner<'a, T>>,
}

impl<T: Field> System<'_, T> {
    /// Iterates to the accuracy given, `limit` times at most; `squares` are the `‖c_j‖²`.
    pub fn solve(
        &self,
        rhs: &Mat<f64>,
        squares: &[f64],
        mut state: State,
        accuracy: Accuracy,
        limit: usize,
        watch: &dyn Watch,
    ) -> Result<Solution> {
        watch.begin(Stage::Iterate);
        let norms: Vec<f64> = (0..rhs.ncols()).map(|j| rhs.col(j).norm_l2()).collect();
        let largest = |r: &Mat<f64>| {
            let columns = norms.iter().enumerate().filter(|(_, norm)| **norm > 0.0);
            worst(columns.map(|(j, norm)| r.col(j).norm_l2() / norm))
        };
        let tolerance = match accuracy {
            Accuracy::Residual(tolerance) => tolerance,
            Accuracy::Objective(share) => {
                let last = Cell::new(f64::INFINITY);
                let error = |state: &State, bounds: &[f64]| {
                    last.set(excess(self.a.dual, self.mu, rhs, squares, state, bounds));
                    last.get()
                };
                let iterations = self.iterate(&mut state, share, limit, &error, watch)?;
                let residual = largest(&self.residual(rhs, &state.x, watch)?);
                return Ok(Solution { x: state.x, iterations, residual, reached: last.get() <= share });
            }
        };
        let (mut iterations, mut residual) = (0, f64::INFINITY);
        for _ in 0..=RESTARTS {
            iterations += self.iterate(&mut state, tolerance, limit - iterations, &|state, _| largest(&state.r), watch)?;
            state.r = self.residual(rhs, &state.x, watch)?;
            let before = std::mem::replace(&mut residual, largest(&state.r));
            // Where rounding rules, another round gains nothing.
            if residual <= tolerance || iterations >= limit || residual > 0.5 * before {
                break;
            }
        }
        Ok(Solution { x: state.x, iterations, residual, reached: residual <= tolerance })
    }

    /// `R − (A + μ)X`, by a product.
    fn residual(&self, rhs: &Mat<f64>, x: &Mat<f64>, watch: &dyn Watch) -> Result<Mat<f64>> {
        let mut r = rhs - self.a.apply(x, watch)?;
        for j in 0..r.ncols() {
            axpy(-self.mu, x, &mut r, j);
        }
        Ok(r)
    }

    /// Iterates until `error`, of the state and of bounds for `rᵀ(A + μ)⁻¹r`, is at most `tolerance`, `limit` times at most; returns how often.
    pub fn iterate(
        &self,
        state: &mut State,
        tolerance: f64,
        limit: usize,
        error: &dyn Fn(&State, &[f64]) -> f64,
        watch: &dyn Watch,
    ) -> Result<usize> {
        let precondition = |r: &Mat<f64>| self.preconditioner.as_ref().map_or_else(|| r.clone(), |p| p.apply(r));
        let t = state.x.ncols();
        let mut z = precondition(&state.r);
        let mut rz: Vec<f64> = (0..t).map(|j| inner(&state.r, &z, j)).collect();
        let mut gamma = vec![1.0 / self.mu; t];
        let bounds = |gamma: &[f64], rz: &[f64]| gamma.iter().zip(rz).map(|(gamma, rz)| gamma * rz).collect::<Vec<f64>>();
        let first = error(state, &bounds(&gamma, &rz));
        if first <= tolerance || limit == 0 {
            return Ok(0);
        }
        let mut d = z.clone();
        for iteration in 1..=limit {
            if watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let mut q = self.a.apply(&d, watch)?;
            let mut steps = vec![0.0; t];
            for j in 0..t {
                axpy(self.mu, &d, &mut q, j);
                let curvature = inner(&d, &q, j);
                // A column that has converged to the last bit stays where it is.
                steps[j] = if curvature > 0.0 { rz[j] / curvature } else { 0.0 };
                axpy(steps[j], &d, &mut state.x, j);
                axpy(-steps[j], &q, &mut state.r, j);
            }
            z = precondition(&state.r);
            for j in 0..t {
                let next = inner(&state.r, &z, j);
                let beta = if rz[j] > 0.0 { next / rz[j] } else { 0.0 };
                rz[j] = next;
                for (d, z) in d.col_as_slice_mut(j).iter_mut().zip(z.col_as_slice(j)) {
                    *d = z + beta * *d;
                }
                // Where rounding has eaten the difference the bound begins again.
                let rest = gamma[j] - steps[j];
                gamma[j] = if rest > 0.0 { rest / (self.mu * rest + beta) } else { 1.0 / self.mu };
            }
            let now = error(state, &bounds(&gamma, &rz));
            let rate = (first / now).ln() / iteration as f64;
            watch.iteration(iteration, now, if rate > 0.0 { ((now / tolerance).ln() / rate).max(0.0) } else { f64::INFINITY });
            if now <= tolerance {
                return Ok(iteration);
            }
        }
        Ok(limit)
    }
}

/// How far above its least the objective of any column is at most, as a share of it; `bounds` are those of the primal form.
fn excess(dual: bool, mu: f64, rhs: &Mat<f64>, squares: &[f64], State { x, r }: &State, bounds: &[f64]) -> f64 {
    let share = |j: usize| {
        let product = inner(x, rhs, j) + inner(x, r, j);
        let (objective, excess) = if dual { (mu * product, inner(r, r, j)) } else { (squares[j] - product, bounds[j]) };
        // J* is what is left; below the floor it is rounding, of a fit that interpolates.
        let least = (objective - excess).max(1e3 * f64::EPSILON * squares[j]);
        if excess == 0.0 { 0.0 } else { excess / least }
    };
    worst((0..x.ncols()).map(share))
}

/// The largest; what is not a number is larger than all.
fn worst(errors: impl Iterator<Item = f64>) -> f64 {
    errors.fold(0.0, |worst, error| if error.is_nan() { f64::INFINITY } else { error.max(worst) })
}

pub(super) fn inner(x: &Mat<f64>, y: &Mat<f64>, j: usize) -> f64 {
    x.col_as_slice(j).iter().zip(y.col_as_slice(j)).map(|(x, y)| x * y).sum()
}

fn axpy(c: f64, x: &Mat<f64>, y: &mut Mat<f64>, j: usize) {
    y.col_as_slice_mut(j).iter_mut().zip(x.col_as_slice(j)).for_each(|(y, x)| *y += c * x);
}

#[cfg(test)]
mod tests {
    use super::worst;

    #[test]
    fn what_is_not_a_number_is_never_good_enough() {
        assert_eq!(worst([0.5, 2.0, 1.0].into_iter()).to_bits(), 2.0f64.to_bits());
        for place in 0..3 {
            let mut errors = [0.5, 2.0, 1.0];
            errors[place] = f64::NAN;
            assert!(worst(errors.into_iter()).is_infinite());
        }
        assert!(worst([].into_iter()) <= 0.0);
    }
}
