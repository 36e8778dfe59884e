//! Heads from given ones: Levenberg–Marquardt over the attention matrices, with the projections the best for them at every step.
//!
//! Every head may move in all of `R^{d×d}`, or be moved by combinations of some matrices `B_j`, the columns of `B`. With `θ` the entries of all attention
//! matrices, `θ = θ₀ + Bx`,
//!
//! ```text
//! (BᵀHB + λ diag BᵀHB) δ = −BᵀJᵀr        H = JᵀP⊥J,  r = F(X) − Y
//! ```
//!
//! where `H` is that of the engine ([`normal`](crate::engine::normal)): Gauss–Newton by variable projection, in Kaufman's approximation.

use crate::data::Shape;
use crate::descend::optimise::dense::Dense;
use crate::descend::optimise::levenberg::{LeastSquares, LevenbergSettings, Solver, descend};
use crate::engine::linearised::Linearised;
use crate::engine::normal::normal_matrix;
use crate::engine::{Batch, Elimination, Form, Part, Student};
use crate::linalg::{Mat, from_row_major, row_major};
use crate::scores::{Mask, Scores};
use crate::{Error, Result};

/// Share of the largest entry of the diagonal of `BᵀHB` that every other counts as, at least, where steps are damped.
const LEAST_SCALE: f64 = 1e-12;

/// Which attention matrices are searched.
#[derive(Clone, Debug)]
pub(crate) enum Parametrisation {
    /// All of `R^{d×d}` for every head.
    Full,
    /// Combinations of these matrices.
    Span(Vec<Mat<f64>>),
}

/// When to stop.
#[derive(Clone, Debug)]
pub(crate) struct FitSettings {
    /// Most steps (default 60).
    pub steps: usize,
    /// Stop when the share of unexplained variance is below this (default 10⁻²⁶).
    pub goal: f64,
    /// Stop when it falls by less than this share in three steps running (default 10⁻³).
    pub progress: f64,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self { steps: 60, goal: 1e-26, progress: 1e-3 }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    /// The heads.
    pub student: Student<f64>,
    /// Share of unexplained variance on the examples that it was fitted to.
    pub nmse: f64,
    /// That share before the first step and after every step.
    pub history: Vec<f64>,
}

impl Fit {
    /// How many heads.
    pub fn heads(&self) -> usize {
        self.student.form.heads
    }

    /// Attention matrices.
    pub fn thetas(&self) -> Vec<Mat<f64>> {
        self.blocks(Part::A, self.student.form.d)
    }

    /// Projections.
    pub fn ws(&self) -> Vec<Mat<f64>> {
        self.blocks(Part::O, self.student.form.d_out)
    }

    fn blocks(&self, part: Part, cols: usize) -> Vec<Mat<f64>> {
        let of_head =
            |head| -> Vec<f64> { self.student.places(head, &[part]).iter().map(|at| self.student.values[*at]).collect() };
        (0..self.heads()).map(|head| from_row_major(self.student.form.d, cols, &of_head(head))).collect()
    }

    /// Share of unexplained variance on other examples.
    pub fn nmse_on(&self, examples: &Batch<f64>) -> Result<f64> {
        Ok(examples.error(&self.student.form, &self.student.values) / examples.variance()?)
    }
}

/// Heads with these attention matrices, and without projections.
pub(crate) fn heads(shape: Shape, thetas: &[Mat<f64>]) -> Student<f64> {
    let form = Form {
        d: shape.d,
        d_out: shape.d_out,
        heads: thetas.len(),
        rank: None,
        value_rank: None,
        key_bias: false,
        bias: false,
        groups: None,
        relative: None,
        scores: Scores::of(Mask::None),
    };
    let mut student = Student { values: vec![0.0; form.len()], form };
    for (head, theta) in thetas.iter().enumerate() {
        for (at, value) in student.places(head, &[Part::A]).into_iter().zip(row_major(theta.as_ref())) {
            student.values[at] = value;
        }
    }
    student
}

/// The best heads near the given ones, moved only where `free` allows.
pub(crate) fn fit(sample: &Batch<f64>, start: &[Mat<f64>], free: &Parametrisation, settings: &FitSettings) -> Result<Fit> {
    if sample.is_empty() || start.is_empty() {
        return Err(Error::input("variable projection", "no examples or no heads", "give at least one of each"));
    }
    let Student { form, values } = heads(sample.shape, start);
    let variance = sample.variance()?;
    let problem = Heads { sample, directions: directions(&form, free), form };
    let damping = LevenbergSettings {
        steps: settings.steps,
        goal: settings.goal * variance,
        progress: settings.progress,
        ..LevenbergSettings::default()
    };
    let found = descend(&problem, problem.at(values)?, &damping)?;
    let history: Vec<f64> = found.errors.iter().map(|error| error / variance).collect();
    Ok(Fit { nmse: found.error() / variance, student: Student { form: problem.form, values: found.point.values }, history })
}

/// `B`, a column for every free number, head by head; `None` where all entries are free.
fn directions(form: &Form, free: &Parametrisation) -> Option<Mat<f64>> {
    let Parametrisation::Span(basis) = free else { return None };
    let mut all = Mat::zeros(form.range(Part::O).start, form.heads * basis.len());
    let student = Student { form: form.clone(), values: Vec::<f64>::new() };
    for head in 0..form.heads {
        let places = student.places(head, &[Part::A]);
        for (j, matrix) in basis.iter().enumerate() {
            let column = head * basis.len() + j;
            places.iter().zip(row_major(matrix.as_ref())).for_each(|(at, value)| all[(*at, column)] = value);
        }
    }
    Some(all)
}

/// Least squares for the attention matrices, with the projections eliminated.
struct Heads<'a> {
    sample: &'a Batch<f64>,
    form: Form,
    /// `B`.
    directions: Option<Mat<f64>>,
}

/// All numbers, and how the projections were eliminated.
struct Eliminated {
    values: Vec<f64>,
    elimination: Elimination,
}

impl Heads<'_> {
    /// The best projections for these attention matrices, and the error.
    fn at(&self, mut values: Vec<f64>) -> Result<(Eliminated, f64)> {
        let elimination = self.sample.refit(&self.form, &mut values)?;
        let error = self.sample.error(&self.form, &values);
        Ok((Eliminated { values, elimination }, error))
    }

    /// `BᵀHB`, its lower triangle at least, and `−BᵀJᵀr`.
    fn normal_equations(&self, at: &Eliminated) -> Result<(Mat<f64>, Vec<f64>)> {
        let mut linear = Linearised::new(self.sample, self.form.clone(), &at.values);
        let (_, gradient) = linear.gradient();
        let matrix = normal_matrix(self.sample, &self.form, &linear, &at.elimination, &|| false)?;
        let n = matrix.nrows();
        let right = Mat::from_fn(n, 1, |i, _| -gradient[i]);
        let (matrix, right) = match &self.directions {
            None => (matrix, right),
            Some(b) => {
                let whole = Mat::from_fn(n, n, |i, j| matrix[(i.max(j), i.min(j))]);
                (b.transpose() * (whole * b), b.transpose() * right)
            }
        };
        Ok((matrix, right.col_as_slice(0).to_vec()))
    }
}

impl LeastSquares for Heads<'_> {
    type Point = Eliminated;

    fn linearise(&self, at: &Eliminated) -> Result<impl Solver> {
        let (matrix, right) = self.normal_equations(at)?;
        let diagonal: Vec<f64> = (0..right.len()).map(|i| matrix[(i, i)]).collect();
        let largest = diagonal.iter().copied().fold(0.0, f64::max);
        let scale = diagonal.into_iter().map(|v| v.max(LEAST_SCALE * largest)).collect();
        Ok(Dense { matrix, scale, right, stop: &|| false })
    }

    fn moved(&self, at: &Eliminated, step: &[f64]) -> Option<(Eliminated, f64)> {
        let mut values = at.values.clone();
        match &self.directions {
            None => values.iter_mut().zip(step).for_each(|(v, s)| *v += s),
            Some(b) => {
                let step = b * Mat::from_fn(step.len(), 1, |i, _| step[i]);
                values.iter_mut().zip(step.col_as_slice(0)).for_each(|(v, s)| *v += s);
            }
        }
        self.at(values).ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::engine::Pass;
    use crate::layer::AttentionLayer;
    use crate::linalg::{frobenius, inner, solve_spd};
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// A dense teacher and Gaussian examples of it.
    fn problem(d: usize, k: usize, m: usize, n: usize, seed: u64) -> (AttentionLayer, Batch<f64>) {
        let layer = TeacherSpec::dense(d, m, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let source = TeacherStream::new(&layer, k, InputDistribution::Gaussian, seed + 100, None);
        let sample = Batch::read(&source, 0..8, n).unwrap();
        (layer, sample)
    }

    /// Attention matrices with entries of size `2 / d`.
    fn random(d: usize, m: usize, rng: &mut ChaCha8Rng) -> Vec<Mat<f64>> {
        (0..m).map(|_| Mat::from_fn(d, d, |_, _| 2.0 / d as f64 * rng.sample::<f64, _>(StandardNormal))).collect()
    }

    /// Two heads somewhere, free to move in all directions or in three.
    fn somewhere<'a>(sample: &'a Batch<f64>, full: bool, rng: &mut ChaCha8Rng) -> (Heads<'a>, Eliminated) {
        let d = sample.shape.d;
        let Student { form, values } = heads(sample.shape, &random(d, 2, rng));
        let free = if full { Parametrisation::Full } else { Parametrisation::Span(random(d, 3, rng)) };
        let problem = Heads { sample, directions: directions(&form, &free), form };
        let at = problem.at(values).unwrap().0;
        (problem, at)
    }

    /// The right-hand side is half the slope of the error, downwards: Kaufman's approximation leaves the gradient untouched.
    #[test]
    fn gradient_is_that_of_finite_differences() {
        for (seed, full) in (0..4).flat_map(|seed| [(seed, true), (seed, false)]) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (_, sample) = problem(4, 3, 2, 60, seed);
            let (problem, at) = somewhere(&sample, full, &mut rng);
            let (_, right) = problem.normal_equations(&at).unwrap();
            let direction: Vec<f64> = right.iter().map(|_| rng.sample(StandardNormal)).collect();
            let moved = |t: f64| problem.moved(&at, &direction.iter().map(|v| t * v).collect::<Vec<_>>()).unwrap().1;
            let numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let claimed: f64 = -2.0 * direction.iter().zip(&right).map(|(a, b)| a * b).sum::<f64>();
            assert!((numeric / claimed - 1.0).abs() < 1e-5, "{numeric} against {claimed}");
        }
    }

    /// `BᵀHB` equals the Jacobian by finite differences of the model at fixed projections, projected and multiplied out.
    #[test]
    fn normal_matrix_is_that_of_the_projected_jacobian() {
        for full in [true, false] {
            let mut rng = ChaCha8Rng::seed_from_u64(9);
            let (_, sample) = problem(3, 3, 2, 30, 9);
            let (problem, at) = somewhere(&sample, full, &mut rng);
            let (matrix, right) = problem.normal_equations(&at).unwrap();
            let n = right.len();
            let pooled = |values: &[f64]| {
                let mut pass = Pass::default();
                pass.forward(&problem.form, values, &sample.x, 3);
                pass.pooled(&problem.form).to_owned()
            };
            let (phi, w) = (pooled(&at.values), problem.form.view(Part::O, &at.values));
            let gram = phi.transpose() * &phi;
            let columns: Vec<Mat<f64>> = (0..n)
                .map(|c| {
                    let shifted = |t: f64| {
                        let step: Vec<f64> = (0..n).map(|i| if i == c { t } else { 0.0 }).collect();
                        pooled(&problem.moved(&at, &step).unwrap().0.values) * w
                    };
                    let column = (shifted(1e-6) - shifted(-1e-6)) * faer::Scale(0.5e6);
                    &column - &phi * solve_spd(gram.as_ref(), (phi.transpose() * &column).as_ref())
                })
                .collect();
            for i in 0..n {
                for j in 0..=i {
                    let expected = inner(columns[i].as_ref(), columns[j].as_ref());
                    assert!((matrix[(i, j)] - expected).abs() < 1e-5 * matrix[(i, i)].max(1.0), "entry {i},{j}");
                }
            }
        }
    }

    /// Success rate stated: at 6 times the counting bound, 9 of 10 random starts reach the teacher.
    #[test]
    fn random_starts_reach_the_teacher() {
        let mut reached = 0;
        for seed in 0..10 {
            let (layer, sample) = problem(5, 4, 2, 80, seed);
            let start = random(5, 2, &mut ChaCha8Rng::seed_from_u64(seed + 50));
            let found = fit(&sample, &start, &Parametrisation::Full, &FitSettings::default()).unwrap();
            let distance = layer.distance(&found.student.layer().unwrap()).unwrap();
            reached += usize::from(found.nmse < 1e-24 && distance.worst_theta() < 1e-8 && distance.worst_w() < 1e-8);
        }
        assert!(reached >= 9, "{reached} of 10");
    }

    #[test]
    fn a_span_is_never_left() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (layer, sample) = problem(4, 3, 2, 60, 3);
        let basis: Vec<Mat<f64>> = layer.heads().iter().map(|h| h.theta.to_dense()).collect();
        let start = vec![&basis[0] + &basis[1] * faer::Scale(0.4), &basis[1] - &basis[0] * faer::Scale(0.3)];
        let found = fit(&sample, &start, &Parametrisation::Span(basis.clone()), &FitSettings::default()).unwrap();
        assert!(found.nmse < 1e-20, "the heads themselves are in the span: {}", found.nmse);
        assert!((found.nmse_on(&sample).unwrap() - found.nmse).abs() < 1e-24 && found.heads() == 2);
        let off_span = random(4, 2, &mut rng);
        let one = Parametrisation::Span(vec![basis[0].clone()]);
        let other = fit(&sample, &off_span, &one, &FitSettings::default()).unwrap();
        for (theta, start) in other.thetas().iter().zip(&off_span) {
            let moved = theta - start;
            let along = inner(moved.as_ref(), basis[0].as_ref()) / frobenius(basis[0].as_ref()).powi(2);
            let rest = &moved - &basis[0] * faer::Scale(along);
            assert!(frobenius(rest.as_ref()) < 1e-9 * (1.0 + row_major(moved.as_ref()).iter().map(|v| v.abs()).sum::<f64>()));
        }
    }

    /// The matrices of a fit are those of its layer, head by head.
    #[test]
    fn heads_are_those_of_the_layer() {
        let (layer, sample) = problem(4, 3, 2, 60, 5);
        let thetas: Vec<Mat<f64>> = layer.heads().iter().map(|h| h.theta.to_dense()).collect();
        let found = fit(&sample, &thetas, &Parametrisation::Full, &FitSettings::default()).unwrap();
        for ((head, theta), w) in layer.heads().iter().zip(found.thetas()).zip(found.ws()) {
            assert!(frobenius((head.theta.to_dense() - theta).as_ref()) < 1e-9 && frobenius((&head.w - w).as_ref()) < 1e-9);
        }
    }
}
