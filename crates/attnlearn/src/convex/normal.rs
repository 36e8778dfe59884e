//! Newton's equations `M x = b`, `M` symmetric and positive definite, possibly to rounding only.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::{Mat, MatMut, Par, Spec};

/// The Cholesky factor of `S M S + ρ I`, where `S` makes the diagonal 1.
pub(super) struct Factor {
    scaling: Vec<f64>,
    lower: Mat<f64>,
}

impl Factor {
    /// Factors the `n × n` matrix whose lower triangle stands row by row in `m`; nothing if it is not finite or hopeless.
    ///
    /// Towards the end of a linear program `M` has entries from `μ` to `1/μ`: the scaling takes what differs between the
    /// coordinates, and `ρ` bounds the step along a face where all points are optimal, where it does no harm.
    pub fn new(m: &[f64], n: usize) -> Option<Self> {
        let scaling: Vec<f64> = (0..n).map(|i| 1.0 / m[i * n + i].sqrt()).collect();
        if scaling.iter().any(|s| !s.is_finite()) {
            return None;
        }
        let params = Spec::default();
        let mut buffer = MemBuffer::new(llt::factor::cholesky_in_place_scratch::<f64>(n, Par::Seq, params));
        for rho in [1e-15, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6] {
            let entry = |i: usize, j: usize| scaling[i] * m[i * n + j] * scaling[j];
            let mut lower =
                Mat::from_fn(n, n, |i, j| if j < i { entry(i, j) } else { f64::from(u8::from(i == j)) * (1.0 + rho) });
            let stack = MemStack::new(&mut buffer);
            if llt::factor::cholesky_in_place(lower.as_mut(), Default::default(), Par::Seq, stack, params).is_ok()
                && (0..n).all(|i| lower[(i, i)].is_finite())
            {
                return Some(Self { scaling, lower });
            }
        }
        None
    }

    /// Solves `M x = b` with one step of refinement against `m` itself, which takes most of `ρ` out again.
    pub fn solve(&self, m: &[f64], b: &[f64]) -> Vec<f64> {
        let n = b.len();
        let mut x = b.to_vec();
        self.solve_once(&mut x);
        let mut residual = b.to_vec();
        for i in 0..n {
            let row = &m[i * n..i * n + i];
            let mut sum = m[i * n + i] * x[i];
            for (j, m) in row.iter().enumerate() {
                sum += m * x[j];
                residual[j] -= m * x[i];
            }
            residual[i] -= sum;
        }
        self.solve_once(&mut residual);
        for (x, r) in x.iter_mut().zip(&residual) {
            *x += r;
        }
        x
    }

    fn solve_once(&self, x: &mut [f64]) {
        let n = x.len();
        for (x, s) in x.iter_mut().zip(&self.scaling) {
            *x *= s;
        }
        let column = MatMut::from_column_major_slice_mut(x, n, 1);
        // Triangular solves need no workspace.
        llt::solve::solve_in_place(self.lower.as_ref(), column, Par::Seq, MemStack::new(&mut []));
        for (x, s) in x.iter_mut().zip(&self.scaling) {
            *x *= s;
        }
    }
}
