//! Sharp heads: their queries attend to hardly more than one token each, so that outputs hardly show their logits, and Gauss–Newton hardly moves them.
//!
//! Small students are taken apart, attention first and its matrices then (`free`, `logits`); large ones have their sharp heads read off what the others
//! leave (`readout`).
mod free_attention;
mod logits;
mod readout;
mod regression;

use crate::Result;
use crate::descend::sharp::free_attention::{FreeAttention, applies};
use crate::engine::batch::Batch;
use crate::engine::pass::Pass;
use crate::engine::student::{Form, Part, Student};
use serde::{Deserialize, Serialize};

/// Mean of the largest attention of all rows above which a head is sharp.
const SHARP: f64 = 0.8;

/// Sequences by which that is judged.
const SOME: usize = 256;

/// Mean of the largest attention of the rows of every head.
fn sharpness(student: &Student<f64>, examples: &Batch<f64>) -> Vec<f64> {
    let (form, n) = (&student.form, examples.len().min(SOME));
    let mut pass = Pass::default();
    pass.pool(form, &student.values, examples.inputs(&(0..n)), examples.shape.k);
    let rows = n * examples.shape.k;
    let largest = |row: usize, head: usize| pass.attention(form, row, head).iter().copied().fold(0.0, f64::max);
    (0..form.heads).map(|head| (0..rows).map(|row| largest(row, head)).sum::<f64>() / rows as f64).collect()
}

/// Takes a student apart whose heads are sharp on average, if examples suffice and that makes it better.
pub(crate) fn take_apart(student: &mut Student<f64>, examples: &Batch<f64>, stop: &dyn Fn() -> bool) -> Result<()> {
    let form = student.form.clone();
    if !applies(&form, examples.len(), examples.shape.k)
        || sharpness(student, examples).iter().sum::<f64>() <= SHARP * form.heads as f64
    {
        return Ok(());
    }
    let Some(free) = FreeAttention::find(examples, student, stop)? else { return Ok(()) };
    let Some(mut found) = logits::settle(&free, examples, student, stop)? else { return Ok(()) };
    examples.refit(&form, &mut found.values)?;
    if examples.error(&form, &found.values) < examples.error(&form, &student.values) {
        *student = found;
    }
    Ok(())
}

/// Which sharp heads it is worth to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// Heads that a reading has gained much by.
    useful: Vec<usize>,
    /// Heads whose first reading gained little: it is not their logits that hold them back.
    useless: Vec<usize>,
}

impl Readings {
    /// Reads every sharp head off the examples that is worth it; where the numbers stand of those by which much was gained. (Others must be free to move on.)
    pub(crate) fn read(
        &mut self,
        student: &mut Student<f64>,
        examples: &Batch<f64>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<usize>> {
        let mut gained = Vec::new();
        for (head, sharpness) in sharpness(student, examples).into_iter().enumerate() {
            if sharpness <= SHARP || self.useless.contains(&head) {
                continue;
            }
            if readout::read(student, head, examples, stop)? {
                gained.extend(student.places(head, &[Part::A, Part::B, Part::C]));
                self.useful.push(head);
            } else if !self.useful.contains(&head) {
                self.useless.push(head);
            }
        }
        self.useful.sort_unstable();
        self.useful.dedup();
        Ok(gained)
    }

    /// Whether it can be one of a student of this form.
    pub(crate) fn fits(&self, form: &Form) -> bool {
        let fits = |heads: &[usize]| heads.len() <= form.heads && heads.iter().all(|head| *head < form.heads);
        fits(&self.useful) && fits(&self.useless)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::descend::testing::{mixed_form, sharp_problem};
    use crate::layer::Mask;
    use crate::scores::Scores;
    use crate::teacher::TeacherStream;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// Heads of great norm attend to one token, heads of none to all alike.
    #[test]
    fn sharpness_is_between_alike_and_one() {
        let form = Form {
            d: 8,
            d_out: 8,
            heads: 2,
            rank: None,
            value_rank: None,
            key_bias: false,
            bias: false,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        let mut student: Student<f64> = Student::random(form.clone(), 1e4, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        student.places(1, &[Part::A]).into_iter().for_each(|at| student.values[at] = 0.0);
        let layer = student.layer().unwrap();
        let source = TeacherStream::new(&layer, 4, InputDistribution::Gaussian, 2, None);
        let sharpness = sharpness(&student, &Batch::read(&source, 0..1, 64).unwrap());
        assert!(sharpness[0] > 0.99 && (sharpness[1] - 0.25).abs() < 1e-12, "{sharpness:?}");
    }

    /// A head whose first reading has nothing to gain is not read again; one that was read with gain is.
    #[test]
    fn useless_readings_are_not_repeated() {
        for seed in [1, 5, 13] {
            let form = mixed_form(seed);
            let (teacher, examples, _) = sharp_problem(form.clone(), 600, seed);
            assert!(sharpness(&teacher, &examples)[1] > SHARP, "seed {seed}");
            let mut wrong = teacher.clone();
            wrong.places(1, &[Part::A]).into_iter().for_each(|at| wrong.values[at] *= 1.02);
            let read =
                |readings: &mut Readings, student: &mut Student<f64>| readings.read(student, &examples, &|| false).unwrap();
            let mut readings = Readings::default();
            assert!(read(&mut readings, &mut teacher.clone()).is_empty() && readings.useless.contains(&1), "seed {seed}");
            let mut student = wrong.clone();
            assert!(read(&mut readings, &mut student).is_empty() && student == wrong, "seed {seed}");
            let mut readings = Readings::default();
            for _ in 0..2 {
                let gained = read(&mut readings, &mut wrong.clone());
                assert_eq!(gained, wrong.places(1, &[Part::A, Part::B, Part::C]), "seed {seed}");
                assert!(read(&mut readings, &mut teacher.clone()).is_empty() && readings.useless.is_empty(), "seed {seed}");
            }
            assert!(readings.fits(&form) && !readings.fits(&Form { heads: 1, ..form.clone() }));
        }
    }
}
