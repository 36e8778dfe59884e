//! Products in tiles, at the speed of the machine, and symmetric updates of a lower triangle:
//!
//! ```text
//! C ← C + s A B        C ← C + s A Bᵀ  where that is symmetric: A = B, or A = [V W], B = [W V]
//! ```
//!
//! `C` is cut into square tiles whose size depends on the size of `C` alone. Threads share the tiles, and one thread computes a
//! tile from beginning to end: the same bits come on any number of threads. Of a symmetric `C` the tiles on and below the
//! diagonal are computed; above the diagonal only the diagonal tiles hold anything of use.

use super::lanes::Real;
use crate::parallel;
use faer::prelude::{IntoConst, ReborrowMut};
use faer::traits::RealField;
use faer::{Mat, MatMut, MatRef};

/// Numbers that have both vector lanes and dense factorisations: `f32` and `f64`.
pub trait Field: Real + RealField {
    /// Distance from 1 to the next number.
    const EPSILON: f64;
}
impl Field for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
}
impl Field for f64 {
    const EPSILON: f64 = f64::EPSILON;
}

/// The largest tile: two of its operands of this depth fit in a second-level cache.
const TILE: usize = 512;

/// The largest depth of a product of tiles.
const DEPTH: usize = 576;

/// Side of the tiles of an `n × n` matrix: enough tiles to share out, large enough to be products at full speed.
pub fn tile(n: usize) -> usize {
    (n / 12).next_multiple_of(64).clamp(64, TILE)
}

/// `C ← [C] + s A B` on the calling thread; `C` is read if `add`.
#[allow(unsafe_code)]
pub fn multiply<T: Field>(c: MatMut<'_, T>, add: bool, s: T, a: MatRef<'_, T>, b: MatRef<'_, T>) {
    assert!(a.nrows() == c.nrows() && b.ncols() == c.ncols() && a.ncols() == b.nrows());
    // SAFETY: the three views are valid for their sizes and strides, which agree by the assertion; `c` is borrowed uniquely.
    // The call is unsafe because it takes pointers. It is made directly, not through `faer`, because faer's kernel for this
    // machine falls to half its speed when the depth is not the contiguous direction of both operands.
    unsafe {
        gemm::gemm(
            c.nrows(),
            c.ncols(),
            a.ncols(),
            c.as_ptr_mut(),
            c.col_stride(),
            c.row_stride(),
            add,
            a.as_ptr(),
            a.col_stride(),
            a.row_stride(),
            b.as_ptr(),
            b.col_stride(),
            b.row_stride(),
            T::ONE,
            s,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// A part of a matrix and where its first entry stands.
pub struct Tile<'a, T> {
    /// First row.
    pub row: usize,
    /// First column.
    pub col: usize,
    /// The entries.
    pub part: MatMut<'a, T>,
}

/// Cuts `c` into tiles of at most `rows × cols`, column by column.
pub fn tiles<T>(c: MatMut<'_, T>, rows: usize, cols: usize) -> Vec<Tile<'_, T>> {
    cut(c, rows, cols, |_| 0)
}

/// The tiles on and below the diagonal of a square `c`.
pub fn lower_tiles<T>(c: MatMut<'_, T>, side: usize) -> Vec<Tile<'_, T>> {
    cut(c, side, side, |col| col)
}

fn cut<T>(mut c: MatMut<'_, T>, rows: usize, cols: usize, top: impl Fn(usize) -> usize) -> Vec<Tile<'_, T>> {
    let mut tiles = Vec::new();
    let mut col = 0;
    while c.ncols() > 0 {
        let width = cols.min(c.ncols());
        let (column, rest) = c.split_at_col_mut(width);
        let mut row = top(col);
        let mut below = column.split_at_row_mut(row).1;
        while below.nrows() > 0 {
            let height = rows.min(below.nrows());
            let (part, next) = below.split_at_row_mut(height);
            tiles.push(Tile { row, col, part });
            (row, below) = (row + height, next);
        }
        (col, c) = (col + width, rest);
    }
    tiles
}

/// `C ← [C] + s A B` on all threads; `C` is read if `add`.
pub fn product<T: Field>(c: MatMut<'_, T>, add: bool, s: T, a: MatRef<'_, T>, b: MatRef<'_, T>) {
    // Tall or wide results are cut along their long side alone.
    let (rows, cols) = (tile(c.nrows()), tile(c.ncols()).max(TILE / 2));
    parallel::each(tiles(c, rows, cols), |Tile { row, col, part }| {
        let (height, width) = (part.nrows(), part.ncols());
        multiply(part, add, s, a.subrows(row, height), b.subcols(col, width));
    });
}

/// Lower triangle of `C ← C + s A Bᵀ`, which the caller knows to be symmetric, on all threads.
pub fn update_lower<T: Field>(c: MatMut<'_, T>, s: T, a: MatRef<'_, T>, b: MatRef<'_, T>) {
    parallel::each(lower_tiles(c, tile(a.nrows())), |Tile { row, col, part }| {
        let (height, width) = (part.nrows(), part.ncols());
        multiply_deep(part, s, a.subrows(row, height), b.subrows(col, width).transpose());
    });
}

/// `C ← C + s A B` on the calling thread, in pieces of one depth: what a tile reads stays in the second-level cache while it is used.
pub fn multiply_deep<T: Field>(mut c: MatMut<'_, T>, s: T, a: MatRef<'_, T>, b: MatRef<'_, T>) {
    let pieces = a.ncols().div_ceil(DEPTH).max(1);
    let step = a.ncols().div_ceil(pieces).max(1);
    for first in (0..a.ncols()).step_by(step) {
        let depth = step.min(a.ncols() - first);
        multiply(c.rb_mut(), true, s, a.subcols(first, depth), b.subrows(first, depth));
    }
}

/// Lower triangle of `C ← C + Φ Φᵀ`; for `ΦᵀΦ` hand over the transpose.
pub fn add_outer<T: Field>(c: MatMut<'_, T>, phi: MatRef<'_, T>) {
    update_lower(c, T::ONE, phi, phi);
}

/// Copies the lower triangle to the upper.
pub fn mirror<T: Field>(mut c: MatMut<'_, T>) {
    for j in 0..c.ncols() {
        for i in 0..j {
            c[(i, j)] = c[(j, i)];
        }
    }
}

/// `A V` on all threads, for a symmetric `A` of which the lower triangle is read; the upper half of its diagonal tiles is written.
pub fn symmetric_product<T: Field>(mut a: MatMut<'_, T>, v: MatRef<'_, T>) -> Mat<T> {
    let (n, side) = (a.nrows(), tile(a.nrows()));
    parallel::each(lower_tiles(a.rb_mut(), side).into_iter().filter(|tile| tile.row == tile.col), |tile| mirror(tile.part));
    let a = a.into_const();
    let mut out = Mat::zeros(n, v.ncols());
    parallel::each(tiles(out.as_mut(), side, TILE), |Tile { row, col, mut part }| {
        let (height, v) = (part.nrows(), v.subcols(col, part.ncols()));
        for j in (0..n).step_by(side) {
            let width = side.min(n - j);
            let a = if j <= row { a.submatrix(row, j, height, width) } else { a.submatrix(j, row, width, height).transpose() };
            multiply(part.rb_mut(), true, T::ONE, a, v.subrows(j, width));
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_agree_with_the_definition() {
        for (n, k) in [(1, 3), (70, 5), (333, 40), (900, 17), (70, 1500)] {
            let phi = Mat::from_fn(n, k, |i, j| ((i * 7 + j * 13) % 31) as f64 - 15.0);
            let exact = &phi * phi.transpose();
            let mut c = Mat::<f64>::zeros(n, n);
            add_outer(c.as_mut(), phi.as_ref());
            let mut full = Mat::<f64>::zeros(n, n);
            product(full.as_mut(), false, 1.0, phi.as_ref(), phi.transpose());
            assert_eq!(full, exact);
            let v = Mat::from_fn(n, 3, |i, j| ((i + 5 * j) % 11) as f64);
            assert_eq!(symmetric_product(c.as_mut(), v.as_ref()), &exact * &v);
            mirror(c.as_mut());
            assert_eq!(c, exact);
        }
    }
}
