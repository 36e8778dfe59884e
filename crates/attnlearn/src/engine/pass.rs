//! The pooled-feature map, its derivative and its adjoint, written out by hand, for a few sequences at a time.
//!
//! Forward, for the tokens `X` of one sequence and every head:
//!
//! ```text
//! Q = XA + 1a°    K = XB + 1b°    t = Xc    L = QKᵀ + 1tᵀ + β    P = softmax(L)    U = XV    H = PU    Y = HO + bias
//! ```
//!
//! where scores are not bilinear with rows of `Q` and `K` normalised and turned, `q_a ← R_a N_γ(q_a)` ([`Inner`]), and the same in derivative and adjoint.
//!
//! Derivative along `(Ȧ, Ḃ, ċ, β̇, V̇, Ȯ, ḃ)`, with `Q̇ = XȦ + 1ȧ°` and so on:
//!
//! ```text
//! L̇ = Q̇Kᵀ + QK̇ᵀ + 1(Xċ)ᵀ + β̇    Ṗ = P∘(L̇ − (P∘L̇)1 1ᵀ)    Ḣ = ṖU + P XV̇    Ẏ = ḢO + HȮ + ḃ
//! ```
//!
//! Adjoint of `G = ∂/∂Y`:
//!
//! ```text
//! ∂O = HᵀG   ∂bias = Gᵀ1   ∂H = GOᵀ   ∂U = Pᵀ∂H   ∂P = ∂H Uᵀ   ∂L = P∘(∂P − (P∘∂P)1 1ᵀ)
//! ∂Q = ∂L K   ∂K = ∂LᵀQ   ∂t = ∂Lᵀ1   ∂A = Xᵀ∂Q   ∂a° = 1ᵀ∂Q   ∂B = Xᵀ∂K   ∂c = Xᵀ∂t   ∂V = Xᵀ∂U
//! ```
//!
//! Products with `A, B, V, O` are those of large matrices, over all sequences at once; the rest is small (`attend`). A pass runs on one thread: threads share the batch in chunks whose sums are added in order.

use crate::engine::attend::{Adjoint, Attend, Derivative, Layout, Vectors};
use crate::engine::student::{Form, Part};
use crate::linalg::lanes::vectorised;
use crate::linalg::symmetric::{Field, multiply};
use crate::scores::{Distances, Inner};
use faer::{MatMut, MatRef};

/// What a forward pass leaves behind for the others; kept from chunk to chunk so that nothing is allocated.
#[derive(Debug, Default)]
pub struct Pass<T> {
    /// Tokens of a sequence.
    k: usize,
    /// Rows of the chunk.
    rows: usize,
    /// What queries and keys go through; `None` where scores are bilinear.
    inner: Option<Inner<T>>,
    q: Vec<T>,
    key: Vec<T>,
    /// The same before norms, where there are norms.
    raw_q: Vec<T>,
    raw_key: Vec<T>,
    /// `K_m k_b`, `[row][group][m]`, where scores are free in the distance, and the functions.
    kernel_key: Vec<T>,
    functions: Vec<T>,
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
    d_kernel_key: Vec<T>,
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

    /// Adds a bias to every row; nothing where it is absent.
    fn add_bias(form: &Form, part: Part, values: &[T], rows: usize, out: &mut [T]) {
        let bias = &values[form.range(part)];
        if !bias.is_empty() {
            let rows = out[..rows * bias.len()].chunks_exact_mut(bias.len());
            rows.for_each(|row| row.iter_mut().zip(bias).for_each(|(out, bias)| *out += *bias));
        }
    }

    /// `out ← [out] + K_m k_b` of every group and function, or with the adjoint of `K` the other way.
    fn kernel_times(form: &Form, rows: usize, (values, back): (&[T], bool), add: bool, from: &[T], out: &mut [T]) {
        let (g, r, mr) = (form.key_groups(), form.r(), form.functions() * form.r());
        let kernel = form.view(Part::Kernel, values);
        let (wide, narrow) = (g * mr, g * r);
        for group in 0..g {
            let kernel = kernel.subcols(group * r, r);
            if back {
                let (out, from) = (rows_of_mut(out, rows, narrow), rows_of(from, rows, wide));
                multiply(out.subcols_mut(group * r, r), add, T::ONE, from.subcols(group * mr, mr), kernel);
            } else {
                let (out, from) = (rows_of_mut(out, rows, wide), rows_of(from, rows, narrow));
                multiply(out.subcols_mut(group * mr, mr), add, T::ONE, from.subcols(group * r, r), kernel.transpose());
            }
        }
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
        if k != self.k {
            self.inner = Inner::new(&form.scores, form.r(), k);
            let functions = form.scores.distances.as_ref().map_or(&[][..], |distances| distances.values());
            self.functions = functions.iter().map(|v| T::from_f64(*v)).collect();
        }
        (self.k, self.rows) = (k, rows);
        let (m, s) = (form.heads, form.s());
        Self::tokens_times(x, rows, form, Part::A, values, &mut self.q);
        Self::tokens_times(x, rows, form, Part::B, values, &mut self.key);
        Self::tokens_times(x, rows, form, Part::V, values, &mut self.u);
        Self::tokens_times(x, rows, form, Part::C, values, &mut self.t);
        Self::add_bias(form, Part::QueryBias, values, rows, &mut self.q);
        Self::add_bias(form, Part::KeyBias, values, rows, &mut self.key);
        if let Some(inner) = &self.inner {
            let gains = gains(form, values);
            let sides =
                [(&mut self.q, &mut self.raw_q, gains.0, m), (&mut self.key, &mut self.raw_key, gains.1, form.key_groups())];
            for (made, raw, gains, count) in sides {
                if inner.needs_raw() {
                    raw.clone_from(made);
                }
                each_vector(made, (rows, k), (count, form.r()), |position, _, v| inner.apply::<1>(position, gains, v));
            }
        }
        if form.functions() > 0 {
            fit(&mut self.kernel_key, rows * form.key_groups() * form.functions() * form.r());
            Self::kernel_times(form, rows, (values, false), false, &self.key, &mut self.kernel_key);
        }
        fit(&mut self.p, rows * m * k);
        fit(&mut self.h, rows * m * s);
        vectorised(Attend {
            layout: layout(form, (self.rows, self.k), &self.functions),
            q: Vectors::of_heads(&self.q, m, form.r()),
            key: keys(form, x, &self.key, &self.kernel_key),
            t: if form.shape(Part::C).0 > 0 { &self.t } else { &[] },
            relative: &values[form.range(Part::Relative)],
            u: tokens_values(form, x, &self.u),
            p: &mut self.p,
            h: &mut self.h,
        });
    }

    /// `H`, one row per row: what `O` is applied to.
    pub fn pooled(&self, form: &Form) -> MatRef<'_, T> {
        rows_of(&self.h, self.rows, form.heads * form.s())
    }

    /// Attention of one row by one head, over the keys up to the last that it sees.
    pub(crate) fn attention(&self, form: &Form, row: usize, h: usize) -> &[T] {
        let (k, a) = (self.k, row % self.k);
        let start = ((row - a) * form.heads + h * k + a) * k;
        &self.p[start..start + form.scores.mask.seen(a, k).end]
    }

    /// The query of one row and head.
    pub(crate) fn query(&self, form: &Form, row: usize, h: usize) -> &[T] {
        let start = (row * form.heads + h) * form.r();
        &self.q[start..start + form.r()]
    }

    /// The key of one row and head; only for factors.
    pub(crate) fn key(&self, form: &Form, row: usize, h: usize) -> &[T] {
        let start = (row * form.key_groups() + form.group(h)) * form.r();
        &self.key[start..start + form.r()]
    }

    /// What multiplies a change of the raw query of a row in a logit whose key is `key`, and one of the gains, which is added: `key` itself and nothing where scores
    /// are bilinear.
    pub(crate) fn towards_query(&self, form: &Form, values: &[T], (row, h): (usize, usize), key: &mut [T], of_gains: &mut [T]) {
        let start = (row * form.heads + h) * form.r();
        self.towards(&self.raw_q[..], start, gains(form, values).0, row, key, of_gains);
    }

    /// The same of the raw key of a row, for a query.
    pub(crate) fn towards_key(&self, form: &Form, values: &[T], (row, h): (usize, usize), query: &mut [T], of_gains: &mut [T]) {
        let start = (row * form.key_groups() + form.group(h)) * form.r();
        self.towards(&self.raw_key[..], start, gains(form, values).1, row, query, of_gains);
    }

    fn towards(&self, raw: &[T], start: usize, gains: &[T], row: usize, v: &mut [T], of_gains: &mut [T]) {
        let Some(inner) = &self.inner else { return };
        let raw = if inner.needs_raw() { &raw[start..start + v.len()] } else { &[] };
        inner.adjoint::<1>(row % self.k, raw, gains, of_gains, v);
    }

    /// `XV` of one head, or `X`.
    pub(crate) fn head_values<'a>(&'a self, form: &Form, x: &'a [T], h: usize) -> MatRef<'a, T> {
        match form.value_rank {
            Some(s) => rows_of(&self.u, self.rows, form.key_groups() * s).subcols(form.group(h) * s, s),
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
        self.adjoint_of_pooled(form, values, x, gradient);
    }

    /// Room for `∂H`, one row per row, which [`Self::adjoint_of_pooled`] reads.
    pub(crate) fn pooled_adjoint(&mut self, form: &Form) -> (MatMut<'_, T>, MatRef<'_, T>) {
        let (rows, ms) = (self.rows, form.heads * form.s());
        fit(&mut self.dh, rows * ms);
        (rows_of_mut(&mut self.dh, rows, ms), rows_of(&self.h, rows, ms))
    }

    /// Adds the adjoint of `∂H` to `gradient`, in all parts but `O` and the bias.
    pub(crate) fn adjoint_of_pooled(&mut self, form: &Form, values: &[T], x: &[T], gradient: &mut [T]) {
        let (rows, m, g, r, s) = (self.rows, form.heads, form.key_groups(), form.r(), form.s());
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
        let key_bias = form.shape(Part::C).0 > 0;
        room(&mut self.dk, low_rank, rows * g * r);
        room(&mut self.d_kernel_key, form.functions() > 0, rows * g * form.functions() * r);
        room(&mut self.du, low_values, rows * g * s);
        room(&mut self.dt, key_bias, rows * m);
        vectorised(Adjoint {
            layout: layout(form, (self.rows, self.k), &self.functions),
            q: Vectors::of_heads(&self.q, m, r),
            key: keys(form, x, &self.key, &self.kernel_key),
            u: tokens_values(form, x, &self.u),
            p: &self.p,
            dh: Vectors::of_heads(&self.dh, m, s),
            dq: &mut self.dq,
            dk: match (low_rank, form.functions()) {
                (false, _) => &mut [],
                (true, 0) => &mut self.dk,
                (true, _) => &mut self.d_kernel_key,
            },
            dt: if key_bias { &mut self.dt } else { &mut [] },
            d_relative: &mut gradient[form.range(Part::Relative)],
            du: if low_values { &mut self.du } else { &mut [] },
        });
        if form.functions() > 0 {
            let mr = form.functions() * r;
            Self::kernel_times(form, rows, (values, true), false, &self.d_kernel_key, &mut self.dk);
            let (height, width) = form.shape(Part::Kernel);
            let place = MatMut::from_row_major_slice_mut(&mut gradient[form.range(Part::Kernel)], height, width);
            let (of_keys, keys) = (rows_of(&self.d_kernel_key, rows, g * mr), rows_of(&self.key, rows, g * r));
            let mut place = place;
            for group in 0..g {
                let place = place.as_mut().subcols_mut(group * r, r);
                multiply(place, true, T::ONE, of_keys.subcols(group * mr, mr).transpose(), keys.subcols(group * r, r));
            }
        }
        if let Some(inner) = &self.inner {
            let (query, key) = gains(form, values);
            let needs_raw = inner.needs_raw();
            let mut of_gains = vec![T::ZERO; 2 * r];
            let (of_query, of_key) = of_gains.split_at_mut(r);
            let sides = [(&mut self.dq, &self.raw_q, query, of_query, m), (&mut self.dk, &self.raw_key, key, of_key, g)];
            for (made, raw, gains, of_gains, count) in sides {
                each_vector(made, (rows, self.k), (count, r), |position, at, v| {
                    let raw = if needs_raw { &raw[at..at + r] } else { &[] };
                    inner.adjoint::<1>(position, raw, gains, of_gains, v);
                });
            }
            gradient[form.range(Part::Gains)].iter_mut().zip(of_gains).for_each(|(out, v)| *out += v);
        }
        for (part, made) in [(Part::QueryBias, &self.dq), (Part::KeyBias, &self.dk)] {
            let place = &mut gradient[form.range(part)];
            if !place.is_empty() {
                let rows = made[..rows * place.len()].chunks_exact(place.len());
                rows.for_each(|row| place.iter_mut().zip(row).for_each(|(out, v)| *out += *v));
            }
        }
        let x = rows_of(x, rows, form.d);
        block(gradient, Part::A, x, rows_of(&self.dq, rows, m * r));
        if low_rank {
            block(gradient, Part::B, x, rows_of(&self.dk, rows, g * r));
        }
        if key_bias {
            block(gradient, Part::C, x, rows_of(&self.dt, rows, m));
        }
        if low_values {
            block(gradient, Part::V, x, rows_of(&self.du, rows, g * s));
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
        let (rows, m, g, r, s) = (self.rows, form.heads, form.key_groups(), form.r(), form.s());
        Self::tokens_times(x, rows, form, Part::A, direction, &mut self.dq);
        Self::tokens_times(x, rows, form, Part::B, direction, &mut self.dk);
        Self::tokens_times(x, rows, form, Part::V, direction, &mut self.du);
        Self::tokens_times(x, rows, form, Part::C, direction, &mut self.dt);
        Self::add_bias(form, Part::QueryBias, direction, rows, &mut self.dq);
        Self::add_bias(form, Part::KeyBias, direction, rows, &mut self.dk);
        if let Some(inner) = &self.inner {
            let (gains, along) = (gains(form, values), gains(form, direction));
            let sides = [(&mut self.dq, &self.raw_q, gains.0, along.0, m), (&mut self.dk, &self.raw_key, gains.1, along.1, g)];
            for (made, raw, gains, along, count) in sides {
                each_vector(made, (rows, self.k), (count, r), |position, at, v| {
                    let raw = if inner.needs_raw() { &raw[at..at + r] } else { &[] };
                    inner.derivative::<1>(position, raw, gains, along, v);
                });
            }
        }
        if form.functions() > 0 {
            fit(&mut self.d_kernel_key, rows * g * form.functions() * r);
            Self::kernel_times(form, rows, (values, false), false, &self.dk, &mut self.d_kernel_key);
            Self::kernel_times(form, rows, (direction, false), true, &self.key, &mut self.d_kernel_key);
        }
        fit(&mut self.dh, rows * m * s);
        vectorised(Derivative {
            layout: layout(form, (self.rows, self.k), &self.functions),
            q: Vectors::of_heads(&self.q, m, r),
            key: keys(form, x, &self.key, &self.kernel_key),
            u: tokens_values(form, x, &self.u),
            p: &self.p,
            dq: Vectors::of_heads(&self.dq, m, r),
            dk: form.rank.is_some().then(|| match form.functions() {
                0 => Vectors::of_groups(&self.dk, (m, g), r),
                functions => Vectors::of_groups(&self.d_kernel_key, (m, g), functions * r),
            }),
            dt: if form.shape(Part::C).0 > 0 { &self.dt } else { &[] },
            d_relative: &direction[form.range(Part::Relative)],
            du: form.value_rank.is_some().then(|| Vectors::of_groups(&self.du, (m, g), s)),
            dh: &mut self.dh,
        });
        let o = form.view(Part::O, values);
        multiply(rows_of_mut(out, rows, form.d_out), false, T::ONE, rows_of(&self.dh, rows, m * s), o);
    }
}

/// `γ` and `κ`; nothing where there are none.
fn gains<'a, T>(form: &Form, values: &'a [T]) -> (&'a [T], &'a [T]) {
    let gains = &values[form.range(Part::Gains)];
    gains.split_at(gains.len() / 2)
}

/// Every vector of `r` numbers of rows that have `count` each: its position in its sequence of `k`, where it begins, and the vector.
fn each_vector<T>(
    values: &mut [T],
    (rows, k): (usize, usize),
    (count, r): (usize, usize),
    mut each: impl FnMut(usize, usize, &mut [T]),
) {
    for (at, v) in values[..rows * count * r].chunks_exact_mut(r).enumerate() {
        each(at / count % k, at * r, v);
    }
}

/// How sequences lie, and what of the distance scores see.
fn layout<'a, T>(form: &Form, (rows, k): (usize, usize), functions: &'a [T]) -> Layout<'a, T> {
    Layout {
        rows,
        k,
        heads: form.heads,
        mask: form.scores.mask,
        first: form.distances().0,
        functions,
        count: form.functions(),
        least: form.scores.distances.as_ref().map_or(0, Distances::first),
    }
}

/// `K`: a vector for every group of heads, one for every function of the distance as well where scores are free in it, or the tokens themselves at full rank.
fn keys<'a, T: Field>(form: &Form, x: &'a [T], made: &'a [T], of_functions: &'a [T]) -> Vectors<'a, T> {
    let counts = (form.heads, form.key_groups());
    match (form.rank, form.functions()) {
        (None, _) => Vectors::shared(x, form.d),
        (Some(r), 0) => Vectors::of_groups(made, counts, r),
        (Some(r), functions) => Vectors::of_groups(of_functions, counts, functions * r),
    }
}

/// `U`, likewise.
fn tokens_values<'a, T: Field>(form: &Form, x: &'a [T], made: &'a [T]) -> Vectors<'a, T> {
    let counts = (form.heads, form.key_groups());
    if form.value_rank.is_some() { Vectors::of_groups(made, counts, form.s()) } else { Vectors::shared(x, form.d) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::engine::student::Student;
    use crate::engine::testing::{K, forms, normals, student};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// A random student, tokens of seven sequences, and a random direction.
    fn setting(form: &Form, seed: u64) -> (Student<f64>, Vec<f64>, Vec<f64>) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed + 10);
        (student(form, seed), normals(7 * K * form.d, rng), normals(form.len(), rng))
    }

    fn outputs(student: &Student<f64>, values: &[f64], x: &[f64]) -> Vec<f64> {
        let mut pass = Pass::default();
        pass.forward(&student.form, values, x, K);
        pass.y
    }

    #[test]
    fn forward_is_that_of_the_layer() {
        for (seed, form) in forms().into_iter().filter(|form| form.functions() == 0).enumerate() {
            let (student, x, _) = setting(&form, seed as u64);
            let expected = student.layer().unwrap().forward(K, &x);
            for (y, expected) in outputs(&student, &student.values, &x).iter().zip(&expected) {
                assert!((y - expected).abs() < 1e-12, "{form:?}: {y} {expected}");
            }
        }
    }

    #[test]
    fn the_derivative_is_that_of_finite_differences() {
        for (seed, form) in forms().into_iter().enumerate() {
            let (student, x, direction) = setting(&form, seed as u64);
            let moved = |t: f64| {
                let values: Vec<f64> = student.values.iter().zip(&direction).map(|(v, w)| v + t * w).collect();
                outputs(&student, &values, &x)
            };
            let (plus, minus) = (moved(1e-5), moved(-1e-5));
            let mut pass = Pass::default();
            pass.forward(&form, &student.values, &x, K);
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
            let (student, x, direction) = setting(&form, seed);
            let cast = |v: &[f64]| v.iter().map(|v| T::from_f64(*v)).collect::<Vec<T>>();
            let (values, x, direction) = (cast(&student.values), cast(&x), cast(&direction));
            let mut pass = Pass::<T>::default();
            pass.forward(&form, &values, &x, K);
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
            assert!(gap::<f64>(form.clone(), seed as u64) < 1e-13, "{form:?}");
            assert!(gap::<f32>(form.clone(), seed as u64) < 1e-5, "{form:?}");
        }
    }
}
