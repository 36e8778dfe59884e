//! Noise or lack of fit: whether what a layer leaves unexplained depends on the inputs.
//!
//! Residuals `R = Y − F̂(X)` of noise know nothing of `X`; those of a layer of the wrong form do. Three kinds of tests ask:
//!
//! - **Inputs.** Residuals are predicted from the inputs, by ridge regression on several hundred functions of one family ([`Dependence`]), from the
//!   residuals of other sequences (`prediction.rs`).
//! - **Another head.** One head is learned of the residuals of the examples that the layer was learned from, and has to explain those of others.
//! - **Copies.** Residuals of two copies of one input have mean product 0 if they are noise, and otherwise that of the squared lack of fit (`copies.rs`).
//!
//! Sequences are the independent units: tokens of one have noise in common for all that is known. Residuals of the examples learned from are `(I − P)ε`,
//! which says nothing of `Pε`, the layer's own error, nor of noise elsewhere; among themselves their covariance is `−P`. So where it is a layer with
//! noise, all these agreements have mean 0 or less. Those that the layer was not learned from have helped to choose its form, and nothing else.
//!
//! Dependence is *found* if a test is beyond [`LackOfFit::threshold`] and explains a hundredth of the residuals at least; less than that is no more than
//! the residue of a search that ends. The threshold is that of a chance of 10⁻³ for all tests of a run together (Bonferroni).
//!
//! **Power.** That nothing was found means something only if there was something to find it with. So the tests of the first kind are given residuals half
//! of whose variance is a random function that is no such layer, `√½ R + √½ P` (`plant.rs`). `power` is the share of those that they notice. Below three
//! quarters it cannot be told; it can, too, where copies alone would have shown half the variance. No test sees everything: a function that looks random
//! at every scale is noise to all of them, copies excepted. One kind of such functions is common: those that are rougher than softmax attention, hard
//! attention above all. Where the *size* of residuals grows with the layer's own doubt, it cannot be told either (`sizes.rs`).

mod copies;
mod dictionary;
mod plant;
mod prediction;
mod sizes;
#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests;

use crate::data::Shape;
use crate::descend::{Choice, HeadCount, Learner, Prepared, StrategySettings, Wanted};
use crate::engine::Batch;
use crate::layer::AttentionLayer;
use crate::linalg::Mat;
use crate::linalg::symmetric::product;
use crate::scores::Scores;
use crate::{Error, Result, parallel};
use copies::Groups;
pub use dictionary::Dependence;
use dictionary::Dictionary;
use faer::MatRef;
use prediction::{FOLDS, RIDGES, Row, Strength, Tests, standard, threshold};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::Serialize;

/// Sequences that are looked at, at most, and their numbers.
const SEQUENCES: usize = 4000;
const NUMBERS: usize = 1 << 24;
/// Queries that are looked at.
const QUERIES: usize = 16_000;
/// Outputs that are looked at; random directions where there are more.
const OUTPUTS: usize = 16;
/// Sequences below which nothing can be told.
const FEW: usize = 12;
/// Functions planted of every kind, and the share of them that has to be noticed.
const PLANTS: usize = 2;
const POWER: f64 = 0.75;
/// Share of the variance of residuals' sizes that doubt has to explain.
const UNEVEN: f64 = 0.1;
/// Standard deviations by which it has to. Few: all that follows is that it cannot be told.
const UNSURE: f64 = 2.0;
/// How hard the head that residuals may hold is looked for: see [`StrategySettings::effort`].
const EFFORT: f64 = 0.02;

/// What residuals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No test found dependence on the inputs, and they would have.
    Noise,
    /// They depend on the inputs.
    AnotherFunction,
    /// No test found dependence, but neither would they have, or only that of their size.
    CannotTell,
}

/// Whether residuals depend on the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LackOfFit {
    /// What they are.
    pub verdict: Verdict,
    /// Sequences that the tests looked at; copies of one input count as one.
    pub sequences: usize,
    /// What they depend on most clearly.
    pub by: Option<Dependence>,
    /// Share of their variance that this explains, of sequences that it was not learned from.
    pub explained: f64,
    /// How clearly, in standard deviations.
    pub z: f64,
    /// So many standard deviations are no accident.
    pub threshold: f64,
    /// Whether a test comes near its threshold.
    pub doubtful: bool,
    /// Share of planted functions of half their variance that the tests notice; none where dependence was found.
    pub power: Option<f64>,
    /// Inputs that occur more than once with different outputs.
    pub copies: usize,
}

impl LackOfFit {
    fn cannot_tell(sequences: usize) -> Self {
        Self {
            verdict: Verdict::CannotTell,
            sequences,
            by: None,
            explained: 0.0,
            z: 0.0,
            threshold: threshold(1),
            doubtful: false,
            power: None,
            copies: 0,
        }
    }
}

/// Examples on which residuals are looked at, those that a layer is not learned from last.
pub(super) struct Look {
    examples: Batch<f64>,
    /// How many of them are not learned from.
    fresh: usize,
}

impl Look {
    /// Some of the examples learned from, then those to choose by.
    pub fn at(learn: &Batch<f64>, choose: &Batch<f64>) -> Self {
        let Shape { k, d, d_out } = learn.shape;
        let most = (NUMBERS / (k * (d + d_out))).clamp(2 * FEW, SEQUENCES);
        let fresh: Vec<usize> = (0..choose.len().min(most / 2)).collect();
        let learned: Vec<usize> = (0..learn.len().min(most - fresh.len())).collect();
        let (mut examples, choose) = (learn.select(&learned), choose.select(&fresh));
        examples.x.extend(choose.x);
        examples.y.extend(choose.y);
        Self { examples, fresh: fresh.len() }
    }

    /// What a layer makes of them.
    pub fn of<'a>(&'a self, layer: &'a AttentionLayer) -> Fitted<'a> {
        Fitted { look: self, layer, f: layer.forward(self.examples.shape.k, &self.examples.x) }
    }
}

/// A layer, and what it makes of some examples.
pub(super) struct Fitted<'a> {
    look: &'a Look,
    layer: &'a AttentionLayer,
    f: Vec<f64>,
}

impl Fitted<'_> {
    /// Standard deviation, over sequences, of the squared error of one, as a share of its mean: what chance does to a mean of many. It knows of heavy
    /// tails, and of noise that outputs or tokens have in common.
    pub fn spread(&self) -> f64 {
        let Batch { shape, y, .. } = &self.look.examples;
        let square = |(y, f): (&[f64], &[f64])| y.iter().zip(f).map(|(y, f)| (y - f).powi(2)).sum::<f64>();
        let per = shape.k * shape.d_out;
        let squares: Vec<f64> = y.chunks_exact(per).zip(self.f.chunks_exact(per)).map(square).collect();
        let mean = squares.iter().sum::<f64>() / squares.len() as f64;
        // In units of their mean: squares of squares need not be numbers.
        let (_, _, error) = standard(&squares.iter().map(|s| s / mean).collect::<Vec<f64>>());
        let spread = error * (squares.len() as f64).sqrt();
        if spread.is_finite() { spread } else { 0.0 }
    }

    /// Whether what the layer leaves of the examples depends on their inputs.
    pub fn lack_of_fit(&self, seed: u64, stop: &(dyn Fn() -> bool + Sync)) -> Result<LackOfFit> {
        let Look { examples, fresh } = self.look;
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6c61_636b_6f66_6669);
        let (n, k, q) = (examples.len(), examples.shape.k, examples.shape.d_out.min(OUTPUTS));
        let groups = Groups::of(examples);
        let Some((residuals, directions)) = self.residuals(&mut rng).filter(|_| groups.len() >= FEW) else {
            return Ok(LackOfFit::cannot_tell(groups.len()));
        };
        let scale = (examples.y.iter().map(|y| y * y).sum::<f64>() / examples.y.len() as f64).sqrt();
        let Some(dictionary) = Dictionary::new(self.layer, &examples.x, scale, &mut rng) else {
            return Ok(LackOfFit::cannot_tell(groups.len()));
        };

        let (rows, asked) = some_queries(&groups, k, &mut rng);
        let tests = Tests {
            rows: &rows,
            fold_of: &folds(groups.len(), &mut rng),
            // A group is fresh if all of it is.
            fresh: &groups.iter().map(|group| group.iter().all(|i| *i >= n - fresh)).collect::<Vec<bool>>(),
        };
        let pick = |values: &[f64]| Mat::from_fn(rows.len(), q, |row, j| values[(rows[row].sequence * k + rows[row].a) * q + j]);
        let sequences = dictionary.sequences(&examples.x, &self.f, k);

        // Residuals first, then residuals with something planted.
        let seen = directions.seen(&residuals);
        let mut targets = vec![pick(&seen)];
        for planted in plant::planted(&dictionary, &sequences, &asked, PLANTS, q, &mut rng) {
            let half = 0.5_f64.sqrt();
            targets.push(&targets[0] * faer::Scale(half) + planted * faer::Scale(half));
        }
        let copies = groups.copies(&seen, k * q);
        let head = self.another_head(&residuals, seed, stop)?;
        let count = 2 * RIDGES.len() * Dependence::FAMILIES.len() + usize::from(head.is_some()) + usize::from(copies.is_some());
        let threshold = threshold(count);

        let mut best = vec![Strength::default(); targets.len()];
        for family in Dependence::FAMILIES {
            let numbers = parallel::map(&asked, |(sequence, queries)| match stop() {
                true => Vec::new(),
                false => dictionary.features(family, &sequences[*sequence], queries),
            });
            if stop() {
                return Err(Error::Interrupted);
            }
            let phi = prediction::columns(numbers.concat());
            tests.strengths(&phi, &targets, |target, found| best[target].take(found, family, threshold));
        }
        if let Some(outputs) = head {
            let found = tests.strength(&pick(&directions.seen(&outputs)), &targets[0], |unit| tests.fresh[unit]);
            best[0].take(found, Dependence::AnotherHead, threshold);
        }
        if let Some(copies) = &copies {
            best[0].take((copies.z, copies.share), Dependence::Copies, threshold);
        }

        let noticed = best[1..].iter().filter(|best| best.found(threshold)).count();
        let power = noticed as f64 / (best.len() - 1) as f64;
        let by_copies = copies.as_ref().is_some_and(|copies| threshold * copies.error <= 0.5);
        let sizes = sizes::by_doubt(&tests, &dictionary, &sequences, &asked, &targets[0]);
        let mut found = best[0];
        // What is nearly found is not noise for certain; less than a hundredth is nothing.
        let verdict = match sizes {
            _ if found.found(threshold) => Verdict::AnotherFunction,
            Some((z, share)) if z >= UNSURE && share >= UNEVEN => {
                found = Strength { z, share, by: Some(Dependence::Doubt), doubtful: false };
                Verdict::CannotTell
            }
            _ if !found.doubtful && (power >= POWER || by_copies) => Verdict::Noise,
            _ => Verdict::CannotTell,
        };
        Ok(LackOfFit {
            verdict,
            sequences: groups.len(),
            by: found.by,
            explained: found.share,
            z: found.z,
            threshold: if found.by == Some(Dependence::Doubt) { UNSURE } else { threshold },
            doubtful: found.doubtful,
            power: (verdict != Verdict::AnotherFunction).then_some(power),
            copies: copies.map_or(0, |copies| copies.groups),
        })
    }

    /// Residuals in units of their size, and the directions of outputs that are looked at; none if they have no size.
    fn residuals(&self, rng: &mut ChaCha8Rng) -> Option<(Vec<f64>, Directions)> {
        let Batch { shape, y, .. } = &self.look.examples;
        let residuals: Vec<f64> = y.iter().zip(&self.f).map(|(y, f)| y - f).collect();
        let size = (residuals.iter().map(|r| r * r).sum::<f64>() / residuals.len() as f64).sqrt();
        let sizes = |size: f64| size > 0.0 && size.is_finite();
        let directions = Directions::new(shape.d_out, rng);
        sizes(size).then(|| (residuals.iter().map(|r| r / size).collect(), directions))
    }

    /// What a head that is learned of the residuals, where the layer was learned, makes of all of the examples. None if there is nothing to learn of, or
    /// too little to try it on.
    fn another_head(&self, residuals: &[f64], seed: u64, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f64>>> {
        let Look { examples, fresh } = self.look;
        let learned = examples.len() - fresh;
        if learned < FEW || *fresh < FEW {
            return Ok(None);
        }
        let (k, per_x, per_y) = (examples.shape.k, examples.x.len() / examples.len(), examples.y.len() / examples.len());
        let (x, y) = (examples.x[..learned * per_x].to_vec(), residuals[..learned * per_y].to_vec());
        let none = Batch { shape: examples.shape, x: Vec::new(), y: Vec::new() };
        let wanted = Wanted {
            heads: HeadCount::Given(1),
            biases: Choice::No,
            scores: Scores::of(self.layer.mask()),
            strategy: StrategySettings { seed, effort: EFFORT, redraws: 0, ..StrategySettings::default() },
            ..Wanted::default()
        };
        let learned = Prepared::new(Batch { shape: examples.shape, x, y }, none)
            .and_then(|prepared| Learner::new(&prepared, wanted)?.finish(stop).map(|outcome| outcome.layer));
        match learned {
            Ok(head) => Ok(Some(head.forward(k, &examples.x))),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // Residuals that nothing can be learned of have no head in them.
            Err(_) => Ok(None),
        }
    }
}

/// Directions of outputs: all, or random ones where there are many.
struct Directions {
    d_out: usize,
    random: Option<Vec<f64>>,
}

impl Directions {
    fn new(d_out: usize, rng: &mut ChaCha8Rng) -> Self {
        let size = 1.0 / (d_out as f64).sqrt();
        let mut numbers = || (0..d_out * OUTPUTS).map(|_| size * rng.sample::<f64, _>(StandardNormal)).collect();
        Self { d_out, random: (d_out > OUTPUTS).then(&mut numbers) }
    }

    /// Outputs along them.
    fn seen(&self, values: &[f64]) -> Vec<f64> {
        let Some(m) = &self.random else { return values.to_vec() };
        let rows = values.len() / self.d_out;
        let mut out = vec![0.0; rows * OUTPUTS];
        product(
            faer::MatMut::from_row_major_slice_mut(&mut out, rows, OUTPUTS),
            false,
            1.0,
            MatRef::from_row_major_slice(values, rows, self.d_out),
            MatRef::from_row_major_slice(m, self.d_out, OUTPUTS),
        );
        out
    }
}

/// Some queries of every sequence, and the same sequence by sequence.
fn some_queries(groups: &Groups, k: usize, rng: &mut ChaCha8Rng) -> (Vec<Row>, Vec<(usize, Vec<usize>)>) {
    let sequences: usize = groups.iter().map(Vec::len).sum();
    let some = (QUERIES / sequences).clamp(1, k);
    let mut places: Vec<usize> = (0..k).collect();
    let (mut rows, mut asked) = (Vec::with_capacity(sequences * some), Vec::with_capacity(sequences));
    for (unit, group) in groups.iter().enumerate() {
        for &sequence in group {
            places.shuffle(rng);
            let mut chosen = places[..some].to_vec();
            chosen.sort_unstable();
            rows.extend(chosen.iter().map(|&a| Row { unit, sequence, a }));
            asked.push((sequence, chosen));
        }
    }
    (rows, asked)
}

/// The part of every unit in cross-validation.
fn folds(units: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut folds: Vec<usize> = (0..units).map(|i| i % FOLDS).collect();
    folds.shuffle(rng);
    folds
}
