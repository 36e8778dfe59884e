//! Numbers for people, in one way everywhere; and texts that name settings, each reader's way.
//!
//! A setting is a field to those who call the library, a flag to those who run the program, an argument to those who write Python. So a [`Wording`] holds
//! which [`Setting`] is meant, and whoever shows it says what that is called there.

use std::fmt;

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

/// A setting that a text speaks of, by the name of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name.
    pub name: &'static str,
    /// What it is set to, if that is said.
    pub value: Option<Value>,
}

/// What a setting is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A switch is on or off.
    Switch(bool),
    /// It has this value.
    Given(String),
}

impl Setting {
    /// The setting, whatever it is set to.
    pub fn new(name: &'static str) -> Self {
        Self { name, value: None }
    }

    /// A switch that is on or off.
    pub fn switch(name: &'static str, on: bool) -> Self {
        Self { name, value: Some(Value::Switch(on)) }
    }

    /// Set to a value.
    pub fn to(name: &'static str, value: impl fmt::Display) -> Self {
        Self { name, value: Some(Value::Given(value.to_string())) }
    }
}

/// As a field.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => f.write_str(self.name),
            Some(Value::Switch(on)) => write!(f, "{} = {on}", self.name),
            Some(Value::Given(value)) => write!(f, "{} = {value}", self.name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Setting(Setting),
}

/// A text that may speak of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wording(Vec<Piece>);

impl Wording {
    /// With more behind it.
    #[must_use]
    pub fn then(mut self, more: impl Into<Self>) -> Self {
        self.0.extend(more.into().0);
        self
    }

    /// The text, with the names that settings have where it is read.
    pub fn told(&self, name: &dyn Fn(&Setting) -> String) -> String {
        let told = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Setting(setting) => name(setting),
        };
        self.0.iter().map(told).collect()
    }

    /// With no text of more than so many bytes.
    pub(crate) fn cut(self, most: usize) -> Self {
        let cut = |piece| match piece {
            Piece::Text(text) => Piece::Text(cut(text, most)),
            Piece::Setting(_) => piece,
        };
        Self(self.0.into_iter().map(cut).collect())
    }
}

/// With settings as fields.
impl fmt::Display for Wording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&Setting::to_string))
    }
}

/// As it reads with settings as fields.
impl PartialEq<str> for Wording {
    fn eq(&self, other: &str) -> bool {
        self.told(&Setting::to_string).as_str() == other
    }
}

impl From<String> for Wording {
    fn from(text: String) -> Self {
        Self(vec![Piece::Text(text)])
    }
}

impl From<&String> for Wording {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<&str> for Wording {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Setting> for Wording {
    fn from(setting: Setting) -> Self {
        Self(vec![Piece::Setting(setting)])
    }
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

    /// Settings have the names that the reader knows, and fields' names where nobody says another.
    #[test]
    fn settings_are_named_by_who_shows_them() {
        let text = Wording::from("allow more with ").then(Setting::to("memory", 0.5));
        let text = text.then(", or not ").then(Setting::switch("resume", true));
        assert_eq!(text.to_string(), "allow more with memory = 0.5, or not resume = true");
        assert_eq!(text.told(&|setting| format!("--{}", setting.name)), "allow more with --memory, or not --resume");
        assert_eq!(
            Wording::from("äöü").then(Setting::new("memory")).cut(2).to_string(),
            format!("{}memory", cut("äöü".into(), 2))
        );
    }
}
