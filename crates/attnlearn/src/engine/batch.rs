//! Sequences in memory, and passes over many of them on all threads.
//!
//! A batch is cut into at most [`PARTS`](Batch::PARTS) runs of sequences, whatever the number of threads. One thread goes through a run from beginning
//! to end, a chunk at a time, and the sums of the runs are added in order: the same bits on any number of threads.

use crate::data::{Block, ExampleSource, Shape};
use crate::engine::eliminate::{Elimination, add_cross, add_gram, add_output, columns};
use crate::engine::pass::Pass;
use crate::engine::student::Form;
use crate::linalg::lanes::Real;
use crate::linalg::symmetric::Field;
use crate::parallel;
use crate::{Error, Result};
use faer::{Mat, MatRef};
use std::ops::Range;

/// Rows that go through a pass together: enough for products at full speed, few enough to stay in the cache.
pub(crate) const ROWS: usize = 512;

/// Sequences with their outputs, in plain order.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch<T> {
    /// Sizes of every example.
    pub shape: Shape,
    /// `[n][k][d]`.
    pub x: Vec<T>,
    /// `[n][k][d_out]`.
    pub y: Vec<T>,
}

impl<T: Field> Batch<T> {
    /// Most runs that threads share: each has sums of its own.
    pub const PARTS: usize = 16;

    /// The first `n` examples of a range of blocks, or as many as it has.
    pub fn read(source: &dyn ExampleSource, blocks: Range<u64>, n: usize) -> Result<Self> {
        let shape = source.shape();
        let mut batch = Self { shape, x: Vec::new(), y: Vec::new() };
        let mut block = Block::<f64>::new(shape);
        let (per_x, per_y) = (shape.k * shape.d, shape.k * shape.d_out);
        for index in blocks {
            let left = n - batch.len();
            source.fill_f64(index, &mut block)?;
            if block.is_empty() || left == 0 {
                break;
            }
            let (mut x, mut y) = (vec![0.0; block.len() * per_x], vec![0.0; block.len() * per_y]);
            block.copy_inputs(&mut x);
            block.copy_outputs(&mut y);
            let take = block.len().min(left);
            batch.x.extend(x[..take * per_x].iter().map(|v| T::from_f64(*v)));
            batch.y.extend(y[..take * per_y].iter().map(|v| T::from_f64(*v)));
        }
        Ok(batch)
    }

    /// How many sequences.
    pub fn len(&self) -> usize {
        self.x.len() / (self.shape.k * self.shape.d).max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// The same in another precision.
    pub fn cast<U: Field>(&self) -> Batch<U> {
        let cast = |values: &[T]| values.iter().map(|v| U::from_f64(v.to_f64())).collect();
        Batch { shape: self.shape, x: cast(&self.x), y: cast(&self.y) }
    }

    /// Sequences `indices`, in that order.
    pub fn select(&self, indices: &[usize]) -> Self {
        let (per_x, per_y) = (self.shape.k * self.shape.d, self.shape.k * self.shape.d_out);
        let mut part = Self { shape: self.shape, x: Vec::with_capacity(indices.len() * per_x), y: Vec::new() };
        for &i in indices {
            part.x.extend_from_slice(&self.x[i * per_x..(i + 1) * per_x]);
            part.y.extend_from_slice(&self.y[i * per_y..(i + 1) * per_y]);
        }
        part
    }

    /// The first `n` sequences, and the others.
    pub fn split_at(mut self, n: usize) -> (Self, Self) {
        let n = n.min(self.len());
        let x = self.x.split_off(n * self.shape.k * self.shape.d);
        let y = self.y.split_off(n * self.shape.k * self.shape.d_out);
        let rest = Self { shape: self.shape, x, y };
        (self, rest)
    }

    /// `Σ ‖Y − mean‖²`: what every error is measured against. Outputs that are all the same are refused, and those whose squares are no numbers.
    pub fn variance(&self) -> Result<f64> {
        squares_are_numbers(&self.y, "outputs")?;
        let (d_out, rows) = (self.shape.d_out, (self.len() * self.shape.k) as f64);
        let mut mean = vec![0.0; d_out];
        for row in self.y.chunks_exact(d_out) {
            mean.iter_mut().zip(row).for_each(|(m, y)| *m += y.to_f64() / rows);
        }
        let square = |row: &[T]| row.iter().zip(&mean).map(|(y, m)| (y.to_f64() - m).powi(2)).sum::<f64>();
        let variance: f64 = self.y.chunks_exact(d_out).map(square).sum();
        // Rounding of the mean is not variance.
        if variance <= 1e-24 * rows * mean.iter().map(|m| m * m).sum::<f64>() {
            return Err(Error::input("examples", "their outputs are all the same, zero variance", "there is nothing to learn"));
        }
        Ok(variance)
    }

    /// Refuses a student of another shape.
    pub fn check(&self, form: &Form) -> Result<()> {
        if (form.d, form.d_out) != (self.shape.d, self.shape.d_out) {
            let problem = format!(
                "examples map {} numbers to {}, the student {} to {}",
                self.shape.d, self.shape.d_out, form.d, form.d_out
            );
            return Err(Error::input("student", problem, "give it the shape of the examples"));
        }
        if self.is_empty() {
            return Err(Error::input("examples", "there are none", "give at least one"));
        }
        Ok(())
    }

    /// Runs of sequences, and within each its chunks.
    pub(crate) fn parts(&self) -> Vec<Vec<Range<usize>>> {
        let (n, chunk) = (self.len(), (ROWS / self.shape.k).max(1));
        let per = n.div_ceil(Self::PARTS).max((chunk / 4).max(1));
        let run = |start: usize| {
            let end = (start + per).min(n);
            (start..end).step_by(chunk).map(|first| first..(first + chunk).min(end)).collect()
        };
        (0..n).step_by(per).map(run).collect()
    }

    /// Tokens of some sequences.
    pub(crate) fn inputs(&self, range: &Range<usize>) -> &[T] {
        self.sequences(range).0
    }

    pub(crate) fn sequences(&self, range: &Range<usize>) -> (&[T], &[T]) {
        let (per_x, per_y) = (self.shape.k * self.shape.d, self.shape.k * self.shape.d_out);
        (&self.x[range.start * per_x..range.end * per_x], &self.y[range.start * per_y..range.end * per_y])
    }

    /// `‖F(X) − Y‖²`.
    pub fn error(&self, form: &Form, values: &[T]) -> f64 {
        let runs: Vec<f64> = parallel::map(self.parts(), |chunks| {
            let mut pass = Pass::default();
            chunks.iter().map(|range| self.miss(form, values, range, &mut pass).0).sum()
        });
        runs.into_iter().sum()
    }

    /// Squares and values of `F(X) − Y` of some sequences.
    pub(crate) fn miss(&self, form: &Form, values: &[T], range: &Range<usize>, pass: &mut Pass<T>) -> (f64, Vec<T>) {
        let (x, y) = self.sequences(range);
        pass.forward(form, values, x, self.shape.k);
        let miss: Vec<T> = pass.y.iter().zip(y).map(|(f, y)| *f - *y).collect();
        (miss.iter().map(|v| v.to_f64().powi(2)).sum(), miss)
    }

    /// `‖F(X) − Y‖²` and half its gradient.
    pub fn gradient(&self, form: &Form, values: &[T]) -> (f64, Vec<T>) {
        let runs: Vec<(f64, Vec<T>)> = parallel::map(self.parts(), |chunks| {
            let (mut pass, mut gradient, mut total) = (Pass::default(), vec![T::ZERO; form.len()], 0.0);
            for range in &chunks {
                let (squares, miss) = self.miss(form, values, range, &mut pass);
                total += squares;
                pass.adjoint(form, values, self.sequences(range).0, &miss, &mut gradient);
            }
            (total, gradient)
        });
        add(runs, form.len())
    }
}

/// Sizes whose fourth powers and their sums are numbers of double precision: the certificate has squares of squared errors.
const SIZES: std::ops::RangeInclusive<f64> = 1e-70..=1e70;

/// Refuses numbers whose squares overflow, or vanish without being 0.
pub(crate) fn squares_are_numbers<T: Field>(values: &[T], what: &str) -> Result<()> {
    let most = values.iter().map(|v| v.to_f64().abs()).fold(0.0, f64::max);
    let (side, remedy) = match most {
        most if most > *SIZES.end() => ("large", format!("scale the {what} down")),
        most if most > 0.0 && most < *SIZES.start() => ("small", format!("scale the {what} up")),
        _ => return Ok(()),
    };
    Err(Error::input(
        "examples",
        format!("their {what} are so {side}, {most:e} at most, that squares of their squares are no numbers"),
        remedy,
    ))
}

/// Sums of runs, in order.
pub(crate) fn add<T: Field>(runs: Vec<(f64, Vec<T>)>, len: usize) -> (f64, Vec<T>) {
    let (mut total, mut sum) = (0.0, vec![T::ZERO; len]);
    for (part, values) in runs {
        total += part;
        sum.iter_mut().zip(values).for_each(|(sum, v)| *sum += v);
    }
    (total, sum)
}

/// Examples in memory are a source like any other.
impl<T: Field> ExampleSource for Batch<T> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn len(&self) -> Option<u64> {
        Some(Batch::len(self) as u64)
    }

    fn fill_f32(&self, index: u64, block: &mut Block<f32>) -> Result<()> {
        self.fill(index, block);
        Ok(())
    }

    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        self.fill(index, block);
        Ok(())
    }
}

impl<T: Field> Batch<T> {
    fn fill<U: Real>(&self, index: u64, block: &mut Block<U>) {
        let most = Block::<U>::CAPACITY;
        let first = usize::try_from(index).ok().and_then(|i| i.checked_mul(most)).unwrap_or(usize::MAX).min(self.len());
        let (x, y) = self.sequences(&(first..(first + most).min(self.len())));
        let cast = |values: &[T]| values.iter().map(|v| U::from_f64(v.to_f64())).collect::<Vec<U>>();
        block.set_inputs(&cast(x));
        block.set_outputs(&cast(y));
    }
}

impl Batch<f64> {
    /// Refuses inputs and outputs of sizes that cannot be worked with.
    pub fn squares_are_numbers(&self) -> Result<()> {
        squares_are_numbers(&self.x, "inputs")?;
        squares_are_numbers(&self.y, "outputs")
    }

    /// `H̄ᵀH̄`, its lower triangle at least, and `H̄ᵀ(F(X) − Y)`.
    pub(crate) fn pooled_moments(&self, form: &Form, values: &[f64]) -> (Mat<f64>, Mat<f64>) {
        let n = columns(form);
        let runs: Vec<(Mat<f64>, Mat<f64>)> = parallel::map(self.parts(), |chunks| {
            let (mut pass, mut gram, mut cross) = (Pass::default(), Mat::zeros(n, n), Mat::zeros(n, form.d_out));
            for range in &chunks {
                let (_, miss) = self.miss(form, values, range, &mut pass);
                let h = pass.pooled(form);
                add_gram(form, h, &mut gram);
                add_cross(form, h, MatRef::from_row_major_slice(&miss, h.nrows(), form.d_out), &mut cross);
            }
            (gram, cross)
        });
        let (mut gram, mut cross) = (Mat::zeros(n, n), Mat::zeros(n, form.d_out));
        for (one, other) in runs {
            gram += one;
            cross += other;
        }
        (gram, cross)
    }

    /// Makes `O` and the bias the best for the rest of the parameters, and returns how it was done.
    pub fn refit(&self, form: &Form, values: &mut [f64]) -> Result<Elimination> {
        let (gram, mut cross) = self.pooled_moments(form, values);
        let elimination = Elimination::new(gram).ok_or_else(|| {
            Error::input("descent", "pooled tokens are not finite any more", "look for inputs of very different sizes")
        })?;
        elimination.solve(&mut cross);
        add_output(form, -1.0, &cross, values);
        Ok(elimination)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::engine::linearised::Linearised;
    use crate::engine::student::{Part, Student};
    use crate::layer::Mask;
    use crate::scores::Scores;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    const FORM: Form = Form {
        d: 4,
        d_out: 3,
        heads: 2,
        rank: Some(2),
        value_rank: None,
        key_bias: true,
        bias: true,
        scores: Scores::of(Mask::None),
        groups: None,
        relative: None,
    };

    fn setting(n: usize) -> (Student<f64>, Batch<f64>) {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let student = Student::random(FORM, 2.0, &mut rng).unwrap();
        let mut normals = |len: usize| (0..len).map(|_| rng.sample(StandardNormal)).collect::<Vec<f64>>();
        let shape = Shape { k: 3, d: 4, d_out: 3 };
        let (x, y) = (normals(n * 12), normals(n * 9));
        (student, Batch { shape, x, y })
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        for n in [1, 5, 700] {
            let (student, batch) = setting(n);
            let (error, gradient) = batch.gradient(&FORM, &student.values);
            assert!((error - batch.error(&FORM, &student.values)).abs() < 1e-9 * error);
            for at in (0..FORM.len()).step_by(5) {
                let moved = |t: f64| {
                    let mut values = student.values.clone();
                    values[at] += t;
                    batch.error(&FORM, &values)
                };
                let numeric = (moved(1e-5) - moved(-1e-5)) / 4e-5;
                assert!(
                    (numeric - gradient[at]).abs() < 1e-6 * (1.0 + numeric.abs()) * n as f64,
                    "{at}: {numeric} {}",
                    gradient[at]
                );
            }
        }
    }

    /// `JᵀJ` is symmetric, and quadratic forms with it are those of differences of the outputs.
    #[test]
    fn normal_products_are_those_of_the_jacobian() {
        let (student, batch) = setting(40);
        let mut linear = Linearised::new(&batch, FORM, &student.values);
        assert_eq!(linear.gradient(), batch.gradient(&FORM, &student.values));
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let mut normals = || (0..FORM.len()).map(|_| rng.sample(StandardNormal)).collect::<Vec<f64>>();
        let (u, v) = (normals(), normals());
        let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (ju, jv) = (linear.normal_product(&u), linear.normal_product(&v));
        assert!((inner(&ju, &v) - inner(&u, &jv)).abs() < 1e-9 * inner(&ju, &u));
        // ‖F(θ + tv) − F(θ − tv)‖²/4t², from targets that are the outputs themselves.
        let outputs = |t: f64| {
            let values: Vec<f64> = student.values.iter().zip(&v).map(|(a, v)| a + t * v).collect();
            let mut pass = Pass::default();
            pass.forward(&FORM, &values, &batch.x, 3);
            pass.y
        };
        let (plus, minus) = (outputs(1e-5), outputs(-1e-5));
        let numeric: f64 = plus.iter().zip(&minus).map(|(p, m)| ((p - m) / 2e-5).powi(2)).sum();
        assert!((inner(&v, &jv) / numeric - 1.0).abs() < 1e-7);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let (student, batch) = setting(700);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut linear = Linearised::new(&batch, FORM, &student.values);
                (batch.gradient(&FORM, &student.values), linear.normal_product(&student.values))
            })
        };
        assert_eq!(on(1), on(3));
    }

    /// What has no fourth power is refused by what it is, with the way to mend it; it is not called constant.
    #[test]
    fn sizes_beyond_squares_are_named() {
        let (_, batch) = setting(5);
        let scaled = |by: f64| Batch { y: batch.y.iter().map(|y| y * by).collect(), ..batch.clone() };
        for (by, remedy) in [
            (1e160, "scale the outputs down"),
            (1e75, "scale the outputs down"),
            (1e-75, "scale the outputs up"),
            (1e-160, "scale the outputs up"),
        ] {
            let error = scaled(by).variance().unwrap_err().to_string();
            assert!(error.contains(remedy) && !error.contains("zero variance"), "{error}");
        }
        assert!(scaled(0.0).variance().unwrap_err().to_string().contains("zero variance"));
        assert!(scaled(1e65).variance().is_ok() && scaled(1e-65).variance().is_ok());
    }

    /// After a refit `H̄ᵀ(F(X) − Y) = 0`, another changes nothing, and a head's removal costs what it says.
    #[test]
    fn a_refit_is_the_best_there_is() {
        let (mut student, batch) = setting(60);
        let before = batch.error(&FORM, &student.values);
        let elimination = batch.refit(&FORM, &mut student.values).unwrap();
        let (error, gradient) = batch.gradient(&FORM, &student.values);
        assert!(error < before);
        let rest = gradient[FORM.range(Part::O).start..].iter().fold(0.0_f64, |size, g| size.max(g.abs()));
        assert!(rest < 1e-9 * before, "{rest}");
        let mut again = student.values.clone();
        batch.refit(&FORM, &mut again).unwrap();
        assert!(again.iter().zip(&student.values).all(|(a, b)| (a - b).abs() < 1e-9));

        let costs = elimination.removal_costs(&FORM, &student.values);
        for (head, cost) in costs.iter().enumerate() {
            let form = Form { heads: 1, ..FORM };
            let other = 1 - head;
            let mut values = Vec::new();
            for part in [Part::A, Part::B, Part::C] {
                let block = FORM.view(part, &student.values);
                let width = block.ncols() / 2;
                values.extend((0..block.nrows()).flat_map(|i| (0..width).map(move |j| block[(i, other * width + j)])));
            }
            values.resize(form.len(), 0.0);
            batch.refit(&form, &mut values).unwrap();
            let grown = batch.error(&form, &values) - error;
            assert!((grown / cost - 1.0).abs() < 1e-7, "{grown} {cost}");
        }
    }

    /// `vᵀJᵀP⊥Jv` is the least `‖J(v, δ)‖²` over all changes `δ` of `O` and the bias.
    #[test]
    fn projected_products_eliminate_the_outputs() {
        let (mut student, batch) = setting(50);
        let elimination = batch.refit(&FORM, &mut student.values).unwrap();
        let mut linear = Linearised::new(&batch, FORM, &student.values);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let start = FORM.range(Part::O).start;
        let mut draw = || {
            let mut v: Vec<f64> = (0..FORM.len()).map(|_| rng.sample(StandardNormal)).collect();
            v[start..].fill(0.0);
            v
        };
        let (u, v) = (draw(), draw());
        let (pu, pv) = (linear.projected_product(&elimination, &u), linear.projected_product(&elimination, &v));
        assert!((inner(&pu, &v) - inner(&u, &pv)).abs() < 1e-9 * inner(&pu, &u));
        // The least over δ, from dense normal equations: column by column of JᵀJ.
        let columns: Vec<Vec<f64>> = (start..FORM.len())
            .map(|at| {
                let mut unit = vec![0.0; FORM.len()];
                unit[at] = 1.0;
                linear.normal_product(&unit)
            })
            .collect();
        let jv = linear.normal_product(&v);
        let n = columns.len();
        let gram = Mat::from_fn(n, n, |i, j| columns[j][start + i]);
        let right = Mat::from_fn(n, 1, |i, _| jv[start + i]);
        let delta = crate::linalg::solve_spd(gram.as_ref(), right.as_ref());
        let least = inner(&v, &jv) - (0..n).map(|i| right[(i, 0)] * delta[(i, 0)]).sum::<f64>();
        assert!((inner(&v, &pv) / least - 1.0).abs() < 1e-8, "{} {least}", inner(&v, &pv));
    }

    /// Read back through blocks they are what they were, and past the end there is nothing.
    #[test]
    fn examples_in_memory_are_a_source() {
        let (_, batch) = setting(700);
        assert_eq!(Batch::read(&batch, 0..9, 10_000).unwrap(), batch);
        let mut block = Block::<f32>::new(batch.shape);
        for (index, len) in [(0, 512), (1, 188), (2, 0), (u64::MAX, 0)] {
            batch.fill_f32(index, &mut block).unwrap();
            assert_eq!(block.len(), len);
        }
    }
}
