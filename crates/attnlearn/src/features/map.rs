//! What every frozen feature map is: a function of a set, made of strips of features that can be computed apart.

use super::{SetBlock, SetShape};
use crate::linalg::lanes::Real;
use crate::{Error, Result};
use std::ops::Range;

/// A frozen map from sets to `p` features, in precision `T`.
///
/// Features come in *strips* (the heads of a few panels): solvers that cannot hold `n × p` numbers walk over examples or over strips.
/// The values depend on the map and the set alone, to the last bit: not on the block, the strip's neighbours or the thread.
pub trait FeatureMap<T: Real>: Sync {
    /// Number of features `p`.
    fn features(&self) -> usize;

    /// Number of strips.
    fn strips(&self) -> usize;

    /// The features that make up a strip; strips follow one another without gaps.
    fn strip(&self, strip: usize) -> Range<usize>;

    /// Refuses sets that the map cannot read.
    fn check_sets(&self, _shape: SetShape) -> Result<()> {
        Ok(())
    }

    /// Writes the features of one strip for every set of the block: set `i`, feature `strip.start + j` to `out[i · stride + j]`.
    ///
    /// # Panics
    /// If the sets are none that [`check_sets`](Self::check_sets) lets pass.
    fn fill(&self, sets: &SetBlock, strip: usize, stride: usize, out: &mut [T]);
}

/// Refuses sets of another dimension than `d`, and, where a map has weights for so many only, of more keys than `most`.
pub(super) fn check_sets(shape: SetShape, d: usize, most: Option<usize>) -> Result<()> {
    if shape.d != d {
        let problem = format!("sets of dimension {} for a map of dimension {d}", shape.d);
        return Err(Error::input("feature map", problem, "give both the same d"));
    }
    match most.filter(|&most| shape.keys > most) {
        Some(most) => {
            let problem = format!("sets of up to {} keys for a map of {most}", shape.keys);
            Err(Error::input("feature map", problem, "build the map for the longest set"))
        }
        None => Ok(()),
    }
}
