//! Gauss–Newton by variable projection: `O` and the bias are the best for the rest at every step.
//!
//! ```text
//! (JᵀP⊥J + λD) δ = −Jᵀ(F(X) − Y),     D = the mean of the diagonal of JᵀP⊥J in every block
//! ```
//!
//! For small students the matrix is written out (`normal`). For others it is never formed: `D` comes from a random sign vector and `δ` from conjugate
//! gradients, more exactly the nearer the end: to `√NMSE` of the right-hand side, so that the error is about squared by every step.
//! `λ` (Levenberg, Marquardt) falls with every success and rises with every failure. Factors `A Bᵀ` can be turned into one another without any
//! change to the layer, so `JᵀJ` is singular; conjugate gradients stay in its range.

use super::batch::Batch;
use super::eliminate::Elimination;
use super::linear::Linear;
use super::normal::{is_small, normal_matrix};
use super::student::{Form, PARTS, Part, Student};
use super::varpro::Stop;
use crate::linalg::Mat;
use crate::linalg::cholesky::{small_cholesky, solve as solve_factored};
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// When to stop, and how to step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewtonSettings {
    /// Most steps (default 40).
    pub steps: usize,
    /// Most products with `JᵀP⊥J` for one step (default 300).
    pub products: usize,
    /// Stop when the share of unexplained variance is below this (default 10⁻²⁶).
    pub goal: f64,
    /// Stop when it falls by less than this share in three steps running (default 10⁻²).
    pub progress: f64,
    /// First λ (default 10⁻²).
    pub damping: f64,
}

impl Default for NewtonSettings {
    fn default() -> Self {
        Self { steps: 40, products: 300, goal: 1e-26, progress: 1e-2, damping: 1e-2 }
    }
}

/// Where a refinement stands: with the student, everything that the next step depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Newton {
    /// Share of unexplained variance before the first step and after every step.
    pub history: Vec<f64>,
    /// Products with `JᵀP⊥J` in all.
    pub products: usize,
    lambda: f64,
    /// Steps in a row that gained little.
    slow: usize,
}

impl Newton {
    /// At the beginning.
    pub fn new(settings: &NewtonSettings) -> Self {
        Self { history: Vec::new(), products: 0, lambda: settings.damping, slow: 0 }
    }

    /// Steps to the end; `stop` is asked at every product, with the share of unexplained variance.
    pub fn run(
        &mut self,
        student: &mut Student<f64>,
        examples: &Batch<f64>,
        settings: &NewtonSettings,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Stop> {
        examples.check(&student.form)?;
        let variance = examples.variance()?;
        loop {
            if let Some(why) = self.step(student, examples, variance, settings, stop)? {
                return Ok(why);
            }
        }
    }

    /// One step, or why there is none.
    pub fn step(
        &mut self,
        student: &mut Student<f64>,
        examples: &Batch<f64>,
        variance: f64,
        settings: &NewtonSettings,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Stop>> {
        let form = student.form;
        let elimination = examples.refit(&form, &mut student.values)?;
        let mut linear = Linear::new(examples, form, &student.values);
        let nmse = linear.error / variance;
        if self.history.is_empty() {
            self.history.push(nmse);
        }
        if !nmse.is_finite() {
            return Err(Error::input("descent", "the error is not finite any more", "look for huge inputs or outputs"));
        }
        if nmse <= settings.goal {
            return Ok(Some(Stop::Goal));
        }
        if self.slow >= 3 {
            return Ok(Some(Stop::Stalled));
        }
        if self.history.len() > settings.steps {
            return Ok(Some(Stop::Limit));
        }
        let matrix =
            if is_small(&form) { Some(normal_matrix(examples, &form, &linear, &elimination, &|| stop(nmse))?) } else { None };
        let diagonal = match &matrix {
            Some(matrix) => block_means(form, |i| matrix[(i, i)]),
            None => {
                self.products += 1;
                estimated_diagonal(&mut linear, &elimination, form)
            }
        };
        let accuracy = nmse.sqrt().clamp(1e-9, 0.1);
        loop {
            if stop(nmse) {
                return Err(Error::Interrupted);
            }
            let damping: Vec<f64> = diagonal.iter().map(|d| self.lambda * d).collect();
            let step = match &matrix {
                Some(matrix) => solve_dense(matrix, &linear.gradient, &damping),
                None => {
                    let products = (accuracy, settings.products);
                    Some(solve(&mut linear, &elimination, (form, &damping), products, &mut self.products, &|| stop(nmse))?)
                }
            };
            let mut moved = student.values.clone();
            let error = step.map_or(f64::INFINITY, |step| {
                moved.iter_mut().zip(&step).for_each(|(v, s)| *v += s);
                examples.refit(&form, &mut moved).map_or(f64::INFINITY, |_| examples.error(&form, &moved))
            });
            if error < linear.error {
                self.slow = if 1.0 - error / linear.error < settings.progress { self.slow + 1 } else { 0 };
                student.values = moved;
                self.lambda = (self.lambda * 0.2).max(1e-14);
                self.history.push(error / variance);
                return Ok(None);
            }
            self.lambda = (self.lambda * 5.0).max(1e-12);
            if self.lambda > 1e6 {
                return Ok(Some(Stop::Stalled));
            }
        }
    }
}

/// The mean of a diagonal in every block, for every parameter; 1 where there is nothing.
fn block_means(form: Form, diagonal: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut means = vec![1.0; form.len()];
    for part in PARTS.into_iter().filter(|part| !matches!(part, Part::O | Part::Bias)) {
        let range = form.range(part);
        let mean = range.clone().map(&diagonal).sum::<f64>() / range.len().max(1) as f64;
        if mean > 0.0 {
            means[range].fill(mean);
        }
    }
    means
}

/// The same for `JᵀP⊥J`, whose diagonal is estimated by `ω∘(JᵀP⊥J ω)` with random signs `ω`.
fn estimated_diagonal(linear: &mut Linear<'_, f64>, elimination: &Elimination, form: Form) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut signs: Vec<f64> = (0..form.len()).map(|_| if rng.random::<bool>() { 1.0 } else { -1.0 }).collect();
    signs[form.range(Part::O).start..].fill(0.0);
    let product = linear.projected_product(elimination, &signs);
    block_means(form, |i| signs[i] * product[i])
}

/// `(JᵀP⊥J + diag μ) δ = −Jᵀr` from the lower triangle of the matrix; nothing if rounding has made it indefinite.
fn solve_dense(matrix: &Mat<f64>, gradient: &[f64], mu: &[f64]) -> Option<Vec<f64>> {
    let p = matrix.nrows();
    let mut l = matrix.clone();
    (0..p).for_each(|i| l[(i, i)] += mu[i]);
    small_cholesky(l.as_mut()).ok()?;
    let mut step = Mat::from_fn(p, 1, |i, _| -gradient[i]);
    solve_factored(l.as_ref(), step.as_mut());
    let mut all = vec![0.0; gradient.len()];
    all[..p].copy_from_slice(step.col_as_slice(0));
    Some(all)
}

/// `(JᵀP⊥J + diag μ) δ = −Jᵀr` to a relative residual, or as near as so many products come.
fn solve(
    linear: &mut Linear<'_, f64>,
    elimination: &Elimination,
    (form, mu): (Form, &[f64]),
    (accuracy, most): (f64, usize),
    products: &mut usize,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<f64>> {
    let mut x = vec![0.0; linear.gradient.len()];
    let mut r: Vec<f64> = linear.gradient.iter().map(|g| -g).collect();
    // `O` is where it is best: what its gradient still says is rounding.
    r[form.range(Part::O).start..].fill(0.0);
    // In units of the damping: blocks of different sizes weigh alike.
    let precondition = |r: &[f64]| r.iter().zip(mu).map(|(r, mu)| r / mu.max(f64::MIN_POSITIVE)).collect::<Vec<f64>>();
    let mut z = precondition(&r);
    let mut direction = z.clone();
    let mut rz = inner(&r, &z);
    let goal = accuracy * accuracy * rz;
    for _ in 0..most {
        if stop() {
            return Err(Error::Interrupted);
        }
        if rz <= goal || rz == 0.0 {
            break;
        }
        let mut q = linear.projected_product(elimination, &direction);
        *products += 1;
        q.iter_mut().zip(&direction).zip(mu).for_each(|((q, d), mu)| *q += mu * d);
        let curvature = inner(&direction, &q);
        if curvature <= 0.0 {
            break;
        }
        let length = rz / curvature;
        for i in 0..x.len() {
            x[i] += length * direction[i];
            r[i] -= length * q[i];
        }
        z = precondition(&r);
        let next = inner(&r, &z);
        let beta = next / rz;
        rz = next;
        direction.iter_mut().zip(&z).for_each(|(d, z)| *d = z + beta * *d);
    }
    Ok(x)
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::super::adam::{Adam, AdamSettings};
    use super::*;
    use crate::data::{InputDistribution, TeacherSpec, TeacherStream};
    use crate::layer::{AttentionLayer, Mask};
    use rand_distr::StandardNormal;

    fn problem(form: Form, n: usize, seed: u64) -> (AttentionLayer, Batch<f64>) {
        let teacher: Student<f64> = Student::random(form, 3.0, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let layer = teacher.layer().unwrap();
        let source = TeacherStream::new(&layer, 4, InputDistribution::Boolean, seed + 1, None);
        (layer, Batch::read(&source, 0..64, n).unwrap())
    }

    const LOW: Form =
        Form { d: 10, d_out: 6, heads: 2, rank: Some(3), value_rank: Some(4), key_bias: true, bias: true, mask: Mask::None };

    fn newton(student: &mut Student<f64>, examples: &Batch<f64>, stop: bool) -> Result<Stop> {
        let settings = NewtonSettings::default();
        Newton::new(&settings).run(student, examples, &settings, &|_| stop)
    }

    /// From a teacher moved by a twentieth of its size: ten of ten come back to machine precision.
    #[test]
    fn it_converges_from_nearby() {
        for seed in 0..10 {
            let form = Form { mask: if seed % 2 == 0 { Mask::None } else { Mask::Causal }, ..LOW };
            let (layer, examples) = problem(form, 400, seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut student: Student<f64> = Student::random(form, 3.0, &mut rng).unwrap();
            student.values.iter_mut().for_each(|v| *v += 0.05 * v.abs() * rng.sample::<f64, _>(StandardNormal));
            let settings = NewtonSettings::default();
            let mut newton = Newton::new(&settings);
            let stop = newton.run(&mut student, &examples, &settings, &|_| false).unwrap();
            let distance = layer.distance(&student.layer().unwrap()).unwrap();
            assert!(stop == Stop::Goal && distance.worst_theta() < 1e-9, "seed {seed}: {newton:?}");
            assert!(newton.history.len() < 15, "seed {seed}: {:?}", newton.history);
        }
    }

    /// From a random start, by Adam in single precision and then this: at least eight of ten find every head.
    #[test]
    fn descent_then_newton_finds_the_heads() {
        let form = Form { rank: None, value_rank: None, key_bias: false, bias: false, d: 6, d_out: 6, ..LOW };
        let mut found = 0;
        for seed in 0..10 {
            let layer = TeacherSpec::dense(6, 2, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
            let source = TeacherStream::new(&layer, 4, InputDistribution::Boolean, seed + 1, None);
            let examples = Batch::<f64>::read(&source, 0..64, 400).unwrap();
            let mut student = Student::<f32>::random(form, 2.0, &mut ChaCha8Rng::seed_from_u64(seed + 77)).unwrap();
            let settings = AdamSettings { steps: 600, batch: 100, goal: 1e-6, ..AdamSettings::default() };
            let mut adam = Adam::new(form.len(), seed);
            assert!(adam.run(&mut student, &examples.cast(), &settings, &mut |_| false).unwrap());
            let values = student.values.iter().map(|v| f64::from(*v)).collect();
            let mut student = Student { form, values };
            newton(&mut student, &examples, false).unwrap();
            let distance = layer.distance(&student.layer().unwrap()).unwrap();
            found += usize::from(distance.worst_theta() < 1e-8 && distance.worst_w() < 1e-8);
        }
        assert!(found >= 8, "{found} of 10");
    }

    /// A descent that is stopped and goes on has the bits of one that was not.
    #[test]
    fn a_descent_can_be_stopped_and_continued() {
        let (_, examples) = problem(LOW, 200, 1);
        let settings = AdamSettings { steps: 60, batch: 50, ..AdamSettings::default() };
        let start = || Student::<f64>::random(LOW, 2.0, &mut ChaCha8Rng::seed_from_u64(9)).unwrap();
        let (mut whole, mut state) = (start(), Adam::new(LOW.len(), 4));
        assert!(state.run(&mut whole, &examples, &settings, &mut |_| false).unwrap());
        let (mut parts, mut state) = (start(), Adam::new(LOW.len(), 4));
        assert!(!state.run(&mut parts, &examples, &settings, &mut |adam| adam.step == 23).unwrap());
        let mut state = state.clone();
        assert!(state.run(&mut parts, &examples, &settings, &mut |_| false).unwrap());
        assert_eq!(whole, parts);
        let stopped = newton(&mut whole, &examples, true);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }

    #[test]
    fn bad_input_is_refused() {
        let (_, examples) = problem(LOW, 20, 1);
        let mut other = Student::<f64>::random(Form { d: 9, ..LOW }, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let said = newton(&mut other, &examples, false).unwrap_err().to_string();
        assert!(said.contains("the student 9 to 6"), "{said}");
        let mut student = Student::<f64>::random(LOW, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let constant = Batch { y: vec![1.0; examples.y.len()], ..examples.clone() };
        assert!(newton(&mut student, &constant, false).is_err());
        assert!(Adam::new(LOW.len(), 0).run(&mut student, &constant, &AdamSettings::default(), &mut |_| false).is_err());
        let empty = Batch { x: Vec::new(), y: Vec::new(), ..examples };
        assert!(newton(&mut student, &empty, false).is_err());
        for form in [Form { heads: 0, ..LOW }, Form { rank: Some(0), ..LOW }, Form { d: 0, ..LOW }] {
            assert!(Student::<f64>::random(form, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).is_err());
        }
    }
}
