//! Products with `Φ̃ᵀΦ̃` or `Φ̃Φ̃ᵀ` without forming either, at one evaluation of the features each.
//!
//! - *Primal*, panel by panel: `G̃ x = Σ_i w_i (φ_i − φ̄) (φ_i − φ̄)ᵀ x`. A row is used twice while it is in the cache.
//! - *Dual*, slab by slab: `K̃ x = D^½ C Σ_s Φ_s (Φ_sᵀ Cᵀ D^½ x)`, since strips are independent.
//!
//! When the features fit in the memory allowed they are computed once and kept, and the primal form is used whatever the sizes:
//! the spectrum is the same, and every product reads the memory once where the dual form would read it twice.

use super::dual::cast;
use super::panel::{Data, add_in_order, combine_all};
use super::rows::{combine, dots};
use super::targets::Targets;
use super::{Stage, Watch};
use crate::features::SetBlock;
use crate::linalg::symmetric::{Field, Tile, multiply, product, tiles};
use crate::linalg::{Mat, MatRef, staggered};
use crate::memory::{clamp, numbers};
use crate::parallel;
use crate::{Error, Result};

/// Blocks in a panel that is computed anew for every product.
const BLOCKS: usize = 8;
/// Rows whose part of a product one thread adds up.
const ROWS: usize = 128;
/// Rows that are used twice while they are in the cache.
const CHUNK: usize = 8;

/// Rows of a sketch that one thread computes at a time.
const SKETCH_ROWS: usize = 256;

/// Columns of a sketch that cost about as much as one iteration, which reads the features from memory or computes them anew.
pub(super) fn iteration_columns(keep: bool) -> f64 {
    if keep { 18.0 } else { 50.0 }
}

pub(super) struct Operator<'a, T> {
    data: Data<'a, T>,
    targets: &'a Targets,
    pub dual: bool,
    /// All features, row by row.
    cache: Option<Vec<T>>,
    feature_means: Vec<f64>,
    /// `Φ̃ᵀC` or `C`, for the columns `C` that it was made with.
    pub rhs: Mat<f64>,
}

impl<'a, T: Field> Operator<'a, T> {
    /// Bytes of all features.
    pub fn cache_bytes(n: usize, p: usize) -> u64 {
        clamp(numbers::<T>(&[n, p]))
    }

    /// Bytes of one panel or slab, when features are not kept.
    pub fn panel_bytes(data: &Data<'_, T>, n: usize) -> u64 {
        let p = data.features();
        let numbers = if n <= p { n * data.widest() } else { p * (BLOCKS * SetBlock::CAPACITY).min(n) };
        numbers as u64 * size_of::<T>() as u64
    }

    /// Bytes beside features and vectors: sums of all threads in a product with `columns` columns, and the values in the end.
    pub fn work_bytes(data: &Data<'_, T>, n: usize, columns: usize, keep: bool) -> u64 {
        let p = data.features();
        let numbers = if !keep && n <= p {
            2 * n + (n.div_ceil(SetBlock::CAPACITY) + 2) * data.widest()
        } else {
            (2 + BLOCKS * SetBlock::CAPACITY / ROWS) * p
        };
        8 * (columns as u64 + 1) * (numbers + 2 * p) as u64
    }

    /// Rows of features that a sketch is multiplied with at a time (in the dual form, columns).
    pub fn depth(data: &Data<'_, T>, n: usize, keep: bool) -> usize {
        if !keep && n <= data.features() { data.widest() } else { n.min(BLOCKS * SetBlock::CAPACITY) }
    }

    /// The operator and its right-hand side for the columns `c`, `√w` times what is to be fitted, centred if there is an intercept.
    pub fn new(data: Data<'a, T>, targets: &'a Targets, c: &Mat<f64>, keep: bool, watch: &dyn Watch) -> Result<Self> {
        let (n, p, t) = (targets.len(), data.features(), c.ncols());
        let dual = !keep && n <= p;
        let mut operator = Self { data, targets, dual, cache: None, feature_means: vec![0.0; p], rhs: Mat::new() };
        if dual {
            operator.rhs = c.clone();
            return Ok(operator);
        }
        watch.begin(Stage::Gram);
        if keep {
            let mut cache = vec![T::ZERO; n * p];
            for block in 0..operator.data.source.blocks() {
                // Block by block only so that an interruption is noticed; a group of blocks keeps all threads busy.
                if block % 16 == 0 {
                    let end = (block + 16).min(operator.data.source.blocks());
                    let start = block as usize * SetBlock::CAPACITY * p;
                    operator.data.fill(block..end, 0..operator.data.map.strips(), &mut cache[start..])?;
                    watch.advance(end, operator.data.source.blocks());
                    if watch.interrupted() {
                        return Err(Error::Interrupted);
                    }
                }
            }
            operator.cache = Some(cache);
        }
        // Φᵀ [√w C, w/W]: the right-hand side and the means.
        let right = Mat::from_fn(n, t + 1, |i, j| {
            let root = targets.roots[i];
            if j < t { root * c[(i, j)] } else { root * root / targets.total }
        });
        let mut sums = Mat::<f64>::zeros(p, t + 1);
        operator.panels(watch, |rows, first| sums += combine_all(rows, p, &right, first))?;
        operator.rhs = sums.subcols(0, t).to_owned();
        if targets.intercept {
            operator.feature_means.copy_from_slice(sums.col_as_slice(t));
        }
        Ok(operator)
    }

    pub fn size(&self) -> usize {
        self.rhs.nrows()
    }

    /// What an iteration costs, in columns of a sketch.
    pub fn iteration_columns(&self) -> f64 {
        iteration_columns(self.cache.is_some())
    }

    /// `tr A = Σ_i w_i ‖φ_i − φ̄‖²`, by a pass over the features.
    pub fn trace(&self, watch: &dyn Watch) -> Result<f64> {
        let roots = &self.targets.roots;
        // Sums within blocks, then over them in their order.
        let squares = |rows: &[T], width: usize, first: usize, means: &[f64]| -> f64 {
            let parts: Vec<f64> = parallel::map(rows.chunks((SetBlock::CAPACITY * width).max(1)).enumerate(), |(block, rows)| {
                let roots = &roots[first + block * SetBlock::CAPACITY..];
                let square = |row: &[T]| row.iter().zip(means).map(|(v, m)| (v.to_f64() - m).powi(2)).sum::<f64>();
                rows.chunks_exact(width.max(1)).zip(roots).map(|(row, root)| root * root * square(row)).sum()
            });
            parts.into_iter().sum()
        };
        let mut trace = 0.0;
        if self.dual {
            let weights = Mat::from_fn(roots.len(), 1, |i, _| roots[i] * roots[i] / self.targets.total);
            self.slabs(watch, |phi, width| {
                let means = if self.targets.intercept { combine_all(phi, width, &weights, 0) } else { Mat::zeros(width, 1) };
                trace += squares(phi, width, 0, means.col_as_slice(0));
            })?;
        } else {
            self.panels(watch, |rows, first| trace += squares(rows, self.size(), first, &self.feature_means))?;
        }
        Ok(trace)
    }

    /// Calls `each(rows, index of the first)` for all panels, in order.
    fn panels(&self, watch: &dyn Watch, mut each: impl FnMut(&[T], usize)) -> Result<()> {
        let (n, p) = (self.targets.len(), self.data.features());
        let step = BLOCKS * SetBlock::CAPACITY;
        let mut buffer = if self.cache.is_some() { Vec::new() } else { vec![T::ZERO; p * step.min(n)] };
        for first in (0..n).step_by(step) {
            if watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let len = p * step.min(n - first);
            if let Some(cache) = &self.cache {
                each(&cache[first * p..first * p + len], first);
            } else {
                let block = (first / SetBlock::CAPACITY) as u64;
                let end = (block + BLOCKS as u64).min(self.data.source.blocks());
                self.data.fill(block..end, 0..self.data.map.strips(), &mut buffer[..len])?;
                each(&buffer[..len], first);
            }
        }
        Ok(())
    }

    /// Calls `each(features of the slab, their number)` for all slabs, in order.
    fn slabs(&self, watch: &dyn Watch, mut each: impl FnMut(&[T], usize)) -> Result<()> {
        let n = self.targets.len();
        let mut buffer = vec![T::ZERO; n * self.data.widest()];
        for slab in self.data.slabs() {
            if watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let width = self.data.width(&slab);
            let phi = &mut buffer[..n * width];
            self.data.fill(0..self.data.source.blocks(), slab, phi)?;
            each(phi, width);
        }
        Ok(())
    }

    /// The product with `x`, for few columns, in double precision.
    pub fn apply(&self, x: &Mat<f64>, watch: &dyn Watch) -> Result<Mat<f64>> {
        let t = x.ncols();
        if self.dual {
            let a = self.targets.coefficients(x);
            let mut z = Mat::<f64>::zeros(self.size(), t);
            self.slabs(watch, |phi, width| {
                let u = combine_all(phi, width, &a, 0);
                for j in 0..t {
                    let (u, z) = (u.col_as_slice(j), z.col_as_slice_mut(j));
                    parallel::each(z.chunks_mut(ROWS).zip(phi.chunks(ROWS * width)), |(z, rows)| {
                        let mut part = [0.0; ROWS];
                        dots(rows, u, &mut part[..z.len()]);
                        z.iter_mut().zip(part).for_each(|(z, part)| *z += part);
                    });
                }
            })?;
            return Ok(self.targets.scale(z));
        }
        let p = self.size();
        let centre: Vec<f64> = (0..t).map(|j| inner(&self.feature_means, x.col_as_slice(j))).collect();
        let mut out = Mat::<f64>::zeros(p, t);
        let mut totals = vec![0.0; t];
        self.panels(watch, |rows, first| {
            let parts: Vec<(Mat<f64>, Vec<f64>)> = parallel::map(rows.chunks(ROWS * p).enumerate(), |(index, rows)| {
                let (mut sum, mut total) = (Mat::zeros(p, t), vec![0.0; t]);
                for (c, rows) in rows.chunks(CHUNK * p).enumerate() {
                    let roots = &self.targets.roots[first + index * ROWS + c * CHUNK..];
                    let mut q = [0.0; CHUNK];
                    let q = &mut q[..rows.len() / p];
                    for j in 0..t {
                        dots(rows, x.col_as_slice(j), q);
                        for (q, root) in q.iter_mut().zip(roots) {
                            *q = root * root * (*q - centre[j]);
                            total[j] += *q;
                        }
                        combine(rows, q, sum.col_as_slice_mut(j));
                    }
                }
                (sum, total)
            });
            let (sums, parts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            out += add_in_order(sums, p, t);
            for part in parts {
                totals.iter_mut().zip(part).for_each(|(total, part)| *total += part);
            }
        })?;
        for j in 0..t {
            // Σ_i w_i (φ_i − φ̄)ᵀx is zero but for rounding.
            out.col_as_slice_mut(j).iter_mut().zip(&self.feature_means).for_each(|(out, mean)| *out -= mean * totals[j]);
        }
        Ok(out)
    }

    /// The product with many columns, by matrix products in the map's precision.
    pub fn sketch(&self, omega: &Mat<f64>, watch: &dyn Watch) -> Result<Mat<f64>> {
        let r = omega.ncols();
        if self.dual {
            let a = cast::<T>(&self.targets.coefficients(omega));
            let mut z = Mat::<T>::zeros(self.size(), r);
            self.slabs(watch, |phi, width| {
                let phi = MatRef::from_row_major_slice(phi, self.size(), width);
                let mut u = Mat::<T>::zeros(width, r);
                product(u.as_mut(), false, T::ONE, phi.transpose(), a.as_ref());
                product(z.as_mut(), true, T::ONE, phi, u.as_ref());
            })?;
            return Ok(self.targets.scale(super::dual::widen(&z)));
        }
        let p = self.size();
        let (x, mut y) = (cast::<T>(omega), Mat::<T>::zeros(p, r));
        let centre: Vec<f64> = (0..r).map(|j| inner(&self.feature_means, omega.col_as_slice(j))).collect();
        let mut totals = vec![0.0; r];
        self.panels(watch, |rows, first| {
            let n = rows.len() / p;
            let phi = MatRef::from_row_major_slice(rows, n, p);
            // Few columns: the product runs faster with them as rows.
            let mut qt = Mat::<T>::zeros(r, n);
            product(qt.as_mut(), false, T::ONE, x.transpose(), phi.transpose());
            let mut q = staggered::<T>(n, r);
            parallel::each(tiles(q.as_mut(), n, 1).into_iter().zip(&mut totals), |(Tile { col, mut part, .. }, total)| {
                for (i, root) in self.targets.roots[first..first + n].iter().enumerate() {
                    let value = root * root * (qt[(col, i)].to_f64() - centre[col]);
                    *total += value;
                    part[(i, 0)] = T::from_f64(value);
                }
            });
            parallel::each(tiles(y.as_mut(), SKETCH_ROWS, r), |Tile { row, part, .. }| {
                let height = part.nrows();
                multiply(part, true, T::ONE, phi.transpose().subrows(row, height), q.as_ref());
            });
        })?;
        Ok(Mat::from_fn(p, r, |i, j| y[(i, j)].to_f64() - self.feature_means[i] * totals[j]))
    }

    /// `v` and `b` of a solution `x`; in the dual form by one more pass.
    pub fn values(&self, x: &Mat<f64>, watch: &dyn Watch) -> Result<(Mat<f64>, Vec<f64>)> {
        if !self.dual {
            return Ok((x.clone(), self.targets.intercepts(&self.feature_means, x)));
        }
        let (n, t) = (x.nrows(), x.ncols());
        let a = self.targets.coefficients(x);
        let right =
            Mat::from_fn(n, t + 1, |i, j| if j < t { a[(i, j)] } else { self.targets.roots[i].powi(2) / self.targets.total });
        let sums = super::dual::pull_back(&self.data, &right, watch)?;
        let v = sums.subcols(0, t).to_owned();
        let b = self.targets.intercepts(sums.col_as_slice(t), &v);
        Ok((v, b))
    }
}

fn inner(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}
