//! The Gauss–Newton matrix `JᵀP⊥J` of a student with few parameters, written out.
//!
//! With the attention row `p` of a query `a`, values `u_b = x_b V O` and their mean `ū = Σ_b p_b u_b`,
//!
//! ```text
//! dF(X)_a = Σ_b D_b dℓ_b + z dV O,     D_b = p_b (u_b − ū),     z = Σ_b p_b x_b
//! dℓ_b = ⟨x_a dA, x_b B⟩ + ⟨x_a A, x_b dB⟩ + ⟨dc, x_b⟩
//! ```
//!
//! so every row of the Jacobian is made of outer products: `x_a ⊗ KᵀD`, `q_a ⊗ XᵀD`, `XᵀD` and `z ⊗ O`. (Where queries and keys are normalised and turned, `k_b` and `q_a` stand for
//! what multiplies changes of the raw query and key, and the latter depends on `b`: `Σ_b x_b ⊗ D_b q_ab`.) And
//! `JᵀP⊥J = JᵀJ − Σ_e (H̄ᵀJ_e)ᵀ G⁻¹ (H̄ᵀJ_e)`, with `J_e` the rows of output `e`.

use crate::engine::batch::{Batch, ROWS as CHUNK};
use crate::engine::eliminate::{Elimination, columns};
use crate::engine::linearised::Linearised;
use crate::engine::pass::Pass;
use crate::engine::student::{Form, Part};
use crate::linalg::Mat;
use crate::linalg::symmetric::{Tile, multiply, tiles, update_lower};
use crate::parallel;
use crate::{Error, Result};
use faer::{MatMut, MatRef};

/// Most parameters beside `O` of a student that is small.
const MOST: usize = 1024;

/// Products with `JᵀP⊥J` that writing it out may cost as much as.
const WORTH: usize = 300;

/// Whether writing the matrix out is cheaper than the products that conjugate gradients would need.
pub(crate) fn is_small(form: &Form) -> bool {
    let p = form.range(Part::O).start;
    // A row of an output costs p²/2 here, or less; products of a row cost about six times all parameters.
    form.functions() == 0 && p <= MOST && p * p * form.d_out / 2 <= WORTH * 6 * form.len()
}

/// Most parameters beside `O` of a student whose matrix is written out if nothing else helps.
const LARGEST: usize = 4096;

/// Numbers that its making may keep at a time, of each kind.
const MOST_NUMBERS: usize = 1 << 25;

/// Whether the matrix can be written out at all.
pub(crate) fn fits_memory(form: &Form) -> bool {
    let (p, md) = (form.range(Part::O).start, form.heads * form.d);
    let of_chunk = if heads_alone(form) { md * (md + 1) / 2 + md * form.d_out } else { p * form.d_out };
    form.functions() == 0 && p <= LARGEST && columns(form) * p * form.d_out <= MOST_NUMBERS && of_chunk * CHUNK <= MOST_NUMBERS
}

/// Whether there are heads of full rank and nothing else.
fn heads_alone(form: &Form) -> bool {
    form.rank.is_none() && form.value_rank.is_none() && !form.key_bias && !form.bias && form.relative.is_none()
}

/// The lower triangle of `JᵀP⊥J`; `stop` is asked at every chunk.
pub(crate) fn normal_matrix(
    batch: &Batch<f64>,
    form: &Form,
    linear: &Linearised<'_, f64>,
    elimination: &Elimination,
    stop: &dyn Fn() -> bool,
) -> Result<Mat<f64>> {
    let (p, c) = (form.range(Part::O).start, columns(form));
    let mut jj = Mat::zeros(p, p);
    // H̄ᵀJ_e for every output, side by side.
    let mut cross = Mat::<f64>::zeros(c, p * form.d_out);
    for (range, pass, values) in linear.passes() {
        if stop() {
            return Err(Error::Interrupted);
        }
        let chunk = ChunkOf { form, pass, values, x: batch.inputs(range), k: batch.shape.k };
        if heads_alone(form) { chunk.add_products(&mut jj, &mut cross) } else { chunk.add_rows(&mut jj, &mut cross) }
    }
    elimination.solve_half(&mut cross);
    // Side by side and transposed, so that all outputs are one product.
    let mut stacked = Mat::zeros(p, c * form.d_out);
    for e in 0..form.d_out {
        stacked.as_mut().subcols_mut(e * c, c).copy_from(cross.as_ref().subcols(e * p, p).transpose());
    }
    update_lower(jj.as_mut(), -1.0, stacked.as_ref(), stacked.as_ref());
    Ok(jj)
}

/// A chunk of sequences and the pass over it.
struct ChunkOf<'a> {
    form: &'a Form,
    pass: &'a Pass<f64>,
    values: &'a [f64],
    x: &'a [f64],
    k: usize,
}

impl ChunkOf<'_> {
    fn rows(&self) -> usize {
        self.x.len() / self.form.d
    }

    /// For every row and head `D`, output by output, a number for every key that is seen.
    fn each_query(&self, mut each: impl FnMut(usize, usize, &[f64])) {
        let (m, s, d_out, k, rows) = (self.form.heads, self.form.s(), self.form.d_out, self.k, self.rows());
        let o = &self.values[self.form.range(Part::O)];
        // Outputs of every token by every head, `[head][row][e]`.
        let mut u = vec![0.0; m * rows * d_out];
        for (h, u) in u.chunks_exact_mut(rows * d_out).enumerate() {
            let of_head = MatRef::from_row_major_slice(&o[h * s * d_out..(h + 1) * s * d_out], s, d_out);
            let tokens = self.pass.head_values(self.form, self.x, h);
            multiply(MatMut::from_row_major_slice_mut(u, rows, d_out), false, 1.0, tokens, of_head);
        }
        let mut weights = vec![0.0; k * d_out];
        for row in 0..rows {
            let first = row / k * k;
            for h in 0..m {
                let p = self.pass.attention(self.form, row, h);
                let u = &u[(h * rows + first) * d_out..(h * rows + first + k) * d_out];
                for e in 0..d_out {
                    let mean: f64 = p.iter().zip(u.chunks_exact(d_out)).map(|(p, u)| p * u[e]).sum();
                    for (b, p) in p.iter().enumerate() {
                        weights[e * k + b] = p * (u[b * d_out + e] - mean);
                    }
                    weights[e * k + p.len()..(e + 1) * k].fill(0.0);
                }
                each(row, h, &weights);
            }
        }
    }

    /// `out ← Σ_b D_b v_b` of one output.
    fn mix<'b>(weights: &[f64], vector: impl Fn(usize) -> &'b [f64], out: &mut [f64]) {
        out.fill(0.0);
        for (b, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            out.iter_mut().zip(vector(b)).for_each(|(out, x)| *out += weight * x);
        }
    }

    /// Heads of full rank and nothing else: `J = x_a ⊗ XᵀD`, so with all heads' `XᵀD` stacked
    ///
    /// ```text
    /// JᵀJ = Σ_a (x_aᵀx_a) ⊗ (XᵀD DᵀX)      H̄ᵀJ_e = Σ_a x_a ⊗ (h_aᵀ (XᵀD)_e)
    /// ```
    ///
    /// a row costs what an output of it would otherwise.
    fn add_products(&self, jj: &mut Mat<f64>, cross: &mut Mat<f64>) {
        let (d, m, d_out, k, rows) = (self.form.d, self.form.heads, self.form.d_out, self.k, self.rows());
        let (md, p) = (m * d, jj.nrows());
        // XᵀD, `[row][e][head and coordinate]`.
        let mut seen = vec![0.0; rows * d_out * md];
        self.each_query(|row, h, weights| {
            let first = row / k * k;
            for e in 0..d_out {
                let out = &mut seen[(row * d_out + e) * md + h * d..][..d];
                Self::mix(&weights[e * k..(e + 1) * k], |b| &self.x[(first + b) * d..(first + b + 1) * d], out);
            }
        });
        // XᵀD DᵀX, the lower triangle column by column, a column for every row.
        let pairs = md * (md + 1) / 2;
        let mut squares = vec![0.0; pairs * rows];
        parallel::each(squares.chunks_exact_mut(pairs).zip(seen.chunks_exact(d_out * md)), |(column, seen)| {
            let seen = MatRef::from_column_major_slice(seen, md, d_out);
            let mut square = Mat::zeros(md, md);
            multiply(square.as_mut(), false, 1.0, seen, seen.transpose());
            let mut at = 0;
            for j in 0..md {
                column[at..at + md - j].copy_from_slice(&square.col_as_slice(j)[j..]);
                at += md - j;
            }
        });
        let squares = MatRef::from_column_major_slice(&squares, pairs, rows);
        let x = MatRef::from_row_major_slice(self.x, rows, d);
        parallel::each(tiles(jj.as_mut(), p, md), |Tile { col, mut part, .. }| {
            let v = col / md;
            // x_a[u] x_a[v] for all u from v on.
            let products = Mat::from_fn(rows, d - v, |a, u| x[(a, v + u)] * x[(a, v)]);
            let mut sums = Mat::zeros(pairs, d - v);
            multiply(sums.as_mut(), false, 1.0, squares, products.as_ref());
            for u in 0..d - v {
                let (sums, top) = (sums.col_as_slice(u), (v + u) * md);
                let mut at = 0;
                for j in 0..md {
                    for i in j..md {
                        part[(top + i, j)] += sums[at];
                        if u > 0 && i > j {
                            part[(top + j, i)] += sums[at];
                        }
                        at += 1;
                    }
                }
            }
        });
        let (h, seen) = (self.pass.pooled(self.form), MatRef::from_column_major_slice(&seen, d_out * md, rows));
        let blocks: Vec<Mat<f64>> = parallel::map(0..d, |u| {
            let scaled = Mat::from_fn(h.ncols(), rows, |c, a| h[(a, c)] * x[(a, u)]);
            let mut block = Mat::zeros(h.ncols(), d_out * md);
            multiply(block.as_mut(), false, 1.0, scaled.as_ref(), seen.transpose());
            block
        });
        for (u, block) in blocks.iter().enumerate() {
            for e in 0..d_out {
                let mut place = cross.as_mut().subcols_mut(e * p + u * md, md);
                place += block.as_ref().subcols(e * md, md);
            }
        }
    }

    /// Row by row.
    fn add_rows(&self, jj: &mut Mat<f64>, cross: &mut Mat<f64>) {
        let (form, rows, p) = (self.form, self.rows(), jj.nrows());
        let jacobian = self.jacobian();
        update_lower(jj.as_mut(), 1.0, jacobian.as_ref(), jacobian.as_ref());
        let h = self.pass.pooled(form);
        for e in 0..form.d_out {
            let of_output = jacobian.as_ref().subcols(e * rows, rows);
            let mut place = cross.as_mut().subcols_mut(e * p, p);
            multiply(place.as_mut().subrows_mut(0, h.ncols()), true, 1.0, h.transpose(), of_output.transpose());
            if form.bias {
                for j in 0..rows {
                    for i in 0..p {
                        place[(h.ncols(), i)] += of_output[(i, j)];
                    }
                }
            }
        }
    }

    /// `Jᵀ`, p × (rows d_out); the rows of output `e` stand in columns `e·rows..`.
    fn jacobian(&self) -> Mat<f64> {
        let Self { form, pass, x, k, .. } = *self;
        let (d, m, g, r, s, d_out, rows) = (form.d, form.heads, form.key_groups(), form.r(), form.s(), form.d_out, self.rows());
        let relative = form.range(Part::Relative);
        let [a, b, c, v] = [Part::A, Part::B, Part::C, Part::V].map(|part| form.range(part));
        let o = &self.values[form.range(Part::O)];
        let mut jacobian = Mat::zeros(form.range(Part::O).start, rows * d_out);
        let (mut xd, mut kd, mut z) = (vec![0.0; d], vec![0.0; r], vec![0.0; d]);
        self.each_query(|row, h, weights| {
            let first = row / k * k;
            let token = |b: usize| &x[(first + b) * d..(first + b + 1) * d];
            if form.value_rank.is_some() {
                Self::mix(pass.attention(form, row, h), token, &mut z);
            }
            let group = form.group(h);
            let turned = (!form.scores.is_bilinear()).then(|| Turned::new(self, row, h));
            for e in 0..d_out {
                let weights = &weights[e * k..(e + 1) * k];
                // XᵀD and KᵀD.
                Self::mix(weights, token, &mut xd);
                match &turned {
                    Some(turned) => Self::mix(weights, |b| turned.key(b), &mut kd),
                    None if form.rank.is_some() => Self::mix(weights, |b| pass.key(form, first + b, h), &mut kd),
                    None => {}
                }
                let column = jacobian.col_as_slice_mut(e * rows + row);
                if let Some(turned) = &turned {
                    turned.add(weights, (h, group), token, &kd, column);
                }
                if !relative.is_empty() {
                    let (least, count) = form.distances();
                    for (b, weight) in weights.iter().enumerate() {
                        let distance = (row - first) as isize - b as isize - least;
                        column[relative.start + distance.clamp(0, count as isize - 1).unsigned_abs() * m + h] += weight;
                    }
                }
                let keys = if form.rank.is_some() { &kd } else { &xd };
                for (i, x) in token(row - first).iter().enumerate() {
                    let at = a.start + (i * m + h) * r;
                    column[at..at + r].iter_mut().zip(keys).for_each(|(out, key)| *out = x * key);
                }
                if form.rank.is_some() && turned.is_none() {
                    let q = pass.query(form, row, h);
                    for (i, x) in xd.iter().enumerate() {
                        let at = b.start + (i * g + group) * r;
                        column[at..at + r].iter_mut().zip(q).for_each(|(out, q)| *out += x * q);
                    }
                }
                if !c.is_empty() {
                    xd.iter().enumerate().for_each(|(i, x)| column[c.start + i * m + h] = *x);
                }
                if form.value_rank.is_some() {
                    for (i, z) in z.iter().enumerate() {
                        let at = v.start + (i * g + group) * s;
                        (0..s).for_each(|j| column[at + j] += z * o[(h * s + j) * d_out + e]);
                    }
                }
            }
        });
        jacobian
    }
}

/// What multiplies changes of raw queries and keys in the logits of one query, where those are normalised and turned.
struct Turned<'a> {
    chunk: &'a ChunkOf<'a>,
    /// For the query, `[b][r]`, and for the keys.
    keys: Vec<f64>,
    queries: Vec<f64>,
    /// For the gains of queries and of keys.
    gains: [Vec<f64>; 2],
}

impl<'a> Turned<'a> {
    fn new(chunk: &'a ChunkOf<'a>, row: usize, h: usize) -> Self {
        let ChunkOf { form, pass, values, k, .. } = *chunk;
        let (r, first) = (form.r(), row / k * k);
        let mut new =
            Self { chunk, keys: vec![0.0; k * r], queries: vec![0.0; k * r], gains: [vec![0.0; k * r], vec![0.0; k * r]] };
        for b in form.scores.mask.seen(row - first, k) {
            let at = b * r..(b + 1) * r;
            let (key, query) = (&mut new.keys[at.clone()], &mut new.queries[at.clone()]);
            key.copy_from_slice(pass.key(form, first + b, h));
            query.copy_from_slice(pass.query(form, row, h));
            pass.towards_query(form, values, (row, h), key, &mut new.gains[0][at.clone()]);
            pass.towards_key(form, values, (first + b, h), query, &mut new.gains[1][at]);
        }
        new
    }

    fn key(&self, b: usize) -> &[f64] {
        let r = self.chunk.form.r();
        &self.keys[b * r..(b + 1) * r]
    }

    /// Adds what keys, biases and gains have in a row of the Jacobian; `kd` is what `A` has.
    fn add<'b>(
        &self,
        weights: &[f64],
        (h, group): (usize, usize),
        token: impl Fn(usize) -> &'b [f64],
        kd: &[f64],
        column: &mut [f64],
    ) {
        let form = self.chunk.form;
        let (g, r) = (form.key_groups(), form.r());
        let [b_start, query_bias, key_bias, gains] =
            [Part::B, Part::QueryBias, Part::KeyBias, Part::Gains].map(|part| form.range(part));
        for (b, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            let query = &self.queries[b * r..(b + 1) * r];
            for (i, x) in token(b).iter().enumerate() {
                let at = b_start.start + (i * g + group) * r;
                column[at..at + r].iter_mut().zip(query).for_each(|(out, q)| *out += weight * x * q);
            }
            if !key_bias.is_empty() {
                let at = key_bias.start + group * r;
                column[at..at + r].iter_mut().zip(query).for_each(|(out, q)| *out += weight * q);
            }
            if !gains.is_empty() {
                for (side, of) in self.gains.iter().enumerate() {
                    let place = &mut column[gains.start + side * r..gains.start + (side + 1) * r];
                    place.iter_mut().zip(&of[b * r..(b + 1) * r]).for_each(|(out, v)| *out += weight * v);
                }
            }
        }
        if !query_bias.is_empty() {
            let at = query_bias.start + h * r;
            column[at..at + r].iter_mut().zip(kd).for_each(|(out, v)| *out += v);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::engine::testing::{batch, forms, student};

    /// Its columns are the products with unit vectors, for every kind of student.
    #[test]
    fn it_is_what_products_say() {
        for (seed, form) in forms().into_iter().filter(fits_memory).enumerate() {
            let (mut student, batch) = (student(&form, seed as u64), batch(&form, 120, seed as u64));
            let elimination = batch.refit(&form, &mut student.values).unwrap();
            let mut linear = Linearised::new(&batch, form.clone(), &student.values);
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
