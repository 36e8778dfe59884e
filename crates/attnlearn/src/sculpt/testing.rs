//! What the tests of the phases share: teachers, and what only a test may know of them.

use super::span::{Hull, norm, orthogonalise};
use crate::data::InputDistribution;
use crate::layer::AttentionLayer;
use crate::linalg::{Mat, frobenius, row_major};
use crate::teacher::{TeacherSpec, TeacherStream};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// A dense Gaussian teacher.
pub fn teacher(d: usize, m: usize, size: f64, seed: u64) -> AttentionLayer {
    TeacherSpec::dense(d, m, size).draw(&mut ChaCha8Rng::seed_from_u64(seed)).expect("a valid recipe")
}

/// Boolean examples of it, without end.
pub fn examples(layer: &AttentionLayer, k: usize) -> TeacherStream {
    TeacherStream::new(layer, k, InputDistribution::Boolean, 77, None)
}

/// Its attention matrices.
pub fn thetas(layer: &AttentionLayer) -> Vec<Mat<f64>> {
    layer.heads().iter().map(|h| h.theta.to_dense()).collect()
}

/// `S = Σ_i W_i`.
pub fn true_sum(layer: &AttentionLayer) -> Mat<f64> {
    let mut s = Mat::zeros(layer.d(), layer.d_out());
    layer.heads().iter().for_each(|h| s += &h.w);
    s
}

/// `‖A − B‖_F / ‖B‖_F`.
pub fn relative(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    frobenius((a - b).as_ref()) / frobenius(b.as_ref())
}

/// The affine hull of two attention matrices, exactly.
pub fn hull_of_two(heads: &[Mat<f64>]) -> Hull {
    let (first, second) = (row_major(heads[0].as_ref()), row_major(heads[1].as_ref()));
    let mut direction: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a - b).collect();
    let size = norm(&direction);
    direction.iter_mut().for_each(|x| *x /= size);
    let directions = vec![direction];
    let mut centre = first;
    orthogonalise(&mut centre, &directions);
    Hull { centre, directions, spectrum: Vec::new(), rows: 0 }
}
