//! Functions of the inputs that residuals are predicted by.
//!
//! Every family is a few hundred numbers of a query `x_a` and its sequence. Tokens enter it as `z`, white up to rounding; where there are more than
//! [`WIDTH`] directions, so many random ones of them stand for all in everything that is not linear.

use crate::layer::{AttentionLayer, Mask};
use crate::linalg::symmetric::product;
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
    /// Random ReLUs of the query, the mean token and the mean of the tokens before.
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
    /// A head that was learned of other residuals.
    AnotherHead,
    /// Their size, not they themselves: it is larger where attention is unsure.
    Doubt,
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

/// A sequence in the directions that are looked at.
struct Seen<'a> {
    sequence: &'a Sequence<'a>,
    queries: &'a [usize],
    tokens: Vec<Vec<f64>>,
    /// The same, one behind the other.
    flat: Vec<f64>,
    /// Their mean.
    all: Vec<f64>,
}

impl Seen<'_> {
    /// The queries' own tokens.
    fn own(&self) -> impl Iterator<Item = &Vec<f64>> {
        self.queries.iter().map(|&a| &self.tokens[a])
    }
}

/// Numbers that every position has for itself.
fn placed(a: usize, k: usize, own: &[f64], row: &mut Vec<f64>) {
    let (place, places) = (a.min(POSITIONS - 1), k.min(POSITIONS));
    for other in 0..places {
        row.extend(own.iter().map(|v| if other == place { *v } else { 0.0 }));
    }
}

/// Attention of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Softmax,
    Relu,
    Hard,
    Causal,
}

const KINDS: [Kind; 4] = [Kind::Softmax, Kind::Relu, Kind::Hard, Kind::Causal];

/// White tokens and random directions.
pub(super) struct Dictionary {
    pub d: usize,
    d_out: usize,
    /// `x ↦ (x − mean) T`.
    mean: Vec<f64>,
    white: Mat<f64>,
    /// Random directions of white tokens, `d × w`; none if all are taken.
    sketch: Option<Vec<f64>>,
    /// The same for outputs.
    out_sketch: Option<Vec<f64>>,
    /// How many.
    pub w: usize,
    w_out: usize,
    /// Weights and thresholds of random ReLUs of `[z_a, mean, mean before]`, and of single tokens.
    query: Vec<Vec<f64>>,
    token: Vec<Vec<f64>>,
    /// `w × w`.
    thetas: Vec<Vec<f64>>,
    /// The layer's own: `Θ`, `c`.
    own: Vec<(Mat<f64>, Option<Vec<f64>>)>,
    mask: Mask,
    scale: f64,
}

pub(super) fn normals(n: usize, scale: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..n).map(|_| scale * rng.sample::<f64, _>(StandardNormal)).collect()
}

pub(super) fn directions(d: usize, w: usize, rng: &mut ChaCha8Rng) -> Option<Vec<f64>> {
    (w < d).then(|| normals(d * w, 1.0 / (d as f64).sqrt(), rng))
}

/// `z M`, `M` row-major.
pub(super) fn times(z: &[f64], m: &[f64], cols: usize) -> Vec<f64> {
    let mut out = vec![0.0; cols];
    for (z, row) in z.iter().zip(m.chunks_exact(cols)) {
        out.iter_mut().zip(row).for_each(|(o, m)| *o += z * m);
    }
    out
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The mean of the first `n` tokens.
pub(super) fn mean(z: &[f64], d: usize, n: usize) -> Vec<f64> {
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
        product(moment.as_mut(), false, 1.0 / rows as f64, x.transpose(), x);
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

    /// Sequences of `k` tokens, white, with what the layer makes of them.
    pub(super) fn sequences<'a>(&self, x: &'a [f64], f: &[f64], k: usize) -> Vec<Sequence<'a>> {
        let (d, rows) = (self.d, x.len() / self.d);
        let centred: Vec<f64> = x.chunks_exact(d).flat_map(|x| x.iter().zip(&self.mean).map(|(x, m)| x - m)).collect();
        let mut z = vec![0.0; x.len()];
        let out = faer::MatMut::from_row_major_slice_mut(&mut z, rows, d);
        product(out, false, 1.0, faer::MatRef::from_row_major_slice(&centred, rows, d), self.white.as_ref());
        let of = |((x, z), f): ((&'a [f64], &[f64]), &[f64])| Sequence {
            k,
            z: z.to_vec(),
            x,
            f: f.iter().map(|f| f / self.scale).collect(),
        };
        x.chunks_exact(k * d).zip(z.chunks_exact(k * d)).zip(f.chunks_exact(k * self.d_out)).map(of).collect()
    }

    /// A one and the tokens that the layer's own heads pool at some queries: of as many heads as have at most so many numbers.
    pub(super) fn pooled(&self, sequence: &Sequence<'_>, queries: &[usize], most: usize) -> Vec<Vec<f64>> {
        let Sequence { k, z, .. } = sequence;
        let mut rows: Vec<Vec<f64>> = queries.iter().map(|_| vec![1.0]).collect();
        for (theta, bias) in self.own.iter().take(most.saturating_sub(1) / self.d) {
            let logits = self.own_logits(sequence.x, theta, bias.as_deref(), queries);
            for ((row, own), &a) in rows.iter_mut().zip(logits.chunks_exact(*k)).zip(queries) {
                row.extend(pool(Kind::Softmax, own, self.seen(a, *k), z, self.d));
            }
        }
        rows
    }

    /// `log ‖F_a‖²` of some queries, outputs in units of their size.
    pub(super) fn sizes(&self, sequence: &Sequence<'_>, queries: &[usize]) -> Vec<f64> {
        let of = |&a: &usize| &sequence.f[a * self.d_out..(a + 1) * self.d_out];
        queries.iter().map(of).map(|f| dot(f, f).max(1e-12).ln()).collect()
    }

    /// A one and how unsure the layer's own heads are at some queries: weight and lead of the first key, entropy, and how far tokens are from the pooled
    /// one, and that from the first key's.
    pub(super) fn doubt(&self, sequence: &Sequence<'_>, queries: &[usize]) -> Vec<Vec<f64>> {
        let Sequence { k, z, .. } = sequence;
        let mut rows: Vec<Vec<f64>> = queries.iter().map(|_| vec![1.0]).collect();
        for (theta, bias) in &self.own {
            let logits = self.own_logits(sequence.x, theta, bias.as_deref(), queries);
            for ((row, own), &a) in rows.iter_mut().zip(logits.chunks_exact(*k)).zip(queries) {
                let keys = self.seen(a, *k);
                let (p, first) = (weights(Kind::Softmax, own, keys), weights(Kind::Hard, own, keys));
                let most = dot(&p, &first);
                let second = p.iter().zip(&first).filter(|(_, first)| **first < 0.5).map(|(p, _)| *p).fold(0.0, f64::max);
                let (pooled, leading) = (mix(&p, z, self.d), mix(&first, z, self.d));
                let away: f64 = pooled.iter().zip(&leading).map(|(p, l)| (p - l).powi(2)).sum();
                let square: f64 = p.iter().zip(z.chunks_exact(self.d)).map(|(p, z)| p * dot(z, z)).sum();
                let spread = (square - dot(&pooled, &pooled)).max(0.0);
                row.extend([most, second, (most / second.max(1e-12)).ln().min(20.0)]);
                row.push(p.iter().map(|p| -p * p.max(1e-12).ln()).sum());
                row.extend([away, away.max(1e-12).ln(), spread, spread.max(1e-12).ln()]);
            }
        }
        rows
    }

    /// Tokens that a query sees.
    fn seen(&self, a: usize, k: usize) -> usize {
        self.mask.seen(a, k).end
    }

    fn narrow(&self, z: &[f64]) -> Vec<f64> {
        self.sketch.as_ref().map_or_else(|| z.to_vec(), |m| times(z, m, self.w))
    }

    fn narrow_out(&self, f: &[f64]) -> Vec<f64> {
        self.out_sketch.as_ref().map_or_else(|| f.to_vec(), |m| times(f, m, self.w_out))
    }

    /// The numbers of a family for some queries of a sequence, one after the other, and a one.
    pub(super) fn features(&self, family: Dependence, sequence: &Sequence<'_>, queries: &[usize]) -> Vec<Vec<f64>> {
        let tokens: Vec<Vec<f64>> = sequence.z.chunks_exact(self.d).map(|z| self.narrow(z)).collect();
        let flat = tokens.concat();
        let all = mean(&flat, self.w, sequence.k);
        let seen = Seen { sequence, queries, tokens, flat, all };
        let mut rows: Vec<Vec<f64>> = queries.iter().map(|_| vec![1.0]).collect();
        match family {
            Dependence::Position => self.position(&seen, &mut rows),
            Dependence::Products => self.products(&seen, &mut rows),
            Dependence::Query => self.query(&seen, &mut rows),
            Dependence::Tokens => self.tokens(&seen, &mut rows),
            Dependence::Outputs => self.outputs(&seen, &mut rows),
            Dependence::Heads => self.heads(&seen, &mut rows),
            Dependence::OtherHeads => self.other_heads(&seen, &mut rows),
            Dependence::Copies | Dependence::AnotherHead | Dependence::Doubt => {}
        }
        rows
    }

    fn position(&self, seen: &Seen<'_>, rows: &mut [Vec<f64>]) {
        let (k, d, w) = (seen.sequence.k, self.d, self.w);
        let whole = mean(&seen.sequence.z, d, k);
        for (row, &a) in rows.iter_mut().zip(seen.queries) {
            row.extend(&seen.sequence.z[a * d..(a + 1) * d]);
            row.extend(&whole);
            let mut own = vec![1.0];
            if k * k * w <= NUMBERS {
                own.extend(&seen.flat);
            } else {
                own.extend(&seen.tokens[a]);
                own.extend(&seen.all);
                own.extend(mean(&seen.flat, w, a + 1));
            }
            placed(a, k, &own, row);
        }
    }

    fn products(&self, seen: &Seen<'_>, rows: &mut [Vec<f64>]) {
        let (w, all) = (self.w, &seen.all);
        let mut square = vec![0.0; w * w];
        for token in &seen.tokens {
            for i in 0..w {
                (0..w).for_each(|j| square[i * w + j] += token[i] * token[j] / seen.sequence.k as f64);
            }
        }
        for (row, own) in rows.iter_mut().zip(seen.own()) {
            row.extend(own.iter().chain(all));
            for i in 0..w {
                row.extend((0..=i).map(|j| own[i] * own[j]));
                row.extend((0..=i).map(|j| all[i] * all[j]));
                row.extend((0..=i).map(|j| square[i * w + j]));
                row.extend((0..w).map(|j| own[i] * all[j]));
            }
        }
    }

    fn query(&self, seen: &Seen<'_>, rows: &mut [Vec<f64>]) {
        for (row, &a) in rows.iter_mut().zip(seen.queries) {
            let own = &seen.tokens[a];
            let input = [&own[..], &seen.all, &mean(&seen.flat, self.w, a + 1), &[1.0]].concat();
            row.extend(own.iter().chain(&seen.all));
            row.extend(self.query.iter().map(|weights| dot(weights, &input).max(0.0)));
        }
    }

    fn tokens(&self, seen: &Seen<'_>, rows: &mut [Vec<f64>]) {
        let (k, d, w) = (seen.sequence.k as f64, self.d, self.w);
        let norms: Vec<f64> = seen.sequence.z.chunks_exact(d).map(|z| dot(z, z).sqrt()).collect();
        let (mut greatest, mut least) = (vec![f64::NEG_INFINITY; w], vec![f64::INFINITY; w]);
        let (mut unit, mut size, mut cube) = (vec![0.0; w], vec![0.0; w], vec![0.0; w]);
        let (mut pooled, mut largest) = (vec![0.0; self.token.len()], vec![0.0_f64; self.token.len()]);
        for (token, norm) in seen.tokens.iter().zip(&norms) {
            for (i, v) in token.iter().enumerate() {
                greatest[i] = greatest[i].max(*v);
                least[i] = least[i].min(*v);
                unit[i] += v / norm.max(1e-9) / k;
                size[i] += v.abs() / k;
                cube[i] += v.powi(3) / k;
            }
            let input = [&token[..], &[1.0]].concat();
            for (i, weights) in self.token.iter().enumerate() {
                let relu = dot(weights, &input).max(0.0);
                pooled[i] += relu / k;
                largest[i] = largest[i].max(relu);
            }
        }
        let common = [greatest, least, unit, size, cube, pooled, largest, vec![norms.iter().sum::<f64>() / k]].concat();
        for (row, &a) in rows.iter_mut().zip(seen.queries) {
            let own = &seen.tokens[a];
            row.extend(own.iter().map(|v| v / norms[a].max(1e-9)));
            row.extend(own.iter().chain(&seen.all));
            row.extend([norms[a], dot(&seen.all, &seen.all).sqrt()]);
            row.extend(&common);
        }
    }

    fn outputs(&self, seen: &Seen<'_>, rows: &mut [Vec<f64>]) {
        let narrow: Vec<Vec<f64>> = seen.sequence.f.chunks_exact(self.d_out).map(|f| self.narrow_out(f)).collect();
        let all = mean(&narrow.concat(), self.w_out, seen.sequence.k);
        for (row, &a) in rows.iter_mut().zip(seen.queries) {
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
            placed(a, seen.sequence.k, own, row);
        }
    }

    fn heads(&self, seen: &Seen<'_>, rows: &mut [Vec<f64>]) {
        let (k, w) = (seen.sequence.k, self.w);
        let most = NUMBERS / self.own.len().max(1);
        for (theta, bias) in &self.own {
            let logits = self.own_logits(seen.sequence.x, theta, bias.as_deref(), seen.queries);
            for ((row, own), &a) in rows.iter_mut().zip(logits.chunks_exact(k)).zip(seen.queries) {
                let keys = self.seen(a, k);
                let h = pool(Kind::Softmax, own, keys, &seen.flat, w);
                row.extend(&h);
                let first = row.len();
                for kind in [Kind::Relu, Kind::Hard] {
                    row.extend(pool(kind, own, keys, &seen.flat, w));
                }
                let p = weights(Kind::Softmax, own, keys);
                let sharper: Vec<f64> = p.iter().map(|p| p * p).collect();
                row.extend(mix(&sharper, &seen.flat, w));
                row.push(p.iter().map(|p| p * p.max(1e-12).ln()).sum());
                // What a second layer would see.
                row.extend(self.narrow_out(&mix(&p, &seen.sequence.f, self.d_out)));
                row.extend(h.iter().map(|v| v * v));
                for i in 0..w {
                    row.extend((0..i).map(|j| h[i] * h[j]).take(if most > 60 { w } else { 0 }));
                }
                if row.len() - first < most.max(40) {
                    placed(a, k, &h, row);
                }
            }
        }
    }

    fn other_heads(&self, seen: &Seen<'_>, rows: &mut [Vec<f64>]) {
        let (k, w) = (seen.sequence.k, self.w);
        for (i, theta) in self.thetas.iter().enumerate() {
            for (row, &a) in rows.iter_mut().zip(seen.queries) {
                let turned = times(&seen.tokens[a], theta, w);
                let logits: Vec<f64> = seen.tokens.iter().map(|token| dot(&turned, token)).collect();
                // The hard maximum does not depend on the scale: half of the heads are enough.
                for kind in KINDS.into_iter().filter(|kind| i % 2 == 0 || *kind != Kind::Hard) {
                    row.extend(pool(kind, &logits, if kind == Kind::Causal { a + 1 } else { k }, &seen.flat, w));
                }
            }
        }
    }

    /// `ℓ_ab` of a head of the layer, of some queries.
    fn own_logits(&self, x: &[f64], theta: &Mat<f64>, bias: Option<&[f64]>, queries: &[usize]) -> Vec<f64> {
        let d = self.d;
        let mut logits = Vec::with_capacity(queries.len() * x.len() / d);
        for &a in queries {
            let query = &x[a * d..(a + 1) * d];
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

pub(super) fn pool(kind: Kind, logits: &[f64], seen: usize, tokens: &[f64], w: usize) -> Vec<f64> {
    mix(&weights(kind, logits, seen), tokens, w)
}
