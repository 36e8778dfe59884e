//! Whether residuals are larger where attention is unsure.
//!
//! A layer that approximates a rougher function — hard attention, a few keys instead of all — leaves residuals that look random but for their size: next
//! to nothing where one key leads by far, all where two are about the same. No mean knows of it. So the normal scores `s_a` of the ranks of `‖R_a‖²` are
//! predicted from what each of the layer's own heads is unsure of, from the examples that the layer was learned from to the others.
//!
//! Noise may well be larger where outputs are, roundings are: powers of `log ‖F_a‖²` are taken away from both first. Where the layer has more leverage its
//! residuals are smaller among the examples learned from and larger among the others: what fits one is of the wrong sign for the other.
//!
//! Noise of such sizes is possible, and then nothing tells it from another function: this finds that it *cannot be told*, no more.

use super::FEW;
use super::dictionary::{Dictionary, Sequence};
use super::prediction::{Tests, columns, without};
use crate::linalg::Mat;
use crate::parallel;
use statrs::function::erf::erfc_inv;

/// Ridge, as a share of the number of queries.
const RIDGE: f64 = 3e-2;
/// Powers of the outputs' size that are taken away.
const POWERS: i32 = 4;

/// Standard deviations by which doubt of attention and size of residuals go together, and the share of the sizes' variance that it explains; none if there
/// are too few sequences to tell.
pub(super) fn by_doubt(
    tests: &Tests<'_>,
    dictionary: &Dictionary,
    sequences: &[Sequence<'_>],
    asked: &[(usize, Vec<usize>)],
    residuals: &Mat<f64>,
) -> Option<(f64, f64)> {
    let fresh = tests.fresh.iter().filter(|fresh| **fresh).count();
    if fresh < FEW || tests.fresh.len() - fresh < FEW {
        return None;
    }
    let squares: Vec<f64> = (0..residuals.nrows()).map(|i| residuals.row(i).squared_norm_l2()).collect();
    let outputs =
        columns(parallel::map(asked, |(sequence, queries)| powers(dictionary.sizes(&sequences[*sequence], queries))).concat());
    let doubt = columns(parallel::map(asked, |(sequence, queries)| dictionary.doubt(&sequences[*sequence], queries)).concat());
    let scores = normal_scores(&squares);
    let scores = without(&outputs, &Mat::from_fn(scores.len(), 1, |i, _| scores[i]));
    let doubt = without(&outputs, &doubt);
    tests.predicted(&doubt, &scores, RIDGE)
}

/// `1, v, v², …` of every number.
fn powers(values: Vec<f64>) -> Vec<Vec<f64>> {
    values.into_iter().map(|v| (0..=POWERS).map(|power| v.powi(power)).collect()).collect()
}

/// `Φ⁻¹((rank + ½)/n)`: heavy tails of squares are no matter.
fn normal_scores(values: &[f64]) -> Vec<f64> {
    let n = values.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut scores = vec![0.0; n];
    for (rank, &i) in order.iter().enumerate() {
        scores[i] = -std::f64::consts::SQRT_2 * erfc_inv((2.0 * rank as f64 + 1.0) / n as f64);
    }
    scores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_scores_are_those_of_a_normal_variable() {
        let scores = normal_scores(&[1e300, 0.0, -4.0]);
        // Φ⁻¹(5/6), Φ⁻¹(1/2), Φ⁻¹(1/6).
        let wanted = [0.967_421_566_101_701, 0.0, -0.967_421_566_101_701];
        assert!(scores.iter().zip(wanted).all(|(s, w)| (s - w).abs() < 1e-9), "{scores:?}");
    }
}
