//! Canonical form: one layer out of all that compute the same function by trivial changes of the heads.
//!
//! The logits of a head are `ℓ_ab = x_aᵀ Θ x_b + cᵀ x_b`, so its attention pattern is a function of `Θ̃ = [Θ | c]` alone; of other scores it is one of more
//! numbers ([`super::attends`]), which take the place of `Θ̃`. Hence
//!
//! ```text
//! Θ̃_i = Θ̃_j        the heads attend alike: one head with W_i + W_j does the work of both;
//! W_i = 0           the head is invisible: it can go;
//! order             a sum does not see it: by decreasing ‖W_i‖_F, then ‖Θ̃_i‖_F, then the entries of Θ̃_i and of W_i.
//! ```
//!
//! With a relative tolerance τ these read
//!
//! ```text
//! ‖Θ̃_i − Θ̃_j‖_F ≤ τ max(‖Θ̃_i‖_F, ‖Θ̃_j‖_F),      ‖W_i‖_F ≤ τ max_j ‖W_j‖_F.
//! ```
//!
//! The relative difference of two tiny matrices says nothing: heads with `‖Θ̃_i‖_F ≤ τ max_l ‖Θ̃_l‖_F` attend to all tokens alike, beside the others, and so like one another.
//!
//! Equality within a tolerance is not transitive, so heads are taken in canonical order and each joins the first head kept so
//! far that equals it, or else is kept. What is kept has its own `Θ̃` to the last bit and is pairwise different, and the scale
//! `max_j ‖W_j‖_F` runs over the heads before and after merging: so a second pass changes nothing.

use super::attends::{Attends, DISTANCES};
use super::{AttentionLayer, Head, Scores, Theta};
use crate::linalg::{Mat, frobenius, row_major};
use std::cmp::Ordering;

/// A layer in canonical form, and where its heads come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Canonical {
    /// The layer: heads that attend alike merged, dead ones dropped, the rest in a fixed order. Zero biases are `None`.
    ///
    /// When every head is dead one remains, with `Θ = 0` and `W = 0`, because a layer has at least one head.
    pub layer: AttentionLayer,
    /// For every head of `layer` the heads of the original that it is made of, the one that gave its `Θ` and `c` first.
    pub merged: Vec<Vec<usize>>,
    /// Heads of the original that left no trace, in increasing order.
    pub dropped: Vec<usize>,
}

impl AttentionLayer {
    /// The canonical form, equal and dead understood up to the relative `tolerance` (0, or anything not positive, is exact).
    ///
    /// Applying it twice is the same as applying it once. A low-rank head keeps its factors.
    pub fn canonical(&self, tolerance: f64) -> Canonical {
        let tolerance = tolerance.max(0.0);
        let mut heads: Vec<Entry> =
            self.heads.iter().enumerate().map(|(i, head)| Entry::new(vec![i], head.clone(), &self.scores)).collect();
        heads.sort_by(Entry::order);
        let before = largest(&heads);
        let flat = tolerance * heads.iter().map(|entry| entry.sharpness).fold(0.0, f64::max);

        let mut kept: Vec<Entry> = Vec::with_capacity(heads.len());
        for entry in heads {
            match kept.iter_mut().find(|k| k.attends_like(&entry, tolerance, flat)) {
                Some(like) => like.absorb(entry),
                None => kept.push(entry),
            }
        }
        for entry in &mut kept {
            entry.size = frobenius(entry.head.w.as_ref());
        }

        let negligible = tolerance * before.max(largest(&kept));
        let (dead, mut live): (Vec<Entry>, Vec<Entry>) = kept.into_iter().partition(|entry| entry.size <= negligible);
        live.sort_by(Entry::order);
        let mut dropped: Vec<usize> = dead.into_iter().flat_map(|entry| entry.origin).collect();
        dropped.sort_unstable();
        if live.is_empty() {
            live.push(Entry::new(vec![], self.nothing(), &self.scores));
        }

        let (merged, heads) = live.into_iter().map(|entry| (entry.origin, entry.head)).unzip();
        let bias = self.bias.clone().filter(|bias| !is_zero(bias));
        Canonical { layer: Self { d: self.d, d_out: self.d_out, heads, bias, scores: self.scores.clone() }, merged, dropped }
    }

    /// A head that does nothing, of the kind of the first.
    fn nothing(&self) -> Head {
        let none = |m: &Mat<f64>| Mat::zeros(m.nrows(), m.ncols());
        let w = Mat::zeros(self.d, self.d_out);
        match self.heads.first().map(|head| &head.theta) {
            Some(Theta::LowRank { a, b }) if !self.scores.is_bilinear() => Head::factored(none(a), none(b), w),
            _ => Head::dense(Mat::zeros(self.d, self.d), w),
        }
    }
}

/// A head on its way to canonical form.
struct Entry {
    /// Heads of the original in it.
    origin: Vec<usize>,
    head: Head,
    /// `Θ̃`.
    attends: Attends,
    /// `‖Θ̃‖_F`.
    sharpness: f64,
    /// `‖W‖_F`.
    size: f64,
}

impl Entry {
    fn new(origin: Vec<usize>, mut head: Head, scores: &Scores) -> Self {
        head.key_bias = head.key_bias.filter(|c| !is_zero(c));
        let attends = Attends::of(&head, scores, DISTANCES);
        let (sharpness, size) = (attends.norm(), frobenius(head.w.as_ref()));
        Self { origin, head, attends, sharpness, size }
    }

    /// The canonical order.
    fn order(&self, other: &Self) -> Ordering {
        let entries = |e: &Self| e.attends.entries().chain(row_major(e.head.w.as_ref())).collect::<Vec<f64>>();
        other.size.total_cmp(&self.size).then(other.sharpness.total_cmp(&self.sharpness)).then_with(|| {
            let (a, b) = (entries(self), entries(other));
            a.iter().zip(&b).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        })
    }

    fn attends_like(&self, other: &Self, tolerance: f64, flat: f64) -> bool {
        if self.sharpness.max(other.sharpness) <= flat {
            return true;
        }
        self.attends.gap(&other.attends) <= tolerance * self.sharpness.max(other.sharpness)
    }

    /// Adds another head that attends alike.
    fn absorb(&mut self, other: Self) {
        self.head.w += other.head.w;
        self.origin.extend(other.origin);
    }
}

fn largest(heads: &[Entry]) -> f64 {
    heads.iter().map(|entry| entry.size).fold(0.0, f64::max)
}

fn is_zero(v: &[f64]) -> bool {
    v.iter().all(|&v| v.abs() <= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Mask, Theta};
    use crate::teacher::{Family, TeacherSpec};
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn teacher(d: usize, m: usize, family: Family, seed: u64) -> AttentionLayer {
        let spec = TeacherSpec { family, d_out: 3, ..TeacherSpec::dense(d, m, 2.0) };
        spec.draw(&mut ChaCha8Rng::seed_from_u64(seed)).expect("a valid recipe")
    }

    fn layer(heads: Vec<Head>) -> AttentionLayer {
        AttentionLayer::new(heads, None, Mask::None).expect("a valid layer")
    }

    fn scaled(head: &Head, w: f64) -> Head {
        Head { w: &head.w * faer::Scale(w), ..head.clone() }
    }

    #[test]
    fn heads_that_attend_alike_merge_and_dead_ones_go() {
        let base = teacher(4, 2, Family::Dense, 1);
        let [a, b] = base.heads() else { panic!("two heads") };
        let c = Head { key_bias: Some(vec![0.5; 4]), ..a.clone() };
        let given = layer(vec![scaled(b, 0.01), scaled(a, 2.0), scaled(&c, 0.0), scaled(b, 5.0), scaled(a, -0.5), c.clone()]);
        let canonical = given.canonical(1e-9);
        assert_eq!(canonical.merged, [vec![3, 0], vec![1, 4], vec![5, 2]], "a key bias makes a different head");
        assert!(canonical.dropped.is_empty());
        let w: Vec<f64> = canonical.layer.heads().iter().map(|h| frobenius(h.w.as_ref())).collect();
        assert!(w.is_sorted_by(|a, b| a >= b));
        assert!(frobenius((&canonical.layer.heads()[1].w - &a.w * faer::Scale(1.5)).as_ref()) < 1e-12);

        let cancelled = layer(vec![a.clone(), scaled(b, 1e-13), scaled(a, -1.0), b.clone()]).canonical(1e-12);
        assert_eq!((cancelled.merged, cancelled.dropped), (vec![vec![3, 1]], vec![0, 2]));
    }

    #[test]
    fn tolerance_is_relative() {
        let base = teacher(4, 1, Family::Dense, 2);
        let head = &base.heads()[0];
        for scale in [1e-6, 1.0, 1e6] {
            let theta = head.theta.to_dense() * faer::Scale(scale);
            let near = Mat::from_fn(4, 4, |i, j| theta[(i, j)] + if (i, j) == (1, 2) { 2e-8 * scale } else { 0.0 });
            let given = layer(vec![Head::dense(theta, head.w.clone()), Head::dense(near, head.w.clone())]);
            assert_eq!(given.canonical(2e-8).layer.heads().len(), 1, "‖Θ‖ = 2·scale");
            assert_eq!(given.canonical(5e-9).layer.heads().len(), 2);
        }
    }

    /// Heads that hardly attend, beside one that does, are one; on their own nothing says what is little.
    #[test]
    fn heads_without_attention_merge() {
        let base = teacher(4, 3, Family::Dense, 5);
        let flat = |head: &Head, size: f64| Head::dense(head.theta.to_dense() * faer::Scale(size), head.w.clone());
        let [a, b, c] = base.heads() else { panic!("three heads") };
        let given = layer(vec![a.clone(), flat(b, 1e-9), flat(c, -1e-10)]);
        let canonical = given.canonical(1e-6);
        assert_eq!(canonical.layer.heads().len(), 2);
        assert_eq!(canonical.layer.canonical(1e-6).layer, canonical.layer);
        assert_eq!(given.canonical(1e-12).layer.heads().len(), 3);
        assert_eq!(layer(vec![flat(b, 1e-9), flat(c, 1e-9)]).canonical(1e-6).layer.heads().len(), 2);
    }

    #[test]
    fn a_dead_layer_keeps_one_zero_head() {
        let base = teacher(3, 2, Family::LowRank { rank: 1 }, 3);
        let dead = layer(base.heads().iter().map(|h| scaled(h, 0.0)).collect()).canonical(0.0);
        assert_eq!(dead.layer.heads(), [Head::dense(Mat::zeros(3, 3), Mat::zeros(3, 3))]);
        assert_eq!((dead.merged, dead.dropped), (vec![vec![]], vec![0, 1]));
        assert_eq!(dead.layer.canonical(0.0).layer, dead.layer);
    }

    #[test]
    fn zero_biases_are_none() {
        let mut head = teacher(3, 1, Family::Dense, 4).heads()[0].clone();
        head.key_bias = Some(vec![0.0; 3]);
        let given = AttentionLayer::new(vec![head], Some(vec![0.0, -0.0, 0.0]), Mask::Causal).expect("valid");
        let canonical = given.canonical(f64::NAN).layer;
        assert!(canonical.heads()[0].key_bias.is_none() && canonical.bias().is_none() && canonical.mask() == Mask::Causal);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Random layers with repeated, nearly repeated, dead and cancelling heads.
        #[test]
        fn same_function_and_idempotent(seed in 0u64..1000, m in 1usize..9, low_rank: bool, tolerance in prop::sample::select(vec![0.0, 1e-12, 1e-3, 0.3])) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let family = if low_rank { Family::LowRank { rank: 2 } } else { Family::Dense };
            let base = teacher(5, 3, family, seed);
            let heads: Vec<Head> = (0..m)
                .map(|_| {
                    let mut head = scaled(&base.heads()[rng.random_range(0..3)], [0.0, 1e-13, 1e-4, 1.0, -1.0, 0.7][rng.random_range(0..6)]);
                    if rng.random_bool(0.3) {
                        head.key_bias = Some(vec![0.25; 5]);
                    }
                    if rng.random_bool(0.3) {
                        let noise = [1e-13, 1e-4, 0.1][rng.random_range(0..3)];
                        head.theta = Theta::Dense(head.theta.to_dense() * faer::Scale(1.0 + noise));
                    }
                    head
                })
                .collect();
            let given = layer(heads);
            let once = given.canonical(tolerance);
            let twice = once.layer.canonical(tolerance);
            prop_assert_eq!(&twice.layer, &once.layer);
            let live = once.layer.heads().len();
            prop_assert!(once.merged == [Vec::<usize>::new()] || twice.merged == (0..live).map(|i| vec![i]).collect::<Vec<_>>());

            let mut origins: Vec<usize> = once.merged.iter().flatten().chain(&once.dropped).copied().collect();
            origins.sort_unstable();
            prop_assert_eq!(origins, (0..m).collect::<Vec<_>>(), "every head is accounted for once");

            let x = Mat::from_fn(4, 5, |_, _| rng.random_range(-1.0..1.0));
            let difference = frobenius((given.forward_one(x.as_ref()) - once.layer.forward_one(x.as_ref())).as_ref());
            prop_assert!(difference <= 100.0 * (tolerance + 1e-15) * m as f64);

            let mut reversed = given.heads().to_vec();
            reversed.reverse();
            if tolerance <= 1e-12 {
                let other = layer(reversed).canonical(tolerance).layer;
                prop_assert_eq!(other.heads().len(), live, "the order given does not matter");
            }
        }
    }
}
