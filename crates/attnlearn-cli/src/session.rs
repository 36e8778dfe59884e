//! What every command has at hand: where to print, where the JSON goes, whether to show progress.

use crate::cli::Shared;
use crate::console::{Console, Stream};
use crate::output;
use crate::progress::Bar;
use attnlearn::{Error, Result};
use clap::ValueEnum;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// At a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Even into files and pipes.
    Always,
    /// Not even at a terminal.
    Never,
}

/// Where the machine-readable result goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Json {
    Nowhere,
    StandardOutput,
    File(PathBuf),
}

/// One run of the program.
#[derive(Debug)]
pub struct Session {
    /// Text for people.
    pub console: Console,
    json: Json,
    quiet: bool,
    /// Progress bars see to NO_COLOR themselves.
    colour_bars: bool,
}

/// The machine-readable result of every command: these two fields, then its own.
#[derive(Serialize)]
struct Envelope<'a, T> {
    version: &'static str,
    command: &'static str,
    #[serde(flatten)]
    result: &'a T,
}

impl Session {
    /// Prepares threads and streams. Fails if the JSON file cannot be written.
    pub fn begin(shared: &Shared) -> Result<Self> {
        // Where memory or processes are limited threads may not start; asked for now, that is an error and no panic.
        let threads = shared.threads.map_or(0, usize::from);
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().map_err(|e| {
            Error::input(
                "--threads",
                format!("they cannot be started ({e})"),
                "ask for fewer, or allow more memory and processes",
            )
        })?;
        let json = match (&shared.json, shared.json_file()) {
            (None, _) => Json::Nowhere,
            (Some(_), None) => Json::StandardOutput,
            (Some(_), Some(path)) => {
                output::writable(path)?;
                Json::File(path.to_owned())
            }
        };
        let stream = match (shared.quiet, &json) {
            (true, _) => Stream::Nowhere,
            (false, Json::StandardOutput) => Stream::Error,
            (false, _) => Stream::Output,
        };
        let colour = match shared.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => stream.is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb"),
        };
        let colour_bars = shared.color != Colour::Never;
        Ok(Self { console: Console::new(stream, colour), json, quiet: shared.quiet, colour_bars })
    }

    /// A progress bar over `total` units, on standard error when that is a terminal.
    pub fn bar(&self, total: u64, what: &'static str) -> Bar {
        match (self.shows_progress(), self.wants_signs()) {
            (true, _) => Bar::new(total, what, self.colour_bars),
            (false, true) => Bar::told(Some(total), what),
            (false, false) => Bar::hidden(),
        }
    }

    /// A sign of life during work of unknown length, likewise.
    pub fn spinner(&self) -> Bar {
        match (self.shows_progress(), self.wants_signs()) {
            (true, _) => Bar::spinner(self.colour_bars),
            (false, true) => Bar::told(None, "at work"),
            (false, false) => Bar::hidden(),
        }
    }

    /// Whether there is somebody to watch.
    fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Whether plain lines on standard error have to stand for a progress bar.
    pub fn wants_signs(&self) -> bool {
        !self.quiet && !std::io::stderr().is_terminal()
    }

    /// The file that the JSON goes to, if it goes to one.
    pub fn json_file(&self) -> Option<&Path> {
        match &self.json {
            Json::File(path) => Some(path),
            _ => None,
        }
    }

    /// Hands out the machine-readable result, if it was asked for.
    pub fn publish(&self, command: &'static str, result: &impl Serialize) -> Result<()> {
        if self.json == Json::Nowhere {
            return Ok(());
        }
        let envelope = Envelope { version: env!("CARGO_PKG_VERSION"), command, result };
        let mut text = serde_json::to_string_pretty(&envelope)
            .map_err(|e| Error::input("--json", format!("the result cannot be written as JSON ({e})"), "leave --json out"))?;
        text.push('\n');
        match &self.json {
            Json::Nowhere => Ok(()),
            Json::StandardOutput => to_standard_output(text.as_bytes()),
            Json::File(path) => attnlearn::files::write_atomically(path, text.as_bytes()),
        }
    }

    /// Says why nothing was recovered even to those who wanted to hear nothing.
    pub fn insist(&self, reason: &str) {
        if self.quiet {
            crate::console::complain(reason);
        }
    }

    /// Fails if something that was printed did not arrive.
    pub fn end(self) -> Result<()> {
        self.console.end()
    }
}

/// Writes to standard output; a reader that has gone away is no error.
pub fn to_standard_output(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Error::Io { place: "standard output".into(), source: e }),
        _ => Ok(()),
    }
}

/// Whether an environment variable is there and not empty.
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
