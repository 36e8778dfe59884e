//! Kernel ridge regression: the dual with a kernel in place of the products of features.
//!
//! ```text
//! f(x) = b + Σ_i a_i K(x, x_i),    (K̃ + Wλ) α̃ = ỹ,    K̃_ij = √w_i √w_j (K_ij − k̄_i − k̄_j + k̄),    k̄_i = Σ_j w_j K_ij / W
//! ```

use super::dual::Dual;
use super::path::dual_path;
use super::targets::Targets;
use super::{Clock, Options, PathPoint, Ridge, Solver, Stage, Watch, factor, fixed, given};
use crate::features::{KernelSpec, SetSource, Sets};
use crate::linalg::{Mat, cholesky};
use crate::memory::{Size, ask, numbers};
use crate::parallel;
use crate::{Error, Result};
use std::sync::Mutex;

/// A fitted kernel model.
#[derive(Clone, Debug)]
pub struct KernelFit {
    /// `a`, n × t.
    pub a: Mat<f64>,
    /// `b`.
    pub intercept: Vec<f64>,
    /// λ; the first target's where every target has its own.
    pub lambda: f64,
    /// λ of every target: all the same unless [`Options::apart`].
    pub lambdas: Vec<f64>,
    /// Errors of all ridges tried, for [`Ridge::Auto`].
    pub path: Vec<PathPoint>,
    /// The sets that the kernel is evaluated at.
    pub sets: Sets,
    /// Seconds of every stage, in order.
    pub seconds: Vec<(Stage, f64)>,
}

/// Fits `kernel` to the targets of `source`, in double precision.
pub fn fit_kernel(kernel: &KernelSpec, source: &dyn SetSource, options: &Options, watch: &dyn Watch) -> Result<KernelFit> {
    let clock = Clock { watch, began: Mutex::new(Vec::new()) };
    let watch: &dyn Watch = &clock;
    super::check::<f64>(options)?;
    if !matches!(options.solver, Solver::Auto | Solver::Dual) {
        return Err(Error::input("solver", "kernels have no features to solve for", "use auto or dual"));
    }
    let n = usize::try_from(source.len()).unwrap_or(usize::MAX);
    // The kernel and its band form; and the sets, once as they are and once packed.
    let (need, have) = (numbers::<f64>(&[2, n, n]), options.memory);
    let remedy = "give fewer sets, or use a model with finitely many heads";
    if need > have.into() {
        let problem = format!("{} are needed for a kernel of {n} sets and {} allowed", Size(need), Size(have.into()));
        return Err(Error::input("memory", problem, format!("allow more, {remedy}")));
    }
    ask(need.saturating_add(2 * Sets::bytes(source)), "memory", remedy)?;
    watch.begin(Stage::Read);
    let targets = Targets::read(source, options.intercept, watch)?;
    let sets = Sets::read_until(source, &|| watch.interrupted())?;
    watch.begin(Stage::Gram);
    let mut k = kernel.matrix_until(sets.block(), &|| watch.interrupted())?;
    let means = centre(&mut k, &targets);
    let trace: f64 = (0..k.nrows()).map(|i| k[(i, i)]).sum();
    let null = if targets.intercept { trace / k.nrows() as f64 } else { 0.0 };
    add_null(&mut k, &targets, null);
    let mut dual = Dual { k, feature_means: Vec::new(), trace, null };
    let (alpha, lambdas, path) = if let Ridge::Auto = options.ridge {
        let (chosen, _) = dual_path(dual, &targets, given(options), options, watch)?;
        (chosen.answer, chosen.lambdas, chosen.path)
    } else {
        watch.begin(Stage::Factor);
        let lambda = fixed(options, trace, targets.len(), targets.total);
        factor(&mut dual.k, lambda * targets.total, watch)?;
        let mut alpha = targets.y.clone();
        cholesky::solve(dual.k.as_ref(), alpha.as_mut());
        (alpha, vec![lambda; targets.y.ncols()], Vec::new())
    };
    let a = targets.coefficients(&alpha);
    // b = ȳ − Σ_j k̄_j a_j.
    let intercept = targets.intercepts(&means, &a);
    let lambda = lambdas.first().copied().unwrap_or(0.0);
    Ok(KernelFit { a, intercept, lambda, lambdas, path, sets, seconds: clock.seconds() })
}

/// `K ← K̃`; gives `k̄_i`, or zeros without an intercept.
fn centre(k: &mut Mat<f64>, targets: &Targets) -> Vec<f64> {
    let n = k.nrows();
    let weight = |j: usize| targets.roots[j] * targets.roots[j] / targets.total;
    let mut means = vec![0.0; n];
    if targets.intercept {
        means = parallel::map(0..n, |i| k.col_as_slice(i).iter().enumerate().map(|(j, k)| weight(j) * k).sum());
    }
    let mean: f64 = means.iter().enumerate().map(|(i, m)| weight(i) * m).sum();
    for j in 0..n {
        for (i, k) in k.col_as_slice_mut(j).iter_mut().enumerate() {
            *k = targets.roots[i] * targets.roots[j] * (*k - means[i] - means[j] + mean);
        }
    }
    means
}

/// `K̃ += s u uᵀ`, `u = √w/√W`: see `dual.rs`.
fn add_null(k: &mut Mat<f64>, targets: &Targets, s: f64) {
    for j in 0..k.ncols() {
        let factor = s * targets.roots[j] / targets.total;
        for (k, root) in k.col_as_slice_mut(j).iter_mut().zip(&targets.roots) {
            *k += factor * root;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Unwatched;
    use super::*;
    use crate::features::{Mean, SetInputs, SetStream, Target, TargetSpec};

    fn source(n: u64) -> SetStream {
        let target = Target::new(&TargetSpec::Average { p: 2 }, SetInputs::new(3, 4), 5).unwrap();
        SetStream::new(target, 3, n).with_noise(0.1).unwrap()
    }

    /// Leave-one-out errors of the path against refits without each set; the answer against the equations it solves.
    #[test]
    fn leave_one_out_is_that_of_refits() {
        for kernel in [KernelSpec::Rfa, KernelSpec::Brfa { mean: Mean::Identity { scale: 1.0 } }, KernelSpec::Rfmlp] {
            let all = Sets::read(&source(24)).unwrap();
            let lambda = 1e-3;
            let options = Options { ridge: Ridge::Auto, lambdas: vec![lambda], ..Default::default() };
            let fit = fit_kernel(&kernel, &all, &options, &Unwatched).unwrap();
            let mut square = 0.0;
            for left in 0..24 {
                let mut rest = all.block().clone();
                rest.weights[left] = 0.0;
                // The same μ = Wλ, though one weight is gone.
                let options = Options { ridge: Ridge::Given(lambda * 24.0 / 23.0), ..Default::default() };
                let refit = fit_kernel(&kernel, &Sets::new(rest), &options, &Unwatched).unwrap();
                let k = kernel.cross(all.slice(left..left + 1).block(), refit.sets.block()).unwrap();
                let prediction = refit.intercept[0] + (0..24).map(|j| k[(0, j)] * refit.a[(j, 0)]).sum::<f64>();
                square += (all.block().y[left] - prediction).powi(2) / 24.0;
            }
            assert!((fit.path[0].error() / square - 1.0).abs() < 1e-8, "{kernel:?}: {:?} and {square}", fit.path[0]);
        }
    }

    /// Stopped at any poll the fit ends with an interruption.
    #[test]
    fn an_interruption_ends_the_fit() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct After(AtomicUsize, usize);
        impl Watch for After {
            fn interrupted(&self) -> bool {
                self.0.fetch_add(1, Ordering::Relaxed) >= self.1
            }
        }
        for ridge in [Ridge::Given(1e-3), Ridge::Auto] {
            let options = Options { ridge, path: 2, ..Default::default() };
            let whole = After(AtomicUsize::new(0), usize::MAX);
            fit_kernel(&KernelSpec::Rfa, &source(100), &options, &whole).unwrap();
            let polls = whole.0.into_inner();
            // A block of targets, one of sets, seven tiles, and the factorisations.
            assert!(polls >= 10, "{polls}");
            for limit in 0..polls {
                let stopped = fit_kernel(&KernelSpec::Rfa, &source(100), &options, &After(AtomicUsize::new(0), limit));
                assert!(matches!(stopped, Err(Error::Interrupted)), "{ridge:?} {limit} of {polls}");
            }
        }
    }

    #[test]
    fn too_little_memory_is_said() {
        let options = Options { memory: 1000, ..Default::default() };
        let said = fit_kernel(&KernelSpec::Rfa, &source(24), &options, &Unwatched).unwrap_err().to_string();
        assert!(said.contains("finitely many heads"), "{said}");
    }
}
