//! Gauss–Newton with the damping of Levenberg and Marquardt, matrix-free: no matrix of the size of the parameters is formed.
//!
//! ```text
//! (JᵀJ + λ τ I) δ = −Jᵀ(F(X) − Y),     τ = the mean of the diagonal of JᵀJ, from a random sign vector
//! ```
//!
//! by conjugate gradients on products with `JᵀJ`, more exactly the nearer the end: to `√(NMSE)` of the right-hand side, so that the error is about
//! squared by every step. `λ` falls with every success and rises with every failure. Factors `A Bᵀ` can be turned into one another without any
//! change to the layer, so `JᵀJ` is singular; conjugate gradients stay in its range.

use super::batch::{Batch, Linear};
use super::student::Student;
use super::varpro::Stop;
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// When to stop, and how to step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewtonSettings {
    /// Most steps (default 40).
    pub iterations: usize,
    /// Most products with `JᵀJ` for one step (default 300).
    pub products: usize,
    /// Stop when the share of unexplained variance is below this (default 10⁻²⁶).
    pub goal: f64,
    /// Stop when it falls by less than this share in three steps running (default 10⁻³).
    pub progress: f64,
    /// First λ (default 10⁻³).
    pub damping: f64,
}

impl Default for NewtonSettings {
    fn default() -> Self {
        Self { iterations: 40, products: 300, goal: 1e-26, progress: 1e-3, damping: 1e-3 }
    }
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewtonReport {
    /// Share of unexplained variance at every step.
    pub history: Vec<f64>,
    /// Products with `JᵀJ` in all.
    pub products: usize,
    /// Why it ended.
    pub stop: Stop,
}

/// Refines a student on examples; `stop` is asked at every step and product, with the share of unexplained variance.
pub fn newton(
    student: &mut Student<f64>,
    examples: &Batch<f64>,
    settings: &NewtonSettings,
    stop: &dyn Fn(f64) -> bool,
) -> Result<NewtonReport> {
    let form = student.form;
    examples.check(&form)?;
    let variance = examples.variance()?;
    let signs: Vec<f64> = {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        (0..form.len()).map(|_| if rng.random::<bool>() { 1.0 } else { -1.0 }).collect()
    };
    let mut report = NewtonReport { history: Vec::new(), products: 0, stop: Stop::Limit };
    let (mut lambda, mut slow) = (settings.damping, 0);
    'steps: for _ in 0..settings.iterations {
        let mut linear = Linear::new(examples, form, &student.values);
        let nmse = linear.error / variance;
        report.history.push(nmse);
        if nmse <= settings.goal {
            report.stop = Stop::Goal;
            return Ok(report);
        }
        let mean = inner(&signs, &linear.normal_product(&signs)) / form.len() as f64;
        report.products += 1;
        let accuracy = nmse.sqrt().clamp(1e-9, 0.1);
        loop {
            let step = solve(&mut linear, lambda * mean, accuracy, settings.products, &mut report.products, &|| stop(nmse))?;
            let moved: Vec<f64> = student.values.iter().zip(&step).map(|(v, s)| v + s).collect();
            let error = examples.error(&form, &moved);
            if error.is_finite() && error < linear.error {
                slow = if 1.0 - error / linear.error < settings.progress { slow + 1 } else { 0 };
                student.values = moved;
                lambda = (lambda * 0.2).max(1e-14);
                break;
            }
            lambda = (lambda * 5.0).max(1e-12);
            if lambda > 1e6 {
                report.stop = Stop::Stalled;
                break 'steps;
            }
        }
        if slow >= 3 {
            report.stop = Stop::Stalled;
            break;
        }
    }
    report.history.push(examples.error(&form, &student.values) / variance);
    Ok(report)
}

/// `(JᵀJ + μ) δ = −Jᵀr` to a relative residual of `accuracy`, or as near as `most` products come.
fn solve(
    linear: &mut Linear<'_, f64>,
    mu: f64,
    accuracy: f64,
    most: usize,
    products: &mut usize,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<f64>> {
    let mut x = vec![0.0; linear.gradient.len()];
    let mut r: Vec<f64> = linear.gradient.iter().map(|g| -g).collect();
    let mut direction = r.clone();
    let mut rr = inner(&r, &r);
    let goal = accuracy * accuracy * rr;
    for _ in 0..most {
        if stop() {
            return Err(Error::Interrupted);
        }
        if rr <= goal {
            break;
        }
        let mut q = linear.normal_product(&direction);
        *products += 1;
        q.iter_mut().zip(&direction).for_each(|(q, d)| *q += mu * d);
        let curvature = inner(&direction, &q);
        if curvature <= 0.0 {
            break;
        }
        let length = rr / curvature;
        for i in 0..x.len() {
            x[i] += length * direction[i];
            r[i] -= length * q[i];
        }
        let next = inner(&r, &r);
        let beta = next / rr;
        rr = next;
        direction.iter_mut().zip(&r).for_each(|(d, r)| *d = r + beta * *d);
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
    use super::super::student::Form;
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

    /// From a teacher moved by a twentieth of its size: ten of ten come back to machine precision.
    #[test]
    fn it_converges_from_nearby() {
        for seed in 0..10 {
            let form = Form { mask: if seed % 2 == 0 { Mask::None } else { Mask::Causal }, ..LOW };
            let (layer, examples) = problem(form, 400, seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut student: Student<f64> = Student::random(form, 3.0, &mut rng).unwrap();
            student.values.iter_mut().for_each(|v| *v += 0.05 * v.abs() * rng.sample::<f64, _>(StandardNormal));
            let report = newton(&mut student, &examples, &NewtonSettings::default(), &|_| false).unwrap();
            let distance = layer.distance(&student.layer().unwrap()).unwrap();
            assert!(report.stop == Stop::Goal && distance.worst_theta() < 1e-9, "seed {seed}: {report:?}");
            assert!(report.history.len() < 15, "seed {seed}: {:?}", report.history);
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
            let settings = AdamSettings { steps: 1500, rate: 0.02, batch: 100, goal: 1e-6, ..AdamSettings::default() };
            let mut adam = Adam::new(form.len(), seed);
            assert!(adam.run(&mut student, &examples.cast(), &settings, &mut |_| false).unwrap());
            let values = student.values.iter().map(|v| f64::from(*v)).collect();
            let mut student = Student { form, values };
            newton(&mut student, &examples, &NewtonSettings::default(), &|_| false).unwrap();
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
        let stopped = newton(&mut whole, &examples, &NewtonSettings::default(), &|_| true);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }

    #[test]
    fn bad_input_is_refused() {
        let (_, examples) = problem(LOW, 20, 1);
        let mut other = Student::<f64>::random(Form { d: 9, ..LOW }, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let said = newton(&mut other, &examples, &NewtonSettings::default(), &|_| false).unwrap_err().to_string();
        assert!(said.contains("the student 9 to 6"), "{said}");
        let mut student = Student::<f64>::random(LOW, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let constant = Batch { y: vec![1.0; examples.y.len()], ..examples.clone() };
        assert!(newton(&mut student, &constant, &NewtonSettings::default(), &|_| false).is_err());
        assert!(Adam::new(LOW.len(), 0).run(&mut student, &constant, &AdamSettings::default(), &mut |_| false).is_err());
        let empty = Batch { x: Vec::new(), y: Vec::new(), ..examples };
        assert!(newton(&mut student, &empty, &NewtonSettings::default(), &|_| false).is_err());
        for form in [Form { heads: 0, ..LOW }, Form { rank: Some(0), ..LOW }, Form { d: 0, ..LOW }] {
            assert!(Student::<f64>::random(form, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).is_err());
        }
    }
}
