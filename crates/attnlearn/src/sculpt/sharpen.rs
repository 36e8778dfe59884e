//! Phase 3, second half: sharpening `Ŝ` on rows where every head attends to one token.
//!
//! On such a row `Y_a = x_bᵀ S` exactly. They are found without knowing the heads, as 1-sparse certificates: assign every row to its
//! nearest token, `b = argmin ‖Y_a − x_bᵀ Ŝ‖`, at distance `r_a`, and refit `Ŝ` by least squares with the weights of Geman and McClure,
//!
//! ```text
//! w_a = (σ² / (σ² + r_a²))²,     σ shrunk by a fifth every round
//! ```
//!
//! A soft cut rather than the best fraction of the rows: a hard one keeps the tokens along which `Ŝ` happens to be right, which soon
//! no longer span `R^d`.

use super::record::{Quantiles, Round, Watch};
use crate::data::{Block, ExampleSource, scan};
use crate::linalg::lanes::{LANES, square_distances, vectorised};
use crate::linalg::product::apply_matrix;
use crate::linalg::{Aligned, Mat, frobenius, row_major, solve_spd, spread};
use crate::{Error, Result};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rounds of sharpening.
const ROUNDS: usize = 30;
/// What σ is multiplied with after every round.
const SHRINK: f64 = 0.8;
/// Weight that a round gathers, in rows per dimension of the tokens, if there are examples enough.
const WEIGHT: f64 = 200.0;
/// Weight below which a round is not trusted.
const LEAST_WEIGHT: f64 = 30.0;
/// Conditioning of `Σ w x_b x_bᵀ` below which the tokens are taken not to span `R^d`.
const CONDITIONING: f64 = 0.05;

/// Refits `Ŝ` on ever sharper rows; the rounds say how it went. Stops at the last round that can be trusted.
pub(crate) fn sharpen(
    source: &dyn ExampleSource,
    blocks: Range<u64>,
    mut s: Mat<f64>,
    watch: &dyn Watch,
) -> Result<(Mat<f64>, Vec<Round>)> {
    let d = s.nrows() as f64;
    let pilot = blocks.start..blocks.end.min(blocks.start + 64);
    let mut sigma = median_distance(source, pilot, &transposed(&s))?;
    let mut rounds: Vec<Round> = Vec::new();
    let mut per_block = f64::INFINITY;
    while rounds.len() < ROUNDS {
        if watch.interrupted() {
            return Err(Error::Interrupted);
        }
        let wanted = ((WEIGHT * d / per_block).ceil() as u64).clamp(8, (blocks.end - blocks.start).max(8));
        let range = blocks.start..blocks.end.min(blocks.start + wanted);
        let kept = TokenFit::gather(source, range.clone(), &transposed(&s), sigma)?;
        per_block = 0.7 * kept.weight / (range.end - range.start) as f64;
        let conditioning = kept.conditioning();
        if conditioning < CONDITIONING || kept.weight < LEAST_WEIGHT * d {
            break;
        }
        let refit = solve_spd(kept.xx.as_ref(), kept.xy.as_ref());
        let change = frobenius((&refit - &s).as_ref()) / frobenius(s.as_ref());
        let residual = (kept.residual / kept.weight).sqrt();
        rounds.push(Round { sigma, weight: kept.weight, residual, conditioning, change });
        s = refit;
        sigma *= SHRINK;
    }
    Ok((s, rounds))
}

/// Weighted normal equations of `x_bᵀ S ≈ Y_a`.
#[derive(Clone, Debug)]
pub(crate) struct TokenFit {
    /// `Σ w`.
    pub weight: f64,
    /// `Σ w x_b x_bᵀ`.
    pub xx: Mat<f64>,
    /// `Σ w x_b Y_aᵀ`.
    pub xy: Mat<f64>,
    /// `Σ w ‖Y_a − x_bᵀ Ŝ‖²`.
    pub residual: f64,
}

impl TokenFit {
    pub fn zero(d: usize, d_out: usize) -> Self {
        Self { weight: 0.0, xx: Mat::zeros(d, d), xy: Mat::zeros(d, d_out), residual: 0.0 }
    }

    /// All rows of the range, with the weights of Geman and McClure for the scale `sigma`.
    fn gather(source: &dyn ExampleSource, blocks: Range<u64>, s_t: &[f32], sigma: f64) -> Result<Self> {
        let shape = source.shape();
        let mut total = Self::zero(shape.d, shape.d_out);
        let square = sigma * sigma;
        let of_block = |block: &Block<f32>| {
            let mut part = Self::zero(shape.d, shape.d_out);
            for row in nearest(block, s_t) {
                let r2 = f64::from(row.distance);
                let weight = (square / (square + r2)).powi(2);
                if weight > 1e-3 {
                    part.add_row(weight, &block.token(row.example, row.b), &block.output(row.example, row.a));
                    part.residual += weight * r2;
                }
            }
            part
        };
        scan(source, blocks, of_block, |part| total.merge(&part))?;
        Ok(total)
    }

    /// Adds a row that is attributed to the token `x_b`.
    pub fn add_row(&mut self, weight: f64, x_b: &[f64], y: &[f64]) {
        self.weight += weight;
        for (e, x) in x_b.iter().enumerate() {
            let scaled = weight * x;
            for (f, x) in x_b.iter().enumerate() {
                self.xx[(f, e)] += scaled * x;
            }
            for (o, y) in y.iter().enumerate() {
                self.xy[(e, o)] += scaled * y;
            }
        }
    }

    /// Adds the sums of another part of the examples.
    pub fn merge(&mut self, other: &Self) {
        self.weight += other.weight;
        self.xx += &other.xx;
        self.xy += &other.xy;
        self.residual += other.residual;
    }

    /// Smallest over largest eigenvalue of `Σ w x_b x_bᵀ`; 0 if there is none.
    pub fn conditioning(&self) -> f64 {
        spread(self.xx.as_ref())
    }
}

/// `Sᵀ` in single precision, row by row.
fn transposed(s: &Mat<f64>) -> Vec<f32> {
    row_major(s.transpose()).into_iter().map(|v| v as f32).collect()
}

/// The median distance of a row to its nearest token.
fn median_distance(source: &dyn ExampleSource, blocks: Range<u64>, s_t: &[f32]) -> Result<f64> {
    let mut all = Vec::new();
    let distances = |block: &Block<f32>| nearest(block, s_t).map(|r| f64::from(r.distance)).collect::<Vec<_>>();
    scan(source, blocks, distances, |part| all.extend(part))?;
    Ok(Quantiles::of(all).median.sqrt())
}

/// A row and the token it is nearest to.
struct NearestToken {
    example: usize,
    a: usize,
    b: usize,
    /// `‖Y_a − x_bᵀ Ŝ‖²`.
    distance: f32,
}

/// The nearest token of every row of the block.
fn nearest(block: &Block<f32>, s_t: &[f32]) -> impl Iterator<Item = NearestToken> {
    let (k, len) = (block.shape().k, block.len());
    vectorised(Nearest { block, s_t }).into_iter().enumerate().filter_map(move |(i, (distance, b))| {
        let example = i / (k * LANES) * LANES + i % LANES;
        let row = NearestToken { example, a: i / LANES % k, b: b as usize, distance };
        (example < len).then_some(row)
    })
}

/// For every row, in the order panel, row, lane: squared distance to its nearest token, and which token that is.
struct Nearest<'a> {
    block: &'a Block<f32>,
    s_t: &'a [f32],
}

impl WithSimd for Nearest<'_> {
    type Output = Vec<(f32, u32)>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let shape = self.block.shape();
        let (k, d, d_out) = (shape.k, shape.d, shape.d_out);
        let mut z = Aligned::<f32>::zeros(k * d_out * LANES);
        let mut distances = Aligned::<f32>::zeros(k * LANES);
        let mut out = Vec::with_capacity(self.block.len().next_multiple_of(LANES) * k);
        for (x, y) in self.block.panels() {
            apply_matrix(simd, self.s_t, d_out, d, None, k, x, &mut z);
            let row = d_out * LANES;
            for a in 0..k {
                let mut best = [(f32::MAX, 0u32); LANES];
                square_distances(simd, &y[a * row..(a + 1) * row], &z, k, &mut distances);
                for (b, distance) in distances.as_chunks::<LANES>().0.iter().enumerate() {
                    for l in 0..LANES {
                        if distance[l] < best[l].0 {
                            best[l] = (distance[l], b as u32);
                        }
                    }
                }
                out.extend(best);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::Unwatched;
    use super::super::crude::Moments;
    use super::super::testing::{examples, relative, teacher, true_sum};
    use super::*;

    /// Stated accuracy: 10⁻² from a crude start, over 5 seeds and three sizes.
    #[test]
    fn a_crude_sum_is_sharpened() {
        for (d, k, m, size) in [(6, 3, 2, 6.0), (8, 4, 2, 4.0), (8, 3, 3, 8.0)] {
            for seed in 0..5 {
                let layer = teacher(d, m, size, seed);
                let source = examples(&layer, k);
                let crude = Moments::gather(&source, 0..64).expect("a stream never fails").crude_sum(k);
                let (sum, rounds) = sharpen(&source, 0..512, crude, &Unwatched).expect("a stream never fails");
                let error = relative(&sum, &true_sum(&layer));
                assert!(error < 1e-2, "{d},{k},{m} seed {seed}: {error}");
                assert!(rounds.windows(2).all(|r| r[1].sigma < r[0].sigma));
            }
        }
    }

    #[test]
    fn the_true_sum_is_a_fixed_point() {
        let layer = teacher(6, 1, 6.0, 1);
        let (sum, _) = sharpen(&examples(&layer, 3), 0..64, true_sum(&layer), &Unwatched).expect("a stream never fails");
        assert!(relative(&sum, &true_sum(&layer)) < 1e-3);
    }
}
