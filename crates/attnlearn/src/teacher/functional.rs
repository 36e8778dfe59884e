//! How far a layer is from a reference as a function: the mean squared difference of their outputs on random inputs.

use super::TeacherStream;
use crate::data::{Block, InputDistribution, Reading, Watched};
use crate::layer::AttentionLayer;
use crate::layer::residual::residuals;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The distance of a layer from a reference as functions, on random inputs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionalError {
    /// Sequences drawn.
    pub n: u64,
    /// Mean over sequences, tokens and outputs of `(F_ao − F'_ao)²`.
    pub mse: f64,
    /// Variance of an output of the reference about its mean, averaged over the outputs.
    pub variance: f64,
    /// `mse / variance`; `None` when the reference is constant.
    pub nmse: Option<f64>,
    /// The largest `|F_ao − F'_ao|` seen.
    pub max_error: f64,
}

impl AttentionLayer {
    /// The mean squared difference between this layer, the reference, and `other` on `n` sequences of `k` tokens drawn from
    /// `inputs` with `seed`, which `reading` watches; in double precision, on all threads, with the same bits on any number of them.
    pub fn functional_error(
        &self,
        other: &Self,
        k: usize,
        inputs: InputDistribution,
        n: u64,
        seed: u64,
        reading: &dyn Reading,
    ) -> Result<FunctionalError> {
        self.comparable(other)?;
        if k == 0 || n == 0 {
            return Err(Error::input("inputs", format!("{n} sequences of {k} tokens"), "ask for at least one of each"));
        }
        let stream = TeacherStream::new(self, k, inputs, seed, Some(n));
        let residuals = residuals(other, &Watched::new(&stream, reading), 0..n.div_ceil(Block::<f64>::CAPACITY as u64), |_| {})?;
        Ok(FunctionalError {
            n,
            mse: residuals.mse(),
            variance: residuals.variance(),
            nmse: residuals.nmse(),
            max_error: residuals.max_error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ExampleSource;
    use crate::layer::Mask;
    use crate::linalg::{from_row_major, row_major};
    use crate::teacher::TeacherSpec;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn teacher(m: usize, seed: u64) -> AttentionLayer {
        TeacherSpec { d_out: 3, ..TeacherSpec::dense(4, m, 2.0) }.draw(&mut ChaCha8Rng::seed_from_u64(seed)).expect("valid")
    }

    #[test]
    fn a_layer_is_the_same_function_as_itself() {
        let layer = teacher(3, 5);
        let error = layer.functional_error(&layer, 3, InputDistribution::Gaussian, 1000, 1, &()).expect("comparable");
        assert!(error.n == 1000 && error.mse <= 0.0 && error.max_error <= 0.0 && error.nmse.is_some_and(|e| e <= 0.0));
    }

    #[test]
    fn functional_error_is_the_plain_average() {
        let (reference, other, k, n) = (teacher(2, 6), teacher(3, 7), 3, 700);
        let error = reference.functional_error(&other, k, InputDistribution::Boolean, n, 9, &()).expect("comparable");
        let stream = TeacherStream::new(&reference, k, InputDistribution::Boolean, 9, Some(n));
        let (mut differences, mut outputs) = (vec![], vec![vec![]; 3]);
        for index in 0..2 {
            let mut block = Block::<f64>::new(stream.shape());
            stream.fill_f64(index, &mut block).expect("a stream does not fail");
            let mut x = vec![0.0; block.len() * k * 4];
            block.copy_inputs(&mut x);
            for x in x.chunks(k * 4) {
                let x = from_row_major(k, 4, x);
                let (f, g) = (reference.forward_one(x.as_ref()), other.forward_one(x.as_ref()));
                differences.extend(row_major((&f - &g).as_ref()));
                (0..3).for_each(|o| outputs[o].extend((0..k).map(|a| f[(a, o)])));
            }
        }
        let mean = |v: &[f64], of: &dyn Fn(f64) -> f64| v.iter().map(|&v| of(v)).sum::<f64>() / v.len() as f64;
        let mse = mean(&differences, &|v| v * v);
        let variance = outputs.iter().map(|y| mean(y, &|v| (v - mean(y, &|v| v)).powi(2))).sum::<f64>() / 3.0;
        assert!((error.mse - mse).abs() < 1e-12 && (error.variance - variance).abs() < 1e-12);
        assert!((error.nmse.expect("not constant") - mse / variance).abs() < 1e-12);
        let worst = differences.iter().map(|v| v.abs()).fold(0.0, f64::max);
        assert!((error.max_error - worst).abs() < 1e-12);
    }

    #[test]
    fn layers_of_different_kinds_are_no_functions_to_compare() {
        let layer = teacher(2, 8);
        let causal = AttentionLayer::new(layer.heads().to_vec(), None, Mask::Causal).expect("valid");
        let wide = TeacherSpec::dense(4, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(1)).expect("valid");
        let deep =
            TeacherSpec { d_out: 3, ..TeacherSpec::dense(5, 2, 2.0) }.draw(&mut ChaCha8Rng::seed_from_u64(1)).expect("valid");
        for other in [&causal, &wide, &deep] {
            assert!(layer.functional_error(other, 3, InputDistribution::Boolean, 10, 1, &()).is_err());
        }
        assert!(layer.functional_error(&layer, 0, InputDistribution::Boolean, 10, 1, &()).is_err());
        assert!(layer.functional_error(&layer, 3, InputDistribution::Boolean, 0, 1, &()).is_err());
    }
}
