//! Text for people: lines, styles, tables. Nothing here fails or panics when the reader goes away.

pub use attnlearn::words::{duration, error, grouped, number, plural};
use attnlearn::{Error, Result};
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Mutex;

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
            *failed = self.stream.write(&format!("{text}\n")).err();
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

/// One line on standard error, under the program's name.
pub fn complain(message: &str) {
    let one_line = message.replace(['\n', '\r'], " ");
    // If standard error is gone there is nowhere left to say so.
    let _ = writeln!(io::stderr().lock(), "attnlearn: {one_line}");
}
