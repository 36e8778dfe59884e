//! A histogram of non-negative numbers over all magnitudes, in constant memory.
//!
//! Non-negative doubles are ordered like their bit patterns, so the leading 17 bits below the sign (11 of the exponent, 6 of the mantissa) number
//! bins whose edges are at most a factor `1 + 1/64` apart. Counts add up the same in any order.

/// Mantissa bits that are dropped.
const DROPPED: u32 = 46;

/// Counts by magnitude.
pub(super) struct Histogram {
    counts: Vec<u64>,
    n: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self { counts: vec![0; (f64::INFINITY.to_bits() >> DROPPED) as usize + 1], n: 0 }
    }

    /// Counts a finite number; its sign is ignored.
    pub fn add(&mut self, value: f64) {
        if let Some(count) = self.counts.get_mut((value.abs().to_bits() >> DROPPED) as usize) {
            *count += 1;
            self.n += 1;
        }
    }

    /// The upper edge of the first bin up to which at least the share `level` of the numbers lies; 0 for the bin at 0.
    pub fn quantile(&self, level: f64) -> f64 {
        let wanted = (level * self.n as f64).ceil() as u64;
        let mut below = 0;
        for (bin, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= wanted {
                return if bin == 0 { 0.0 } else { f64::from_bits((bin as u64 + 1) << DROPPED) };
            }
        }
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_rounded_up_by_little() {
        let mut values: Vec<f64> = (0..1000u32).map(|i| 10f64.powf(f64::from(i * 7919 % 1000) / 50.0 - 15.0)).collect();
        let mut histogram = Histogram::new();
        values.iter().for_each(|&v| histogram.add(v));
        values.sort_by(f64::total_cmp);
        for (level, index) in [(0.001, 0), (0.5, 499), (0.9, 899), (0.999, 998), (1.0, 999)] {
            let quantile = histogram.quantile(level);
            assert!(values[index] < quantile && quantile <= values[index] * (1.0 + 1.0 / 64.0), "{level}");
        }
    }

    #[test]
    fn zeros_stay_zero() {
        let mut histogram = Histogram::new();
        [0.0, 0.0, 0.0, 1.0].iter().for_each(|&v| histogram.add(v));
        assert!(histogram.quantile(0.75) <= 0.0 && histogram.quantile(0.76) > 1.0);
    }
}
