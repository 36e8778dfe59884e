//! Examples and inputs from files, read block by block: `x` of shape `[n, k, d]` and `y` of shape `[n, k, d_out]`, in either of the
//! formats of [`crate::files`].

use super::{Block, ExampleSource, Shape};
use crate::files::{Bytes, Contents, FLOATS, INPUTS, View};
use crate::linalg::lanes::{LANES, Real};
use crate::{Error, Result};
use std::ops::Range;
use std::path::Path;

/// Examples in a file: `x` of shape `[n, k, d]`, `y` of shape `[n, k, d_out]`.
#[derive(Debug)]
pub struct ExampleFile {
    bytes: Bytes,
    x: View<3>,
    y: View<3>,
}

/// Inputs in a file: `x` of shape `[n, k, d]`. Other tensors are left alone.
#[derive(Debug)]
pub struct InputFile {
    bytes: Bytes,
    x: View<3>,
}

/// The tensor `x` of a file.
pub(crate) fn inputs_in(contents: &Contents) -> Result<View<3>> {
    contents.require("x", ["n", "k", "d"], INPUTS)
}

/// The tensor `y` of a file.
pub(crate) fn outputs_in(contents: &Contents) -> Result<View<3>> {
    contents.require("y", ["n", "k", "d_out"], FLOATS)
}

/// The tensors `x` and `y` of a file, which agree on n and k.
pub(crate) fn examples_in(contents: &Contents) -> Result<(View<3>, View<3>)> {
    let (x, y) = (inputs_in(contents)?, outputs_in(contents)?);
    for (i, name) in ["n", "k"].into_iter().enumerate() {
        if x.shape[i] != y.shape[i] {
            let problem = format!("x has shape {:?} and y has shape {:?}: they differ in {name}", x.shape, y.shape);
            return Err(Error::input(&contents.place, problem, "give one output sequence for each input sequence"));
        }
    }
    Ok((x, y))
}

/// The examples that block `index` holds out of `n`; none past the end.
fn examples_of_block(index: u64, n: usize) -> Range<usize> {
    let capacity = Block::<f64>::CAPACITY;
    let start = usize::try_from(index).ok().and_then(|i| i.checked_mul(capacity)).map_or(n, |start| start.min(n));
    start..n.min(start.saturating_add(capacity))
}

/// Reads up to [`LANES`] examples into the lanes of a panel; the others become 0.
fn read_panel<T: Real>(view: &View<3>, bytes: &[u8], examples: Range<usize>, panel: &mut [T]) -> Result<()> {
    if examples.len() < LANES {
        panel.fill(T::ZERO);
    }
    for (lane, example) in examples.enumerate() {
        view.decode_part(bytes, example, &mut panel[lane..], LANES)?;
    }
    Ok(())
}

/// The examples of panel `index` among those of a block.
fn examples_of_panel(block: &Range<usize>, index: usize) -> Range<usize> {
    let start = block.start + index * LANES;
    start..block.end.min(start + LANES)
}

/// Refuses a block that was made for another file.
fn check_block(view: &View<3>, wanted: &[usize], block: Shape) -> Result<()> {
    let given = [block.k, block.d, block.d_out];
    if given[..wanted.len()] == *wanted {
        return Ok(());
    }
    let problem = format!("a block for (k, d, d_out) = {given:?} is to hold examples of {wanted:?}");
    Err(Error::input(&view.place, problem, "use inputs and layers of the same sizes"))
}

impl ExampleFile {
    /// Maps a file and checks its header; no example is read.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(Bytes::open(path)?, &path.display().to_string())
    }

    /// Examples in memory, in the format of a file; errors will call them `place`.
    pub fn from_bytes(bytes: Vec<u8>, place: &str) -> Result<Self> {
        Self::read(Bytes::Owned(bytes), place)
    }

    fn read(bytes: Bytes, place: &str) -> Result<Self> {
        let (x, y) = examples_in(&Contents::read(&bytes, place)?)?;
        Ok(Self { bytes, x, y })
    }

    fn fill<T: Real>(&self, index: u64, block: &mut Block<T>) -> Result<()> {
        let shape = self.shape();
        check_block(&self.x, &[shape.k, shape.d, shape.d_out], block.shape())?;
        let examples = examples_of_block(index, self.x.shape[0]);
        block.set_len(examples.len());
        for (i, (x, y)) in block.panels_mut().enumerate() {
            let examples = examples_of_panel(&examples, i);
            read_panel(&self.x, &self.bytes, examples.clone(), x)?;
            read_panel(&self.y, &self.bytes, examples, y)?;
        }
        Ok(())
    }
}

impl ExampleSource for ExampleFile {
    fn shape(&self) -> Shape {
        Shape { k: self.x.shape[1], d: self.x.shape[2], d_out: self.y.shape[2] }
    }

    fn len(&self) -> Option<u64> {
        Some(self.x.shape[0] as u64)
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        self.fill(index, block)
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        self.fill(index, block)
    }
}

impl InputFile {
    /// Maps a file and checks its header; no input is read.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(Bytes::open(path)?, &path.display().to_string())
    }

    /// Inputs in memory, in the format of a file; errors will call them `place`.
    pub fn from_bytes(bytes: Vec<u8>, place: &str) -> Result<Self> {
        Self::read(Bytes::Owned(bytes), place)
    }

    fn read(bytes: Bytes, place: &str) -> Result<Self> {
        let x = inputs_in(&Contents::read(&bytes, place)?)?;
        Ok(Self { bytes, x })
    }

    /// Number of sequences.
    pub fn n(&self) -> usize {
        self.x.shape[0]
    }

    /// Tokens per sequence.
    pub fn k(&self) -> usize {
        self.x.shape[1]
    }

    /// Token dimension.
    pub fn d(&self) -> usize {
        self.x.shape[2]
    }

    /// Reads the inputs of block `index`. Past the end the block is empty. The outputs are as they were.
    pub fn fill<T: Real>(&self, index: u64, block: &mut Block<T>) -> Result<()> {
        check_block(&self.x, &[self.k(), self.d()], block.shape())?;
        let examples = examples_of_block(index, self.n());
        block.set_len(examples.len());
        for (i, (x, _)) in block.panels_mut().enumerate() {
            read_panel(&self.x, &self.bytes, examples_of_panel(&examples, i), x)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_examples_once() {
        for n in [1, 511, 512, 513, 1024, 1500] {
            let mut next = 0;
            for index in 0..5 {
                let block = examples_of_block(index, n);
                assert_eq!(block.start, next.min(n));
                next = block.end;
            }
            assert_eq!(next, n);
            assert!(examples_of_block(u64::MAX, n).is_empty());
            assert!(examples_of_block(u64::MAX / 512, n).is_empty());
        }
    }
}
