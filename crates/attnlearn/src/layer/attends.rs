//! What the attention of a head is a function of: the numbers by which heads are compared, whatever they are factored into.
//!
//! ```text
//! bilinear      Θ,   c,   β(Δ) − mean
//! otherwise     Θ(Δ) = A diag(γ) R_{−Δ} diag(κ) Bᵀ,   and with the biases a°, b° in place of a token:
//!               a° Θ(Δ) Bᵀ + c,   A Θ(Δ) b° − mean,   a° Θ(Δ) b° + β(Δ) − mean             over the distances Δ = a − b that are compared
//! ```
//!
//! What is the same for all keys of a query cancels in the softmax: hence the means over distances. Factors themselves are determined up to a complex number for
//! every pair and group only, and pairs that hardly turn show in their sum alone: so `Θ(Δ)` is compared, never factors. Under a norm the
//! scale of a factor does not matter, and its shape does: `A` and `B` (with their biases) are scaled to a mean square of 1, and `AAᵀ`, `BBᵀ` compared as well.

use super::{Head, Scores, Theta};
use crate::linalg::{Mat, MatRef, frobenius};
use crate::scores::{Inner, Mask};

/// Distances that layers are compared over unless others are asked for: those within so many tokens.
pub const DISTANCES: usize = 16;

/// Distances are compared within so many tokens at most.
const FARTHEST: usize = 1 << 16;

/// Of many distances so many are looked at, from the least to the largest.
const STEPS: usize = 9;

/// Two matrices of numbers: what multiplies a query and a key, and what multiplies one of them or neither.
#[derive(Clone, Debug)]
pub(super) struct Attends {
    /// `Θ`, or `Θ(Δ)` side by side.
    pub theta: Mat<f64>,
    /// All else, in one column; `c` where there is nothing else.
    pub biases: Mat<f64>,
}

impl Attends {
    /// Of a head in sequences of `k` tokens.
    pub fn of(head: &Head, scores: &Scores, k: usize) -> Self {
        let k = k.clamp(1, FARTHEST);
        let d = head.theta.d();
        let all = distances(scores.mask, k);
        let relative: Vec<f64> =
            all.iter().map(|distance| head.terms.relative.as_ref().map_or(0.0, |r| r.at(*distance))).collect();
        let c = |i: usize| head.key_bias.as_ref().map_or(0.0, |c| c[i]);
        let factors = match &head.theta {
            Theta::LowRank { a, b } if !scores.is_bilinear() => Some((a, b)),
            _ => None,
        };
        let Some((a, b)) = factors else {
            let mut biases: Vec<f64> = (0..d).map(c).collect();
            biases.extend(around_mean(&relative));
            return Self { theta: head.theta.to_dense(), biases: column(&biases) };
        };
        let unit = scores.norm.is_some();
        let a = with_bias(a, head.terms.query.as_deref(), unit);
        let b = with_bias(b, head.terms.key.as_deref(), unit);
        // Gains and rotation, without the norm: that is nonlinear, and its part is the scale taken out.
        let turns = Scores { norm: None, ..scores.clone() };
        let offset = all.iter().copied().min().unwrap_or(0).unsigned_abs();
        let inner = Inner::<f64>::new(&turns, a.ncols(), offset + k);
        let gains = |side: usize| head.terms.gains.as_ref().map_or_else(|| vec![1.0; a.ncols()], |gains| gains[side].clone());
        let [query, key] = [gains(0), gains(1)];
        let turned = |matrix: &Mat<f64>, gains: &[f64], position: usize| {
            let mut out = Mat::from_fn(matrix.nrows(), matrix.ncols(), |i, j| matrix[(i, j)] * gains[j]);
            for i in 0..matrix.nrows() {
                let mut row: Vec<f64> = (0..matrix.ncols()).map(|j| out[(i, j)]).collect();
                if let Some(inner) = &inner {
                    inner.apply::<1>(position, &[], &mut row);
                }
                row.iter().enumerate().for_each(|(j, v)| out[(i, j)] = *v);
            }
            out
        };
        // A query at Δ + offset sees a key at offset.
        let keys = turned(&b, &key, offset);
        let products: Vec<Mat<f64>> = all
            .iter()
            .map(|distance| turned(&a, &query, distance.saturating_add_unsigned(offset).unsigned_abs()) * keys.transpose())
            .collect();
        let mut theta = Mat::zeros(d, d * all.len());
        let mut biases = Vec::new();
        for (at, product) in products.iter().enumerate() {
            theta.as_mut().subcols_mut(at * d, d).copy_from(product.as_ref().submatrix(0, 0, d, d));
            biases.extend((0..d).map(|j| product[(d, j)] + c(j)));
        }
        for i in 0..d {
            biases.extend(around_mean(&products.iter().map(|product| product[(i, d)]).collect::<Vec<_>>()));
        }
        biases.extend(around_mean(
            &products.iter().zip(&relative).map(|(product, relative)| product[(d, d)] + relative).collect::<Vec<_>>(),
        ));
        if unit {
            for factor in [&a, &b] {
                let square = factor * factor.transpose();
                biases.extend((0..=d).flat_map(|j| square.col_as_slice(j).to_vec()));
            }
        }
        Self { theta, biases: column(&biases) }
    }

    /// `‖·‖_F` of all.
    pub fn norm(&self) -> f64 {
        frobenius(self.theta.as_ref()).hypot(frobenius(self.biases.as_ref()))
    }

    /// `‖·‖_F` of the difference.
    pub fn gap(&self, other: &Self) -> f64 {
        frobenius((&self.theta - &other.theta).as_ref()).hypot(frobenius((&self.biases - &other.biases).as_ref()))
    }

    /// All entries, for an order.
    pub fn entries(&self) -> impl Iterator<Item = f64> {
        let columns =
            |m: &Mat<f64>| (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| (i, j))).map(|at| m[at]).collect::<Vec<_>>();
        columns(&self.theta).into_iter().chain(columns(&self.biases))
    }
}

/// The distances of a mask within sequences of `k` tokens, from the least to the largest; of bilinear scores one would do.
fn distances(mask: Mask, k: usize) -> Vec<isize> {
    let last = match mask {
        Mask::Window(window) => k.min(window),
        _ => k,
    } as isize
        - 1;
    let first = if mask.is_causal() { 0 } else { -last };
    let all = (last - first) as usize + 1;
    let steps = all.min(STEPS);
    (0..steps).map(|i| first + (i * (all - 1)).checked_div(steps - 1).unwrap_or(0) as isize).collect()
}

/// A factor with its bias as a last row; scaled to a mean square of 1, if that is asked for.
fn with_bias(factor: &Mat<f64>, bias: Option<&[f64]>, unit: bool) -> Mat<f64> {
    let d = factor.nrows();
    let whole = Mat::from_fn(d + 1, factor.ncols(), |i, j| if i < d { factor[(i, j)] } else { bias.map_or(0.0, |bias| bias[j]) });
    let size = frobenius(whole.as_ref());
    if unit && size > 0.0 { whole * faer::Scale((factor.ncols() as f64).sqrt() / size) } else { whole }
}

fn around_mean(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|v| v - mean).collect()
}

fn column(values: &[f64]) -> Mat<f64> {
    MatRef::from_column_major_slice(values, values.len(), 1).to_owned()
}
