//! Numbers for people, in one way everywhere.

/// `1234567` as `1 234 567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A time for people.
pub fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{} min {:02.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor())
    }
}

/// Two significant digits of an error; `–` where there is none.
pub fn error(value: impl Into<Option<f64>>) -> String {
    match value.into() {
        None => "–".into(),
        Some(v) if v.abs() <= 0.0 => "0".into(),
        Some(v) => format!("{v:.1e}"),
    }
}

/// Four significant digits or so, plain where that is short.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size <= 0.0 || (1e-3..1e5).contains(&size) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

/// `1 head`, `2 heads`.
pub fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_whole() {
        assert_eq!([0, 7, 999, 1000, 1_234_567].map(grouped), ["0", "7", "999", "1 000", "1 234 567"]);
        assert_eq!(duration(1.234), "1.23 s");
        assert_eq!(duration(185.0), "3 min 05 s");
        assert_eq!((error(None), error(0.0)), ("–".into(), "0".into()));
        assert_eq!(error(1.24e-9), "1.2e-9");
        assert_eq!(number(0.0), "0.0000");
    }
}
