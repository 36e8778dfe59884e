//! The units in which descent works: tokens with second moment `I`, outputs with variance 1.
//!
//! With `x̃ = xT`, a layer of tokens `x̃` is one of tokens `x`:
//!
//! ```text
//! E xᵀx = U Λ Uᵀ,   T = U Λ^{−1/2} Uᵀ        A = TÃ,  B = TB̃,  c = Tc̃,  V = TṼ,  Θ = TΘ̃Tᵀ,  W = TW̃
//! ```
//!
//! In these units random heads of one norm are a good start for any inputs, and no direction of the tokens is learned a thousand times more slowly than
//! another. Directions in which tokens are always 0 are left out: nothing can be said about them, and `T` is 0 there.
//!
//! But heads whose entries are alike in the examples' own units are not alike in these: `Θ̃ = T⁻¹ΘT⁻ᵀ` is small where tokens are. Who believes in the
//! former has to descend where it is simple, in the *principal* units `x̃UΛ^{1/2}/√(mean Λ) = xU/√(mean Λ)`.

use crate::engine::batch::{Batch, squares_are_numbers};
use crate::engine::student::{Part, Student};
use crate::linalg::{Mat, symmetric_eigen};
use crate::{Error, Result};
use faer::MatRef;

/// Directions with less than this share of the largest second moment never occur.
const NOTHING: f64 = 1e-13;

/// Tokens that enter together.
const ROWS: usize = 1 << 13;

/// Ratio of second moments above which it matters in which units heads are believed to be alike.
const SPREAD: f64 = 10.0;

/// `T` and the size of the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Whitening {
    t: Mat<f64>,
    scale: f64,
    /// Directions in which tokens are not always 0.
    pub directions: usize,
    /// `UΛ^{1/2}` over the root of the mean of `Λ`, if `Λ` is [`SPREAD`] out.
    principal: Option<Mat<f64>>,
}

impl Whitening {
    /// That of some examples.
    pub fn of(batch: &Batch<f64>) -> Result<Self> {
        squares_are_numbers(&batch.x, "inputs")?;
        let (d, rows) = (batch.shape.d, batch.len() * batch.shape.k);
        let x = MatRef::from_row_major_slice(&batch.x, rows, d);
        let mut moment = Mat::zeros(d, d);
        crate::linalg::symmetric::product(moment.as_mut(), false, 1.0 / rows as f64, x.transpose(), x);
        let (values, u) = symmetric_eigen(moment.as_ref())
            .filter(|(values, _)| values.iter().all(|v| v.is_finite()))
            .ok_or_else(|| Error::input("examples", "their second moments are not finite", "scale the inputs down"))?;
        let largest = values.iter().copied().fold(0.0, f64::max);
        if largest <= 0.0 {
            return Err(Error::input("examples", "all inputs are 0", "there is nothing to learn from them"));
        }
        let root = |v: f64| if v > NOTHING * largest { 1.0 / v.sqrt() } else { 0.0 };
        let scaled = Mat::from_fn(d, d, |i, j| u[(i, j)] * root(values[j]));
        let scale = (batch.variance()? / (rows * batch.shape.d_out) as f64).sqrt();
        let seen: Vec<f64> = values.iter().copied().filter(|v| root(*v) > 0.0).collect();
        let (directions, mean) = (seen.len(), seen.iter().sum::<f64>() / seen.len() as f64);
        let spread = largest > SPREAD * seen.iter().copied().fold(largest, f64::min);
        let principal = spread.then(|| Mat::from_fn(d, d, |i, j| u[(i, j)] * (values[j].max(0.0) / mean).sqrt()));
        Ok(Self { t: scaled * u.transpose(), scale, directions, principal })
    }

    /// From these units to the principal ones; `None` if second moments are so near one another that it makes no difference.
    pub fn principal(&self) -> Option<Self> {
        let t = self.principal.clone()?;
        Some(Self { t, scale: 1.0, directions: self.directions, principal: None })
    }

    /// Variance of the outputs, per number.
    pub fn variance(&self) -> f64 {
        self.scale * self.scale
    }

    /// The examples in these units, where they are: there is no room for two of each.
    pub fn enter(&self, mut batch: Batch<f64>) -> Batch<f64> {
        let d = batch.shape.d;
        let mut inside = vec![0.0; (ROWS * d).min(batch.x.len())];
        for tokens in batch.x.chunks_mut(ROWS * d) {
            let rows = tokens.len() / d;
            let out = faer::MatMut::from_row_major_slice_mut(&mut inside[..tokens.len()], rows, d);
            crate::linalg::symmetric::product(out, false, 1.0, MatRef::from_row_major_slice(tokens, rows, d), self.t.as_ref());
            tokens.copy_from_slice(&inside[..tokens.len()]);
        }
        batch.y.iter_mut().for_each(|y| *y /= self.scale);
        batch
    }

    /// A student of these units as one of the examples' own.
    pub fn leave(&self, student: &Student<f64>) -> Student<f64> {
        let form = student.form.clone();
        let mut values = student.values.clone();
        let mut put = |part: Part, block: &Mat<f64>| {
            let (start, cols) = (form.range(part).start, block.ncols());
            for i in 0..block.nrows() {
                for j in 0..cols {
                    values[start + i * cols + j] = block[(i, j)];
                }
            }
        };
        for part in [Part::A, Part::B, Part::C, Part::V] {
            let block = form.view(part, &student.values);
            if block.nrows() == 0 {
                continue;
            }
            let mut moved = &self.t * block;
            if part == Part::A && form.rank.is_none() {
                // The matrices themselves.
                for head in 0..form.heads {
                    let theta = moved.subcols(head * form.d, form.d) * self.t.transpose();
                    moved.as_mut().subcols_mut(head * form.d, form.d).copy_from(&theta);
                }
            }
            put(part, &moved);
        }
        let mut o = form.view(Part::O, &student.values) * faer::Scale(self.scale);
        if form.value_rank.is_none() {
            for head in 0..form.heads {
                let w = &self.t * o.subrows(head * form.d, form.d);
                o.as_mut().subrows_mut(head * form.d, form.d).copy_from(&w);
            }
        }
        put(Part::O, &o);
        values[form.range(Part::Bias)].iter_mut().for_each(|b| *b *= self.scale);
        Student { form, values }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::Shape;
    use crate::engine::student::Form;
    use crate::layer::Mask;
    use crate::scores::Scores;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn normals(n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
        (0..n).map(|_| rng.sample(StandardNormal)).collect()
    }

    /// Correlated tokens, one direction of which never occurs.
    fn examples(rng: &mut ChaCha8Rng) -> Batch<f64> {
        let (n, k, d) = (50, 3, 5);
        let mut x = normals(n * k * d, rng);
        for token in x.chunks_exact_mut(d) {
            token[1] = token[0] + 0.01 * token[1];
            token[2] *= 100.0;
            token[4] = token[3];
        }
        let y = normals(n * k * 4, rng).iter().map(|y| 1e-3 * y).collect();
        Batch { shape: Shape { k, d, d_out: 4 }, x, y }
    }

    #[test]
    fn tokens_are_white_and_outputs_have_variance_one() {
        let batch = examples(&mut ChaCha8Rng::seed_from_u64(1));
        let whitening = Whitening::of(&batch).unwrap();
        assert_eq!(whitening.directions, 4);
        let inside = whitening.enter(batch);
        let x = MatRef::from_row_major_slice(&inside.x, 150, 5);
        let moment = x.transpose() * x * faer::Scale(1.0 / 150.0);
        // A projection of rank 4.
        assert!((&moment * &moment - &moment).norm_max() < 1e-6);
        assert!(((0..5).map(|i| moment[(i, i)]).sum::<f64>() - 4.0).abs() < 1e-6);
        assert!((inside.variance().unwrap() / 600.0 - 1.0).abs() < 1e-9);
    }

    /// White tokens in principal units are the examples' own, turned, with mean square 1; a student of these units does the same in those of white tokens.
    #[test]
    fn principal_units_are_the_examples_own() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let batch = examples(&mut rng);
        let whitening = Whitening::of(&batch).unwrap();
        let (white, principal) = (whitening.enter(batch.clone()), whitening.principal().unwrap());
        let inside = principal.enter(white.clone());
        let gram = |batch: &Batch<f64>| {
            let x = MatRef::from_row_major_slice(&batch.x, 150, 5);
            x * x.transpose()
        };
        let (theirs, own) = (gram(&inside), gram(&batch));
        let square = (0..150).map(|i| own[(i, i)]).sum::<f64>() / (150.0 * whitening.directions as f64);
        assert!((theirs - own * faer::Scale(1.0 / square)).norm_max() < 1e-6);
        let base = Form {
            d: 5,
            d_out: 4,
            heads: 2,
            rank: None,
            value_rank: None,
            key_bias: true,
            bias: true,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        for form in [base.clone(), Form { rank: Some(2), value_rank: Some(3), ..base.clone() }] {
            let student = Student::random(form.clone(), 1.0, &mut rng).unwrap();
            let left = principal.leave(&student);
            let (one, other) = (inside.error(&form, &student.values), white.error(&form, &left.values));
            assert!((one / other - 1.0).abs() < 1e-9, "{one} {other}");
        }
        let round = Batch { shape: batch.shape, x: normals(batch.x.len(), &mut rng), y: batch.y };
        assert_eq!(Whitening::of(&round).unwrap().principal(), None);
    }

    /// A student's error is the same inside and outside, in units of the variance.
    #[test]
    fn a_student_that_leaves_does_the_same() {
        let base = Form {
            d: 5,
            d_out: 4,
            heads: 2,
            rank: Some(2),
            value_rank: Some(3),
            key_bias: true,
            bias: true,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        let forms = [base.clone(), Form { rank: None, ..base.clone() }, Form { value_rank: None, ..base.clone() }];
        for (seed, form) in forms.into_iter().enumerate() {
            let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
            let batch = examples(&mut rng);
            let whitening = Whitening::of(&batch).unwrap();
            let inside = whitening.enter(batch.clone());
            let mut student = Student::<f64>::random(form.clone(), 2.0, &mut rng).unwrap();
            let more = normals(form.len(), &mut rng);
            student.values.iter_mut().zip(more).for_each(|(v, more)| *v += 0.2 * more);
            let within = inside.error(&form, &student.values) / inside.variance().unwrap();
            let outside = batch.error(&form, &whitening.leave(&student).values) / batch.variance().unwrap();
            assert!((within / outside - 1.0).abs() < 1e-7, "{form:?}: {within} {outside}");
        }
    }

    #[test]
    fn inputs_of_zero_are_refused() {
        let batch = examples(&mut ChaCha8Rng::seed_from_u64(1));
        let dark = Batch { x: vec![0.0; batch.x.len()], ..batch };
        assert!(Whitening::of(&dark).unwrap_err().to_string().contains("all inputs are 0"));
        let batch = examples(&mut ChaCha8Rng::seed_from_u64(1));
        for (by, remedy) in [(1e160, "scale the inputs down"), (1e-160, "scale the inputs up")] {
            let scaled = Batch { x: batch.x.iter().map(|x| x * by).collect(), ..batch.clone() };
            let error = Whitening::of(&scaled).unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
