//! What can be guaranteed of a learned layer `F̂`, from examples that no learner has seen.
//!
//! Let `X` be a random input, `Y = F(X)` its label and
//!
//! ```text
//! e = ‖Y − F̂(X)‖_∞ = max over tokens a and outputs o of |Y_ao − F̂(X)_ao|.
//! ```
//!
//! # What is assumed
//!
//! The held-out examples are independent draws of `(X, Y)`, and independent of `F̂`: none was used to learn it, to choose its
//! settings or to decide when to stop. Nothing is assumed about `F`, about `F̂` or about the distribution of `X`; the guarantee is
//! about that distribution and no other. Errors are those of double-precision arithmetic on the labels as given: labels stored
//! in single precision carry an error of about 1e-7 themselves.
//!
//! # What is guaranteed
//!
//! Three kinds of statement, each with confidence `1 − δ` over the draw of the n held-out examples, for every n:
//!
//! 1. **The largest error seen** ([`Certificate::max_error`], [`Certificate::max_error_bound`]): `P[e > max seen] ≤ 1 − δ^{1/n}`.
//!    Proof: let `t` be the least number with `P[e > t] ≤ q`. The statement with `q` in place of the bound fails only if all n
//!    errors are below `t`, which has probability `(1 − P[e ≥ t])ⁿ ≤ (1 − q)ⁿ = δ`. The threshold may thus be read off the
//!    examples; so may any larger one, such as the first ε of the grid that no error exceeded.
//! 2. **One ε at a time** ([`Bound::alone`]): for an ε fixed beforehand, `P[e > ε] ≤ q` with `q` the exact Clopper–Pearson bound
//!    on the number of exceedances (see [`binomial`]). Not valid for an ε picked after seeing the table.
//! 3. **All ε at once** ([`Bound::together`]): the bounds of the whole grid of G values hold simultaneously, because each is taken
//!    at confidence `1 − δ/G` (Bonferroni). So any of them may be picked afterwards, as [`Certificate::epsilon_at`] does.
//!
//! To claim statement 1 and the grid of statement 3 jointly, count `2δ`.
//!
//! # What is only estimated
//!
//! The mean squared error comes with Student's interval `mean ± t_{n−1} s/√n`. It is **asymptotic**: right in the limit of
//! large n if `e⁴` has a finite mean. No interval for a mean can be distribution-free: an event too rare to show among n examples
//! can carry any mean. (A known bound on `|F|` would help, but `F` is what is unknown.) Quantiles, NMSE and everything
//! relative to the size of `Y` are plain sample estimates.

pub mod binomial;
mod histogram;
mod root;
mod student;
mod table;

use crate::data::{ExampleSource, Shape};
use crate::layer::AttentionLayer;
use crate::layer::residual::{ratio, residuals};
use crate::{Error, Result};
use histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What to certify.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertifySettings {
    /// Every statement holds with confidence `1 − delta`. Default 0.01.
    pub delta: f64,
    /// The error thresholds ε. Default 1e-12, 1e-11, …, 1. Sorted, and counted once each, before use.
    pub epsilons: Vec<f64>,
}

impl Default for CertifySettings {
    fn default() -> Self {
        Self { delta: 0.01, epsilons: vec![1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0] }
    }
}

impl CertifySettings {
    /// The grid in increasing order without repetitions, after all checks.
    fn check(&self) -> Result<Vec<f64>> {
        if !(self.delta > 0.0 && self.delta < 1.0) {
            return Err(Error::input("delta", format!("is {}", self.delta), "give a number between 0 and 1, such as 0.01"));
        }
        if self.epsilons.is_empty() || !self.epsilons.iter().all(|e| e.is_finite() && *e >= 0.0) {
            let problem = format!("are {:?}", self.epsilons);
            return Err(Error::input("epsilons", problem, "give at least one threshold, all of them finite and not negative"));
        }
        let mut grid: Vec<f64> = self.epsilons.iter().map(|e| e.abs()).collect(); // −0 is 0
        grid.sort_by(f64::total_cmp);
        grid.dedup_by_key(|e| e.to_bits());
        Ok(grid)
    }
}

/// What n held-out examples say about a layer. The [module](self) says which part is guaranteed and under which assumptions.
///
/// Its `Display` is a table for the terminal, with [`Certificate::statement`] on top.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Held-out examples.
    pub n: u64,
    /// Sizes of an example: a guarantee is for sequences of this length.
    pub shape: Shape,
    /// The blocks that were read, first and one past the last.
    pub blocks: (u64, u64),
    /// Every statement holds with confidence `1 − delta`.
    pub delta: f64,
    /// The largest error `e` seen.
    pub max_error: f64,
    /// Guaranteed: `P[e > max_error] ≤ 1 − δ^{1/n}`.
    pub max_error_bound: f64,
    /// The guarantees for every ε of the grid, in increasing order.
    pub bounds: Vec<Bound>,
    /// Estimated: quantiles of `e`.
    pub quantiles: Vec<Quantile>,
    /// Estimated: mean over examples, tokens and outputs of the squared error.
    pub mse: f64,
    /// Student's interval for the mean squared error at `1 − delta`: asymptotic, no guarantee. Needs two examples.
    pub mse_interval: Option<(f64, f64)>,
    /// Estimated: `√(E Y_ao²)`, the unit of everything relative.
    pub rms_output: f64,
    /// Estimated: variance of an output about its mean, averaged over the outputs.
    pub output_variance: f64,
    /// Estimated: `mse / output_variance`; `None` when the outputs are constant.
    pub nmse: Option<f64>,
    /// `max_error / rms_output`; `None` when the outputs are 0.
    pub relative_max_error: Option<f64>,
    /// `√mse / rms_output`; `None` when the outputs are 0.
    pub relative_rmse: Option<f64>,
}

/// The guarantee for one ε.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The threshold ε.
    pub epsilon: f64,
    /// ε in units of the rms of the outputs (a sample estimate); `None` when the outputs are 0.
    pub relative_epsilon: Option<f64>,
    /// Examples with `e > ε`.
    pub exceedances: u64,
    /// Upper bound on `P[e > ε]` for this ε alone, chosen beforehand.
    pub alone: f64,
    /// Upper bound on `P[e > ε]`, simultaneously for all ε of the grid.
    pub together: f64,
}

/// A sample quantile of the errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// The share of the examples with an error of at most `error`.
    pub level: f64,
    /// The error, rounded up by less than 1.6 % (errors below 1e-300 count as 0).
    pub error: f64,
}

/// Levels of the quantiles reported.
const LEVELS: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Certifies `layer` on the examples of `blocks`, as far as there are any: no learner may have seen them.
///
/// Reads in double precision on all threads; the result has the same bits on any number of them.
pub fn certify(
    layer: &AttentionLayer,
    source: &dyn ExampleSource,
    blocks: Range<u64>,
    settings: &CertifySettings,
) -> Result<Certificate> {
    let grid = settings.check()?;
    // at[i]: errors above grid[i−1] and at most grid[i].
    let mut at = vec![0u64; grid.len() + 1];
    let mut histogram = Histogram::new();
    let span = (blocks.start, blocks.end);
    let residuals = residuals(layer, source, blocks, |errors| {
        for &e in errors {
            at[grid.partition_point(|&epsilon| epsilon < e)] += 1;
            histogram.add(e);
        }
    })?;

    let (n, delta, rms) = (residuals.n, settings.delta, residuals.rms());
    let bounds = (0..grid.len())
        .map(|i| {
            let exceedances = at[i + 1..].iter().sum();
            Ok(Bound {
                epsilon: grid[i],
                relative_epsilon: ratio(grid[i], rms),
                exceedances,
                alone: binomial::upper_bound(n, exceedances, delta)?,
                together: binomial::upper_bound(n, exceedances, delta / grid.len() as f64)?,
            })
        })
        .collect::<Result<_>>()?;
    let mse = residuals.mse();
    let mse_interval = residuals.squares.standard_error().map(|error| {
        let half = student::two_sided_quantile((n - 1) as f64, delta) * error;
        ((mse - half).max(0.0), mse + half)
    });
    Ok(Certificate {
        n,
        shape: source.shape(),
        blocks: span,
        delta,
        max_error: residuals.max_error,
        max_error_bound: binomial::upper_bound(n, 0, delta)?,
        bounds,
        quantiles: LEVELS.map(|level| Quantile { level, error: histogram.quantile(level).min(residuals.max_error) }).to_vec(),
        mse,
        mse_interval,
        rms_output: rms,
        output_variance: residuals.variance(),
        nmse: residuals.nmse(),
        relative_max_error: ratio(residuals.max_error, rms),
        relative_rmse: ratio(mse.sqrt(), rms),
    })
}

impl Certificate {
    /// The smallest ε of the grid with `P[e > ε] ≤ q` guaranteed; `None` if there is none.
    ///
    /// It is picked after seeing the examples, so it uses the bounds that hold [together](Bound::together).
    pub fn epsilon_at(&self, q: f64) -> Option<f64> {
        self.bounds.iter().find(|bound| bound.together <= q).map(|bound| bound.epsilon)
    }
}

#[cfg(test)]
mod tests;
