//! Targets and weights of all examples, checked, centred and scaled: `ỹ_i = √w_i (y_i − ȳ)`.

use super::Watch;
use crate::features::{SetBlock, SetSource};
use crate::linalg::Mat;
use crate::{Error, Result};

/// What the solvers need of the examples beside their features: `8 (t + 2)` bytes for each.
pub(super) struct Targets {
    /// `√w_i`.
    pub roots: Vec<f64>,
    /// `W = Σ w_i`.
    pub total: f64,
    /// `ȳ` if there is an intercept, else 0.
    pub mean: Vec<f64>,
    /// `ỹ`, n × t.
    pub y: Mat<f64>,
    /// Whether there is an intercept.
    pub intercept: bool,
}

/// Refuses a source without examples or without targets.
pub(super) fn present(source: &dyn SetSource) -> Result<()> {
    if source.is_empty() {
        return Err(Error::input("examples", "there are none", "give at least one"));
    }
    if source.shape().targets == 0 {
        return Err(Error::input("targets", "there are none", "give every example at least one number to predict"));
    }
    Ok(())
}

/// What is said of a target that does not vary.
pub(super) fn constant(target: usize, intercept: bool) -> Error {
    Error::input(
        format!("target {target}"),
        if intercept { "it is the same for all examples" } else { "it is zero for all examples" },
        "there is nothing to fit: predict the constant, or check how the targets were read",
    )
}

/// What is said where no example counts.
pub(super) fn all_zero() -> Error {
    Error::input("weights", "they are all zero", "give some example a positive weight")
}

impl Targets {
    pub fn read(source: &dyn SetSource, intercept: bool, watch: &dyn Watch) -> Result<Self> {
        present(source)?;
        let t = source.shape().targets;
        let (mut roots, mut values) = (Vec::new(), Vec::new());
        let mut block = SetBlock::new(source.shape());
        for index in 0..source.blocks() {
            if watch.interrupted() {
                return Err(Error::Interrupted);
            }
            source.fill(index, &mut block)?;
            for i in 0..block.len() {
                let (w, place) = (block.weights[i], || format!("example {}", roots.len()));
                if !(w.is_finite() && w >= 0.0) {
                    return Err(Error::input(place(), format!("its weight is {w}"), "weights must be finite and not negative"));
                }
                if let Some(y) = block.targets(i).iter().find(|y| !y.is_finite()) {
                    return Err(Error::input(place(), format!("a target is {y}"), "remove it or give it a finite target"));
                }
                values.extend_from_slice(block.targets(i));
                roots.push(w.sqrt());
            }
        }
        let n = roots.len();
        let total: f64 = roots.iter().map(|r| r * r).sum();
        if total <= 0.0 {
            return Err(all_zero());
        }
        let mut mean = vec![0.0; t];
        if intercept {
            for (j, mean) in mean.iter_mut().enumerate() {
                *mean = (0..n).map(|i| roots[i] * roots[i] * values[i * t + j]).sum::<f64>() / total;
            }
        }
        let y = Mat::from_fn(n, t, |i, j| roots[i] * (values[i * t + j] - mean[j]));
        for j in 0..t {
            let scale = (0..n).map(|i| (roots[i] * values[i * t + j]).abs()).fold(0.0, f64::max);
            if y.col_as_slice(j).iter().all(|y| y.abs() <= 4.0 * f64::EPSILON * scale) {
                return Err(constant(j, intercept));
            }
        }
        Ok(Self { roots, total, mean, y, intercept })
    }

    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// `a = √w α̃ − w (Σ √w α̃)/W` (or `√w α̃` without an intercept): then `Φ̃ᵀ α̃ = Φᵀ a`.
    pub fn coefficients(&self, alpha: &Mat<f64>) -> Mat<f64> {
        let mut a = Mat::from_fn(self.len(), alpha.ncols(), |i, j| self.roots[i] * alpha[(i, j)]);
        if self.intercept {
            for j in 0..a.ncols() {
                let mean = a.col_as_slice(j).iter().sum::<f64>() / self.total;
                for (a, root) in a.col_as_slice_mut(j).iter_mut().zip(&self.roots) {
                    *a -= root * root * mean;
                }
            }
        }
        a
    }

    /// The other way: `√w (z − z̄)`, which takes `Φ u` to `Φ̃ u`.
    pub fn scale(&self, mut z: Mat<f64>) -> Mat<f64> {
        for j in 0..z.ncols() {
            let z = z.col_as_slice_mut(j);
            let mean = if self.intercept {
                z.iter().zip(&self.roots).map(|(z, root)| root * root * z).sum::<f64>() / self.total
            } else {
                0.0
            };
            for (z, root) in z.iter_mut().zip(&self.roots) {
                *z = root * (*z - mean);
            }
        }
        z
    }

    /// `b = ȳ − φ̄ᵀ v`.
    pub fn intercepts(&self, feature_means: &[f64], v: &Mat<f64>) -> Vec<f64> {
        if !self.intercept {
            return vec![0.0; v.ncols()];
        }
        let product = |j| v.col_as_slice(j).iter().zip(feature_means).map(|(v, m)| v * m).sum::<f64>();
        (0..v.ncols()).map(|j| self.mean[j] - product(j)).collect()
    }
}
