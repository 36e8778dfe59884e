//! How far a layer is from a reference, head by head, up to their order. How far it is as a function is for [`crate::teacher`] to say.
//!
//! Heads `i` of the reference and `j` of the other layer are compared by `Θ̃ = [Θ | c]` and `W`:
//!
//! ```text
//! cost_ij = ‖Θ̃_i − Θ̃'_j‖² / (‖Θ̃_i‖² + ‖Θ̃'_j‖²) + ‖W_i − W'_j‖² / (‖W_i‖² + ‖W'_j‖²)      (Frobenius norms, 0/0 = 0)
//! ```
//!
//! and matched so that the sum of the costs is least. Close to a match a cost is half the sum of the squared relative errors;
//! far from one it stays below 4, so that a head that was missed cannot spoil the matching of the others. The errors reported
//! are relative to the reference alone, `‖Θ_i − Θ'_j‖ / ‖Θ_i‖` and so on.
//!
//! Bring both layers into [canonical form](AttentionLayer::canonical) first: this distance sees a head split in two as
//! different from the whole.
//!
//! Where scores are not bilinear `Θ` is all `Θ(Δ)` over the distances compared, and `c` all that multiplies a query, a key or neither ([`super::attends`]). Key groups are
//! matched first, each pair of groups at the cost of the best matching of their heads, and heads within them.

use super::attends::{Attends, DISTANCES};
use super::{AttentionLayer, Head, Scores};
use crate::linalg::{Mat, MatRef, assign, frobenius};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The distance of a layer from a reference, head by head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerDistance {
    /// The matched heads, in the order of the reference.
    pub heads: Vec<HeadDistance>,
    /// Heads of the reference without a partner (the other layer has fewer heads).
    pub missing: Vec<usize>,
    /// Heads of the other layer without a partner (it has more heads).
    pub extra: Vec<usize>,
    /// Relative error of the output bias, `‖b − b'‖ / ‖b‖` (`‖b'‖` if `b = 0`).
    pub bias: f64,
    /// Sum of the costs of the matched heads.
    pub cost: f64,
}

/// The distance between two matched heads. Errors are relative to the reference, or absolute where the reference is 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadDistance {
    /// The head of the reference.
    pub reference: usize,
    /// The head of the other layer.
    pub other: usize,
    /// `‖Θ − Θ'‖_F / ‖Θ‖_F`.
    pub theta: f64,
    /// `‖c − c'‖ / ‖c‖`.
    pub key_bias: f64,
    /// `‖W − W'‖_F / ‖W‖_F`.
    pub w: f64,
    /// What the matching minimised: between 0 and 4.
    pub cost: f64,
}

impl LayerDistance {
    /// The largest relative error of an attention matrix; infinite when a head is missing.
    pub fn worst_theta(&self) -> f64 {
        self.worst(|head| head.theta)
    }

    /// The largest relative error of a projection; infinite when a head is missing.
    pub fn worst_w(&self) -> f64 {
        self.worst(|head| head.w)
    }

    fn worst(&self, error: impl Fn(&HeadDistance) -> f64) -> f64 {
        if self.missing.is_empty() { self.heads.iter().map(error).fold(0.0, f64::max) } else { f64::INFINITY }
    }
}

impl AttentionLayer {
    /// The distance of `other` from this layer, the reference, head by head in the best order.
    pub fn distance(&self, other: &Self) -> Result<LayerDistance> {
        self.distance_within(other, DISTANCES)
    }

    /// The same by what sequences of `k` tokens show: rotary heads are compared by `Θ(Δ)` over the distances within them.
    pub fn distance_within(&self, other: &Self, k: usize) -> Result<LayerDistance> {
        self.comparable(other)?;
        let parts = |layer: &Self| layer.heads.iter().map(|head| Parts::of(head, &layer.scores, k)).collect::<Vec<_>>();
        let (ours, theirs) = (parts(self), parts(other));
        let cost = Mat::from_fn(ours.len(), theirs.len(), |i, j| ours[i].cost(&theirs[j]));
        let pairs = by_groups(&cost, &members(&self.groups()), &members(&other.groups()));
        let unmatched = |m: usize, side: fn(&(usize, usize)) -> usize| -> Vec<usize> {
            (0..m).filter(|i| pairs.iter().all(|pair| side(pair) != *i)).collect()
        };
        Ok(LayerDistance {
            missing: unmatched(ours.len(), |pair| pair.0),
            extra: unmatched(theirs.len(), |pair| pair.1),
            bias: relative(column(self.bias(), self.d_out).as_ref(), column(other.bias(), self.d_out).as_ref()),
            cost: pairs.iter().map(|&pair| cost[pair]).sum(),
            heads: pairs.iter().map(|&(i, j)| ours[i].distance(&theirs[j], i, j, cost[(i, j)])).collect(),
        })
    }

    /// Refuses to compare layers of different shapes or masks.
    pub(crate) fn comparable(&self, other: &Self) -> Result<()> {
        let describe = |l: &Self| format!("d = {}, d_out = {}, mask {}", l.d, l.d_out, l.scores.mask);
        if (self.d, self.d_out, self.scores.mask) != (other.d, other.d_out, other.scores.mask) {
            let problem = format!("has {}, its reference {}", describe(other), describe(self));
            return Err(Error::input("layer", problem, "compare layers of one shape and mask"));
        }
        if self.scores.norm.is_some() != other.scores.norm.is_some() {
            return Err(Error::input("layer", "one has query/key norms, the other has none", "compare layers of one kind"));
        }
        if self.scores.is_bilinear() != other.scores.is_bilinear() {
            return Err(Error::input("layer", "one has rotary positions, the other has none", "compare layers of one kind"));
        }
        Ok(())
    }
}

/// The heads of every group.
fn members(groups: &[usize]) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); groups.iter().max().map_or(0, |most| most + 1)];
    groups.iter().enumerate().for_each(|(head, group)| members[*group].push(head));
    members
}

/// Pairs of heads: groups are matched first where both layers have groups, then the heads of each pair.
fn by_groups(cost: &Mat<f64>, ours: &[Vec<usize>], theirs: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let shared = |groups: &[Vec<usize>]| groups.iter().any(|group| group.len() > 1);
    if !shared(ours) || !shared(theirs) {
        return assign(cost.as_ref());
    }
    let of = |one: &[usize], other: &[usize]| -> Vec<(usize, usize)> {
        let cost = Mat::from_fn(one.len(), other.len(), |i, j| cost[(one[i], other[j])]);
        assign(cost.as_ref()).into_iter().map(|(i, j)| (one[i], other[j])).collect()
    };
    // A head without a partner costs as much as one that has nothing in common with it.
    let price = |i: usize, j: usize| {
        let pairs = of(&ours[i], &theirs[j]);
        let alone = ours[i].len().max(theirs[j].len()) - pairs.len();
        pairs.iter().map(|pair| cost[*pair]).sum::<f64>() + 4.0 * alone as f64
    };
    let groups = Mat::from_fn(ours.len(), theirs.len(), price);
    let mut pairs: Vec<_> = assign(groups.as_ref()).into_iter().flat_map(|(i, j)| of(&ours[i], &theirs[j])).collect();
    pairs.sort_unstable();
    pairs
}

/// A head taken apart into matrices.
struct Parts {
    attends: Attends,
    w: Mat<f64>,
}

impl Parts {
    fn of(head: &Head, scores: &Scores, k: usize) -> Self {
        Self { attends: Attends::of(head, scores, k), w: head.w.clone() }
    }

    fn cost(&self, other: &Self) -> f64 {
        let part = |gap: f64, scale: f64| if scale > 0.0 { (gap / scale).powi(2).min(2.0) } else { 0.0 };
        let (attends, w) =
            (self.attends.norm().hypot(other.attends.norm()), frobenius(self.w.as_ref()).hypot(frobenius(other.w.as_ref())));
        part(self.attends.gap(&other.attends), attends) + part(frobenius((&self.w - &other.w).as_ref()), w)
    }

    fn distance(&self, other: &Self, i: usize, j: usize, cost: f64) -> HeadDistance {
        HeadDistance {
            reference: i,
            other: j,
            theta: relative(self.attends.theta.as_ref(), other.attends.theta.as_ref()),
            key_bias: relative(self.attends.biases.as_ref(), other.attends.biases.as_ref()),
            w: relative(self.w.as_ref(), other.w.as_ref()),
            cost,
        }
    }
}

/// `‖A − B‖_F / ‖A‖_F`, or `‖B‖_F` when `A = 0`.
fn relative(a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> f64 {
    let (difference, size) = (frobenius((a - b).as_ref()), frobenius(a));
    if size > 0.0 { difference / size } else { difference }
}

fn column(v: Option<&[f64]>, len: usize) -> Mat<f64> {
    Mat::from_fn(len, 1, |i, _| v.map_or(0.0, |v| v[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Mask, Theta};
    use crate::teacher::TeacherSpec;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn teacher(m: usize, seed: u64) -> AttentionLayer {
        TeacherSpec { d_out: 3, ..TeacherSpec::dense(4, m, 2.0) }.draw(&mut ChaCha8Rng::seed_from_u64(seed)).expect("valid")
    }

    fn with_heads(layer: &AttentionLayer, heads: Vec<Head>) -> AttentionLayer {
        AttentionLayer::new(heads, layer.bias().map(<[f64]>::to_vec), layer.mask()).expect("valid")
    }

    /// `A + ε ‖A‖_F N` with `‖N‖_F = 1`.
    fn perturbed(a: &Mat<f64>, epsilon: f64, rng: &mut ChaCha8Rng) -> Mat<f64> {
        let noise: Mat<f64> = Mat::from_fn(a.nrows(), a.ncols(), |_, _| rng.sample(StandardNormal));
        let scale = faer::Scale(epsilon * frobenius(a.as_ref()) / frobenius(noise.as_ref()));
        a + noise * scale
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn known_perturbations_of_shuffled_heads_are_measured(m in 1usize..7, dropped in 0usize..3, seed in 0u64..1000) {
            let (reference, rng) = (teacher(m, seed), &mut ChaCha8Rng::seed_from_u64(seed + 1));
            let mut order: Vec<usize> = (0..m).collect();
            for i in (1..m).rev() {
                order.swap(i, rng.random_range(0..=i));
            }
            order.truncate((m - dropped.min(m)).max(1));
            let heads = order.iter().map(|&i| {
                let head = &reference.heads()[i];
                Head::dense(perturbed(&head.theta.to_dense(), 0.01, rng), perturbed(&head.w, 0.03, rng))
            });
            let other = with_heads(&reference, heads.collect());
            let distance = reference.distance(&other).expect("comparable");
            prop_assert_eq!(distance.heads.len(), order.len());
            prop_assert_eq!(distance.missing.len(), m - order.len());
            prop_assert_eq!(distance.worst_w().is_infinite(), m > order.len());
            for head in &distance.heads {
                prop_assert_eq!(order[head.other], head.reference);
                prop_assert!((head.theta - 0.01).abs() < 1e-12 && (head.w - 0.03).abs() < 1e-12 && head.key_bias <= 0.0);
                prop_assert!((head.cost / (0.5 * (0.01f64.powi(2) + 0.03f64.powi(2))) - 1.0).abs() < 0.1);
            }
            let back = other.distance(&reference).expect("comparable");
            prop_assert_eq!(&back.extra, &distance.missing);
            prop_assert!((back.cost - distance.cost).abs() < 1e-12, "the matching is symmetric");
        }
    }

    #[test]
    fn a_layer_is_at_distance_zero_from_itself() {
        let layer = teacher(3, 5);
        let distance = layer.distance(&layer).expect("comparable");
        assert!(distance.worst_theta() <= 0.0 && distance.worst_w() <= 0.0 && distance.cost <= 0.0 && distance.bias <= 0.0);
    }

    #[test]
    fn biases_and_zero_references() {
        let head = Head::dense(Mat::zeros(2, 2), Mat::identity(2, 2));
        let reference = AttentionLayer::new(vec![head.clone()], Some(vec![3.0, 4.0]), Mask::None).expect("valid");
        let changed = Head { key_bias: Some(vec![0.3, 0.4]), theta: Theta::Dense(Mat::identity(2, 2)), ..head };
        let other = AttentionLayer::new(vec![changed], None, Mask::None).expect("valid");
        let distance = reference.distance(&other).expect("comparable");
        assert!((distance.bias - 1.0).abs() < 1e-15);
        let head = distance.heads[0];
        assert!(
            (head.key_bias - 0.5).abs() < 1e-15 && (head.theta - 2f64.sqrt()).abs() < 1e-15,
            "absolute where the reference is 0"
        );
    }

    #[test]
    fn layers_of_different_kinds_are_refused() {
        let layer = teacher(2, 8);
        let causal = AttentionLayer::new(layer.heads().to_vec(), None, Mask::Causal).expect("valid");
        let wide = TeacherSpec::dense(4, 2, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(1)).expect("valid");
        let deep =
            TeacherSpec { d_out: 3, ..TeacherSpec::dense(5, 2, 2.0) }.draw(&mut ChaCha8Rng::seed_from_u64(1)).expect("valid");
        for other in [&causal, &wide, &deep] {
            assert!(matches!(layer.distance(other), Err(Error::Input { .. })));
        }
    }
}
