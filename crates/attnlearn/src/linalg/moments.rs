//! Mean and variance of numbers that arrive in blocks.
//!
//! With `S = Σ (v − mean)²`, two sets of numbers merge as (Chan, Golub and LeVeque, 1979)
//!
//! ```text
//! n = n₁ + n₂,   mean = mean₁ + (n₂/n) Δ,   S = S₁ + S₂ + (n₁ n₂/n) Δ²,      Δ = mean₂ − mean₁:
//! ```
//!
//! sums of squares and no differences of them, so nothing cancels however large the mean.

/// Number, mean and sum of squared deviations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// Of some numbers, in two passes. The mean is taken from the first number on, so that equal numbers have a variance of exactly 0.
    pub fn of<'a>(values: impl Iterator<Item = &'a f64> + Clone) -> Self {
        let n = values.clone().count() as f64;
        let Some(first) = values.clone().next() else { return Self::default() };
        let mean = first + values.clone().map(|v| v - first).sum::<f64>() / n;
        Self { n, mean, squares: values.map(|v| (v - mean) * (v - mean)).sum() }
    }

    /// Adds another set of numbers.
    pub fn merge(&mut self, other: &Self) {
        let n = self.n + other.n;
        if n < 1.0 {
            return;
        }
        let difference = other.mean - self.mean;
        self.squares += other.squares + self.n * (other.n / n) * difference * difference;
        self.mean += other.n / n * difference;
        self.n = n;
    }

    /// The mean; 0 of no numbers.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// `Σ (v − mean)² / n`; 0 of no numbers.
    pub fn variance(&self) -> f64 {
        self.squares / self.n.max(1.0)
    }

    /// The standard error of the mean, `√(Σ (v − mean)² / (n − 1) / n)`; needs two numbers.
    pub fn standard_error(&self) -> Option<f64> {
        (self.n >= 2.0).then(|| (self.squares / (self.n - 1.0) / self.n).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_numbers_have_no_variance() {
        for value in [0.1, 1.1, 2.1, -7e5, 1e-300] {
            let mut all = Moments::of([value; 512].iter());
            (0..20).for_each(|_| all.merge(&Moments::of([value; 77].iter())));
            assert!(all.variance().to_bits() == 0, "{value}: {}", all.variance());
        }
        assert!(Moments::of([1.0, 1.0 + 1e-12].iter()).variance() > 0.0);
    }

    proptest! {
        #[test]
        fn merging_is_taking_all_at_once(values in prop::collection::vec(-1.0..1.0f64, 0..60), cut in 0usize..60, offset in -1e6..1e6f64) {
            let values: Vec<f64> = values.iter().map(|v| v + offset).collect();
            let (left, right) = values.split_at(cut.min(values.len()));
            let mut merged = Moments::of(left.iter());
            merged.merge(&Moments::of(right.iter()));
            let all = Moments::of(values.iter());
            prop_assert!((merged.mean() - all.mean()).abs() <= 1e-9);
            prop_assert!((merged.variance() - all.variance()).abs() <= 1e-9);
            prop_assert_eq!(all.standard_error().is_some(), values.len() >= 2);
        }
    }
}
