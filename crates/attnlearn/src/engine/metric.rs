//! How long a step is: the blocks of `JᵀJ` of every factor of every head, as products of what tokens and what columns say.
//!
//! With the notation of `normal`, the moments `C` of keys and `Z` of values that a head sees (`moments`), and `E xᵀx = I` for queries,
//!
//! ```text
//! A:  I ⊗ Σ_a M_a OOᵀ M_aᵀ     M_a = Σ_b p_b (k_b − k̄)(v_b − v̄)ᵀ,  v_b = x_b V
//! B:  C ⊗ Σ_a w_a q_aᵀ q_a / Σ_a w_a      w_a = Σ_b p_b² |(v_b − v̄)O|²
//! c:  C
//! V:  Z ⊗ OOᵀ
//! ```
//!
//! This is K-FAC (Martens, Grosse) for attention. Steps are damped in this metric and conjugate gradients preconditioned by it: factors `A G` and
//! `B G⁻ᵀ` are the same layer, and lead to the same step for orthogonal `G`.

use crate::engine::batch::Batch;
use crate::engine::linearised::Linearised;
use crate::engine::moments::Moments;
use crate::engine::pass::Pass;
use crate::engine::student::{Form, Part};
use crate::linalg::Mat;
use crate::linalg::cholesky::{small_cholesky, small_inverse};
use crate::linalg::symmetric::{Field, multiply};
use crate::parallel;
use faer::{MatMut, MatRef};
use std::sync::Arc;

/// Rows that the averages over columns are taken over, at most.
const ROWS: usize = 512;

/// Added to every matrix of columns, as a share of the mean of all of its kind: heads without effect have none of their own.
const FLOOR: f64 = 1e-3;

/// The same for moments of tokens: some directions never show, and of those nothing is known.
const UNSEEN: f64 = 1e-4;

/// A positive matrix, and its inverse.
#[derive(Clone, Debug)]
struct Side {
    matrix: Mat<f64>,
    inverse: Mat<f64>,
}

impl Side {
    /// Of the matrices of all heads; to each is added `least` of their mean.
    fn of_heads(heads: Vec<Mat<f64>>, least: f64) -> Vec<Self> {
        let trace = |m: &Mat<f64>| (0..m.nrows()).map(|i| m[(i, i)]).sum::<f64>() / m.nrows() as f64;
        let mean = heads.iter().map(trace).sum::<f64>() / heads.len() as f64;
        // Nothing at all: any unit will do.
        let floor = if mean > 0.0 && mean.is_finite() { least * mean } else { 1.0 };
        parallel::map(heads, |matrix| Self::new(matrix, floor, floor / least))
    }

    fn new(mut matrix: Mat<f64>, floor: f64, mean: f64) -> Self {
        (0..matrix.nrows()).for_each(|i| matrix[(i, i)] += floor);
        let mut l = matrix.clone();
        if small_cholesky(l.as_mut()).is_err() {
            // Rounding, or numbers that are not finite: the plain mean.
            matrix = Mat::from_fn(l.nrows(), l.nrows(), |i, j| if i == j { mean } else { 0.0 });
            l = Mat::from_fn(l.nrows(), l.nrows(), |i, j| if i == j { mean.sqrt() } else { 0.0 });
        }
        let inverse = small_inverse(l.as_ref());
        let inverse = inverse.transpose() * &inverse;
        Self { matrix, inverse }
    }
}

/// One block, `tokens ⊗ columns`, `tokens` the identity if absent.
#[derive(Clone, Debug)]
struct Block {
    part: Part,
    head: usize,
    tokens: Option<Arc<Side>>,
    columns: Side,
}

/// All blocks.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    form: Form,
    blocks: Vec<Block>,
}

impl Metric {
    /// At the point of a linearised student.
    pub(crate) fn new<T: Field>(batch: &Batch<T>, form: &Form, linear: &Linearised<'_, T>) -> Self {
        let rows = batch.len() * batch.shape.k;
        // All positions of a sequence in turn: with a causal mask the first ones see little.
        let every = (rows.div_ceil(ROWS).max(1)..).find(|every| coprime(*every, batch.shape.k)).unwrap_or(1);
        let heads: Vec<Vec<(Part, Mat<f64>)>> =
            parallel::map(0..form.heads, |head| columns_of_head(batch, form, linear, head, every));
        let moments: Vec<Moments> = parallel::map(0..form.heads, |head| Moments::new(batch, form, linear, head));
        let (keys, values): (Vec<_>, Vec<_>) = moments.into_iter().map(|moments| (moments.keys, moments.values)).unzip();
        let sides = |heads: Vec<Mat<f64>>| Side::of_heads(heads, UNSEEN).into_iter().map(Arc::new).collect::<Vec<_>>();
        let (keys, values) = (sides(keys), sides(values));
        let mut metric = Self::of(form, &heads, FLOOR);
        for block in &mut metric.blocks {
            block.tokens = match block.part {
                Part::B | Part::C => Some(Arc::clone(&keys[block.head])),
                Part::V => Some(Arc::clone(&values[block.head])),
                Part::A | Part::O | Part::Bias => None,
            };
        }
        metric
    }

    /// Of the matrices of columns of every head, in the same order, for tokens that are seen alike in all directions; to each is added `least` of the mean
    /// of all of its kind.
    pub(crate) fn of(form: &Form, heads: &[Vec<(Part, Mat<f64>)>], least: f64) -> Self {
        let mut blocks = Vec::new();
        for (kind, &(part, _)) in heads.first().into_iter().flatten().enumerate() {
            let sides = Side::of_heads(heads.iter().map(|head| head[kind].1.clone()).collect(), least);
            blocks.extend(sides.into_iter().enumerate().map(|(head, columns)| Block { part, head, tokens: None, columns }));
        }
        Self { form: *form, blocks }
    }

    /// `Mv`; nothing for `O` and the bias.
    pub(crate) fn times(&self, v: &[f64]) -> Vec<f64> {
        self.each(v, |side| &side.matrix)
    }

    /// `M⁻¹v`, likewise.
    pub(crate) fn solve(&self, v: &[f64]) -> Vec<f64> {
        self.each(v, |side| &side.inverse)
    }

    fn each(&self, v: &[f64], matrix: impl Fn(&Side) -> &Mat<f64> + Sync) -> Vec<f64> {
        let product = |block: &Block| {
            let columns = matrix(&block.columns);
            let from = self.form.view(block.part, v).subcols(block.head * columns.nrows(), columns.nrows());
            let mut product = Mat::zeros(from.nrows(), from.ncols());
            multiply(product.as_mut(), false, 1.0, from, columns.as_ref());
            let Some(tokens) = &block.tokens else { return product };
            let mut seen = Mat::zeros(from.nrows(), from.ncols());
            multiply(seen.as_mut(), false, 1.0, matrix(tokens).as_ref(), product.as_ref());
            seen
        };
        let products: Vec<Mat<f64>> = parallel::map(&self.blocks, product);
        let mut out = vec![0.0; v.len()];
        for (block, product) in self.blocks.iter().zip(&products) {
            let (rows, cols) = self.form.shape(block.part);
            let place = MatMut::from_row_major_slice_mut(&mut out[self.form.range(block.part)], rows, cols);
            place.subcols_mut(block.head * product.ncols(), product.ncols()).copy_from(product);
        }
        out
    }
}

fn coprime(a: usize, b: usize) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}

/// What columns say in the blocks of one head, from every so-manieth row.
fn columns_of_head<T: Field>(
    batch: &Batch<T>,
    form: &Form,
    linear: &Linearised<'_, T>,
    head: usize,
    every: usize,
) -> Vec<(Part, Mat<f64>)> {
    let (d, r, s, k) = (form.d, form.r(), form.s(), batch.shape.k);
    let (mut of_a, mut of_b) = (Mat::<f64>::zeros(r, r), Mat::<f64>::zeros(r, r));
    let mut weight = 0.0;
    let mut outputs = Mat::<f64>::zeros(s, s);
    let (mut row, mut count, mut total) = (0, 0, 0);
    for (range, pass, values) in linear.passes() {
        let x = batch.inputs(range);
        if row == 0 {
            let o = form.view(Part::O, values).subrows(head * s, s);
            let o = Mat::from_fn(s, form.d_out, |i, j| o[(i, j)].to_f64());
            outputs = &o * o.transpose();
        }
        let rows = x.len() / d;
        total += rows;
        while row < total {
            let at = row + rows - total;
            let Row { keys, values, p, query } = Row::new(form, pass, x, at, k, head);
            let spread = Mat::from_fn(r, s, |i, j| (0..p.len()).map(|b| p[b] * keys[(i, b)] * values[(j, b)]).sum::<f64>());
            let seen = &spread * &outputs;
            multiply(of_a.as_mut(), true, 1.0, seen.as_ref(), spread.transpose());
            let sizes = &outputs * &values;
            let w: f64 = (0..p.len()).map(|b| p[b] * p[b] * (0..s).map(|j| sizes[(j, b)] * values[(j, b)]).sum::<f64>()).sum();
            weight += w;
            if form.rank.is_some() {
                for j in 0..r {
                    for i in 0..r {
                        of_b[(i, j)] += w * query[i] * query[j];
                    }
                }
            }
            count += 1;
            row += every;
        }
    }
    let scale = total as f64 / count.max(1) as f64;
    let mut blocks = vec![(Part::A, of_a * faer::Scale(scale))];
    if form.rank.is_some() {
        blocks.push((Part::B, of_b * faer::Scale(if weight > 0.0 { 1.0 / weight } else { 0.0 })));
    }
    if form.key_bias {
        blocks.push((Part::C, Mat::full(1, 1, 1.0)));
    }
    if form.value_rank.is_some() {
        blocks.push((Part::V, outputs));
    }
    blocks
}

/// What one query sees of one head, column by column; keys and values around their means.
struct Row {
    keys: Mat<f64>,
    values: Mat<f64>,
    p: Vec<f64>,
    query: Vec<f64>,
}

impl Row {
    fn new<T: Field>(form: &Form, pass: &Pass<T>, x: &[T], row: usize, k: usize, head: usize) -> Self {
        let first = row / k * k;
        let p: Vec<f64> = pass.attention(form, row, head).iter().map(|p| p.to_f64()).collect();
        let tokens = MatRef::from_row_major_slice(x, x.len() / form.d, form.d);
        let values = pass.head_values(form, x, head);
        let around_mean = |width: usize, at: &dyn Fn(usize, usize) -> f64| {
            let mut columns = Mat::from_fn(width, p.len(), at);
            for i in 0..width {
                let mean: f64 = (0..p.len()).map(|b| p[b] * columns[(i, b)]).sum();
                (0..p.len()).for_each(|b| columns[(i, b)] -= mean);
            }
            columns
        };
        let keys = if form.rank.is_some() {
            around_mean(form.r(), &|i, b| pass.key(form, first + b, head)[i].to_f64())
        } else {
            around_mean(form.d, &|i, b| tokens[(first + b, i)].to_f64())
        };
        let values = around_mean(form.s(), &|i, b| values[(first + b, i)].to_f64());
        let query = pass.query(form, row, head).iter().map(|q| q.to_f64()).collect();
        Self { keys, values, p, query }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::Shape;
    use crate::engine::student::Student;
    use crate::layer::Mask;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// Over many independent standard normal tokens, the blocks of `JᵀJ` have these traces, up to a half (keys, values and query of a token know of one another); and solving undoes multiplying.
    #[test]
    fn it_is_the_size_of_the_normal_matrix() {
        let base =
            Form { d: 24, d_out: 4, heads: 2, rank: Some(3), value_rank: Some(3), key_bias: true, bias: false, mask: Mask::None };
        let causal = Form { mask: Mask::Causal, ..base };
        for form in [base, causal, Form { rank: None, value_rank: None, key_bias: false, ..causal }] {
            let mut rng = ChaCha8Rng::seed_from_u64(4);
            let student = Student::<f64>::random(form, 0.5, &mut rng).unwrap();
            let normals = |len: usize, rng: &mut ChaCha8Rng| (0..len).map(|_| rng.sample(StandardNormal)).collect::<Vec<f64>>();
            let n = 600;
            let batch =
                Batch { shape: Shape { k: 6, d: 24, d_out: 4 }, x: normals(n * 144, &mut rng), y: normals(n * 24, &mut rng) };
            let mut linear = Linearised::new(&batch, form, &student.values);
            let metric = Metric::new(&batch, &form, &linear);
            for block in &metric.blocks {
                let (_, cols) = form.shape(block.part);
                let width = block.columns.matrix.nrows();
                let start = form.range(block.part).start + block.head * width;
                let entries: Vec<usize> = (0..form.d).flat_map(|i| (0..width).map(move |j| start + i * cols + j)).collect();
                // tr ≈ ωᵀJᵀJω with random signs ω, eight times.
                let mut trace = 0.0;
                for _ in 0..8 {
                    let mut signs = vec![0.0; form.len()];
                    entries.iter().for_each(|i| signs[*i] = if rng.random::<bool>() { 1.0 } else { -1.0 });
                    let product = linear.normal_product(&signs);
                    trace += entries.iter().map(|i| signs[*i] * product[*i]).sum::<f64>() / 8.0;
                }
                let trace_of = |m: &Mat<f64>| (0..m.nrows()).map(|i| m[(i, i)]).sum::<f64>();
                let tokens = block.tokens.as_ref().map_or(form.d as f64, |side| trace_of(&side.matrix));
                let expected = tokens * trace_of(&block.columns.matrix);
                assert!((trace / expected - 1.0).abs() < 0.5, "{form:?} {:?}: {trace} {expected}", block.part);
            }
            let mut v = normals(form.len(), &mut rng);
            v[form.range(Part::O).start..].fill(0.0);
            let back = metric.solve(&metric.times(&v));
            assert!(v.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
