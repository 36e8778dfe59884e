//! Second moments of tokens as one head sees them.
//!
//! A change `Ḃ` of the keys shows as `Σ_b p_b ⟨q_a, x_b Ḃ⟩ (v_b − v̄)O`, a change `V̇` of the values as `z_a V̇O`: what counts are not the tokens' own
//! moments, `I` in whitened units, but
//!
//! ```text
//! keys    Σ_a Σ_bc p_b p_c ⟨(v_b − v̄)O, (v_c − v̄)O⟩ x_bᵀ x_c          v_b = x_b V,  v̄ = Σ_b p_b v_b
//! values  Σ_a z_aᵀ z_a                                               z_a = Σ_b p_b x_b
//! ```
//!
//! For independent tokens these are about multiples of `I`. Those of a text are alike within a sentence: attention tells them apart by few directions, and
//! averages are over few others.

use crate::engine::batch::Batch;
use crate::engine::linearised::Linearised;
use crate::engine::pass::Pass;
use crate::engine::student::{Form, Part};
use crate::linalg::Mat;
use crate::linalg::symmetric::{Field, multiply};
use faer::{MatMut, MatRef};

/// Moments of the tokens by which one head is seen, d × d.
pub(crate) struct Moments {
    pub(crate) keys: Mat<f64>,
    pub(crate) values: Mat<f64>,
}

impl Moments {
    /// At the point of a linearised student, over all its examples.
    pub(crate) fn new<T: Field>(batch: &Batch<T>, form: &Form, linear: &Linearised<'_, T>, head: usize) -> Self {
        let (d, k) = (form.d, batch.shape.k);
        let mut moments = Self { keys: Mat::zeros(d, d), values: Mat::zeros(d, d) };
        let (mut mixed, mut pooled) = (Vec::new(), Vec::new());
        let mut part = Mat::<T>::zeros(d, d);
        for (range, pass, values) in linear.passes() {
            let x = batch.inputs(range);
            let rows = x.len() / d;
            mixed.resize(rows * d, T::ZERO);
            pooled.resize(rows * d, T::ZERO);
            let o = form.view(Part::O, values).subrows(head * form.s(), form.s());
            let outputs = seen_outputs(form, pass, x, o, head);
            for first in (0..rows).step_by(k) {
                let tokens = MatRef::from_row_major_slice(&x[first * d..(first + k) * d], k, d);
                let (p, spread) = spread(form, pass, outputs.as_ref().subrows(first, k), first, head);
                let into = first * d..(first + k) * d;
                multiply(
                    MatMut::from_row_major_slice_mut(&mut mixed[into.clone()], k, d),
                    false,
                    T::ONE,
                    spread.as_ref(),
                    tokens,
                );
                multiply(MatMut::from_row_major_slice_mut(&mut pooled[into], k, d), false, T::ONE, p.as_ref(), tokens);
            }
            let [x, mixed, pooled] = [x, &mixed, &pooled].map(|values| MatRef::from_row_major_slice(values, rows, d));
            for (sum, a, b) in [(&mut moments.keys, x, mixed), (&mut moments.values, pooled, pooled)] {
                multiply(part.as_mut(), false, T::ONE, a.transpose(), b);
                *sum += Mat::from_fn(d, d, |i, j| part[(i, j)].to_f64());
            }
        }
        moments
    }
}

/// `v_b O` of every token of a chunk.
fn seen_outputs<T: Field>(form: &Form, pass: &Pass<T>, x: &[T], o: MatRef<'_, T>, head: usize) -> Mat<T> {
    let values = pass.head_values(form, x, head);
    let mut outputs = Mat::zeros(values.nrows(), form.d_out);
    multiply(outputs.as_mut(), false, T::ONE, values, o);
    outputs
}

/// Attention within the sequence that begins at row `first`, and `Σ_a p_b p_c ⟨(v_b − v̄)O, (v_c − v̄)O⟩` of its tokens: with `G` the products of all
/// `v_b O`, and `g = Gp`, the last factor is `G_bc − g_b − g_c + ⟨p, g⟩`.
fn spread<T: Field>(form: &Form, pass: &Pass<T>, outputs: MatRef<'_, T>, first: usize, head: usize) -> (Mat<T>, Mat<T>) {
    let k = outputs.nrows();
    let mut products = Mat::zeros(k, k);
    multiply(products.as_mut(), false, T::ONE, outputs, outputs.transpose());
    let mut attention = Mat::zeros(k, k);
    for a in 0..k {
        pass.attention(form, first + a, head).iter().enumerate().for_each(|(b, p)| attention[(a, b)] = *p);
    }
    let mut towards = Mat::zeros(k, k);
    multiply(towards.as_mut(), false, T::ONE, products.as_ref(), attention.transpose());
    let mut sum = Mat::zeros(k, k);
    for a in 0..k {
        let (g, p) = (towards.col(a), |b: usize| attention[(a, b)]);
        let mean = (0..k).fold(T::ZERO, |mean, b| mean + p(b) * g[b]);
        for c in 0..k {
            for b in 0..k {
                sum[(b, c)] += p(b) * p(c) * (products[(b, c)] - g[b] - g[c] + mean);
            }
        }
    }
    (attention, sum)
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

    /// The blocks of `JᵀJ` of key biases and of values are these moments, and these times `OOᵀ`.
    #[test]
    fn they_are_blocks_of_the_normal_matrix() {
        let full = Form {
            d: 5,
            d_out: 4,
            heads: 2,
            rank: Some(2),
            value_rank: Some(3),
            key_bias: true,
            bias: true,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        for (seed, form) in
            [full.clone(), Form { scores: Scores::of(Mask::Causal), ..full.clone() }, Form { value_rank: None, ..full.clone() }]
                .into_iter()
                .enumerate()
        {
            let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
            let student = Student::<f64>::random(form.clone(), 2.0, &mut rng).unwrap();
            let mut normals = |len: usize| (0..len).map(|_| rng.sample(StandardNormal)).collect::<Vec<f64>>();
            let batch = Batch { shape: Shape { k: 3, d: 5, d_out: 4 }, x: normals(40 * 15), y: normals(40 * 12) };
            let mut linear = Linearised::new(&batch, form.clone(), &student.values);
            let mut block = |part: Part, column: usize, (i, j): (usize, usize), with: usize| {
                let (start, cols) = (form.range(part).start, form.shape(part).1);
                let mut unit = vec![0.0; form.len()];
                unit[start + i * cols + column] = 1.0;
                linear.normal_product(&unit)[start + j * cols + with]
            };
            for head in 0..2 {
                let moments = Moments::new(&batch, &form, &Linearised::new(&batch, form.clone(), &student.values), head);
                let s = form.s();
                let o = form.view(Part::O, &student.values).subrows(head * s, s);
                let outputs = o * o.transpose();
                for (i, j) in (0..5).flat_map(|i| (0..5).map(move |j| (i, j))) {
                    let keys = block(Part::C, head, (i, j), head);
                    assert!((keys - moments.keys[(i, j)]).abs() < 1e-9 * (1.0 + keys.abs()), "{form:?}: {keys}");
                    if form.value_rank.is_some() {
                        let values = block(Part::V, head * s, (i, j), head * s + 1);
                        let expected = moments.values[(i, j)] * outputs[(0, 1)];
                        assert!((values - expected).abs() < 1e-9 * (1.0 + values.abs()), "{form:?}: {values}");
                    }
                }
            }
        }
    }
}
