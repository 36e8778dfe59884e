//! Outputs in which no direction is seen a thousand times better than another.
//!
//! The last factor of real layers has a condition of hundreds, and outputs hardly vary in some directions: what shows in these alone is learned last,
//! by descent and by conjugate gradients alike. With
//!
//! ```text
//! Cov y = U Λ Uᵀ,   S = (Λ + ε λ̄)^{1/2},   ỹ = y U S⁻¹ Uᵀ · scale        O = Õ U S Uᵀ / scale,  bias alike
//! ```
//!
//! all directions down to `ε` of the mean variance `λ̄` weigh alike; `scale` keeps the variance. Without noise nothing is lost. With noise these weights are not
//! the best ones: a search that ends with something unexplained is refined in the plain units.

use crate::engine::batch::Batch;
use crate::engine::student::{Part, Student};
use crate::linalg::{Mat, symmetric, symmetric_eigen};
use crate::{Error, Result};
use faer::{MatMut, MatRef};

/// `ε`.
const LEAST: f64 = 1e-3;

/// The map of the outputs, and its inverse.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Balance {
    into: Mat<f64>,
    back: Mat<f64>,
}

impl Balance {
    /// That of some examples.
    pub(crate) fn of(examples: &Batch<f64>) -> Result<Self> {
        let (m, covariance) = (examples.shape.d_out, covariance(examples));
        let (values, u) = symmetric_eigen(covariance.as_ref())
            .filter(|(values, _)| values.iter().all(|v| v.is_finite()) && values.iter().sum::<f64>() > 0.0)
            .ok_or_else(|| Error::input("examples", "the outputs never vary", "there is nothing to learn from them"))?;
        let total = values.iter().sum::<f64>();
        let root = |j: usize| (values[j].max(0.0) + LEAST * total / m as f64).sqrt();
        let balanced = (0..m).map(|j| values[j].max(0.0) / root(j).powi(2)).sum::<f64>();
        let scale = (total / balanced).sqrt();
        let map = |weight: &dyn Fn(usize) -> f64| Mat::from_fn(m, m, |i, j| u[(i, j)] * weight(j)) * u.transpose();
        Ok(Self { into: map(&|j| scale / root(j)), back: map(&|j| root(j) / scale) })
    }

    /// The examples with balanced outputs.
    pub(crate) fn enter(&self, examples: &Batch<f64>) -> Batch<f64> {
        let (m, rows) = (examples.shape.d_out, examples.len() * examples.shape.k);
        let mut y = vec![0.0; examples.y.len()];
        let plain = MatRef::from_row_major_slice(&examples.y, rows, m);
        symmetric::product(MatMut::from_row_major_slice_mut(&mut y, rows, m), false, 1.0, plain, self.into.as_ref());
        Batch { shape: examples.shape, x: examples.x.clone(), y }
    }

    /// A student of balanced outputs as one of plain ones.
    pub(crate) fn leave(&self, mut student: Student<f64>) -> Student<f64> {
        let form = student.form.clone();
        for part in [Part::O, Part::Bias] {
            let (rows, cols) = form.shape(part);
            let balanced = student.values[form.range(part)].to_vec();
            let plain = MatMut::from_row_major_slice_mut(&mut student.values[form.range(part)], rows, cols);
            symmetric::product(plain, false, 1.0, MatRef::from_row_major_slice(&balanced, rows, cols), self.back.as_ref());
        }
        student
    }
}

/// That of the outputs.
fn covariance(examples: &Batch<f64>) -> Mat<f64> {
    let (m, rows) = (examples.shape.d_out, examples.len() * examples.shape.k);
    let y = MatRef::from_row_major_slice(&examples.y, rows, m);
    let mut moment = Mat::zeros(m, m);
    symmetric::product(moment.as_mut(), false, 1.0 / rows as f64, y.transpose(), y);
    let mut mean = vec![0.0; m];
    examples.y.chunks_exact(m).for_each(|y| mean.iter_mut().zip(y).for_each(|(mean, y)| *mean += y / rows as f64));
    Mat::from_fn(m, m, |i, j| moment[(i, j)] - mean[i] * mean[j])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::engine::student::Form;
    use crate::layer::Mask;
    use crate::scores::Scores;
    use crate::teacher::TeacherStream;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// A student whose outputs hardly vary in some directions, and its examples.
    fn problem(seed: u64) -> (Student<f64>, Batch<f64>) {
        let form = Form {
            d: 6,
            d_out: 5,
            heads: 2,
            rank: Some(2),
            value_rank: Some(3),
            key_bias: true,
            bias: true,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        let mut teacher: Student<f64> = Student::random(form.clone(), 2.0, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        for (i, v) in teacher.values[form.range(Part::O)].iter_mut().enumerate() {
            *v *= [1.0, 0.4, 0.16, 0.064, 0.0256][i % 5];
        }
        teacher.values[form.range(Part::Bias)].fill(3.0);
        let layer = teacher.layer().unwrap();
        let source = TeacherStream::new(&layer, 4, InputDistribution::Boolean, seed + 1, None);
        (teacher, Batch::read(&source, 0..1, 200).unwrap())
    }

    /// Variances become `v / (v + ε λ̄)`, up to a factor that keeps their sum: hardly different where they were far apart.
    #[test]
    fn variances_are_alike() {
        for seed in 0..3 {
            let (_, examples) = problem(seed);
            let balanced = Balance::of(&examples).unwrap().enter(&examples);
            let variances = |batch: &Batch<f64>| {
                let mut values = symmetric_eigen(covariance(batch).as_ref()).unwrap().0;
                values.sort_by(f64::total_cmp);
                values
            };
            let (plain, balanced) = (variances(&examples), variances(&balanced));
            let total: f64 = plain.iter().sum();
            let alike: Vec<f64> = plain.iter().map(|v| v / (v + LEAST * total / 5.0)).collect();
            let scale = total / alike.iter().sum::<f64>();
            for (balanced, alike) in balanced.iter().zip(&alike) {
                assert!((balanced - scale * alike).abs() < 1e-9 * total, "seed {seed}: {balanced} and {alike}");
            }
            let spread = |values: &[f64]| values[4] / values[0];
            assert!(spread(&plain) > 30.0 * spread(&balanced), "{plain:?} and {balanced:?}");
        }
    }

    /// A student that is refitted to balanced outputs is, in plain units, as right as it was; one that is exact stays so.
    #[test]
    fn students_come_back() {
        for seed in 0..3 {
            let (teacher, examples) = problem(seed);
            let balance = Balance::of(&examples).unwrap();
            let (balanced, mut student) = (balance.enter(&examples), teacher.clone());
            balanced.refit(&teacher.form, &mut student.values).unwrap();
            assert!(balanced.error(&teacher.form, &student.values) < 1e-18 * balanced.variance().unwrap());
            let plain = balance.leave(student.clone());
            assert!(examples.error(&teacher.form, &plain.values) < 1e-18 * examples.variance().unwrap());
            assert!(examples.error(&teacher.form, &student.values) > 1e-3 * examples.variance().unwrap());
        }
    }

    /// Outputs that never vary are refused.
    #[test]
    fn outputs_that_never_vary_are_refused() {
        let (_, mut examples) = problem(0);
        examples.y.fill(0.0);
        assert!(Balance::of(&examples).is_err());
    }
}
