//! What is shown while `attnlearn learn` learns.

use crate::console::{error, grouped};
use crate::interrupt;
use crate::progress::{Bar, PhaseWatch};
use crate::report;
use crate::session::Session;
use attnlearn::learn::{Event, Live, Watch, told};
use attnlearn::sculpt::Watch as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Prints what happens, and shows what goes on.
pub struct LearnWatch<'a> {
    session: &'a Session,
    /// What is shown now.
    shown: Mutex<(Bar, Option<Live>)>,
    phases: OnceLock<PhaseWatch<'a>>,
}

impl<'a> LearnWatch<'a> {
    /// Shows nothing yet.
    pub fn new(session: &'a Session) -> Self {
        Self { session, shown: Mutex::new((Bar::hidden(), None)), phases: OnceLock::new() }
    }

    fn shown(&self) -> MutexGuard<'_, (Bar, Option<Live>)> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phases(&self) -> &PhaseWatch<'a> {
        self.phases.get_or_init(|| PhaseWatch::new(&self.session.console, self.session.spinner()))
    }
}

impl Watch for LearnWatch<'_> {
    fn tell(&self, event: Event<'_>) {
        let console = &self.session.console;
        match event {
            Event::Pass { what, examples } => *self.shown() = (self.session.bar(examples, what), None),
            Event::Read(examples) => self.shown().0.advance(examples),
            Event::PassEnded => *self.shown() = (Bar::hidden(), None),
            Event::Shared(parts) => {
                console.say(parts);
                *self.shown() = (self.session.spinner(), None);
            }
            Event::Step(learner) => {
                let (bar, live) = &mut *self.shown();
                bar.tell(live.get_or_insert_with(|| Live::new(learner)).line(learner));
            }
            Event::Tried(one) => self.shown().0.suspend(|| console.say(format!("  {}", told(one)))),
            Event::Kept { checkpoint, layer, nmse } => self.shown().0.suspend(|| {
                console.say(format!("kept the search in {}: continue with --resume", checkpoint.display()));
                if let Some(layer) = layer {
                    let layer = layer.display();
                    console
                        .say(format!("wrote {layer}, the best layer so far: NMSE {} on the examples to choose by", error(nmse)));
                }
            }),
            Event::NotByDescent(why) => {
                *self.shown() = (Bar::hidden(), None);
                console.gap();
                console.say(format!("descent: {why}; now the six phases"));
            }
            Event::Sculpt { examples, shape } => {
                let examples = grouped(examples.unwrap_or(0));
                console.say(format!("{examples} examples, k = {}, d = {}, d_out = {}", shape.k, shape.d, shape.d_out));
            }
            Event::PhasesBegin => {
                console.gap();
                report::phase_header(console);
            }
            Event::Phase(phase) => self.phases().begin(phase),
            Event::Advance { done, total } => self.phases().advance(done, total),
            Event::Record(record) => self.phases().end(record),
        }
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}
