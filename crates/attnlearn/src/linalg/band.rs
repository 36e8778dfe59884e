//! Many shifts of one symmetric matrix: `K = Q B Qᵀ` with a band matrix `B`, after which every `(K + μI)⁻¹` is cheap.
//!
//! Step by step the `b` columns of a panel are made zero below the band by reflections, `P = (I − V S Vᵀ) R`, and the rest of
//! the matrix follows:
//!
//! ```text
//! X = A V S,   W = X − ½ V (Sᵀ Vᵀ X),   A ← A − V Wᵀ − W Vᵀ,        S⁻¹ = triu(VᵀV, 1) + ½ diag(VᵀV)
//! ```
//!
//! All of it is products, a few panels at a time, unlike the reduction to tridiagonal form, half of which waits for memory. `4/3 n³` operations go into
//! `B` and as many into `Q`; then for every `μ` with `L Lᵀ = B + μI` (a band again, `O(n b²)`)
//!
//! ```text
//! (K + μI)⁻¹ y = Q L⁻ᵀ L⁻¹ Qᵀ y        zᵀ (K + μI)⁻¹ z = ‖L⁻¹ Qᵀ z‖²        O(n b) operations for every z
//! ```
//!
//! Small matrices are taken to diagonal form instead, `b = 0`: the eigenvalues.

use super::cholesky::{Halt, NotPositive, small_cholesky, small_inverse};
use super::lanes::{Real, vectorised};
use super::symmetric::{Field, multiply, product, symmetric_product, update_lower};
use crate::parallel;
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::prelude::{Reborrow, ReborrowMut};
use faer::{Mat, MatMut, MatRef, Par, Side};
use pulp::{Simd, WithSimd};

/// Up to this size the eigenvalues come sooner than the band.
const SMALL: usize = 512;
/// Half the bandwidth: the reduction runs at 0.74 (single precision) and 0.79 (double) of the speed of a plain product at 64, at
/// 0.81 (single) at 128, where every shift costs twice as much.
pub const HALF: usize = 64;
/// Panels whose reflections are gathered before the rest of the matrix follows.
const GROUP: usize = 4;
/// Columns of a panel that are reflected one by one before the others follow.
const INNER: usize = 16;
/// Right-hand sides that one thread takes through the band at a time.
const COLUMNS: usize = 256;

/// A symmetric matrix as `Q B Qᵀ`.
pub struct BandForm<T> {
    q: Mat<T>,
    /// `B_{j+d,j}` at `(d, j)`, `d ≤ b`.
    band: Mat<T>,
}

impl<T: Field> BandForm<T> {
    /// The form of `a`, of which the lower triangle is read; in place. Unfit if it has entries that are not finite. `stop` is asked
    /// at every panel.
    pub fn new(a: Mat<T>, stop: &dyn Fn() -> bool) -> Result<Self, Halt> {
        if stop() {
            return Err(Halt::Stopped);
        }
        if a.nrows() <= SMALL { Self::eigen(a.as_ref()).ok_or(Halt::Unfit) } else { Self::reduce(a, HALF, stop) }
    }

    /// The diagonal form, `b = 0`.
    pub fn eigen(a: MatRef<'_, T>) -> Option<Self> {
        let eigen = a.self_adjoint_eigen(Side::Lower).ok()?;
        let values = eigen.S().column_vector();
        Some(Self { band: Mat::from_fn(1, a.nrows(), |_, j| values[j]), q: eigen.U().to_owned() })
    }

    /// The band form with `b = half`.
    pub fn reduce(mut a: Mat<T>, half: usize, stop: &dyn Fn() -> bool) -> Result<Self, Halt> {
        let n = a.nrows();
        let panels: Vec<usize> = (0..n.saturating_sub(half + 1)).step_by(half).collect();
        let mut groups = Vec::new();
        for group in panels.chunks(GROUP) {
            let mut pending = Pending::new(n - group[0] - half, group.len() * half);
            let mut skipped = Vec::new();
            for &k in group {
                if stop() {
                    return Err(Halt::Stopped);
                }
                let m = n - k - half;
                if k > group[0] {
                    pending.settle_columns(a.as_mut().submatrix_mut(k, k, n - k, half));
                }
                let (v, s, none) = reflect(a.as_mut().submatrix_mut(k + half, k, m, half));
                let mut w = pending.product(a.as_mut().submatrix_mut(k + half, k + half, m, m), v.as_ref());
                let x = std::mem::replace(&mut w, Mat::zeros(m, v.ncols()));
                product(w.as_mut(), false, T::ONE, x.as_ref(), s.as_ref());
                let mut vx = Mat::zeros(v.ncols(), v.ncols());
                product(vx.as_mut(), false, T::ONE, v.transpose(), w.as_ref());
                let svx = s.transpose() * &vx;
                product(w.as_mut(), true, T::from_f64(-0.5), v.as_ref(), svx.as_ref());
                pending.push(v.as_ref(), w.as_ref());
                skipped.extend(none);
            }
            let next = group[group.len() - 1] + half;
            pending.settle(a.as_mut().submatrix_mut(next, next, n - next, n - next));
            groups.push((group[0], skipped));
        }
        let band = Mat::from_fn(half + 1, n, |d, j| if j + d < n { a[(j + d, j)] } else { T::ZERO });
        form_q(&mut a, half, &groups, stop)?;
        Ok(Self { q: a, band })
    }

    /// Size of the matrix.
    pub fn size(&self) -> usize {
        self.q.nrows()
    }

    /// `Q`.
    pub fn q(&self) -> MatRef<'_, T> {
        self.q.as_ref()
    }

    /// `tr K = tr B`.
    pub fn trace(&self) -> f64 {
        (0..self.size()).map(|j| self.band[(0, j)].to_f64()).sum()
    }

    /// `Qᵀ Y`.
    pub fn rotate(&self, y: MatRef<'_, T>) -> Mat<T> {
        let mut out = Mat::zeros(self.size(), y.ncols());
        product(out.as_mut(), false, T::ONE, self.q.transpose(), y);
        out
    }

    /// `Q Y`.
    pub fn rotate_back(&self, y: MatRef<'_, T>) -> Mat<T> {
        let mut out = Mat::zeros(self.size(), y.ncols());
        product(out.as_mut(), false, T::ONE, self.q.as_ref(), y);
        out
    }

    /// Factors `B + shift · I`.
    pub fn factor(&self, shift: f64) -> Result<BandFactor<T>, NotPositive> {
        let (n, half, shift) = (self.size(), self.band.nrows() - 1, T::from_f64(shift));
        if half == 0 {
            let values: Vec<T> = (0..n).map(|j| self.band[(0, j)] + shift).collect();
            return if values.iter().all(|&v| v > T::ZERO) { Ok(BandFactor::Diagonal(values)) } else { Err(NotPositive) };
        }
        let entry = |i: usize, j: usize| if i >= j && i - j <= half { self.band[(i - j, j)] } else { T::ZERO };
        let mut blocks: Vec<Block<T>> = Vec::with_capacity(n.div_ceil(half));
        let mut above: Option<Mat<T>> = None;
        for k in (0..n).step_by(half) {
            let size = half.min(n - k);
            let mut diagonal =
                Mat::from_fn(size, size, |i, j| entry(k + i.max(j), k + i.min(j)) + if i == j { shift } else { T::ZERO });
            // L_{k,k−1} = B_{k,k−1} L_{k−1,k−1}⁻ᵀ
            let left = above.map(|above| {
                let mut left = Mat::from_fn(size, half, |i, j| entry(k + i, k - half + j));
                solve_lower_triangular_in_place(above.as_ref(), left.as_mut().transpose_mut(), Par::Seq);
                multiply(diagonal.as_mut(), true, -T::ONE, left.as_ref(), left.transpose());
                left
            });
            small_cholesky(diagonal.as_mut())?;
            let inverse = small_inverse(diagonal.as_ref());
            let carry = left.as_ref().map(|left| {
                let mut carry = Mat::zeros(size, half);
                multiply(carry.as_mut(), false, -T::ONE, inverse.as_ref(), left.as_ref());
                carry
            });
            blocks.push(Block { first: k, inverse, left, carry });
            above = Some(diagonal);
        }
        Ok(BandFactor::Band(blocks))
    }
}

/// `Σ_p V_p W_pᵀ + W_p V_pᵀ` of the panels of a group, still to be taken from the matrix: taken all at once, a quarter as much of it
/// passes through memory. All reach down to the last row; those of a later panel begin lower and are zero above.
struct Pending<T> {
    /// `[V_1 W_1 V_2 W_2 …]` and `[W_1 V_1 W_2 V_2 …]`, of which `used` columns are there.
    vw: Mat<T>,
    wv: Mat<T>,
    used: usize,
}

impl<T: Field> Pending<T> {
    fn new(rows: usize, reflections: usize) -> Self {
        Self { vw: Mat::zeros(rows, 2 * reflections), wv: Mat::zeros(rows, 2 * reflections), used: 0 }
    }

    /// The last `rows` rows of both.
    fn tail(&self, rows: usize) -> (MatRef<'_, T>, MatRef<'_, T>) {
        let first = self.vw.nrows() - rows;
        (self.vw.as_ref().submatrix(first, 0, rows, self.used), self.wv.as_ref().submatrix(first, 0, rows, self.used))
    }

    /// Adds a panel.
    fn push(&mut self, v: MatRef<'_, T>, w: MatRef<'_, T>) {
        let (first, r) = (self.vw.nrows() - v.nrows(), v.ncols());
        for (place, left, right) in [(self.used, v, w), (self.used + r, w, v)] {
            self.vw.as_mut().submatrix_mut(first, place, v.nrows(), r).copy_from(left);
            self.wv.as_mut().submatrix_mut(first, place, v.nrows(), r).copy_from(right);
        }
        self.used += 2 * r;
    }

    /// Takes it from the next columns, given from the diagonal down.
    fn settle_columns(&self, columns: MatMut<'_, T>) {
        let (vw, wv) = self.tail(columns.nrows());
        let across = wv.subrows(0, columns.ncols()).transpose();
        product(columns, true, -T::ONE, vw, across);
    }

    /// `(A − pending) V` for the part `A` of the matrix that is left, of which the lower triangle is read.
    fn product(&self, a: MatMut<'_, T>, v: MatRef<'_, T>) -> Mat<T> {
        let mut av = symmetric_product(a, v);
        if self.used > 0 {
            let (vw, wv) = self.tail(v.nrows());
            let mut inner = Mat::zeros(self.used, v.ncols());
            product(inner.as_mut(), false, T::ONE, wv.transpose(), v);
            product(av.as_mut(), true, -T::ONE, vw, inner.as_ref());
        }
        av
    }

    /// Takes it from the lower triangle of the part that is left.
    fn settle(&self, a: MatMut<'_, T>) {
        let (vw, wv) = self.tail(a.nrows());
        update_lower(a, -T::ONE, vw, wv);
    }
}

/// `Q = Q_0 Q_1 …`, from the last group of reflections to the first, where they stood: a group is one `I − V S Vᵀ`.
fn form_q<T: Field>(a: &mut Mat<T>, half: usize, groups: &[(usize, Vec<bool>)], stop: &dyn Fn() -> bool) -> Result<(), Halt> {
    let n = a.nrows();
    let mut done = n;
    for (k, skipped) in groups.iter().rev() {
        if stop() {
            return Err(Halt::Stopped);
        }
        let (start, r) = (k + half, skipped.len());
        let m = n - start;
        let v = Mat::from_fn(m, r, |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => T::ZERO,
            std::cmp::Ordering::Equal => T::ONE,
            std::cmp::Ordering::Greater => a[(start + i, k + j)],
        });
        let s = kernel(&v, skipped);
        let mut z = a.as_mut().submatrix_mut(start, start, m, m);
        identity_frame(z.rb_mut(), done - start);
        let mut vz = Mat::zeros(r, m);
        product(vz.as_mut(), false, T::ONE, v.transpose(), z.rb());
        let mut svz = Mat::zeros(r, m);
        product(svz.as_mut(), false, T::ONE, s.as_ref(), vz.as_ref());
        product(z.rb_mut(), true, -T::ONE, v.as_ref(), svz.as_ref());
        done = start;
    }
    identity_frame(a.as_mut(), done);
    Ok(())
}

/// Makes the first `width` rows and columns those of the identity.
fn identity_frame<T: Field>(mut z: MatMut<'_, T>, width: usize) {
    let n = z.nrows();
    z.rb_mut().subrows_mut(0, width).fill(T::ZERO);
    z.rb_mut().subcols_mut(0, width).fill(T::ZERO);
    for i in 0..width.min(n) {
        z[(i, i)] = T::ONE;
    }
}

/// Replaces a panel by the upper triangular `R` of its QR factorisation, with `V` below its diagonal; returns `V`, `S` and
/// which reflections were skipped.
fn reflect<T: Field>(mut panel: MatMut<'_, T>) -> (Mat<T>, Mat<T>, Vec<bool>) {
    let (m, cols) = (panel.nrows(), panel.ncols());
    let r = m.min(cols);
    let mut p: Vec<T> = Vec::with_capacity(m * cols);
    for j in 0..cols {
        p.extend((0..m).map(|i| panel[(i, j)]));
    }
    let mut skipped = vec![false; r];
    for first in (0..r).step_by(INNER) {
        let last = (first + INNER).min(r);
        for j in first..last {
            let (left, right) = p.split_at_mut((j + 1) * m);
            let column = &mut left[j * m + j..];
            let Some((diagonal, scale)) = reflection(column) else {
                skipped[j] = true;
                continue;
            };
            for other in right[..(last - j - 1) * m].chunks_exact_mut(m) {
                let other = &mut other[j..];
                let c = -(scale * dot(column, other));
                axpy(c, column, other);
            }
            column[0] = diagonal;
        }
        if last < cols {
            let (left, right) = p.split_at_mut(last * m);
            let v = unit_lower(&left[first * m..], m, first, &skipped[first..last]);
            let s = kernel(&v, &skipped[first..last]);
            let mut rest = MatMut::from_column_major_slice_mut(right, m, cols - last).subrows_mut(first, m - first);
            let mut vp = Mat::zeros(last - first, cols - last);
            product(vp.as_mut(), false, T::ONE, v.transpose(), rest.rb());
            let svp = s.transpose() * &vp;
            product(rest.rb_mut(), true, -T::ONE, v.as_ref(), svp.as_ref());
        }
    }
    for j in 0..cols {
        for i in 0..m {
            panel[(i, j)] = p[j * m + i];
        }
    }
    let v = unit_lower(&p, m, 0, &skipped);
    let s = kernel(&v, &skipped);
    (v, s, skipped)
}

/// Makes `x` the `v` (with `v_0 = 1`) of the reflection `I − (2/‖v‖²) v vᵀ` that takes it to a multiple of `e_0`; returns that
/// multiple and `2/‖v‖²`. `None` if nothing needs to be done.
fn reflection<T: Field>(x: &mut [T]) -> Option<(T, T)> {
    let (head, tail) = x.split_first_mut()?;
    let below = dot(tail, tail).to_f64();
    if below <= f64::from(f32::MIN_POSITIVE) * (1.0 + head.to_f64().powi(2)) {
        tail.fill(T::ZERO);
        return None;
    }
    let h = head.to_f64();
    let norm = (h * h + below).sqrt();
    let diagonal = if h > 0.0 { -norm } else { norm };
    let lead = h - diagonal;
    let scale = T::from_f64(1.0 / lead);
    for v in tail.iter_mut() {
        *v *= scale;
    }
    *head = T::ONE;
    Some((T::from_f64(diagonal), T::from_f64(2.0 / (1.0 + below / (lead * lead)))))
}

/// The reflections of the columns `first …` of a panel, rows `first …`.
fn unit_lower<T: Field>(columns: &[T], m: usize, first: usize, skipped: &[bool]) -> Mat<T> {
    Mat::from_fn(m - first, skipped.len(), |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Less => T::ZERO,
        std::cmp::Ordering::Equal => T::ONE,
        std::cmp::Ordering::Greater => columns[j * m + first + i],
    })
}

/// `S` of `V`; rows and columns of zeros for reflections that were skipped.
fn kernel<T: Field>(v: &Mat<T>, skipped: &[bool]) -> Mat<T> {
    let r = v.ncols();
    let mut g = Mat::zeros(r, r);
    product(g.as_mut(), false, T::ONE, v.transpose(), v.as_ref());
    let inverse_transposed = Mat::from_fn(r, r, |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Equal if skipped[i] => T::ONE,
        std::cmp::Ordering::Equal => g[(i, i)] * T::from_f64(0.5),
        std::cmp::Ordering::Greater if !skipped[i] && !skipped[j] => g[(j, i)],
        _ => T::ZERO,
    });
    let mut s = small_inverse(inverse_transposed.as_ref()).transpose().to_owned();
    for i in (0..r).filter(|&i| skipped[i]) {
        s[(i, i)] = T::ZERO;
    }
    s
}

/// One block row of the factor: `x_k = L_kk⁻¹ z_k − (L_kk⁻¹ L_{k,k−1}) x_{k−1}`.
pub struct Block<T> {
    first: usize,
    inverse: Mat<T>,
    left: Option<Mat<T>>,
    carry: Option<Mat<T>>,
}

/// `B + μI`, factored.
pub enum BandFactor<T> {
    /// Its diagonal, when that is all of it.
    Diagonal(Vec<T>),
    /// `L`, by blocks.
    Band(Vec<Block<T>>),
}

impl<T: Field> BandFactor<T> {
    /// `X ← (B + μI)⁻¹ X`, for few right-hand sides.
    pub fn solve(&self, x: &mut Mat<T>) {
        match self {
            Self::Diagonal(values) => {
                for j in 0..x.ncols() {
                    for (i, &value) in values.iter().enumerate() {
                        x[(i, j)] /= value;
                    }
                }
            }
            Self::Band(blocks) => {
                let cols = x.ncols();
                let mut before: Option<Mat<T>> = None;
                for block in blocks {
                    let mut part = x.as_mut().subrows_mut(block.first, block.inverse.nrows());
                    let mut now = Mat::zeros(part.nrows(), cols);
                    block.forward(part.rb(), before.as_ref().map(Mat::as_ref), now.as_mut());
                    part.copy_from(&now);
                    before = Some(now);
                }
                // y_k = L_kk⁻ᵀ (x_k − L_{k+1,k}ᵀ y_{k+1})
                let mut after: Option<(&Mat<T>, Mat<T>)> = None;
                for block in blocks.iter().rev() {
                    let mut part = x.as_mut().subrows_mut(block.first, block.inverse.nrows());
                    if let Some((left, y)) = &after {
                        multiply(part.rb_mut(), true, -T::ONE, left.transpose(), y.as_ref());
                    }
                    let mut y = Mat::zeros(part.nrows(), cols);
                    multiply(y.as_mut(), false, T::ONE, block.inverse.transpose(), part.rb());
                    part.copy_from(&y);
                    after = block.left.as_ref().map(|left| (left, y));
                }
            }
        }
    }

    /// `zᵀ (B + μI)⁻¹ z` for every column `z`, on all threads.
    pub fn energies(&self, z: MatRef<'_, T>) -> Vec<f64> {
        let of = |start: usize| self.block_energies(z.subcols(start, COLUMNS.min(z.ncols() - start)));
        parallel::map((0..z.ncols()).step_by(COLUMNS), of).concat()
    }

    fn block_energies(&self, z: MatRef<'_, T>) -> Vec<f64> {
        let cols = z.ncols();
        let mut sums = vec![0.0; cols];
        match self {
            Self::Diagonal(values) => {
                for (i, value) in values.iter().enumerate() {
                    let scale = 1.0 / value.to_f64();
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum += z[(i, j)].to_f64().powi(2) * scale;
                    }
                }
            }
            Self::Band(blocks) => {
                let size = blocks[0].inverse.nrows();
                let (mut now, mut before) = (Mat::zeros(size, cols), Mat::zeros(size, cols));
                for block in blocks {
                    let rows = block.inverse.nrows();
                    block.forward(z.subrows(block.first, rows), Some(before.as_ref()), now.as_mut().subrows_mut(0, rows));
                    for (j, sum) in sums.iter_mut().enumerate() {
                        let x = &now.col_as_slice(j)[..rows];
                        *sum += dot(x, x).to_f64();
                    }
                    std::mem::swap(&mut now, &mut before);
                }
            }
        }
        sums
    }
}

impl<T: Field> Block<T> {
    fn forward(&self, z: MatRef<'_, T>, before: Option<MatRef<'_, T>>, mut now: MatMut<'_, T>) {
        multiply(now.rb_mut(), false, T::ONE, self.inverse.as_ref(), z);
        if let (Some(carry), Some(before)) = (&self.carry, before) {
            multiply(now, true, T::ONE, carry.as_ref(), before);
        }
    }
}

/// `⟨x, y⟩`.
fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    struct Dot<'a, T>(&'a [T], &'a [T]);
    impl<T: Real> WithSimd for Dot<'_, T> {
        type Output = T;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> T {
            let mut sums = [T::ZERO; 32];
            let (x, y) = (self.0.chunks_exact(32), self.1.chunks_exact(32));
            let tail: T = x.remainder().iter().zip(y.remainder()).map(|(&x, &y)| x * y).sum();
            for (x, y) in x.zip(y) {
                for l in 0..32 {
                    sums[l] = x[l].mul_add(y[l], sums[l]);
                }
            }
            sums.into_iter().sum::<T>() + tail
        }
    }
    vectorised(Dot(x, y))
}

/// `y ← y + c x`.
fn axpy<T: Real>(c: T, x: &[T], y: &mut [T]) {
    struct Axpy<'a, T>(T, &'a [T], &'a mut [T]);
    impl<T: Real> WithSimd for Axpy<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            for (y, &x) in self.2.iter_mut().zip(self.1) {
                *y = self.0.mul_add(x, *y);
            }
        }
    }
    vectorised(Axpy(c, x, y));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::linalg::symmetric::{add_outer, mirror};

    fn example(n: usize, rank: usize) -> Mat<f64> {
        let phi = Mat::from_fn(n, rank, |i, j| ((i * 37 + j * 101 + i * j * 3 + i * i) % 97) as f64 / 97.0 - 0.4);
        let mut a = Mat::zeros(n, n);
        add_outer(a.as_mut(), phi.as_ref());
        a
    }

    #[test]
    fn the_form_is_the_matrix() {
        // Low ranks make the panels deficient: reflections are then skipped.
        for (n, rank, half) in [(5, 3, 2), (100, 120, 16), (101, 20, 7), (300, 290, 64), (70, 2, 64), (130, 200, 64)] {
            let a = example(n, rank);
            let form = BandForm::reduce(a.clone(), half, &|| false).unwrap();
            let b = Mat::from_fn(n, n, |i, j| {
                let (i, j) = (i.max(j), i.min(j));
                if i - j <= half { form.band[(i - j, j)] } else { 0.0 }
            });
            let mut full = a;
            mirror(full.as_mut());
            assert!((&form.q * form.q.transpose() - Mat::<f64>::identity(n, n)).norm_max() < 1e-13 * n as f64);
            assert!((&form.q * &b * form.q.transpose() - &full).norm_max() < 1e-13 * full.norm_l2());
        }
    }

    #[test]
    fn band_and_eigenvalues_agree() {
        let n = 260;
        let a = example(n, 300);
        let (band, eigen) = (BandForm::reduce(a.clone(), 48, &|| false).unwrap(), BandForm::eigen(a.as_ref()).unwrap());
        let y = Mat::from_fn(n, 2, |i, j| ((i * (3 + j)) % 17) as f64 - 8.0);
        for shift in [1e-3, 1.0, 100.0] {
            let answers: Vec<(Mat<f64>, Vec<f64>)> = [&band, &eigen]
                .map(|form| {
                    let factor = form.factor(shift).unwrap();
                    let mut x = form.rotate(y.as_ref());
                    factor.solve(&mut x);
                    (form.rotate_back(x.as_ref()), factor.energies(form.q().transpose()))
                })
                .into();
            let mut shifted = a.clone();
            mirror(shifted.as_mut());
            for i in 0..n {
                shifted[(i, i)] += shift;
            }
            for (x, energies) in &answers {
                assert!((&shifted * x - &y).norm_max() < 1e-8);
                for (e, other) in energies.iter().zip(&answers[0].1) {
                    assert!((e / other - 1.0).abs() < 1e-9);
                }
            }
        }
        assert!(band.factor(-1e3).is_err() && eigen.factor(-1e3).is_err());
    }
    /// Asked at every panel on the way to the band and to `Q`, it stops at any of them.
    #[test]
    fn it_stops_when_told() {
        let (a, asked) = (example(100, 120), std::cell::Cell::new(0));
        let run = |limit: usize| {
            asked.set(0);
            BandForm::reduce(a.clone(), 16, &|| asked.replace(asked.get() + 1) >= limit).map(|_| ())
        };
        assert_eq!(run(usize::MAX), Ok(()));
        let polls = asked.get();
        assert_eq!(polls, 6 + 2);
        assert!((0..polls).all(|limit| run(limit) == Err(Halt::Stopped)));
    }
}
