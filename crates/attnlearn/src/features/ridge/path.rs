//! Many ridges at once, each with its exact leave-one-out error.
//!
//! With `μ = Wλ` and `h_i = w_i/W + φ̃_iᵀ (Φ̃ᵀΦ̃ + μ)⁻¹ φ̃_i` (the first term for the intercept), the fit without example `i` and
//! with the same `μ` misses it by
//!
//! ```text
//! e_i / (1 − h_i)        GCV = (1/W) Σ w_i e_i² / (1 − tr H / n)²        e = y − fit
//! ```
//!
//! From the dual, `e_i = μ α̃_i / √w_i` and `1 − h_i = μ (Γ_ii − u_i²/(s + μ))`, `Γ = (K̃ + s u uᵀ + μ)⁻¹`: the `μ` cancel, and
//! the formula holds down to `μ → 0`. From the Gram, `h_i` takes one more pass over the examples. Either way the matrix
//! is brought to band form once, and a ridge costs a band factorisation and one solve for every example.
//!
//! Examples of weight zero are left out of the errors: no fit has seen them.

use super::dual::{Dual, cast, widen};
use super::gram::{Normal, PANEL};
use super::panel::Data;
use super::targets::Targets;
use super::{Options, Stage, Watch};
use crate::features::SetBlock;
use crate::linalg::Mat;
use crate::linalg::band::{BandFactor, BandForm, HALF};
use crate::linalg::cholesky::Halt;
use crate::linalg::symmetric::{Field, product};
use crate::memory::{clamp, numbers};
use crate::parallel;
use crate::{Error, Result};
use faer::MatRef;
use serde::Serialize;

/// One ridge and its errors: weighted means of squares, added up over targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PathPoint {
    /// λ.
    pub lambda: f64,
    /// Leave-one-out error; conjugate gradients do not compute it.
    pub loo: Option<f64>,
    /// Generalised cross-validation, by conjugate gradients an estimate.
    pub gcv: f64,
    /// Error on the examples of the fit.
    pub training: f64,
    /// `tr H`.
    pub freedom: f64,
}

impl PathPoint {
    /// What the ridge is chosen by: the leave-one-out error where there is one, else generalised cross-validation.
    pub fn error(&self) -> f64 {
        self.loo.unwrap_or(self.gcv)
    }
}

/// What chose a ridge of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// The exact leave-one-out error, by the direct solvers.
    LeaveOneOut,
    /// Generalised cross-validation, estimated by conjugate gradients.
    Gcv,
}

impl Criterion {
    /// What chose the ridge of `path`; nothing if there is none.
    pub fn of(path: &[PathPoint]) -> Option<Self> {
        path.first().map(|point| if point.loo.is_some() { Self::LeaveOneOut } else { Self::Gcv })
    }
}

/// `count` ridges, evenly in the logarithm, from the size of the mean squared norm `scale` of the centred features down to where
/// rounding in `T` takes over: by `ε^0.6` in double precision, and in single precision, where that would leave out ridges that matter, by
/// as much as the errors of the path bear.
pub(super) fn grid<T: Field>(scale: f64, count: usize) -> Vec<f64> {
    let (high, low) = (scale, scale * T::EPSILON.powf(0.6).min(1.5e-6));
    (0..count).map(|i| high * (low / high).powf(i as f64 / (count.max(2) - 1) as f64)).collect()
}

/// Bytes of the factors of `count` ridges on a matrix of size `m`, and of the panels of the extra pass.
pub(super) fn bytes(m: usize, count: usize) -> u64 {
    clamp(numbers::<f64>(&[m, count.saturating_mul(3 * HALF).saturating_add(2 * PANEL)]))
}

/// The path and the answer at the ridge of least leave-one-out error.
pub(super) struct Chosen {
    pub path: Vec<PathPoint>,
    /// λ of every target.
    pub lambdas: Vec<f64>,
    /// `α̃` from the dual, `v` from the Gram.
    pub answer: Mat<f64>,
}

/// Sums of one ridge over examples.
#[derive(Clone)]
struct Sums {
    /// One a target.
    loo: Vec<f64>,
    training: f64,
    freedom: f64,
}

impl Sums {
    fn new(targets: usize) -> Self {
        Self { loo: vec![0.0; targets], training: 0.0, freedom: 0.0 }
    }

    /// An example whose residuals, times the root of its weight, are `μ` times `over`, and whose leverage is `1 − μ` times `slack`.
    fn add(&mut self, over: impl Iterator<Item = f64>, slack: f64, mu: f64) {
        for (loo, residual) in self.loo.iter_mut().zip(over) {
            self.training += (mu * residual).powi(2);
            *loo += (residual / slack).powi(2);
        }
        self.freedom += 1.0 - mu * slack;
    }

    fn point(&self, lambda: f64, total: f64, n: f64) -> PathPoint {
        let (training, share) = (self.training / total, 1.0 - self.freedom / n);
        let loo = self.loo.iter().sum::<f64>() / total;
        PathPoint { lambda, loo: Some(loo), gcv: training / (share * share), training, freedom: self.freedom }
    }
}

/// Which ridge of the path every target has: that of least error of its own, or of all together.
fn choose(path: &[PathPoint], sums: &[&Sums], targets: usize, apart: bool) -> Result<Vec<usize>> {
    if !apart {
        return Ok(vec![best(path)?; targets]);
    }
    let of = |j: usize| -> Vec<PathPoint> {
        path.iter().zip(sums).map(|(point, sums)| PathPoint { loo: Some(sums.loo[j]), ..*point }).collect()
    };
    (0..targets).map(|j| best(&of(j))).collect()
}

/// Where the error is least.
pub(super) fn best(path: &[PathPoint]) -> Result<usize> {
    let order = |a: &usize, b: &usize| path[*a].error().total_cmp(&path[*b].error());
    (0..path.len()).filter(|&i| path[i].error().is_finite()).min_by(order).ok_or_else(|| {
        Error::input(
            "ridge",
            "no ridge of the path could be factored",
            "give larger ones, or compute the features in double precision",
        )
    })
}

/// From the dual; `k` is used up.
pub(super) fn dual_path<T: Field>(
    dual: Dual<T>,
    targets: &Targets,
    lambdas: Option<&[f64]>,
    options: &Options,
    watch: &dyn Watch,
) -> Result<(Chosen, Vec<f64>)> {
    let Dual { k, feature_means, trace, null } = dual;
    let (n, t) = (targets.len(), targets.y.ncols());
    let lambdas = lambdas.map_or_else(|| grid::<T>(trace / targets.total, options.path), <[f64]>::to_vec);
    watch.begin(Stage::Band);
    let form = BandForm::new(k, &|| watch.interrupted()).map_err(halted)?;
    watch.begin(Stage::Path);
    let rotated = form.rotate(cast::<T>(&targets.y).as_ref());
    let solve = |factor: &BandFactor<T>| {
        let mut x = rotated.clone();
        factor.solve(&mut x);
        widen(&form.rotate_back(x.as_ref()))
    };
    let seen = targets.roots.iter().filter(|&&root| root > 0.0).count() as f64;
    let mut tried = Vec::with_capacity(lambdas.len());
    for (done, &lambda) in lambdas.iter().enumerate() {
        if watch.interrupted() {
            return Err(Error::Interrupted);
        }
        let mu = lambda * targets.total;
        if let Ok(factor) = form.factor(mu) {
            let (alpha, diagonal) = (solve(&factor), factor.energies(form.q().transpose()));
            let mut sums = Sums::new(t);
            for i in (0..n).filter(|&i| targets.roots[i] > 0.0) {
                let u = if targets.intercept { targets.roots[i].powi(2) / targets.total / (null + mu) } else { 0.0 };
                sums.add((0..t).map(|j| alpha[(i, j)]), diagonal[i] - u, mu);
            }
            tried.push((lambda, sums));
        }
        watch.advance(done as u64 + 1, lambdas.len() as u64);
    }
    let path: Vec<PathPoint> = tried.iter().map(|(lambda, sums)| sums.point(*lambda, targets.total, seen)).collect();
    let sums: Vec<&Sums> = tried.iter().map(|(_, sums)| sums).collect();
    let chosen = choose(&path, &sums, t, options.apart)?;
    let mut answer = Mat::zeros(n, t);
    for index in (0..path.len()).filter(|index| chosen.contains(index)) {
        let factor = form.factor(path[index].lambda * targets.total).map_err(|_| not_finite())?;
        take(&mut answer, &solve(&factor), |j| chosen[j] == index);
    }
    let lambdas = chosen.iter().map(|&index| path[index].lambda).collect();
    Ok((Chosen { answer, path, lambdas }, feature_means))
}

/// From the Gram, with one more pass over the examples; `normal.g` is used up.
pub(super) fn gram_path<T: Field>(
    data: &Data<'_, T>,
    normal: &mut Normal,
    targets: &Targets,
    lambdas: Option<&[f64]>,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Chosen> {
    let (p, t, total) = (normal.r.nrows(), normal.r.ncols(), normal.weight);
    let trace: f64 = (0..p).map(|i| normal.g[(i, i)]).sum();
    let lambdas = lambdas.map_or_else(|| grid::<f64>(trace / total, options.path), <[f64]>::to_vec);
    watch.begin(Stage::Band);
    let form = BandForm::new(std::mem::replace(&mut normal.g, Mat::new()), &|| watch.interrupted()).map_err(halted)?;
    watch.begin(Stage::Path);
    let rotated = form.rotate(normal.r.as_ref());
    let factor = |lambda: f64| {
        let factor = form.factor(lambda * total).ok()?;
        let mut x = rotated.clone();
        factor.solve(&mut x);
        Some((lambda, factor, x))
    };
    let factors: Vec<_> = parallel::map(lambdas.iter().copied(), factor).into_iter().flatten().collect();
    let mut sums = vec![Sums::new(t); factors.len()];
    let blocks = data.source.blocks();
    let step = (PANEL / SetBlock::CAPACITY) as u64;
    let mut buffer = vec![T::ZERO; p * PANEL.min(targets.len())];
    let mut first = 0;
    let mut start = 0;
    while first < blocks {
        if watch.interrupted() {
            return Err(Error::Interrupted);
        }
        let n = data.fill(first..(first + step).min(blocks), 0..data.map.strips(), &mut buffer)?;
        // Φ̃, an example a column, and Z = Qᵀ Φ̃ᵀ.
        let mut phi = vec![0.0f64; n * p];
        parallel::each(phi.chunks_mut(p.max(1)).zip(buffer.chunks(p.max(1))).enumerate(), |(i, (phi, row))| {
            let root = targets.roots[start + i];
            for ((phi, v), mean) in phi.iter_mut().zip(row).zip(&normal.feature_means) {
                *phi = root * (v.to_f64() - mean);
            }
        });
        let z = form.rotate(MatRef::from_column_major_slice(&phi, p, n));
        for ((_, factor, x), sums) in factors.iter().zip(&mut sums) {
            let leverages = factor.energies(z.as_ref());
            let mut fits = Mat::<f64>::zeros(n, t);
            product(fits.as_mut(), false, 1.0, z.transpose(), x.as_ref());
            for i in (0..n).filter(|&i| targets.roots[start + i] > 0.0) {
                let intercept = if targets.intercept { targets.roots[start + i].powi(2) / total } else { 0.0 };
                let residuals = (0..t).map(|j| targets.y[(start + i, j)] - fits[(i, j)]);
                sums.add(residuals, 1.0 - leverages[i] - intercept, 1.0);
            }
        }
        (first, start) = (first + step, start + n);
        watch.advance(first.min(blocks), blocks);
    }
    let seen = targets.roots.iter().filter(|&&root| root > 0.0).count() as f64;
    let path: Vec<PathPoint> = factors.iter().zip(&sums).map(|((lambda, ..), sums)| sums.point(*lambda, total, seen)).collect();
    let chosen = choose(&path, &sums.iter().collect::<Vec<_>>(), t, options.apart)?;
    let mut rotated = Mat::zeros(p, t);
    for index in (0..path.len()).filter(|index| chosen.contains(index)) {
        take(&mut rotated, &factors[index].2, |j| chosen[j] == index);
    }
    let lambdas = chosen.iter().map(|&index| path[index].lambda).collect();
    Ok(Chosen { lambdas, answer: form.rotate_back(rotated.as_ref()), path })
}

/// Copies the columns that are wanted.
fn take(to: &mut Mat<f64>, from: &Mat<f64>, wanted: impl Fn(usize) -> bool) {
    for j in (0..to.ncols()).filter(|&j| wanted(j)) {
        to.col_as_slice_mut(j).copy_from_slice(from.col_as_slice(j));
    }
}

fn halted(halt: Halt) -> Error {
    match halt {
        Halt::Stopped => Error::Interrupted,
        Halt::Unfit => not_finite(),
    }
}

fn not_finite() -> Error {
    Error::input("features", "their products are not finite", "scale them down, or compute them in double precision")
}
