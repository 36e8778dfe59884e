//! All features of a few sets at once, on all threads.

use super::{FeatureMap, SetBlock};
use crate::linalg::lanes::Real;
use crate::parallel;

/// Sets to a task.
const SETS: usize = 16;

/// Features of every set, `[len][p]`: what larger computations do strip by strip.
pub fn features_of<T: Real>(map: &dyn FeatureMap<T>, sets: &SetBlock) -> Vec<T> {
    let p = map.features();
    let mut out = vec![T::ZERO; sets.len() * p];
    parallel::each(out.chunks_mut(SETS * p).enumerate(), |(task, rows)| {
        let first = task * SETS;
        let part = part(sets, first, rows.len() / p);
        for strip in 0..map.strips() {
            map.fill(&part, strip, p, &mut rows[map.strip(strip).start..]);
        }
    });
    out
}

/// Sets `first..first + len` alone.
pub(super) fn part(sets: &SetBlock, first: usize, len: usize) -> SetBlock {
    let all = first..first + len;
    let rows = |v: &[f64], size: usize| v[first * size..(first + len) * size].to_vec();
    SetBlock {
        shape: sets.shape,
        x: rows(&sets.x, (sets.shape.keys + 1) * sets.shape.d),
        lengths: sets.lengths[all].to_vec(),
        y: rows(&sets.y, sets.shape.targets),
        weights: rows(&sets.weights, 1),
    }
}
