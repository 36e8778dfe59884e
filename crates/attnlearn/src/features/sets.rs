//! Sets with targets: a query, its keys, and the numbers to be predicted from them.

use crate::memory::{ask, numbers};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Sizes of every set of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetShape {
    /// The most keys that a set has, N.
    pub keys: usize,
    /// Dimension of query and keys.
    pub d: usize,
    /// Numbers to predict.
    pub targets: usize,
}

impl fmt::Display for SetShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "N = {}, d = {}, t = {}", self.keys, self.d, self.targets)
    }
}

/// A few sets in plain order.
#[derive(Clone, Debug)]
pub struct SetBlock {
    /// Sizes.
    pub shape: SetShape,
    /// `[len][N+1][d]`: the query, then the keys; places past a set's length hold zeros.
    pub x: Vec<f64>,
    /// Number of keys of every set, between 1 and N.
    pub lengths: Vec<usize>,
    /// `[len][targets]`.
    pub y: Vec<f64>,
    /// Weights of the sets in the sum of squares, all ≥ 0.
    pub weights: Vec<f64>,
}

impl SetBlock {
    /// Sets per block of a [`SetSource`].
    pub const CAPACITY: usize = 512;

    /// A block without sets.
    pub fn new(shape: SetShape) -> Self {
        Self { shape, x: Vec::new(), lengths: Vec::new(), y: Vec::new(), weights: Vec::new() }
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Removes all sets.
    pub fn clear(&mut self) {
        self.x.clear();
        self.lengths.clear();
        self.y.clear();
        self.weights.clear();
    }

    /// Appends a set of `tokens.len()/d − 1` keys: the query, then the keys.
    pub fn push(&mut self, tokens: &[f64], y: &[f64], weight: f64) {
        let SetShape { keys, d, targets } = self.shape;
        debug_assert!(
            tokens.len().is_multiple_of(d) && tokens.len() >= 2 * d && tokens.len() <= (keys + 1) * d && y.len() == targets
        );
        self.x.extend_from_slice(tokens);
        self.lengths.push(tokens.len() / d - 1);
        self.x.resize(self.lengths.len() * (keys + 1) * d, 0.0);
        self.y.extend_from_slice(y);
        self.weights.push(weight);
    }

    /// Query of set `i`.
    pub fn query(&self, i: usize) -> &[f64] {
        &self.tokens(i)[..self.shape.d]
    }

    /// The keys that set `i` has, one after another.
    pub fn keys(&self, i: usize) -> &[f64] {
        &self.tokens(i)[self.shape.d..(1 + self.lengths[i]) * self.shape.d]
    }

    /// All `N+1` places of set `i`.
    fn tokens(&self, i: usize) -> &[f64] {
        let size = (self.shape.keys + 1) * self.shape.d;
        &self.x[i * size..(i + 1) * size]
    }

    /// Targets of set `i`.
    pub fn targets(&self, i: usize) -> &[f64] {
        &self.y[i * self.shape.targets..(i + 1) * self.shape.targets]
    }
}

/// A source of sets, read in blocks of [`SetBlock::CAPACITY`]: addressed, so any thread may read any block at any time.
pub trait SetSource: Sync {
    /// Sizes of every set.
    fn shape(&self) -> SetShape;

    /// How many sets there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of blocks.
    fn blocks(&self) -> u64 {
        self.len().div_ceil(SetBlock::CAPACITY as u64)
    }

    /// Replaces the contents of `block` by block `index`; past the end it is empty.
    fn fill(&self, index: u64, block: &mut SetBlock) -> Result<()>;
}

/// Bytes of `n` sets.
pub(crate) fn bytes_of(shape: SetShape, n: u64) -> u128 {
    let SetShape { keys, d, targets } = shape;
    let per = numbers::<f64>(&[keys.saturating_add(1), d]).saturating_add(numbers::<f64>(&[targets.saturating_add(2)]));
    per.saturating_mul(n.into())
}

/// Refuses sets so large that a block of them, and what is made of it, does not fit in memory.
pub fn check_sets_size(shape: SetShape, n: u64, place: &str) -> Result<()> {
    let block = bytes_of(shape, n.min(SetBlock::CAPACITY as u64));
    ask(block.saturating_mul(2), place, "give sets of fewer keys or dimensions")
}

/// Sets in memory.
#[derive(Clone, Debug)]
pub struct Sets(SetBlock);

impl Sets {
    /// These sets.
    pub fn new(block: SetBlock) -> Self {
        Self(block)
    }

    /// Bytes that all sets of a source take.
    pub(crate) fn bytes(source: &dyn SetSource) -> u128 {
        bytes_of(source.shape(), source.len())
    }

    /// Reads a source whole.
    pub fn read(source: &dyn SetSource) -> Result<Self> {
        Self::read_until(source, &|| false)
    }

    /// The same, unless `stop` says otherwise, which is asked before every block.
    pub fn read_until(source: &dyn SetSource, stop: &dyn Fn() -> bool) -> Result<Self> {
        ask(Self::bytes(source), "sets", "give fewer of them")?;
        let mut all = SetBlock::new(source.shape());
        let n = usize::try_from(source.len()).unwrap_or(usize::MAX);
        let SetShape { keys, d, targets } = source.shape();
        // Room for all at once: a buffer that grows is held twice.
        let room = |buffer: &mut Vec<f64>, per: usize| {
            let refused = |_| Error::input("sets", format!("there is no memory for {n} of them"), "give fewer of them");
            buffer.try_reserve_exact(n.saturating_mul(per)).map_err(refused)
        };
        room(&mut all.x, (keys + 1) * d)?;
        room(&mut all.y, targets)?;
        let mut block = SetBlock::new(source.shape());
        for index in 0..source.blocks() {
            if stop() {
                return Err(Error::Interrupted);
            }
            source.fill(index, &mut block)?;
            all.x.extend_from_slice(&block.x);
            all.lengths.extend_from_slice(&block.lengths);
            all.y.extend_from_slice(&block.y);
            all.weights.extend_from_slice(&block.weights);
        }
        Ok(Self(all))
    }

    /// All sets as one block.
    pub fn block(&self) -> &SetBlock {
        &self.0
    }

    /// The same, without a copy.
    pub fn into_block(self) -> SetBlock {
        self.0
    }

    /// Sets `range` alone.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let mut part = SetBlock::new(self.0.shape);
        copy(&self.0, range, &mut part);
        Self(part)
    }
}

fn copy(from: &SetBlock, range: std::ops::Range<usize>, to: &mut SetBlock) {
    let SetShape { keys, d, targets } = from.shape;
    let size = (keys + 1) * d;
    to.x.extend_from_slice(&from.x[range.start * size..range.end * size]);
    to.lengths.extend_from_slice(&from.lengths[range.clone()]);
    to.y.extend_from_slice(&from.y[range.start * targets..range.end * targets]);
    to.weights.extend_from_slice(&from.weights[range]);
}

impl SetSource for Sets {
    fn shape(&self) -> SetShape {
        self.0.shape
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn fill(&self, index: u64, block: &mut SetBlock) -> Result<()> {
        block.shape = self.0.shape;
        block.clear();
        let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(SetBlock::CAPACITY).min(self.0.len());
        copy(&self.0, start..(start + SetBlock::CAPACITY).min(self.0.len()), block);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_all_sets_in_order() {
        let shape = SetShape { keys: 3, d: 2, targets: 1 };
        let mut block = SetBlock::new(shape);
        for i in 0..1100 {
            let tokens: Vec<f64> = (0..2 * (2 + i % 3)).map(|e| (10 * i + e) as f64).collect();
            block.push(&tokens, &[i as f64], 1.0);
        }
        let sets = Sets::new(block);
        assert_eq!(sets.blocks(), 3);
        let mut part = SetBlock::new(shape);
        sets.fill(2, &mut part).unwrap();
        assert_eq!((part.len(), part.targets(0)[0], part.lengths[1]), (76, 1024.0, 3));
        assert_eq!(part.query(0), [10240.0, 10241.0]);
        assert_eq!(part.keys(1).len(), 6);
        let again = Sets::read(&sets).unwrap();
        assert_eq!((again.block().x.clone(), again.len()), (sets.block().x.clone(), 1100));
        sets.fill(3, &mut part).unwrap();
        assert!(part.is_empty());
    }
}
