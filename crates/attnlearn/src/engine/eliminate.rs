//! The linear half of a student: for fixed attention and values, `O` and the bias are least squares.
//!
//! ```text
//! H̄ = [H 1],   G = H̄ᵀH̄,   [O; bias] ← [O; bias] − G⁻¹ H̄ᵀ(F(X) − Y)
//! ```
//!
//! One such step from any `O` leads to the best one; from the best one it takes away what rounding has left. With `P⊥ = I − H̄G⁻¹H̄ᵀ` the
//! Gauss–Newton matrix of the other parameters alone is `JᵀP⊥J` (Kaufman's approximation of variable projection).
//!
//! What a head is worth follows from the same matrix: without head `i`, and with all others' `O` refitted, `‖F(X) − Y‖²` grows by
//!
//! ```text
//! tr(O_iᵀ [(G⁻¹)_ii]⁻¹ O_i)
//! ```

use crate::engine::student::{Form, Part};
use crate::linalg::cholesky::{cholesky, solve, solve_lower};
use crate::linalg::symmetric::{Field, multiply};
use crate::linalg::{Mat, solve_spd};
use faer::MatRef;

/// Added to the diagonal of `G`, as a share of its mean: heads that attend alike make it singular.
const RIDGE: f64 = 1e-13;

/// `G` in factors.
#[derive(Clone, Debug)]
pub struct Elimination {
    l: Mat<f64>,
}

impl Elimination {
    /// From the lower triangle of `G`; `None` if it is not finite.
    pub fn new(mut gram: Mat<f64>) -> Option<Self> {
        let n = gram.nrows();
        let mean = (0..n).map(|i| gram[(i, i)]).sum::<f64>() / n as f64;
        if !mean.is_finite() {
            return None;
        }
        // More where rounding has made it indefinite.
        let mut ridge = RIDGE * mean.max(f64::MIN_POSITIVE);
        loop {
            let mut l = gram.clone();
            for i in 0..n {
                l[(i, i)] += ridge;
            }
            if cholesky(l.as_mut(), &|| false).is_ok() {
                return Some(Self { l });
            }
            ridge *= 100.0;
            if ridge > mean {
                gram.fill(0.0);
                return None;
            }
        }
    }

    /// `G⁻¹ C`.
    pub fn solve(&self, c: &mut Mat<f64>) {
        solve(self.l.as_ref(), c.as_mut());
    }

    /// `L⁻¹ C` with `G = L Lᵀ`.
    pub(crate) fn solve_half(&self, c: &mut Mat<f64>) {
        solve_lower(self.l.as_ref(), c.as_mut());
    }

    /// What the error grows by without each head.
    pub fn removal_costs(&self, form: &Form, values: &[f64]) -> Vec<f64> {
        let (s, n) = (form.s(), self.l.nrows());
        let o = form.view(Part::O, values);
        (0..form.heads)
            .map(|head| {
                let mut unit = Mat::from_fn(n, s, |i, j| if i == head * s + j { 1.0 } else { 0.0 });
                self.solve(&mut unit);
                let block = unit.subrows(head * s, s);
                let o: MatRef<'_, f64> = o.subrows(head * s, s);
                let product = solve_spd(block, o.to_owned().as_ref());
                (0..o.ncols()).map(|e| (0..s).map(|i| o[(i, e)] * product[(i, e)]).sum::<f64>()).sum()
            })
            .collect()
    }
}

/// `H̄` has a last column of ones where there is a bias.
pub(crate) fn columns(form: &Form) -> usize {
    form.heads * form.s() + usize::from(form.bias)
}

/// Adds `H̄ᵀC` to `sum`.
pub(crate) fn add_cross<T: Field>(form: &Form, h: MatRef<'_, T>, c: MatRef<'_, T>, sum: &mut Mat<T>) {
    let ms = h.ncols();
    multiply(sum.as_mut().subrows_mut(0, ms), true, T::ONE, h.transpose(), c);
    if form.bias {
        for j in 0..c.ncols() {
            for i in 0..c.nrows() {
                sum[(ms, j)] += c[(i, j)];
            }
        }
    }
}

/// Adds `H̄ᵀH̄` to `sum`, its lower triangle at least.
pub(crate) fn add_gram<T: Field>(form: &Form, h: MatRef<'_, T>, sum: &mut Mat<T>) {
    let ms = h.ncols();
    multiply(sum.as_mut().submatrix_mut(0, 0, ms, ms), true, T::ONE, h.transpose(), h);
    if form.bias {
        for j in 0..ms {
            for i in 0..h.nrows() {
                sum[(ms, j)] += h[(i, j)];
            }
        }
        sum[(ms, ms)] += T::from_f64(h.nrows() as f64);
    }
}

/// `[O; bias] ← [O; bias] + c Δ`, in a vector of parameters.
pub(crate) fn add_output(form: &Form, c: f64, delta: &Mat<f64>, values: &mut [f64]) {
    let (o, bias) = (form.range(Part::O).start, form.range(Part::Bias));
    for i in 0..form.heads * form.s() {
        for j in 0..form.d_out {
            values[o + i * form.d_out + j] += c * delta[(i, j)];
        }
    }
    for (j, at) in bias.enumerate() {
        values[at] += c * delta[(form.heads * form.s(), j)];
    }
}
