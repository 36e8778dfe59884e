//! Blocks of examples: made on all threads, used in their order; and a source that can be interrupted and counted.

use crate::interrupt;
use crate::progress::Bar;
use attnlearn::data::{Block, ExampleSource, Shape};
use attnlearn::{Error, Result};
use rayon::prelude::*;

/// Largest block that is worked with, in bytes.
const LARGEST: usize = 1 << 30;
/// Memory for the blocks in flight.
const IN_FLIGHT: usize = 64 << 20;

/// Bytes of a block in double precision; `None` if that overflows.
fn bytes(shape: Shape) -> Option<usize> {
    let per_token = shape.d.checked_add(shape.d_out)?;
    per_token.checked_mul(shape.k)?.checked_mul(Block::<f64>::CAPACITY * size_of::<f64>())
}

/// Refuses examples so large that a block of them would not fit in memory.
pub fn check_size(shape: Shape, place: &str) -> Result<()> {
    if bytes(shape).is_some_and(|bytes| bytes <= LARGEST) {
        return Ok(());
    }
    let most = LARGEST / (Block::<f64>::CAPACITY * size_of::<f64>());
    let problem = format!("sequences with k = {}, d = {}, d_out = {}", shape.k, shape.d, shape.d_out);
    Err(Error::input(place, problem, format!("keep k (d + d_out) at or below {most}")))
}

/// Makes the blocks `0..count` on all threads and hands them to `take` in their order, until Ctrl-C.
pub fn in_order(
    count: u64,
    shape: Shape,
    make: impl Fn(u64, &mut Block<f64>) -> Result<()> + Sync,
    mut take: impl FnMut(&Block<f64>) -> Result<()>,
) -> Result<()> {
    let at_once = (IN_FLIGHT / bytes(shape).unwrap_or(usize::MAX).max(1)).clamp(1, 128);
    let mut blocks: Vec<Block<f64>> =
        (0..at_once.min(usize::try_from(count).unwrap_or(at_once))).map(|_| Block::new(shape)).collect();
    let mut first = 0;
    while first < count {
        interrupt::check()?;
        let now = usize::try_from(count - first).unwrap_or(at_once).min(at_once);
        let made: Vec<Result<()>> =
            blocks[..now].par_iter_mut().enumerate().map(|(i, block)| make(first + i as u64, block)).collect();
        for (block, made) in blocks.iter().zip(made) {
            made?;
            take(block)?;
        }
        first += now as u64;
    }
    Ok(())
}

/// A source that stops at Ctrl-C and moves a progress bar.
pub struct Watched<'a> {
    /// Where the examples come from.
    pub source: &'a dyn ExampleSource,
    /// What to move; counts examples read.
    pub bar: &'a Bar,
}

impl ExampleSource for Watched<'_> {
    fn shape(&self) -> Shape {
        self.source.shape()
    }

    fn len(&self) -> Option<u64> {
        self.source.len()
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        interrupt::check()?;
        self.source.fill_f32(index, block)?;
        self.bar.advance(block.len() as u64);
        Ok(())
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        interrupt::check()?;
        self.source.fill_f64(index, block)?;
        self.bar.advance(block.len() as u64);
        Ok(())
    }
}
