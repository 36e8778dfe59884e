//! The randomised Nyström preconditioner (Frangella, Tropp, Udell).
//!
//! From a Gaussian sketch `Y = AΩ` of rank `r`, with a shift `ν` against rounding,
//!
//! ```text
//! Y_ν = Y + νΩ,   ΩᵀY_ν = C Cᵀ,   B = Y_ν C⁻ᵀ = U Σ Vᵀ,   Λ = max(Σ² − ν, 0)        A ≈ U Λ Uᵀ
//! P⁻¹ = (λ_r + μ) U (Λ + μ)⁻¹ Uᵀ + (I − U Uᵀ)
//! ```
//!
//! The condition number of `P⁻¹(A + μ)` is about `1 + λ_r/μ`: the rank is doubled while a larger sketch would cost less than the
//! iterations that it saves.

use super::operator::Operator;
use super::{Stage, Watch};
use crate::linalg::cholesky::{cholesky, solve_lower};
use crate::linalg::symmetric::{Field, add_outer, product};
use crate::linalg::{Mat, symmetric_eigen};
use crate::{Error, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// First rank tried.
const FIRST: usize = 64;
/// Columns of a sketch that cost about as much as one iteration.
const COLUMNS: f64 = 16.0;

/// `P⁻¹`.
pub(super) struct Nystrom {
    u: Mat<f64>,
    /// `(λ_r + μ)/(λ_j + μ) − 1`.
    gains: Vec<f64>,
}

impl Nystrom {
    /// A preconditioner of the rank given, or of one that pays; `None` for rank 0.
    pub fn new<T: Field>(
        a: &Operator<'_, T>,
        mu: f64,
        rank: Option<usize>,
        tolerance: f64,
        seed: u64,
        watch: &dyn Watch,
    ) -> Result<Option<Self>> {
        let n = a.size();
        let limit = rank.unwrap_or(1024).min(n / 2);
        if limit == 0 {
            return Ok(None);
        }
        watch.begin(Stage::Sketch);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut size = if rank.is_some() { limit } else { FIRST.min(limit) };
        let (mut omega, mut y) = (Mat::<f64>::zeros(n, 0), Mat::<f64>::zeros(n, 0));
        loop {
            let mut more = Mat::<f64>::zeros(n, size - omega.ncols());
            for j in 0..more.ncols() {
                more.col_as_slice_mut(j).iter_mut().for_each(|v| *v = StandardNormal.sample(&mut rng));
            }
            let image = a.sketch(&more, watch)?;
            (omega, y) = (beside(&omega, &more), beside(&y, &image));
            let (u, values) = eigen::<T>(&omega, &y)?;
            let last = values.last().copied().unwrap_or(0.0);
            let iterations = 0.5 * (1.0 + last / mu).sqrt() * (2.0 / tolerance).ln();
            if size >= limit || 0.3 * iterations * COLUMNS < size as f64 {
                let gains = values.iter().map(|value| (last + mu) / (value + mu) - 1.0).collect();
                return Ok(Some(Self { u, gains }));
            }
            size = (2 * size).min(limit);
        }
    }

    /// `P⁻¹ X`.
    pub fn apply(&self, x: &Mat<f64>) -> Mat<f64> {
        let mut c = Mat::<f64>::zeros(self.u.ncols(), x.ncols());
        product(c.as_mut(), false, 1.0, self.u.transpose(), x.as_ref());
        for j in 0..c.ncols() {
            c.col_as_slice_mut(j).iter_mut().zip(&self.gains).for_each(|(c, gain)| *c *= gain);
        }
        let mut z = x.clone();
        product(z.as_mut(), true, 1.0, self.u.as_ref(), c.as_ref());
        z
    }
}

fn beside(a: &Mat<f64>, b: &Mat<f64>) -> Mat<f64> {
    let mut both = Mat::zeros(a.nrows(), a.ncols() + b.ncols());
    both.as_mut().subcols_mut(0, a.ncols()).copy_from(a);
    both.as_mut().subcols_mut(a.ncols(), b.ncols()).copy_from(b);
    both
}

/// `U` and `Λ`, largest first.
fn eigen<T: Field>(omega: &Mat<f64>, y: &Mat<f64>) -> Result<(Mat<f64>, Vec<f64>)> {
    let (n, r) = (y.nrows(), y.ncols());
    let broken =
        || Error::input("features", "their products are not finite", "scale them down, or compute them in double precision");
    // The sketch is as exact as the products that made it; ‖Y‖_F/√r ≈ ‖A‖_F bounds what they round.
    let mut nu = T::EPSILON * y.norm_l2() / (r as f64).sqrt();
    let mut core = Mat::<f64>::zeros(r, r);
    product(core.as_mut(), false, 1.0, omega.transpose(), y.as_ref());
    let mut overlap = Mat::<f64>::zeros(r, r);
    product(overlap.as_mut(), false, 1.0, omega.transpose(), omega.as_ref());
    let (factor, shift) = loop {
        if !(nu.is_finite() && core.norm_l2().is_finite()) {
            return Err(broken());
        }
        let mut factor = Mat::from_fn(r, r, |i, j| 0.5 * (core[(i, j)] + core[(j, i)]) + nu * overlap[(i, j)]);
        if cholesky(factor.as_mut()).is_ok() {
            break (factor, nu);
        }
        nu = 10.0 * nu.max(f64::MIN_POSITIVE);
    };
    // Bᵀ = C⁻¹ Y_νᵀ; its small Gram matrix B Bᵀ has the eigenvalues Σ².
    let mut bt = Mat::from_fn(r, n, |i, j| y[(j, i)] + shift * omega[(j, i)]);
    solve_lower(factor.as_ref(), bt.as_mut());
    let mut small = Mat::<f64>::zeros(r, r);
    add_outer(small.as_mut(), bt.as_ref());
    let (values, vectors) = symmetric_eigen(small.as_ref()).ok_or_else(broken)?;
    // Directions ten digits below the first are not orthonormal any more after division by Σ: drop them.
    let floor = 1e-10 * values.last().copied().unwrap_or(0.0);
    let kept: Vec<usize> = (0..r).rev().filter(|&j| values[j] > floor && values[j] > 0.0).collect();
    let scaled = Mat::from_fn(r, kept.len(), |i, j| vectors[(i, kept[j])] / values[kept[j]].sqrt());
    let mut u = Mat::<f64>::zeros(n, kept.len());
    product(u.as_mut(), false, 1.0, bt.transpose(), scaled.as_ref());
    Ok((u, kept.iter().map(|&j| (values[j] - shift).max(0.0)).collect()))
}
