//! Text, numbers and widths as SVG has them. What is drawn refers to colours by class only: a file brings a style sheet of its own, and in the report
//! the classes follow the page.

/// A drawing without its frame, so that it can stand alone or beside others.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// Width in user units.
    pub width: f64,
    /// Height in user units.
    pub height: f64,
    /// Elements.
    pub body: String,
}

/// Text between tags and within quotes. Characters that XML forbids are replaced.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate: to a hundredth, without what is not needed.
pub fn num(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// How wide a text is at most in the common fonts without serifs: which of them is there is not known.
pub fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | '·' | '!' => 0.33,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '[' | ']' | '-' | '/' | 'I' => 0.41,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '→' | '↑' | '∞' | '…' => 0.96,
        '⁰'..='⁾' | '₀'..='₎' | '¹' | '²' | '³' => 0.42,
        'A'..='Z' | '−' | '+' | '=' | '<' | '>' | '≤' | '≥' | '×' | '–' | '‖' => 0.72,
        _ => 0.61,
    };
    size * text.chars().map(em).sum::<f64>()
}

/// Lines that are no wider than `room`, broken between words; a word that is too wide is cut.
pub fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(word, size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(cut(word, size, room)),
        }
    }
    lines
}

/// The text, or its beginning and `…` where it is too wide.
pub fn cut(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.into();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if width(&kept, size) + width("…", size) > room {
            kept.pop();
            break;
        }
    }
    format!("{}…", kept.trim_end())
}

/// Where a text is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// It begins here.
    Start,
    /// Its middle is here.
    Middle,
    /// It ends here.
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A line of text; `content` is markup.
pub fn text(class: &str, x: f64, y: f64, size: f64, anchor: Anchor, content: &str) -> String {
    let (x, y, size, anchor) = (num(x), num(y), num(size), anchor.name());
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{content}</text>")
}

/// A straight line.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64), thick: f64) -> String {
    let [x1, y1, x2, y2, thick] = [from.0, from.1, to.0, to.1, thick].map(num);
    format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke-width=\"{thick}\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_numbers_are_short() {
        assert_eq!(escape("a<b & \"c\" 'd'\u{0}"), "a&lt;b &amp; &quot;c&quot; &#39;d&#39;\u{fffd}");
        let cases = [(0.0, "0"), (-0.001, "0"), (1.5, "1.5"), (120.0, "120"), (-3.146, "-3.15")];
        for (value, text) in cases {
            assert_eq!(num(value), text);
        }
    }

    /// Every line fits, and no word is lost unless it is too wide by itself.
    #[test]
    fn lines_fit() {
        let words = "error of the attention matrices, relative, against the number of examples n";
        for room in [60.0, 90.0, 150.0, 400.0] {
            let lines = wrap(words, 12.0, room);
            assert!(lines.iter().all(|line| width(line, 12.0) <= room), "{lines:?}");
            if room > 80.0 {
                assert_eq!(lines.join(" "), words);
            }
        }
        let short = cut("permutation-like", 12.0, 50.0);
        assert!(short.ends_with('…') && width(&short, 12.0) <= 50.0, "{short}");
    }
}
