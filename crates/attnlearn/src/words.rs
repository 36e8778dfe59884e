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

/// Characters of a text from a file that a message shows.
const SHOWN: usize = 120;

/// A text from a file as messages show it: escaped, so that it cannot speak to a terminal, and not too long.
pub fn quoted(text: &str) -> String {
    if text.len() <= SHOWN {
        return text.escape_debug().to_string();
    }
    let mut characters = text.chars();
    let shown: String = characters.by_ref().take(SHOWN).collect();
    let shown = shown.escape_debug().to_string();
    if characters.next().is_some() { shown + "…" } else { shown }
}

/// The first `most` bytes or so of a text that is longer, and an ellipsis.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate((0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0));
        text.push('…');
    }
    text
}

/// A shape from a file as messages show it: of very many dimensions only the first.
pub fn shape(sizes: &[usize]) -> String {
    const MOST: usize = 8;
    if sizes.len() <= MOST {
        return format!("{sizes:?}");
    }
    let first: Vec<String> = sizes[..MOST].iter().map(usize::to_string).collect();
    format!("[{}, …]", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_files_are_escaped_and_short() {
        assert_eq!(quoted("layer.0"), "layer.0");
        assert_eq!(quoted("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(quoted(&"é".repeat(SHOWN)), "é".repeat(SHOWN));
        assert_eq!(quoted(&"é".repeat(70_000)), "é".repeat(SHOWN) + "…");
        assert!(quoted(&"\u{202e}".repeat(1_000_000)).len() < 12 * SHOWN);
        assert_eq!(shape(&[2, 3]), "[2, 3]");
        assert_eq!(shape(&[1; 100_000]), "[1, 1, 1, 1, 1, 1, 1, 1, …]");
        assert_eq!(shape(&[]), "[]");
        assert_eq!((cut("abc".into(), 3), cut("äöü".into(), 3)), ("abc".into(), "ä…".into()));
    }

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
