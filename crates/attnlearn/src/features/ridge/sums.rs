//! A fit from sums alone, when the examples are gone: what a stream that was added up bit by bit leaves.
//!
//! There are no leave-one-out errors without examples. But the eigenvalues `g` of the Gram and `z = Qᵀr` give every ridge's error on the
//! examples of the sums and its freedom, hence generalised cross-validation, exactly (`μ = Wλ`, one more for the intercept):
//!
//! ```text
//! RSS = ‖ỹ‖² − Σ_i z_i² (g_i + 2μ)/(g_i + μ)²      tr H = 1 + Σ_i g_i/(g_i + μ)      GCV = (RSS/W) / (1 − tr H/n)²
//! ```

use super::gram::{Gram, Normal};
use super::path::grid;
use super::{Fit, Options, PathPoint, Ridge, Solver, Stage, Watch, check, factor, fixed, given};
use crate::linalg::{cholesky, symmetric_eigen};
use crate::{Error, Result};

/// Fits to the sums; [`Ridge::Auto`] is the ridge of least generalised cross-validation.
pub fn fit_sums(gram: Gram, options: &Options, watch: &dyn Watch) -> Result<Fit> {
    check::<f64>(options)?;
    let n = gram.examples as f64;
    let mut normal = gram.normal_equations(options.intercept)?;
    let trace: f64 = (0..normal.g.nrows()).map(|i| normal.g[(i, i)]).sum();
    let (lambda, path) = if let Ridge::Auto = options.ridge {
        watch.begin(Stage::Path);
        let lambdas = given(options).map_or_else(|| grid::<f64>(trace / normal.weight, options.path), <[f64]>::to_vec);
        let path = path(&normal, &lambdas, n, options.intercept)?;
        let best = path.iter().min_by(|a, b| a.gcv.total_cmp(&b.gcv)).map_or(0.0, |point| point.lambda);
        (best, path)
    } else {
        (fixed(options, trace, normal.g.nrows(), normal.weight), Vec::new())
    };
    if watch.interrupted() {
        return Err(Error::Interrupted);
    }
    watch.begin(Stage::Factor);
    factor(&mut normal.g, lambda * normal.weight, watch)?;
    let mut v = normal.r.clone();
    cholesky::solve(normal.g.as_ref(), v.as_mut());
    let lambdas = vec![lambda; normal.r.ncols()];
    Ok(Fit { intercept: normal.intercepts(&v), v, path, ..Fit::new(Solver::Gram, lambdas) })
}

fn path(normal: &Normal, lambdas: &[f64], n: f64, intercept: bool) -> Result<Vec<PathPoint>> {
    let p = normal.g.nrows();
    let broken = || Error::input("gram", "its eigenvalues are not finite", "scale the features down");
    let (values, vectors) = symmetric_eigen(normal.g.as_ref()).ok_or_else(broken)?;
    let turned = vectors.transpose() * &normal.r;
    let squares: Vec<f64> = (0..p).map(|i| (0..turned.ncols()).map(|j| turned[(i, j)].powi(2)).sum()).collect();
    let point = |lambda: f64| {
        let mu = lambda * normal.weight;
        let explained: f64 =
            values.iter().zip(&squares).map(|(g, z)| z * (g.max(0.0) + 2.0 * mu) / (g.max(0.0) + mu).powi(2)).sum();
        let freedom = values.iter().map(|g| g.max(0.0) / (g.max(0.0) + mu)).sum::<f64>() + f64::from(u8::from(intercept));
        // What is left of a difference that cancels is rounding.
        let training = (normal.squares - explained).max(f64::EPSILON * normal.squares) / normal.weight;
        let share = (1.0 - freedom / n).max(f64::EPSILON);
        PathPoint { lambda, loo: None, gcv: training / (share * share), training, freedom }
    };
    Ok(lambdas.iter().map(|&lambda| point(lambda)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Unwatched, fit};
    use super::*;
    use crate::features::{FeatureMap, MapSpec, Model, SetInputs, SetSource, SetStream, Target, TargetSpec};

    fn setting() -> (Box<dyn FeatureMap<f64>>, SetStream) {
        let target = Target::new(&TargetSpec::Average { p: 2 }, SetInputs::new(3, 4), 5).unwrap();
        let source = SetStream::new(target, 3, 600).with_noise(0.3).unwrap();
        (MapSpec::new(Model::Rfa, 4, 3, 10, 1).build().unwrap(), source)
    }

    fn sums() -> Gram {
        let (map, source) = setting();
        let mut gram = Gram::new(map.features(), 1);
        gram.add(map.as_ref(), &source, 0..source.blocks(), &Unwatched).unwrap();
        gram
    }

    /// The same answer as from the examples, and the same GCV and freedom as the path that goes over them.
    #[test]
    fn sums_say_what_examples_say() {
        let (map, source) = setting();
        let options = Options { ridge: Ridge::Given(1e-3), solver: Solver::Gram, ..Options::default() };
        let (a, b) = (fit(map.as_ref(), &source, &options, &Unwatched).unwrap(), fit_sums(sums(), &options, &Unwatched).unwrap());
        assert_eq!((a.v, a.intercept), (b.v, b.intercept));
        let options = Options { solver: Solver::Gram, ..Options::default() };
        let (a, b) = (fit(map.as_ref(), &source, &options, &Unwatched).unwrap(), fit_sums(sums(), &options, &Unwatched).unwrap());
        assert_eq!(a.path.len(), b.path.len());
        for (a, b) in a.path.iter().zip(&b.path) {
            assert!((a.lambda / b.lambda - 1.0).abs() < 1e-9 && (a.gcv / b.gcv - 1.0).abs() < 1e-6, "{a:?} {b:?}");
            assert!((a.freedom / b.freedom - 1.0).abs() < 1e-6 && b.loo.is_none());
        }
    }

    #[test]
    fn sums_of_nothing_are_refused() {
        assert!(fit_sums(Gram::new(3, 1), &Options::default(), &Unwatched).is_err());
    }
}
