//! A number with its uncertainty, and numbers as people read them.

use serde::Serialize;

/// A number and the interval that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// A number that is known.
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Whether the interval lies above a number.
    pub fn above(&self, number: f64) -> bool {
        self.low > number
    }

    /// Whether it lies below one.
    pub fn below(&self, number: f64) -> bool {
        self.high < number
    }

    /// The same of a monotone function of the number.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { value: f(self.value), low: f(self.low), high: f(self.high) }
    }
}

/// `1.2 (0.9 to 1.5)`.
impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} to {})", short(self.value), short(self.low), short(self.high))
    }
}

/// A number in three digits, without powers of ten where it can do without.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".into()
    } else if !value.is_finite() {
        if value.is_nan() {
            "–".into()
        } else if value > 0.0 {
            "∞".into()
        } else {
            "−∞".into()
        }
    } else if !(1e-3..1e5).contains(&size) {
        format!("{value:.1e}").replace('-', "−")
    } else if size >= 100.0 {
        format!("{value:.0}").replace('-', "−")
    } else {
        let digits = if size >= 10.0 {
            1
        } else if size >= 1.0 {
            2
        } else {
            (2 - size.log10().floor() as i32) as usize
        };
        format!("{value:.digits$}").replace('-', "−")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers() {
        let cases = [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (1234.5, "1234"),
            (1e-7, "1.0e−7"),
            (-2.5, "−2.50"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
