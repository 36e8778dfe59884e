//! Residuals predicted from inputs, sequence by sequence. With `G_i` what is predicted of sequence `i` from others, and `R_i` its residuals,
//!
//! ```text
//! s_i = ⟨G_i, R_i⟩,     t = mean(s) / (sd(s)/√n),     explained = (Σ s_i)² / (Σ ‖G_i‖² Σ ‖R_i‖²)
//! ```
//!
//! Two such sums are looked at for each family and ridge: those that the layer was not learned from, predicted from those that it was; and all sequences,
//! a fifth of them predicted from the others. In the second `G` is linear in the same residuals, `s_i = Σ_j ⟨R_i, A_ij R_j⟩` with `A` symmetric, so that
//! `s_i` and `s_j` share a term: of noise `Σ s_i` has twice the variance that `sd(s)` shows, and `t` is divided by `√2`.

use super::Dependence;
use crate::linalg::Mat;
use crate::linalg::cholesky::{small_cholesky, solve};
use crate::linalg::symmetric::product;

/// Groups for cross-validation.
pub(super) const FOLDS: usize = 5;
/// Ridges, as shares of the number of queries; columns have mean square 1.
pub(super) const RIDGES: [f64; 3] = [1e-3, 3e-2, 0.6];
/// Chance that one of all tests is beyond its threshold where there is nothing to find.
const ALPHA: f64 = 1e-3;
/// Share of the residuals below which dependence is no lack of fit.
const LEAST: f64 = 0.01;
/// Standard deviations from which a test that found nothing is too near to it for noise to be said: of all tests of noise none is beyond, but in a few
/// runs of a hundred.
const DOUBT: f64 = 3.0;

/// One query that is looked at.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub unit: usize,
    pub sequence: usize,
    pub a: usize,
}

/// The clearest test of some.
#[derive(Clone, Copy, Default)]
pub(super) struct Strength {
    pub z: f64,
    pub share: f64,
    pub by: Option<Dependence>,
    /// Whether any of them came near its threshold.
    pub doubtful: bool,
}

impl Strength {
    pub fn found(&self, threshold: f64) -> bool {
        self.z >= threshold && self.share >= LEAST
    }

    /// Takes another if that is found and explains more, or is clearer and neither is found.
    pub fn take(&mut self, (z, share): (f64, f64), by: Dependence, threshold: f64) {
        let doubtful = self.doubtful || (z >= DOUBT && share >= LEAST);
        let other = Self { z, share, by: Some(by), doubtful };
        let better = match (self.found(threshold), other.found(threshold)) {
            (true, true) => other.share > self.share,
            (false, true) => true,
            (true, false) => false,
            (false, false) => other.z > self.z,
        };
        if better {
            *self = other;
        }
        self.doubtful = doubtful;
    }
}

/// What is predicted, and from what.
pub(super) struct Tests<'a> {
    pub rows: &'a [Row],
    /// Of every unit.
    pub fold_of: &'a [usize],
    /// Whether a unit was not learned from.
    pub fresh: &'a [bool],
}

/// Numbers of a family, row by row, about their means and with mean square 1; those that are always the same are left out, but the first, which is 1.
pub(super) fn columns(rows: Vec<Vec<f64>>) -> Mat<f64> {
    let width = rows.first().map_or(0, Vec::len);
    let mut phi = Mat::from_fn(rows.len(), width, |i, j| rows[i][j]);
    let n = rows.len() as f64;
    let mut kept = vec![0];
    for j in 1..width {
        let mut column = phi.col_mut(j);
        let mean = (0..rows.len()).map(|i| column[i]).sum::<f64>() / n;
        let square = (0..rows.len()).map(|i| column[i].powi(2)).sum::<f64>() / n;
        let variance = (0..rows.len()).map(|i| (column[i] - mean).powi(2)).sum::<f64>() / n;
        if variance.is_finite() && variance > 1e-18 * square && variance > 0.0 {
            (0..rows.len()).for_each(|i| column[i] = (column[i] - mean) / variance.sqrt());
            kept.push(j);
        }
    }
    Mat::from_fn(rows.len(), kept.len(), |i, j| phi[(i, kept[j])])
}

/// Normal equations `ΦᵀΦ B = ΦᵀY` of some rows.
struct Equations {
    gram: Mat<f64>,
    cross: Mat<f64>,
    rows: usize,
}

impl Equations {
    fn zero(p: usize, q: usize) -> Self {
        Self { gram: Mat::zeros(p, p), cross: Mat::zeros(p, q), rows: 0 }
    }

    fn of(phi: &Mat<f64>, y: &Mat<f64>, rows: &[usize]) -> Self {
        let (phi, y) = (take(phi, rows), take(y, rows));
        let mut equations = Self::zero(phi.ncols(), y.ncols());
        product(equations.gram.as_mut(), false, 1.0, phi.transpose(), phi.as_ref());
        product(equations.cross.as_mut(), false, 1.0, phi.transpose(), y.as_ref());
        equations.rows = rows.len();
        equations
    }

    fn add(&mut self, other: &Self) {
        self.gram += &other.gram;
        self.cross += &other.cross;
        self.rows += other.rows;
    }

    fn solved(&self, ridge: f64) -> Option<Mat<f64>> {
        let mut l = self.gram.clone();
        (0..l.nrows()).for_each(|i| l[(i, i)] += ridge * self.rows as f64);
        small_cholesky(l.as_mut()).ok()?;
        let mut b = self.cross.clone();
        solve(l.as_ref(), b.as_mut());
        Some(b)
    }
}

fn take(m: &Mat<f64>, rows: &[usize]) -> Mat<f64> {
    Mat::from_fn(rows.len(), m.ncols(), |i, j| m[(rows[i], j)])
}

/// `Φ B` of some rows.
fn predict(phi: &Mat<f64>, b: &Mat<f64>, rows: &[usize], predicted: &mut Mat<f64>) {
    let phi = take(phi, rows);
    let mut out = Mat::zeros(rows.len(), b.ncols());
    product(out.as_mut(), false, 1.0, phi.as_ref(), b.as_ref());
    for (i, &row) in rows.iter().enumerate() {
        (0..b.ncols()).for_each(|j| predicted[(row, j)] = out[(i, j)]);
    }
}

/// `Y` without what `A` explains of it by least squares.
pub(super) fn without(a: &Mat<f64>, y: &Mat<f64>) -> Mat<f64> {
    let all: Vec<usize> = (0..y.nrows()).collect();
    let mut predicted = Mat::zeros(y.nrows(), y.ncols());
    if let Some(b) = Equations::of(a, y, &all).solved(1e-9) {
        predict(a, &b, &all, &mut predicted);
    }
    y - predicted
}

impl Tests<'_> {
    fn rows_of(&self, chosen: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.rows.len()).filter(|row| chosen(self.rows[*row].unit)).collect()
    }

    /// The tests of one family, for every target: its number, standard deviations and share explained.
    pub fn strengths(&self, phi: &Mat<f64>, targets: &[Mat<f64>], mut found: impl FnMut(usize, (f64, f64))) {
        let q = targets[0].ncols();
        let y = Mat::from_fn(phi.nrows(), q * targets.len(), |i, j| targets[j / q][(i, j % q)]);
        let mut look = |predicted: &Mat<f64>, scale: f64, among: &dyn Fn(usize) -> bool| {
            for (i, target) in targets.iter().enumerate() {
                let one = predicted.as_ref().subcols(i * q, q).to_owned();
                let (z, share) = self.strength(&one, target, among);
                found(i, (scale * z, share));
            }
        };
        let folds: Vec<Vec<usize>> = (0..FOLDS).map(|fold| self.rows_of(|unit| self.fold_of[unit] == fold)).collect();
        let parts: Vec<Equations> = folds.iter().map(|rows| Equations::of(phi, &y, rows)).collect();
        let (old, new) = (self.rows_of(|unit| !self.fresh[unit]), self.rows_of(|unit| self.fresh[unit]));
        let enough = self.fresh.iter().filter(|fresh| **fresh).count() >= super::FEW && old.len() >= super::FEW;
        let learned = enough.then(|| Equations::of(phi, &y, &old));
        for ridge in RIDGES {
            let mut predicted = Mat::zeros(phi.nrows(), y.ncols());
            for (fold, rows) in folds.iter().enumerate() {
                let mut others = Equations::zero(phi.ncols(), y.ncols());
                parts.iter().enumerate().filter(|(other, _)| *other != fold).for_each(|(_, part)| others.add(part));
                if let Some(b) = others.solved(ridge) {
                    predict(phi, &b, rows, &mut predicted);
                }
            }
            look(&predicted, 0.5_f64.sqrt(), &|_| true);
            if let Some(b) = learned.as_ref().and_then(|learned| learned.solved(ridge)) {
                let mut predicted = Mat::zeros(phi.nrows(), y.ncols());
                predict(phi, &b, &new, &mut predicted);
                look(&predicted, 1.0, &|unit| self.fresh[unit]);
            }
        }
    }

    /// What predicts a target where the layer was learned, tried where it was not: standard deviations and share explained.
    pub fn predicted(&self, phi: &Mat<f64>, target: &Mat<f64>, ridge: f64) -> Option<(f64, f64)> {
        let (old, new) = (self.rows_of(|unit| !self.fresh[unit]), self.rows_of(|unit| self.fresh[unit]));
        let b = Equations::of(phi, target, &old).solved(ridge)?;
        let mut predicted = Mat::zeros(phi.nrows(), target.ncols());
        predict(phi, &b, &new, &mut predicted);
        Some(self.strength(&predicted, target, |unit| self.fresh[unit]))
    }

    /// Standard deviations by which predictions and residuals agree on some units, and the share of the residuals that they explain.
    pub fn strength(&self, predicted: &Mat<f64>, target: &Mat<f64>, among: impl Fn(usize) -> bool) -> (f64, f64) {
        let mut agreement: Vec<Option<f64>> = vec![None; self.fold_of.len()];
        let (mut ours, mut theirs) = (0.0, 0.0);
        for (row, query) in self.rows.iter().enumerate().filter(|(_, query)| among(query.unit)) {
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

/// A mean in standard deviations, as a normal variable; the mean and its standard error.
pub(super) fn standard(values: &[f64]) -> (f64, f64, f64) {
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
pub(super) fn threshold(count: usize) -> f64 {
    // P[N > z] ≤ e^{−z²/2} / (z √(2π)), by iteration.
    let target = ALPHA / count.max(1) as f64;
    let mut z = 3.0_f64;
    for _ in 0..50 {
        z = (-2.0 * (target * z * std::f64::consts::TAU.sqrt()).ln()).max(1.0).sqrt();
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// Thresholds are those of a normal variable, on the safe side, and Student's t counts as one.
    #[test]
    fn thresholds_are_those_of_a_normal_variable() {
        // P[N > 3.0902] = 10⁻³, P[N > 4.1075] = 2·10⁻⁵.
        assert!(
            (threshold(1) - 3.0902).abs() < 0.06 && (threshold(50) - 4.1075).abs() < 0.06,
            "{} {}",
            threshold(1),
            threshold(50)
        );
        assert_eq!(standard(&[1.0, 1.0]).0.to_bits(), 0.0_f64.to_bits());
        // Of few values the same t says less.
        let of = |n: usize| standard(&(0..n).map(|i| if i % 2 == 0 { 1.0 } else { 0.2 }).collect::<Vec<_>>()).0;
        assert!(of(6) < of(12) && of(12) < of(24) && of(24) > 5.0);
    }

    /// Noise on random functions, cross-validated: standard deviations are those of a standard normal variable, at most, and not √2 times as many.
    #[test]
    fn cross_validated_noise_has_unit_variance() {
        let (n, p, runs) = (60, 10, 400);
        let rows: Vec<Row> = (0..n).map(|i| Row { unit: i, sequence: i, a: 0 }).collect();
        let fold_of: Vec<usize> = (0..n).map(|i| i % FOLDS).collect();
        let fresh = vec![false; n];
        let tests = Tests { rows: &rows, fold_of: &fold_of, fresh: &fresh };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut squares = [0.0; RIDGES.len()];
        for _ in 0..runs {
            let mut normal = |rows, columns| Mat::from_fn(rows, columns, |_, _| rng.sample::<f64, _>(StandardNormal));
            let (phi, target) = (normal(n, p), normal(n, 1));
            let mut ridge = 0;
            tests.strengths(&phi, &[target], |_, (z, _)| {
                squares[ridge] += z * z / f64::from(runs);
                ridge += 1;
            });
        }
        // The mean square is 1 up to five standard deviations, √(2/runs) each, and a little: predictions differ from fold to fold.
        let tolerance = 5.0 * (2.0 / f64::from(runs)).sqrt();
        assert!(squares.iter().all(|square| (square - 1.0).abs() < tolerance + 0.1), "{squares:?}");
    }

    /// A test that is found and explains more wins; one that comes near makes doubtful whatever wins.
    #[test]
    fn the_strongest_test_is_taken_and_doubt_is_kept() {
        let mut best = Strength::default();
        best.take((6.0, 0.008), Dependence::Query, 4.5);
        assert!(!best.found(4.5) && !best.doubtful && best.by == Some(Dependence::Query));
        best.take((3.5, 0.02), Dependence::Tokens, 4.5);
        assert!(!best.found(4.5) && best.doubtful && best.by == Some(Dependence::Query));
        best.take((5.0, 0.02), Dependence::Outputs, 4.5);
        assert!(best.found(4.5) && best.by == Some(Dependence::Outputs));
        best.take((9.0, 0.015), Dependence::Heads, 4.5);
        assert_eq!(best.by, Some(Dependence::Outputs));
        best.take((4.6, 0.3), Dependence::OtherHeads, 4.5);
        assert_eq!(best.by, Some(Dependence::OtherHeads));
    }

    #[test]
    fn what_is_explained_is_taken_away() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut normal = |rows, columns| Mat::from_fn(rows, columns, |_, _| rng.sample::<f64, _>(StandardNormal));
        let (a, b, other) = (normal(50, 4), normal(4, 3), normal(50, 3));
        assert!(without(&a, &(&a * &b)).norm_max() < 1e-6);
        let rest = without(&a, &other);
        assert!((a.transpose() * &rest).norm_max() < 1e-6 && rest.norm_max() > 0.5);
    }
}
