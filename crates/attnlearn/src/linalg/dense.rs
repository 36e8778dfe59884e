//! Dense matrices: the linear-algebra crate's own type, and the few solves that the learners need.

use super::symmetric::Field;
use faer::Side;
use faer::linalg::solvers::{Solve, SolveLstsq};
pub use faer::{Mat, MatRef};
use rayon::prelude::*;

/// A matrix of zeros whose columns begin in different sets of the cache: an odd number of cache lines lies between them. With the power of
/// two that many problems have, a tile of a large matrix would have all its columns in a few sets, and products in place lose a third.
///
/// All threads write it: the first touch of fresh memory takes as long as a few products with it.
#[allow(unsafe_code)]
pub fn staggered<T: Field>(rows: usize, cols: usize) -> Mat<T> {
    struct Place<T>(*mut T);
    // SAFETY: every thread writes columns of its own.
    unsafe impl<T> Sync for Place<T> {}
    impl<T> Place<T> {
        fn column(&self, offset: usize) -> *mut T {
            self.0.wrapping_add(offset)
        }
    }
    let line = (64 / size_of::<T>()).max(1);
    let lines = rows.div_ceil(line);
    let mut zeros = Mat::<T>::with_capacity((lines + 1 - lines % 2) * line, cols);
    let (place, stride) = (Place(zeros.as_ptr_mut()), zeros.col_stride().unsigned_abs());
    (0..cols).into_par_iter().with_min_len(16).for_each(|j| {
        // SAFETY: room for `cols` columns of `rows ≤ stride` numbers was reserved, `stride` apart, and all bits 0 is the number 0.
        unsafe { std::ptr::write_bytes(place.column(j * stride), 0, rows) };
    });
    // SAFETY: all of it has just been written.
    unsafe { zeros.set_dims(rows, cols) };
    zeros
}

/// `‖A‖_F`.
pub fn frobenius(a: MatRef<'_, f64>) -> f64 {
    a.norm_l2()
}

/// `⟨A, B⟩ = Σ_ij A_ij B_ij`.
pub fn inner(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> f64 {
    let mut sum = 0.0;
    for j in 0..a.ncols() {
        for i in 0..a.nrows() {
            sum += a[(i, j)] * b[(i, j)];
        }
    }
    sum
}

/// The entries row by row.
pub fn row_major(a: MatRef<'_, f64>) -> Vec<f64> {
    (0..a.nrows()).flat_map(|i| (0..a.ncols()).map(move |j| a[(i, j)])).collect()
}

/// The matrix whose entries stand row by row in `values`.
pub fn from_row_major(rows: usize, cols: usize, values: &[f64]) -> Mat<f64> {
    debug_assert_eq!(values.len(), rows * cols);
    Mat::from_fn(rows, cols, |i, j| values[i * cols + j])
}

/// Solves `A X = B` for a symmetric positive semidefinite `A`, adding the least ridge (from `10⁻¹⁴` of its mean diagonal) that
/// lets the Cholesky factorisation pass.
pub fn solve_spd(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    let n = a.nrows();
    let scale = (0..n).map(|i| a[(i, i)]).sum::<f64>() / n as f64;
    // A ridge of 0 would never grow.
    let mut ridge = if scale > 0.0 { (1e-14 * scale).max(f64::MIN_POSITIVE) } else { 1.0 };
    loop {
        let mut shifted = a.to_owned();
        for i in 0..n {
            shifted[(i, i)] += ridge;
        }
        if let Ok(factor) = shifted.llt(Side::Lower) {
            return factor.solve(b);
        }
        ridge *= 10.0;
        if !ridge.is_finite() {
            return Mat::from_fn(n, b.ncols(), |_, _| f64::NAN);
        }
    }
}

/// `X` of least `‖AX − B‖`, and of those the smallest: singular values of `A` below `cut` times the largest count as none. `None` if there are numbers that are not
/// finite.
pub fn least_squares(a: MatRef<'_, f64>, b: MatRef<'_, f64>, cut: f64) -> Option<Mat<f64>> {
    let svd = a.thin_svd().ok()?;
    let s = svd.S().column_vector();
    let largest = (0..s.nrows()).map(|j| s[j]).fold(0.0, f64::max);
    let mut x = svd.U().transpose() * b;
    for j in 0..x.nrows() {
        let scale = if s[j] > cut * largest { 1.0 / s[j] } else { 0.0 };
        (0..x.ncols()).for_each(|e| x[(j, e)] *= scale);
    }
    Some(svd.V() * x)
}

/// `X` of least `‖AX − B‖` for an `A` of full column rank, by a QR decomposition.
pub fn full_rank_least_squares(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    a.qr().solve_lstsq(b)
}

/// `A⁻¹`; `None` if it is singular to rounding.
pub fn inverse(a: MatRef<'_, f64>) -> Option<Mat<f64>> {
    let inverse = a.partial_piv_lu().solve(Mat::<f64>::identity(a.nrows(), a.nrows()));
    inverse.norm_l2().is_finite().then_some(inverse)
}

/// Eigenvalues in increasing order and the matching orthonormal eigenvectors (columns) of a symmetric matrix;
/// `None` if it has entries that are not finite.
pub fn symmetric_eigen(a: MatRef<'_, f64>) -> Option<(Vec<f64>, Mat<f64>)> {
    let eigen = a.self_adjoint_eigen(Side::Lower).ok()?;
    Some((eigen.S().column_vector().iter().copied().collect(), eigen.U().to_owned()))
}

/// Smallest over largest eigenvalue of a symmetric matrix; 0 if none is positive.
pub fn spread(a: MatRef<'_, f64>) -> f64 {
    match symmetric_eigen(a) {
        Some((values, _)) if values[values.len() - 1] > 0.0 => values[0] / values[values.len() - 1],
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matrices of any size end: those whose diagonal is too small for a ridge of its size, and those that are not finite.
    #[test]
    fn every_matrix_is_solved() {
        for (entry, finite) in [(1.0, true), (0.0, true), (5e-324, true), (1e-310, true), (1e-200, true), (f64::NAN, false)] {
            let a = Mat::from_fn(3, 3, |_, _| entry);
            let x = solve_spd(a.as_ref(), Mat::zeros(3, 1).as_ref());
            assert!((0..3).all(|i| x[(i, 0)].is_finite() == finite), "{entry}: {x:?}");
        }
    }

    #[test]
    fn columns_are_an_odd_number_of_cache_lines_apart() {
        for rows in [0, 1, 15, 16, 17, 64, 100, 4096] {
            let (a, b) = (staggered::<f32>(rows, 5), staggered::<f64>(rows, 5));
            assert_eq!((a.as_ref(), b.as_ref()), (Mat::zeros(rows, 5).as_ref(), Mat::zeros(rows, 5).as_ref()));
            for bytes in [4 * a.col_stride(), 8 * b.col_stride()] {
                assert_eq!((bytes % 64, bytes / 64 % 2), (0, 1), "{rows} rows");
            }
        }
    }
}
