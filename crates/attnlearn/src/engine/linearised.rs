//! A student linearised at a point, on all threads: products with `JᵀJ` and with `JᵀP⊥J`, in which the outputs are eliminated.

use crate::engine::batch::{Batch, add};
use crate::engine::eliminate::{Elimination, add_cross, columns};
use crate::engine::pass::Pass;
use crate::engine::student::Form;
use crate::linalg::symmetric::{Field, multiply};
use crate::parallel;
use faer::{Mat, MatMut, MatRef};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::ops::Range;

/// Some sequences, the pass over them, and room for their outputs.
struct Chunk<T> {
    range: Range<usize>,
    pass: Pass<T>,
    along: Vec<T>,
}

/// `F` linearised at a point: its passes are kept, so that products with the Jacobian and its adjoint need no forward pass.
pub struct Linearised<'a, T> {
    batch: &'a Batch<T>,
    form: Form,
    values: Vec<T>,
    /// Run by run, chunk by chunk.
    passes: Vec<Vec<Chunk<T>>>,
}

impl<'a, T: Field> Linearised<'a, T> {
    /// At `values`.
    pub fn new(batch: &'a Batch<T>, form: Form, values: &[T]) -> Self {
        let passes = parallel::map(batch.parts(), |chunks| {
            let chunk = |range: Range<usize>| {
                let mut pass = Pass::default();
                let (_, along) = batch.miss(&form, values, &range, &mut pass);
                Chunk { range, pass, along }
            };
            chunks.into_iter().map(chunk).collect()
        });
        Self { batch, form, values: values.to_vec(), passes }
    }

    /// `‖F(X) − Y‖²` and `Jᵀ(F(X) − Y)`; to be asked before any product, which have no room of their own.
    pub fn gradient(&mut self) -> (f64, Vec<T>) {
        let Self { batch, form, values, passes, .. } = self;
        let runs: Vec<(f64, Vec<T>)> = parallel::map(passes, |run| {
            let (mut gradient, mut total) = (vec![T::ZERO; form.len()], 0.0);
            for Chunk { range, pass, along } in run {
                total += along.iter().map(|v| v.to_f64().powi(2)).sum::<f64>();
                pass.adjoint(form, values, batch.inputs(range), along, &mut gradient);
            }
            (total, gradient)
        });
        add(runs, self.form.len())
    }

    /// Every chunk's sequences, pass and the point, in order.
    pub(crate) fn passes(&self) -> impl Iterator<Item = (&Range<usize>, &Pass<T>, &[T])> {
        self.passes.iter().flatten().map(|chunk| (&chunk.range, &chunk.pass, self.values.as_slice()))
    }

    /// `JᵀJ v`.
    pub fn normal_product(&mut self, v: &[T]) -> Vec<T> {
        let form = self.form.clone();
        self.each_run(|batch, values, run| {
            let mut sum = vec![T::ZERO; form.len()];
            for Chunk { range, pass, along } in run {
                let x = batch.inputs(range);
                pass.derivative(&form, values, x, v, along);
                pass.adjoint(&form, values, x, along, &mut sum);
            }
            sum
        })
    }

    /// `JᵀP⊥J v` for a `v` that leaves `O` and the bias alone, and the same of the product.
    pub fn projected_product(&mut self, elimination: &Elimination, v: &[T]) -> Vec<T> {
        let form = self.form.clone();
        self.projected_adjoint(elimination, |batch, values, Chunk { range, pass, along }| {
            pass.derivative_of_heads(&form, values, batch.inputs(range), v, along);
        })
    }

    /// `JᵀP⊥u` for outputs `u` of independent normal numbers.
    pub(crate) fn projected_probe(&mut self, elimination: &Elimination, seed: u64) -> Vec<f64> {
        let probe = self.projected_adjoint(elimination, |_, _, Chunk { range, along, .. }| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(range.start as u64);
            along.iter_mut().for_each(|v| *v = T::from_f64(rng.sample(StandardNormal)));
        });
        probe.iter().map(|v| v.to_f64()).collect()
    }

    /// `JᵀP⊥u` for the outputs that each chunk is filled with.
    fn projected_adjoint(&mut self, elimination: &Elimination, fill: impl Fn(&Batch<T>, &[T], &mut Chunk<T>) + Sync) -> Vec<T> {
        let form = self.form.clone();
        let (n, ms) = (columns(&form), form.heads * form.s());
        let Self { batch, values, passes, .. } = self;
        let parts: Vec<Mat<T>> = parallel::map(passes, |run| {
            let mut sum = Mat::zeros(n, form.d_out);
            for chunk in run {
                fill(batch, values, chunk);
                let h = chunk.pass.pooled(&form);
                add_cross(&form, h, MatRef::from_row_major_slice(&chunk.along, h.nrows(), form.d_out), &mut sum);
            }
            sum
        });
        let mut cross = Mat::zeros(n, form.d_out);
        parts.into_iter().for_each(|part| cross += Mat::from_fn(n, form.d_out, |i, j| part[(i, j)].to_f64()));
        elimination.solve(&mut cross);
        let cross = Mat::from_fn(n, form.d_out, |i, j| T::from_f64(cross[(i, j)]));
        self.each_run(|batch, values, run| {
            let mut sum = vec![T::ZERO; form.len()];
            for Chunk { range, pass, along } in run {
                let h = pass.pooled(&form);
                if form.bias {
                    for row in along.chunks_exact_mut(form.d_out) {
                        row.iter_mut().enumerate().for_each(|(e, v)| *v -= cross[(ms, e)]);
                    }
                }
                let rest = MatMut::from_row_major_slice_mut(along, h.nrows(), form.d_out);
                multiply(rest, true, -T::ONE, h, cross.as_ref().subrows(0, ms));
                pass.adjoint_to_heads(&form, values, batch.inputs(range), along, &mut sum);
            }
            sum
        })
    }

    /// Sums of runs, added in order.
    fn each_run(&mut self, each: impl Fn(&Batch<T>, &[T], &mut [Chunk<T>]) -> Vec<T> + Sync) -> Vec<T> {
        let Self { batch, values, passes, .. } = self;
        let runs = parallel::map(passes, |run| (0.0, each(batch, values, run)));
        add(runs, self.form.len()).1
    }
}
