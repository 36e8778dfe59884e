//! A student linearised at a point, on all threads: products with `JᵀJ` and with `JᵀP⊥J`, in which the outputs are eliminated.

use super::batch::{Batch, add};
use super::eliminate::{Elimination, add_cross, columns};
use super::pass::Pass;
use super::student::{Form, Part};
use crate::linalg::symmetric::{Field, multiply};
use faer::{Mat, MatMut, MatRef};
use rayon::prelude::*;
use std::ops::Range;

/// Some sequences, the pass over them, and room for their outputs.
struct Chunk<T> {
    range: Range<usize>,
    pass: Pass<T>,
    along: Vec<T>,
}

/// `F` linearised at a point: its passes are kept, so that products with the Jacobian and its adjoint need no forward pass.
pub struct Linear<'a, T> {
    batch: &'a Batch<T>,
    form: Form,
    values: Vec<T>,
    /// Run by run, chunk by chunk.
    passes: Vec<Vec<Chunk<T>>>,
    /// `‖F(X) − Y‖²`.
    pub error: f64,
    /// `Jᵀ(F(X) − Y)`.
    pub gradient: Vec<T>,
}

impl<'a, T: Field> Linear<'a, T> {
    /// At `values`.
    pub fn new(batch: &'a Batch<T>, form: Form, values: &[T]) -> Self {
        let runs: Vec<_> = batch
            .parts()
            .into_par_iter()
            .map(|chunks| {
                let (mut gradient, mut total) = (vec![T::ZERO; form.len()], 0.0);
                let passes: Vec<Chunk<T>> = chunks
                    .into_iter()
                    .map(|range| {
                        let mut pass = Pass::default();
                        let (squares, miss) = batch.miss(&form, values, &range, &mut pass);
                        total += squares;
                        pass.adjoint(&form, values, batch.sequences(&range).0, &miss, &mut gradient);
                        Chunk { range, pass, along: miss }
                    })
                    .collect();
                (passes, (total, gradient))
            })
            .collect();
        let (passes, sums): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        let (error, gradient) = add(sums, form.len());
        Self { batch, form, values: values.to_vec(), passes, error, gradient }
    }

    /// Every chunk's sequences, pass and the point, in order.
    pub(super) fn passes(&self) -> impl Iterator<Item = (&Range<usize>, &Pass<T>, &[T])> {
        self.passes.iter().flatten().map(|chunk| (&chunk.range, &chunk.pass, self.values.as_slice()))
    }

    /// `JᵀJ v`.
    pub fn normal_product(&mut self, v: &[T]) -> Vec<T> {
        self.along(v, |_, _, (): &mut ()| ());
        self.back(|_, _, _| ())
    }

    /// `Jv`, kept chunk by chunk; every run sums up its chunks as `each` says.
    fn along<R: Send + Default>(&mut self, v: &[T], each: impl Fn(&Pass<T>, &[T], &mut R) + Sync) -> Vec<R> {
        let Self { batch, form, values, passes, .. } = self;
        passes
            .par_iter_mut()
            .map(|run| {
                let mut sum = R::default();
                for Chunk { range, pass, along } in run {
                    pass.derivative(form, values, batch.sequences(range).0, v, along);
                    each(pass, along, &mut sum);
                }
                sum
            })
            .collect()
    }

    /// `Jᵀ` of what is kept, after `change`.
    fn back(&mut self, change: impl Fn(&Form, &Pass<T>, &mut [T]) + Sync) -> Vec<T> {
        let Self { batch, form, values, passes, .. } = self;
        let runs: Vec<(f64, Vec<T>)> = passes
            .par_iter_mut()
            .map(|run| {
                let mut sum = vec![T::ZERO; form.len()];
                for Chunk { range, pass, along } in run {
                    change(form, pass, along);
                    pass.adjoint(form, values, batch.sequences(range).0, along, &mut sum);
                }
                (0.0, sum)
            })
            .collect();
        add(runs, self.form.len()).1
    }
}

impl Linear<'_, f64> {
    /// `JᵀP⊥J v` for a `v` that leaves `O` and the bias alone, and the same of the product.
    pub fn projected_product(&mut self, elimination: &Elimination, v: &[f64]) -> Vec<f64> {
        let form = self.form;
        let n = columns(&form);
        let parts = self.along(v, |pass, along, sum: &mut Option<Mat<f64>>| {
            let h = pass.pooled(&form);
            let sum = sum.get_or_insert_with(|| Mat::zeros(n, form.d_out));
            add_cross(&form, h, MatRef::from_row_major_slice(along, h.nrows(), form.d_out), sum);
        });
        let mut cross = Mat::zeros(n, form.d_out);
        parts.into_iter().flatten().for_each(|part| cross += part);
        elimination.solve(&mut cross);
        let ms = form.heads * form.s();
        let mut product = self.back(|form, pass, along| {
            let h = pass.pooled(form);
            if form.bias {
                for row in along.chunks_exact_mut(form.d_out) {
                    row.iter_mut().enumerate().for_each(|(e, v)| *v -= cross[(ms, e)]);
                }
            }
            let along = MatMut::from_row_major_slice_mut(along, h.nrows(), form.d_out);
            multiply(along, true, -1.0, h, cross.as_ref().subrows(0, ms));
        });
        product[form.range(Part::O).start..].fill(0.0);
        product
    }
}
