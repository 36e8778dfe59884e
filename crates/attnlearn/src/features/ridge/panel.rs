//! Features of many examples in memory, row by row: a *slab* is a few strips of all examples, a *panel* all features of a few
//! blocks of examples.
//!
//! Threads share the blocks of a slab or panel. What is summed over examples is summed within each block of
//! [`SetBlock::CAPACITY`] and then over the blocks in their order: the same bits on any number of threads.

use super::rows::{combine, finite};
use crate::features::{FeatureMap, SetBlock, SetSource};
use crate::linalg::Mat;
use crate::linalg::symmetric::Field;
use crate::parallel;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Features of a slab: deep enough for products at full speed.
const SLAB: usize = 512;

/// A frozen map and the examples it is to be fitted to.
#[derive(Clone, Copy)]
pub(super) struct Data<'a, T> {
    pub map: &'a dyn FeatureMap<T>,
    pub source: &'a dyn SetSource,
}

impl<T: Field> Data<'_, T> {
    pub fn features(&self) -> usize {
        self.map.features()
    }

    /// Runs of strips that make up the slabs.
    pub fn slabs(&self) -> Vec<Range<usize>> {
        let mut slabs: Vec<Range<usize>> = Vec::new();
        let mut first = 0;
        for strip in 0..self.map.strips() {
            if self.width(&(first..strip + 1)) >= SLAB || strip + 1 == self.map.strips() {
                slabs.push(first..strip + 1);
                first = strip + 1;
            }
        }
        slabs
    }

    /// Features of some strips.
    pub fn columns(&self, strips: &Range<usize>) -> Range<usize> {
        if strips.is_empty() { 0..0 } else { self.map.strip(strips.start).start..self.map.strip(strips.end - 1).end }
    }

    /// How many those are.
    pub fn width(&self, strips: &Range<usize>) -> usize {
        self.columns(strips).len()
    }

    /// Widest slab.
    pub fn widest(&self) -> usize {
        self.slabs().iter().map(|slab| self.width(slab)).max().unwrap_or(0)
    }

    /// Writes the features of `strips` for the examples of `blocks`, row by row; returns how many examples there are.
    pub fn fill(&self, blocks: Range<u64>, strips: Range<usize>, out: &mut [T]) -> Result<usize> {
        let (width, shape) = (self.width(&strips), self.source.shape());
        self.map.check_sets(shape)?;
        let start = self.columns(&strips).start;
        let counts: Result<Vec<usize>> = out
            .par_chunks_mut((SetBlock::CAPACITY * width).max(1))
            .enumerate()
            .take(usize::try_from(blocks.end - blocks.start).unwrap_or(usize::MAX))
            .map_init(
                || SetBlock::new(shape),
                |sets, (place, out)| {
                    let index = blocks.start + place as u64;
                    self.source.fill(index, sets)?;
                    if sets.len() * width > out.len() {
                        return Err(Error::input(
                            "features",
                            "the source grew while it was read",
                            "fit to a source that does not change",
                        ));
                    }
                    for strip in strips.clone() {
                        self.map.fill(sets, strip, width, &mut out[self.map.strip(strip).start - start..]);
                    }
                    if !finite(&out[..sets.len() * width]) {
                        return Err(not_finite(index));
                    }
                    Ok(sets.len())
                },
            )
            .collect();
        Ok(counts?.into_iter().sum())
    }
}

fn not_finite(block: u64) -> Error {
    let first = block * SetBlock::CAPACITY as u64;
    Error::input(
        format!("examples {first} to {}", first + SetBlock::CAPACITY as u64 - 1),
        "a feature is not finite",
        "look for infinite or huge inputs, or compute the features in double precision",
    )
}

/// `Φᵀ C` for the rows `Φ` (of `width` features) and the coefficients `C` (one row per row of `Φ`).
pub(super) fn combine_all<T: Field>(rows: &[T], width: usize, c: &Mat<f64>, first: usize) -> Mat<f64> {
    let t = c.ncols();
    let parts: Vec<Mat<f64>> = parallel::map(rows.chunks((SetBlock::CAPACITY * width).max(1)).enumerate(), |(index, rows)| {
        let (start, n) = (first + index * SetBlock::CAPACITY, rows.len() / width.max(1));
        let mut sum = Mat::zeros(width, t);
        for j in 0..t {
            combine(rows, &c.col_as_slice(j)[start..start + n], sum.col_as_slice_mut(j));
        }
        sum
    });
    add_in_order(parts, width, t)
}

/// The sum, in the order given.
pub(super) fn add_in_order(parts: Vec<Mat<f64>>, rows: usize, cols: usize) -> Mat<f64> {
    let mut parts = parts.into_iter();
    let Some(mut sum) = parts.next() else { return Mat::zeros(rows, cols) };
    for part in parts {
        sum += part;
    }
    sum
}
