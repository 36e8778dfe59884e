//! Cholesky factorisation `A = L Lᵀ` in place of the lower triangle, and solves with it, on all threads.
//!
//! Block column by block column: `A_ik ← A_ik − Σ_{j<k} L_ij L_kjᵀ` tile by tile, factor the diagonal block, `L_ik = A_ik L_kk⁻ᵀ` tile by tile.
//! Nearly all the work is in the first, a product at full speed that writes every tile once.

use super::symmetric::{Field, Tile, multiply, multiply_deep, product, tile, tiles};
use crate::parallel;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{LltParams, cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::prelude::{IntoConst, Reborrow, ReborrowMut};
use faer::{Auto, Mat, MatMut, MatRef, Par, Spec};

/// The matrix is not positive definite, to working precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPositive;

/// Why a factorisation ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The matrix is not positive definite, to working precision, or not finite.
    Unfit,
    /// It was told to stop.
    Stopped,
}

impl From<NotPositive> for Halt {
    fn from(NotPositive: NotPositive) -> Self {
        Self::Unfit
    }
}

/// Replaces the lower triangle of `a` by its Cholesky factor; what stands above the diagonal is not read and may be overwritten.
/// `stop` is asked before every block column.
pub fn cholesky<T: Field>(mut a: MatMut<'_, T>, stop: &dyn Fn() -> bool) -> Result<(), Halt> {
    let n = a.nrows();
    let step = tile(n);
    for k in (0..n).step_by(step) {
        if stop() {
            return Err(Halt::Stopped);
        }
        let width = step.min(n - k);
        let (done, rest) = a.rb_mut().split_at_col_mut(k);
        let (done, mut column) = (done.into_const(), rest.submatrix_mut(k, 0, n - k, width));
        parallel::each(tiles(column.rb_mut(), (step / 2).max(1), width), |Tile { row, part, .. }| {
            let height = part.nrows();
            multiply_deep(part, -T::ONE, done.subrows(k + row, height), done.subrows(k, width).transpose());
        });
        let (mut top, below) = column.split_at_row_mut(width);
        small_cholesky(top.rb_mut())?;
        let top = top.into_const();
        let inverses = diagonal_inverses(top);
        parallel::each(tiles(below, (step / 2).max(1), width), |tile| solve_right(top, &inverses, tile.part));
    }
    Ok(())
}

/// Columns of a diagonal block that are solved for together.
const STEP: usize = 64;

/// The inverses of the blocks of [`STEP`] along the diagonal of `L`.
fn diagonal_inverses<T: Field>(l: MatRef<'_, T>) -> Vec<Mat<T>> {
    let block = |k: usize| l.submatrix(k, k, STEP.min(l.nrows() - k), STEP.min(l.nrows() - k));
    (0..l.nrows()).step_by(STEP).map(|k| small_inverse(block(k))).collect()
}

/// `X ← X L⁻ᵀ` on the calling thread, a few columns at a time: the triangular solve in the library's hands is far slower than a product,
/// and so all of it becomes products.
fn solve_right<T: Field>(l: MatRef<'_, T>, inverses: &[Mat<T>], mut x: MatMut<'_, T>) {
    let mut scratch = Mat::zeros(x.nrows(), STEP);
    for (k, inverse) in (0..l.nrows()).step_by(STEP).zip(inverses) {
        let width = inverse.nrows();
        let (done, rest) = x.rb_mut().split_at_col_mut(k);
        let mut now = rest.subcols_mut(0, width);
        multiply(now.rb_mut(), true, -T::ONE, done.into_const(), l.submatrix(k, 0, width, k).transpose());
        let mut solved = scratch.as_mut().subcols_mut(0, width);
        multiply(solved.rb_mut(), false, T::ONE, now.rb(), inverse.transpose());
        now.copy_from(solved);
    }
}

/// [`cholesky`] on the calling thread, for small matrices.
pub fn small_cholesky<T: Field>(a: MatMut<'_, T>) -> Result<(), NotPositive> {
    let params: Spec<LltParams, T> = Spec::new(<LltParams as Auto<T>>::auto());
    let n = a.nrows();
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<T>(n, Par::Seq, params));
    let mut a = a;
    cholesky_in_place(a.rb_mut(), Default::default(), Par::Seq, MemStack::new(&mut memory), params).map_err(|_| NotPositive)?;
    // Not-a-number passes the test for a positive pivot.
    if (0..n).all(|i| a[(i, i)].to_f64().is_finite()) { Ok(()) } else { Err(NotPositive) }
}

/// `X ← L⁻¹ X`.
pub fn solve_lower<T: Field>(l: MatRef<'_, T>, mut x: MatMut<'_, T>) {
    let n = l.nrows();
    let step = tile(n);
    for k in (0..n).step_by(step) {
        let width = step.min(n - k);
        let (mut now, later) = x.rb_mut().split_at_row_mut(k).1.split_at_row_mut(width);
        over_columns(now.rb_mut(), |part| solve_lower_triangular_in_place(l.submatrix(k, k, width, width), part, Par::Seq));
        product(later, true, -T::ONE, l.submatrix(k + width, k, n - k - width, width), now.into_const());
    }
}

/// `X ← L⁻ᵀ X`.
pub fn solve_upper<T: Field>(l: MatRef<'_, T>, mut x: MatMut<'_, T>) {
    let n = l.nrows();
    let step = tile(n);
    for k in (0..n).step_by(step).rev() {
        let width = step.min(n - k);
        let (mut now, later) = x.rb_mut().split_at_row_mut(k).1.split_at_row_mut(width);
        let (later, below) = (later.into_const(), l.submatrix(k + width, k, n - k - width, width).transpose());
        // Few rows and a long sum: narrow tiles, so that all threads have some.
        parallel::each(tiles(now.rb_mut(), 64, 256), |Tile { row, col, part }| {
            let (height, cols) = (part.nrows(), part.ncols());
            multiply(part, true, -T::ONE, below.subrows(row, height), later.subcols(col, cols));
        });
        let diagonal = l.submatrix(k, k, width, width).transpose();
        over_columns(now, |part| solve_upper_triangular_in_place(diagonal, part, Par::Seq));
    }
}

/// `X ← (L Lᵀ)⁻¹ X`.
pub fn solve<T: Field>(l: MatRef<'_, T>, mut x: MatMut<'_, T>) {
    solve_lower(l, x.rb_mut());
    solve_upper(l, x);
}

/// The inverse of a small lower triangular matrix.
pub fn small_inverse<T: Field>(l: MatRef<'_, T>) -> Mat<T> {
    let mut inverse = Mat::identity(l.nrows(), l.nrows());
    solve_lower_triangular_in_place(l, inverse.as_mut(), Par::Seq);
    inverse
}

fn over_columns<T: Field>(x: MatMut<'_, T>, each: impl Fn(MatMut<'_, T>) + Sync) {
    let rows = x.nrows();
    parallel::each(tiles(x, rows.max(1), 128), |tile| each(tile.part));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::linalg::symmetric::{add_outer, mirror};

    #[test]
    fn factors_and_solves() {
        for n in [1, 63, 200, 1500] {
            let phi = Mat::from_fn(n, n + 3, |i, j| ((i * 37 + j * 101 + i * j) % 97) as f64 / 97.0 - 0.5);
            let mut a = Mat::<f64>::identity(n, n);
            add_outer(a.as_mut(), phi.as_ref());
            let mut l = a.clone();
            cholesky(l.as_mut(), &|| false).unwrap();
            mirror(a.as_mut());
            let b = Mat::from_fn(n, 5, |i, j| (i + j) as f64);
            let mut x = b.clone();
            solve(l.as_ref(), x.as_mut());
            assert!((&a * &x - &b).norm_max() < 1e-9 * n as f64);
        }
    }

    #[test]
    fn an_indefinite_matrix_is_refused() {
        let mut a = Mat::<f64>::identity(300, 300);
        a[(250, 250)] = -1.0;
        assert_eq!(cholesky(a.as_mut(), &|| false), Err(Halt::Unfit));
        a[(250, 250)] = f64::NAN;
        assert_eq!(cholesky(a.as_mut(), &|| false), Err(Halt::Unfit));
    }
    /// Asked before each of the block columns, it stops at any of them.
    #[test]
    fn it_stops_when_told() {
        let asked = std::cell::Cell::new(0);
        for limit in 0..4 {
            asked.set(0);
            let stop = || asked.replace(asked.get() + 1) >= limit;
            assert_eq!(cholesky(Mat::<f64>::identity(256, 256).as_mut(), &stop), Err(Halt::Stopped));
            assert_eq!(asked.get(), limit + 1);
        }
        assert_eq!(cholesky(Mat::<f64>::identity(256, 256).as_mut(), &|| asked.replace(asked.get() + 1) >= 8), Ok(()));
    }
}
