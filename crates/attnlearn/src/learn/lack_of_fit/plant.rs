//! Functions that no layer is, to see whether they would be noticed: a missing head, a sharp one, ReLU attention, causal attention, values by position, a
//! network of query and mean, a maximum, a product of two heads.
//!
//! They are random, and share nothing with the functions that residuals are predicted by: where these look at some directions of tokens only, planted ones
//! look at others. Real residuals lack what the layer could explain; so what its own heads, pooled as they are, explain of a planted function is
//! taken away first: `P ← P − A B`, `A = [1, h_1, …, h_m]` the pooled tokens of every head, `B` by least squares.

use super::dictionary::{Dictionary, Kind, Sequence, directions, dot, mean, normals, pool, times};
use super::prediction::without;
use crate::linalg::Mat;
use crate::parallel;
use rand_chacha::ChaCha8Rng;

/// Columns of `A`, at most; and the least rows for each of them.
const ABSORBED: usize = 1000;
const ROWS: usize = 3;

/// Numbers of queries of some sequences, row by row.
type Asked = [(usize, Vec<usize>)];

/// `each` random functions of every kind at the queries that are asked, `outputs` numbers each, with mean square 1 and without what the layer explains.
pub(super) fn planted(
    dictionary: &Dictionary,
    sequences: &[Sequence<'_>],
    asked: &Asked,
    each: usize,
    outputs: usize,
    rng: &mut ChaCha8Rng,
) -> Vec<Mat<f64>> {
    let rows: usize = asked.iter().map(|(_, queries)| queries.len()).sum();
    let absorbed = matrix(parallel::map(asked, |(sequence, queries)| {
        dictionary.pooled(&sequences[*sequence], queries, ABSORBED.min(rows / ROWS))
    }));
    let kinds = (0..Plant::KINDS).flat_map(|kind| std::iter::repeat_n(kind, each));
    kinds
        .map(|kind| {
            let plant = Plant::new(kind, dictionary, sequences.first().map_or(0, |s| s.k), outputs, rng);
            let mut values = matrix(parallel::map(asked, |(sequence, queries)| {
                plant.outputs(&sequences[*sequence], dictionary, queries, outputs)
            }));
            standardise(&mut values);
            let mut values = without(&absorbed, &values);
            standardise(&mut values);
            values
        })
        .collect()
}

fn matrix(rows: Vec<Vec<Vec<f64>>>) -> Mat<f64> {
    let rows = rows.concat();
    Mat::from_fn(rows.len(), rows.first().map_or(0, Vec::len), |i, j| rows[i][j])
}

/// Columns about their means, and the whole with mean square 1.
fn standardise(m: &mut Mat<f64>) {
    let n = m.nrows() as f64;
    let mut square = 0.0;
    for j in 0..m.ncols() {
        let mut column = m.col_mut(j);
        let mean = (0..column.nrows()).map(|i| column[i]).sum::<f64>() / n;
        (0..column.nrows()).for_each(|i| column[i] -= mean);
        square += (0..column.nrows()).map(|i| column[i].powi(2)).sum::<f64>();
    }
    let size = (square / (n * m.ncols() as f64)).sqrt().max(f64::MIN_POSITIVE);
    *m *= faer::Scale(1.0 / size);
}

/// A function of a sequence.
pub(super) struct Plant {
    kind: usize,
    /// Directions of tokens that it sees; all, if there are few.
    sketch: Option<Vec<f64>>,
    w: usize,
    theta: Vec<f64>,
    other: Vec<f64>,
    hidden: Vec<Vec<f64>>,
    values: Vec<f64>,
    /// Values of every position.
    placed: Vec<f64>,
}

impl Plant {
    /// Kinds there are.
    pub const KINDS: usize = 8;

    /// A random one of a kind, with `outputs` numbers a query.
    fn new(kind: usize, dictionary: &Dictionary, k: usize, outputs: usize, rng: &mut ChaCha8Rng) -> Self {
        let w = dictionary.w;
        let norm = if kind == 1 { 6.0 } else { 2.0 };
        Self {
            kind,
            sketch: directions(dictionary.d, w, rng),
            w,
            theta: normals(w * w, norm / w as f64, rng),
            other: normals(w * w, norm / w as f64, rng),
            hidden: (0..2 * w).map(|_| normals(2 * w + 1, (1.0 / w as f64).sqrt(), rng)).collect(),
            values: normals(2 * w * outputs, 1.0, rng),
            placed: if kind == 4 { normals(k * w * outputs, 1.0, rng) } else { Vec::new() },
        }
    }

    /// Its outputs at some queries.
    fn outputs(&self, sequence: &Sequence<'_>, dictionary: &Dictionary, queries: &[usize], outputs: usize) -> Vec<Vec<f64>> {
        let (k, w) = (sequence.k, self.w);
        let tokens: Vec<Vec<f64>> = sequence
            .z
            .chunks_exact(dictionary.d)
            .map(|z| self.sketch.as_ref().map_or_else(|| z.to_vec(), |m| times(z, m, w)))
            .collect();
        let flat = tokens.concat();
        let all = mean(&flat, w, k);
        let values = &self.values[..w * outputs];
        let of = |&a: &usize| {
            let own = &tokens[a];
            let attend = |theta: &[f64], kind: Kind, seen: usize| {
                let turned = times(own, theta, w);
                let logits: Vec<f64> = tokens.iter().map(|token| dot(&turned, token)).collect();
                pool(kind, &logits, seen, &flat, w)
            };
            match self.kind {
                // A head that is missing, a sharp one, ReLU attention, causal attention.
                0 | 1 => times(&attend(&self.theta, Kind::Softmax, k), values, outputs),
                2 => times(&attend(&self.theta, Kind::Relu, k), values, outputs),
                3 => times(&attend(&self.theta, Kind::Causal, a + 1), values, outputs),
                // Values that depend on the position of the query.
                4 => times(own, &self.placed[a * w * outputs..(a + 1) * w * outputs], outputs),
                // A network of the query and the mean.
                5 => {
                    let input = [&own[..], &all, &[1.0]].concat();
                    let hidden: Vec<f64> = self.hidden.iter().map(|weights| dot(weights, &input).tanh()).collect();
                    times(&hidden, &self.values, outputs)
                }
                // The greatest of all tokens.
                6 => {
                    let most: Vec<f64> =
                        (0..w).map(|i| tokens.iter().map(|token| token[i]).fold(f64::NEG_INFINITY, f64::max)).collect();
                    times(&most, values, outputs)
                }
                // The product of two heads.
                _ => {
                    let (one, two) = (attend(&self.theta, Kind::Softmax, k), attend(&self.other, Kind::Softmax, k));
                    let (one, two) = (times(&one, values, outputs), times(&two, &self.values[w * outputs..], outputs));
                    one.iter().zip(&two).map(|(a, b)| a * b).collect()
                }
            }
        };
        queries.iter().map(of).collect()
    }
}
