//! `(H + λM) δ = −Jᵀr` from a matrix that is written out, `M` diagonal, by Cholesky.

use crate::descend::optimise::levenberg::{Solution, Solver};
use crate::linalg::Mat;
use crate::linalg::cholesky::{Halt, cholesky, solve};
use crate::{Error, Result};

/// A system in memory.
pub(crate) struct Dense<'a> {
    /// `H`, its lower triangle.
    pub(crate) matrix: Mat<f64>,
    /// The diagonal of `M`.
    pub(crate) scale: Vec<f64>,
    /// `−Jᵀr`, as many numbers as `H` has rows.
    pub(crate) right: Vec<f64>,
    /// Asked between blocks of the factorisation.
    pub(crate) stop: &'a dyn Fn() -> bool,
}

impl Dense<'_> {
    /// Leaves the unknowns `fixed` as they are; others that there are not are passed over.
    pub(crate) fn fix(&mut self, fixed: &[usize]) {
        let p = self.matrix.nrows();
        for &i in fixed.iter().filter(|i| **i < p) {
            (0..i).for_each(|j| self.matrix[(i, j)] = 0.0);
            (i + 1..p).for_each(|j| self.matrix[(j, i)] = 0.0);
            self.right[i] = 0.0;
        }
    }
}

impl Solver for Dense<'_> {
    fn solve(&mut self, lambda: f64) -> Result<Option<Solution>> {
        let mut l = self.matrix.clone();
        self.scale.iter().enumerate().for_each(|(i, m)| l[(i, i)] += lambda * m);
        match cholesky(l.as_mut(), self.stop) {
            Ok(()) => {}
            Err(Halt::Stopped) => return Err(Error::Interrupted),
            Err(Halt::Unfit) => return Ok(None),
        }
        let mut step = Mat::from_fn(self.right.len(), 1, |i, _| self.right[i]);
        solve(l.as_ref(), step.as_mut());
        Ok(Some(Solution { step: step.col_as_slice(0).to_vec(), exact: true }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// What it finds solves the equations of all unknowns but those that are fixed, which stay; what is not positive definite is not solved.
    #[test]
    fn it_solves_the_equations() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let (n, lambda) = (9, 0.3);
        let root = Mat::from_fn(n, n, |_, _| rng.sample::<f64, _>(StandardNormal));
        let h = root.transpose() * &root;
        let mut positive = |n: usize| (0..n).map(|_| rng.sample::<f64, _>(StandardNormal).abs()).collect::<Vec<f64>>();
        let (scale, right) = (positive(n), positive(n));
        let lower = Mat::from_fn(n, n, |i, j| if i >= j { h[(i, j)] } else { f64::NAN });
        let mut system = Dense { matrix: lower.clone(), scale: scale.clone(), right: right.clone(), stop: &|| false };
        system.fix(&[2, 5, 40]);
        let step = system.solve(lambda).unwrap().unwrap().step;
        for i in 0..n {
            let product: f64 = (0..n).map(|j| (h[(i, j)] + if i == j { lambda * scale[i] } else { 0.0 }) * step[j]).sum();
            let off = if [2, 5].contains(&i) { step[i] } else { product - right[i] };
            assert!(off.abs() < 1e-9, "{i}: {off}");
        }
        let unfit = Mat::from_fn(n, n, |i, j| if i == j { -lower[(i, i)] } else { lower[(i, j)] });
        assert!(Dense { matrix: unfit, ..system }.solve(lambda).unwrap().is_none());
        let mut stopped = Dense { matrix: lower, scale, right, stop: &|| true };
        assert!(matches!(stopped.solve(lambda), Err(Error::Interrupted)));
    }
}
