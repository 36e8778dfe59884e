//! What the tests of sharp heads share.

use crate::data::InputDistribution;
use crate::engine::{Batch, Form, Part, Student};
use crate::scores::{Mask, Scores};
use crate::teacher::TeacherStream;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Tokens of a sequence.
pub(crate) const K: usize = 5;

/// A teacher whose head 1 is sharp, and examples of it.
pub(crate) fn sharp_problem(form: Form, n: usize, seed: u64) -> (Student<f64>, Batch<f64>, ChaCha8Rng) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut teacher: Student<f64> = Student::random(form.clone(), 2.0, &mut rng).expect("a valid form");
    teacher.draw_head(1, 12.0, &mut rng);
    for part in [Part::C, Part::Bias] {
        let range = teacher.form.range(part);
        teacher.values[range].iter_mut().for_each(|v| *v = rng.sample(rand_distr::StandardNormal));
    }
    let layer = teacher.layer().expect("finite numbers");
    let source = TeacherStream::new(&layer, K, InputDistribution::Boolean, seed + 1, None);
    (teacher, Batch::read(&source, 0..64, n).expect("a stream never fails"), rng)
}

/// Of low rank and full, with biases and mask or without.
pub(crate) fn mixed_form(seed: u64) -> Form {
    let (biased, low) = (seed.is_multiple_of(2), !seed.is_multiple_of(3));
    Form {
        d: 10,
        d_out: 12,
        heads: 3,
        rank: low.then_some(3),
        value_rank: low.then_some(6),
        key_bias: biased,
        bias: biased,
        scores: Scores::of(if seed % 4 < 2 { Mask::None } else { Mask::Causal }),
        groups: None,
        relative: None,
    }
}
