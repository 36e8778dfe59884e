//! The non-degeneracy conditions, measured on a layer that is known.
//!
//! | condition | measure | why |
//! |---|---|---|
//! | sharpness | `‖Θ_i‖_F / √(m ln kd)`, least | heads must sometimes attend to one token by a margin, or no row shows them alone |
//! | saturation | `‖Θ_i‖_F`, largest | a softmax that is nearly an argmax has hardly a gradient: such a head converges last |
//! | effective rank | `‖Θ_i‖_F² / ‖Θ_i‖²`, least | bilinear forms on signs behave like Gaussians only if many directions share them |
//! | separation | `‖Θ_i − Θ_j‖_F / max(‖Θ_i‖_F, ‖Θ_j‖_F)`, least | heads that attend alike are one head |
//! | independence | smallest over largest eigenvalue of `⟨Θ_i, Θ_j⟩/(‖Θ_i‖‖Θ_j‖)` | the affine hull of the attention matrices must have m − 1 dimensions |
//! | distinct singular values | `min (σ_j − σ_{j+1})/σ_1` over those that are not zero | equal ones leave their vectors undetermined |
//! | sum of projections | smallest singular value of `S = Σ W_i` over `max(‖S‖, max ‖W_i‖_F/√d)` | agreement of the heads shows through it alone |
//! | incoherence | largest `|⟨W_i, W_j⟩|/(‖W_i‖‖W_j‖)` | heads that say the same can trade their attention |
//! | silent heads | `‖W_i‖_F` over the largest, least | a head that says nothing cannot be found |
//! | conditioning of projections | smallest over largest non-zero singular value of `W_i`, least | directions that hardly show in the output are known least |
//!
//! Only the first four and the sixth are about one head or a pair; what a layer's examples show of it depends on their inputs as well.
//! Thresholds are ours: what the learners of this crate were seen to need, in orders of magnitude.

use crate::layer::{AttentionLayer, Theta};
use crate::linalg::{Mat, frobenius, inner, symmetric_eigen};
use crate::{Error, Result};
use serde::Serialize;

/// Singular values below this share of the largest count as zero.
const RANK: f64 = 1e-9;

/// Sharpness from which on heads are sharp enough, and up to which one hardly shows.
pub const SHARPNESS: [f64; 2] = [0.3, 1e-2];
/// `‖Θ‖_F` up to which no head saturates, and beyond which one is an argmax.
pub const SATURATION: [f64; 2] = [10.0, 100.0];
/// Effective rank that is enough, and that of nothing.
pub const EFFECTIVE_RANK: [f64; 2] = [1.5, 0.5];
/// Separation from which on heads attend differently, and up to which they are one.
pub const SEPARATION: [f64; 2] = [0.3, 1e-6];
/// Independence that is enough, and up to which there is none.
pub const INDEPENDENCE: [f64; 2] = [0.05, 1e-9];
/// Conditioning of `Σ W_i` that is enough, and up to which it is singular.
pub const SUM_OF_PROJECTIONS: [f64; 2] = [1e-2, 1e-9];
/// Cosine of projections up to which they differ, and beyond which they are proportional.
pub const INCOHERENCE: [f64; 2] = [0.5, 1.0 - 1e-9];

/// How a condition is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As the theory wants it.
    Met,
    /// Learning will take more examples or more steps.
    Weak,
    /// Something cannot be recovered.
    Fails,
}

/// One condition of a layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    /// What is measured.
    pub name: &'static str,
    /// Its value; none where it does not apply, as a pair of heads in a layer of one.
    pub value: Option<f64>,
    /// How it is met.
    pub verdict: Verdict,
    /// What that means for learning.
    pub meaning: &'static str,
}

/// One head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HeadMeasures {
    /// `‖Θ‖_F`.
    pub theta_norm: f64,
    /// Singular values of `Θ` that are not zero.
    pub theta_rank: usize,
    /// `‖Θ‖_F² / ‖Θ‖²`.
    pub effective_rank: f64,
    /// `min (σ_j − σ_{j+1})/σ_1` over those that are not zero; none if there is only one.
    pub gap: Option<f64>,
    /// `‖W‖_F`.
    pub w_norm: f64,
    /// Singular values of `W` that are not zero.
    pub w_rank: usize,
    /// Smallest over largest of these.
    pub w_conditioning: f64,
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// Head by head.
    pub heads: Vec<HeadMeasures>,
    /// `⟨Θ_i, Θ_j⟩/(‖Θ_i‖‖Θ_j‖)`, row by row.
    pub theta_cosines: Vec<Vec<f64>>,
    /// The same of the projections.
    pub w_cosines: Vec<Vec<f64>>,
    /// `‖Θ_i − Θ_j‖_F / max(‖Θ_i‖_F, ‖Θ_j‖_F)`, least.
    pub separation: Option<f64>,
    /// All conditions.
    pub conditions: Vec<Condition>,
}

impl Conditions {
    /// Of a layer whose sequences have `k` tokens.
    pub fn of(layer: &AttentionLayer, k: usize) -> Result<Self> {
        layer.require_plain("the conditions are of layers with scores xᵀΘx′ alone")?;
        let thetas: Vec<Mat<f64>> = layer.heads().iter().map(|head| head.theta.to_dense()).collect();
        let ws: Vec<Mat<f64>> = layer.heads().iter().map(|head| head.w.clone()).collect();
        let heads = layer.heads().iter().map(|head| HeadMeasures::of(&head.theta, &head.w)).collect::<Result<Vec<_>>>()?;
        let (theta_cosines, w_cosines) = (cosines(&thetas), cosines(&ws));
        let pairs = || (0..thetas.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let size = |i: usize| heads[i].theta_norm;
        let distance = |(i, j): (usize, usize)| {
            let larger = size(i).max(size(j));
            if larger > 0.0 { frobenius((&thetas[i] - &thetas[j]).as_ref()) / larger } else { 0.0 }
        };
        let separation = pairs().map(distance).min_by(f64::total_cmp);
        let coherence = pairs().map(|(i, j)| w_cosines[i][j].abs()).max_by(f64::total_cmp);
        let mut sum = Mat::<f64>::zeros(layer.d(), layer.d_out());
        ws.iter().for_each(|w| sum += w);
        let least = |of: &dyn Fn(&HeadMeasures) -> f64| heads.iter().map(of).min_by(f64::total_cmp);
        let most = |of: &dyn Fn(&HeadMeasures) -> f64| heads.iter().map(of).max_by(f64::total_cmp);
        let margin = margin(heads.len(), k, layer.d());
        let loudest = most(&|head| head.w_norm).unwrap_or(0.0);
        let gap = heads.iter().filter_map(|head| head.gap).min_by(f64::total_cmp);
        let sum = values(&sum)?;
        // A sum that cancels is rounding: it is measured against what was added.
        let scale = sum[0].max(loudest / (layer.d() as f64).sqrt());
        let sum = if scale > 0.0 { sum[sum.len() - 1] / scale } else { 0.0 };
        let conditions = vec![
            above(
                "sharpness",
                least(&|head| head.theta_norm / margin),
                SHARPNESS,
                [
                    "heads attend sharply often enough for the six phases",
                    "rows on which one token wins are rare: sculpt needs many examples, descend does not mind",
                    "a head is nearly uniform: its attention matrix hardly shows",
                ],
            ),
            below(
                "saturation",
                most(&|head| head.theta_norm),
                SATURATION,
                [
                    "no head saturates",
                    "a very sharp head: descent finds it last, and needs examples near its decisions",
                    "a head is an argmax to working precision: its matrix is known up to its size only",
                ],
            ),
            above(
                "effective rank",
                least(&|head| head.effective_rank),
                EFFECTIVE_RANK,
                [
                    "attention matrices use many directions",
                    "an attention matrix is nearly of rank one: margins are not Gaussian, sculpt accepts fewer rows",
                    "an attention matrix is zero",
                ],
            ),
            above(
                "separation",
                separation,
                SEPARATION,
                [
                    "heads attend differently",
                    "two heads attend nearly alike: expect errors of their difference",
                    "two heads attend alike: they are one head and will be merged",
                ],
            ),
            above(
                "independence",
                pair(&theta_cosines)?,
                INDEPENDENCE,
                [
                    "attention matrices are independent",
                    "attention matrices are nearly dependent: the span has a short direction",
                    "attention matrices are linearly dependent: the span of the six phases has fewer dimensions than heads",
                ],
            ),
            above(
                "distinct singular values",
                gap,
                [1e-4, 1e-12],
                [
                    "singular values are distinct",
                    "two singular values nearly coincide: singular vectors, not matrices, are known less well",
                    "singular values coincide: singular vectors are not determined, matrices are",
                ],
            ),
            above(
                "sum of projections",
                Some(sum),
                SUM_OF_PROJECTIONS,
                [
                    "agreement of the heads shows in every direction",
                    "Σ W_i is nearly singular: rows certified by agreement are less certain",
                    "Σ W_i is singular: the six phases do not see all directions, descend does not need them",
                ],
            ),
            below(
                "incoherence",
                coherence,
                INCOHERENCE,
                [
                    "projections differ",
                    "two heads say nearly the same: they can trade attention, and descent may swap them",
                    "two projections are proportional: agreement certifies nothing about these heads",
                ],
            ),
            above(
                "silent heads",
                least(&|head| if loudest > 0.0 { head.w_norm / loudest } else { 0.0 }),
                [1e-2, 1e-12],
                [
                    "all heads are heard",
                    "a head is faint: its errors are larger by that much",
                    "a head says nothing: it cannot be found and will be pruned",
                ],
            ),
            above(
                "conditioning of projections",
                least(&|head| head.w_conditioning),
                [1e-4, 0.0],
                [
                    "projections are well conditioned on their range",
                    "a projection has faint directions, which are known least",
                    "a projection is zero",
                ],
            ),
        ];
        Ok(Self { heads, theta_cosines, w_cosines, separation, conditions })
    }

    /// The worst of all verdicts.
    pub fn verdict(&self) -> Verdict {
        self.conditions.iter().map(|condition| condition.verdict).max().unwrap_or(Verdict::Met)
    }
}

/// `√(m ln kd)`, what sharpness is relative to.
pub fn margin(m: usize, k: usize, d: usize) -> f64 {
    (m as f64 * (k as f64 * d as f64).ln()).max(1.0).sqrt()
}

/// Met above the first threshold, weak above the second.
fn above(name: &'static str, value: Option<f64>, [met, weak]: [f64; 2], meanings: [&'static str; 3]) -> Condition {
    let verdict = match value {
        Some(v) if v >= met => Verdict::Met,
        Some(v) if v > weak => Verdict::Weak,
        None => Verdict::Met,
        Some(_) => Verdict::Fails,
    };
    Condition { name, value, verdict, meaning: meanings[verdict as usize] }
}

/// Met below the first threshold, weak below the second.
fn below(name: &'static str, value: Option<f64>, [met, weak]: [f64; 2], meanings: [&'static str; 3]) -> Condition {
    let mirrored = above(name, value.map(|v| -v), [-met, -weak], meanings);
    Condition { value, ..mirrored }
}

impl HeadMeasures {
    fn of(theta: &Theta, w: &Mat<f64>) -> Result<Self> {
        let sigma = match theta {
            // σ(A Bᵀ) = σ(R Bᵀ), A = Q R: small matrices instead of a large one.
            Theta::LowRank { a, b } if 2 * a.ncols() < a.nrows() => values(&(a.qr().thin_R() * b.transpose()))?,
            theta => values(&theta.to_dense())?,
        };
        let square: f64 = sigma.iter().map(|s| s * s).sum();
        let nonzero = |sigma: &[f64]| sigma.iter().filter(|s| **s > RANK * sigma[0]).count();
        let theta_rank = nonzero(&sigma);
        let gaps = sigma[..theta_rank].windows(2).map(|pair| (pair[0] - pair[1]) / sigma[0]);
        let of_w = values(w)?;
        let w_rank = nonzero(&of_w);
        Ok(Self {
            theta_norm: square.sqrt(),
            theta_rank,
            effective_rank: if theta_rank > 0 { square / (sigma[0] * sigma[0]) } else { 0.0 },
            gap: gaps.min_by(f64::total_cmp),
            w_norm: frobenius(w.as_ref()),
            w_rank,
            w_conditioning: if w_rank > 0 { of_w[w_rank - 1] / of_w[0] } else { 0.0 },
        })
    }
}

/// Singular values, largest first; at least one.
fn values(a: &Mat<f64>) -> Result<Vec<f64>> {
    let found = a.singular_values().unwrap_or_default();
    if found.is_empty() {
        return Err(Error::input("layer", "a matrix has no singular values", "check that its numbers are finite and moderate"));
    }
    Ok(found)
}

fn cosines(of: &[Mat<f64>]) -> Vec<Vec<f64>> {
    let norms: Vec<f64> = of.iter().map(|a| frobenius(a.as_ref())).collect();
    let cosine = |i: usize, j: usize| {
        let size = norms[i] * norms[j];
        if size > 0.0 { inner(of[i].as_ref(), of[j].as_ref()) / size } else { 0.0 }
    };
    (0..of.len()).map(|i| (0..of.len()).map(|j| if i == j { 1.0 } else { cosine(i, j) }).collect()).collect()
}

/// Smallest over largest eigenvalue of a matrix of cosines; none for one head.
fn pair(cosines: &[Vec<f64>]) -> Result<Option<f64>> {
    if cosines.len() < 2 {
        return Ok(None);
    }
    let gram = Mat::from_fn(cosines.len(), cosines.len(), |i, j| cosines[i][j]);
    let broken = || Error::input("layer", "its inner products are not finite", "scale it down");
    let (values, _) = symmetric_eigen(gram.as_ref()).ok_or_else(broken)?;
    Ok(Some((values[0] / values[values.len() - 1]).max(0.0)))
}

#[cfg(test)]
mod tests;
