//! A certificate as text.

use super::Certificate;
use std::fmt;

impl Certificate {
    /// The guarantee on the largest error seen, as a sentence. Numbers are rounded up, so the sentence as printed is true.
    pub fn statement(&self) -> String {
        format!(
            "with confidence {}, P[‖F−F̂‖∞ > {}] ≤ {} ({} held-out example{})",
            confidence(self.delta),
            rounded_up(self.max_error),
            rounded_up(self.max_error_bound),
            grouped(self.n),
            if self.n == 1 { "" } else { "s" },
        )
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.statement())?;
        writeln!(f, "{:>9}  {:>9}  {:>15}  {:>12}  {:>12}", "", "", "examples", "P[e > ε] ≤", "P[e > ε] ≤")?;
        writeln!(f, "{:>9}  {:>9}  {:>15}  {:>12}  {:>12}", "ε", "ε/rms(Y)", "with e > ε", "this ε alone", "all at once")?;
        writeln!(f, "{}", "─".repeat(65))?;
        for bound in &self.bounds {
            writeln!(
                f,
                "{:>9}  {:>9}  {:>15}  {:>12}  {:>12}",
                short(bound.epsilon),
                bound.relative_epsilon.map_or("–".into(), short),
                grouped(bound.exceedances),
                rounded_up(bound.alone),
                rounded_up(bound.together),
            )?;
        }
        writeln!(f, "{}", "─".repeat(65))?;

        let quantiles: Vec<String> =
            self.quantiles.iter().map(|q| format!("{} % {}", percent(q.level), rounded_up(q.error))).collect();
        writeln!(f, "errors e    {}   max {}", quantiles.join("   "), rounded_up(self.max_error))?;
        write!(f, "MSE         {:.3e}", self.mse)?;
        if let Some((low, high)) = self.mse_interval {
            write!(f, "   in [{low:.3e}, {high:.3e}] (Student, {}: asymptotic, not guaranteed)", confidence(self.delta))?;
        }
        writeln!(f)?;
        let optional = |v: Option<f64>| v.map_or("–".into(), |v| format!("{v:.3e}"));
        write!(
            f,
            "relative    NMSE {}   RMSE/rms(Y) {}   max/rms(Y) {}   rms(Y) {}",
            optional(self.nmse),
            optional(self.relative_rmse),
            optional(self.relative_max_error),
            short(self.rms_output)
        )
    }
}

/// Three significant digits, never less than the number.
fn rounded_up(value: f64) -> String {
    let rounded = format!("{value:.2e}");
    if value <= 0.0 || !value.is_finite() {
        return short(value);
    }
    let text = match (rounded.parse::<f64>(), rounded.split_once('e')) {
        (Ok(parsed), Some((mantissa, exponent))) if parsed < value => {
            // One more in the last digit: 4.60e-4 → 4.61e-4, and 9.99e-4 → 1.00e-3.
            let digits: u32 = mantissa.replace('.', "").parse().unwrap_or(999);
            let exponent: i32 = exponent.parse().unwrap_or(0);
            match digits + 1 {
                1000 => format!("1.00e{}", exponent + 1),
                digits => format!("{}.{:02}e{exponent}", digits / 100, digits % 100),
            }
        }
        _ => rounded,
    };
    text.parse().map_or(text, short)
}

/// Three significant digits without trailing zeros; plain where that is short.
fn short(value: f64) -> String {
    let text = format!("{value:.2e}");
    let value: f64 = text.parse().unwrap_or(value);
    if value.abs() < 1000.0 && value.abs() >= 0.001 || value.abs() <= 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    format!("{value:e}")
}

/// `10000` as `10 000`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

/// `1 − δ` as a percentage, or as it stands where that would round to 100 %.
fn confidence(delta: f64) -> String {
    if delta < 1e-6 { format!("1 − {delta:e}") } else { format!("{} %", percent(1.0 - delta)) }
}

/// Without the rounding noise of binary fractions.
fn percent(share: f64) -> f64 {
    (share * 1e10).round() / 1e8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up_and_short() {
        let cases =
            [(4.604e-4, "4.61e-4"), (9.991e-9, "1e-8"), (1e-9, "1e-9"), (0.25, "0.25"), (1.0, "1"), (0.0, "0"), (99.91, "100")];
        for (value, text) in cases {
            assert_eq!(rounded_up(value), text);
        }
        for i in 0..2000 {
            let value = 10f64.powf(f64::from(i) / 100.0 - 15.0) * 1.000_3;
            let up: f64 = rounded_up(value).parse().expect("a number");
            assert!(value <= up && up <= 1.0101 * value);
        }
        assert_eq!((grouped(7), grouped(1234), grouped(10_000_000)), ("7".into(), "1 234".into(), "10 000 000".into()));
        assert_eq!((confidence(0.01), confidence(0.001), confidence(1e-9)), ("99 %".into(), "99.9 %".into(), "1 − 1e-9".into()));
    }
}
