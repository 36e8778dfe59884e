//! Adam (Kingma, Ba) on batches drawn without replacement, with a step that warms up and then falls as a cosine.
//!
//! ```text
//! M ← β₁M + (1 − β₁)G    v ← β₂v + (1 − β₂)G²      θ ← θ − η_t M̂/(√v̂ + ε)        entry by entry
//!                        R ← β₂R + (1 − β₂)GᵀG/l   θ ← θ − η_t M̂ (R̂ + ε)^{−1/2}    head by head
//! ```
//!
//! The second form is for the factors of a head, `l × r` with `r` small. The columns of a factor can be turned into one another without any
//! change to the layer, so the scale of single entries means little, but that of directions in these `r` dimensions a lot. It is Shampoo (Gupta,
//! Koren, Singer) on one side. A step of this kind whose root mean square is above twice `η_t/(1 − β₁ᵗ)` is shortened to that.
//!
//! `G` is the gradient of the error, or of what it is exchanged for while little is known ([`Prior`]).
//!
//! Steps are relative to the entries of a random start, so that one `η` serves all sizes. On data that a layer of this shape explains, the noise of
//! small batches vanishes at the solution: they cost no accuracy.

use crate::engine::batch::Batch;
use crate::engine::evidence::Prior;
use crate::engine::student::{Form, PARTS, Part, Student};
use crate::linalg::symmetric::{Field, multiply};
use crate::parallel;
use crate::{Error, Result};
use faer::{Mat, MatRef, Side};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How to descend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdamSettings {
    /// Steps (default 4000).
    pub steps: usize,
    /// Largest step `η`, relative to the entries of a random start (default 0.08).
    pub rate: f64,
    /// What steps are measured by (default heads).
    pub scaling: Scaling,
    /// Sequences of a batch; all of them if there are fewer (default 500).
    pub batch: usize,
    /// `β₁` (default 0.9).
    pub beta1: f64,
    /// `β₂` (default 0.99).
    pub beta2: f64,
    /// Stop when the batch's share of unexplained variance has been below this for ten steps (default 10⁻¹²).
    pub goal: f64,
    /// What is believed beforehand, at first: `s` falls to the second number in nine tenths of the steps, by the same factor in each. Without
    /// it (the default) the error is all that counts.
    pub prior: Option<(Prior, f64)>,
}

/// What steps are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// The gradient of every entry by itself.
    Entries,
    /// The gradients of the factors of every head, direction by direction.
    Heads,
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { steps: 4000, rate: 0.08, scaling: Scaling::Heads, batch: 500, beta1: 0.9, beta2: 0.99, goal: 1e-12, prior: None }
    }
}

/// Where a descent stands: everything that the next step depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adam<T> {
    /// Steps taken.
    pub step: usize,
    first: Vec<T>,
    second: Vec<T>,
    factors: Vec<Factor<T>>,
    order: Vec<usize>,
    next: usize,
    rng: ChaCha8Rng,
    /// Steps in a row that were below the goal.
    below: usize,
    /// Share of unexplained variance of the last batch.
    pub nmse: f64,
}

impl<T: Field> Adam<T> {
    /// At the beginning.
    pub fn new(parameters: usize, seed: u64) -> Self {
        Self {
            step: 0,
            first: vec![T::ZERO; parameters],
            second: vec![T::ZERO; parameters],
            factors: Vec::new(),
            order: Vec::new(),
            next: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            below: 0,
            nmse: f64::INFINITY,
        }
    }

    /// Whether it belongs to a student of this form and so many examples.
    pub(crate) fn fits(&self, form: &Form, examples: usize) -> bool {
        let expected = factors::<T>(form);
        let whole = self.factors.len() == expected.len()
            && self.factors.iter().zip(&expected).all(|(a, b)| {
                (a.part, a.at, a.width, a.r.len(), a.root.len()) == (b.part, b.at, b.width, b.r.len(), b.root.len())
            });
        let order = self.order.len() == examples && self.order.iter().all(|i| *i < examples);
        [&self.first, &self.second].iter().all(|values| values.len() == form.len())
            && (self.factors.is_empty() || whole)
            && (self.order.is_empty() || order)
            && self.next <= self.order.len()
            && self.step < 1 << 32
    }

    /// `η_t`: a hundredth of the steps to warm up, then half a cosine down to nothing.
    fn rate(&self, settings: &AdamSettings) -> f64 {
        let (now, all) = (self.step as f64 + 1.0, settings.steps as f64);
        let warm = (0.01 * all).max(1.0);
        settings.rate * (now / warm).min(1.0) * 0.5 * (1.0 + (std::f64::consts::PI * (now / all).min(1.0)).cos())
    }

    /// What is believed at this step.
    fn prior(&self, settings: &AdamSettings) -> Option<Prior> {
        let (first, last) = settings.prior?;
        let share = (self.step as f64 / (0.9 * settings.steps as f64)).min(1.0);
        Some(Prior { noise: first.noise * (last / first.noise).powf(share), ..first })
    }

    fn batch(&mut self, examples: &Batch<T>, size: usize) -> Batch<T> {
        let n = examples.len();
        if self.order.len() != n || self.next + size > n {
            self.order = (0..n).collect();
            self.order.shuffle(&mut self.rng);
            self.next = 0;
        }
        let batch = examples.select(&self.order[self.next..self.next + size]);
        self.next += size;
        batch
    }

    /// Steps until `settings` are met or `stop` says so, which is asked before every step. Whether it is over.
    pub fn run(
        &mut self,
        student: &mut Student<T>,
        examples: &Batch<T>,
        settings: &AdamSettings,
        stop: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<bool> {
        examples.check(&student.form)?;
        let variance = examples.variance()? / examples.len() as f64;
        while self.step < settings.steps && self.below < 10 {
            if stop(self) {
                return Ok(false);
            }
            let drawn;
            let batch = if settings.batch >= examples.len() {
                examples
            } else {
                drawn = self.batch(examples, settings.batch);
                &drawn
            };
            let (error, mut gradient) = match self.prior(settings) {
                None => batch.gradient(&student.form, &student.values),
                Some(prior) => batch.evidence(&student.form, &mut student.values, &prior)?,
            };
            self.nmse = error / (variance * batch.len() as f64);
            if !self.nmse.is_finite() {
                return Err(Error::input("descent", "the error is not finite any more", "use a smaller rate"));
            }
            self.below = if self.nmse < settings.goal { self.below + 1 } else { 0 };
            // Relative to the variance, so that steps do not depend on the units of the outputs.
            let scale = 1.0 / (variance * batch.len() as f64);
            self.update(&student.form, &mut student.values, &mut gradient, scale, settings);
            self.step += 1;
        }
        Ok(true)
    }

    fn update(&mut self, form: &Form, values: &mut [T], gradient: &mut [T], scale: f64, settings: &AdamSettings) {
        let t = i32::try_from(self.step + 1).unwrap_or(i32::MAX);
        let (c1, c2) = (1.0 - settings.beta1.powi(t), 1.0 - settings.beta2.powi(t));
        let rate = self.rate(settings) / c1;
        if settings.scaling == Scaling::Heads && self.factors.is_empty() {
            self.factors = factors(form);
        }
        let refresh = self.step < REFRESH || self.step.is_multiple_of(REFRESH);
        let beta = T::from_f64(settings.beta1);
        let [scale, rest] = [scale, 1.0 - settings.beta1].map(T::from_f64);
        parallel::each(gradient.chunks_mut(CHUNK).zip(self.first.chunks_mut(CHUNK)), |(gradient, first)| {
            for (g, first) in gradient.iter_mut().zip(first) {
                *g *= scale;
                *first = beta * *first + rest * *g;
            }
        });
        let (gradient, first): (&[T], &[T]) = (gradient, &self.first);
        let steps: Vec<Mat<T>> = parallel::map(&mut self.factors, |factor| {
            factor.learn(factor.view(form, gradient), settings.beta2, c2, refresh);
            let m = factor.view(form, first);
            let mut step = Mat::zeros(m.nrows(), m.ncols());
            let root = MatRef::from_column_major_slice(&factor.root, factor.width, factor.width);
            let rate = rate * form.size(factor.part);
            multiply(step.as_mut(), false, T::from_f64(rate), m, root);
            let entries = (m.nrows() * m.ncols()) as f64;
            let length = step.norm_l2().to_f64() / (rate * entries.sqrt());
            if length > LONGEST {
                let shorter = T::from_f64(LONGEST / length);
                step.col_iter_mut().for_each(|column| column.iter_mut().for_each(|v| *v *= shorter));
            }
            step
        });
        for (factor, step) in self.factors.iter().zip(&steps) {
            let (start, along, across) = factor.strides(form);
            for i in 0..step.nrows() {
                for j in 0..step.ncols() {
                    values[start + i * along + j * across] -= step[(i, j)];
                }
            }
        }
        for part in PARTS.into_iter().filter(|part| self.factors.iter().all(|factor| factor.part != *part)) {
            let range = form.range(part);
            let (b2, rest) = (T::from_f64(settings.beta2), T::from_f64(1.0 - settings.beta2));
            let rate = T::from_f64(rate * form.size(part) * c2.sqrt());
            let parts = values[range.clone()].chunks_mut(CHUNK).zip(gradient[range.clone()].chunks(CHUNK));
            let state = first[range.clone()].chunks(CHUNK).zip(self.second[range].chunks_mut(CHUNK));
            parallel::each(parts.zip(state), |((values, gradient), (first, second))| {
                for i in 0..values.len() {
                    second[i] = b2 * second[i] + rest * gradient[i] * gradient[i];
                    values[i] -= rate * first[i] / (faer::traits::math_utils::sqrt(&second[i]) + T::from_f64(1e-15));
                }
            });
        }
    }
}

/// Numbers that one thread updates at a time.
const CHUNK: usize = 1 << 14;

/// Steps between two roots of `R`: it moves by a hundredth a step, and a root costs more than a gradient of a small layer.
const REFRESH: usize = 5;

/// The root mean square of the entries of `M (R̂ + ε)^{−1/2}`, at most: `R` is a few steps old, and a batch may be unlike all before it.
const LONGEST: f64 = 2.0;

/// Wider factors are taken entry by entry: their roots would cost more than their gradients.
const WIDEST: usize = 128;

/// Eigenvalues of `R` below this share of the largest are taken for it: rounding.
const SMALLEST: f64 = 1e-8;

/// `R` of one factor of one head, and its root, column by column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Factor<T> {
    part: Part,
    /// Of the part's heads, or groups.
    at: usize,
    width: usize,
    r: Vec<f64>,
    /// `(R̂ + ε)^{−1/2}`.
    root: Vec<T>,
}

/// Those of all heads.
fn factors<T: Field>(form: &Form) -> Vec<Factor<T>> {
    let width = |part: Part| if matches!(part, Part::A | Part::B) { form.r() } else { form.s() };
    let parts = [Part::A, Part::B, Part::V, Part::O].into_iter().filter(|part| form.shape(*part).0 > 0 && width(*part) <= WIDEST);
    let of = |part: Part| {
        (0..form.count(part)).map(move |at| {
            let width = width(part);
            Factor { part, at, width, r: vec![0.0; width * width], root: vec![T::ZERO; width * width] }
        })
    };
    parts.flat_map(of).collect()
}

impl<T: Field> Factor<T> {
    /// Where it begins in the vector, and the steps along its long side and across: `O` lies on its side.
    fn strides(&self, form: &Form) -> (usize, usize, usize) {
        let (start, cols) = (form.range(self.part).start, form.shape(self.part).1);
        match self.part {
            Part::O => (start + self.at * form.s() * cols, 1, cols),
            _ => (start + self.at * self.width, cols, 1),
        }
    }

    /// Its part of a vector, the long side down.
    fn view<'a>(&self, form: &Form, values: &'a [T]) -> MatRef<'a, T> {
        let block = form.view(self.part, values);
        match self.part {
            Part::O => block.subrows(self.at * form.s(), form.s()).transpose(),
            _ => block.subcols(self.at * self.width, self.width),
        }
    }

    fn learn(&mut self, g: MatRef<'_, T>, beta: f64, correction: f64, refresh: bool) {
        let width = self.width;
        let mut gg = Mat::<T>::zeros(width, width);
        multiply(gg.as_mut(), false, T::from_f64(1.0 / g.nrows() as f64), g.transpose(), g);
        for j in 0..width {
            for i in 0..width {
                let r = &mut self.r[j * width + i];
                *r = beta * *r + (1.0 - beta) * gg[(i, j)].to_f64();
            }
        }
        if !refresh {
            return;
        }
        // No convergence means numbers that are not finite: the next error says so.
        let r = MatRef::from_column_major_slice(&self.r, width, width);
        let Ok(eigen) = r.self_adjoint_eigen(Side::Lower) else { return };
        let (u, values) = (eigen.U(), eigen.S().column_vector());
        let largest = (0..width).map(|j| values[j]).fold(f64::MIN_POSITIVE, f64::max);
        let scaled = Mat::from_fn(width, width, |i, j| u[(i, j)] / (values[j].max(SMALLEST * largest) / correction).sqrt());
        let root = scaled * u.transpose();
        for j in 0..width {
            for i in 0..width {
                self.root[j * width + i] = T::from_f64(root[(i, j)]);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::layer::Mask;
    use crate::scores::Scores;
    use rand::RngExt;
    use rand_distr::StandardNormal;

    /// A gradient unlike all before it, while `R` does not know it yet, moves no factor further than is allowed, and all of them downhill.
    #[test]
    fn steps_are_bounded() {
        let form = Form {
            d: 8,
            d_out: 8,
            heads: 2,
            rank: Some(3),
            value_rank: Some(3),
            key_bias: false,
            bias: false,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        let settings = AdamSettings { steps: 1000, ..AdamSettings::default() };
        for seed in 0..5 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut adam: Adam<f64> = Adam::new(form.len(), seed);
            let mut values = vec![0.0; form.len()];
            let mut draw =
                |size: f64| -> Vec<f64> { (0..form.len()).map(|_| size * rng.sample::<f64, _>(StandardNormal)).collect() };
            for _ in 0..6 {
                adam.update(&form, &mut values, &mut draw(1e-4), 1.0, &settings);
                adam.step += 1;
            }
            // No root is taken at this step.
            assert!(!adam.step.is_multiple_of(REFRESH) && adam.step >= REFRESH);
            let (before, gradient) = (values.clone(), draw(1.0));
            adam.update(&form, &mut values, &mut gradient.clone(), 1.0, &settings);
            let rate = adam.rate(&settings) / (1.0 - settings.beta1.powi(7));
            for factor in factors::<f64>(&form) {
                let moved = factor.view(&form, &values) - factor.view(&form, &before);
                let entries = (moved.nrows() * moved.ncols()) as f64;
                let length = moved.norm_l2() / (rate * form.size(factor.part) * entries.sqrt());
                assert!((length - LONGEST).abs() < 1e-9, "seed {seed}: {length}");
                let slope = moved.as_ref().transpose() * factor.view(&form, &gradient);
                assert!((0..slope.nrows()).map(|i| slope[(i, i)]).sum::<f64>() < 0.0, "seed {seed}: uphill");
            }
        }
    }
}
