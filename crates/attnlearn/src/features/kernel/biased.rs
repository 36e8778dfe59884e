//! `F(a, b; ρ) = E[relu(a+u) relu(b+u')]` for unit Gaussians `(u, u')` of correlation ρ.
//!
//! **Series.** In Hermite polynomials `relu(a+u) = Σ_k c_k(a) He_k(u)/√k!`, and by Mehler's formula
//!
//! ```text
//! F = Σ_k ρ^k c_k(a) c_k(b),    c_0 = R(a) = aΦ(a) + φ(a),   c_1 = Φ(a),   c_k = ± h_{k−2}(a) φ(a) / √(k(k−1)),   h_n = He_n/√n!
//! ```
//!
//! (the sign `(−1)^k` is the same on both sides). `|h_n(a)| φ(a) ≤ 0.44 e^{−a²/4}` (Cramér), so after [`TERMS`] terms less than
//! `0.4 ρ^30/30²` is left: `4·10⁻¹³` where `|ρ| ≤ ½`. All coefficients belong to one key alone, and a pair costs two operations a term.
//!
//! **Integral**, where `|ρ| > ½`. By Price's theorem `∂F/∂ρ = P(u > −a, u' > −b)` and `∂²F/∂ρ² = φ₂(a, b; ρ)`, the bivariate density:
//!
//! ```text
//! F = R(a)R(b) + ρ Φ(a)Φ(b) + ∫_0^ρ (ρ−r) φ₂(a,b;r) dr,      φ₂ = e^{−(a²−2abr+b²)/2(1−r²)} / 2π√(1−r²)
//! ```
//!
//! `r = sin θ` takes away the root, and the half-angle `τ = tan(θ/2)` all trigonometry: `r = 2τ/(1+τ²)`, `√(1−r²) = (1−τ²)/(1+τ²)`,
//! `dr/√(1−r²) = 2dτ/(1+τ²)`, from 0 to `ρ/(1+√(1−ρ²))`. Gauss–Legendre then converges geometrically; the rate falls as `|ρ| → 1`, where
//! the integrand flattens at the end of the interval, so there are two rules (errors measured for `|a|, |b| ≤ 6`):
//!
//! | `\|ρ\|` | | error |
//! |---|---|---|
//! | ≤ ½ | series | 4·10⁻¹³ |
//! | ≤ 0.9 | 12 nodes | 10⁻¹³ |
//! | ≤ 1 | 40 nodes | 10⁻¹⁰ |

use crate::linalg::lanes::{LANES, Real};
use pulp::Simd;
use std::f64::consts::PI;

/// Terms of the series.
pub const TERMS: usize = 30;

/// All that `F` needs of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    /// Mean over standard deviation.
    pub a: f64,
    /// `c_k(a)`, but for their signs.
    pub c: [f64; TERMS],
}

impl Side {
    /// The side with mean `a`.
    pub fn new(a: f64) -> Self {
        let phi = 0.5 * statrs::function::erf::erfc(-a * std::f64::consts::FRAC_1_SQRT_2);
        let density = (-0.5 * a * a).exp() / (2.0 * PI).sqrt();
        let mut c = [0.0; TERMS];
        (c[0], c[1]) = (f64::mul_add(a, phi, density), phi);
        // h_n φ by h_{n+1} = (a h_n − √n h_{n−1})/√(n+1); where the density is 0, so are all of them.
        let (mut before, mut h) = (0.0, density);
        for k in (2..TERMS).filter(|_| density > 0.0) {
            let n = (k - 2) as f64;
            c[k] = h / (k as f64 * (n + 1.0)).sqrt();
            (before, h) = (h, (a * h - n.sqrt() * before) / (n + 1.0).sqrt());
        }
        Self { a, c }
    }
}

/// Sixteen sets' sides, key by key: `a` is `[keys][LANES]`, `c` is `[keys][TERMS][LANES]`.
#[derive(Default)]
pub struct Sides {
    /// Means over standard deviations.
    pub a: Vec<f64>,
    /// Coefficients.
    pub c: Vec<f64>,
}

/// The two Gauss–Legendre rules on `[0, 1]`.
pub struct Biased {
    middle: Rule<12>,
    far: Rule<40>,
}

/// Where the series hands over to the first rule, and that to the second.
const LIMITS: [f64; 2] = [0.5, 0.9];

/// Room for the correlations that the series does not serve.
#[derive(Default)]
pub struct Scratch {
    places: Vec<usize>,
    rho: Vec<f64>,
    b: Vec<f64>,
    out: Vec<f64>,
}

impl Biased {
    /// Computes the nodes.
    pub fn new() -> Self {
        Self { middle: Rule::new(), far: Rule::new() }
    }

    /// `out[i][e] = F(a_i, b_e; rho[i][e])` for `G` keys against those of sixteen sets, `rho` and `out` `[G][keys][LANES]`. Every value
    /// depends on its own arguments alone, to the last bit.
    #[inline(always)]
    pub fn fill<S: Simd, const G: usize>(
        &self,
        simd: S,
        a: &[Side; G],
        b: &Sides,
        rho: &[f64],
        scratch: &mut Scratch,
        out: &mut [f64],
    ) {
        let line = rho.len() / G;
        series(simd, a, &b.c, rho, out);
        for ((a, rho), out) in a.iter().zip(rho.chunks_exact(line)).zip(out.chunks_exact_mut(line)) {
            self.middle.refine(LIMITS[0], a, b, rho, scratch, out);
            self.far.refine(LIMITS[1], a, b, rho, scratch, out);
        }
    }
}

/// The series by Horner's rule, `G` keys on one side together so that the other side's coefficients are read once for all of them.
#[inline(always)]
fn series<S: Simd, const G: usize>(simd: S, a: &[Side; G], c: &[f64], rho: &[f64], out: &mut [f64]) {
    let (c, rho, out) = (f64::vectors::<S>(c), f64::vectors::<S>(rho), f64::vectors_mut::<S>(out));
    let line = rho.len() / G;
    let split = vectors_of_a_panel::<S>();
    for e in 0..line {
        // Vector `e % split` of key `e / split`.
        let c = &c[e / split * TERMS * split + e % split..];
        let mut rhos = [f64::splat(simd, 0.0); G];
        for i in 0..G {
            rhos[i] = rho[i * line + e];
        }
        let mut sums = [f64::splat(simd, 0.0); G];
        for k in (0..TERMS).rev() {
            let b = c[k * split];
            for i in 0..G {
                let term = f64::times(simd, f64::splat(simd, a[i].c[k]), b);
                sums[i] = f64::fma(simd, sums[i], rhos[i], term);
            }
        }
        for i in 0..G {
            out[i * line + e] = sums[i];
        }
    }
}

/// Vectors of `S` that make up sixteen lanes.
#[inline(always)]
fn vectors_of_a_panel<S: Simd>() -> usize {
    LANES / S::F64_LANES
}

/// Gauss–Legendre with `N` nodes on `[0, 1]`.
struct Rule<const N: usize> {
    nodes: [f64; N],
    /// Divided by π: the factor of `φ₂ dr = e^… dτ / π(1+τ²)`.
    weights: [f64; N],
}

impl<const N: usize> Rule<N> {
    /// Roots of the Legendre polynomial by Newton's method.
    fn new() -> Self {
        let mut rule = Self { nodes: [0.0; N], weights: [0.0; N] };
        for i in 0..N {
            let mut x = (PI * (i as f64 + 0.75) / (N as f64 + 0.5)).cos();
            let mut slope = 1.0;
            for _ in 0..10 {
                let (mut before, mut p) = (1.0, x);
                for k in 2..=N {
                    (before, p) = (p, ((2 * k - 1) as f64 * x * p - (k - 1) as f64 * before) / k as f64);
                }
                slope = N as f64 * (x * p - before) / (x * x - 1.0);
                x -= p / slope;
            }
            rule.nodes[i] = 0.5 - 0.5 * x;
            rule.weights[i] = 1.0 / (PI * (1.0 - x * x) * slope * slope);
        }
        rule
    }

    /// `out[e] = ∫_0^ρ (ρ−r) φ₂(a, b[e]; r) dr`.
    #[inline(always)]
    fn integrals(&self, a: f64, b: &[f64], rho: &[f64], out: &mut [f64]) {
        let len = out.len();
        let (b, rho) = (&b[..len], &rho[..len]);
        for e in 0..len {
            out[e] = self.integral(a, b[e], rho[e]);
        }
    }

    #[inline(always)]
    fn integral(&self, a: f64, b: f64, rho: f64) -> f64 {
        let rest = 1.0 - rho * rho;
        let end = rho / (1.0 + if rest > 0.0 { rest } else { 0.0 }.sqrt());
        let (squares, product) = (-0.5 * f64::mul_add(a, a, b * b), a * b);
        let mut sum = 0.0;
        for k in 0..N {
            let tau = end * self.nodes[k];
            let square = tau * tau;
            let (plus, minus) = (1.0 + square, 1.0 - square);
            let inverse = 1.0 / (plus * minus);
            let over_plus = inverse * minus;
            let r = 2.0 * tau * over_plus;
            let secant = inverse * plus * plus; // 1 / cos θ
            let height = Real::exp(f64::mul_add(product, r, squares) * secant * secant);
            sum = f64::mul_add(self.weights[k] * over_plus * (rho - r), height, sum);
        }
        end * sum
    }

    /// Replaces the values whose correlation is beyond `limit`: gathered, so that they too fill whole vectors.
    #[inline(always)]
    fn refine(&self, limit: f64, a: &Side, b: &Sides, rho: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        let Scratch { places, rho: far_rho, b: far_b, out: far_out } = scratch;
        places.clear();
        far_rho.clear();
        far_b.clear();
        for (panel, part) in rho.as_chunks::<LANES>().0.iter().enumerate() {
            // Most panels have none: one test for all lanes.
            let mut any = false;
            for rho in part {
                any |= rho.abs() > limit;
            }
            if any {
                for (l, rho) in part.iter().enumerate().filter(|(_, rho)| rho.abs() > limit) {
                    places.push(panel * LANES + l);
                    far_rho.push(*rho);
                    far_b.push(b.a[panel * LANES + l]);
                }
            }
        }
        if places.is_empty() {
            return;
        }
        far_out.resize(places.len(), 0.0);
        self.integrals(a.a, far_b, far_rho, far_out);
        for ((place, rho), value) in places.iter().zip(far_rho.iter()).zip(far_out.iter()) {
            let c = &b.c[place / LANES * TERMS * LANES + place % LANES..];
            out[*place] = value + f64::mul_add(a.c[0], c[0], rho * (a.c[1] * c[LANES]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::kernel::arc::kappa;
    use crate::linalg::lanes::vectorised;
    use pulp::WithSimd;

    fn value(a: f64, b: f64, rho: f64) -> f64 {
        struct Value(f64, f64, f64);
        impl WithSimd for Value {
            type Output = f64;
            fn with_simd<S: Simd>(self, simd: S) -> f64 {
                let (a, other) = ([Side::new(self.0)], Side::new(self.1));
                let b = Sides { a: vec![self.1; LANES], c: other.c.iter().flat_map(|c| [*c; LANES]).collect() };
                let mut out = [0.0; LANES];
                Biased::new().fill(simd, &a, &b, &[self.2; LANES], &mut Scratch::default(), &mut out);
                out[LANES - 1]
            }
        }
        vectorised(Value(a, b, rho))
    }

    /// `∫_{−a}^∞ (a+u) φ(u) E[relu(b + ρu + √(1−ρ²) v)] du` by Simpson's rule; the inner expectation is `s R(m/s)`.
    fn plain(a: f64, b: f64, rho: f64) -> f64 {
        let s = (1.0 - rho * rho).sqrt();
        let steps = 40_000;
        let (low, high) = (-a.min(9.0), 9.0f64.max(9.0 - a));
        let h = (high - low) / steps as f64;
        let at = |u: f64| {
            let m = b + rho * u;
            let inner = if s > 1e-9 { s * Side::new(m / s).c[0] } else { m.max(0.0) };
            (a + u).max(0.0) * inner * (-0.5 * u * u).exp() / (2.0 * PI).sqrt()
        };
        let mut sum = at(low) + at(high);
        for i in 1..steps {
            sum += at(low + i as f64 * h) * if i % 2 == 1 { 4.0 } else { 2.0 };
        }
        sum * h / 3.0
    }

    #[test]
    fn agrees_with_direct_integration() {
        for a in [-2.0, -0.5, 0.0, 0.3, 1.0, 3.0] {
            for b in [-1.0, 0.0, 0.29, 2.0] {
                for rho in [-0.99, -0.9, -0.6, -0.3, 0.0, 0.2, 0.5, 0.51, 0.8, 0.91, 0.97, 0.995] {
                    let (got, want) = (value(a, b, rho), plain(a, b, rho));
                    assert!((got - want).abs() < 2e-10 * (1.0 + want), "{a} {b} {rho}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn limits_have_closed_forms() {
        for a in [-1.0, 0.0, 0.4, 2.0] {
            for b in [-1.5, 0.0, 0.4, 1.0] {
                let (x, y) = (Side::new(a), Side::new(b));
                assert!((value(a, b, 0.0) - x.c[0] * y.c[0]).abs() < 1e-15);
                // ρ = 1: with c = min(a,b), E[(a+u)(b+u); u > −c] = (ab + 1)Φ(c) + (a + b − c)φ(c).
                let c = a.min(b);
                let side = Side::new(c);
                let one = (a * b + 1.0) * side.c[1] + (a + b - c) * (side.c[0] - c * side.c[1]);
                assert!((value(a, b, 1.0) - one).abs() < 2e-10, "{a} {b}: {} {one}", value(a, b, 1.0));
                // ρ = −1: E[(a+u)(b−u); −a < u < b] with Φ and φ at both ends.
                let density = |v: f64| (-0.5 * v * v).exp() / (2.0 * PI).sqrt();
                let opposite =
                    if a + b > 0.0 { (a * b - 1.0) * (y.c[1] - (1.0 - x.c[1])) + b * density(a) + a * density(b) } else { 0.0 };
                assert!((value(a, b, -1.0) - opposite).abs() < 2e-10, "{a} {b}: {} {opposite}", value(a, b, -1.0));
            }
        }
    }

    #[test]
    fn without_means_it_is_kappa() {
        for i in -1000..=1000 {
            let rho = f64::from(i) / 1000.0;
            assert!((value(0.0, 0.0, rho) - kappa(rho)).abs() < 1e-12, "{rho}");
        }
    }
}
