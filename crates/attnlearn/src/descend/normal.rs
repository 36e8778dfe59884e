//! The Gauss–Newton matrix `JᵀP⊥J` of a small student, written out.
//!
//! With the attention row `p` of a query `a`, values `u_b = x_b V O` and their mean `ū = Σ_b p_b u_b`,
//!
//! ```text
//! dF(X)_a = Σ_b D_b dℓ_b + z dV O,     D_b = p_b (u_b − ū),     z = Σ_b p_b x_b
//! dℓ_b = ⟨x_a dA, x_b B⟩ + ⟨x_a A, x_b dB⟩ + ⟨dc, x_b⟩
//! ```
//!
//! so every row of the Jacobian is made of outer products: `x_a ⊗ KᵀD`, `q_a ⊗ XᵀD`, `XᵀD` and `z ⊗ O`. And
//! `JᵀP⊥J = JᵀJ − Σ_e (H̄ᵀJ_e)ᵀ G⁻¹ (H̄ᵀJ_e)`, with `J_e` the rows of output `e`.

use super::batch::Batch;
use super::eliminate::{Elimination, columns};
use super::linear::Linear;
use super::pass::Pass;
use super::student::{Form, Part};
use crate::linalg::Mat;
use crate::linalg::symmetric::{multiply, update_lower};
use crate::{Error, Result};
use faer::MatRef;

/// Most parameters beside `O` of a student that is small.
const MOST: usize = 1024;

/// Products with `JᵀP⊥J` that writing it out may cost as much as.
const WORTH: usize = 300;

/// Whether writing the matrix out is cheaper than the products that conjugate gradients would need.
pub(super) fn is_small(form: &Form) -> bool {
    let p = form.range(Part::O).start;
    // A row of an output costs p²/2 here; products of a row cost about six times all parameters.
    p <= MOST && p * p * form.d_out / 2 <= WORTH * 6 * form.len()
}

/// The lower triangle of `JᵀP⊥J`; `stop` is asked at every chunk.
pub(super) fn normal_matrix(
    batch: &Batch<f64>,
    form: &Form,
    linear: &Linear<'_, f64>,
    elimination: &Elimination,
    stop: &dyn Fn() -> bool,
) -> Result<Mat<f64>> {
    let (p, c) = (form.range(Part::O).start, columns(form));
    let mut jj = Mat::zeros(p, p);
    // (H̄ᵀJ_e)ᵀ for every output, side by side.
    let mut cross = Mat::<f64>::zeros(p, c * form.d_out);
    for (range, pass, values) in linear.passes() {
        if stop() {
            return Err(Error::Interrupted);
        }
        let x = batch.inputs(range);
        let rows = x.len() / form.d;
        let jacobian = rows_of_jacobian(form, pass, values, x, batch.shape.k);
        update_lower(jj.as_mut(), 1.0, jacobian.as_ref(), jacobian.as_ref());
        let h = pass.pooled(form);
        for e in 0..form.d_out {
            let of_output = jacobian.as_ref().subcols(e * rows, rows);
            let mut place = cross.as_mut().subcols_mut(e * c, c);
            multiply(place.as_mut().subcols_mut(0, h.ncols()), true, 1.0, of_output, h);
            if form.bias {
                for j in 0..rows {
                    for i in 0..p {
                        place[(i, c - 1)] += of_output[(i, j)];
                    }
                }
            }
        }
    }
    let mut solved = Mat::zeros(c, p * form.d_out);
    for e in 0..form.d_out {
        solved.as_mut().subcols_mut(e * p, p).copy_from(cross.as_ref().subcols(e * c, c).transpose());
    }
    elimination.solve(&mut solved);
    // Side by side and transposed, so that all outputs are one product: it is symmetric as a whole.
    let mut stacked = Mat::zeros(p, c * form.d_out);
    for e in 0..form.d_out {
        stacked.as_mut().subcols_mut(e * c, c).copy_from(solved.as_ref().subcols(e * p, p).transpose());
    }
    update_lower(jj.as_mut(), -1.0, cross.as_ref(), stacked.as_ref());
    Ok(jj)
}

/// `Jᵀ` of a chunk, p × (rows d_out); the rows of output `e` stand in columns `e·rows..`.
fn rows_of_jacobian(form: &Form, pass: &Pass<f64>, values: &[f64], x: &[f64], k: usize) -> Mat<f64> {
    let (d, m, r, s, d_out) = (form.d, form.heads, form.r(), form.s(), form.d_out);
    let rows = x.len() / d;
    let [a, b, c, v] = [Part::A, Part::B, Part::C, Part::V].map(|part| form.range(part));
    let o = &values[form.range(Part::O)];
    let mut jacobian = Mat::zeros(form.range(Part::O).start, rows * d_out);
    // Outputs of every token by every head, `[head][row][e]`.
    let mut u = vec![0.0; m * rows * d_out];
    for (h, u) in u.chunks_exact_mut(rows * d_out).enumerate() {
        let of_head = MatRef::from_row_major_slice(&o[h * s * d_out..(h + 1) * s * d_out], s, d_out);
        let tokens = pass.head_values(form, x, h);
        multiply(faer::MatMut::from_row_major_slice_mut(u, rows, d_out), false, 1.0, tokens, of_head);
    }
    let (mut weights, mut z) = (vec![0.0; k * d_out], vec![0.0; d]);
    let (mut xd, mut kd) = (vec![0.0; d_out * d], vec![0.0; d_out * r]);
    for row in 0..rows {
        let first = row / k * k;
        let x_a = &x[row * d..(row + 1) * d];
        for h in 0..m {
            let p = pass.attention(form, row, h);
            let u = &u[(h * rows + first) * d_out..(h * rows + first + k) * d_out];
            // D_b, XᵀD and KᵀD, by output.
            for e in 0..d_out {
                let mean: f64 = p.iter().zip(u.chunks_exact(d_out)).map(|(p, u)| p * u[e]).sum();
                for (b, p) in p.iter().enumerate() {
                    weights[e * k + b] = p * (u[b * d_out + e] - mean);
                }
            }
            xd.fill(0.0);
            kd.fill(0.0);
            for e in 0..d_out {
                for (b, weight) in weights[e * k..e * k + p.len()].iter().enumerate() {
                    let token = &x[(first + b) * d..(first + b + 1) * d];
                    xd[e * d..(e + 1) * d].iter_mut().zip(token).for_each(|(out, x)| *out += weight * x);
                    if form.rank.is_some() {
                        let key = pass.key(form, first + b, h);
                        kd[e * r..(e + 1) * r].iter_mut().zip(key).for_each(|(out, x)| *out += weight * x);
                    }
                }
            }
            if form.value_rank.is_some() {
                z.fill(0.0);
                for (b, p) in p.iter().enumerate() {
                    let token = &x[(first + b) * d..(first + b + 1) * d];
                    z.iter_mut().zip(token).for_each(|(z, x)| *z += p * x);
                }
            }
            for e in 0..d_out {
                let column = jacobian.col_as_slice_mut(e * rows + row);
                let (xd, kd) = (&xd[e * d..(e + 1) * d], &kd[e * r..(e + 1) * r]);
                let keys = if form.rank.is_some() { kd } else { xd };
                for (i, x) in x_a.iter().enumerate() {
                    let at = a.start + (i * m + h) * r;
                    column[at..at + r].iter_mut().zip(keys).for_each(|(out, key)| *out = x * key);
                }
                if form.rank.is_some() {
                    let q = pass.query(form, row, h);
                    for (i, x) in xd.iter().enumerate() {
                        let at = b.start + (i * m + h) * r;
                        column[at..at + r].iter_mut().zip(q).for_each(|(out, q)| *out = x * q);
                    }
                }
                if form.key_bias {
                    xd.iter().enumerate().for_each(|(i, x)| column[c.start + i * m + h] = *x);
                }
                if form.value_rank.is_some() {
                    for (i, z) in z.iter().enumerate() {
                        let at = v.start + (i * m + h) * s;
                        (0..s).for_each(|j| column[at + j] = z * o[(h * s + j) * d_out + e]);
                    }
                }
            }
        }
    }
    jacobian
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::super::student::Student;
    use super::*;
    use crate::data::Shape;
    use crate::layer::Mask;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// Its columns are the products with unit vectors, for every kind of student.
    #[test]
    fn it_is_what_products_say() {
        let base =
            Form { d: 4, d_out: 3, heads: 2, rank: Some(2), value_rank: Some(3), key_bias: true, bias: true, mask: Mask::None };
        let forms = [
            base,
            Form { rank: None, value_rank: None, key_bias: false, bias: false, ..base },
            Form { rank: None, mask: Mask::Causal, ..base },
            Form { value_rank: None, bias: false, ..base },
        ];
        for form in forms {
            let mut rng = ChaCha8Rng::seed_from_u64(4);
            let mut student = Student::<f64>::random(form, 3.0, &mut rng).unwrap();
            let mut normals = |len: usize| (0..len).map(|_| rng.sample(StandardNormal)).collect::<Vec<f64>>();
            let n = 200;
            let batch = Batch { shape: Shape { k: 3, d: 4, d_out: 3 }, x: normals(n * 12), y: normals(n * 9) };
            let elimination = batch.refit(&form, &mut student.values).unwrap();
            let mut linear = Linear::new(&batch, form, &student.values);
            let matrix = normal_matrix(&batch, &form, &linear, &elimination, &|| false).unwrap();
            let size = (0..matrix.nrows()).map(|i| matrix[(i, i)]).fold(0.0, f64::max);
            for j in 0..matrix.ncols() {
                let mut unit = vec![0.0; form.len()];
                unit[j] = 1.0;
                let product = linear.projected_product(&elimination, &unit);
                for i in j..matrix.nrows() {
                    assert!((matrix[(i, j)] - product[i]).abs() < 1e-10 * size, "{form:?} {i},{j}");
                }
            }
        }
    }
}
