//! How likely attention matrices are when little is known: what few examples are learned by.
//!
//! With as many examples as unknowns, or little more, students that explain them are easily found and wrong: their attention matrices are far too
//! large. So let entries be normal beforehand, with the sizes `σ` of a random start, outputs have noise of `s` times their mean square, and sum over all
//! `O`, normal with variance `2/(ms)` in units of the outputs. Minus the logarithm of what is left of the likelihood is, times `s`,
//!
//! ```text
//! E_s(θ) = min_O (‖H̄O − Y‖² + λ‖O‖²)/2v + s (½ d_out log det G + ½ Σ (θ/σ)²),      G = H̄ᵀH̄ + λ,  λ = s·ms/2,  v = mean Y²
//! ∂E/∂H  = (H̄O − Y)Oᵀ/v + s d_out H̄ G⁻¹
//! ```
//!
//! where `O = G⁻¹H̄ᵀY` moves along by itself. At `s = 1` there is one valley; descending while `s` falls to nothing leads down to the layer, from
//! hardly more examples than the unknowns need, where descent without `s` finds none (figures in `docs/learning.md`).

use crate::engine::batch::{Batch, add};
use crate::engine::eliminate::{add_cross, add_gram, add_output, columns};
use crate::engine::pass::Pass;
use crate::engine::student::{Form, PARTS, Part};
use crate::linalg::Mat;
use crate::linalg::cholesky::{small_cholesky, solve};
use crate::linalg::symmetric::{Field, multiply};
use crate::parallel;
use crate::{Error, Result};
use faer::MatRef;
use serde::{Deserialize, Serialize};

/// What is believed beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prior {
    /// `s`.
    pub noise: f64,
    /// `‖Θ‖_F` of heads.
    pub norm: f64,
    /// Whether `log det G` counts; without it `O` is the most likely one instead of all of them.
    pub evidence: bool,
}

/// Added to `G` however small `s` is, for every row: heads that attend alike make it singular.
const RIDGE: f64 = 1e-7;

/// The Cholesky factor, with more on the diagonal where rounding has made it indefinite: sums of rows are in single precision.
fn factor(gram: &Mat<f64>, least: f64) -> Option<Mat<f64>> {
    let mut more = std::iter::once(0.0).chain((0..8).map(|i| least * 10_f64.powi(i)));
    more.find_map(|more| {
        let mut l = gram.clone();
        (0..l.nrows()).for_each(|i| l[(i, i)] += more);
        small_cholesky(l.as_mut()).ok().map(|()| l)
    })
}

fn mean_square<T: Field>(batch: &Batch<T>) -> f64 {
    batch.y.iter().map(|y| y.to_f64().powi(2)).sum::<f64>() / batch.y.len().max(1) as f64
}

impl<T: Field> Batch<T> {
    /// Sets `O` and the bias to `G⁻¹H̄ᵀY`; `‖H̄O − Y‖²` and the gradient of `E_s` in all else.
    pub fn evidence(&self, form: &Form, values: &mut [T], prior: &Prior) -> Result<(f64, Vec<T>)> {
        let (k, n, ms, d_out) = (self.shape.k, columns(form), form.heads * form.s(), form.d_out);
        let v = mean_square(self);
        let at: &[T] = values;
        let mut runs: Vec<(Vec<_>, Mat<T>, Mat<T>)> = parallel::map(self.parts(), |chunks| {
            let (mut gram, mut cross) = (Mat::zeros(n, n), Mat::zeros(n, d_out));
            let passes = chunks
                .into_iter()
                .map(|range| {
                    let (x, y) = self.sequences(&range);
                    let mut pass = Pass::default();
                    pass.pool(form, at, x, k);
                    let h = pass.pooled(form);
                    add_gram(form, h, &mut gram);
                    add_cross(form, h, MatRef::from_row_major_slice(y, h.nrows(), d_out), &mut cross);
                    (range, pass)
                })
                .collect();
            (passes, gram, cross)
        });
        let (mut gram, mut cross) = (Mat::<f64>::zeros(n, n), Mat::<f64>::zeros(n, d_out));
        for (_, one, other) in &runs {
            gram += Mat::from_fn(n, n, |i, j| one[(i, j)].to_f64());
            cross += Mat::from_fn(n, d_out, |i, j| other[(i, j)].to_f64());
        }
        let rows = self.len() * k;
        let lambda = 0.5 * prior.noise * ms as f64;
        (0..n).for_each(|i| gram[(i, i)] += RIDGE * rows as f64 + if i < ms { lambda } else { 0.0 });
        let gram = factor(&gram, RIDGE * rows as f64)
            .ok_or_else(|| Error::input("descent", "pooled tokens are not finite any more", "look for huge inputs"))?;
        solve(gram.as_ref(), cross.as_mut());
        let mut outputs = vec![0.0; values.len()];
        add_output(form, 1.0, &cross, &mut outputs);
        for i in form.range(Part::O).start..values.len() {
            values[i] = T::from_f64(outputs[i]);
        }
        // s d_out G⁻¹.
        let mut inverse = Mat::<f64>::zeros(0, 0);
        if prior.evidence {
            inverse = Mat::identity(n, n);
            solve(gram.as_ref(), inverse.as_mut());
        }
        let weight = prior.noise * d_out as f64;
        let inverse = Mat::from_fn(inverse.nrows(), inverse.ncols(), |i, j| T::from_f64(weight * inverse[(i, j)]));
        let (at, o): (&[T], _) = (values, form.view(Part::O, values));
        let sums: Vec<(f64, Vec<T>)> = parallel::map(&mut runs, |(passes, ..)| {
            let (mut total, mut gradient) = (0.0, vec![T::ZERO; form.len()]);
            for (range, pass) in passes {
                let (x, y) = self.sequences(range);
                let miss = pass.outputs(form, at).iter().zip(y).map(|(f, y)| *f - *y).collect::<Vec<T>>();
                total += miss.iter().map(|v| v.to_f64().powi(2)).sum::<f64>();
                let (mut dh, h) = pass.pooled_adjoint(form);
                let miss = MatRef::from_row_major_slice(&miss, h.nrows(), d_out);
                multiply(dh.as_mut(), false, T::from_f64(1.0 / v), miss, o.transpose());
                if prior.evidence {
                    multiply(dh.as_mut(), true, T::ONE, h, inverse.as_ref().submatrix(0, 0, ms, ms));
                    if form.bias {
                        for j in 0..ms {
                            (0..h.nrows()).for_each(|i| dh[(i, j)] += inverse[(ms, j)]);
                        }
                    }
                }
                pass.adjoint_of_pooled(form, at, x, &mut gradient);
            }
            (total, gradient)
        });
        let (error, mut gradient) = add(sums, form.len());
        for part in PARTS.into_iter().filter(|part| !matches!(part, Part::O | Part::Bias | Part::Gains)) {
            let weight = T::from_f64(prior.noise / form.size_of(part, prior.norm).powi(2));
            for i in form.range(part) {
                gradient[i] += weight * at[i];
            }
        }
        Ok((error, gradient))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::Shape;
    use crate::engine::student::Student;
    use crate::layer::Mask;
    use crate::scores::Scores;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// `E_s` as it is written, from `H` by way of an explicit least-squares problem.
    fn energy(batch: &Batch<f64>, form: &Form, values: &[f64], prior: &Prior) -> f64 {
        let mut pass = Pass::default();
        pass.pool(form, values, &batch.x, batch.shape.k);
        let (h, ms) = (pass.pooled(form), form.heads * form.s());
        let rows = h.nrows();
        let y = MatRef::from_row_major_slice(&batch.y, rows, form.d_out);
        let lambda = 0.5 * prior.noise * ms as f64 + RIDGE * rows as f64;
        let n = columns(form);
        let bar = Mat::from_fn(rows, n, |i, j| if j < ms { h[(i, j)] } else { 1.0 });
        let ridge = |i: usize| if i < ms { lambda } else { RIDGE * rows as f64 };
        let gram = bar.transpose() * &bar + Mat::from_fn(n, n, |i, j| if i == j { ridge(i) } else { 0.0 });
        let mut o = bar.transpose() * y;
        let mut l = gram.clone();
        small_cholesky(l.as_mut()).unwrap();
        solve(l.as_ref(), o.as_mut());
        let v = mean_square(batch);
        let miss = &bar * &o - y;
        let shrunk: f64 = (0..n).map(|i| ridge(i) * (0..form.d_out).map(|e| o[(i, e)].powi(2)).sum::<f64>()).sum();
        let log_det = 2.0 * (0..n).map(|i| l[(i, i)].ln()).sum::<f64>();
        let heads = PARTS.into_iter().filter(|part| !matches!(part, Part::O | Part::Bias | Part::Gains));
        let shrinkage: f64 = heads
            .map(|part| {
                let size = form.size_of(part, prior.norm);
                values[form.range(part)].iter().map(|v| (v / size).powi(2)).sum::<f64>()
            })
            .sum();
        let evidence = if prior.evidence { form.d_out as f64 * log_det } else { 0.0 };
        (miss.squared_norm_l2() + shrunk) / (2.0 * v) + prior.noise * 0.5 * (evidence + shrinkage)
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let base = Form {
            d: 4,
            d_out: 3,
            heads: 2,
            rank: Some(2),
            value_rank: Some(3),
            key_bias: true,
            bias: true,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        for (form, evidence) in [
            (base.clone(), true),
            (Form { rank: None, value_rank: None, key_bias: false, bias: false, ..base.clone() }, true),
            (base, false),
        ] {
            let mut rng = ChaCha8Rng::seed_from_u64(4);
            let mut student = Student::<f64>::random(form.clone(), 3.0, &mut rng).unwrap();
            let mut normals = |len: usize| (0..len).map(|_| rng.sample(StandardNormal)).collect::<Vec<f64>>();
            let batch = Batch { shape: Shape { k: 3, d: 4, d_out: 3 }, x: normals(20 * 12), y: normals(20 * 9) };
            let prior = Prior { noise: 0.3, norm: 1.5, evidence };
            let (error, gradient) = batch.evidence(&form, &mut student.values, &prior).unwrap();
            assert!((error / batch.error(&form, &student.values) - 1.0).abs() < 1e-12);
            for at in 0..form.range(Part::O).start {
                let moved = |t: f64| {
                    let mut values = student.values.clone();
                    values[at] += t;
                    energy(&batch, &form, &values, &prior)
                };
                let numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((numeric - gradient[at]).abs() < 1e-6 * (1.0 + numeric.abs()), "{at}: {numeric} {}", gradient[at]);
            }
        }
    }
}
