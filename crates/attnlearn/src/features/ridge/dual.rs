//! The dual: `v = Φ̃ᵀ α̃`, `(K̃ + Wλ I) α̃ = ỹ`, `K̃ = Φ̃ Φ̃ᵀ`, with `φ̃_i = √w_i (φ_i − φ̄)`.
//!
//! `K̃` is a sum over strips of features: never more than `n ×` one slab of features is in memory. Features are centred before
//! they are multiplied, so nothing cancels.
//!
//! With an intercept `u = √w/√W` is a null vector of `K̃`. We add `s u uᵀ`, `s = tr K̃ / n`: no answer changes, since `ỹ ⟂ u`,
//! but the matrix loses the one zero eigenvalue that is known, and leave-one-out needs no small difference of large numbers.

use super::panel::{Data, combine_all};
use super::targets::Targets;
use super::{Stage, Watch};
use crate::features::SetBlock;
use crate::linalg::symmetric::{Field, add_outer, update_lower};
use crate::linalg::{Mat, MatRef, staggered};
use crate::memory::{clamp, numbers};
use crate::parallel;
use crate::{Error, Result};

/// `K̃ + s u uᵀ` and what was met on the way.
pub(super) struct Dual<T> {
    /// Lower triangle.
    pub k: Mat<T>,
    /// `φ̄`, zeros without an intercept.
    pub feature_means: Vec<f64>,
    /// `tr K̃`.
    pub trace: f64,
    /// `s`; 0 without an intercept.
    pub null: f64,
}

impl<T: Field> Dual<T> {
    /// Bytes that [`Dual::gather`] needs at its peak.
    pub fn bytes(n: usize, slab: usize) -> u64 {
        clamp(numbers::<T>(&[n, n]).saturating_add(numbers::<T>(&[n, slab])))
    }

    /// One pass over the features.
    pub fn gather(data: &Data<'_, T>, targets: &Targets, watch: &dyn Watch) -> Result<Self> {
        let n = targets.len();
        let (mut k, mut feature_means) = (staggered::<T>(n, n), vec![0.0; data.features()]);
        let mut buffer = vec![T::ZERO; n * data.widest()];
        let weights = Mat::from_fn(n, 1, |i, _| targets.roots[i] * targets.roots[i] / targets.total);
        let slabs = data.slabs();
        watch.begin(Stage::Gram);
        for (done, slab) in slabs.iter().enumerate() {
            if watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let (width, columns) = (data.width(slab), data.columns(slab));
            let phi = &mut buffer[..n * width];
            data.fill(0..data.source.blocks(), slab.clone(), phi)?;
            if targets.intercept {
                feature_means[columns.clone()].copy_from_slice(combine_all(phi, width, &weights, 0).col_as_slice(0));
            }
            let means = &feature_means[columns];
            parallel::each(phi.chunks_mut((SetBlock::CAPACITY * width).max(1)).enumerate(), |(block, rows)| {
                for (row, root) in rows.chunks_exact_mut(width.max(1)).zip(&targets.roots[block * SetBlock::CAPACITY..]) {
                    for (v, mean) in row.iter_mut().zip(means) {
                        *v = T::from_f64(root * (v.to_f64() - mean));
                    }
                }
            });
            add_outer(k.as_mut(), MatRef::from_row_major_slice(phi, n, width));
            watch.advance(done as u64 + 1, slabs.len() as u64);
        }
        let trace: f64 = (0..n).map(|i| k[(i, i)].to_f64()).sum();
        let null = if targets.intercept { trace / n as f64 } else { 0.0 };
        if targets.intercept {
            let u = Mat::from_fn(n, 1, |i, _| T::from_f64(targets.roots[i] / targets.total.sqrt()));
            update_lower(k.as_mut(), T::from_f64(null), u.as_ref(), u.as_ref());
        }
        Ok(Self { k, feature_means, trace, null })
    }
}

/// `Φᵀ a`, by another pass over the features.
pub(super) fn pull_back<T: Field>(data: &Data<'_, T>, a: &Mat<f64>, watch: &dyn Watch) -> Result<Mat<f64>> {
    let n = a.nrows();
    let mut v = Mat::zeros(data.features(), a.ncols());
    let mut buffer = vec![T::ZERO; n * data.widest()];
    let slabs = data.slabs();
    watch.begin(Stage::Values);
    for (done, slab) in slabs.iter().enumerate() {
        if watch.interrupted() {
            return Err(Error::Interrupted);
        }
        let (width, columns) = (data.width(slab), data.columns(slab));
        let phi = &mut buffer[..n * width];
        data.fill(0..data.source.blocks(), slab.clone(), phi)?;
        v.as_mut().subrows_mut(columns.start, width).copy_from(combine_all(phi, width, a, 0));
        watch.advance(done as u64 + 1, slabs.len() as u64);
    }
    Ok(v)
}

/// Converts.
pub(super) fn cast<T: Field>(a: &Mat<f64>) -> Mat<T> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| T::from_f64(a[(i, j)]))
}

/// Converts back.
pub(super) fn widen<T: Field>(a: &Mat<T>) -> Mat<f64> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| a[(i, j)].to_f64())
}
