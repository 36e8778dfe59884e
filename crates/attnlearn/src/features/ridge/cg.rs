//! Preconditioned conjugate gradients on `(A + μI) X = R`, all columns at once: one product with `A` serves every target.
//!
//! The recurrence keeps a residual of its own, which drifts from `R − (A + μ)X` as rounding adds up: when it says that the work is
//! done the residual is computed anew, and if it is still too large the iteration begins again from there. What is reported is the
//! residual that was computed.

use super::nystrom::Preconditioner;
use super::operator::Operator;
use super::{Stage, Watch};
use crate::linalg::Mat;
use crate::linalg::symmetric::Field;
use crate::{Error, Result};

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
}

/// Bytes of the vectors of `columns` columns: right-hand side, `X`, `R`, `D`, two of `Z`, the product, and the best `X` and `R` of a walk.
pub(super) fn bytes(size: usize, columns: usize) -> u64 {
    9 * 8 * size as u64 * columns as u64
}

/// `A + μI` and what makes it easy.
pub(super) struct System<'a, T> {
    pub a: &'a Operator<'a, T>,
    pub mu: f64,
    pub preconditioner: Option<Preconditioner<'a>>,
}

impl<T: Field> System<'_, T> {
    /// Iterates until every relative residual is at most `tolerance`, `limit` times at most.
    pub fn solve(&self, rhs: &Mat<f64>, mut state: State, tolerance: f64, limit: usize, watch: &dyn Watch) -> Result<Solution> {
        watch.begin(Stage::Iterate);
        let norms: Vec<f64> = (0..rhs.ncols()).map(|j| rhs.col(j).norm_l2()).collect();
        let largest = |r: &Mat<f64>| {
            let columns = norms.iter().enumerate().filter(|(_, norm)| **norm > 0.0);
            columns.map(|(j, norm)| r.col(j).norm_l2() / norm).fold(0.0, f64::max)
        };
        let (mut iterations, mut residual) = (0, f64::INFINITY);
        for _ in 0..=RESTARTS {
            iterations += self.iterate(&mut state, tolerance, limit - iterations, &|state| largest(&state.r), watch)?;
            state.r = self.residual(rhs, &state.x, watch)?;
            let before = std::mem::replace(&mut residual, largest(&state.r));
            // Where rounding rules, another round gains nothing.
            if residual <= tolerance || iterations >= limit || residual > 0.5 * before {
                break;
            }
        }
        Ok(Solution { x: state.x, iterations, residual })
    }

    /// `R − (A + μ)X`, by a product.
    fn residual(&self, rhs: &Mat<f64>, x: &Mat<f64>, watch: &dyn Watch) -> Result<Mat<f64>> {
        let mut r = rhs - self.a.apply(x, watch)?;
        for j in 0..r.ncols() {
            axpy(-self.mu, x, &mut r, j);
        }
        Ok(r)
    }

    /// Iterates until `error` is at most `tolerance`, `limit` times at most; returns how often.
    pub fn iterate(
        &self,
        state: &mut State,
        tolerance: f64,
        limit: usize,
        error: &dyn Fn(&State) -> f64,
        watch: &dyn Watch,
    ) -> Result<usize> {
        let precondition = |r: &Mat<f64>| self.preconditioner.as_ref().map_or_else(|| r.clone(), |p| p.apply(r));
        let first = error(state);
        if first <= tolerance || limit == 0 {
            return Ok(0);
        }
        let t = state.x.ncols();
        let mut z = precondition(&state.r);
        let mut d = z.clone();
        let mut rz: Vec<f64> = (0..t).map(|j| inner(&state.r, &z, j)).collect();
        for iteration in 1..=limit {
            if watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let mut q = self.a.apply(&d, watch)?;
            for j in 0..t {
                axpy(self.mu, &d, &mut q, j);
                let curvature = inner(&d, &q, j);
                // A column that has converged to the last bit stays where it is.
                let step = if curvature > 0.0 { rz[j] / curvature } else { 0.0 };
                axpy(step, &d, &mut state.x, j);
                axpy(-step, &q, &mut state.r, j);
            }
            let now = error(state);
            let rate = (first / now).ln() / iteration as f64;
            watch.iteration(iteration, now, if rate > 0.0 { ((now / tolerance).ln() / rate).max(0.0) } else { f64::INFINITY });
            if now <= tolerance {
                return Ok(iteration);
            }
            z = precondition(&state.r);
            for j in 0..t {
                let next = inner(&state.r, &z, j);
                let beta = if rz[j] > 0.0 { next / rz[j] } else { 0.0 };
                rz[j] = next;
                for (d, z) in d.col_as_slice_mut(j).iter_mut().zip(z.col_as_slice(j)) {
                    *d = z + beta * *d;
                }
            }
        }
        Ok(limit)
    }
}

pub(super) fn inner(x: &Mat<f64>, y: &Mat<f64>, j: usize) -> f64 {
    x.col_as_slice(j).iter().zip(y.col_as_slice(j)).map(|(x, y)| x * y).sum()
}

fn axpy(c: f64, x: &Mat<f64>, y: &mut Mat<f64>, j: usize) {
    y.col_as_slice_mut(j).iter_mut().zip(x.col_as_slice(j)).for_each(|(y, x)| *y += c * x);
}
