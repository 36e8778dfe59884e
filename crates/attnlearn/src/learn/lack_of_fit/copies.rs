//! The classical test of pure error: copies of one input whose outputs differ.
//!
//! Of two of them, `⟨R_i, R_j⟩` has mean 0 if residuals are noise, and otherwise that of the squared lack of fit. Examples that stand there twice with the
//! same outputs are one example.

use super::FEW;
use super::prediction::standard;
use crate::engine::Batch;
use crate::hash::Key;
use std::collections::HashMap;

/// Examples that share their inputs.
pub(super) struct Groups(Vec<Vec<usize>>);

impl std::ops::Deref for Groups {
    type Target = [Vec<usize>];
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What copies say.
pub(super) struct Copies {
    pub groups: usize,
    pub z: f64,
    /// Share of the residuals that is common to copies.
    pub share: f64,
    /// Its standard error.
    pub error: f64,
}

impl Groups {
    /// Groups of one input each, examples with the same outputs once.
    pub fn of(examples: &Batch<f64>) -> Self {
        let (per_x, per_y) = (examples.shape.k * examples.shape.d, examples.shape.k * examples.shape.d_out);
        let (mut groups, mut known): (Vec<Vec<usize>>, HashMap<u64, Vec<usize>>) = (Vec::new(), HashMap::new());
        let x = |i: usize| &examples.x[i * per_x..(i + 1) * per_x];
        let y = |i: usize| &examples.y[i * per_y..(i + 1) * per_y];
        // −0 is 0.
        let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a + 0.0).to_bits() == (b + 0.0).to_bits());
        for i in 0..examples.len() {
            let candidates = known.entry(Key::new(0).with(x(i)).value()).or_default();
            match candidates.iter().find(|group| same(x(groups[**group][0]), x(i))) {
                Some(&group) => {
                    if !groups[group].iter().any(|other| same(y(*other), y(i))) {
                        groups[group].push(i);
                    }
                }
                None => {
                    candidates.push(groups.len());
                    groups.push(vec![i]);
                }
            }
        }
        Self(groups)
    }

    /// What residuals of copies, `per` numbers an example, have in common, if there are enough of them.
    pub fn copies(&self, residuals: &[f64], per: usize) -> Option<Copies> {
        let of = |i: usize| &residuals[i * per..(i + 1) * per];
        let groups: Vec<&Vec<usize>> = self.iter().filter(|group| group.len() > 1).collect();
        if groups.len() < FEW {
            return None;
        }
        let (mut common, mut square) = (Vec::new(), 0.0);
        for group in &groups {
            // Over all pairs: ‖Σ R‖² − Σ ‖R‖².
            let mut sum = vec![0.0; per];
            group.iter().for_each(|&i| sum.iter_mut().zip(of(i)).for_each(|(s, r)| *s += r));
            let own: f64 = group.iter().map(|&i| of(i).iter().map(|r| r * r).sum::<f64>()).sum();
            let pairs = (group.len() * (group.len() - 1)) as f64;
            common.push((sum.iter().map(|s| s * s).sum::<f64>() - own) / pairs);
            square += own / group.len() as f64;
        }
        let square = square / groups.len() as f64;
        let (z, mean, error) = standard(&common);
        Some(Copies { groups: groups.len(), z, share: (mean / square).max(0.0), error: error / square })
    }
}
