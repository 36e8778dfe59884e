//! Sets from files, block by block.

use crate::progress::Bar;
use attnlearn::Result;
use attnlearn::features::{SetBlock, SetSource};

/// Hands out the blocks in order.
pub fn each_block(source: &dyn SetSource, bar: &Bar, mut visit: impl FnMut(&SetBlock) -> Result<()>) -> Result<()> {
    let mut block = SetBlock::new(source.shape());
    for index in 0..source.blocks() {
        source.fill(index, &mut block)?;
        visit(&block)?;
        bar.advance(block.len() as u64);
    }
    Ok(())
}
