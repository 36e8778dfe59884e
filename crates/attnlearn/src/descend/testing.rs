//! What the tests of both halves share.

use super::Sample;
use crate::data::{InputDistribution, TeacherSpec, TeacherStream};
use crate::layer::AttentionLayer;
use crate::linalg::Mat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A dense teacher and Gaussian examples of it.
pub fn problem(d: usize, k: usize, m: usize, n: usize, seed: u64) -> (AttentionLayer, Sample) {
    let layer = TeacherSpec::dense(d, m, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).expect("a valid recipe");
    let source = TeacherStream::new(&layer, k, InputDistribution::Gaussian, seed + 100, None);
    let sample = Sample::read(&source, 0..8, n).expect("a stream never fails");
    (layer, sample)
}

/// Attention matrices with entries of size `size / d`.
pub fn random(d: usize, m: usize, size: f64, rng: &mut ChaCha8Rng) -> Vec<Mat<f64>> {
    let scale = size / d as f64;
    (0..m).map(|_| Mat::from_fn(d, d, |_, _| scale * rng.sample::<f64, _>(rand_distr::StandardNormal))).collect()
}
