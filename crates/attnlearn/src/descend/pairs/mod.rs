//! Rotary heads: pairs of coordinates that may stand in each other's place.
//!
//! A pair turns with a frequency that is fixed. In a wrong start the teacher's pair j has gone into the student's pair of a neighbouring frequency, and no small step leads back; and pairs that
//! hardly turn within a sequence can hardly be told apart. Both are gone where scores are free in the distance ([`relax`]): Gauss–Newton then comes to its end in a handful of steps. What it
//! finds is one small problem for every key group, solved by linear algebra ([`extract`]), and rotary again.

pub(crate) mod extract;
pub(crate) mod relax;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::extract::extract;
    use super::relax::relax;
    use crate::data::Shape;
    use crate::engine::testing::normals;
    use crate::engine::{Batch, Form, Part, Student};
    use crate::linalg::{Mat, MatRef};
    use crate::scores::{Mask, Rotation, Scores};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn forms() -> Vec<Form> {
        let rotary =
            |base: f64, turned: usize, mask: Mask| Scores { rotation: Some(Rotation::of_base(base, turned)), ..Scores::of(mask) };
        let base = Form {
            d: 12,
            d_out: 7,
            heads: 4,
            rank: Some(6),
            value_rank: Some(4),
            groups: Some(2),
            key_bias: false,
            relative: None,
            bias: false,
            scores: rotary(1e4, 6, Mask::Causal),
        };
        vec![
            base.clone(),
            Form { scores: rotary(10.0, 6, Mask::Causal), key_bias: true, bias: true, ..base.clone() },
            Form { scores: rotary(100.0, 4, Mask::Causal), groups: Some(1), ..base.clone() },
            Form { scores: rotary(500.0, 6, Mask::Window(5)), groups: None, ..base.clone() },
            Form { scores: rotary(30.0, 6, Mask::None), ..base },
        ]
    }

    /// A student, sequences, and what it says of them.
    fn problem(form: &Form, seed: u64) -> (Student<f64>, Batch<f64>) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut student = Student::<f64>::random(form.clone(), 3.0, rng).unwrap();
        for part in [Part::QueryBias, Part::KeyBias, Part::Bias] {
            let range = form.range(part);
            let biases = normals(range.len(), rng);
            student.values[range].copy_from_slice(&biases);
        }
        let k = 10;
        let x = normals(40 * k * form.d, rng);
        let y = student.layer().unwrap().forward(k, &x);
        (student, Batch { shape: Shape { k, d: form.d, d_out: form.d_out }, x, y })
    }

    /// A relaxed student says what the rotary one says; and so it does after a mixture of all coordinates that leaves no pair where it was.
    #[test]
    fn rotary_students_come_back_from_any_mixture() {
        for (seed, form) in forms().into_iter().enumerate() {
            let (student, batch) = problem(&form, seed as u64);
            let size = batch.variance().unwrap();
            let mut relaxed = relax(&student, 10).unwrap();
            assert!(batch.error(&relaxed.form, &relaxed.values) < 1e-18 * size, "{form:?}");
            // A ← AG, B ← BH, K_m ← G⁻¹ K_m H⁻ᵀ.
            let (r, free) = (form.r(), relaxed.form.clone());
            let rng = &mut ChaCha8Rng::seed_from_u64(seed as u64 + 9);
            for group in 0..form.key_groups() {
                let draw = |rng: &mut ChaCha8Rng| {
                    MatRef::from_row_major_slice(&normals(r * r, rng), r, r).to_owned() + Mat::<f64>::identity(r, r)
                };
                let (g, h) = (draw(rng), draw(rng));
                let times = |values: &mut Vec<f64>, part: Part, at: usize, m: &Mat<f64>| {
                    let (start, (rows, cols)) = (free.range(part).start, free.shape(part));
                    let product = free.view(part, values).subcols(at * r, r) * m;
                    (0..rows).for_each(|i| (0..r).for_each(|j| values[start + i * cols + at * r + j] = product[(i, j)]));
                };
                for head in (0..form.heads).filter(|head| form.group(*head) == group) {
                    times(&mut relaxed.values, Part::A, head, &g);
                    times(&mut relaxed.values, Part::QueryBias, head, &g);
                }
                times(&mut relaxed.values, Part::B, group, &h);
                times(&mut relaxed.values, Part::KeyBias, group, &h);
                let inverse = |m: &Mat<f64>| crate::linalg::inverse(m.as_ref()).unwrap();
                let (left, right) = (inverse(&g), inverse(&h).transpose().to_owned());
                let (start, cols) = (free.range(Part::Kernel).start, free.shape(Part::Kernel).1);
                for m in 0..free.functions() {
                    let block = &left * free.view(Part::Kernel, &relaxed.values).submatrix(m * r, group * r, r, r) * &right;
                    (0..r * r).for_each(|ij| {
                        relaxed.values[start + (m * r + ij / r) * cols + group * r + ij % r] = block[(ij / r, ij % r)]
                    });
                }
            }
            assert!(batch.error(&relaxed.form, &relaxed.values) < 1e-16 * size, "{form:?}");
            let back = extract(&relaxed, form.scores.rotation.as_ref().unwrap()).unwrap();
            assert_eq!(back.form, form);
            let error = batch.error(&back.form, &back.values) / size;
            assert!(error < 1e-12, "{form:?}: {error:.1e}");
            let distance = student.layer().unwrap().distance_within(&back.layer().unwrap(), 10).unwrap();
            assert!(distance.worst_theta() < 1e-5, "{form:?}: {distance:?}");
        }
    }
}
