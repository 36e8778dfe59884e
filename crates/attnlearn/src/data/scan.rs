//! One pass over a range of blocks on all threads, with the same result on any number of them.

use super::{Block, ExampleSource, Fill, work_bytes};
use crate::Result;
use crate::memory::at_once;
use rayon::prelude::*;
use std::ops::Range;

/// Blocks handed out together: enough to keep every core busy, few enough for their results to fit in memory.
const BATCH: usize = 128;
/// Memory for the blocks that are worked on together: of long sequences there are fewer.
pub(crate) const IN_FLIGHT: u64 = 1 << 30;

/// Applies `map` to every block of the range, on all threads, and `fold` to the results, in the order of the blocks.
/// Empty blocks (past the end of the source) are passed over.
pub fn scan<T: Fill, R: Send>(
    source: &dyn ExampleSource,
    blocks: Range<u64>,
    map: impl Fn(&Block<T>) -> R + Sync,
    mut fold: impl FnMut(R),
) -> Result<()> {
    let batch = at_once(work_bytes(source.shape(), source.len()), IN_FLIGHT, BATCH) as u64;
    let mut first = blocks.start;
    while first < blocks.end {
        let last = blocks.end.min(first.saturating_add(batch));
        let results: Vec<Result<Option<R>>> = (first..last)
            .into_par_iter()
            .map_init(
                || Block::new(source.shape()),
                |block, index| {
                    T::fill(source, index, block)?;
                    Ok((!block.is_empty()).then(|| map(block)))
                },
            )
            .collect();
        for result in results {
            if let Some(result) = result? {
                fold(result);
            }
        }
        first = last;
    }
    Ok(())
}
