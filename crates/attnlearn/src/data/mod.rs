//! Where examples come from: input distributions, files, memory, and whatever else there is, all seen by a learner as one thing, an
//! [`ExampleSource`].

mod block;
mod examples;
mod inputs;
mod scan;
mod slices;
mod watched;
mod writer;

pub(crate) use block::work_bytes;
pub use block::{Block, block_bytes, check_size};
pub use examples::{ExampleFile, InputFile};
pub(crate) use examples::{examples_in, inputs_in, outputs_in};
pub use inputs::InputDistribution;
pub(crate) use scan::IN_FLIGHT;
pub use scan::scan;
pub(crate) use slices::not_finite;
pub use slices::{ExampleSlices, Numbers};
pub use watched::{Reading, Watched};
pub use writer::{Columns, ExampleWriter};

use crate::Result;
use crate::linalg::lanes::Real;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Sizes of an example: `X` is k×d, `Y` is k×d_out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Tokens per sequence.
    pub k: usize,
    /// Token dimension.
    pub d: usize,
    /// Output dimension.
    pub d_out: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k = {}, d = {}, d_out = {}", self.k, self.d, self.d_out)
    }
}

/// A source of examples `(X, F(X))`, read in blocks of [`Block::CAPACITY`].
///
/// Blocks are addressed, not consumed: block `i` holds the same examples whenever, and on whichever thread, it is read.
/// This is all that a learner sees of the world.
pub trait ExampleSource: Sync {
    /// Sizes of every example.
    fn shape(&self) -> Shape;

    /// How many examples there are; `None` if there is no end.
    fn len(&self) -> Option<u64>;

    /// Whether there are no examples at all.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether whoever reads this wants the work to stop: asked between the parts of long sequences.
    fn interrupted(&self) -> bool {
        false
    }

    /// Reads block `index` in single precision. Past the end the block is empty.
    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()>;

    /// Reads block `index` in double precision. Past the end the block is empty.
    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()>;
}

/// A precision that a source can be read in, for those to whom it does not matter which.
pub trait Fill: Real {
    /// Reads block `index` of `source` in this precision.
    fn fill(source: &dyn ExampleSource, index: u64, block: &mut Block<Self>) -> Result<()>;
}

impl Fill for f32 {
    fn fill(source: &dyn ExampleSource, index: u64, block: &mut Block<Self>) -> Result<()> {
        source.fill_f32(index, block)
    }
}

impl Fill for f64 {
    fn fill(source: &dyn ExampleSource, index: u64, block: &mut Block<Self>) -> Result<()> {
        source.fill_f64(index, block)
    }
}
