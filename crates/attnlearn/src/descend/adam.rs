//! Adam (Kingma, Ba) on batches drawn without replacement, with a step that warms up and then falls as a cosine.
//!
//! ```text
//! m ← β₁m + (1 − β₁)g    v ← β₂v + (1 − β₂)g²    θ ← θ − η_t m̂/(√v̂ + ε)
//! ```
//!
//! On data that a layer of this shape explains, the noise of small batches vanishes at the solution: they cost no accuracy.

use super::batch::Batch;
use super::student::Student;
use crate::linalg::symmetric::Field;
use crate::{Error, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// How to descend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdamSettings {
    /// Steps (default 4000).
    pub steps: usize,
    /// Largest step `η` (default 0.01).
    pub rate: f64,
    /// Sequences of a batch; all of them if there are fewer (default 500).
    pub batch: usize,
    /// `β₁` (default 0.9).
    pub beta1: f64,
    /// `β₂` (default 0.99).
    pub beta2: f64,
    /// Stop when the batch's share of unexplained variance has been below this for ten steps (default 10⁻¹²).
    pub goal: f64,
    /// Seed of the order of the examples.
    pub seed: u64,
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { steps: 4000, rate: 0.01, batch: 500, beta1: 0.9, beta2: 0.99, goal: 1e-12, seed: 0 }
    }
}

/// Where a descent stands: everything that the next step depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam<T> {
    /// Steps taken.
    pub step: usize,
    first: Vec<T>,
    second: Vec<T>,
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
            order: Vec::new(),
            next: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            below: 0,
            nmse: f64::INFINITY,
        }
    }

    /// `η_t`: a hundredth of the steps to warm up, then half a cosine down to nothing.
    fn rate(&self, settings: &AdamSettings) -> f64 {
        let (now, all) = (self.step as f64 + 1.0, settings.steps as f64);
        let warm = (0.01 * all).max(1.0);
        settings.rate * (now / warm).min(1.0) * 0.5 * (1.0 + (std::f64::consts::PI * (now / all).min(1.0)).cos())
    }

    fn batch(&mut self, examples: &Batch<T>, size: usize) -> Batch<T> {
        let n = examples.len();
        if size >= n {
            return examples.clone();
        }
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
        let whole = (settings.batch >= examples.len()).then(|| examples.clone());
        while self.step < settings.steps && self.below < 10 {
            if stop(self) {
                return Ok(false);
            }
            let drawn;
            let batch = if let Some(whole) = &whole {
                whole
            } else {
                drawn = self.batch(examples, settings.batch);
                &drawn
            };
            let (error, gradient) = batch.gradient(&student.form, &student.values);
            self.nmse = error / (variance * batch.len() as f64);
            if !self.nmse.is_finite() {
                return Err(Error::input("descent", "the error is not finite any more", "use a smaller rate"));
            }
            self.below = if self.nmse < settings.goal { self.below + 1 } else { 0 };
            // Relative to the variance, so that steps do not depend on the units of the outputs.
            self.update(&mut student.values, &gradient, 1.0 / (variance * batch.len() as f64), settings);
            self.step += 1;
        }
        Ok(true)
    }

    fn update(&mut self, values: &mut [T], gradient: &[T], scale: f64, settings: &AdamSettings) {
        let t = i32::try_from(self.step + 1).unwrap_or(i32::MAX);
        let (b1, b2) = (settings.beta1, settings.beta2);
        let rate = self.rate(settings) * (1.0 - b2.powi(t)).sqrt() / (1.0 - b1.powi(t));
        let [b1, b2, c1, c2, rate, scale, tiny] = [b1, b2, 1.0 - b1, 1.0 - b2, rate, scale, 1e-12].map(T::from_f64);
        const CHUNK: usize = 1 << 14;
        let parts = values.par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK));
        let state = self.first.par_chunks_mut(CHUNK).zip(self.second.par_chunks_mut(CHUNK));
        parts.zip(state).for_each(|((values, gradient), (first, second))| {
            for i in 0..values.len() {
                let g = scale * gradient[i];
                first[i] = b1 * first[i] + c1 * g;
                second[i] = b2 * second[i] + c2 * g * g;
                values[i] -= rate * first[i] / (faer::traits::math_utils::sqrt(&second[i]) + tiny);
            }
        });
    }
}
