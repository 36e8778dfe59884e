//! How sets are drawn.

use super::sets::{SetShape, check_sets_size};
use crate::{Error, Result};
use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// How the query and the keys are drawn, independently of one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tokens {
    /// Uniform on the unit sphere.
    #[default]
    Sphere,
    /// Normal with covariance `I/d`.
    Gaussian,
}

/// A distribution of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetInputs {
    /// Law of query and keys.
    pub tokens: Tokens,
    /// Their dimension.
    pub d: usize,
    /// The most keys, N.
    pub keys: usize,
    /// The fewest keys: lengths are uniform between the two.
    pub min_keys: usize,
}

impl SetInputs {
    /// `keys` keys on the unit sphere of `R^d`.
    pub fn new(keys: usize, d: usize) -> Self {
        Self { tokens: Tokens::Sphere, d, keys, min_keys: keys }
    }

    /// Whether the sizes make sense.
    pub fn check(&self) -> Result<()> {
        if self.d == 0 || self.min_keys == 0 || self.min_keys > self.keys {
            return Err(Error::input(
                "sets",
                format!("between {} and {} keys in dimension {}", self.min_keys, self.keys, self.d),
                "give a dimension of at least 1 and 1 ≤ fewest ≤ most keys",
            ));
        }
        check_sets_size(SetShape { keys: self.keys, d: self.d, targets: 1 }, 1, "sets")
    }

    /// Replaces `tokens` by a fresh set: the query, then the keys.
    pub fn draw(&self, rng: &mut impl Rng, tokens: &mut Vec<f64>) {
        let len = if self.min_keys < self.keys { rng.random_range(self.min_keys..=self.keys) } else { self.keys };
        tokens.clear();
        tokens.extend((0..(len + 1) * self.d).map(|_| -> f64 { rng.sample(StandardNormal) }));
        for x in tokens.chunks_exact_mut(self.d) {
            let square = match self.tokens {
                Tokens::Sphere => x.iter().map(|v| v * v).sum(),
                Tokens::Gaussian => self.d as f64,
            };
            let scale = 1.0 / f64::sqrt(square);
            x.iter_mut().for_each(|v| *v *= scale);
        }
    }

    /// `E|x|^k` for even `k`; for odd `k` it is only ever multiplied by zero.
    pub(super) fn radial_moment(&self, k: u32) -> f64 {
        match self.tokens {
            Tokens::Sphere => 1.0,
            Tokens::Gaussian => (0..k / 2).map(|i| 1.0 + f64::from(2 * i) / self.d as f64).product(),
        }
    }

    /// `E[1/N]` over the lengths.
    pub(super) fn mean_inverse_length(&self) -> f64 {
        let lengths = self.min_keys..=self.keys;
        lengths.clone().map(|len| 1.0 / len as f64).sum::<f64>() / lengths.count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused() {
        for inputs in [SetInputs::new(0, 3), SetInputs::new(3, 0), SetInputs { min_keys: 4, ..SetInputs::new(3, 3) }] {
            assert!(inputs.check().is_err());
        }
    }
}
