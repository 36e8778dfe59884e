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
//! Where queries and keys are normalised and turned, `k_b` in `M_a` is what multiplies a change of the raw query, and `q_a` what multiplies one of the raw key:
//! their maps' adjoints (`Pass::towards_query`, `Pass::towards_key`). Heads of a group have one block for `B` and one for `V`, of the sums of theirs. Biases of queries and keys have their factors' columns,
//! `β` the weights `p_b² |(v_b − v̄)O|²` by distance.
//!
//! This is K-FAC (Martens, Grosse) for attention. Steps are damped in this metric and conjugate gradients preconditioned by it: factors `A G` and
//! `B G⁻ᵀ` are the same layer, and lead to the same step for orthogonal `G`.

use crate::engine::batch::Batch;
use crate::engine::eliminate::Elimination;
use crate::engine::linearised::Linearised;
use crate::engine::moments::Moments;
use crate::engine::pass::Pass;
use crate::engine::student::{Form, PARTS, Part};
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

/// Probes; their numbers are the seeds of their numbers.
const PROBES: usize = 4;

/// Numbers of the probes for every column that tell its directions apart.
const ENOUGH: usize = 4;

/// What is added to probed matrices, as a share of their mean; and to those of few numbers.
const PROBED: f64 = 1e-6;
const UNTOLD: f64 = 0.1;

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
    /// Which of the part's heads, or groups.
    at: usize,
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
    /// At the point of a linearised student, for any kind of scores.
    pub(crate) fn at<T: Field>(batch: &Batch<T>, form: &Form, linear: &mut Linearised<'_, T>, elimination: &Elimination) -> Self {
        if form.scores.is_bilinear() { Self::new(batch, form, linear) } else { Self::probed(form, linear, elimination) }
    }

    /// Of one whose scores are bilinear.
    fn new<T: Field>(batch: &Batch<T>, form: &Form, linear: &Linearised<'_, T>) -> Self {
        let rows = batch.len() * batch.shape.k;
        // All positions of a sequence in turn: with a causal mask the first ones see little.
        let every = (rows.div_ceil(ROWS).max(1)..).find(|every| coprime(*every, batch.shape.k)).unwrap_or(1);
        let heads: Vec<Columns> = parallel::map(0..form.heads, |head| Columns::of_head(batch, form, linear, head, every));
        let moments: Vec<Moments> = parallel::map(0..form.heads, |head| Moments::new(batch, form, linear, head));
        // Of all heads of a group.
        let of_groups = |of: &dyn Fn(usize) -> Mat<f64>| {
            let mut sums: Vec<Option<Mat<f64>>> = vec![None; form.key_groups()];
            for head in 0..form.heads {
                let sum = &mut sums[form.group(head)];
                *sum = Some(sum.take().map_or_else(|| of(head), |sum| sum + of(head)));
            }
            sums.into_iter().flatten().collect::<Vec<_>>()
        };
        let share = (form.key_groups() as f64) / form.heads as f64;
        let shared = |moments: Vec<Mat<f64>>| Side::of_heads(moments, UNSEEN).into_iter().map(Arc::new).collect::<Vec<_>>();
        let keys = shared(of_groups(&|head| moments[head].keys.clone()));
        // Means over the heads of a group: their columns are added.
        let values = shared(of_groups(&|head| &moments[head].values * faer::Scale(share)));
        let own_keys = shared(moments.iter().map(|moments| moments.keys.clone()).collect());

        let mut metric = Self { form: form.clone(), blocks: Vec::new() };
        let a = metric.add(Part::A, heads.iter().map(|head| head.a.clone()).collect(), None);
        let weight = |sum: &Mat<f64>, total: f64| sum * faer::Scale(if total > 0.0 { 1.0 / total } else { 0.0 });
        if form.rank.is_some() {
            let totals = of_groups(&|head| Mat::full(1, 1, heads[head].weight));
            let sums = of_groups(&|head| heads[head].b.clone());
            let columns = sums.iter().zip(&totals).map(|(sum, total)| weight(sum, total[(0, 0)])).collect();
            let b = metric.add(Part::B, columns, Some(&keys));
            if form.shape(Part::KeyBias).0 > 0 {
                let mean = |side: &Arc<Side>| (0..form.d).map(|i| side.matrix[(i, i)]).sum::<f64>() / form.d as f64;
                let scales = keys.iter().map(|side| Mat::full(1, 1, mean(side))).collect();
                metric.again(Part::KeyBias, b, &shared(scales));
            }
        }
        if form.shape(Part::QueryBias).0 > 0 {
            let one = shared(vec![Mat::full(1, 1, 1.0); form.heads]);
            metric.again(Part::QueryBias, a, &one);
        }
        if form.shape(Part::Gains).0 > 0 {
            // dq̂_j = n_j dγ_j where dq̂ = γ/rms dq for a change of the factor: of one size up to γ²/rms².
            let size: f64 = heads.iter().map(|head| head.gains).sum();
            metric.add(Part::Gains, vec![Mat::from_fn(form.r(), form.r(), |i, j| if i == j { size } else { 0.0 })], None);
        }
        if form.relative.is_some() {
            let tables = heads.iter().map(|head| {
                Mat::from_fn(head.relative.len(), head.relative.len(), |i, j| if i == j { head.relative[i] } else { 0.0 })
            });
            metric.add(Part::Relative, vec![Mat::full(1, 1, 1.0); form.heads], Some(&shared(tables.collect())));
        }
        if form.shape(Part::C).0 > 0 {
            metric.add(Part::C, vec![Mat::full(1, 1, 1.0); form.heads], Some(&own_keys));
        }
        if form.value_rank.is_some() {
            metric.add(Part::V, of_groups(&|head| heads[head].outputs.clone()), Some(&values));
        }
        metric
    }

    /// Adds the blocks of a part, with their tokens, and says where they begin.
    fn add(&mut self, part: Part, columns: Vec<Mat<f64>>, tokens: Option<&[Arc<Side>]>) -> usize {
        let first = self.blocks.len();
        let sides = Side::of_heads(columns, FLOOR).into_iter().enumerate();
        self.blocks.extend(sides.map(|(at, columns)| Block {
            part,
            at,
            tokens: tokens.map(|tokens| Arc::clone(&tokens[at])),
            columns,
        }));
        first
    }

    /// Adds blocks with the columns of others, from `first` on.
    fn again(&mut self, part: Part, first: usize, tokens: &[Arc<Side>]) {
        for (at, tokens) in tokens.iter().enumerate() {
            let columns = self.blocks[first + at].columns.clone();
            self.blocks.push(Block { part, at, tokens: Some(Arc::clone(tokens)), columns });
        }
    }

    /// At the point of a linearised student whose scores are not bilinear, by probing: for outputs `u` of independent normal numbers `E (Jᵀu)(Jᵀu)ᵀ = JᵀP⊥J`, and
    /// a block of it is taken for `I ⊗ E GᵀG`, with `G` the part of `JᵀP⊥u` that it has, long side down; the matrices of functions of the distance for a product of three.
    pub(crate) fn probed<T: Field>(form: &Form, linear: &mut Linearised<'_, T>, elimination: &Elimination) -> Self {
        // Biases of queries have one number of a probe for every column, and need their own directions: with those of the factors steps get stuck.
        let count = if form.shape(Part::QueryBias).0 > 0 { PROBES * form.r() } else { PROBES };
        let probes: Vec<Vec<f64>> = (0..count).map(|probe| linear.projected_probe(elimination, probe as u64)).collect();
        let mut metric = Self { form: form.clone(), blocks: Vec::new() };
        for part in PARTS.into_iter().filter(|part| !matches!(part, Part::O | Part::Bias) && form.shape(*part).0 > 0) {
            let (rows, width) = (form.shape(part).0, form.shape(part).1 / form.count(part));
            // GᵀG and GGᵀ, means over probes.
            let square = |at: usize, columns: bool| {
                let mut sum = Mat::<f64>::zeros(if columns { width } else { rows }, if columns { width } else { rows });
                for probe in &probes {
                    let g = form.view(part, probe).subcols(at * width, width);
                    let (left, right) = if columns { (g.transpose(), g) } else { (g, g.transpose()) };
                    multiply(sum.as_mut(), true, 1.0 / count as f64, left, right);
                }
                sum
            };
            if part == Part::Kernel {
                let (r, functions) = (form.r(), form.functions());
                for at in 0..form.count(part) {
                    let of_rows = square(at, false);
                    let total = (0..rows).map(|i| of_rows[(i, i)]).sum::<f64>().max(f64::MIN_POSITIVE);
                    // Functions and queries apart: traces over the other.
                    let of_functions =
                        Mat::from_fn(functions, functions, |m, n| (0..r).map(|i| of_rows[(m * r + i, n * r + i)]).sum::<f64>());
                    let of_queries =
                        Mat::from_fn(r, r, |i, j| (0..functions).map(|m| of_rows[(m * r + i, m * r + j)]).sum::<f64>());
                    let floored = |mut m: Mat<f64>| {
                        let mean = (0..m.nrows()).map(|i| m[(i, i)]).sum::<f64>() / m.nrows() as f64;
                        (0..m.nrows()).for_each(|i| m[(i, i)] += PROBED * mean);
                        m
                    };
                    let (f, q) = (floored(of_functions), floored(of_queries));
                    let tokens = Mat::from_fn(rows, rows, |i, j| f[(i / r, j / r)] * q[(i % r, j % r)] / (total * total));
                    let sides = Side::of_heads(vec![square(at, true)], PROBED);
                    metric.blocks.extend(sides.into_iter().map(|columns| Block {
                        part,
                        at,
                        tokens: Some(Arc::new(Side::new(tokens.clone(), 0.0, 1.0))),
                        columns,
                    }));
                }
                continue;
            }
            let blocks = (0..form.count(part)).map(|at| {
                let columns = square(at, true) * faer::Scale(1.0 / rows as f64);
                // A few numbers do not tell directions apart.
                let told = rows * count >= ENOUGH * width;
                if told { columns } else { Mat::from_fn(width, width, |i, j| if i == j { columns[(i, i)] } else { 0.0 }) }
            });
            let least = if rows * count >= ENOUGH * width { PROBED } else { UNTOLD };
            let sides = Side::of_heads(blocks.collect(), least).into_iter().enumerate();
            metric.blocks.extend(sides.map(|(at, columns)| Block { part, at, tokens: None, columns }));
        }
        metric
    }

    /// Of the matrices of columns of every head, in the same order, for tokens that are seen alike in all directions; to each is added `least` of the mean
    /// of all of its kind.
    pub(crate) fn of(form: &Form, heads: &[Vec<(Part, Mat<f64>)>], least: f64) -> Self {
        let mut blocks = Vec::new();
        for (kind, &(part, _)) in heads.first().into_iter().flatten().enumerate() {
            let sides = Side::of_heads(heads.iter().map(|head| head[kind].1.clone()).collect(), least);
            blocks.extend(sides.into_iter().enumerate().map(|(at, columns)| Block { part, at, tokens: None, columns }));
        }
        Self { form: form.clone(), blocks }
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
            let from = self.form.view(block.part, v).subcols(block.at * columns.nrows(), columns.nrows());
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
            place.subcols_mut(block.at * product.ncols(), product.ncols()).copy_from(product);
        }
        out
    }
}

fn coprime(a: usize, b: usize) -> bool {
    if b == 0 { a == 1 } else { coprime(b, a % b) }
}

/// What columns say in the blocks of one head.
struct Columns {
    /// `Σ_a M_a OOᵀ M_aᵀ`.
    a: Mat<f64>,
    /// `Σ_ab w_ab q_aᵀ q_a` and `Σ w`.
    b: Mat<f64>,
    weight: f64,
    /// The size of a change of the gains.
    gains: f64,
    /// `Σ w` by distance.
    relative: Vec<f64>,
    /// `OOᵀ`.
    outputs: Mat<f64>,
}

impl Columns {
    /// From every so-manieth row.
    fn of_head<T: Field>(batch: &Batch<T>, form: &Form, linear: &Linearised<'_, T>, head: usize, every: usize) -> Self {
        let (d, r, s, k) = (form.d, form.r(), form.s(), batch.shape.k);
        let (first, distances) = form.distances();
        let mut columns = Self {
            a: Mat::zeros(r, r),
            b: Mat::zeros(r, r),
            weight: 0.0,
            gains: 0.0,
            relative: vec![0.0; distances],
            outputs: Mat::zeros(s, s),
        };
        let (mut row, mut count, mut total) = (0, 0, 0);
        for (range, pass, values) in linear.passes() {
            let x = batch.inputs(range);
            if row == 0 {
                let o = form.view(Part::O, values).subrows(head * s, s);
                let o = Mat::from_fn(s, form.d_out, |i, j| o[(i, j)].to_f64());
                columns.outputs = &o * o.transpose();
            }
            let rows = x.len() / d;
            total += rows;
            while row < total {
                let at = row + rows - total;
                let seen = Row::new(form, (pass, values), x, at, k, head);
                let Row { keys, values: said, p, query } = &seen;
                let spread = Mat::from_fn(r, s, |i, j| (0..p.len()).map(|b| p[b] * keys[(i, b)] * said[(j, b)]).sum::<f64>());
                let towards = &spread * &columns.outputs;
                multiply(columns.a.as_mut(), true, 1.0, towards.as_ref(), spread.transpose());
                let sizes = &columns.outputs * said;
                for b in (0..p.len()).filter(|b| p[*b] > 0.0) {
                    let w = p[b] * p[b] * (0..s).map(|j| sizes[(j, b)] * said[(j, b)]).sum::<f64>();
                    columns.weight += w;
                    if form.rank.is_some() {
                        let query = Row::query_towards(form, (pass, values), query, at / k * k + b, head);
                        for j in 0..r {
                            for i in 0..r {
                                columns.b[(i, j)] += w * query[i] * query[j];
                            }
                        }
                    }
                    if distances > 0 {
                        let distance = (at % k) as isize - b as isize - first;
                        columns.relative[distance.clamp(0, distances as isize - 1).unsigned_abs()] += w;
                    }
                    columns.gains += w * query.iter().map(|q| q * q).sum::<f64>() / r as f64;
                }
                count += 1;
                row += every;
            }
        }
        let scale = total as f64 / count.max(1) as f64;
        columns.a *= faer::Scale(scale);
        columns.gains *= scale;
        columns.relative.iter_mut().for_each(|w| *w *= scale);
        columns
    }
}

/// What one query sees of one head, column by column; keys and values around their means.
struct Row {
    /// As they multiply a change of the raw query.
    keys: Mat<f64>,
    values: Mat<f64>,
    p: Vec<f64>,
    query: Vec<f64>,
}

impl Row {
    fn new<T: Field>(form: &Form, (pass, at): (&Pass<T>, &[T]), x: &[T], row: usize, k: usize, head: usize) -> Self {
        let first = row / k * k;
        let p: Vec<f64> = pass.attention(form, row, head).iter().map(|p| p.to_f64()).collect();
        let tokens = MatRef::from_row_major_slice(x, x.len() / form.d, form.d);
        let values = pass.head_values(form, x, head);
        let around_mean = |mut columns: Mat<f64>| {
            for i in 0..columns.nrows() {
                let mean: f64 = (0..p.len()).map(|b| p[b] * columns[(i, b)]).sum();
                (0..p.len()).for_each(|b| columns[(i, b)] -= mean);
            }
            columns
        };
        let keys = if form.rank.is_some() {
            let mut keys = Mat::zeros(form.r(), p.len());
            let mut of_gains = vec![T::ZERO; form.r()];
            for b in 0..p.len() {
                let mut key = pass.key(form, first + b, head).to_vec();
                pass.towards_query(form, at, (row, head), &mut key, &mut of_gains);
                key.iter().enumerate().for_each(|(i, key)| keys[(i, b)] = key.to_f64());
            }
            around_mean(keys)
        } else {
            around_mean(Mat::from_fn(form.d, p.len(), |i, b| tokens[(first + b, i)].to_f64()))
        };
        let values = around_mean(Mat::from_fn(form.s(), p.len(), |i, b| values[(first + b, i)].to_f64()));
        let query = pass.query(form, row, head).iter().map(|q| q.to_f64()).collect();
        Self { keys, values, p, query }
    }

    /// The query as it multiplies a change of the raw key of a row.
    fn query_towards<T: Field>(form: &Form, (pass, at): (&Pass<T>, &[T]), query: &[f64], row: usize, head: usize) -> Vec<f64> {
        let mut query: Vec<T> = query.iter().map(|q| T::from_f64(*q)).collect();
        pass.towards_key(form, at, (row, head), &mut query, &mut vec![T::ZERO; form.r()]);
        query.iter().map(|q| q.to_f64()).collect()
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

    /// Over many independent standard normal tokens, the blocks of `JᵀJ` have these traces, up to a half (keys, values and query of a token know of one another); and solving undoes multiplying.
    #[test]
    fn it_is_the_size_of_the_normal_matrix() {
        let base = Form {
            d: 24,
            d_out: 4,
            heads: 2,
            rank: Some(3),
            value_rank: Some(3),
            key_bias: true,
            bias: false,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        let causal = Form { scores: Scores::of(Mask::Causal), ..base.clone() };
        for form in [base.clone(), causal.clone(), Form { rank: None, value_rank: None, key_bias: false, ..causal.clone() }] {
            let mut rng = ChaCha8Rng::seed_from_u64(4);
            let student = Student::<f64>::random(form.clone(), 0.5, &mut rng).unwrap();
            let normals = |len: usize, rng: &mut ChaCha8Rng| (0..len).map(|_| rng.sample(StandardNormal)).collect::<Vec<f64>>();
            let n = 600;
            let batch =
                Batch { shape: Shape { k: 6, d: 24, d_out: 4 }, x: normals(n * 144, &mut rng), y: normals(n * 24, &mut rng) };
            let mut linear = Linearised::new(&batch, form.clone(), &student.values);
            let metric = Metric::new(&batch, &form, &linear);
            for block in &metric.blocks {
                let (_, cols) = form.shape(block.part);
                let width = block.columns.matrix.nrows();
                let start = form.range(block.part).start + block.at * width;
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
