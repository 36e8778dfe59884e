//! Certified agreement: rows where all heads attend alike, found without knowing the heads.
//!
//! Let `z_b = x_bᵀ Ŝ`. If every head gives weight q to token b, 1−q to token c and nothing to the others, then
//! `Y_a = q z_b + (1−q) z_c`. The *pair test* fits that: with `u = z_b − z_c`,
//!
//! ```text
//! q = ⟨Y_a − z_c, u⟩ / ‖u‖²,     ρ = Y_a − z_c − q u
//! ```
//!
//! Heads that disagree by `δq` leave `‖ρ‖ ≈ δq ‖u‖`, which is `δq / (q(1−q))` in the logits. So the row says
//!
//! ```text
//! ⟨Θ_i, v⟩ = log(q/(1−q)) ± δ for every i,     v = x_a (x_b − x_c)ᵀ,     δ = ‖ρ‖ / (‖u‖ q (1−q))
//! ```
//!
//! and rows are ranked by `η = δ / ‖v‖_F`, the slab's half-width as a distance. Saturated rows (q near 0 or 1) and coincident
//! tokens (u = 0) rank themselves out. Two tokens, not all k: disagreement then has only m−1 dimensions, and a residual in
//! `d_out − 1` dimensions certifies it whenever `m ≤ d_out`.

use crate::data::Block;
use crate::linalg::lanes::{LANES, apply_matrix, vectorised};
use crate::linalg::{Mat, row_major};
use pulp::{Simd, WithSimd};

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
    /// Largest half-width δ accepted.
    pub delta: f64,
    /// Largest η accepted.
    pub eta: f64,
}

impl PairTest {
    /// A test with the sum of projections `s`, for half-widths up to `delta` and relative half-widths up to `eta`.
    pub fn new(s: &Mat<f64>, delta: f64, eta: f64) -> Self {
        let s_t = row_major(s.transpose()).into_iter().map(|v| v as f32).collect();
        Self { s: s.clone(), s_t, delta, eta }
    }

    /// All rows of the block that pass.
    pub fn rows(&self, block: &Block<f32>) -> Vec<AgreeingRow> {
        let k = block.shape().k;
        let mut found = Vec::new();
        for candidate in vectorised(Screen { block, s_t: &self.s_t, delta: self.delta as f32 * 1.05 }) {
            if candidate.example < block.len() {
                for b in 0..k {
                    for c in 0..b {
                        found.extend(self.exact(block, &candidate, b, c));
                    }
                }
            }
        }
        found
    }

    /// The test in double precision for one pair.
    fn exact(&self, block: &Block<f32>, row: &Candidate, b: usize, c: usize) -> Option<AgreeingRow> {
        let token = |t: usize| block.token(row.example, t);
        let (x_b, x_c, y) = (token(b), token(c), block.output(row.example, row.a));
        let (mut u_square, mut y_u) = (0.0, 0.0);
        let (mut u, mut g) = (Vec::with_capacity(y.len()), Vec::with_capacity(y.len()));
        for (o, y) in y.iter().enumerate() {
            let project = |x: &[f64]| x.iter().enumerate().map(|(e, x)| x * self.s[(e, o)]).sum::<f64>();
            let (z_b, z_c) = (project(&x_b), project(&x_c));
            u.push(z_b - z_c);
            g.push(y - z_c);
            u_square += (z_b - z_c).powi(2);
            y_u += (y - z_c) * (z_b - z_c);
        }
        let q = y_u / u_square;
        if !(q > 0.04 && q < 0.96) {
            return None;
        }
        let rho = g.iter().zip(&u).map(|(g, u)| (g - q * u).powi(2)).sum::<f64>().sqrt();
        let delta = rho / (u_square.sqrt() * q * (1.0 - q));
        let gap = x_b.iter().zip(&x_c).map(|(b, c)| b - c).collect();
        // Equal tokens share their weight: with n_b copies of b and n_c of c the odds are e^ℓ n_b/n_c.
        let copies = |x: &[f64]| (0..block.shape().k).filter(|&t| token(t) == x).count() as f64;
        let log_odds = (q / (1.0 - q) * copies(&x_c) / copies(&x_b)).ln();
        let mut found = AgreeingRow { eta: 0.0, delta, log_odds, x_a: token(row.a), gap };
        found.eta = delta / found.norm();
        (delta <= self.delta && found.eta <= self.eta).then_some(found)
    }
}

/// A row with some pair that may pass.
struct Candidate {
    example: usize,
    a: usize,
}

/// The pair test on all rows and pairs of a block, in single precision, from squared distances alone:
/// with `r_b = ‖Y_a − z_b‖²` and `D = ‖z_b − z_c‖²`, `q = (r_c − r_b + D)/2D` and `‖ρ‖² = r_c − q² D`.
struct Screen<'a> {
    block: &'a Block<f32>,
    s_t: &'a [f32],
    delta: f32,
}

impl WithSimd for Screen<'_> {
    type Output = Vec<Candidate>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Vec<Candidate> {
        let shape = self.block.shape();
        let (k, d, d_out) = (shape.k, shape.d, shape.d_out);
        let chunks = LANES / S::F32_LANES;
        let zero = simd.splat_f32s(0.0);
        let (one, tau) = (simd.splat_f32s(1.0), simd.splat_f32s(self.delta * self.delta));
        let half = simd.splat_f32s(0.5);
        let mut z = vec![0.0f32; k * d_out * LANES];
        let mut r = vec![zero; k];
        let mut distances = vec![zero; k * k * chunks];
        let mut found = Vec::new();
        for (panel, (x, y)) in self.block.panels().enumerate() {
            apply_matrix(simd, self.s_t, d_out, d, None, k, x, &mut z);
            let (y, z) = (S::as_simd_f32s(y).0, S::as_simd_f32s(&z).0);
            let square_distance = |y: &[S::f32s], z: &[S::f32s], chunk: usize| {
                let mut sum = zero;
                let mut o = chunk;
                while o < d_out * chunks {
                    let gap = simd.sub_f32s(y[o], z[o]);
                    sum = simd.mul_add_f32s(gap, gap, sum);
                    o += chunks;
                }
                sum
            };
            let row = d_out * chunks;
            for chunk in 0..chunks {
                for b in 0..k {
                    for c in 0..b {
                        distances[(b * k + c) * chunks + chunk] =
                            square_distance(&z[b * row..(b + 1) * row], &z[c * row..(c + 1) * row], chunk);
                    }
                }
            }
            for a in 0..k {
                for chunk in 0..chunks {
                    for b in 0..k {
                        r[b] = square_distance(&y[a * row..(a + 1) * row], &z[b * row..(b + 1) * row], chunk);
                    }
                    // Negative where some pair passes: ‖ρ‖² − δ² D (q(1−q))².
                    let mut best = one;
                    for b in 0..k {
                        for c in 0..b {
                            let dist = distances[(b * k + c) * chunks + chunk];
                            let along = simd.mul_f32s(half, simd.add_f32s(simd.sub_f32s(r[c], r[b]), dist));
                            let q = simd.div_f32s(along, dist);
                            let rho = simd.sub_f32s(r[c], simd.mul_f32s(q, along));
                            let spread = simd.mul_f32s(q, simd.sub_f32s(one, q));
                            let room = simd.mul_f32s(simd.mul_f32s(tau, dist), simd.mul_f32s(spread, spread));
                            // The distances carry rounding errors of about 10⁻⁶ r.
                            let slack = simd.mul_f32s(simd.splat_f32s(2e-6), simd.add_f32s(r[c], dist));
                            let excess = simd.sub_f32s(simd.sub_f32s(rho, room), slack);
                            let passes = simd.less_than_f32s(simd.splat_f32s(0.04 * 0.96), spread);
                            best = simd.min_f32s(best, simd.select_f32s(passes, excess, one));
                        }
                    }
                    if simd.reduce_min_f32s(best) < 0.0 {
                        let mut lanes = [0.0f32; LANES];
                        let width = S::F32_LANES;
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
