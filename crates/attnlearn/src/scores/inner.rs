//! From raw queries and keys to those whose inner products are logits: `v ↦ R_a N_γ(v)` at position `a`, with derivative and adjoint.
//!
//! Vectors are `[width][L]`: `L` of them interleaved, one in the learner's passes, sixteen in panels.

use super::{Scores, norm};
use crate::linalg::lanes::Real;

/// The map for sequences of some length, in one precision.
#[derive(Clone, Debug)]
pub struct Inner<T> {
    width: usize,
    pairs: usize,
    /// `cos ω_j a`, `[a][j]`.
    cos: Vec<T>,
    sin: Vec<T>,
    /// ε of the norm.
    epsilon: Option<f64>,
}

impl<T: Real> Inner<T> {
    /// That of heads of dimension `width` in sequences of `positions` tokens; `None` where it is the identity.
    pub fn new(scores: &Scores, width: usize, positions: usize) -> Option<Self> {
        if scores.is_bilinear() {
            return None;
        }
        let frequencies = scores.rotation.as_ref().map_or(&[][..], |rotation| &rotation.frequencies);
        let table = |of: fn(f64) -> f64| {
            let at = |a: usize| frequencies.iter().map(move |frequency| T::from_f64(of(frequency * a as f64)));
            (0..positions).flat_map(at).collect()
        };
        Some(Self { width, pairs: frequencies.len(), cos: table(f64::cos), sin: table(f64::sin), epsilon: scores.norm })
    }

    /// Whether derivative and adjoint ask for the raw vectors.
    pub fn needs_raw(&self) -> bool {
        self.epsilon.is_some()
    }

    /// `v ← R_a N_γ(v)`.
    #[inline(always)]
    pub fn apply<const L: usize>(&self, position: usize, gains: &[T], v: &mut [T]) {
        if let Some(epsilon) = self.epsilon {
            norm::normalise::<T, L>(v, gains, epsilon);
        }
        self.turn::<L>(position, false, v);
    }

    /// `dv ←` the derivative at the raw `v` along `dv` and `dγ`.
    #[inline(always)]
    pub fn derivative<const L: usize>(&self, position: usize, v: &[T], gains: &[T], along_gains: &[T], dv: &mut [T]) {
        if let Some(epsilon) = self.epsilon {
            norm::derivative::<T, L>(v, gains, along_gains, dv, epsilon);
        }
        self.turn::<L>(position, false, dv);
    }

    /// `dv ←` the adjoint of `dv` at the raw `v`; that of the gains is added to `of_gains`.
    #[inline(always)]
    pub fn adjoint<const L: usize>(&self, position: usize, v: &[T], gains: &[T], of_gains: &mut [T], dv: &mut [T]) {
        self.turn::<L>(position, true, dv);
        if let Some(epsilon) = self.epsilon {
            norm::adjoint::<T, L>(v, gains, of_gains, dv, epsilon);
        }
    }

    /// `v ← R_a v`, or `R_aᵀ v`.
    #[inline(always)]
    fn turn<const L: usize>(&self, position: usize, back: bool, v: &mut [T]) {
        let n = self.pairs;
        if n == 0 {
            return;
        }
        debug_assert_eq!(v.len(), self.width * L);
        let at = position * n..(position + 1) * n;
        let (first, second) = v[..2 * n * L].split_at_mut(n * L);
        let pairs = first.as_chunks_mut::<L>().0.iter_mut().zip(second.as_chunks_mut::<L>().0);
        for ((re, im), (cos, sin)) in pairs.zip(self.cos[at.clone()].iter().zip(&self.sin[at])) {
            let sin = if back { -*sin } else { *sin };
            for l in 0..L {
                let (x, y) = (re[l], im[l]);
                re[l] = x * *cos - y * sin;
                im[l] = x * sin + y * *cos;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::Rotation;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn all() -> Vec<Scores> {
        let rotation = Some(Rotation::of_base(100.0, 4));
        vec![
            Scores { rotation: rotation.clone(), ..Scores::default() },
            Scores { norm: Some(1e-3), ..Scores::default() },
            Scores { rotation, norm: Some(1e-6), ..Scores::default() },
        ]
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Inner products depend on the distance alone; the derivative is that of finite differences; the adjoint is its adjoint; and sixteen vectors
        /// side by side are treated as each by itself.
        #[test]
        fn the_map_its_derivative_and_its_adjoint(seed in 0u64..1000, position in 0usize..5) {
            let rng = &mut ChaCha8Rng::seed_from_u64(seed);
            let mut draw = |n: usize| (0..n).map(|_| rng.sample::<f64, _>(StandardNormal)).collect::<Vec<f64>>();
            for scores in all() {
                let inner = Inner::<f64>::new(&scores, 6, 16).expect("not the identity");
                let [v, other, dv, dg, u] = [6, 6, 6, 6, 6].map(&mut draw);
                let gains: Vec<f64> = draw(6).iter().map(|g| 1.0 + 0.3 * g).collect();
                let at = |position: usize, v: &[f64], gains: &[f64]| {
                    let mut v = v.to_vec();
                    inner.apply::<1>(position, gains, &mut v);
                    v
                };
                let product = |a: usize, b: usize| dot(&at(a, &v, &gains), &at(b, &other, &gains));
                prop_assert!((product(position, 1) - product(position + 7, 8)).abs() < 1e-12);

                let moved = |t: f64| {
                    let to = |v: &[f64], dv: &[f64]| v.iter().zip(dv).map(|(v, d)| v + t * d).collect::<Vec<f64>>();
                    // Only a norm has gains.
                    at(position, &to(&v, &dv), &if scores.norm.is_some() { to(&gains, &dg) } else { gains.clone() })
                };
                let mut along = dv.clone();
                inner.derivative::<1>(position, &v, &gains, &dg, &mut along);
                for ((plus, minus), along) in moved(1e-6).iter().zip(moved(-1e-6)).zip(&along) {
                    prop_assert!(((plus - minus) / 2e-6 - along).abs() < 1e-6 * (1.0 + along.abs()));
                }
                let (mut back, mut of_gains) = (u.clone(), vec![0.0; 6]);
                inner.adjoint::<1>(position, &v, &gains, &mut of_gains, &mut back);
                prop_assert!((dot(&along, &u) - dot(&dv, &back) - dot(&dg, &of_gains)).abs() < 1e-12 * (1.0 + dot(&u, &u)));

                let panel = draw(6 * 16);
                let mut turned = panel.clone();
                inner.apply::<16>(position, &gains, &mut turned);
                for l in 0..16 {
                    let one = at(position, &(0..6).map(|i| panel[i * 16 + l]).collect::<Vec<_>>(), &gains);
                    prop_assert!((0..6).all(|i| (one[i] - turned[i * 16 + l]).abs() < 1e-14 * (1.0 + one[i].abs())));
                }
            }
        }
    }
}
