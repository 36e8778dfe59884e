//! How well targets are predicted, with standard errors.
//!
//! With weights `w`, errors `a_i = (y_i − ŷ_i)²` and spreads `b_i = (y_i − ȳ)²`,
//!
//! ```text
//! MSE = Σ w a / Σ w,   Var = Σ w b / Σ w,   R = MSE/Var,   R² = 1 − R
//! se(MSE)² = Σ w² (a − MSE)² / (Σ w)²,   se(R)² = Σ w² (a − R b)² / (Σ w b)²
//! ```
//!
//! the second by linearising the ratio of two means.

use crate::{Error, Result};
use serde::Serialize;

/// Errors of the predictions of one target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Examples scored.
    pub n: usize,
    /// Mean squared error.
    pub mse: f64,
    /// Its standard error.
    pub mse_se: f64,
    /// Variance of the target.
    pub variance: f64,
    /// Mean squared error over the variance of the target.
    pub nmse: f64,
    /// Its standard error, and that of R².
    pub nmse_se: f64,
    /// `1 − nmse`.
    pub r2: f64,
}

/// Targets and their predictions, gathered block by block.
#[derive(Clone, Debug)]
pub struct Scores {
    targets: usize,
    y: Vec<f64>,
    square_errors: Vec<f64>,
    weights: Vec<f64>,
}

impl Scores {
    /// Nothing gathered yet.
    pub fn new(targets: usize) -> Self {
        Self { targets, y: Vec::new(), square_errors: Vec::new(), weights: Vec::new() }
    }

    /// Adds targets `y` and predictions `[n][targets]` with their `n` weights.
    pub fn add(&mut self, y: &[f64], predictions: &[f64], weights: &[f64]) {
        debug_assert!(y.len() == predictions.len() && y.len() == weights.len() * self.targets);
        self.y.extend_from_slice(y);
        self.square_errors.extend(y.iter().zip(predictions).map(|(y, p)| (y - p).powi(2)));
        self.weights.extend_from_slice(weights);
    }

    /// One score a target. Fails if there is nothing to score, or a target never changes.
    pub fn finish(&self) -> Result<Vec<Score>> {
        let total: f64 = self.weights.iter().sum();
        if self.weights.len() < 2 || total <= 0.0 {
            let problem = format!("{} examples of total weight {total}", self.weights.len());
            return Err(Error::input("score", problem, "give at least two examples with positive weights"));
        }
        (0..self.targets).map(|t| self.one(t, total)).collect()
    }

    fn one(&self, t: usize, total: f64) -> Result<Score> {
        let of = |values: &[f64]| values.iter().copied().skip(t).step_by(self.targets).collect::<Vec<f64>>();
        let (y, a) = (of(&self.y), of(&self.square_errors));
        let mean = |values: &[f64]| values.iter().zip(&self.weights).map(|(v, w)| v * w).sum::<f64>() / total;
        let centre = mean(&y);
        let b: Vec<f64> = y.iter().map(|y| (y - centre).powi(2)).collect();
        let (mse, variance) = (mean(&a), mean(&b));
        if variance <= f64::EPSILON * centre.powi(2) {
            return Err(Error::input(format!("y, target {t}"), "is constant", "give a target that changes"));
        }
        let nmse = mse / variance;
        let spread = |ratio: f64, b: &dyn Fn(usize) -> f64| {
            let sum: f64 = (0..a.len()).map(|i| (self.weights[i] * (a[i] - ratio * b(i))).powi(2)).sum();
            sum.sqrt() / total
        };
        Ok(Score {
            n: y.len(),
            mse,
            mse_se: spread(mse, &|_| 1.0),
            variance,
            nmse,
            nmse_se: spread(nmse, &|i| b[i]) / variance,
            r2: 1.0 - nmse,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// Standard errors against the spread of repeated draws: within 15 % over 400 draws.
    #[test]
    fn standard_errors_are_those_of_repeated_draws() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut draws = Vec::new();
        for _ in 0..400 {
            let y: Vec<f64> = (0..500).map(|_| rng.sample(StandardNormal)).collect();
            let predictions: Vec<f64> = y.iter().map(|y| y + 0.5 * rng.sample::<f64, _>(StandardNormal)).collect();
            let mut scores = Scores::new(1);
            scores.add(&y, &predictions, &vec![1.0; 500]);
            draws.push(scores.finish().unwrap()[0]);
        }
        let spread = |of: &dyn Fn(&Score) -> f64| {
            let mean = draws.iter().map(of).sum::<f64>() / draws.len() as f64;
            (draws.iter().map(|s| (of(s) - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt()
        };
        let typical = |of: &dyn Fn(&Score) -> f64| draws.iter().map(of).sum::<f64>() / draws.len() as f64;
        assert!((typical(&|s| s.mse_se) / spread(&|s| s.mse) - 1.0).abs() < 0.15);
        assert!((typical(&|s| s.nmse_se) / spread(&|s| s.nmse) - 1.0).abs() < 0.15);
        assert!((typical(&|s| s.mse) - 0.25).abs() < 0.01);
    }

    #[test]
    fn weights_count_examples_and_constants_are_refused() {
        let (y, p) = ([1.0, 2.0, 4.0], [1.5, 2.0, 3.0]);
        let mut weighted = Scores::new(1);
        weighted.add(&y, &p, &[1.0, 2.0, 1.0]);
        let mut repeated = Scores::new(1);
        repeated.add(&[1.0, 2.0, 2.0, 4.0], &[1.5, 2.0, 2.0, 3.0], &[1.0; 4]);
        let (a, b) = (weighted.finish().unwrap()[0], repeated.finish().unwrap()[0]);
        assert!((a.mse - b.mse).abs() < 1e-15 && (a.nmse - b.nmse).abs() < 1e-15 && (a.r2 + a.nmse - 1.0).abs() < 1e-15);
        let mut constant = Scores::new(1);
        constant.add(&[3.0, 3.0], &[1.0, 2.0], &[1.0, 1.0]);
        assert!(constant.finish().unwrap_err().to_string().contains("constant"));
        assert!(Scores::new(1).finish().is_err());
    }
}
