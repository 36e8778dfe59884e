//! Phase 3, first half: the minimum-norm proxy.
//!
//! The point `Θ̄` of least norm in K satisfies `⟨Θ_i, Θ̄⟩ = ‖Θ̄‖²` for every head, so where `Θ̄` shows a large margin for token b at row a,
//! all heads tend to attend to b, and `Y_a ≈ x_bᵀ S`: least squares over those rows gives a second start for the sharpening of `Ŝ`.

use super::agreement::AgreeingRow;
use super::body::carve;
use super::sharpen::TokenFit;
use crate::Result;
use crate::convex::{self, Status};
use crate::data::{Block, ExampleSource, scan};
use crate::linalg::{Mat, solve_spd};
use std::ops::Range;

/// Fraction of the rows, those of largest margin, that the proxy is trusted with.
const TRUSTED: f64 = 0.1;

/// The body of some rows and its point of least norm.
pub(crate) struct Proxy {
    /// The body, its slabs wide enough for it not to be empty.
    pub body: convex::Body,
    /// `Θ̄`, row by row.
    pub point: Vec<f64>,
}

impl Proxy {
    /// Carves the body of the rows, widening all slabs by the same factor if it is empty, and finds its point of least norm.
    pub fn of(rows: &[AgreeingRow], radius: f64, floor: f64) -> Result<Option<Self>> {
        if rows.is_empty() {
            return Ok(None);
        }
        let settings = convex::Settings { tolerance: 1e-7, ..Default::default() };
        let mut rows = rows.to_vec();
        let mut body = carve(&rows, radius, floor)?;
        let half_widths: Vec<f64> = (0..body.count()).map(|r| 0.5 * (body.upper()[r] - body.lower()[r])).collect();
        let least = convex::least_inflation(&body, &half_widths, &settings)?.t;
        if least > 0.8 {
            let inflation = 1.25 * least;
            rows.iter_mut().for_each(|r| r.delta *= inflation);
            body = carve(&rows, radius, floor * inflation)?;
        }
        let found = convex::minimum_norm(&body, &settings)?;
        Ok(match found.status {
            Status::Empty { .. } => None,
            _ => Some(Self { body, point: found.point }),
        })
    }

    /// `Ŝ` from the rows where the proxy's margin is largest.
    pub fn sum(&self, source: &dyn ExampleSource, blocks: Range<u64>) -> Result<Option<Mat<f64>>> {
        let shape = source.shape();
        let mut margins = Vec::new();
        let pilot = blocks.start..blocks.end.min(blocks.start + 8);
        let all = |block: &Block<f32>| self.margins(block).map(|m| m.2).collect::<Vec<_>>();
        scan(source, pilot, all, |part| margins.extend(part))?;
        margins.sort_by(f64::total_cmp);
        let Some(&threshold) = margins.get(((margins.len() as f64) * (1.0 - TRUSTED)) as usize) else { return Ok(None) };
        let mut total = TokenFit::zero(shape.d, shape.d_out);
        let gather = |block: &Block<f32>| {
            let mut part = TokenFit::zero(shape.d, shape.d_out);
            for ((example, a), b, margin) in self.margins(block) {
                if margin >= threshold {
                    part.add_row(1.0, &block.token(example, b), &block.output(example, a));
                }
            }
            part
        };
        scan(source, blocks, gather, |part| total.merge(&part))?;
        Ok((total.conditioning() > 1e-3).then(|| solve_spd(total.xx.as_ref(), total.xy.as_ref())))
    }

    /// For every row (example, a) of the block: the token that `Θ̄` prefers, and by which margin of the logits.
    fn margins(&self, block: &Block<f32>) -> impl Iterator<Item = ((usize, usize), usize, f64)> {
        let shape = block.shape();
        let (k, d) = (shape.k, shape.d);
        (0..block.len() * k).map(move |r| {
            let (example, a) = (r / k, r % k);
            let x_a = block.token(example, a);
            let query: Vec<f64> = (0..d).map(|f| (0..d).map(|e| x_a[e] * self.point[e * d + f]).sum()).collect();
            let logit = |b: usize| query.iter().zip(block.token(example, b)).map(|(q, x)| q * x).sum::<f64>();
            let (mut best, mut top, mut second) = (0, f64::MIN, f64::MIN);
            for b in 0..k {
                let l = logit(b);
                if l > top {
                    (second, top, best) = (top, l, b);
                } else if l > second {
                    second = l;
                }
            }
            ((example, a), best, top - second)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Unwatched;
    use super::super::agreement::PairTest;
    use super::super::body::Quarry;
    use super::super::testing::{examples, relative, teacher, thetas, true_sum};
    use super::*;
    use crate::linalg::row_major;

    /// `⟨Θ_i, Θ̄⟩ ≈ ‖Θ̄‖²` for every head, and the rows that Θ̄ is sure of give the sum. Stated accuracy, over 3 seeds:
    /// 0.25 for the inner products; 0.4 for the sum, a start for the sharpening and no more.
    #[test]
    fn the_proxy_leans_on_every_head_alike() {
        for seed in 0..3 {
            let layer = teacher(8, 2, 8.0, seed);
            let source = examples(&layer, 4);
            let mut quarry = Quarry::new(PairTest::new(&true_sum(&layer), 1.0, f64::INFINITY), 192);
            quarry.dig(&source, 0..512, &Unwatched).expect("a stream never fails");
            let proxy = Proxy::of(&quarry.best(), 40.0, 0.05).expect("good input").expect("a body");
            let square: f64 = proxy.point.iter().map(|x| x * x).sum();
            for theta in thetas(&layer) {
                let inner: f64 = row_major(theta.as_ref()).iter().zip(&proxy.point).map(|(a, b)| a * b).sum();
                assert!((inner / square - 1.0).abs() < 0.25, "seed {seed}: {inner} against {square}");
            }
            let sum = proxy.sum(&source, 0..64).expect("a stream never fails").expect("tokens that span");
            let error = relative(&sum, &true_sum(&layer));
            assert!(error < 0.4, "seed {seed}: {error}");
        }
    }
}
