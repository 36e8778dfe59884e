//! Errors: what is wrong, where, and what to do about it, on one line.

use crate::words::{Setting, Wording};
use std::path::Path;

/// The result of everything that can meet bad input.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Bad input. An honest run that ends without an answer is an outcome, not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something given by the user cannot be used.
    #[error("{place}: {problem}; {remedy}")]
    Input {
        /// Which file, tensor, setting or example.
        place: Wording,
        /// What is wrong with it.
        problem: Wording,
        /// What to do.
        remedy: Wording,
    },
    /// The operating system refused.
    #[error("{place}: {source}")]
    Io {
        /// The path or operation concerned.
        place: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The caller asked for the work to stop (Ctrl-C).
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Bad input at `place`: the problem and the remedy, each a clause without a full stop.
    pub fn input(place: impl Into<Wording>, problem: impl Into<Wording>, remedy: impl Into<Wording>) -> Self {
        // A path is long enough in itself; a message is not meant to be a page.
        const PLACE: usize = 5000;
        const CLAUSE: usize = 2000;
        Self::Input { place: place.into().cut(PLACE), problem: problem.into().cut(CLAUSE), remedy: remedy.into().cut(CLAUSE) }
    }

    /// An input/output error about a path.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { place: path.display().to_string(), source }
    }

    /// The message, with the names that settings have where it is read.
    pub fn told(&self, name: &dyn Fn(&Setting) -> String) -> String {
        match self {
            Self::Input { place, problem, remedy } => {
                let [place, problem, remedy] = [place, problem, remedy].map(|clause| clause.told(name));
                format!("{place}: {problem}; {remedy}")
            }
            Self::Io { .. } | Self::Interrupted => self.to_string(),
        }
    }
}
