//! `κ(ρ) = E[relu(u) relu(u')]` for unit Gaussians of correlation ρ: the arc-cosine kernel of degree one.
//!
//! ```text
//! κ(ρ) = (√(1−ρ²) + ρ(π − arccos ρ)) / 2π = ρ/4 + (√(1−ρ²) + ρ arcsin ρ) / 2π
//! ```
//!
//! The last bracket is even in ρ. With `a = |ρ|` it is analytic in `z = a²` where `a ≤ ½`, and `a/4 + z^{3/2} H(z)` with `H` analytic in
//! `z = (1−a)/2` where `a ≥ ½` (the half-angle formula of arcsin): either way `z ≤ ¼`, far from the branch point `z = 1`, and degree ten
//! gives the last bit. Near `ρ = −1`, where κ vanishes like `(1+ρ)^{3/2}`, nothing cancels.

use crate::linalg::lanes::LANES;

/// `(√(1−z) + √z arcsin √z) / 2π` on `[0, ¼]`, interpolated at Chebyshev points.
const INNER: [f64; 11] = [
    0.159_154_943_091_895_35,
    0.079_577_471_545_925_33,
    0.006_631_455_965_722_171,
    0.001_989_436_568_281_984,
    0.000_888_148_388_304_394_5,
    0.000_483_415_982_033_804_76,
    0.000_298_167_673_572_068_25,
    0.000_186_854_392_258_463_83,
    0.000_186_081_290_716_443_54,
    -2.532_653_885_065_322e-5,
    0.000_253_386_142_661_609_7,
];

/// `(√(1−z) − (1−2z) arcsin(√z)/√z) / πz` on `[0, ¼]`, likewise.
const OUTER: [f64; 11] = [
    0.424_413_181_578_387_7,
    0.042_441_318_157_698_034,
    0.013_641_852_287_436_947,
    0.006_315_670_957_417_337,
    0.003_516_725_034_683_509_6,
    0.002_190_359_419_092_868_7,
    0.001_482_054_180_957_93,
    0.000_980_450_236_141_330_3,
    0.001_070_299_087_873_468,
    -0.000_207_114_934_673_792,
    0.001_561_790_003_996_044,
];

/// `κ` of sixteen correlations; those beyond ±1 by rounding count as ±1. The root, the slowest part, is only taken where a lane needs it:
/// on the sphere `ρ = ¼ (1 + ⟨x_0, x_0'⟩)(1 + ⟨x_i, x_j'⟩)`, and few pairs are beyond ½. A lane's bits do not depend on the others.
#[inline(always)]
pub fn kappas(rho: &[f64; LANES]) -> [f64; LANES] {
    // Plain loops: a closure would not be compiled for the caller's instruction set.
    let (mut kappa, mut far) = ([0.0; LANES], false);
    for l in 0..LANES {
        kappa[l] = f64::mul_add(0.25, rho[l], polynomial(&INNER, rho[l] * rho[l]));
    }
    for l in 0..LANES {
        far |= rho[l].abs() > 0.5;
    }
    if far {
        for l in 0..LANES {
            let a = rho[l].abs();
            let half = 0.5 - 0.5 * a;
            let half = if half > 0.0 { half } else { 0.0 };
            let outer = f64::mul_add(0.25, rho[l] + a, half * half.sqrt() * polynomial(&OUTER, half));
            kappa[l] = if a > 0.5 { outer } else { kappa[l] };
        }
    }
    kappa
}

/// `κ` of one correlation, for tests.
#[cfg(test)]
pub fn kappa(rho: f64) -> f64 {
    kappas(&[rho; LANES])[LANES - 1]
}

/// `Σ_k c_k z^k` by Horner's rule.
#[inline(always)]
fn polynomial(c: &[f64; 11], z: f64) -> f64 {
    let mut sum = c[10];
    for k in (0..10).rev() {
        sum = f64::mul_add(sum, z, c[k]);
    }
    sum
}

/// Coefficients `c_0 … c_degree` of `κ(ρ) = Σ_k c_k ρ^k`: `1/2π, 1/4`, then `c_{2k+2} = C(2k,k) / (2π 4^k (2k+1)(2k+2))`, all others 0.
pub fn series(degree: usize) -> Vec<f64> {
    let mut c = vec![0.0; degree.max(1) + 1];
    c[0] = 0.5 / std::f64::consts::PI;
    c[1] = 0.25;
    let mut central = 1.0; // C(2k,k) / 4^k
    for k in 0..degree / 2 {
        c[2 * k + 2] = c[0] * central / ((2 * k + 1) * (2 * k + 2)) as f64;
        central *= (2 * k + 1) as f64 / (2 * k + 2) as f64;
    }
    c.truncate(degree + 1);
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    #[test]
    fn lanes_do_not_depend_on_one_another() {
        let alone = kappa(0.3);
        let mut mixed = [0.9; LANES];
        mixed[5] = 0.3;
        assert_eq!(kappas(&mixed)[5].to_bits(), alone.to_bits());
        assert_eq!(kappas(&mixed)[6].to_bits(), kappa(0.9).to_bits());
    }

    #[test]
    fn kappa_is_accurate_everywhere() {
        let plain = |rho: f64| (((1.0 - rho) * (1.0 + rho)).sqrt() + rho * (PI - rho.acos())) / (2.0 * PI);
        for i in 0..=200_000 {
            let rho = -1.0 + i as f64 * 1e-5;
            let rho = rho.clamp(-1.0, 1.0);
            assert!((kappa(rho) - plain(rho)).abs() < 2e-16, "{rho}: {} {}", kappa(rho), plain(rho));
        }
        assert!(kappa(-1.0).abs() < 1e-300 && (kappa(1.0) - 0.5).abs() < 1e-16 && (kappa(1.0 + 1e-15) - 0.5).abs() < 1e-15);
    }

    /// Near ±1: `κ(cos θ) = (sin θ + (π−θ) cos θ)/2π`, so `κ(−cos θ) = (sin θ − θ cos θ)/2π ≈ θ³/6π (1 − θ²/10 + θ⁴/280 − …)`.
    #[test]
    fn kappa_keeps_its_digits_near_the_ends() {
        for k in 1..40 {
            let gap = 0.5f64.powi(k + 6);
            let theta = 2.0 * (gap / 2.0).sqrt().asin();
            let square = theta * theta;
            let small = theta.powi(3) / (6.0 * PI)
                * (1.0 - square / 10.0 + square.powi(2) / 280.0 - square.powi(3) / 15120.0 + square.powi(4) / 1330560.0);
            assert!((kappa(gap - 1.0) / small - 1.0).abs() < 1e-14, "{gap}: {} {small}", kappa(gap - 1.0));
            assert!((kappa(1.0 - gap) - (0.5 * (1.0 - gap) + small)).abs() < 2e-16);
        }
    }

    #[test]
    fn the_series_sums_to_kappa() {
        let c = series(200);
        for rho in [-0.8, -0.3, 0.0, 0.5, 0.8] {
            let sum: f64 = c.iter().rev().fold(0.0, |sum, c| sum * rho + c);
            assert!((sum - kappa(rho)).abs() < 1e-15);
        }
    }
}
