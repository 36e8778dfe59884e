//! Phase 3, second half: sharpening `Ŝ` on rows where every head attends to one token.
//!
//! On such a row `Y_a = x_bᵀ S` exactly. They are found without knowing the heads, as 1-sparse certificates: assign every row to its
//! nearest token, `b = argmin ‖Y_a − x_bᵀ Ŝ‖`, keep the best fraction q of the rows, refit `Ŝ` by least squares, shrink q and repeat.

use crate::Result;
use crate::data::{Block, ExampleSource, scan};
use crate::linalg::lanes::{LANES, apply_matrix, vectorised};
use crate::linalg::{Mat, frobenius, row_major, solve_spd};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows attributed to single tokens: normal equations of `x_bᵀ S ≈ Y_a` over the rows kept.
#[derive(Clone, Debug)]
pub(crate) struct TokenFit {
    /// Rows kept.
    pub rows: u64,
    /// w
    pub weight: f64,
    /// `Σ x_b x_bᵀ`.
    pub xx: Mat<f64>,
    /// `Σ x_b Y_aᵀ`.
    pub xy: Mat<f64>,
    /// `Σ ‖Y_a − x_bᵀ Ŝ‖²` before the refit.
    pub residual: f64,
}

/// For one block: the squared distance of every row to its nearest token, and which token that is.
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
        let mut z = vec![0.0f32; k * d_out * LANES];
        let mut out = Vec::with_capacity(self.block.len().next_multiple_of(LANES) * k);
        for (x, y) in self.block.panels() {
            apply_matrix(simd, self.s_t, d_out, d, None, k, x, &mut z);
            let (y, z) = (y.as_chunks::<LANES>().0, z.as_chunks::<LANES>().0);
            for a in 0..k {
                let mut best = [(f32::MAX, 0u32); LANES];
                for b in 0..k {
                    let mut distance = [0.0f32; LANES];
                    for o in 0..d_out {
                        for l in 0..LANES {
                            let gap = y[a * d_out + o][l] - z[b * d_out + o][l];
                            distance[l] += gap * gap;
                        }
                    }
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

/// Squared residuals of the best 1-sparse explanation of every row of the block; order: panel, row, lane.
fn nearest(block: &Block<f32>, s_t: &[f32]) -> Vec<(f32, u32)> {
    vectorised(Nearest { block, s_t })
}

/// `Sᵀ` in single precision, row by row.
pub(crate) fn transposed(s: &Mat<f64>) -> Vec<f32> {
    row_major(s.transpose()).into_iter().map(|v| v as f32).collect()
}

/// The `q`-quantile of the nearest-token residuals, from the first blocks of the range.
fn quantile(source: &dyn ExampleSource, blocks: Range<u64>, s_t: &[f32], q: f64) -> Result<f32> {
    let mut all = Vec::new();
    let k = source.shape().k;
    scan::<f32, _>(
        source,
        blocks,
        |block| {
            let rows = nearest(block, s_t);
            rows.iter().enumerate().filter(|(i, _)| lane_in_use(*i, k, block.len())).map(|(_, r)| r.0).collect::<Vec<_>>()
        },
        |part| all.extend(part),
    )?;
    if all.is_empty() {
        return Ok(0.0);
    }
    let at = ((all.len() as f64 * q) as usize).min(all.len() - 1);
    Ok(*all.select_nth_unstable_by(at, f32::total_cmp).1)
}

/// Whether position `i` of a panel-ordered list of rows belongs to one of the `len` examples.
fn lane_in_use(i: usize, k: usize, len: usize) -> bool {
    i / (k * LANES) * LANES + i % LANES < len
}

/// Gathers the rows whose nearest-token residual is at most `threshold`.
fn fit(source: &dyn ExampleSource, blocks: Range<u64>, s_t: &[f32], threshold: f32) -> Result<TokenFit> {
    let shape = source.shape();
    let (k, d, d_out) = (shape.k, shape.d, shape.d_out);
    let zero = || TokenFit { rows: 0, weight: 0.0, xx: Mat::zeros(d, d), xy: Mat::zeros(d, d_out), residual: 0.0 };
    let mut total = zero();
    scan::<f32, _>(
        source,
        blocks,
        |block| {
            let rows = nearest(block, s_t);
            let mut part = zero();
            for (p, (x, y)) in block.panels().enumerate() {
                for a in 0..k {
                    for l in 0..LANES {
                        let at = (p * k + a) * LANES + l;
                        let (distance, b) = rows[at];
                        if p * LANES + l >= block.len() {
                            continue;
                        }
                        let w = f64::from(threshold / (threshold + distance)).powi(2);
                        if w < 1e-3 { continue; }
                        part.rows += 1;
                        part.weight += w;
                        part.residual += w * f64::from(distance);
                        for e in 0..d {
                            let x_e = w * f64::from(x[(b as usize * d + e) * LANES + l]);
                            for f in 0..d {
                                part.xx[(f, e)] += x_e * f64::from(x[(b as usize * d + f) * LANES + l]);
                            }
                            for o in 0..d_out {
                                part.xy[(e, o)] += x_e * f64::from(y[(a * d_out + o) * LANES + l]);
                            }
                        }
                    }
                }
            }
            part
        },
        |part| {
            total.rows += part.rows;
            total.weight += part.weight;
            total.xx += &part.xx;
            total.xy += &part.xy;
            total.residual += part.residual;
        },
    )?;
    Ok(total)
}

/// One round of sharpening, for the record.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Round {
    /// Fraction of the rows kept.
    pub fraction: f64,
    /// Rows kept.
    pub rows: u64,
    /// Root mean square of `‖Y_a − x_bᵀŜ‖` over them, before the refit.
    pub residual: f64,
    /// Smallest over largest eigenvalue of `Σ x_b x_bᵀ` over them: near 0, the tokens no longer span `R^d`.
    pub conditioning: f64,
    /// `‖Ŝ_new − Ŝ‖_F / ‖Ŝ‖_F`.
    pub change: f64,
}

/// Refits `Ŝ` on an ever better fraction of the rows.
pub(crate) fn sharpen(
    source: &dyn ExampleSource,
    blocks: Range<u64>,
    mut s: Mat<f64>,
    fractions: &[f64],
) -> Result<(Mat<f64>, Vec<Round>)> {
    let mut rounds = Vec::new();
    let pilot = blocks.start..blocks.end.min(blocks.start + 64);
    let first = (quantile(source, pilot.clone(), &transposed(&s), 0.5)?).sqrt();
    let mut per_block = f64::INFINITY;
    for &fraction in fractions {
        let s_t = transposed(&s);
        let sigma = first * fraction as f32;
        let want = 400.0 * s.nrows() as f64;
        let count = ((want / per_block).ceil() as u64).max(8).min(blocks.end - blocks.start);
        let kept = fit(source, blocks.start..blocks.start + count, &s_t, sigma * sigma)?;
        per_block = 0.7 * kept.weight / count as f64;
        let spectrum = crate::linalg::symmetric_eigen(kept.xx.as_ref()).map(|e| e.0).unwrap_or_default();
        let conditioning = match (spectrum.first(), spectrum.last()) {
            (Some(&low), Some(&high)) if high > 0.0 => low / high,
            _ => 0.0,
        };
        // Too tight a cut leaves tokens that do not span R^d: the last good fit stands.
        if conditioning < 0.05 || kept.weight < 30.0 * s.nrows() as f64 {
            break;
        }
        let refit = solve_spd(kept.xx.as_ref(), kept.xy.as_ref());
        let change = frobenius((&refit - &s).as_ref()) / frobenius(s.as_ref());
        rounds.push(Round {
            fraction,
            rows: kept.rows,
            residual: (kept.residual / kept.weight).sqrt(),
            conditioning,
            change,
        });
        s = refit;
    }
    Ok((s, rounds))
}
