//! What the tests of the engine share: students of every kind, with all their numbers away from 0.

use super::{Batch, Form, Student};
use crate::data::Shape;
use crate::scores::{Distances, Mask, Rotation, Scores};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Tokens of a sequence.
pub(crate) const K: usize = 5;

/// Low rank and full, with biases and without, masks and windows, groups, rotation of all pairs and of some, norms, relative biases.
pub(crate) fn forms() -> Vec<Form> {
    let base = Form {
        d: 5,
        d_out: 4,
        heads: 3,
        rank: Some(2),
        value_rank: Some(3),
        groups: None,
        key_bias: true,
        relative: None,
        bias: true,
        scores: Scores::default(),
    };
    let causal = Scores::of(Mask::Causal);
    let rotary = Scores { rotation: Some(Rotation { frequencies: vec![1.0, 0.3] }), ..causal.clone() };
    let distances = Distances::of(&Rotation { frequencies: vec![1.0] }, 4, Mask::Causal, K);
    let grouped = Form { heads: 4, groups: Some(2), rank: Some(4), key_bias: false, bias: false, ..base.clone() };
    vec![
        base.clone(),
        Form { rank: None, ..base.clone() },
        Form { value_rank: None, scores: causal.clone(), ..base.clone() },
        Form { rank: None, value_rank: None, key_bias: false, bias: false, ..base.clone() },
        Form { heads: 1, d_out: 1, rank: Some(7), scores: causal.clone(), ..base.clone() },
        Form { scores: Scores::of(Mask::Window(2)), relative: Some(K), ..base.clone() },
        Form { relative: Some(3), groups: Some(1), ..base },
        Form { scores: rotary.clone(), ..grouped.clone() },
        Form { scores: Scores { mask: Mask::Window(3), ..rotary.clone() }, key_bias: true, bias: true, ..grouped.clone() },
        Form { rank: Some(5), groups: None, scores: Scores { mask: Mask::None, ..rotary.clone() }, ..grouped.clone() },
        Form { scores: Scores { norm: Some(1e-2), ..rotary }, key_bias: true, relative: Some(K), ..grouped.clone() },
        Form { scores: Scores { distances, ..causal.clone() }, key_bias: true, ..grouped.clone() },
        Form { scores: Scores { norm: Some(1e-6), ..Scores::default() }, groups: Some(4), ..grouped },
    ]
}

/// Standard normal numbers.
pub(crate) fn normals(n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..n).map(|_| rng.sample(StandardNormal)).collect()
}

/// A random student of a form with attention matrices of norm 3, biases too.
pub(crate) fn student(form: &Form, seed: u64) -> Student<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut student = Student::<f64>::random(form.clone(), 3.0, &mut rng).expect("a valid form");
    let more = normals(form.len(), &mut rng);
    student.values.iter_mut().zip(more).for_each(|(v, more)| *v += 0.2 * more);
    student
}

/// Random sequences and outputs that have nothing to do with them.
pub(crate) fn batch(form: &Form, n: usize, seed: u64) -> Batch<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed + 1000);
    let shape = Shape { k: K, d: form.d, d_out: form.d_out };
    Batch { shape, x: normals(n * K * form.d, &mut rng), y: normals(n * K * form.d_out, &mut rng) }
}
