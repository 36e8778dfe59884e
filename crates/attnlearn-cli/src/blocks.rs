//! Blocks of examples: made on all threads, used in their order; and a source that can be interrupted and counted.

use crate::interrupt;
use crate::progress::Bar;
use attnlearn::data::{Block, ExampleSource, ExampleWriter, Shape};
use attnlearn::linalg::lanes::Real;
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
fn in_order(
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

/// Makes `n` examples on all threads and writes them in their order, until Ctrl-C; `bar` counts them.
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

/// A source that stops at Ctrl-C and moves a progress bar, and of which only the beginning is seen.
pub struct Watched<'a> {
    source: &'a dyn ExampleSource,
    bar: &'a Bar,
    most: u64,
}

impl<'a> Watched<'a> {
    /// All of `source`; `bar` counts the examples read.
    pub fn new(source: &'a dyn ExampleSource, bar: &'a Bar) -> Self {
        Self { source, bar, most: u64::MAX }
    }

    /// The first `most` examples only.
    pub fn at_most(self, most: u64) -> Self {
        Self { most, ..self }
    }

    fn watch<T: Real>(&self, index: u64, block: &mut Block<T>, fill: impl Fn(&mut Block<T>) -> Result<()>) -> Result<()> {
        interrupt::check()?;
        fill(block)?;
        let left = self.most.saturating_sub(index.saturating_mul(Block::<T>::CAPACITY as u64));
        if left < block.len() as u64 {
            truncate(block, left as usize);
        }
        self.bar.advance(block.len() as u64);
        Ok(())
    }
}

/// Keeps the first examples of a block.
fn truncate<T: Real>(block: &mut Block<T>, len: usize) {
    let Shape { k, d, d_out } = block.shape();
    let (mut x, mut y) = (vec![T::ZERO; len * k * d], vec![T::ZERO; len * k * d_out]);
    block.copy_inputs(&mut x);
    block.copy_outputs(&mut y);
    block.set_inputs(&x);
    block.set_outputs(&y);
}

impl ExampleSource for Watched<'_> {
    fn shape(&self) -> Shape {
        self.source.shape()
    }

    fn len(&self) -> Option<u64> {
        self.source.len().map(|n| n.min(self.most))
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        self.watch(index, block, |block| self.source.fill_f32(index, block))
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        self.watch(index, block, |block| self.source.fill_f64(index, block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnlearn::data::{InputDistribution, TeacherSpec, TeacherStream};

    #[test]
    fn the_beginning_of_a_source_ends_where_it_should() {
        let teacher = TeacherSpec::dense(3, 1, 1.0).draw(&mut crate::values::teacher_rng(0)).expect("valid");
        let stream = TeacherStream::new(&teacher, 2, InputDistribution::Gaussian, 0, Some(2000));
        let bar = Bar::hidden();
        let source = Watched::new(&stream, &bar).at_most(700);
        assert_eq!(source.len(), Some(700));
        let (mut all, mut some) = (Block::<f64>::new(stream.shape()), Block::<f64>::new(stream.shape()));
        for (index, len) in [(0, 512), (1, 188), (2, 0)] {
            stream.fill_f64(index, &mut all).expect("no end");
            source.fill_f64(index, &mut some).expect("no end");
            assert_eq!(some.len(), len);
            for i in 0..len {
                assert_eq!((some.token(i, 1), some.output(i, 0)), (all.token(i, 1), all.output(i, 0)));
            }
        }
    }
}
