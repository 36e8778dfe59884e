//! Text for people: lines, styles, tables. Nothing here fails or panics when the reader goes away.

pub use attnlearn::words::{duration, error, grouped, number, plural};
use attnlearn::{Error, Result};
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Mutex;

/// Ends a style, and begins those that there are.
const STYLES: [&str; 5] = ["0", "1", "2", "1;32", "1;31"];

/// Where the text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
    /// Nowhere.
    Nowhere,
}

impl Stream {
    /// Whether somebody may be reading it as it comes.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Output => io::stdout().is_terminal(),
            Self::Error => io::stderr().is_terminal(),
            Self::Nowhere => false,
        }
    }

    fn write(self, text: &str) -> io::Result<()> {
        match self {
            Self::Output => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Self::Error => io::stderr().lock().write_all(text.as_bytes()),
            Self::Nowhere => Ok(()),
        }
    }
}

/// The text of one run.
#[derive(Debug)]
pub struct Console {
    stream: Stream,
    colour: bool,
    /// The first error in printing.
    failed: Mutex<Option<io::Error>>,
}

impl Console {
    /// Prints to `stream`, with or without colours.
    pub fn new(stream: Stream, colour: bool) -> Self {
        Self { stream, colour, failed: Mutex::new(None) }
    }

    /// Whether to use colours.
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// Prints a line (or several).
    pub fn say(&self, text: impl Display) {
        let Ok(mut failed) = self.failed.lock() else { return };
        if failed.is_none() {
            *failed = self.stream.write(&format!("{}\n", printable(&text.to_string(), self.colour))).err();
        }
    }

    /// An empty line.
    pub fn gap(&self) {
        self.say("");
    }

    /// A heading after an empty line.
    pub fn heading(&self, text: &str) {
        self.gap();
        self.say(self.bold(text));
    }

    /// In bold type.
    pub fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    /// Less prominent.
    pub fn dim(&self, text: &str) -> String {
        self.styled("2", text)
    }

    /// Good news.
    pub fn good(&self, text: &str) -> String {
        self.styled("1;32", text)
    }

    /// Bad news.
    pub fn bad(&self, text: &str) -> String {
        self.styled("1;31", text)
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    /// Prints rows under a header, columns aligned: the first to the left, the others to the right.
    pub fn table<const N: usize>(&self, header: [&str; N], rows: &[[String; N]]) {
        let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).chain([header[c].chars().count()]).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        let line = |cells: [&str; N]| {
            let padded = cells.iter().zip(widths).enumerate().map(|(c, (text, width))| match c {
                0 => format!("{text:<width$}"),
                _ => format!("{text:>width$}"),
            });
            format!("  {}", padded.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
        };
        self.say(self.dim(&line(header)));
        for row in rows {
            self.say(line(std::array::from_fn(|c| row[c].as_str())));
        }
    }

    /// Fails if something did not arrive; a reader that has gone away is no error.
    pub fn end(self) -> Result<()> {
        match self.failed.into_inner() {
            Ok(Some(e)) if e.kind() != ErrorKind::BrokenPipe => Err(Error::Io { place: "standard output".into(), source: e }),
            _ => Ok(()),
        }
    }
}

/// What may be printed of a text: names of files may hold anything, also what makes a terminal do things. Lines stay lines, and with `colour` so
/// do the styles that this program uses.
fn printable(text: &str, colour: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = if colour { style(rest) } else { 0 };
        let (shown, after) = rest.split_at(style.max(c.len_utf8()));
        match c {
            _ if style > 0 => out.push_str(shown),
            '\n' => out.push(c),
            // What changes the direction of writing can make a name look like another.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.extend(c.escape_unicode()),
            _ if c.is_control() => out.extend(c.escape_debug()),
            _ => out.push(c),
        }
        rest = after;
    }
    out
}

/// The length of the style that a text begins with, if it is one of [`Console`] or of a heat map.
fn style(text: &str) -> usize {
    let Some((code, _)) = text.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m')) else { return 0 };
    let background = |code: &str| code.strip_prefix("48;2;").is_some_and(|c| c.bytes().all(|b| b.is_ascii_digit() || b == b';'));
    if STYLES.contains(&code) || background(code) { code.len() + 3 } else { 0 }
}

/// One line on standard error, under the program's name.
pub fn complain(message: &str) {
    let one_line = printable(&shortened(&message.replace(['\n', '\r'], " ")), false);
    // If standard error is gone there is nowhere left to say so.
    let _ = writeln!(io::stderr().lock(), "attnlearn: {one_line}");
}

/// A message is not meant to be a page, whatever the arguments are that it repeats: long words are cut.
fn shortened(message: &str) -> String {
    const MOST: usize = 1000;
    let cut = |word: &str| match word.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    };
    message.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        let hostile = "a\x1b[2Jb\x1b]0;title\x07\r\u{9b}31m\u{202e}\t.npz";
        let shown = "a\\u{1b}[2Jb\\u{1b}]0;title\\u{7}\\r\\u{9b}31m\\u{202e}\\t.npz";
        assert_eq!(printable(hostile, false), shown);
        assert_eq!(printable(hostile, true), shown);
        let plain = "wrote ‖Θ‖_F ≤ 6.0\n  λ ↔ é.npz";
        assert_eq!(printable(plain, false), plain);
    }

    #[test]
    fn styles_are_kept_where_there_are_colours() {
        let console = Console::new(Stream::Nowhere, true);
        for text in
            [console.bold("a"), console.dim("b"), console.good("c"), console.bad("d"), "\x1b[48;2;1;20;255m  \x1b[0m".into()]
        {
            assert_eq!(printable(&text, true), text);
            assert!(!printable(&text, false).contains('\x1b'), "{text:?}");
        }
        // Not every style is one of ours: this one hides what follows.
        assert!(!printable("\x1b[8mhidden", true).contains('\x1b'));
    }
}
