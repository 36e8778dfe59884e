//! Dense matrices: the linear-algebra crate's own type, and the few solves that the learners need.

pub use faer::{Mat, MatRef};

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
