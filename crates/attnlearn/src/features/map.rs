//! What every frozen feature map is: a function of a set, made of strips of features that can be computed apart.

use super::SetBlock;
use crate::linalg::lanes::Real;
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

    /// Writes the features of one strip for every set of the block: set `i`, feature `strip.start + j` to `out[i · stride + j]`.
    fn fill(&self, sets: &SetBlock, strip: usize, stride: usize, out: &mut [T]);
}
