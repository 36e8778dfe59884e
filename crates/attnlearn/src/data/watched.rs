//! A source that can be stopped and counted, and of which only the beginning is seen.

use super::{Block, ExampleSource, Shape};
use crate::linalg::lanes::Real;
use crate::{Error, Result};

/// Who watches examples being read.
pub trait Reading: Sync {
    /// So many more examples have been read.
    fn read(&self, _examples: u64) {}
    /// Whether to stop now; reading then ends with [`Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// Nobody.
impl Reading for () {}

/// A source that stops when it is asked to and tells how many examples were read.
pub struct Watched<'a> {
    source: &'a dyn ExampleSource,
    reading: &'a dyn Reading,
    most: u64,
}

impl<'a> Watched<'a> {
    /// All of `source`.
    pub fn new(source: &'a dyn ExampleSource, reading: &'a dyn Reading) -> Self {
        Self { source, reading, most: u64::MAX }
    }

    /// The first `most` examples only.
    pub fn at_most(self, most: u64) -> Self {
        Self { most, ..self }
    }

    fn watch<T: Real>(&self, index: u64, block: &mut Block<T>, fill: impl Fn(&mut Block<T>) -> Result<()>) -> Result<()> {
        if self.reading.interrupted() {
            return Err(Error::Interrupted);
        }
        fill(block)?;
        let left = self.most.saturating_sub(index.saturating_mul(Block::<T>::CAPACITY as u64));
        if left < block.len() as u64 {
            truncate(block, left as usize);
        }
        self.reading.read(block.len() as u64);
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

    fn interrupted(&self) -> bool {
        self.reading.interrupted()
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
    use crate::data::InputDistribution;
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    struct Nobody;
    impl Reading for Nobody {}

    #[test]
    fn the_beginning_of_a_source_ends_where_it_should() {
        let teacher = TeacherSpec::dense(3, 1, 1.0).draw(&mut ChaCha8Rng::seed_from_u64(0)).expect("valid");
        let stream = TeacherStream::new(&teacher, 2, InputDistribution::Gaussian, 0, Some(2000));
        let source = Watched::new(&stream, &Nobody).at_most(700);
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
