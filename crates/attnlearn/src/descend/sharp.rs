//! Sharp heads: their queries attend to hardly more than one token each, so that outputs hardly show their logits, and Gauss–Newton hardly moves them.
//!
//! Small students are taken apart, attention first and its matrices then (`free`, `logits`); large ones have their sharp heads read off what the others
//! leave (`readout`).

use super::batch::Batch;
use super::free::{Free, applies};
use super::logits;
use super::pass::Pass;
use super::readout;
use super::student::{Part, Student};
use crate::Result;

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
pub(super) fn take_apart(student: &mut Student<f64>, examples: &Batch<f64>, stop: &dyn Fn() -> bool) -> Result<()> {
    let form = student.form;
    if !applies(&form, examples.len(), examples.shape.k)
        || sharpness(student, examples).iter().sum::<f64>() <= SHARP * form.heads as f64
    {
        return Ok(());
    }
    let Some(free) = Free::find(examples, student, stop)? else { return Ok(()) };
    let Some(mut found) = logits::settle(&free, examples, student, stop)? else { return Ok(()) };
    examples.refit(&form, &mut found.values)?;
    if examples.error(&form, &found.values) < examples.error(&form, &student.values) {
        *student = found;
    }
    Ok(())
}

/// Reads every sharp head off the examples; where the numbers stand of those by which much was gained. (Others must be free to move on.)
pub(super) fn read(student: &mut Student<f64>, examples: &Batch<f64>, stop: &dyn Fn() -> bool) -> Result<Vec<usize>> {
    let mut gained = Vec::new();
    for (head, sharpness) in sharpness(student, examples).into_iter().enumerate() {
        if sharpness > SHARP && readout::read(student, head, examples, stop)? {
            gained.extend(student.places(head, &[Part::A, Part::B, Part::C]));
        }
    }
    Ok(gained)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::super::student::Form;
    use super::*;
    use crate::data::{InputDistribution, TeacherStream};
    use crate::layer::Mask;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// Heads of great norm attend to one token, heads of none to all alike.
    #[test]
    fn sharpness_is_between_alike_and_one() {
        let form =
            Form { d: 8, d_out: 8, heads: 2, rank: None, value_rank: None, key_bias: false, bias: false, mask: Mask::None };
        let mut student: Student<f64> = Student::random(form, 1e4, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        student.places(1, &[Part::A]).into_iter().for_each(|at| student.values[at] = 0.0);
        let layer = student.layer().unwrap();
        let source = TeacherStream::new(&layer, 4, InputDistribution::Gaussian, 2, None);
        let sharpness = sharpness(&student, &Batch::read(&source, 0..1, 64).unwrap());
        assert!(sharpness[0] > 0.99 && (sharpness[1] - 0.25).abs() < 1e-12, "{sharpness:?}");
    }
}
