//! An endless stream of examples from a teacher layer that only this module can see.

use crate::Result;
use crate::data::{Block, ExampleSource, InputDistribution, Shape};
use crate::layer::{AttentionLayer, Evaluator};
use crate::linalg::lanes::Real;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Examples `(X, F(X))` drawn afresh: block `i` is a function of the seed and `i` alone.
pub struct TeacherStream {
    k: usize,
    inputs: InputDistribution,
    seed: u64,
    len: Option<u64>,
    shape: Shape,
    single: Evaluator<f32>,
    double: Evaluator<f64>,
}

impl TeacherStream {
    /// Examples of `teacher` on sequences of `k` tokens; endless unless `len` is given.
    pub fn new(teacher: &AttentionLayer, k: usize, inputs: InputDistribution, seed: u64, len: Option<u64>) -> Self {
        Self {
            k,
            inputs,
            seed,
            len,
            shape: Shape { k, d: teacher.d(), d_out: teacher.d_out() },
            single: Evaluator::new(teacher),
            double: Evaluator::new(teacher),
        }
    }

    fn draw<T: Real>(&self, teacher: &Evaluator<T>, index: u64, block: &mut Block<T>) {
        debug_assert_eq!(block.shape(), Shape { k: self.k, ..self.shape });
        let capacity = Block::<T>::CAPACITY as u64;
        let left = self.len.map_or(capacity, |len| len.saturating_sub(index.saturating_mul(capacity)));
        // The generator of a block is addressed by its index, so any thread may draw any block.
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(index);
        self.inputs.fill_first(&mut rng, block, left.min(capacity) as usize);
        teacher.outputs(block);
        block.clear_unused_lanes();
    }
}

impl ExampleSource for TeacherStream {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        self.draw(&self.single, index, block);
        Ok(())
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        self.draw(&self.double, index, block);
        Ok(())
    }
}
