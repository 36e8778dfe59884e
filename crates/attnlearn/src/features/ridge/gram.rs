//! The primal: `(ΦᵀDΦ − W φ̄φ̄ᵀ + Wλ I) v = ΦᵀDy − W φ̄ȳ`, from sums over examples that can be gathered anywhere and added.
//!
//! Features and products of tiles are in the map's precision; every sum over more than one panel of [`PANEL`] examples is in double
//! precision. Beside the sums one panel of features is in memory, whatever the number of examples.
//!
//! A Gram that is saved, read back and continued has the bits of one that never stopped. Parts gathered apart and merged add the
//! same numbers in another order: they agree to rounding, about `10⁻¹⁶` times the number of panels.

use super::panel::{Data, combine_all};
use super::targets::{all_zero, constant};
use super::{Stage, Watch};
use crate::features::{FeatureMap, SetBlock, SetSource};
use crate::linalg::symmetric::{Field, Tile, lower_tiles, multiply, tile, update_lower};
use crate::linalg::{Mat, staggered};
use crate::memory::{clamp, numbers};
use crate::parallel;
use crate::{Error, Result};
use faer::MatRef;
use std::io::{Read, Write};
use std::ops::Range;

/// Blocks of a panel.
const BLOCKS: u64 = 2;
/// Examples of a panel.
pub const PANEL: usize = BLOCKS as usize * SetBlock::CAPACITY;
const MAGIC: &[u8; 8] = b"attngram";

/// Sums over examples from which every ridge regression follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Gram {
    /// How many examples.
    pub examples: u64,
    /// `W = Σ w_i`.
    pub weight: f64,
    /// Lower triangle of `Σ w_i φ_i φ_iᵀ`.
    pub gram: Mat<f64>,
    /// `Σ w_i φ_i`.
    pub features: Vec<f64>,
    /// `Σ w_i φ_i y_iᵀ`, p × t.
    pub cross: Mat<f64>,
    /// `Σ w_i y_i`.
    pub targets: Vec<f64>,
    /// `Σ w_i y_i²`, target by target.
    pub squares: Vec<f64>,
    /// Least and largest `y_i` of positive weight, target by target: what tells a constant from rounding.
    pub ranges: Vec<[f64; 2]>,
}

impl Gram {
    /// No examples yet, `p` features and `t` targets.
    pub fn new(p: usize, t: usize) -> Self {
        Self {
            examples: 0,
            weight: 0.0,
            gram: staggered(p, p),
            features: vec![0.0; p],
            cross: Mat::zeros(p, t),
            targets: vec![0.0; t],
            squares: vec![0.0; t],
            ranges: vec![[f64::MAX, f64::MIN]; t],
        }
    }

    /// Bytes that [`Gram::add`] needs at its peak.
    pub fn bytes<T: Field>(p: usize) -> u64 {
        clamp(numbers::<f64>(&[p, p]).saturating_add(numbers::<T>(&[p, PANEL])))
    }

    /// Adds the examples of `blocks`, panel by panel.
    pub fn add<T: Field>(
        &mut self,
        map: &dyn FeatureMap<T>,
        source: &dyn SetSource,
        blocks: Range<u64>,
        watch: &dyn Watch,
    ) -> Result<()> {
        self.add_panels(&Data { map, source }, blocks, watch, &mut |_| Ok(()))
    }

    /// The same, and after every panel `each`. Interrupted, the sums hold whole panels.
    pub(super) fn add_panels<T: Field>(
        &mut self,
        data: &Data<'_, T>,
        blocks: Range<u64>,
        watch: &dyn Watch,
        each: &mut dyn FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        let Data { map, source } = *data;
        let (p, t) = (map.features(), source.shape().targets);
        if (p, t) != (self.cross.nrows(), self.cross.ncols()) {
            return Err(self.mismatch(p, t));
        }
        watch.begin(Stage::Gram);
        let mut buffer = vec![T::ZERO; p * PANEL.min(usize::try_from(source.len()).unwrap_or(usize::MAX))];
        let mut sets = SetBlock::new(source.shape());
        let end = blocks.end.min(source.blocks());
        let mut first = blocks.start;
        while first < end {
            if watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let part = first..(first + BLOCKS).min(end);
            let n = data.fill(part.clone(), 0..map.strips(), &mut buffer)?;
            let phi = &mut buffer[..n * p];
            // Columns of √w and √w y: what the sums are made with once the rows carry their √w.
            let mut right = Mat::<f64>::zeros(n, 1 + t);
            let mut i = 0;
            for index in part {
                source.fill(index, &mut sets)?;
                for e in 0..sets.len() {
                    let (w, y) = (sets.weights[e], sets.targets(e));
                    if !(w.is_finite() && w >= 0.0 && y.iter().all(|y| y.is_finite())) {
                        return Err(Error::input(
                            format!("example {}", self.examples),
                            "its weight is negative, or its weight or a target not finite",
                            "remove or repair it",
                        ));
                    }
                    right[(i, 0)] = w.sqrt();
                    self.weight += w;
                    self.examples += 1;
                    for j in 0..t {
                        right[(i, 1 + j)] = w.sqrt() * y[j];
                        self.targets[j] += w * y[j];
                        self.squares[j] += w * y[j] * y[j];
                        if w > 0.0 {
                            self.ranges[j] = joined(self.ranges[j], [y[j]; 2]);
                        }
                    }
                    i += 1;
                }
            }
            parallel::each(phi.chunks_mut(p.max(1)).enumerate(), |(i, row)| {
                let root = T::from_f64(right[(i, 0)]);
                row.iter_mut().for_each(|v| *v *= root);
            });
            let sums = combine_all(phi, p, &right, 0);
            for (sum, part) in self.features.iter_mut().zip(sums.col_as_slice(0)) {
                *sum += part;
            }
            self.cross += sums.subcols(1, t);
            let phi = MatRef::from_row_major_slice(phi, n, p).transpose();
            parallel::each(lower_tiles(self.gram.as_mut(), tile(p)), |Tile { row, col, mut part }| {
                let (height, width) = (part.nrows(), part.ncols());
                let mut sum = Mat::<T>::zeros(height, width);
                multiply(sum.as_mut(), false, T::ONE, phi.subrows(row, height), phi.subrows(col, width).transpose());
                for j in 0..width {
                    for (i, v) in sum.col_as_slice(j).iter().enumerate() {
                        part[(i, j)] += v.to_f64();
                    }
                }
            });
            first += BLOCKS;
            watch.advance(first.min(end) - blocks.start, end - blocks.start);
            each(self)?;
        }
        Ok(())
    }

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let (p, t) = (other.cross.nrows(), other.cross.ncols());
        if (p, t) != (self.cross.nrows(), self.cross.ncols()) {
            return Err(self.mismatch(p, t));
        }
        self.examples += other.examples;
        self.weight += other.weight;
        self.gram += &other.gram;
        self.cross += &other.cross;
        for (sums, parts) in
            [(&mut self.features, &other.features), (&mut self.targets, &other.targets), (&mut self.squares, &other.squares)]
        {
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
        self.ranges.iter_mut().zip(&other.ranges).for_each(|(range, part)| *range = joined(*range, *part));
        Ok(())
    }

    fn mismatch(&self, p: usize, t: usize) -> Error {
        Error::input(
            "gram",
            format!("it has {} features and {} targets, not {p} and {t}", self.cross.nrows(), self.cross.ncols()),
            "gather all parts with the same map and targets",
        )
    }

    /// Writes all sums: sizes, then numbers in little-endian order, of the Gram matrix the lower triangle by columns.
    pub fn write(&self, to: &mut dyn Write) -> std::io::Result<()> {
        let (p, t) = (self.cross.nrows(), self.cross.ncols());
        to.write_all(MAGIC)?;
        for number in [p as u64, t as u64, self.examples] {
            to.write_all(&number.to_le_bytes())?;
        }
        let mut put = |values: &[f64]| values.iter().try_for_each(|v| to.write_all(&v.to_le_bytes()));
        put(&[self.weight])?;
        put(&self.features)?;
        put(&self.targets)?;
        put(&self.squares)?;
        put(self.ranges.as_flattened())?;
        (0..t).try_for_each(|j| put(self.cross.col_as_slice(j)))?;
        (0..p).try_for_each(|j| put(&self.gram.col_as_slice(j)[j..]))
    }

    /// Reads what [`Gram::write`] wrote; `place` names it in errors.
    pub fn read(from: &mut dyn Read, place: &str) -> Result<Self> {
        let wrong = |problem: &str| Error::input(place, problem, "give a file written by this program");
        let mut magic = [0; 8];
        from.read_exact(&mut magic).map_err(|_| wrong("it is too short"))?;
        if &magic != MAGIC {
            return Err(wrong("it holds no Gram matrix"));
        }
        let mut number = || -> Result<[u8; 8]> {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes).map_err(|_| wrong("it ends early"))?;
            Ok(bytes)
        };
        let sizes = [u64::from_le_bytes(number()?), u64::from_le_bytes(number()?)];
        let examples = u64::from_le_bytes(number()?);
        // A damaged header must not make us ask for more memory than any machine has.
        let [p, t] = sizes.map(|size| usize::try_from(size).ok().filter(|&size| size < 1 << 20));
        let (Some(p), Some(t)) = (p, t) else { return Err(wrong("its sizes are impossible")) };
        let mut value = || -> Result<f64> {
            let value = f64::from_le_bytes(number()?);
            if value.is_finite() { Ok(value) } else { Err(wrong("it holds numbers that are not finite")) }
        };
        let weight = value()?;
        let mut list = |len: usize| (0..len).map(|_| value()).collect::<Result<Vec<f64>>>();
        let (features, targets, squares) = (list(p)?, list(t)?, list(t)?);
        let ranges = (0..t).map(|_| Ok([list(1)?[0], list(1)?[0]])).collect::<Result<_>>()?;
        let cross = list(p * t)?;
        // Column by column before the matrix is made: a short file with a large header must not make us ask for its memory.
        let columns = (0..p).map(|j| list(p - j)).collect::<Result<Vec<_>>>()?;
        let mut gram = staggered(p, p);
        for (j, column) in columns.into_iter().enumerate() {
            gram.col_as_slice_mut(j)[j..].copy_from_slice(&column);
        }
        let cross = Mat::from_fn(p, t, |i, j| cross[j * p + i]);
        Ok(Self { examples, weight, gram, features, cross, targets, squares, ranges })
    }

    /// Centres the sums (with an intercept) in place: the matrix and right-hand side of the normal equations.
    pub fn normal_equations(self, intercept: bool) -> Result<Normal> {
        let Self { examples, weight, gram: mut g, features, cross: mut r, targets, squares, ranges } = self;
        if examples == 0 {
            return Err(Error::input("gram", "it holds no examples", "add some"));
        }
        if weight <= 0.0 {
            return Err(all_zero());
        }
        for (j, [least, most]) in ranges.into_iter().enumerate() {
            let scale = least.abs().max(most.abs());
            let spread = if intercept { most - least } else { scale };
            if spread <= 8.0 * f64::EPSILON * scale {
                return Err(constant(j, intercept));
            }
        }
        let t = r.ncols();
        let (mut feature_means, mut target_means) = (vec![0.0; features.len()], vec![0.0; t]);
        if intercept {
            feature_means = features.iter().map(|s| s / weight).collect();
            target_means = targets.iter().map(|s| s / weight).collect();
            let mean = MatRef::from_column_major_slice(&feature_means, feature_means.len(), 1);
            update_lower(g.as_mut(), -weight, mean, mean);
            for j in 0..t {
                for (r, m) in r.col_as_slice_mut(j).iter_mut().zip(&feature_means) {
                    *r -= weight * m * target_means[j];
                }
            }
        }
        let squares = (0..t).map(|j| squares[j] - weight * target_means[j].powi(2)).sum();
        Ok(Normal { weight, g, r, feature_means, target_means, squares })
    }
}

fn joined(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0].min(b[0]), a[1].max(b[1])]
}

/// `G v = r` before the ridge is added, and the means that were taken out.
pub struct Normal {
    /// `W`.
    pub weight: f64,
    /// `Φ̃ᵀΦ̃`, lower triangle.
    pub g: Mat<f64>,
    /// `Φ̃ᵀỹ`.
    pub r: Mat<f64>,
    /// `φ̄`.
    pub feature_means: Vec<f64>,
    /// `ȳ`.
    pub target_means: Vec<f64>,
    /// `‖ỹ‖²`, over all targets.
    pub squares: f64,
}

impl Normal {
    /// `b = ȳ − φ̄ᵀ v`.
    pub fn intercepts(&self, v: &Mat<f64>) -> Vec<f64> {
        let product = |j| v.col_as_slice(j).iter().zip(&self.feature_means).map(|(v, m)| v * m).sum::<f64>();
        (0..v.ncols()).map(|j| self.target_means[j] - product(j)).collect()
    }
}
