//! Noise or lack of fit: whether what a layer leaves unexplained depends on the inputs.
//!
//! Residuals `R = Y − F̂(X)` of noise know nothing of `X`; those of a layer of the wrong form do. So they are predicted from the inputs, sequence by
//! sequence: by ridge regression on several hundred functions of the inputs of one family ([`Dependence`]), from the residuals `R_j` of other sequences. With `G_i` what is
//! predicted of sequence `i`,
//!
//! ```text
//! s_i = ⟨G_i, R_i⟩,     t = mean(s) / (sd(s)/√n),     explained = (Σ s_i)² / (Σ ‖G_i‖² Σ ‖R_i‖²)
//! ```
//!
//! Sequences are the independent units: tokens of one have noise in common for all that is known. Two such sums are looked at for each family and ridge: all
//! sequences, a fifth of them predicted from the others; and those that the layer was not learned from, predicted from those that it was. Where it is a layer
//! with noise, both have mean 0 or less: residuals of the examples learned from are `(I − P)ε`, which says nothing of `Pε`, the layer's own error, nor of noise elsewhere; among
//! themselves their covariance is `−P`.
//!
//! **Copies** of one input say it without any family: residuals of two of them, `⟨R_i, R_j⟩`, have mean 0 if they are noise, and otherwise that of the
//! squared lack of fit (the classical test of pure error). Examples that stand there twice with the same outputs are one example.
//!
//! Dependence is *found* if a test is beyond [`LackOfFit::threshold`] and explains a hundredth of the residuals at least; less than that is no more than the residue of a search
//! that ends. The threshold is that of a chance of 10⁻³ for all tests of a run together (Bonferroni).
//!
//! **Power.** That nothing was found means something only if there was something to find it with. So the same tests are given residuals half of whose variance is a random function
//! that is no such layer, `√½ R + √½ P` (a missing head, a sharp one, ReLU attention, causal attention, values by position, a network of query and mean, a maximum, a product of two heads):
//! `power` is the share of those that they notice. Below three quarters it cannot be told; it can, too, where copies alone would have shown half the variance.
//! No test sees everything: a function that looks random at every scale is noise to all of them, copies excepted.

mod dictionary;
mod words;

use crate::descend::Batch;
use crate::hash::Hash;
use crate::layer::AttentionLayer;
use crate::linalg::Mat;
use crate::linalg::cholesky::{small_cholesky, solve};
use crate::linalg::symmetric::product;
pub use dictionary::Dependence;
use dictionary::{Dictionary, Plant, Sequence};
use faer::MatRef;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::Serialize;
use std::collections::HashMap;
pub(super) use words::Found;

/// Sequences that are looked at, at most.
pub(super) const MOST: usize = 4000;
/// Queries that are looked at, at most.
const QUERIES: usize = 16_000;
/// Outputs that are looked at; random directions where there are more.
const OUTPUTS: usize = 16;
/// Sequences below which nothing can be told.
const FEW: usize = 12;
/// Groups for cross-validation.
const FOLDS: usize = 5;
/// Ridges, as shares of the number of queries; columns have mean square 1.
const RIDGES: [f64; 3] = [1e-3, 3e-2, 0.6];
/// Chance that one of all tests is beyond its threshold where there is nothing to find.
const ALPHA: f64 = 1e-3;
/// Share of the residuals below which dependence is no lack of fit.
const LEAST: f64 = 0.01;
/// Functions planted of every kind, and the share of them that has to be noticed.
const PLANTS: usize = 2;
const POWER: f64 = 0.75;
/// Standard deviations from which a test that found nothing is too near to it for noise to be said: of all tests of noise none is beyond, but in a few runs of a hundred.
const DOUBT: f64 = 3.0;

/// What residuals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No test found dependence on the inputs, and they would have.
    Noise,
    /// They depend on the inputs.
    AnotherFunction,
    /// No test found dependence, but neither would they have.
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
    /// Share of planted functions of half their variance that the tests notice; none where dependence was found.
    pub power: Option<f64>,
    /// Inputs that occur more than once with different outputs.
    pub copies: usize,
}

/// Examples on which residuals are looked at, those that a layer is not learned from last.
pub(super) struct Look {
    examples: Batch<f64>,
    /// How many of them are not learned from.
    fresh: usize,
}

impl Look {
    /// Some of the examples learned from, then those to choose by.
    pub(super) fn at(learn: &Batch<f64>, choose: &Batch<f64>) -> Self {
        let fresh: Vec<usize> = (0..choose.len().min(MOST)).collect();
        let learned: Vec<usize> = (0..learn.len().min(MOST - fresh.len())).collect();
        let (mut examples, choose) = (learn.select(&learned), choose.select(&fresh));
        examples.x.extend(choose.x);
        examples.y.extend(choose.y);
        Self { examples, fresh: fresh.len() }
    }

    /// Standard deviation, over sequences, of the squared error of one, as a share of its mean: what chance does to a mean of many. It knows of heavy tails, and of noise
    /// that outputs or tokens have in common.
    pub(super) fn spread(&self, layer: &AttentionLayer) -> f64 {
        let shape = self.examples.shape;
        let f = layer.forward(shape.k, &self.examples.x);
        let square = |(y, f): (&[f64], &[f64])| y.iter().zip(f).map(|(y, f)| (y - f).powi(2)).sum::<f64>();
        let per = shape.k * shape.d_out;
        let squares: Vec<f64> = self.examples.y.chunks_exact(per).zip(f.chunks_exact(per)).map(square).collect();
        let (_, mean, error) = standard(&squares);
        let spread = error * (squares.len() as f64).sqrt() / mean;
        if spread.is_finite() { spread } else { 0.0 }
    }

    /// Whether what a layer leaves of them depends on their inputs; `wider` are students with more heads, if any were tried.
    pub(super) fn residuals(&self, layer: &AttentionLayer, wider: &[AttentionLayer], seed: u64) -> LackOfFit {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6c61_636b_6f66_6669);
        let cannot = |sequences: usize| LackOfFit {
            verdict: Verdict::CannotTell,
            sequences,
            by: None,
            explained: 0.0,
            z: 0.0,
            threshold: threshold(1),
            power: None,
            copies: 0,
        };
        let shape = self.examples.shape;
        let (n, per_x, per_y) = (self.examples.len(), shape.k * shape.d, shape.k * shape.d_out);
        let f = layer.forward(shape.k, &self.examples.x);
        let units = Units::of(&self.examples);
        let rows = self.examples.y.len() / shape.d_out;
        let scale = (self.examples.y.iter().map(|y| y * y).sum::<f64>() / self.examples.y.len() as f64).sqrt();
        if units.groups.len() < FEW || !(scale > 0.0 && scale.is_finite()) {
            return cannot(units.groups.len());
        }
        let Some(dictionary) = Dictionary::new(layer, &self.examples.x, scale, &mut rng) else {
            return cannot(units.groups.len());
        };

        // Residuals in units of their size, of as many directions of the outputs as are looked at.
        let directions = (shape.d_out > OUTPUTS).then(|| {
            let size = 1.0 / (shape.d_out as f64).sqrt();
            (0..shape.d_out * OUTPUTS).map(|_| size * rng.sample::<f64, _>(StandardNormal)).collect::<Vec<f64>>()
        });
        let seen = |values: &[f64]| -> Vec<f64> {
            match &directions {
                None => values.to_vec(),
                Some(m) => project(values, m, shape.d_out, OUTPUTS),
            }
        };
        let q = shape.d_out.min(OUTPUTS);
        let miss = |f: &[f64]| -> Vec<f64> { self.examples.y.iter().zip(f).map(|(y, f)| y - f).collect() };
        let residuals = seen(&miss(&f));
        let size = (residuals.iter().map(|r| r * r).sum::<f64>() / (rows * q) as f64).sqrt();
        if !(size > 0.0 && size.is_finite()) {
            return cannot(units.groups.len());
        }
        let residuals: Vec<f64> = residuals.iter().map(|r| r / size).collect();

        // Some queries of every sequence.
        let kept: Vec<usize> = units.groups.iter().flatten().copied().collect();
        let some = (QUERIES / kept.len()).clamp(1, shape.k);
        let mut places: Vec<usize> = (0..shape.k).collect();
        let mut queries = Vec::with_capacity(kept.len() * some);
        for (unit, group) in units.groups.iter().enumerate() {
            for &sequence in group {
                places.shuffle(&mut rng);
                let mut chosen = places[..some].to_vec();
                chosen.sort_unstable();
                queries.extend(chosen.into_iter().map(|a| Query { unit, sequence, a }));
            }
        }
        let fold_of: Vec<usize> = {
            let mut folds: Vec<usize> = (0..units.groups.len()).map(|i| i % FOLDS).collect();
            folds.shuffle(&mut rng);
            folds
        };
        // A group is fresh if all of it is.
        let fresh: Vec<bool> = units.groups.iter().map(|group| group.iter().all(|i| *i >= n - self.fresh)).collect();
        let tests = Tests { queries: &queries, fold_of: &fold_of, fresh: &fresh };
        let pick = |values: &[f64], width: usize| -> Mat<f64> {
            Mat::from_fn(queries.len(), width, |row, j| {
                let Query { sequence, a, .. } = queries[row];
                values[(sequence * shape.k + a) * width + j]
            })
        };
        let sequences: Vec<Sequence<'_>> = (0..n)
            .map(|i| dictionary.sequence(&self.examples.x[i * per_x..(i + 1) * per_x], &f[i * per_y..(i + 1) * per_y]))
            .collect();

        // Residuals first, then residuals with something planted.
        let mut targets = vec![pick(&residuals, q)];
        for kind in (0..Plant::KINDS).flat_map(|kind| std::iter::repeat_n(kind, PLANTS)) {
            let plant = Plant::new(kind, &dictionary, shape.k, q, &mut rng);
            let values: Vec<f64> = sequences.iter().flat_map(|sequence| plant.outputs(&dictionary, sequence, q)).collect();
            let mut planted = pick(&values, q);
            standardise(&mut planted);
            let half = 0.5_f64.sqrt();
            targets.push(&targets[0] * faer::Scale(half) + planted * faer::Scale(half));
        }
        let copies = units.copies(&residuals, shape.k * q);
        let others: Vec<Vec<f64>> = wider
            .iter()
            .map(|other| {
                let difference: Vec<f64> = other.forward(shape.k, &self.examples.x).iter().zip(&f).map(|(g, f)| g - f).collect();
                seen(&difference)
            })
            .collect();
        let count = 2 * RIDGES.len() * Dependence::FAMILIES.len() + others.len() + usize::from(copies.is_some());
        let threshold = threshold(count);
        let mut best = vec![Strength::default(); targets.len()];
        for family in Dependence::FAMILIES {
            let phi = tests.columns(&dictionary, family, &sequences);
            for (best, found) in best.iter_mut().zip(tests.strengths(&phi, &targets)) {
                best.take(found, family, threshold);
            }
        }
        for difference in &others {
            let found = tests.strength(&pick(difference, q), &targets[0], |unit| fresh[unit]);
            best[0].take(found, Dependence::WiderStudent, threshold);
        }
        if let Some(copies) = &copies {
            best[0].take((copies.z, copies.share), Dependence::Copies, threshold);
        }
        let found = best[0];
        let noticed = best[1..].iter().filter(|best| best.found(threshold)).count();
        let power = noticed as f64 / (best.len() - 1) as f64;
        let by_copies = copies.as_ref().is_some_and(|copies| threshold * copies.error <= 0.5);
        // What is nearly found is not noise for certain; less than a hundredth is nothing.
        let doubtful = found.z >= DOUBT && found.share >= LEAST;
        let told = !doubtful && (power >= POWER || by_copies);
        let verdict = match (found.found(threshold), told) {
            (true, _) => Verdict::AnotherFunction,
            (false, true) => Verdict::Noise,
            (false, false) => Verdict::CannotTell,
        };
        LackOfFit {
            verdict,
            sequences: units.groups.len(),
            by: found.by,
            explained: found.share,
            z: found.z,
            threshold,
            power: (verdict != Verdict::AnotherFunction).then_some(power),
            copies: copies.map_or(0, |copies| copies.groups),
        }
    }
}

/// The clearest test of some.
#[derive(Clone, Copy, Default)]
struct Strength {
    z: f64,
    share: f64,
    by: Option<Dependence>,
}

impl Strength {
    fn found(&self, threshold: f64) -> bool {
        self.z >= threshold && self.share >= LEAST
    }

    /// Takes another if that is found and explains more, or is clearer and neither is found.
    fn take(&mut self, (z, share): (f64, f64), by: Dependence, threshold: f64) {
        let other = Self { z, share, by: Some(by) };
        let better = match (self.found(threshold), other.found(threshold)) {
            (true, true) => other.share > self.share,
            (false, true) => true,
            (true, false) => false,
            (false, false) => other.z > self.z,
        };
        if better {
            *self = other;
        }
    }
}

/// One query that is looked at.
#[derive(Clone, Copy)]
struct Query {
    unit: usize,
    sequence: usize,
    a: usize,
}

struct Tests<'a> {
    queries: &'a [Query],
    fold_of: &'a [usize],
    fresh: &'a [bool],
}

impl Tests<'_> {
    /// The numbers of a family for all queries, with mean square 1; those that are always 0 are left out.
    fn columns(&self, dictionary: &Dictionary, family: Dependence, sequences: &[Sequence<'_>]) -> Mat<f64> {
        let mut of: HashMap<usize, Vec<Vec<f64>>> = HashMap::new();
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(self.queries.len());
        for query in self.queries {
            if !of.contains_key(&query.sequence) {
                of.clear();
            }
            let all = of.entry(query.sequence).or_insert_with(|| dictionary.features(family, &sequences[query.sequence]));
            rows.push(std::mem::take(&mut all[query.a]));
        }
        let width = rows.first().map_or(0, Vec::len);
        let mut phi = Mat::from_fn(rows.len(), width, |i, j| rows[i][j]);
        // All but the first, which is 1, about their means.
        let n = rows.len() as f64;
        let mut kept = vec![0];
        for j in 1..width {
            let mut column = phi.col_mut(j);
            let mean = (0..rows.len()).map(|i| column[i]).sum::<f64>() / n;
            let square = (0..rows.len()).map(|i| column[i].powi(2)).sum::<f64>() / n;
            let sd = (0..rows.len()).map(|i| (column[i] - mean).powi(2)).sum::<f64>() / n;
            if sd.is_finite() && sd > 1e-18 * square && sd > 0.0 {
                (0..rows.len()).for_each(|i| column[i] = (column[i] - mean) / sd.sqrt());
                kept.push(j);
            }
        }
        Mat::from_fn(rows.len(), kept.len(), |i, j| phi[(i, kept[j])])
    }

    /// The clearest of the tests of one family, for every target: standard deviations and share explained.
    fn strengths(&self, phi: &Mat<f64>, targets: &[Mat<f64>]) -> Vec<(f64, f64)> {
        let (p, q) = (phi.ncols(), targets[0].ncols());
        let y = Mat::from_fn(phi.nrows(), q * targets.len(), |i, j| targets[j / q][(i, j % q)]);
        let rows_of = |chosen: &dyn Fn(usize) -> bool| -> Vec<usize> {
            (0..phi.nrows()).filter(|row| chosen(self.queries[*row].unit)).collect()
        };
        let take = |m: &Mat<f64>, rows: &[usize]| Mat::from_fn(rows.len(), m.ncols(), |i, j| m[(rows[i], j)]);
        let moments = |rows: &[usize]| -> (Mat<f64>, Mat<f64>) {
            let (phi, y) = (take(phi, rows), take(&y, rows));
            let (mut gram, mut cross) = (Mat::zeros(p, p), Mat::zeros(p, y.ncols()));
            product(gram.as_mut(), false, 1.0, phi.transpose(), phi.as_ref());
            product(cross.as_mut(), false, 1.0, phi.transpose(), y.as_ref());
            (gram, cross)
        };
        let fold_rows: Vec<Vec<usize>> = (0..FOLDS).map(|fold| rows_of(&|unit| self.fold_of[unit] == fold)).collect();
        let sums: Vec<(Mat<f64>, Mat<f64>)> = fold_rows.iter().map(|rows| moments(rows)).collect();
        let (old_rows, new_rows) = (rows_of(&|unit| !self.fresh[unit]), rows_of(&|unit| self.fresh[unit]));
        let new_units = self.fresh.iter().filter(|fresh| **fresh).count();
        let mut best = vec![(f64::NEG_INFINITY, 0.0); targets.len()];
        let mut look = |predicted: &Mat<f64>, among: &dyn Fn(usize) -> bool| {
            for (i, best) in best.iter_mut().enumerate() {
                let one = predicted.as_ref().subcols(i * q, q).to_owned();
                let found = self.strength(&one, &targets[i], among);
                if found.0 > best.0 {
                    *best = found;
                }
            }
        };
        let solved = |gram: &Mat<f64>, cross: &Mat<f64>, rows: usize, ridge: f64| -> Option<Mat<f64>> {
            let mut l = gram.clone();
            (0..p).for_each(|i| l[(i, i)] += ridge * rows as f64);
            small_cholesky(l.as_mut()).ok()?;
            let mut b = cross.clone();
            solve(l.as_ref(), b.as_mut());
            Some(b)
        };
        let put = |b: &Mat<f64>, rows: &[usize], predicted: &mut Mat<f64>| {
            let phi = take(phi, rows);
            let mut out = Mat::zeros(rows.len(), b.ncols());
            product(out.as_mut(), false, 1.0, phi.as_ref(), b.as_ref());
            for (i, &row) in rows.iter().enumerate() {
                (0..b.ncols()).for_each(|j| predicted[(row, j)] = out[(i, j)]);
            }
        };
        let old = (new_units >= FEW && old_rows.len() >= FEW).then(|| moments(&old_rows));
        for ridge in RIDGES {
            let mut predicted = Mat::zeros(phi.nrows(), y.ncols());
            for fold in 0..FOLDS {
                let (mut gram, mut cross) = (Mat::zeros(p, p), Mat::zeros(p, y.ncols()));
                for (other, (g, c)) in sums.iter().enumerate().filter(|(other, _)| *other != fold) {
                    debug_assert_ne!(other, fold);
                    gram += g;
                    cross += c;
                }
                if let Some(b) = solved(&gram, &cross, phi.nrows() - fold_rows[fold].len(), ridge) {
                    put(&b, &fold_rows[fold], &mut predicted);
                }
            }
            look(&predicted, &|_| true);
            if let Some((gram, cross)) = &old
                && let Some(b) = solved(gram, cross, old_rows.len(), ridge)
            {
                let mut predicted = Mat::zeros(phi.nrows(), y.ncols());
                put(&b, &new_rows, &mut predicted);
                look(&predicted, &|unit| self.fresh[unit]);
            }
        }
        best
    }

    /// Standard deviations by which predictions and residuals agree on some units, and the share of the residuals that they explain.
    fn strength(&self, predicted: &Mat<f64>, target: &Mat<f64>, among: impl Fn(usize) -> bool) -> (f64, f64) {
        let mut agreement: Vec<Option<f64>> = vec![None; self.fold_of.len()];
        let (mut ours, mut theirs) = (0.0, 0.0);
        for (row, query) in self.queries.iter().enumerate().filter(|(_, query)| among(query.unit)) {
            let sum = agreement[query.unit].get_or_insert(0.0);
            for j in 0..target.ncols() {
                let (g, r) = (predicted[(row, j)], target[(row, j)]);
                *sum += g * r;
                ours += g * g;
                theirs += r * r;
            }
        }
        let agreement: Vec<f64> = agreement.into_iter().flatten().collect();
        let total: f64 = agreement.iter().sum();
        let share = if total > 0.0 && ours > 0.0 { total * total / (ours * theirs) } else { 0.0 };
        (standard(&agreement).0, share)
    }
}

/// Examples that share their inputs, as units.
struct Units {
    /// Examples of one input, those that stand there twice with the same outputs once.
    groups: Vec<Vec<usize>>,
}

/// What copies say.
struct Copies {
    groups: usize,
    z: f64,
    /// Share of the residuals that is common to copies.
    share: f64,
    /// Its standard error.
    error: f64,
}

impl Units {
    fn of(examples: &Batch<f64>) -> Self {
        let (per_x, per_y) = (examples.shape.k * examples.shape.d, examples.shape.k * examples.shape.d_out);
        let (mut groups, mut known): (Vec<Vec<usize>>, HashMap<u64, Vec<usize>>) = (Vec::new(), HashMap::new());
        let x = |i: usize| &examples.x[i * per_x..(i + 1) * per_x];
        let y = |i: usize| &examples.y[i * per_y..(i + 1) * per_y];
        let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
        for i in 0..examples.len() {
            let mut hash = Hash::new();
            x(i).iter().for_each(|v| hash.word(v.to_bits()));
            let candidates = known.entry(hash.value()).or_default();
            match candidates.iter().find(|group| same(x(groups[**group][0]), x(i))) {
                Some(&group) => {
                    if !groups[group].iter().any(|other| same(y(*other), y(i))) {
                        groups[group].push(i);
                    }
                }
                None => {
                    candidates.push(groups.len());
                    groups.push(vec![i]);
                }
            }
        }
        Self { groups }
    }

    /// What residuals of copies have in common, if there are enough of them.
    fn copies(&self, residuals: &[f64], per: usize) -> Option<Copies> {
        let of = |i: usize| &residuals[i * per..(i + 1) * per];
        let groups: Vec<&Vec<usize>> = self.groups.iter().filter(|group| group.len() > 1).collect();
        if groups.len() < FEW {
            return None;
        }
        let (mut common, mut square) = (Vec::new(), 0.0);
        for group in &groups {
            // Over all pairs: ‖Σ R‖² − Σ ‖R‖².
            let mut sum = vec![0.0; per];
            group.iter().for_each(|&i| sum.iter_mut().zip(of(i)).for_each(|(s, r)| *s += r));
            let own: f64 = group.iter().map(|&i| of(i).iter().map(|r| r * r).sum::<f64>()).sum();
            let pairs = (group.len() * (group.len() - 1)) as f64;
            common.push((sum.iter().map(|s| s * s).sum::<f64>() - own) / pairs);
            square += own / group.len() as f64;
        }
        let square = square / groups.len() as f64;
        let (z, mean, error) = standard(&common);
        Some(Copies { groups: groups.len(), z, share: (mean / square).max(0.0), error: error / square })
    }
}

/// A mean in standard deviations, as a normal variable; the mean and its standard error.
fn standard(values: &[f64]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    if n < 3.0 {
        return (0.0, 0.0, f64::INFINITY);
    }
    let mean = values.iter().sum::<f64>() / n;
    let error = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
    if error.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
        return (0.0, mean, f64::INFINITY);
    }
    // Wallace's transformation of Student's t.
    let (t, nu) = (mean / error, n - 1.0);
    let z = (nu * (t * t / nu).ln_1p()).sqrt() * (8.0 * nu + 1.0) / (8.0 * nu + 3.0);
    (z.copysign(t), mean, error)
}

/// Standard deviations of a normal variable that one of `count` exceeds with a chance of [`ALPHA`] at most.
fn threshold(count: usize) -> f64 {
    // P[N > z] ≤ e^{−z²/2} / (z √(2π)), by iteration.
    let target = ALPHA / count.max(1) as f64;
    let mut z = 3.0_f64;
    for _ in 0..50 {
        z = (-2.0 * (target * z * std::f64::consts::TAU.sqrt()).ln()).max(1.0).sqrt();
    }
    z
}

/// Columns about their means, and the whole with mean square 1.
fn standardise(m: &mut Mat<f64>) {
    let n = m.nrows() as f64;
    let mut square = 0.0;
    for j in 0..m.ncols() {
        let mut column = m.col_mut(j);
        let mean = (0..column.nrows()).map(|i| column[i]).sum::<f64>() / n;
        (0..column.nrows()).for_each(|i| column[i] -= mean);
        square += (0..column.nrows()).map(|i| column[i].powi(2)).sum::<f64>();
    }
    let size = (square / (n * m.ncols() as f64)).sqrt().max(f64::MIN_POSITIVE);
    *m *= faer::Scale(1.0 / size);
}

fn project(values: &[f64], m: &[f64], from: usize, to: usize) -> Vec<f64> {
    let rows = values.len() / from;
    let mut out = vec![0.0; rows * to];
    product(
        faer::MatMut::from_row_major_slice_mut(&mut out, rows, to),
        false,
        1.0,
        MatRef::from_row_major_slice(values, rows, from),
        MatRef::from_row_major_slice(m, from, to),
    );
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests;
