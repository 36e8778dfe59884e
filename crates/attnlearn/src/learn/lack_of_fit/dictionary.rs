//! Functions of the inputs that residuals are predicted by.
//!
//! Every family is a few hundred numbers of a query `x_a` and its sequence. What tokens enter it are `z`, white up to rounding; where there are more than
//! [`WIDTH`] directions, so many random ones of them stand for all in everything that is not linear.

use crate::layer::{AttentionLayer, Mask};
use crate::linalg::{Mat, symmetric_eigen};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::Serialize;

/// Directions that enter what is not linear.
const WIDTH: usize = 8;
/// Numbers of a family, about.
const NUMBERS: usize = 240;
/// Positions that are told apart; later ones share their numbers.
const POSITIONS: usize = 16;
/// Heads of the layer that are looked at.
const HEADS: usize = 8;

/// What residuals are predicted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dependence {
    /// Tokens, each in its place.
    Position,
    /// Squares and products of the query and the means of tokens.
    Products,
    /// Random ReLUs of the query and the mean token.
    Query,
    /// Maxima, norms and means of functions of tokens.
    Tokens,
    /// Powers of the layer's own outputs, and their norm.
    Outputs,
    /// The layer's own heads in other ways: each position for itself, ReLU attention, hard attention, a second layer.
    Heads,
    /// Random other heads: softmax, ReLU, hard, causal.
    OtherHeads,
    /// Copies of one input, whose residuals have something in common.
    Copies,
    /// A student with another head.
    WiderStudent,
}

impl Dependence {
    /// All families.
    pub(super) const FAMILIES: [Self; 7] =
        [Self::Position, Self::Products, Self::Query, Self::Tokens, Self::Outputs, Self::Heads, Self::OtherHeads];
}

/// One sequence as the families see it.
pub(super) struct Sequence<'a> {
    pub k: usize,
    /// `k × d`, white.
    pub z: Vec<f64>,
    /// `k × d`, as it is.
    pub x: &'a [f64],
    /// What the layer makes of it, `k × d_out`, in units of its size.
    pub f: Vec<f64>,
}

/// Attention of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Softmax,
    Relu,
    Hard,
    Causal,
}

const KINDS: [Kind; 4] = [Kind::Softmax, Kind::Relu, Kind::Hard, Kind::Causal];

/// White tokens and random directions.
pub(super) struct Dictionary {
    d: usize,
    d_out: usize,
    /// `x ↦ (x − mean) T`.
    mean: Vec<f64>,
    white: Mat<f64>,
    /// Random directions of white tokens, `d × w`; none if all are taken.
    sketch: Option<Vec<f64>>,
    /// The same for outputs.
    out_sketch: Option<Vec<f64>>,
    w: usize,
    w_out: usize,
    /// Weights and thresholds of random ReLUs of `[z_a, mean]`, and of single tokens.
    query: Vec<Vec<f64>>,
    token: Vec<Vec<f64>>,
    /// `w × w`.
    thetas: Vec<Vec<f64>>,
    /// The layer's own: `Θ`, `c`.
    own: Vec<(Mat<f64>, Option<Vec<f64>>)>,
    mask: Mask,
    scale: f64,
}

fn normals(n: usize, scale: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..n).map(|_| scale * rng.sample::<f64, _>(StandardNormal)).collect()
}

fn directions(d: usize, w: usize, rng: &mut ChaCha8Rng) -> Option<Vec<f64>> {
    (w < d).then(|| normals(d * w, 1.0 / (d as f64).sqrt(), rng))
}

/// `z M`, `M` row-major.
fn times(z: &[f64], m: &[f64], cols: usize) -> Vec<f64> {
    let mut out = vec![0.0; cols];
    for (z, row) in z.iter().zip(m.chunks_exact(cols)) {
        out.iter_mut().zip(row).for_each(|(o, m)| *o += z * m);
    }
    out
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The mean of the first `n` tokens.
fn mean(z: &[f64], d: usize, n: usize) -> Vec<f64> {
    let mut mean = vec![0.0; d];
    for token in z.chunks_exact(d).take(n) {
        mean.iter_mut().zip(token).for_each(|(m, z)| *m += z / n as f64);
    }
    mean
}

impl Dictionary {
    /// For a layer, and inputs like these.
    pub(super) fn new(layer: &AttentionLayer, x: &[f64], scale: f64, rng: &mut ChaCha8Rng) -> Option<Self> {
        let (d, d_out) = (layer.d(), layer.d_out());
        let rows = x.len() / d;
        let mean = mean(x, d, rows);
        let mut moment = Mat::zeros(d, d);
        let x = faer::MatRef::from_row_major_slice(x, rows, d);
        crate::linalg::symmetric::product(moment.as_mut(), false, 1.0 / rows as f64, x.transpose(), x);
        for i in 0..d {
            for j in 0..d {
                moment[(i, j)] -= mean[i] * mean[j];
            }
        }
        let (values, u) = symmetric_eigen(moment.as_ref()).filter(|(values, _)| values.iter().all(|v| v.is_finite()))?;
        let largest = values.iter().copied().fold(0.0, f64::max);
        let root = |v: f64| if v > 1e-10 * largest { 1.0 / v.sqrt() } else { 0.0 };
        let white = Mat::from_fn(d, d, |i, j| u[(i, j)] * root(values[j])) * u.transpose();
        let (w, w_out) = (d.min(WIDTH), d_out.min(WIDTH));
        let (sketch, out_sketch) = (directions(d, w, rng), directions(d_out, w_out, rng));
        let relus = |inputs: usize, n: usize, rng: &mut ChaCha8Rng| -> Vec<Vec<f64>> {
            // The last number is the threshold.
            (0..n).map(|_| normals(inputs + 1, (1.0 / inputs as f64).sqrt(), rng)).collect()
        };
        let (query, token) = (relus(3 * w, NUMBERS, rng), relus(w, NUMBERS / 4, rng));
        let heads = (NUMBERS / (KINDS.len() * w)).max(4);
        let thetas = (0..heads).map(|i| normals(w * w, [1.0, 2.0, 4.0, 8.0][i % 4] / w as f64, rng)).collect();
        let own = layer.heads().iter().take(HEADS).map(|head| (head.theta.to_dense(), head.key_bias.clone())).collect();
        Some(Self { d, d_out, mean, white, sketch, out_sketch, w, w_out, query, token, thetas, own, mask: layer.mask(), scale })
    }

    /// A sequence, white, with what the layer makes of it.
    pub(super) fn sequence<'a>(&self, x: &'a [f64], f: &[f64]) -> Sequence<'a> {
        let k = x.len() / self.d;
        let mut z = Vec::with_capacity(x.len());
        for token in x.chunks_exact(self.d) {
            let centred: Vec<f64> = token.iter().zip(&self.mean).map(|(x, m)| x - m).collect();
            z.extend((0..self.d).map(|j| (0..self.d).map(|i| centred[i] * self.white[(i, j)]).sum::<f64>()));
        }
        Sequence { k, z, x, f: f.iter().map(|f| f / self.scale).collect() }
    }

    fn narrow(&self, z: &[f64]) -> Vec<f64> {
        self.sketch.as_ref().map_or_else(|| z.to_vec(), |m| times(z, m, self.w))
    }

    fn narrow_out(&self, f: &[f64]) -> Vec<f64> {
        self.out_sketch.as_ref().map_or_else(|| f.to_vec(), |m| times(f, m, self.w_out))
    }

    /// The numbers of a family for every query of a sequence, one after the other, and a one.
    pub(super) fn features(&self, family: Dependence, sequence: &Sequence<'_>) -> Vec<Vec<f64>> {
        let Sequence { k, z, f, .. } = sequence;
        let (k, d, w) = (*k, self.d, self.w);
        let query = |a: usize| &z[a * d..(a + 1) * d];
        let narrow: Vec<Vec<f64>> = (0..k).map(|b| self.narrow(query(b))).collect();
        let flat = narrow.concat();
        let all = mean(&flat, w, k);
        let mut rows: Vec<Vec<f64>> = (0..k).map(|_| vec![1.0]).collect();
        let at = |a: usize, own: &[f64], row: &mut Vec<f64>| {
            let (place, places) = (a.min(POSITIONS - 1), k.min(POSITIONS));
            for other in 0..places {
                row.extend(own.iter().map(|v| if other == place { *v } else { 0.0 }));
            }
        };
        match family {
            Dependence::Position => {
                for (a, row) in rows.iter_mut().enumerate() {
                    row.extend(query(a));
                    row.extend(mean(z, d, k));
                    let mut own = vec![1.0];
                    if k * k * w <= NUMBERS {
                        own.extend(&flat);
                    } else {
                        own.extend(&narrow[a]);
                        own.extend(&all);
                        own.extend(mean(&flat, w, a + 1));
                    }
                    at(a, &own, row);
                }
            }
            Dependence::Products => {
                let mut square = vec![0.0; w * w];
                for token in &narrow {
                    for i in 0..w {
                        (0..w).for_each(|j| square[i * w + j] += token[i] * token[j] / k as f64);
                    }
                }
                for (row, own) in rows.iter_mut().zip(&narrow) {
                    row.extend(own.iter().chain(&all));
                    for i in 0..w {
                        row.extend((0..=i).map(|j| own[i] * own[j]));
                        row.extend((0..=i).map(|j| all[i] * all[j]));
                        row.extend((0..=i).map(|j| square[i * w + j]));
                        row.extend((0..w).map(|j| own[i] * all[j]));
                    }
                }
            }
            Dependence::Query => {
                for (a, row) in rows.iter_mut().enumerate() {
                    let before = mean(&flat, w, a + 1);
                    let input = [&narrow[a][..], &all, &before, &[1.0]].concat();
                    row.extend(narrow[a].iter().chain(&all));
                    row.extend(self.query.iter().map(|weights| dot(weights, &input).max(0.0)));
                }
            }
            Dependence::Tokens => {
                let norm = |z: &[f64]| dot(z, z).sqrt();
                let mut common = vec![0.0; 5 * w + 2 * self.token.len() + 1];
                let (extremes, rest) = common.split_at_mut(2 * w);
                let (unit, rest) = rest.split_at_mut(w);
                let (size, rest) = rest.split_at_mut(w);
                let (cube, rest) = rest.split_at_mut(w);
                let (pooled, rest) = rest.split_at_mut(self.token.len());
                let (largest, norms) = rest.split_at_mut(self.token.len());
                extremes.fill(f64::NEG_INFINITY);
                for (b, token) in narrow.iter().enumerate() {
                    for i in 0..w {
                        extremes[i] = extremes[i].max(token[i]);
                        extremes[w + i] = extremes[w + i].max(-token[i]);
                        unit[i] += token[i] / norm(query(b)).max(1e-9) / k as f64;
                        size[i] += token[i].abs() / k as f64;
                        cube[i] += token[i].powi(3) / k as f64;
                    }
                    let input = [&token[..], &[1.0]].concat();
                    for (i, weights) in self.token.iter().enumerate() {
                        let relu = dot(weights, &input).max(0.0);
                        pooled[i] += relu / k as f64;
                        largest[i] = largest[i].max(relu);
                    }
                    norms[0] += norm(query(b)) / k as f64;
                }
                for (a, row) in rows.iter_mut().enumerate() {
                    let (own, size) = (&narrow[a], norm(query(a)));
                    row.extend(own.iter().map(|v| v / size.max(1e-9)));
                    row.extend(own.iter().chain(&all));
                    row.extend([size, norm(&all)]);
                    row.extend(&common);
                }
            }
            Dependence::Outputs => {
                let narrow: Vec<Vec<f64>> = f.chunks_exact(self.d_out).map(|f| self.narrow_out(f)).collect();
                let all = mean(&narrow.concat(), self.w_out, k);
                for (a, row) in rows.iter_mut().enumerate() {
                    let own = &narrow[a];
                    let size = dot(own, own).sqrt();
                    let centre = own.iter().sum::<f64>() / own.len() as f64;
                    let spread = own.iter().map(|v| (v - centre).powi(2)).sum::<f64>().sqrt();
                    row.extend(own.iter().chain(&all));
                    row.extend([size, spread, centre]);
                    for (i, v) in own.iter().enumerate() {
                        row.extend((0..=i).map(|j| v * own[j]));
                        row.extend([v.powi(3), v.abs(), v.tanh(), (2.0 * v).sin(), v * size, v / size.max(1e-3)]);
                        row.extend([v * spread, v * size * size, (v - centre) / spread.max(1e-3)]);
                    }
                    at(a, own, row);
                }
            }
            Dependence::Heads => {
                let budget = NUMBERS / self.own.len().max(1);
                for (theta, bias) in &self.own {
                    let logits = self.own_logits(sequence.x, theta, bias.as_deref());
                    for (a, row) in rows.iter_mut().enumerate() {
                        let seen = if self.mask == Mask::Causal { a + 1 } else { k };
                        let own = &logits[a * k..(a + 1) * k];
                        let h = pool(Kind::Softmax, own, seen, &flat, w);
                        row.extend(&h);
                        let first = row.len();
                        for kind in [Kind::Relu, Kind::Hard] {
                            row.extend(pool(kind, own, seen, &flat, w));
                        }
                        let p = weights(Kind::Softmax, own, seen);
                        let sharper: Vec<f64> = p.iter().map(|p| p * p).collect();
                        row.extend(mix(&sharper, &flat, w));
                        row.push(p.iter().map(|p| p * p.max(1e-12).ln()).sum());
                        // What a second layer would see.
                        let mut second = vec![0.0; self.d_out];
                        for (p, f) in p.iter().zip(f.chunks_exact(self.d_out)) {
                            second.iter_mut().zip(f).for_each(|(s, f)| *s += p * f);
                        }
                        row.extend(self.narrow_out(&second));
                        row.extend(h.iter().map(|v| v * v));
                        for i in 0..w {
                            row.extend((0..i).map(|j| h[i] * h[j]).take(if budget > 60 { w } else { 0 }));
                        }
                        if row.len() - first < budget.max(40) {
                            at(a, &h, row);
                        }
                    }
                }
            }
            Dependence::OtherHeads => {
                for (i, theta) in self.thetas.iter().enumerate() {
                    for (a, row) in rows.iter_mut().enumerate() {
                        let turned = times(&narrow[a], theta, w);
                        let logits: Vec<f64> = narrow.iter().map(|token| dot(&turned, token)).collect();
                        // Sharp ones are not also sharpest.
                        for kind in KINDS.into_iter().filter(|kind| i % 2 == 0 || *kind != Kind::Hard) {
                            let seen = if kind == Kind::Causal { a + 1 } else { k };
                            row.extend(pool(kind, &logits, seen, &flat, w));
                        }
                    }
                }
            }
            Dependence::Copies | Dependence::WiderStudent => {}
        }
        rows
    }

    /// `ℓ_ab` of a head of the layer.
    fn own_logits(&self, x: &[f64], theta: &Mat<f64>, bias: Option<&[f64]>) -> Vec<f64> {
        let (d, k) = (self.d, x.len() / self.d);
        let mut logits = Vec::with_capacity(k * k);
        for query in x.chunks_exact(d) {
            let mut turned: Vec<f64> = (0..d).map(|j| (0..d).map(|i| query[i] * theta[(i, j)]).sum()).collect();
            if let Some(bias) = bias {
                turned.iter_mut().zip(bias).for_each(|(t, c)| *t += c);
            }
            logits.extend(x.chunks_exact(d).map(|key| dot(&turned, key)));
        }
        logits
    }
}

/// Attention of the first `seen` tokens.
fn weights(kind: Kind, logits: &[f64], seen: usize) -> Vec<f64> {
    let logits = &logits[..seen];
    match kind {
        Kind::Softmax | Kind::Causal => {
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let p: Vec<f64> = logits.iter().map(|l| (l - most).exp()).collect();
            let sum: f64 = p.iter().sum();
            p.into_iter().map(|p| p / sum).collect()
        }
        Kind::Relu => logits.iter().map(|l| l.max(0.0) / seen as f64).collect(),
        Kind::Hard => {
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let first = logits.iter().position(|l| *l >= most);
            (0..seen).map(|b| if Some(b) == first { 1.0 } else { 0.0 }).collect()
        }
    }
}

fn mix(p: &[f64], tokens: &[f64], w: usize) -> Vec<f64> {
    let mut sum = vec![0.0; w];
    for (p, token) in p.iter().zip(tokens.chunks_exact(w)) {
        sum.iter_mut().zip(token).for_each(|(s, z)| *s += p * z);
    }
    sum
}

fn pool(kind: Kind, logits: &[f64], seen: usize, tokens: &[f64], w: usize) -> Vec<f64> {
    mix(&weights(kind, logits, seen), tokens, w)
}

/// Functions that no layer is, to see whether they would be noticed.
pub(super) struct Plant {
    kind: usize,
    theta: Vec<f64>,
    other: Vec<f64>,
    hidden: Vec<Vec<f64>>,
    values: Vec<f64>,
    more: Vec<f64>,
}

impl Plant {
    /// Kinds there are.
    pub(super) const KINDS: usize = 8;

    /// A random one of a kind, with `outputs` numbers a query.
    pub(super) fn new(kind: usize, dictionary: &Dictionary, k: usize, outputs: usize, rng: &mut ChaCha8Rng) -> Self {
        let w = dictionary.w;
        let norm = [2.0, 6.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0][kind % Self::KINDS];
        Self {
            kind: kind % Self::KINDS,
            theta: normals(w * w, norm / w as f64, rng),
            other: normals(w * w, norm / w as f64, rng),
            hidden: (0..2 * w).map(|_| normals(2 * w + 1, (1.0 / w as f64).sqrt(), rng)).collect(),
            values: normals(2 * w * outputs, 1.0, rng),
            more: normals(k.min(POSITIONS) * w * outputs, 1.0, rng),
        }
    }

    /// Its outputs, query by query.
    pub(super) fn outputs(&self, dictionary: &Dictionary, sequence: &Sequence<'_>, outputs: usize) -> Vec<f64> {
        let (k, d, w) = (sequence.k, dictionary.d, dictionary.w);
        let tokens: Vec<Vec<f64>> = (0..k).map(|a| dictionary.narrow(&sequence.z[a * d..(a + 1) * d])).collect();
        let flat = tokens.concat();
        let all = mean(&flat, w, k);
        let mut out = Vec::with_capacity(k * outputs);
        for (a, own) in tokens.iter().enumerate() {
            let attend = |theta: &[f64], kind: Kind, seen: usize| {
                let turned = times(own, theta, w);
                let logits: Vec<f64> = tokens.iter().map(|token| dot(&turned, token)).collect();
                pool(kind, &logits, seen, &flat, w)
            };
            let values = &self.values[..w * outputs];
            out.extend(match self.kind {
                // A head that is missing, a sharp one, ReLU attention, causal attention.
                0 | 1 => times(&attend(&self.theta, Kind::Softmax, k), values, outputs),
                2 => times(&attend(&self.theta, Kind::Relu, k), values, outputs),
                3 => times(&attend(&self.theta, Kind::Causal, a + 1), values, outputs),
                // Values that depend on the position of the query.
                4 => {
                    let place = a.min(POSITIONS - 1) * w * outputs;
                    times(own, &self.more[place..place + w * outputs], outputs)
                }
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
            });
        }
        out
    }
}
