//! Certified agreement: rows where all heads attend alike, found without knowing the heads.
//!
//! Let `z_b = x_bᵀ Ŝ`. If every head gives weight q to token b, 1−q to token c and nothing to the others, then
//! `Y_a = q z_b + (1−q) z_c`. The *pair test* fits that: with `u = z_b − z_c`,
//!
//! ```text
//! q = ⟨Y_a − z_c, u⟩ / ‖u‖²,     ρ = Y_a − z_c − q u
//! ```
//!
//! Heads that disagree by `δq` leave `‖ρ‖ ≈ δq ‖u‖`, which is `δq / (q(1−q))` in the logits. A third token t with weight w leaves
//! `‖ρ‖ ≥ w r_t`, `r_t` the distance of `z_t` from the line through `z_b` and `z_c`, and shifts q by `w |s_t|`, `s_t` its coordinate along
//! that line: tokens that resemble b or c weaken the certificate. So the row says
//!
//! ```text
//! ⟨Θ_i, v⟩ = log(q/(1−q)) ± δ for every i,     v = x_a (x_b − x_c)ᵀ,
//! δ = ‖ρ‖ / (q(1−q)) · max(1/‖u‖, max_t (1 + |s_t|)/r_t)
//! ```
//!
//! and rows are ranked by `η = δ / ‖v‖_F`, the slab's half-width as a distance. Saturated rows (q near 0 or 1) say nothing about
//! the span and are left out; copies of a token share its weight, so their number enters the odds. Two tokens, not all k:
//! disagreement then has only m−1 dimensions, and a residual in `d_out − 1` dimensions certifies it whenever `m ≤ d_out`.
//!
//! **With separated projections.** Once estimates `Ŵ_i` of the single projections are at hand, the weights of the heads can be read
//! one by one from `Y_a − z_c = Σ_i Σ_{t≠c} p_it Ŵ_iᵀ(x_t − x_c)`: for all tokens if `m(k−1) ≤ d_out`, else for b and c alone, third tokens
//! being kept out by the residual. Then `δ = max_i |log(p_ib/p_ic) − mean|` is the disagreement itself rather than a bound on it.

use crate::data::Block;
use crate::linalg::lanes::{LANES, square_distances, vectorised};
use crate::linalg::product::apply_matrix;
use crate::linalg::{Aligned, Mat, frobenius, row_major, solve_spd};
use pulp::{Simd, WithSimd};

/// Rows where the lesser token has less weight than this are saturated: their log-odds are all noise.
const LEAST_WEIGHT: f64 = 0.04;

/// With separated projections: the largest residual, relative to `‖u‖` and the weight read, of a fit that counts as clean.
const CLEAN: f64 = 0.05;

/// A row on which all heads were seen to agree, as a constraint on the attention matrices.
#[derive(Clone, Debug)]
pub(crate) struct AgreeingRow {
    /// Half-width of the slab over `‖v‖`.
    pub eta: f64,
    /// Half-width of the slab, in logits.
    pub delta: f64,
    /// Centre of the slab, `log(q/(1−q))`.
    pub log_odds: f64,
    /// The query token.
    pub x_a: Vec<f64>,
    /// `x_b − x_c`.
    pub gap: Vec<f64>,
}

impl AgreeingRow {
    /// `vec(v)/‖v‖`, row by row, with `v = x_a (x_b − x_c)ᵀ`.
    pub fn direction(&self) -> Vec<f64> {
        let norm = self.norm();
        self.x_a.iter().flat_map(|a| self.gap.iter().map(move |g| a * g / norm)).collect()
    }

    /// `‖v‖_F = ‖x_a‖ ‖x_b − x_c‖`.
    pub fn norm(&self) -> f64 {
        let square = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
        (square(&self.x_a) * square(&self.gap)).sqrt()
    }

    /// A number that is the same for all rows with the same `v` up to sign: such rows say the same thing.
    pub fn key(&self) -> u64 {
        // v = x_a gapᵀ is unchanged when both factors change sign; −v is the same slab.
        let sign = |v: &[f64]| if v.iter().find(|x| x.abs() > 1e-12).is_some_and(|x| *x < 0.0) { -1.0 } else { 1.0 };
        let (s, t) = (sign(&self.x_a), sign(&self.gap));
        let numbers = self.x_a.iter().map(|x| s * x).chain(self.gap.iter().map(|x| t * x));
        numbers.fold(0xcbf2_9ce4_8422_2325, |hash, x| {
            // + 0.0 turns −0 into 0.
            let bits = (x as f32 + 0.0).to_bits();
            (hash ^ u64::from(bits)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
        })
    }
}

/// What the pair test knows: `Ŝ`, and how wide a slab may be.
#[derive(Clone, Debug)]
pub(crate) struct PairTest {
    s: Mat<f64>,
    s_t: Vec<f32>,
    /// Estimates of the single projections, if there are any.
    separated: Option<Vec<Mat<f64>>>,
    /// Largest half-width δ accepted.
    pub delta: f64,
    /// Largest η accepted.
    pub eta: f64,
}

impl PairTest {
    /// A test with the sum of projections `s`, for half-widths up to `delta` and relative half-widths up to `eta`.
    pub fn new(s: &Mat<f64>, delta: f64, eta: f64) -> Self {
        let s_t = row_major(s.transpose()).into_iter().map(|v| v as f32).collect();
        Self { s: s.clone(), s_t, separated: None, delta, eta }
    }

    /// A test with separated projections `w`.
    pub fn separated(w: &[Mat<f64>], delta: f64) -> Self {
        let mut s = Mat::zeros(w[0].nrows(), w[0].ncols());
        w.iter().for_each(|w| s += w);
        Self { separated: Some(w.to_vec()), ..Self::new(&s, delta, f64::INFINITY) }
    }

    /// Whether single projections are known.
    pub fn is_separated(&self) -> bool {
        self.separated.is_some()
    }

    /// All rows of the block that pass.
    pub fn rows(&self, block: &Block<f32>) -> Vec<AgreeingRow> {
        let mut found = Vec::new();
        for candidate in vectorised(Screen { block, test: self }) {
            if candidate.example < block.len() {
                let row = self.row(block, &candidate);
                for b in 0..row.x.len() {
                    found.extend((0..b).filter_map(|c| self.exact(&row, b, c)));
                }
            }
        }
        found
    }

    /// The row in double precision.
    fn row(&self, block: &Block<f32>, at: &Candidate) -> Row {
        let x: Vec<Vec<f64>> = (0..block.shape().k).map(|t| block.token(at.example, t)).collect();
        let z = x.iter().map(|x| self.project(x)).collect();
        Row { x, z, y: block.output(at.example, at.a), a: at.a }
    }

    /// The test in double precision for one pair.
    fn exact(&self, row: &Row, b: usize, c: usize) -> Option<AgreeingRow> {
        let Row { x, z, y, a } = row;
        // Seen from z_c: the other end and the output.
        let (u, target) = (difference(&z[b], &z[c]), difference(y, &z[c]));
        let u_square = dot(&u, &u);
        let q = dot(&target, &u) / u_square;
        if !(q > LEAST_WEIGHT && q < 1.0 - LEAST_WEIGHT) {
            return None;
        }
        let rho = distance_to_line(&target, &u, q) / (q * (1.0 - q));
        if rho > self.delta * u_square.sqrt() {
            return None;
        }
        let same = |t: usize, s: usize| x[t].iter().zip(&x[s]).all(|(a, b)| (a - b).abs() < 1e-9);
        let third = || (0..x.len()).filter(|&t| !same(t, b) && !same(t, c));
        let gap = difference(&x[b], &x[c]);
        let (odds, delta) = match &self.separated {
            None => {
                let weakest = third().fold(1.0 / u_square.sqrt(), |worst, t| {
                    let z = difference(&z[t], &z[c]);
                    let along = dot(&z, &u) / u_square;
                    worst.max((1.0 + along.abs()) / distance_to_line(&z, &u, along))
                });
                ((q / (1.0 - q)).ln(), rho * weakest)
            }
            Some(w) => {
                let room = w.len() * (1 + third().count()) <= y.len();
                let others: Vec<Vec<f64>> = third().filter(|_| room).map(|t| difference(&x[t], &x[c])).collect();
                head_by_head(w, &gap, &others, &target, u_square.sqrt())?
            }
        };
        // Equal tokens share their weight: with n_b copies of b and n_c of c the odds are e^ℓ n_b/n_c.
        let copies = |s: usize| (0..x.len()).filter(|&t| same(t, s)).count() as f64;
        let log_odds = odds + (copies(c) / copies(b)).ln();
        let mut found = AgreeingRow { eta: 0.0, delta, log_odds, x_a: x[*a].clone(), gap };
        found.eta = delta / found.norm();
        (delta <= self.delta && found.eta <= self.eta).then_some(found)
    }

    /// `xᵀ Ŝ`.
    fn project(&self, x: &[f64]) -> Vec<f64> {
        (0..self.s.ncols()).map(|o| x.iter().enumerate().map(|(e, x)| x * self.s[(e, o)]).sum()).collect()
    }
}

/// One (example, query) row: its tokens, their images `z = xᵀŜ`, the output and the query's place.
struct Row {
    x: Vec<Vec<f64>>,
    z: Vec<Vec<f64>>,
    y: Vec<f64>,
    a: usize,
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `‖z − s u‖`.
fn distance_to_line(z: &[f64], u: &[f64], s: f64) -> f64 {
    z.iter().zip(u).map(|(z, u)| (z - s * u).powi(2)).sum::<f64>().sqrt()
}

/// Mean of `log(p_ib/p_ic)` over the heads and the largest deviation from it, from least squares of
/// `Σ_i (p_ib gap + Σ_t p_it other_t)ᵀ Ŵ_i ≈ target`; `None` if the fit is not clean or some head hardly looks at b or c.
fn head_by_head(w: &[Mat<f64>], gap: &[f64], others: &[Vec<f64>], target: &[f64], scale: f64) -> Option<(f64, f64)> {
    let (m, d_out, tokens) = (w.len(), target.len(), 1 + others.len());
    // Column i·tokens is the gap seen by head i, those after it the third tokens.
    let seen = |i: usize, t: usize, o: usize| {
        let x = if t == 0 { gap } else { &others[t - 1] };
        x.iter().enumerate().map(|(e, x)| x * w[i][(e, o)]).sum::<f64>()
    };
    let g = Mat::from_fn(d_out, m * tokens, |o, column| seen(column / tokens, column % tokens, o));
    let y = Mat::from_fn(d_out, 1, |o, _| target[o]);
    let p = solve_spd((g.transpose() * &g).as_ref(), (g.transpose() * &y).as_ref());
    let rho = frobenius((&y - &g * &p).as_ref());
    let mut odds = Vec::with_capacity(m);
    for i in 0..m {
        let p_b = p[(i * tokens, 0)];
        let p_c = 1.0 - (0..tokens).map(|t| p[(i * tokens + t, 0)]).sum::<f64>();
        // What is left of the output must be far below the weights that are read.
        if !(p_b.min(p_c) > LEAST_WEIGHT / 2.0 && rho < CLEAN * scale * p_b.min(p_c)) {
            return None;
        }
        odds.push((p_b / p_c).ln());
    }
    let mean = odds.iter().sum::<f64>() / m as f64;
    Some((mean, odds.iter().map(|l| (l - mean).abs()).fold(1e-6, f64::max)))
}

/// A row with some pair that may pass.
struct Candidate {
    example: usize,
    a: usize,
}

/// The pair test on all rows and pairs of a block, in single precision, from squared distances alone:
/// with `r_b = ‖Y_a − z_b‖²` and `D_bc = ‖z_b − z_c‖²`, `q = (r_c − r_b + D_bc)/2D_bc`, `‖ρ‖² = r_c − q² D_bc`, and a third token has
/// `s_t = (D_tc − D_tb + D_bc)/2D_bc`, `r_t² = D_tc − s_t² D_bc`. The factor of `‖ρ‖` that third tokens decide, and `‖x_b − x_c‖`,
/// do not depend on the query: they are found once a sequence.
struct Screen<'a> {
    block: &'a Block<f32>,
    test: &'a PairTest,
}

impl WithSimd for Screen<'_> {
    type Output = Vec<Candidate>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<Candidate> {
        let shape = self.block.shape();
        let (k, d, d_out) = (shape.k, shape.d, shape.d_out);
        let width = S::F32_LANES;
        let splat = |v: f64| simd.splat_f32s(v as f32);
        let (zero, one, half) = (splat(0.0), splat(1.0), splat(0.5));
        // Five per cent of room for rounding; the exact test decides.
        let delta_square = splat((1.05 * self.test.delta).powi(2));
        let eta_square = splat((1.05 * self.test.eta).powi(2).min(1e30));
        let least_spread = splat(LEAST_WEIGHT * (1.0 - LEAST_WEIGHT));
        let thirds = !self.test.is_separated();
        let mut z = Aligned::<f32>::zeros(k * d_out * LANES);
        let mut z_distance = Aligned::<f32>::zeros(k * k * LANES);
        let mut x_distance = Aligned::<f32>::zeros(k * k * LANES);
        let mut weakest = Aligned::<f32>::zeros(k * k * LANES);
        let mut r = Aligned::<f32>::zeros(k * LANES);
        let origin = Aligned::<f32>::zeros(d * LANES);
        let mut x_square = [0.0f32; LANES];
        let mut found = Vec::new();
        for (panel, (x, y)) in self.block.panels().enumerate() {
            apply_matrix(simd, &self.test.s_t, d_out, d, None, k, x, &mut z);
            let token = |t: usize, size: usize| t * size * LANES..(t + 1) * size * LANES;
            for b in 0..k {
                let row = b * k * LANES..(b + 1) * k * LANES;
                square_distances(simd, &x[token(b, d)], x, k, &mut x_distance[row.clone()]);
                square_distances(simd, &z[token(b, d_out)], &z, k, &mut z_distance[row]);
            }
            let lanes = |buffer: &[f32], i: usize, j: usize, chunk: usize| {
                S::as_simd_f32s(&buffer[(i * k + j) * LANES..(i * k + j + 1) * LANES]).0[chunk]
            };
            for b in 0..k {
                for c in 0..b {
                    for chunk in 0..LANES / width {
                        let dist = lanes(&z_distance, b, c, chunk);
                        let mut factor = simd.div_f32s(one, dist);
                        for t in (0..k).filter(|&t| thirds && t != b && t != c) {
                            let (to_b, to_c) = (lanes(&z_distance, t, b, chunk), lanes(&z_distance, t, c, chunk));
                            let along = simd.mul_f32s(half, simd.add_f32s(simd.sub_f32s(to_c, to_b), dist));
                            let s = simd.div_f32s(along, dist);
                            let r2 = simd.sub_f32s(to_c, simd.mul_f32s(s, along));
                            let reach = simd.add_f32s(one, simd.max_f32s(s, simd.sub_f32s(zero, s)));
                            let this = simd.div_f32s(simd.mul_f32s(reach, reach), r2);
                            // A copy of b or c (r = 0 up to rounding) is no third token.
                            let apart = simd.less_than_f32s(simd.mul_f32s(splat(1e-4), dist), r2);
                            factor = simd.select_f32s(apart, simd.max_f32s(factor, this), factor);
                        }
                        let at = (b * k + c) * LANES;
                        S::as_mut_simd_f32s(&mut weakest[at..at + LANES]).0[chunk] = factor;
                    }
                }
            }
            for a in 0..k {
                square_distances(simd, &origin, &x[token(a, d)], 1, &mut x_square);
                square_distances(simd, &y[token(a, d_out)], &z, k, &mut r);
                for chunk in 0..LANES / width {
                    let eta = simd.mul_f32s(eta_square, S::as_simd_f32s(&x_square).0[chunk]);
                    // Negative where some pair passes: (‖ρ‖² − slack) weakest² − min(δ, η‖v‖)² (q(1−q))².
                    let mut best = one;
                    for b in 0..k {
                        for c in 0..b {
                            let dist = lanes(&z_distance, b, c, chunk);
                            let (r_b, r_c) = (lanes(&r, 0, b, chunk), lanes(&r, 0, c, chunk));
                            let along = simd.mul_f32s(half, simd.add_f32s(simd.sub_f32s(r_c, r_b), dist));
                            let q = simd.div_f32s(along, dist);
                            let rho = simd.sub_f32s(r_c, simd.mul_f32s(q, along));
                            let spread = simd.mul_f32s(q, simd.sub_f32s(one, q));
                            let narrow = simd.mul_f32s(eta, lanes(&x_distance, b, c, chunk));
                            let limit = simd.mul_f32s(simd.min_f32s(delta_square, narrow), simd.mul_f32s(spread, spread));
                            // The distances carry rounding errors of about 10⁻⁶.
                            let slack = simd.mul_f32s(splat(2e-6), simd.add_f32s(r_c, dist));
                            let size = simd.mul_f32s(simd.sub_f32s(rho, slack), lanes(&weakest, b, c, chunk));
                            let excess = simd.sub_f32s(size, limit);
                            let passes = simd.less_than_f32s(least_spread, spread);
                            best = simd.min_f32s(best, simd.select_f32s(passes, excess, one));
                        }
                    }
                    if simd.reduce_min_f32s(best) < 0.0 {
                        let mut lanes = [0.0f32; LANES];
                        simd.partial_store_f32s(&mut lanes[..width], best);
                        for (l, v) in lanes[..width].iter().enumerate() {
                            if *v < 0.0 {
                                found.push(Candidate { example: panel * LANES + chunk * width + l, a });
                            }
                        }
                    }
                }
            }
        }
        found
    }
}
