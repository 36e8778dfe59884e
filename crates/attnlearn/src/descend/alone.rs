//! One head alone: a student of one head learns what all others leave, `Y − Σ_{j≠i} P_j X W_j − bias`.
//!
//! A sharp head makes `JᵀP⊥J` so ill-conditioned that conjugate gradients for all heads spend nearly all their products on it. Alone, a product
//! costs a fraction of that.

use super::batch::Batch;
use super::newton::{Newton, NewtonSettings};
use super::pass::Pass;
use super::student::{Form, PARTS, Part, Student};
use crate::{Error, Result};
use rayon::prelude::*;

/// Sequences by which sharpness is judged.
const SOME: usize = 256;

/// Steps, and products for each.
const STEPS: usize = 4;
const PRODUCTS: usize = 400;

/// Mean of the largest attention of the rows of every head.
pub(super) fn sharpness(student: &Student<f64>, examples: &Batch<f64>) -> Vec<f64> {
    let (form, n) = (&student.form, examples.len().min(SOME));
    let mut pass = Pass::default();
    pass.pool(form, &student.values, examples.inputs(&(0..n)), examples.shape.k);
    let rows = n * examples.shape.k;
    let largest = |row: usize, head: usize| pass.attention(form, row, head).iter().copied().fold(0.0, f64::max);
    (0..form.heads).map(|head| (0..rows).map(|row| largest(row, head)).sum::<f64>() / rows as f64).collect()
}

/// Refines one head of a student, the others being as they are.
pub(super) fn refine(
    student: &mut Student<f64>,
    head: usize,
    examples: &Batch<f64>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    let form = student.form;
    let mut others = student.values.clone();
    student.head_entries(Part::O, head).into_iter().for_each(|at| others[at] = 0.0);
    let left: Vec<Vec<f64>> = examples
        .parts()
        .into_par_iter()
        .map(|chunks| {
            let mut pass = Pass::default();
            chunks.iter().flat_map(|range| examples.miss(&form, &others, range, &mut pass).1).map(|miss| -miss).collect()
        })
        .collect();
    let rest = Batch { x: examples.x.clone(), y: left.concat(), shape: examples.shape };
    let single = Form { heads: 1, bias: false, ..form };
    let places = places(student, head);
    let mut only = Student { form: single, values: places.iter().map(|at| student.values[*at]).collect() };
    let settings = NewtonSettings { steps: STEPS, products: PRODUCTS, ..NewtonSettings::default() };
    match Newton::new(&settings).run(&mut only, &rest, &settings, &|_| stop()) {
        Ok(_) => {}
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        // Nothing is left to learn, or not finite: the head stays.
        Err(_) => return Ok(()),
    }
    places.iter().zip(only.values).for_each(|(at, value)| student.values[*at] = value);
    Ok(())
}

/// Where the numbers of one head stand, in the order of a student of that head.
fn places(student: &Student<f64>, head: usize) -> Vec<usize> {
    PARTS.into_iter().filter(|part| *part != Part::Bias).flat_map(|part| student.head_entries(part, head)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::{InputDistribution, TeacherStream};
    use crate::layer::Mask;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// One head that is wrong by a tenth comes back, and the others stay: ten of ten.
    #[test]
    fn one_head_is_refined_alone() {
        for seed in 0..10 {
            let mask = if seed % 2 == 0 { Mask::None } else { Mask::Causal };
            let form = Form { d: 10, d_out: 6, heads: 3, rank: Some(3), value_rank: Some(4), key_bias: true, bias: true, mask };
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut teacher: Student<f64> = Student::random(form, 3.0, &mut rng).unwrap();
            for part in [Part::C, Part::Bias] {
                teacher.values[form.range(part)].iter_mut().for_each(|v| *v = rng.sample(StandardNormal));
            }
            let layer = teacher.layer().unwrap();
            let source = TeacherStream::new(&layer, 4, InputDistribution::Boolean, seed + 1, None);
            let examples = Batch::read(&source, 0..64, 400).unwrap();
            let head = (seed % 3) as usize;
            let mut student = teacher.clone();
            for place in places(&student, head) {
                student.values[place] *= 1.0 + 0.1 * rng.sample::<f64, _>(StandardNormal);
            }
            let before = examples.error(&form, &student.values);
            refine(&mut student, head, &examples, &|| false).unwrap();
            assert!(examples.error(&form, &student.values) < 1e-6 * before, "seed {seed}");
            let own = places(&student, head);
            assert!((0..form.len()).all(|i| own.contains(&i) || student.values[i].to_bits() == teacher.values[i].to_bits()));
            assert!(matches!(refine(&mut student.clone(), 0, &examples, &|| true), Err(Error::Interrupted)));
        }
    }

    /// Heads of great norm attend to one token, heads of none to all alike.
    #[test]
    fn sharpness_is_between_alike_and_one() {
        let form =
            Form { d: 8, d_out: 8, heads: 2, rank: None, value_rank: None, key_bias: false, bias: false, mask: Mask::None };
        let mut student: Student<f64> = Student::random(form, 1e4, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
        student.head_entries(Part::A, 1).into_iter().for_each(|at| student.values[at] = 0.0);
        let layer = student.layer().unwrap();
        let source = TeacherStream::new(&layer, 4, InputDistribution::Gaussian, 2, None);
        let sharpness = sharpness(&student, &Batch::read(&source, 0..1, 64).unwrap());
        assert!(sharpness[0] > 0.99 && (sharpness[1] - 0.25).abs() < 1e-12, "{sharpness:?}");
    }
}
