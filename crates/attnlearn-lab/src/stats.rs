//! Numbers with their uncertainty: every finding and every error bar comes from here.
//!
//! Intervals have confidence 95 % and speak of the spread over seeds.

use attnlearn::certify::binomial;
use attnlearn::{Error, Result};
pub use attnlearn_page::estimate::{Estimate, short};
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::collections::BTreeMap;

/// The quantile of Student's distribution that 95 % lie within, on both sides.
fn student(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// The mean, by Student's interval; a single number says nothing about its uncertainty.
pub fn mean(values: &[f64]) -> Estimate {
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return Estimate { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let variance = values.iter().map(|v| (v - value).powi(2)).sum::<f64>() / (n - 1.0);
    let half = student(n - 1.0) * (variance / n).sqrt();
    Estimate { value, low: value - half, high: value + half }
}

/// The geometric mean of positive numbers; numbers that are not positive count as the least that can be told from 0.
pub fn geometric(values: &[f64]) -> Estimate {
    let logs: Vec<f64> = values.iter().map(|v| v.max(1e-300).ln()).collect();
    mean(&logs).map(f64::exp)
}

/// The middle one, and the order statistics that it is between; of fewer than six numbers none are that far apart.
pub fn median(values: &[f64]) -> Estimate {
    let mut sorted: Vec<f64> = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 {
        return Estimate { value: f64::NAN, low: f64::NAN, high: f64::NAN };
    }
    let value = if n % 2 == 1 { sorted[n / 2] } else { 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]) };
    if n < 6 {
        return Estimate { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    // P[more than n − 1 − j of n fair coins] for the interval from the j-th smallest to the j-th largest.
    let mut tail = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut term = tail;
    let mut skip = 0;
    while tail <= 0.025 && skip + 1 < n.div_ceil(2) {
        skip += 1;
        term *= (n - skip + 1) as f64 / skip as f64;
        tail += term;
    }
    let skip = if tail > 0.025 { skip.saturating_sub(1) } else { skip };
    Estimate { value, low: sorted[skip], high: sorted[n - 1 - skip] }
}

/// A success rate, by the exact binomial interval.
pub fn rate(successes: usize, of: usize) -> Result<Estimate> {
    if of == 0 {
        return Err(Error::input("success rate", "nothing was tried", "measure at least one point"));
    }
    let (low, high) = binomial::two_sided(of as u64, successes as u64, 0.05)?;
    Ok(Estimate { value: successes as f64 / of as f64, low, high })
}

fn centre(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n)
}

/// `Σ (x − x̄)(y − ȳ) / Σ (x − x̄)²`; none where all x are the same.
fn least_squares(points: &[(f64, f64)]) -> Option<f64> {
    let (mx, my) = centre(points);
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let value = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>() / sxx;
    (sxx > 0.0 && value.is_finite()).then_some(value)
}

/// The slope of the line through points, by least squares: of logarithms it is an exponent. Its interval takes the points for independent.
pub fn slope(points: &[(f64, f64)]) -> Option<Estimate> {
    if points.len() < 3 {
        return None;
    }
    let value = least_squares(points)?;
    let (n, (mx, my)) = (points.len() as f64, centre(points));
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let rest: f64 = points.iter().map(|p| (p.1 - my - value * (p.0 - mx)).powi(2)).sum();
    let half = student(n - 2.0) * (rest / (n - 2.0) / sxx).sqrt();
    Some(Estimate { value, low: value - half, high: value + half })
}

/// The exponent `b` of `y ∝ x^b`.
pub fn exponent(points: &[(f64, f64)]) -> Option<Estimate> {
    // Numbers that are all the same leave rounding.
    let plain = |b: f64| if b.abs() < 1e-12 { 0.0 } else { b };
    Some(slope(&points.iter().map(|(x, y)| (x.ln(), y.ln())).collect::<Vec<_>>())?.map(plain))
}

/// The slope of every seed's own line, in the mean over seeds. Points are seed, x and y; a seed with a single x has no line.
pub fn slope_over_seeds(points: impl IntoIterator<Item = (u64, f64, f64)>) -> Option<Estimate> {
    let mut by_seed: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    points.into_iter().for_each(|(seed, x, y)| by_seed.entry(seed).or_default().push((x, y)));
    let slopes: Vec<f64> = by_seed.values().filter_map(|line| least_squares(line)).collect();
    (!slopes.is_empty()).then(|| mean(&slopes))
}

/// The exponent `b` of `y ∝ x^b`, seed by seed as [`slope_over_seeds`].
pub fn exponent_over_seeds(points: impl IntoIterator<Item = (u64, f64, f64)>) -> Option<Estimate> {
    slope_over_seeds(points.into_iter().map(|(seed, x, y)| (seed, x.ln(), y.ln())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// Missed in 5 % of draws: 100 of 2000, give or take four standard deviations of the count (9.7); medians' intervals are wider than they need be.
    #[test]
    fn intervals_cover_as_they_should() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut missed = [0; 4];
        for _ in 0..2000 {
            let z: Vec<f64> = (0..9).map(|_| rng.sample(StandardNormal)).collect();
            let inside = |e: Estimate, truth: f64| !(e.low..=e.high).contains(&truth);
            missed[0] += usize::from(inside(mean(&z), 0.0));
            let powers: Vec<f64> = z.iter().map(|z| (2.0 + z).exp()).collect();
            missed[1] += usize::from(inside(geometric(&powers), 2_f64.exp()));
            missed[2] += usize::from(inside(median(&z), 0.0));
            let line: Vec<(f64, f64)> = z.iter().enumerate().map(|(i, z)| (i as f64, 3.0 * i as f64 + z)).collect();
            missed[3] += usize::from(inside(slope(&line).unwrap(), 3.0));
        }
        assert!(missed[0].abs_diff(100) < 39 && missed[1].abs_diff(100) < 39 && missed[3].abs_diff(100) < 39, "{missed:?}");
        assert!(missed[2] < 139 && missed[2] > 30, "{missed:?}");
    }

    #[test]
    fn exponents_are_those_of_powers() {
        let points: Vec<(f64, f64)> = (1..6).map(|x| (f64::from(x), 7.0 * f64::from(x).powf(-1.5))).collect();
        let found = exponent(&points).unwrap();
        assert!((found.value + 1.5).abs() < 1e-12 && found.high - found.low < 1e-9);
        assert!(exponent(&points[..2]).is_none() && slope(&[(1.0, 1.0); 4]).is_none());
    }

    #[test]
    fn slopes_are_those_of_seeds() {
        // Two seeds with lines of slopes 1 and 3, far apart; a third with a single point says nothing.
        let points = [(1, 0.0, 5.0), (1, 2.0, 7.0), (2, 0.0, 90.0), (2, 1.0, 93.0), (3, 4.0, 1.0)];
        let found = slope_over_seeds(points).unwrap();
        assert!((found.value - 2.0).abs() < 1e-12 && found.low < 1.0 && found.high > 3.0, "{found:?}");
        assert!(slope_over_seeds([(1, 2.0, 3.0)]).is_none());
        let powers = (1..4).flat_map(|seed| [1.0, 2.0, 4.0].map(|x: f64| (seed, x, seed as f64 * x.powf(-0.5))));
        let found = exponent_over_seeds(powers).unwrap();
        assert!((found.value + 0.5).abs() < 1e-12 && found.high - found.low < 1e-9, "{found:?}");
        assert!(median(&[1.0, 2.0, 9.0]).low == f64::NEG_INFINITY && median(&[1.0; 6]).high < 2.0);
    }

    #[test]
    fn rates_are_between_0_and_1() {
        let all = rate(10, 10).unwrap();
        assert!((all.value - 1.0).abs() < 1e-15 && all.low > 0.65 && all.low < 0.75, "{all:?}");
        assert!(rate(0, 0).is_err());
    }
}
