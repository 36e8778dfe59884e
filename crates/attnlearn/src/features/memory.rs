//! Sets that lie in somebody else's memory: nothing is copied but what a block holds.

use super::{SetBlock, SetShape, SetSource};
use crate::data::{Numbers, not_finite};
use crate::{Error, Result};

/// Where the query and the keys of a set lie.
#[derive(Clone, Copy, Debug)]
pub enum SetTokens<'a> {
    /// `[n][N+1][d]`: the query, then the keys.
    Together(Numbers<'a>),
    /// Queries `[n][d]` and keys `[n][N][d]`.
    Apart(Numbers<'a>, Numbers<'a>),
}

/// Which places hold keys.
#[derive(Clone, Copy, Debug)]
pub enum Presence<'a> {
    /// All of them.
    All,
    /// So many at the front, one number a set.
    Lengths(&'a [i64]),
    /// Those marked, `[n][N]`.
    Mask(&'a [bool]),
}

/// Borrowed sets.
#[derive(Clone, Copy, Debug)]
pub struct SetSlices<'a> {
    shape: SetShape,
    n: usize,
    tokens: SetTokens<'a>,
    presence: Presence<'a>,
    /// `[n][targets]`.
    y: Option<Numbers<'a>>,
    weights: Option<Numbers<'a>>,
}

impl<'a> SetSlices<'a> {
    /// `n` sets of one shape without targets, all keys there and all of weight 1.
    pub fn new(tokens: SetTokens<'a>, n: usize, keys: usize, d: usize) -> Result<Self> {
        if n == 0 || keys == 0 || d == 0 {
            let problem = format!("has shape {:?}", [n, keys.saturating_add(1), d]);
            return Err(Error::input("x", problem, "give [n, N+1, d], n ≥ 1, N ≥ 1, d ≥ 1"));
        }
        match tokens {
            SetTokens::Together(x) => agree("x", x.len(), &[n, keys + 1, d])?,
            SetTokens::Apart(query, keys_of) => {
                agree("query", query.len(), &[n, d])?;
                agree("keys", keys_of.len(), &[n, keys, d])?;
            }
        }
        let shape = SetShape { keys, d, targets: 0 };
        Ok(Self { shape, n, tokens, presence: Presence::All, y: None, weights: None })
    }

    /// With `targets` numbers a set to predict.
    pub fn with_targets(mut self, y: Numbers<'a>, targets: usize) -> Result<Self> {
        agree("y", y.len(), &[self.n, targets])?;
        self.shape.targets = targets;
        Ok(Self { y: Some(y), ..self })
    }

    /// With keys in some places only.
    pub fn with_presence(self, presence: Presence<'a>) -> Result<Self> {
        match presence {
            Presence::All => {}
            Presence::Lengths(lengths) => agree("length", lengths.len(), &[self.n])?,
            Presence::Mask(mask) => agree("mask", mask.len(), &[self.n, self.shape.keys])?,
        }
        Ok(Self { presence, ..self })
    }

    /// With a weight a set.
    pub fn with_weights(self, weights: Numbers<'a>) -> Result<Self> {
        agree("weight", weights.len(), &[self.n])?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// Reads the query and the keys of set `i`, those that are there at the front; how many.
    fn tokens(&self, i: usize, out: &mut [f64]) -> Result<usize> {
        let (keys, d) = (self.shape.keys, self.shape.d);
        let copy = |numbers: &Numbers<'_>, name: &str, per: usize, out: &mut [f64]| {
            numbers.copy_to(i * per..(i + 1) * per, out, 1).map_err(|value| not_finite(name, i, value))
        };
        match &self.tokens {
            SetTokens::Together(x) => copy(x, "x", (keys + 1) * d, out)?,
            SetTokens::Apart(query, keys_of) => {
                copy(query, "query", d, &mut out[..d])?;
                copy(keys_of, "keys", keys * d, &mut out[d..])?;
            }
        }
        match self.presence {
            Presence::All => Ok(keys),
            Presence::Lengths(lengths) => usize::try_from(lengths[i]).ok().filter(|l| (1..=keys).contains(l)).ok_or_else(|| {
                let remedy = format!("give a whole number from 1 to {keys}");
                Error::input(format!("length, example {i}"), format!("is {}", lengths[i]), remedy)
            }),
            Presence::Mask(mask) => {
                let mut count = 0;
                for (place, _) in mask[i * keys..(i + 1) * keys].iter().enumerate().filter(|(_, there)| **there) {
                    out.copy_within((1 + place) * d..(2 + place) * d, (1 + count) * d);
                    count += 1;
                }
                if count == 0 {
                    return Err(Error::input(format!("mask, example {i}"), "leaves no key", "give every set at least one key"));
                }
                Ok(count)
            }
        }
    }
}

/// Refuses numbers that are not as many as the shape says.
fn agree(name: &str, found: usize, shape: &[usize]) -> Result<()> {
    if shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) == Some(found) {
        return Ok(());
    }
    Err(Error::input(name, format!("has {found} numbers"), format!("give it the shape {shape:?}")))
}

impl SetSource for SetSlices<'_> {
    fn shape(&self) -> SetShape {
        self.shape
    }

    fn len(&self) -> u64 {
        self.n as u64
    }

    fn fill(&self, index: u64, block: &mut SetBlock) -> Result<()> {
        let SetShape { keys, d, targets } = self.shape;
        block.shape = self.shape;
        block.clear();
        let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(SetBlock::CAPACITY).min(self.n);
        let (mut tokens, mut y, mut weight) = (vec![0.0; (keys + 1) * d], vec![0.0; targets], [1.0]);
        for i in start..self.n.min(start.saturating_add(SetBlock::CAPACITY)) {
            let length = self.tokens(i, &mut tokens)?;
            if let Some(numbers) = &self.y {
                numbers.copy_to(i * targets..(i + 1) * targets, &mut y, 1).map_err(|value| not_finite("y", i, value))?;
            }
            if let Some(numbers) = &self.weights {
                numbers.copy_to(i..i + 1, &mut weight, 1).map_err(|value| not_finite("weight", i, value))?;
                if weight[0] < 0.0 {
                    let place = format!("weight, example {i}");
                    return Err(Error::input(place, format!("is {}", weight[0]), "give weights that are not negative"));
                }
            }
            block.push(&tokens[..(1 + length) * d], &y, weight[0]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{SetInputs, SetStream, Sets, Target, TargetSpec};

    fn sets(n: u64) -> Sets {
        let inputs = SetInputs { min_keys: 2, ..SetInputs::new(4, 3) };
        Sets::read(&SetStream::new(Target::new(&TargetSpec::Average { p: 2 }, inputs, 7).unwrap(), 1, n)).unwrap()
    }

    /// However they are given, borrowed sets are the sets themselves.
    #[test]
    fn borrowed_sets_are_the_sets() {
        let owned = sets(700);
        let block = owned.block();
        let lengths: Vec<i64> = block.lengths.iter().map(|&l| l as i64).collect();
        let mask: Vec<bool> = block.lengths.iter().flat_map(|&l| (0..4).map(move |i| i < l)).collect();
        let rows = || block.x.chunks_exact(5 * 3);
        let query: Vec<f64> = rows().flat_map(|x| x[..3].to_vec()).collect();
        let keys: Vec<f64> = rows().flat_map(|x| x[3..].to_vec()).collect();
        let together = SetTokens::Together(Numbers::F64(&block.x));
        let apart = SetTokens::Apart(Numbers::F64(&query), Numbers::F64(&keys));
        for (tokens, presence) in
            [(together, Presence::Lengths(&lengths)), (together, Presence::Mask(&mask)), (apart, Presence::Mask(&mask))]
        {
            let slices = SetSlices::new(tokens, 700, 4, 3).unwrap().with_presence(presence).unwrap();
            let slices = slices.with_targets(Numbers::F64(&block.y), 1).unwrap();
            let slices = slices.with_weights(Numbers::F64(&block.weights)).unwrap();
            let read = Sets::read(&slices).unwrap();
            let read = read.block();
            assert_eq!((&read.x, &read.lengths, &read.y, &read.weights), (&block.x, &block.lengths, &block.y, &block.weights));
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let owned = sets(10);
        let x = SetTokens::Together(Numbers::F64(&owned.block().x));
        let said = |result: Result<SetSlices<'_>>| {
            let read = result.and_then(|slices| Sets::read(&slices));
            read.err().map(|e| e.to_string()).unwrap_or_default()
        };
        let slices = SetSlices::new(x, 10, 4, 3).unwrap();
        assert!(said(SetSlices::new(x, 11, 4, 3)).starts_with("x: has 150 numbers; give it the shape"));
        assert!(said(SetSlices::new(SetTokens::Together(Numbers::F64(&[])), 0, 4, 3)).contains("n ≥ 1"));
        assert!(said(slices.with_targets(Numbers::F64(&[1.0]), 1)).starts_with("y: "));
        assert!(said(slices.with_presence(Presence::Lengths(&[5; 10]))).contains("from 1 to 4"));
        assert!(said(slices.with_presence(Presence::Mask(&[false; 40]))).contains("leaves no key"));
        assert!(said(slices.with_weights(Numbers::F64(&[-1.0; 10]))).contains("not negative"));
        assert!(said(slices.with_weights(Numbers::F64(&[f64::NAN; 10]))).contains("NaN"));
        let wrong = [f64::INFINITY; 150];
        let slices = SetSlices::new(SetTokens::Together(Numbers::F64(&wrong)), 10, 4, 3);
        assert!(said(slices).contains("x, example 0: holds an infinite number"));
    }
}
