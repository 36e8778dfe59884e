//! What is shown while `attnlearn learn` learns.

use crate::console::{error, grouped};
use crate::interrupt;
use crate::progress::{Bar, PhaseWatch};
use crate::report;
use crate::session::Session;
use crate::values::flag;
use attnlearn::learn::{Event, Progress, Watch, describe};
use attnlearn::sculpt::Watch as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time between two signs of life.
const EVERY: Duration = Duration::from_secs(30);

/// Says when the next sign of life is due.
#[derive(Debug)]
pub struct SignOfLife {
    every: Duration,
    last: Instant,
}

impl SignOfLife {
    /// Every half minute, from now on.
    pub fn begin() -> Self {
        Self::new(EVERY)
    }

    fn new(every: Duration) -> Self {
        Self { every, last: Instant::now() }
    }

    /// Whether so much time has passed since the last one; then this is it.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.last) >= self.every;
        if due {
            self.last = now;
        }
        due
    }
}

/// Prints what happens, and shows what goes on.
pub struct LearnWatch<'a> {
    session: &'a Session,
    /// What is shown now.
    shown: Mutex<(Bar, Option<Progress>)>,
    phases: OnceLock<PhaseWatch<'a>>,
    /// For those who do not see the bar.
    sign: Option<Mutex<SignOfLife>>,
}

impl<'a> LearnWatch<'a> {
    /// Shows nothing yet.
    pub fn new(session: &'a Session) -> Self {
        Self {
            session,
            shown: Mutex::new((Bar::hidden(), None)),
            phases: OnceLock::new(),
            sign: session.wants_signs().then(|| Mutex::new(SignOfLife::new(EVERY))),
        }
    }

    fn shown(&self) -> MutexGuard<'_, (Bar, Option<Progress>)> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plain line every so often, where no bar is seen.
    fn sign(&self, line: impl FnOnce() -> String) {
        if let Some(sign) = &self.sign
            && sign.lock().unwrap_or_else(PoisonError::into_inner).is_due(Instant::now())
        {
            crate::console::complain(&line());
        }
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
                console.say(parts.text().told(&flag));
                *self.shown() = (self.session.spinner(), None);
            }
            Event::Step(learner) => {
                let (bar, progress) = &mut *self.shown();
                let progress = progress.get_or_insert_with(|| Progress::new(learner));
                if self.sign.is_none() {
                    bar.tell(progress.line(learner));
                }
                self.sign(|| progress.line(learner));
            }
            Event::Tried(one) => self.shown().0.suspend(|| console.say(format!("  {}", describe(one)))),
            Event::Checkpointed { checkpoint, layer, nmse } => self.shown().0.suspend(|| {
                console.say(format!("kept the search in {}: continue with --resume", checkpoint.display()));
                if let Some(layer) = layer {
                    let layer = layer.display();
                    console
                        .say(format!("wrote {layer}, the best layer so far: NMSE {} on the examples to choose by", error(nmse)));
                }
            }),
            Event::OutOfTime { checkpoint } => self.shown().0.suspend(|| {
                if let Some(path) = checkpoint {
                    console.say(format!("time is up: kept the search in {}, continue with --resume", path.display()));
                }
            }),
            Event::NotByDescent(why) => {
                *self.shown() = (Bar::hidden(), None);
                console.gap();
                console.say(format!("descent: {why}; now the six phases"));
            }
            Event::NotByPhases(why) => {
                *self.shown() = (Bar::hidden(), None);
                console.say(format!("the six phases: {}; the answer of descent stays", why.told(&flag)));
            }
            Event::Sculpt { examples: Some(n), shape } => {
                console.say(format!("{} examples, k = {}, d = {}, d_out = {}", grouped(n), shape.k, shape.d, shape.d_out));
            }
            // Of an endless source who asked for it has told what there is to tell.
            Event::Sculpt { examples: None, .. } => {}
            Event::PhasesBegin => {
                console.gap();
                report::phase_header(console);
            }
            Event::Phase(phase) => self.phases().begin(phase),
            Event::Advance { done, total } => {
                self.phases().advance(done, total);
                self.sign(|| format!("the six phases: {} of {} examples of this pass", grouped(done), grouped(total)));
            }
            Event::Record(record) => self.phases().end(record),
        }
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None at first, one when the time has come, and then none until it has come again.
    #[test]
    fn signs_of_life_come_every_so_often() {
        let mut sign = SignOfLife::new(EVERY);
        let begun = sign.last;
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        let told: Vec<bool> = [0, 10, 29, 30, 31, 59, 61, 200, 201].map(|s| sign.is_due(after(s))).into();
        assert_eq!(told, [false, false, false, true, false, false, true, true, false]);
    }
}
