//! `(JᵀP⊥J + λM) δ = −Jᵀr` from products alone, by conjugate gradients in the metric `M`, in precision `T`.

use crate::Result;
use crate::descend::optimise::conjugate::{Limits, conjugate};
use crate::descend::optimise::levenberg::{Solution, Solver};
use crate::engine::eliminate::Elimination;
use crate::engine::linearised::Linearised;
use crate::engine::metric::Metric;
use crate::linalg::symmetric::Field;

/// A student at a point, whose matrix is never formed.
pub(crate) struct Products<'a, T> {
    /// Where products come from.
    pub(crate) linear: Linearised<'a, T>,
    /// `P⊥`.
    pub(crate) elimination: &'a Elimination,
    /// `M`.
    pub(crate) metric: Metric,
    /// `−Jᵀr`, nothing where numbers are fixed or eliminated.
    pub(crate) right: Vec<f64>,
    /// Numbers that stay as they are.
    pub(crate) fixed: &'a [usize],
    /// How far to go.
    pub(crate) limits: Limits<'a>,
    /// Products so far.
    pub(crate) products: &'a mut usize,
}

impl<T: Field> Solver for Products<'_, T> {
    /// To a relative residual, or as near as so many products come.
    fn solve(&mut self, lambda: f64) -> Result<Option<Solution>> {
        let Self { linear, elimination, metric, right, fixed, limits, products } = self;
        let product = |direction: &[f64]| {
            **products += 1;
            // Products see the size of their argument as 1: single precision ends at 10⁻³⁸.
            let size = direction.iter().fold(0.0_f64, |size, v| size.max(v.abs()));
            let unit: Vec<T> = direction.iter().map(|v| T::from_f64(v / size)).collect();
            let product = linear.projected_product(elimination, &unit);
            product.iter().zip(metric.times(direction)).map(|(q, d)| q.to_f64() * size + lambda * d).collect()
        };
        let solve = |r: &[f64]| {
            let mut solved = metric.solve(r);
            fixed.iter().for_each(|i| solved[*i] = 0.0);
            solved
        };
        let (step, exact) = conjugate(right.clone(), limits, product, solve)?;
        Ok(Some(Solution { step, exact }))
    }
}
