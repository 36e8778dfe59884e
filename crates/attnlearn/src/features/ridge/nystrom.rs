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
//! iterations that it saves. `U` and `Λ` do not depend on `μ`: a walk over many ridges has one sketch, which grows on the way.

use super::operator::Operator;
use super::panel::add_in_order;
use super::rows::{combine, dots};
use super::{Stage, Watch};
use crate::linalg::cholesky::{cholesky, solve_lower};
use crate::linalg::symmetric::{Field, add_outer, product};
use crate::linalg::{Mat, symmetric_eigen};
use crate::memory::{clamp, numbers};
use crate::parallel;
use crate::{Error, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use std::ops::AddAssign;

/// First rank tried.
pub(super) const FIRST: usize = 64;
/// Columns of `U` that a thread takes at a time.
const COLUMNS: usize = 64;
/// Largest rank tried.
pub(super) const MOST: usize = 1024;

/// The sketch `A ≈ U Λ Uᵀ`, which serves every `μ` and grows when a smaller one asks for more.
pub(super) struct Nystrom<T> {
    omega: Mat<f64>,
    y: Mat<f64>,
    /// `U`, column after column.
    u: Vec<T>,
    /// `Λ`, largest first.
    values: Vec<f64>,
    /// Rank that was asked for.
    rank: Option<usize>,
    limit: usize,
    rng: ChaCha8Rng,
}

/// `P⁻¹` for one `μ`.
pub(super) struct Preconditioner<'a, T> {
    u: &'a [T],
    /// `(λ_r + μ)/(λ_j + μ) − 1`.
    gains: Vec<f64>,
}

impl<T: Field> Nystrom<T> {
    /// Bytes at the peak of making a sketch of rank `r`: four matrices of the sketch's shape (`Ω`, `Y` and their copies as they
    /// grow, or `B` and `U`), ten small ones, and a panel or slab (of `rows`) times `Ω`.
    pub fn bytes(size: usize, rank: usize, rows: usize) -> u64 {
        let rank = rank.min(size / 2);
        let square = numbers::<f64>(&[4, size, rank]).saturating_add(numbers::<f64>(&[10, rank, rank]));
        clamp(square.saturating_add(numbers::<T>(&[rows, rank])))
    }

    /// No sketch yet: of the rank given, or of one that pays up to `limit`.
    pub fn new(size: usize, rank: Option<usize>, limit: usize, seed: u64) -> Self {
        let none = || Mat::zeros(size, 0);
        let limit = rank.unwrap_or(limit).min(size / 2);
        Self { omega: none(), y: none(), u: Vec::new(), values: Vec::new(), rank, limit, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The preconditioner for `μ`, after the sketch has grown as far as that pays; `None` for rank 0.
    pub fn precondition(
        &mut self,
        a: &Operator<'_, T>,
        mu: f64,
        tolerance: f64,
        watch: &dyn Watch,
    ) -> Result<Option<Preconditioner<'_, T>>> {
        if self.limit == 0 {
            return Ok(None);
        }
        while !self.suits(a, mu, tolerance) {
            self.double(a, watch)?;
        }
        let last = self.values.last().copied().unwrap_or(0.0);
        let gains = self.values.iter().map(|value| (last + mu) / (value + mu) - 1.0).collect();
        Ok(Some(Preconditioner { u: &self.u, gains }))
    }

    /// Grows the sketch for `μ`, but only while the solution may still be had for less than `most` columns; whether it can.
    pub fn pays(&mut self, a: &Operator<'_, T>, mu: f64, tolerance: f64, most: f64, watch: &dyn Watch) -> Result<bool> {
        while self.limit > 0 && !self.suits(a, mu, tolerance) {
            self.double(a, watch)?;
            if self.to_come(a, mu, tolerance) > most {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// About `λ_r`. The sketch sees its last eigenvalues far too small where the spectrum is flat, and these are blocks of hundreds of
    /// equal ones; those of the first half can be trusted.
    fn tail(&self) -> f64 {
        self.values.get(self.values.len() / 2).copied().unwrap_or(0.0)
    }

    /// Columns' worth of work that is still to come at best, if doubling the rank goes on to divide that eigenvalue by what it
    /// was divided by from half the rank to the whole.
    fn to_come(&self, a: &Operator<'_, T>, mu: f64, tolerance: f64) -> f64 {
        let rank = self.values.len();
        let last = self.tail();
        let fall = self.values.get(rank / 4).map_or(1.0, |half| (last / half).min(1.0));
        let sizes = std::iter::successors(Some((self.omega.ncols(), last)), |&(size, last)| {
            (size < self.limit).then(|| ((2 * size).min(self.limit), last * fall))
        });
        let cost = |(size, last)| (size - self.omega.ncols()) as f64 + a.iteration_columns() * iterations(last / mu, tolerance);
        sizes.map(cost).fold(f64::INFINITY, f64::min)
    }

    /// Whether a larger sketch would cost more than it saves, or may not be.
    fn suits(&self, a: &Operator<'_, T>, mu: f64, tolerance: f64) -> bool {
        let size = self.omega.ncols();
        let work = a.iteration_columns() * iterations(self.tail() / mu, tolerance);
        // Twice the rank saves about three iterations in ten.
        size >= self.limit || (size > 0 && self.rank.is_none() && 0.3 * work < size as f64)
    }

    /// Twice the rank, or the rank that was asked for.
    fn double(&mut self, a: &Operator<'_, T>, watch: &dyn Watch) -> Result<()> {
        watch.begin(Stage::Sketch);
        let size = match (self.rank, self.omega.ncols()) {
            (Some(_), _) => self.limit,
            (None, 0) => FIRST.min(self.limit),
            (None, now) => (2 * now).min(self.limit),
        };
        self.grow(a, size, watch)
    }

    fn grow(&mut self, a: &Operator<'_, T>, size: usize, watch: &dyn Watch) -> Result<()> {
        self.u = Vec::new();
        let mut more = Mat::<f64>::zeros(a.size(), size - self.omega.ncols());
        for j in 0..more.ncols() {
            more.col_as_slice_mut(j).iter_mut().for_each(|v| *v = StandardNormal.sample(&mut self.rng));
        }
        let image = a.sketch(&more, watch)?;
        self.omega = beside(&self.omega, &more);
        drop(more);
        self.y = beside(&self.y, &image);
        drop(image);
        let (u, values) = eigen::<T>(&self.omega, &self.y)?;
        // A preconditioner need not be exact, only the same at every use.
        self.u = (0..u.ncols()).flat_map(|j| u.col_as_slice(j)).map(|v| T::from_f64(*v)).collect();
        self.values = values;
        Ok(())
    }
}

/// Iterations that conjugate gradients take at a condition number of `1 + ratio`.
fn iterations(ratio: f64, tolerance: f64) -> f64 {
    0.5 * (1.0 + ratio).sqrt() * (2.0 / tolerance).ln()
}

impl<T: Field> Preconditioner<'_, T> {
    /// `P⁻¹ X`.
    pub fn apply(&self, x: &Mat<f64>) -> Mat<f64> {
        let (p, mut z) = (x.nrows(), x.clone());
        for j in 0..x.ncols() {
            let mut c = vec![0.0; self.gains.len()];
            parallel::each(c.chunks_mut(COLUMNS).zip(self.u.chunks(COLUMNS * p)), |(c, u)| dots(u, x.col_as_slice(j), c));
            c.iter_mut().zip(&self.gains).for_each(|(c, gain)| *c *= gain);
            let part = |(c, u): (&[f64], &[T])| {
                let mut sum = Mat::zeros(p, 1);
                combine(u, c, sum.col_as_slice_mut(0));
                sum
            };
            let parts = parallel::map(c.chunks(COLUMNS).zip(self.u.chunks(COLUMNS * p)), part);
            z.as_mut().subcols_mut(j, 1).add_assign(add_in_order(parts, p, 1));
        }
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
        if cholesky(factor.as_mut(), &|| false).is_ok() {
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
