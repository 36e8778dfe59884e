//! The pooled-feature map, its derivative and its adjoint, written out by hand, for a few sequences at a time.
//!
//! Forward, for the tokens `X` of one sequence and every head:
//!
//! ```text
//! Q = XA    K = XB    t = Xc    L = QKᵀ + 1tᵀ    P = softmax(L)    U = XV    H = PU    Y = HO + bias
//! ```
//!
//! Derivative along `(Ȧ, Ḃ, ċ, V̇, Ȯ, ḃ)`:
//!
//! ```text
//! L̇ = XȦKᵀ + Q(XḂ)ᵀ + 1(Xċ)ᵀ    Ṗ = P∘(L̇ − (P∘L̇)1 1ᵀ)    Ḣ = ṖU + P XV̇    Ẏ = ḢO + HȮ + ḃ
//! ```
//!
//! Adjoint of `G = ∂/∂Y`:
//!
//! ```text
//! ∂O = HᵀG   ∂bias = Gᵀ1   ∂H = GOᵀ   ∂U = Pᵀ∂H   ∂P = ∂H Uᵀ   ∂L = P∘(∂P − (P∘∂P)1 1ᵀ)
//! ∂Q = ∂L K   ∂K = ∂LᵀQ   ∂t = ∂Lᵀ1   ∂A = Xᵀ∂Q   ∂B = Xᵀ∂K   ∂c = Xᵀ∂t   ∂V = Xᵀ∂U
//! ```
//!
//! Products with `A, B, V, O` are those of large matrices, over all sequences at once; the rest is small (`attend`). A pass runs on one thread: threads share the batch in chunks whose sums are added in order.

use crate::engine::attend::{Adjoint, Attend, Derivative, Layout, Vectors};
use crate::engine::student::{Form, Part};
use crate::layer::Mask;
use crate::linalg::lanes::vectorised;
use crate::linalg::symmetric::{Field, multiply};
use faer::{MatMut, MatRef};

/// What a forward pass leaves behind for the others; kept from chunk to chunk so that nothing is allocated.
#[derive(Debug, Default)]
pub struct Pass<T> {
    /// Tokens of a sequence.
    k: usize,
    /// Rows of the chunk.
    rows: usize,
    q: Vec<T>,
    key: Vec<T>,
    t: Vec<T>,
    /// `[sequence][head][a][b]`.
    p: Vec<T>,
    u: Vec<T>,
    h: Vec<T>,
    /// Outputs, `[rows][d_out]`.
    pub y: Vec<T>,
    // The same shapes for derivatives and adjoints.
    dq: Vec<T>,
    dk: Vec<T>,
    dt: Vec<T>,
    du: Vec<T>,
    dh: Vec<T>,
}

fn rows_of<T>(values: &[T], rows: usize, cols: usize) -> MatRef<'_, T> {
    MatRef::from_row_major_slice(&values[..rows * cols], rows, cols)
}

fn rows_of_mut<T>(values: &mut [T], rows: usize, cols: usize) -> MatMut<'_, T> {
    MatMut::from_row_major_slice_mut(&mut values[..rows * cols], rows, cols)
}

/// Makes room for `len` numbers; what they are does not matter.
fn fit<T: Field>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::ZERO);
    }
}

impl<T: Field> Pass<T> {
    /// `out ← XM`; nothing where the block is absent.
    fn tokens_times(x: &[T], rows: usize, form: &Form, part: Part, values: &[T], out: &mut Vec<T>) {
        let (present, cols) = form.shape(part);
        if present > 0 {
            fit(out, rows * cols);
            multiply(rows_of_mut(out, rows, cols), false, T::ONE, rows_of(x, rows, form.d), form.view(part, values));
        }
    }

    fn layout(&self, form: &Form) -> Layout {
        Layout { rows: self.rows, k: self.k, heads: form.heads, causal: form.mask == Mask::Causal }
    }

    /// `Y` of the sequences `x`, `[n][k][d]`.
    pub fn forward(&mut self, form: &Form, values: &[T], x: &[T], k: usize) {
        self.pool(form, values, x, k);
        self.outputs(form, values);
    }

    /// `Y`, after [`Self::pool`].
    pub(crate) fn outputs(&mut self, form: &Form, values: &[T]) -> &[T] {
        let rows = self.rows;
        fit(&mut self.y, rows * form.d_out);
        let y = &mut self.y[..rows * form.d_out];
        if form.bias {
            let bias = &values[form.range(Part::Bias)];
            y.chunks_exact_mut(form.d_out).for_each(|y| y.copy_from_slice(bias));
        }
        let o = form.view(Part::O, values);
        multiply(rows_of_mut(y, rows, form.d_out), form.bias, T::ONE, rows_of(&self.h, rows, form.heads * form.s()), o);
        &self.y[..rows * form.d_out]
    }

    /// `H` of the sequences `x`: all of [`Self::forward`] that does not depend on `O`.
    pub(crate) fn pool(&mut self, form: &Form, values: &[T], x: &[T], k: usize) {
        let rows = x.len() / form.d;
        (self.k, self.rows) = (k, rows);
        let (m, s) = (form.heads, form.s());
        Self::tokens_times(x, rows, form, Part::A, values, &mut self.q);
        Self::tokens_times(x, rows, form, Part::B, values, &mut self.key);
        Self::tokens_times(x, rows, form, Part::V, values, &mut self.u);
        Self::tokens_times(x, rows, form, Part::C, values, &mut self.t);
        fit(&mut self.p, rows * m * k);
        fit(&mut self.h, rows * m * s);
        vectorised(Attend {
            layout: self.layout(form),
            q: Vectors::of_heads(&self.q, m, form.r()),
            key: keys(form, x, &self.key),
            t: if form.key_bias { &self.t } else { &[] },
            u: tokens_values(form, x, &self.u),
            p: &mut self.p,
            h: &mut self.h,
        });
    }

    /// `H`, one row per row: what `O` is applied to.
    pub fn pooled(&self, form: &Form) -> MatRef<'_, T> {
        rows_of(&self.h, self.rows, form.heads * form.s())
    }

    /// Attention of one row by one head, over the keys that it sees.
    pub(crate) fn attention(&self, form: &Form, row: usize, h: usize) -> &[T] {
        let (k, a) = (self.k, row % self.k);
        let start = ((row - a) * form.heads + h * k + a) * k;
        &self.p[start..start + if form.mask == Mask::Causal { a + 1 } else { k }]
    }

    /// `x_a A` of one head.
    pub(crate) fn query(&self, form: &Form, row: usize, h: usize) -> &[T] {
        let start = (row * form.heads + h) * form.r();
        &self.q[start..start + form.r()]
    }

    /// `x_b B` of one head; only for factors.
    pub(crate) fn key(&self, form: &Form, row: usize, h: usize) -> &[T] {
        let start = (row * form.heads + h) * form.r();
        &self.key[start..start + form.r()]
    }

    /// `XV` of one head, or `X`.
    pub(crate) fn head_values<'a>(&'a self, form: &Form, x: &'a [T], h: usize) -> MatRef<'a, T> {
        match form.value_rank {
            Some(s) => rows_of(&self.u, self.rows, form.heads * s).subcols(h * s, s),
            None => rows_of(x, self.rows, form.d),
        }
    }

    /// Adds the adjoint of `g`, `[rows][d_out]`, to `gradient`; after [`Self::forward`] at the same `x`.
    pub fn adjoint(&mut self, form: &Form, values: &[T], x: &[T], g: &[T], gradient: &mut [T]) {
        self.adjoint_to_outputs(form, g, gradient);
        self.adjoint_to_heads(form, values, x, g, gradient);
    }

    /// The part of [`Self::adjoint`] that `O` and the bias have.
    fn adjoint_to_outputs(&self, form: &Form, g: &[T], gradient: &mut [T]) {
        let (rows, g) = (self.rows, rows_of(g, self.rows, form.d_out));
        let place = &mut gradient[form.range(Part::O)];
        let (height, width) = form.shape(Part::O);
        multiply(MatMut::from_row_major_slice_mut(place, height, width), true, T::ONE, self.pooled(form).transpose(), g);
        if form.bias {
            let place = &mut gradient[form.range(Part::Bias)];
            for i in 0..rows {
                for (e, out) in place.iter_mut().enumerate() {
                    *out += g[(i, e)];
                }
            }
        }
    }

    /// The part of [`Self::adjoint`] that all others have.
    pub fn adjoint_to_heads(&mut self, form: &Form, values: &[T], x: &[T], g: &[T], gradient: &mut [T]) {
        let (rows, ms) = (self.rows, form.heads * form.s());
        fit(&mut self.dh, rows * ms);
        let g = rows_of(g, rows, form.d_out);
        multiply(rows_of_mut(&mut self.dh, rows, ms), false, T::ONE, g, form.view(Part::O, values).transpose());
        self.adjoint_of_pooled(form, x, gradient);
    }

    /// Room for `∂H`, one row per row, which [`Self::adjoint_of_pooled`] reads.
    pub(crate) fn pooled_adjoint(&mut self, form: &Form) -> (MatMut<'_, T>, MatRef<'_, T>) {
        let (rows, ms) = (self.rows, form.heads * form.s());
        fit(&mut self.dh, rows * ms);
        (rows_of_mut(&mut self.dh, rows, ms), rows_of(&self.h, rows, ms))
    }

    /// Adds the adjoint of `∂H` to `gradient`, in all parts but `O` and the bias.
    pub(crate) fn adjoint_of_pooled(&mut self, form: &Form, x: &[T], gradient: &mut [T]) {
        let (rows, m, r, s) = (self.rows, form.heads, form.r(), form.s());
        let block = |gradient: &mut [T], part: Part, left: MatRef<'_, T>, right: MatRef<'_, T>| {
            let (height, width) = form.shape(part);
            let place = &mut gradient[form.range(part)];
            multiply(MatMut::from_row_major_slice_mut(place, height, width), true, T::ONE, left.transpose(), right);
        };
        let (low_rank, low_values) = (form.rank.is_some(), form.value_rank.is_some());
        let room = |buffer: &mut Vec<T>, wanted: bool, len: usize| {
            if wanted {
                fit(buffer, len)
            }
        };
        room(&mut self.dq, true, rows * m * r);
        room(&mut self.dk, low_rank, rows * m * r);
        room(&mut self.du, low_values, rows * m * s);
        room(&mut self.dt, form.key_bias, rows * m);
        vectorised(Adjoint {
            layout: self.layout(form),
            q: Vectors::of_heads(&self.q, m, r),
            key: keys(form, x, &self.key),
            u: tokens_values(form, x, &self.u),
            p: &self.p,
            dh: Vectors::of_heads(&self.dh, m, s),
            dq: &mut self.dq,
            dk: if low_rank { &mut self.dk } else { &mut [] },
            dt: if form.key_bias { &mut self.dt } else { &mut [] },
            du: if low_values { &mut self.du } else { &mut [] },
        });
        let x = rows_of(x, rows, form.d);
        block(gradient, Part::A, x, rows_of(&self.dq, rows, m * r));
        if low_rank {
            block(gradient, Part::B, x, rows_of(&self.dk, rows, m * r));
        }
        if form.key_bias {
            block(gradient, Part::C, x, rows_of(&self.dt, rows, m));
        }
        if low_values {
            block(gradient, Part::V, x, rows_of(&self.du, rows, m * s));
        }
    }

    /// The derivative of `Y` along `direction`, into `out`, `[rows][d_out]`; after [`Self::forward`] at the same `x`.
    pub fn derivative(&mut self, form: &Form, values: &[T], x: &[T], direction: &[T], out: &mut [T]) {
        self.derivative_of_heads(form, values, x, direction, out);
        let (rows, ms) = (self.rows, form.heads * form.s());
        if form.bias {
            let bias = &direction[form.range(Part::Bias)];
            out.chunks_exact_mut(form.d_out).for_each(|y| y.iter_mut().zip(bias).for_each(|(y, b)| *y += *b));
        }
        let d_o = form.view(Part::O, direction);
        multiply(rows_of_mut(out, rows, form.d_out), true, T::ONE, rows_of(&self.h, rows, ms), d_o);
    }

    /// The same along a direction that leaves `O` and the bias alone.
    pub fn derivative_of_heads(&mut self, form: &Form, values: &[T], x: &[T], direction: &[T], out: &mut [T]) {
        let (rows, m, r, s) = (self.rows, form.heads, form.r(), form.s());
        Self::tokens_times(x, rows, form, Part::A, direction, &mut self.dq);
        Self::tokens_times(x, rows, form, Part::B, direction, &mut self.dk);
        Self::tokens_times(x, rows, form, Part::V, direction, &mut self.du);
        Self::tokens_times(x, rows, form, Part::C, direction, &mut self.dt);
        fit(&mut self.dh, rows * m * s);
        vectorised(Derivative {
            layout: self.layout(form),
            q: Vectors::of_heads(&self.q, m, r),
            key: keys(form, x, &self.key),
            u: tokens_values(form, x, &self.u),
            p: &self.p,
            dq: Vectors::of_heads(&self.dq, m, r),
            dk: form.rank.is_some().then(|| Vectors::of_heads(&self.dk, m, r)),
            dt: if form.key_bias { &self.dt } else { &[] },
            du: form.value_rank.is_some().then(|| Vectors::of_heads(&self.du, m, s)),
            dh: &mut self.dh,
        });
        let o = form.view(Part::O, values);
        multiply(rows_of_mut(out, rows, form.d_out), false, T::ONE, rows_of(&self.dh, rows, m * s), o);
    }
}

/// `K`: a vector for every head, or the tokens themselves at full rank.
fn keys<'a, T: Field>(form: &Form, x: &'a [T], made: &'a [T]) -> Vectors<'a, T> {
    if form.rank.is_some() { Vectors::of_heads(made, form.heads, form.r()) } else { Vectors::shared(x, form.d) }
}

/// `U`, likewise.
fn tokens_values<'a, T: Field>(form: &Form, x: &'a [T], made: &'a [T]) -> Vectors<'a, T> {
    if form.value_rank.is_some() { Vectors::of_heads(made, form.heads, form.s()) } else { Vectors::shared(x, form.d) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::engine::student::Student;
    use crate::layer::Mask;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn forms() -> Vec<Form> {
        let base =
            Form { d: 5, d_out: 4, heads: 3, rank: Some(2), value_rank: Some(3), key_bias: true, bias: true, mask: Mask::None };
        vec![
            base,
            Form { rank: None, ..base },
            Form { value_rank: None, mask: Mask::Causal, ..base },
            Form { rank: None, value_rank: None, key_bias: false, bias: false, ..base },
            Form { heads: 1, d_out: 1, rank: Some(7), mask: Mask::Causal, ..base },
        ]
    }

    fn normals(n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
        (0..n).map(|_| rng.sample(StandardNormal)).collect()
    }

    /// A random student, tokens of seven sequences of three, and a random direction.
    fn setting(form: Form, seed: u64) -> (Student<f64>, Vec<f64>, Vec<f64>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut student = Student::<f64>::random(form, 3.0, &mut rng).unwrap();
        // Biases too.
        let more = normals(form.len(), &mut rng);
        student.values.iter_mut().zip(more).for_each(|(v, more)| *v += 0.2 * more);
        let x = normals(7 * 3 * form.d, &mut rng);
        let direction = normals(form.len(), &mut rng);
        (student, x, direction)
    }

    fn outputs(student: &Student<f64>, values: &[f64], x: &[f64]) -> Vec<f64> {
        let mut pass = Pass::default();
        pass.forward(&student.form, values, x, 3);
        pass.y
    }

    #[test]
    fn forward_is_that_of_the_layer() {
        for (seed, form) in forms().into_iter().enumerate() {
            let (student, x, _) = setting(form, seed as u64);
            let expected = student.layer().unwrap().forward(3, &x);
            for (y, expected) in outputs(&student, &student.values, &x).iter().zip(&expected) {
                assert!((y - expected).abs() < 1e-12, "{form:?}: {y} {expected}");
            }
        }
    }

    #[test]
    fn the_derivative_is_that_of_finite_differences() {
        for (seed, form) in forms().into_iter().enumerate() {
            let (student, x, direction) = setting(form, seed as u64);
            let moved = |t: f64| {
                let values: Vec<f64> = student.values.iter().zip(&direction).map(|(v, w)| v + t * w).collect();
                outputs(&student, &values, &x)
            };
            let (plus, minus) = (moved(1e-5), moved(-1e-5));
            let mut pass = Pass::default();
            pass.forward(&form, &student.values, &x, 3);
            let mut out = vec![f64::NAN; plus.len()];
            pass.derivative(&form, &student.values, &x, &direction, &mut out);
            let size = out.iter().fold(0.0_f64, |size, v| size.max(v.abs()));
            for i in 0..out.len() {
                let numeric = (plus[i] - minus[i]) / 2e-5;
                assert!((numeric - out[i]).abs() < 1e-7 * size, "{form:?} output {i}: {numeric} {}", out[i]);
            }
        }
    }

    /// `⟨Jv, u⟩ = ⟨v, Jᵀu⟩`, in both precisions.
    #[test]
    fn the_adjoint_is_the_adjoint() {
        fn gap<T: Field>(form: Form, seed: u64) -> f64 {
            let (student, x, direction) = setting(form, seed);
            let cast = |v: &[f64]| v.iter().map(|v| T::from_f64(*v)).collect::<Vec<T>>();
            let (values, x, direction) = (cast(&student.values), cast(&x), cast(&direction));
            let mut pass = Pass::<T>::default();
            pass.forward(&form, &values, &x, 3);
            let rows = x.len() / form.d;
            let u = cast(&normals(rows * form.d_out, &mut ChaCha8Rng::seed_from_u64(seed + 50)));
            let mut out = vec![T::ZERO; rows * form.d_out];
            pass.derivative(&form, &values, &x, &direction, &mut out);
            let mut gradient = vec![T::ZERO; form.len()];
            pass.adjoint(&form, &values, &x, &u, &mut gradient);
            let inner = |a: &[T], b: &[T]| a.iter().zip(b).map(|(a, b)| a.to_f64() * b.to_f64()).sum::<f64>();
            let (left, right) = (inner(&out, &u), inner(&direction, &gradient));
            let size = (inner(&out, &out) * inner(&u, &u)).sqrt();
            (left - right).abs() / size
        }
        for (seed, form) in forms().into_iter().enumerate() {
            assert!(gap::<f64>(form, seed as u64) < 1e-13, "{form:?}");
            assert!(gap::<f32>(form, seed as u64) < 1e-5, "{form:?}");
        }
    }
}
