//! Exact (Clopper–Pearson) confidence bounds for a probability `p`, from `k` events seen in `n` independent trials.
//!
//! ```text
//! upper bound: the q with P[Bin(n, q) ≤ k] = δ  (1 if k = n),      P[p ≤ q] ≥ 1 − δ whatever p is;
//! lower bound: the q with P[Bin(n, q) ≥ k] = δ  (0 if k = 0).
//! ```
//!
//! In particular `q = 1 − δ^{1/n}` when nothing was seen.
//!
//! The tail is the sum of its terms, largest first, which all have one sign. The largest is (Loader, 2000)
//!
//! ```text
//! P[Bin(n, q) = k] = √(n / (2π k (n−k))) exp(σ(n) − σ(k) − σ(n−k) − k h(Δ/k) − (n−k) h(−Δ/(n−k))),
//! Δ = nq − k,      h(v) = v − ln(1+v),      σ(n) = ln n! − ½ ln(2πn) − n ln n + n,
//! ```
//!
//! where no term is larger than the exponent itself: the digits that `ln n!` loses (half of them at n = 10⁸) are never formed.
//! The relative error of a tail is of order √n · 1e-16, that of a bound a few units in the last place. The incomplete beta function
//! of the statistics crate subtracts logarithms of factorials and stops after 140 steps of a continued fraction that needs √n: it
//! has neither the digits nor the range.

use super::root::turning_point;
use crate::{Error, Result};
use std::f64::consts::PI;

/// The upper bound at confidence `1 − delta` for the probability of an event seen `k` times in `n` trials.
pub fn upper_bound(n: u64, k: u64, delta: f64) -> Result<f64> {
    check(n, k, delta)?;
    Ok(match k {
        _ if k == n => 1.0,
        0 => -(delta.ln() / n as f64).exp_m1(),
        _ => turning_point(0.0, 1.0, |q| at_most(n, k, q) <= delta).1,
    })
}

/// The lower bound at confidence `1 − delta` for the probability of an event seen `k` times in `n` trials.
pub fn lower_bound(n: u64, k: u64, delta: f64) -> Result<f64> {
    check(n, k, delta)?;
    Ok(match k {
        0 => 0.0,
        _ if k == n => (delta.ln() / n as f64).exp(),
        _ => turning_point(0.0, 1.0, |q| at_least(n, k, q) > delta).0,
    })
}

/// Both bounds, `(lower, upper)`, together at confidence `1 − delta`: half of `delta` goes to each.
pub fn two_sided(n: u64, k: u64, delta: f64) -> Result<(f64, f64)> {
    check(n, k, delta)?;
    Ok((lower_bound(n, k, delta / 2.0)?, upper_bound(n, k, delta / 2.0)?))
}

fn check(n: u64, k: u64, delta: f64) -> Result<()> {
    if k > n {
        return Err(Error::input("binomial bound", format!("{k} events in {n} trials"), "count at most one event a trial"));
    }
    if !(delta > 0.0 && delta < 1.0) {
        return Err(Error::input("binomial bound", format!("δ = {delta}"), "give a number between 0 and 1, such as 0.01"));
    }
    Ok(())
}

/// `P[Bin(n, q) ≤ k]`.
fn at_most(n: u64, k: u64, q: f64) -> f64 {
    // Sum on the side away from the mean, where terms decrease.
    if k >= n {
        1.0
    } else if (k as f64) < n as f64 * q {
        sum_down(n, k, q)
    } else {
        1.0 - sum_up(n, k + 1, q)
    }
}

/// `P[Bin(n, q) ≥ k]`.
fn at_least(n: u64, k: u64, q: f64) -> f64 {
    if k == 0 {
        1.0
    } else if k as f64 > n as f64 * q {
        sum_up(n, k, q)
    } else {
        1.0 - sum_down(n, k - 1, q)
    }
}

/// `Σ_{j ≤ k} P[Bin(n, q) = j]`, from `j = k` down.
fn sum_down(n: u64, k: u64, q: f64) -> f64 {
    let odds = (1.0 - q) / q;
    sum(probability(n, k, q), (1..=k).rev().map(|j| j as f64 / (n - j + 1) as f64 * odds))
}

/// `Σ_{j ≥ k} P[Bin(n, q) = j]`, from `j = k` up.
fn sum_up(n: u64, k: u64, q: f64) -> f64 {
    let odds = q / (1.0 - q);
    sum(probability(n, k, q), (k..n).map(|j| (n - j) as f64 / (j + 1) as f64 * odds))
}

/// `first (1 + r₁ + r₁ r₂ + …)` for decreasing ratios `r`.
fn sum(first: f64, ratios: impl Iterator<Item = f64>) -> f64 {
    let (mut term, mut total) = (1.0, 1.0);
    for r in ratios {
        term *= r;
        total += term;
        // Ratios decrease, so what is left is at most term · (r + r² + …).
        if r < 1.0 && term * r < 1e-17 * (1.0 - r) * total {
            break;
        }
    }
    first * total
}

/// `P[Bin(n, q) = k]`.
fn probability(n: u64, k: u64, q: f64) -> f64 {
    if q <= 0.0 || q >= 1.0 {
        let certain = if q <= 0.0 { 0 } else { n };
        return f64::from(u8::from(k == certain));
    }
    let (trials, x, rest) = (n as f64, k as f64, (n - k) as f64);
    if k == 0 {
        return (trials * (-q).ln_1p()).exp();
    }
    if k == n {
        return (trials * q.ln()).exp();
    }
    let delta = trials.mul_add(q, -x);
    let deviance = x * h(delta / x, trials * q / x) + rest * h(-delta / rest, trials * (1.0 - q) / rest);
    let exponent = sigma(n) - sigma(k) - sigma(n - k) - deviance;
    (trials / (2.0 * PI * x * rest)).sqrt() * exponent.exp()
}

/// `h(v) = v − ln(1+v)`, given `1 + v` too because it may be known better than from `v`.
fn h(v: f64, one_plus_v: f64) -> f64 {
    if v.abs() > 0.5 {
        return v - one_plus_v.ln();
    }
    // With t = v/(2+v): ln(1+v) = 2(t + t³/3 + t⁵/5 + …) and v − 2t = v t.
    let t = v / (2.0 + v);
    let square = t * t;
    let series = (1..=17).rev().fold(0.0, |sum, j| sum * square + 1.0 / f64::from(2 * j + 1));
    t * (v - 2.0 * square * series)
}

/// `σ(n) = ln n! − ½ ln(2πn) − n ln n + n`, for n ≥ 1.
fn sigma(n: u64) -> f64 {
    let x = n as f64;
    if n < 16 {
        let factorial: f64 = (1..=n).map(|j| j as f64).product();
        return (factorial / (2.0 * PI * x).sqrt()).ln() - x * x.ln() + x;
    }
    let y = 1.0 / (x * x);
    (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0 - y / 1188.0)))) / x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `P[Bin(n, q) ∈ range]` by its definition, for small n: `C(n, j)` is exact.
    fn plain(n: u64, range: std::ops::RangeInclusive<u64>, q: f64) -> f64 {
        let choose = |j: u64| (0..j).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
        range.map(|j| choose(j) * q.powi(j as i32) * (1.0 - q).powi((n - j) as i32)).sum()
    }

    const DELTAS: [f64; 6] = [0.9, 0.5, 0.1, 0.01, 1e-4, 1e-9];

    #[test]
    fn bounds_are_roots_of_the_exact_tail() {
        // Two units in the last place to either side of the bound, the tail is on either side of δ.
        let around = |q: f64| (q * (1.0 - 4.5e-16), (q * (1.0 + 4.5e-16)).min(1.0));
        for n in 1..=12 {
            for delta in DELTAS {
                let (least, most) = (delta * (1.0 - 2e-14), delta * (1.0 + 2e-14));
                for k in 0..n {
                    let (below, above) = around(upper_bound(n, k, delta).expect("valid"));
                    let (high, low) = (plain(n, 0..=k, below), plain(n, 0..=k, above));
                    assert!(high >= least && low <= most, "upper: n {n} k {k} δ {delta}: {low} to {high}");
                }
                for k in 1..=n {
                    let (below, above) = around(lower_bound(n, k, delta).expect("valid"));
                    let (low, high) = (plain(n, k..=n, below), plain(n, k..=n, above));
                    assert!(high >= least && low <= most, "lower: n {n} k {k} δ {delta}: {low} to {high}");
                }
                assert!(upper_bound(n, n, delta).expect("valid") >= 1.0);
                assert!(lower_bound(n, 0, delta).expect("valid") <= 0.0);
            }
        }
    }

    #[test]
    fn nothing_or_everything_seen_has_a_closed_form() {
        for n in [1, 2, 10, 1000, 100_000_000, 10_000_000_000] {
            for delta in DELTAS {
                let (none, all) = (upper_bound(n, 0, delta).expect("valid"), lower_bound(n, n, delta).expect("valid"));
                assert!((none / (1.0 - delta.powf(1.0 / n as f64)) - 1.0).abs() < 1e-15 * n as f64 + 1e-14);
                let root = turning_point(0.0, 1.0, |q| at_most(n, 0, q) <= delta).1;
                assert!((none / root - 1.0).abs() < 1e-15, "bisection on the tail agrees");
                let root = turning_point(0.0, 1.0, |q| at_least(n, n, q) > delta).0;
                assert!((all / root - 1.0).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn bounds_grow_with_k_and_confidence_and_shrink_with_n() {
        let up = |n, k, delta| upper_bound(n, k, delta).expect("valid");
        for n in [7, 100, 5000] {
            for k in 0..7 {
                assert!(up(n, k, 0.01) < up(n, k + 1, 0.01) || k + 1 > n);
                assert!(up(n, k, 0.01) > up(n, k, 0.1) || k == n);
                assert!(up(n + 1, k, 0.01) < up(n, k, 0.01) || k == n);
                let (low, high) = two_sided(n, k, 0.02).expect("valid");
                assert!(low <= k as f64 / n as f64 && k as f64 / n as f64 <= high && (high - up(n, k, 0.01)).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn the_two_tails_sum_to_one() {
        // Both sums start from a probability of its own, at k and at k+1: an error of either would show.
        for n in [20, 1000, 1_000_000, 100_000_000, 1_000_000_000] {
            for q in [3.0 / n as f64, 1e-3, 0.1, 0.5, 0.93] {
                let (mean, spread) = (n as f64 * q, (n as f64 * q * (1.0 - q)).sqrt());
                for sigmas in [-3.0, -1.0, 0.0, 0.4, 2.0] {
                    let k = (mean + sigmas * spread).clamp(0.0, (n - 1) as f64) as u64;
                    let total = sum_down(n, k, q) + sum_up(n, k + 1, q);
                    assert!((total - 1.0).abs() < 2e-14 + 1e-16 * (n as f64).sqrt(), "n {n} q {q} k {k}: {total}");
                }
            }
        }
    }

    #[test]
    fn large_n() {
        // P[Bin(2m+1, ½) ≤ m] = ½ exactly.
        assert!((at_most(99_999_999, 49_999_999, 0.5) - 0.5).abs() < 1e-13);
        let n = 100_000_000;
        for delta in DELTAS {
            for k in [1, 2, 5] {
                // Few terms: each can be written down with `ln_1p`.
                let q = upper_bound(n, k, delta).expect("valid");
                let nf = n as f64;
                let term = |j: u64| {
                    let choose = (0..j).fold(1.0, |c, i| c * (nf - i as f64) / (i + 1) as f64);
                    choose * q.powi(j as i32) * ((nf - j as f64) * (-q).ln_1p()).exp()
                };
                let tail: f64 = (0..=k).map(term).sum();
                assert!((tail / delta - 1.0).abs() < 1e-12, "k {k} δ {delta}: {tail}");
            }
            // k = n−1: P[Bin ≤ n−1] = 1 − qⁿ.
            let q = upper_bound(n, n - 1, delta).expect("valid");
            assert!((q - ((-delta).ln_1p() / n as f64).exp()).abs() < 1e-15);
            // In the middle: the bound is where its own tail says, and near the normal approximation.
            let k = n / 5;
            let q = upper_bound(n, k, delta).expect("valid");
            assert!((at_most(n, k, q) / delta - 1.0).abs() < 1e-6);
            let z = -std::f64::consts::SQRT_2 * statrs::function::erf::erfc_inv(2.0 - 2.0 * delta);
            let approximate = 0.2 + z * (0.2 * 0.8 / n as f64).sqrt();
            assert!((q - approximate).abs() < 1e-6);
        }
    }

    #[test]
    fn coverage_is_exact_or_better() {
        // P[bound < p] summed over the outcomes, for every p of a fine grid: never above δ.
        for n in [1, 5, 12] {
            for delta in [0.2, 0.05] {
                let bounds: Vec<f64> = (0..=n).map(|k| upper_bound(n, k, delta).expect("valid")).collect();
                for step in 1..400 {
                    let p = f64::from(step) / 400.0;
                    let miss: f64 = (0..=n).filter(|&k| bounds[k as usize] < p).map(|k| probability(n, k, p)).sum();
                    assert!(miss <= delta + 1e-12, "n {n} δ {delta} p {p}: {miss}");
                }
            }
        }
    }

    #[test]
    fn bad_input_is_refused_and_no_trials_say_nothing() {
        for (n, k, delta) in [(3, 4, 0.1), (3, 1, 0.0), (3, 1, 1.0), (3, 1, f64::NAN), (3, 1, -0.5)] {
            assert!(upper_bound(n, k, delta).is_err() && lower_bound(n, k, delta).is_err() && two_sided(n, k, delta).is_err());
        }
        assert!(upper_bound(0, 0, 0.1).expect("valid") >= 1.0 && lower_bound(0, 0, 0.1).expect("valid") <= 0.0);
    }
}
