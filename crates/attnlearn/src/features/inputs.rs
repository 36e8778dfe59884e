//! Random sets with targets: block `i` of a stream is a function of its seed and `i` alone.

use super::sets::check_sets_size;
use super::{SetBlock, SetShape, SetSource, Target};
use crate::{Error, Result};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
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

/// Fresh sets with one target each, all of weight 1.
#[derive(Clone, Debug)]
pub struct SetStream {
    target: Target,
    noise: f64,
    seed: u64,
    len: u64,
}

impl SetStream {
    /// `len` sets from the inputs of `target`, without noise.
    pub fn new(target: Target, seed: u64, len: u64) -> Self {
        Self { target, noise: 0.0, seed, len }
    }

    /// Adds independent normal noise of this standard deviation to the targets (which have standard deviation 1); the inputs stay the same.
    pub fn with_noise(self, noise: f64) -> Result<Self> {
        if !(noise.is_finite() && noise >= 0.0) {
            return Err(Error::input("noise", format!("standard deviation {noise}"), "give a number that is 0 or more"));
        }
        Ok(Self { noise, ..self })
    }

    /// What is to be learnt.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl SetSource for SetStream {
    fn shape(&self) -> SetShape {
        let inputs = self.target.inputs();
        SetShape { keys: inputs.keys, d: inputs.d, targets: 1 }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn fill(&self, index: u64, block: &mut SetBlock) -> Result<()> {
        let capacity = SetBlock::CAPACITY as u64;
        block.shape = self.shape();
        block.clear();
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(index);
        let mut tokens = Vec::new();
        for _ in 0..self.len.saturating_sub(index.saturating_mul(capacity)).min(capacity) {
            self.target.inputs().draw(&mut rng, &mut tokens);
            let noise: f64 = rng.sample(StandardNormal);
            block.push(&tokens, &[f64::mul_add(self.noise, noise, self.target.value(&tokens))], 1.0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Sets, TargetSpec};

    fn stream(seed: u64, len: u64) -> SetStream {
        let inputs = SetInputs { min_keys: 2, ..SetInputs::new(4, 3) };
        SetStream::new(Target::new(&TargetSpec::Average { p: 2 }, inputs, 7).unwrap(), seed, len)
    }

    #[test]
    fn blocks_are_addressed_and_reproducible() {
        let (mut a, mut b) = (SetBlock::new(stream(1, 0).shape()), SetBlock::new(stream(1, 0).shape()));
        stream(1, 1100).fill(2, &mut a).unwrap();
        assert_eq!(a.len(), 76);
        stream(1, 5000).fill(2, &mut b).unwrap();
        assert_eq!((b.len(), &a.x[..]), (512, &b.x[..a.x.len()]));
        stream(1, 1100).fill(3, &mut b).unwrap();
        assert!(b.is_empty());
        stream(2, 1100).fill(2, &mut b).unwrap();
        assert_ne!(a.x, b.x);
        let all = Sets::read(&stream(1, 1100)).unwrap();
        assert_eq!((all.len(), all.slice(1024..1100).block().y.clone()), (1100, a.y));
    }

    #[test]
    fn sets_have_their_lengths_and_norms() {
        let all = Sets::read(&stream(3, 600)).unwrap();
        let block = all.block();
        for len in 2..=4 {
            assert!(block.lengths.iter().filter(|l| **l == len).count() > 150);
        }
        for i in 0..block.len() {
            for x in block.query(i).chunks_exact(3).chain(block.keys(i).chunks_exact(3)) {
                assert!((x.iter().map(|v| v * v).sum::<f64>() - 1.0).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn noise_changes_the_targets_only() {
        let (clean, noisy) = (stream(4, 2000), stream(4, 2000).with_noise(0.5).unwrap());
        let (clean, noisy) = (Sets::read(&clean).unwrap(), Sets::read(&noisy).unwrap());
        assert_eq!(clean.block().x, noisy.block().x);
        let square: f64 = clean.block().y.iter().zip(&noisy.block().y).map(|(a, b)| (a - b).powi(2)).sum();
        assert!((square / 2000.0 / 0.25 - 1.0).abs() < 0.16); // five standard errors
        assert!(stream(4, 1).with_noise(-1.0).is_err());
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for inputs in [SetInputs::new(0, 3), SetInputs::new(3, 0), SetInputs { min_keys: 4, ..SetInputs::new(3, 3) }] {
            assert!(inputs.check().is_err());
        }
    }
}
