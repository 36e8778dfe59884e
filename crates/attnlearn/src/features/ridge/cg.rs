//! Preconditioned conjugate gradients on `(A + μI) X = R`, all columns at once: one product with `A` serves every target.

use super::nystrom::Nystrom;
use super::operator::Operator;
use super::{Stage, Watch};
use crate::linalg::Mat;
use crate::linalg::symmetric::Field;
use crate::{Error, Result};

/// A solution and how it was reached.
pub(super) struct Solution {
    pub x: Mat<f64>,
    pub iterations: usize,
    /// Largest `‖R_j − (A + μ)X_j‖ / ‖R_j‖`, as the recurrence has it.
    pub residual: f64,
}

pub(super) fn solve<T: Field>(
    a: &Operator<'_, T>,
    mu: f64,
    preconditioner: Option<&Nystrom>,
    tolerance: f64,
    limit: usize,
    watch: &dyn Watch,
) -> Result<Solution> {
    watch.begin(Stage::Iterate);
    let precondition = |r: &Mat<f64>| preconditioner.map_or_else(|| r.clone(), |p| p.apply(r));
    let t = a.rhs.ncols();
    let norms: Vec<f64> = (0..t).map(|j| a.rhs.col(j).norm_l2()).collect();
    let mut x = Mat::<f64>::zeros(a.size(), t);
    let mut r = a.rhs.clone();
    let mut z = precondition(&r);
    let mut d = z.clone();
    let mut rz: Vec<f64> = (0..t).map(|j| inner(&r, &z, j)).collect();
    let (mut residual, mut iterations) = (1.0, 0);
    while residual > tolerance && iterations < limit {
        if watch.interrupted() {
            return Err(Error::Interrupted);
        }
        let mut q = a.apply(&d, watch)?;
        residual = 0.0;
        for j in 0..t {
            axpy(mu, &d, &mut q, j);
            let curvature = inner(&d, &q, j);
            // A column that has converged to the last bit stays where it is.
            let step = if curvature > 0.0 { rz[j] / curvature } else { 0.0 };
            axpy(step, &d, &mut x, j);
            axpy(-step, &q, &mut r, j);
            if norms[j] > 0.0 {
                residual = f64::max(residual, r.col(j).norm_l2() / norms[j]);
            }
        }
        iterations += 1;
        let rate = -residual.ln() / iterations as f64;
        watch.iteration(
            iterations,
            residual,
            if rate > 0.0 { ((residual / tolerance).ln() / rate).max(0.0) } else { f64::INFINITY },
        );
        if residual <= tolerance {
            break;
        }
        z = precondition(&r);
        for j in 0..t {
            let next = inner(&r, &z, j);
            let beta = if rz[j] > 0.0 { next / rz[j] } else { 0.0 };
            rz[j] = next;
            for (d, z) in d.col_as_slice_mut(j).iter_mut().zip(z.col_as_slice(j)) {
                *d = z + beta * *d;
            }
        }
    }
    Ok(Solution { x, iterations, residual })
}

fn inner(x: &Mat<f64>, y: &Mat<f64>, j: usize) -> f64 {
    x.col_as_slice(j).iter().zip(y.col_as_slice(j)).map(|(x, y)| x * y).sum()
}

fn axpy(c: f64, x: &Mat<f64>, y: &mut Mat<f64>, j: usize) {
    y.col_as_slice_mut(j).iter_mut().zip(x.col_as_slice(j)).for_each(|(y, x)| *y += c * x);
}
