//! Blocks of examples: made on all threads, used in their order.

use crate::progress::Bar;
use attnlearn::Result;
use attnlearn::data::{Block, ExampleWriter, Shape, block_bytes};
use rayon::prelude::*;

/// Memory for the blocks in flight.
const IN_FLIGHT: usize = 64 << 20;

/// Makes the blocks `0..count` on all threads and hands them to `take` in their order.
fn in_order(
    count: u64,
    shape: Shape,
    make: impl Fn(u64, &mut Block<f64>) -> Result<()> + Sync,
    mut take: impl FnMut(&Block<f64>) -> Result<()>,
) -> Result<()> {
    let at_once = (IN_FLIGHT / block_bytes(shape).unwrap_or(usize::MAX).max(1)).clamp(1, 128);
    let mut blocks: Vec<Block<f64>> =
        (0..at_once.min(usize::try_from(count).unwrap_or(at_once))).map(|_| Block::new(shape)).collect();
    let mut first = 0;
    while first < count {
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

/// Makes `n` examples on all threads and writes them in their order; `bar` counts them.
pub fn write(
    mut writer: ExampleWriter,
    n: u64,
    shape: Shape,
    bar: Bar,
    make: impl Fn(u64, &mut Block<f64>) -> Result<()> + Sync,
) -> Result<()> {
    in_order(n.div_ceil(Block::<f64>::CAPACITY as u64), shape, make, |block| {
        bar.advance(block.len() as u64);
        writer.append(block)
    })?;
    drop(bar);
    writer.finish()
}
