//! Random sets with targets: block `i` of a stream is a function of its seed and `i` alone.

use super::{SetBlock, SetShape, SetSource, Target};
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

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
    use crate::features::{SetInputs, Sets, TargetSpec};

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
}
