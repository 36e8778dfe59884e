//! What goes on while a layer is learned, for those who watch.

use super::parts::Parts;
use crate::Error;
use crate::data::{Reading, Shape};
use crate::descend::{Learner, Try};
use crate::sculpt::{self, Phase, Record};
use std::path::Path;

/// Something that happens.
pub enum Event<'a> {
    /// A pass over so many examples begins.
    Pass {
        /// What happens to them.
        what: &'static str,
        /// How many.
        examples: u64,
    },
    /// So many more of them have been read.
    Read(u64),
    /// The pass is over.
    PassEnded,
    /// The examples have been shared out.
    Shared(Parts),
    /// The search has made a step.
    Step(&'a Learner<'a>),
    /// The search is done with a form.
    Tried(&'a Try),
    /// The search was stopped, and what there is kept.
    Checkpointed {
        /// Where it can be continued from.
        checkpoint: &'a Path,
        /// The best layer so far.
        layer: Option<&'a Path>,
        /// Its share of unexplained variance on the examples to choose by.
        nmse: f64,
    },
    /// The limit of time has ended the search.
    OutOfTime {
        /// Where it can be continued from.
        checkpoint: Option<&'a Path>,
    },
    /// Descent does not explain the examples to choose by, and how that shows; the six phases follow.
    NotByDescent(&'a str),
    /// The six phases could not be tried, and why; what descent found stays.
    NotByPhases(&'a Error),
    /// The six phases are next.
    Sculpt {
        /// Examples there are, if there is an end.
        examples: Option<u64>,
        /// Sizes of an example.
        shape: Shape,
    },
    /// They begin.
    PhasesBegin,
    /// One of them begins.
    Phase(Phase),
    /// `done` of `total` examples of its pass have been read.
    Advance {
        /// So many.
        done: u64,
        /// Of so many.
        total: u64,
    },
    /// It has ended.
    Record(&'a Record),
}

/// Who watches: is told what happens, and may stop it.
pub trait Watch: Sync {
    /// Something happens.
    fn tell(&self, _event: Event<'_>) {}
    /// Whether to stop now; learning then ends with [`crate::Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// Watches nothing.
pub struct Unwatched;
impl Watch for Unwatched {}

/// The six phases, told as events.
pub(super) struct PhaseEvents<'a>(pub &'a dyn Watch);

impl sculpt::Watch for PhaseEvents<'_> {
    fn begin(&self, phase: Phase) {
        self.0.tell(Event::Phase(phase));
    }

    fn advance(&self, done: u64, total: u64) {
        self.0.tell(Event::Advance { done, total });
    }

    fn end(&self, record: &Record) {
        self.0.tell(Event::Record(record));
    }

    fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}

/// Reads under the eyes of a watch.
pub(super) struct Reader<'a>(pub &'a dyn Watch);

impl Reading for Reader<'_> {
    fn read(&self, examples: u64) {
        self.0.tell(Event::Read(examples));
    }

    fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}

/// The same without a count: the phases count for themselves.
pub(super) struct Silent<'a>(pub &'a dyn Watch);

impl Reading for Silent<'_> {
    fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}
