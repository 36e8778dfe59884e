//! Examples held in memory, row by row, in double precision.

use crate::Result;
use crate::data::{Block, ExampleSource, Shape};
use std::ops::Range;

/// `n` examples in plain order. A *row* is an (example, query token) pair; there are `n k` of them.
#[derive(Clone, Debug)]
pub struct Sample {
    shape: Shape,
    x: Vec<f64>,
    y: Vec<f64>,
}

impl Sample {
    /// The first `n` examples of a range of blocks, or as many as it has.
    pub fn read(source: &dyn ExampleSource, blocks: Range<u64>, n: usize) -> Result<Self> {
        let shape = source.shape();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        let mut block = Block::<f64>::new(shape);
        for index in blocks {
            source.fill_f64(index, &mut block)?;
            if block.is_empty() || x.len() >= n * shape.k * shape.d {
                break;
            }
            let take = block.len().min(n - x.len() / (shape.k * shape.d));
            let (x_end, y_end) = (x.len(), y.len());
            x.resize(x_end + take * shape.k * shape.d, 0.0);
            y.resize(y_end + take * shape.k * shape.d_out, 0.0);
            block.copy_inputs(&mut x[x_end..]);
            block.copy_outputs(&mut y[y_end..]);
        }
        Ok(Self { shape, x, y })
    }

    /// Sizes of every example.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Examples held.
    pub fn len(&self) -> usize {
        self.x.len() / (self.shape.k * self.shape.d)
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.len() * self.shape.k
    }

    /// All tokens of example `i`, `[k][d]`.
    pub fn tokens(&self, i: usize) -> &[f64] {
        let per = self.shape.k * self.shape.d;
        &self.x[i * per..(i + 1) * per]
    }

    /// Output of row `r`.
    pub fn output(&self, r: usize) -> &[f64] {
        &self.y[r * self.shape.d_out..(r + 1) * self.shape.d_out]
    }

    /// `Σ_r ‖Y_r − mean‖²`, what every error is measured against.
    pub fn total_variance(&self) -> f64 {
        let (d_out, n) = (self.shape.d_out, self.rows() as f64);
        let mut mean = vec![0.0; d_out];
        for (i, v) in self.y.iter().enumerate() {
            mean[i % d_out] += v / n;
        }
        self.y.iter().enumerate().map(|(i, v)| (v - mean[i % d_out]).powi(2)).sum()
    }
}
