//! Blocks of examples: made on all threads, used in their order.

use crate::progress::Bar;
use attnlearn::Result;
use attnlearn::data::{Block, ExampleWriter, Shape, block_bytes};
use attnlearn::memory::at_once;
use rayon::prelude::*;

/// Memory for the blocks in flight.
const IN_FLIGHT: u64 = 64 << 20;
/// Most blocks in flight.
const MOST: usize = 128;

/// Makes `n` examples on all threads and writes them in their order; `bar` counts them.
pub fn write(
    mut writer: ExampleWriter,
    n: u64,
    shape: Shape,
    bar: Bar,
    make: impl Fn(u64, &mut Block<f64>) -> Result<()> + Sync,
) -> Result<()> {
    let count = n.div_ceil(Block::<f64>::CAPACITY as u64);
    let most = usize::try_from(count).unwrap_or(MOST).min(MOST);
    let mut blocks: Vec<Block<f64>> =
        (0..at_once(block_bytes(shape, Some(n)), IN_FLIGHT, most)).map(|_| Block::new(shape)).collect();
    let mut first = 0;
    while first < count {
        let now = usize::try_from(count - first).map_or(blocks.len(), |left| left.min(blocks.len()));
        let made: Vec<Result<()>> = blocks[..now]
            .par_iter_mut()
            .enumerate()
            .map(|(i, block)| {
                make(first + i as u64, block)?;
                bar.advance(block.len() as u64);
                Ok(())
            })
            .collect();
        for (block, made) in blocks.iter().zip(made) {
            made?;
            writer.append(block)?;
        }
        first += now as u64;
    }
    drop(bar);
    writer.finish()
}
