//! Conjugate gradients for `H x = b`, with lengths as a metric `M` sees them.

use crate::{Error, Result};

/// How far to go.
pub(crate) struct Limits<'a> {
    /// Relative residual, as `M⁻¹` sees it.
    pub(crate) accuracy: f64,
    /// Most products with `H`.
    pub(crate) products: usize,
    /// Asked before every product.
    pub(crate) stop: &'a dyn Fn() -> bool,
}

/// `x`, and whether it is as exact as was asked for. `product` is `H`, `solve` is `M⁻¹`; a direction along which `H` is not positive ends it.
pub(crate) fn conjugate(
    right: Vec<f64>,
    limits: &Limits<'_>,
    mut product: impl FnMut(&[f64]) -> Vec<f64>,
    solve: impl Fn(&[f64]) -> Vec<f64>,
) -> Result<(Vec<f64>, bool)> {
    let (mut x, mut r) = (vec![0.0; right.len()], right);
    let mut direction = solve(&r);
    let mut rz = inner(&r, &direction);
    let goal = limits.accuracy.powi(2) * rz;
    let mut reached = rz <= goal;
    for _ in 0..limits.products {
        if (limits.stop)() {
            return Err(Error::Interrupted);
        }
        if reached || direction.iter().all(|v| *v == 0.0) {
            break;
        }
        let along = product(&direction);
        let curvature = inner(&direction, &along);
        if curvature <= 0.0 {
            break;
        }
        let length = rz / curvature;
        x.iter_mut().zip(&direction).for_each(|(x, d)| *x += length * d);
        r.iter_mut().zip(&along).for_each(|(r, a)| *r -= length * a);
        let z = solve(&r);
        let next = inner(&r, &z);
        direction.iter_mut().zip(&z).for_each(|(d, z)| *d = z + next / rz * *d);
        rz = next;
        reached = rz <= goal;
    }
    Ok((x, reached))
}

/// `⟨a, b⟩`.
pub(crate) fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::linalg::Mat;
    use crate::linalg::cholesky::{small_cholesky, small_inverse};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// In n products the solution of n equations, in one if the metric is the matrix; less asked for, less done.
    #[test]
    fn n_products_solve_n_equations() {
        for seed in 0..5 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let n = 12;
            let root = Mat::from_fn(n, n, |_, _| rng.sample::<f64, _>(StandardNormal));
            let h = root.transpose() * &root + Mat::<f64>::identity(n, n);
            let solution: Vec<f64> = (0..n).map(|_| rng.sample(StandardNormal)).collect();
            let times = |v: &[f64]| -> Vec<f64> { (0..n).map(|i| (0..n).map(|j| h[(i, j)] * v[j]).sum()).collect() };
            let solve = |accuracy: f64, metric: &dyn Fn(&[f64]) -> Vec<f64>| {
                let mut products = 0;
                let limits = Limits { accuracy, products: 100, stop: &|| false };
                let count = |v: &[f64]| {
                    products += 1;
                    times(v)
                };
                let (x, reached) = conjugate(times(&solution), &limits, count, metric).unwrap();
                let off = x.iter().zip(&solution).map(|(x, s)| (x - s).abs()).fold(0.0, f64::max);
                (off, products, reached)
            };
            let (off, products, reached) = solve(1e-12, &|r| r.to_vec());
            assert!(off < 1e-9 && (n..2 * n).contains(&products) && reached, "seed {seed}: {off:.1e} after {products}");
            let (_, fewer, reached) = solve(1e-1, &|r| r.to_vec());
            assert!(fewer < products && reached, "seed {seed}: {fewer} of {products}");
            let mut l = h.clone();
            small_cholesky(l.as_mut()).unwrap();
            let l = small_inverse(l.as_ref());
            let inverse = l.transpose() * &l;
            let (off, products, _) = solve(1e-9, &|r| (0..n).map(|i| (0..n).map(|j| inverse[(i, j)] * r[j]).sum()).collect());
            assert!(off < 1e-9 && products == 1, "seed {seed}: {off:.1e} after {products}");
            let limits = Limits { accuracy: 1e-12, products: 100, stop: &|| true };
            assert!(matches!(conjugate(times(&solution), &limits, times, |r| r.to_vec()), Err(Error::Interrupted)));
        }
    }
}
