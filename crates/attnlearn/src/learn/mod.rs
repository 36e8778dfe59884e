//! The whole job: from examples to a layer, an outcome and a certificate.
//!
//! ```text
//! auto:     descent; if that does not recover a small layer, the six phases; the better of the two
//! descend:  variable projection from random starts (`crate::descend`)
//! sculpt:   the six phases of Chen and Li, then a polish (`crate::sculpt`)
//! ```
//!
//! Examples are shared out first, by the seed and their inputs (see `split.rs`): at most a fifth is held out, others choose. Which learner runs, when it
//! stops and whose answer it is are decided by what is learned from and what chooses. Then the answer is certified, once, on held-out examples: nothing that
//! depends on them is decided, so their certificate has the confidence that it says. A source without an end is taken for one of
//! [`Settings::most_examples`]; only the six phases alone draw from it as they go.
//!
//! Every door to the library (the program, the Python package) goes through here, so that the same examples, settings and seed give the same bits, the same
//! words and the same files.
//!
//! [`Settings`] are checked against a source, once, which gives a [`Plan`]; a plan runs on that source under the eyes of a [`Watch`] and comes to an
//! [`Answer`].

mod answer;
mod budget;
mod checkpointing;
mod descent;
mod ending;
mod lack_of_fit;
mod limit;
mod noise;
mod parts;
mod progress;
mod report;
mod settings;
mod split;
#[cfg(test)]
mod tests;
mod watch;

pub use answer::{Answer, Details, Phases, Search};
pub use checkpointing::{Checkpointing, checkpoint_beside};
pub use lack_of_fit::{Dependence, LackOfFit, Verdict};
pub use noise::{Noise, Short};
pub use parts::Parts;
pub use progress::{Progress, describe};
pub use report::{Report, SettingsReport};
pub use settings::{FEWEST_FOR_PHASES, Heads, Method, Settings};
pub use watch::{Event, Unwatched, Watch};

use crate::data::{Block, ExampleSource, Shape, Watched, scan};
use crate::engine::Batch;
use crate::sculpt::{self, Purposes, ValidSettings};
use crate::{Error, Result};
use descent::{Descent, Searched, mean_square};
use limit::Limited;
use split::{Division, Sides};
use std::time::{Duration, Instant};
use watch::{PhaseEvents, Reader, Silent};

/// What has been checked against a source of examples.
pub struct Plan {
    /// Sizes and number of the examples.
    checked: (Shape, Option<u64>),
    /// Time for all searches together.
    limit: Option<Duration>,
    route: Route,
    /// Most examples read.
    most: u64,
    division: Division,
}

/// Which learners, and in which order.
enum Route {
    /// The six phases.
    Sculpt(ValidSettings),
    /// Descent, and the six phases should it fail.
    Descend(Box<Descent>, Option<ValidSettings>),
}

impl Plan {
    /// Learns from the source that the settings were checked against. Its checkpoint stays until it is [removed](Self::remove_checkpoint).
    pub fn run(&self, source: &dyn ExampleSource, watch: &dyn Watch) -> Result<Answer> {
        if self.checked != (source.shape(), source.len()) {
            return Err(Error::input("examples", "others than those that were checked", "check the settings against these"));
        }
        let begun = Instant::now();
        let (descent, sculpt) = match &self.route {
            Route::Sculpt(settings) => return self.phases_alone(settings, source, begun, watch),
            Route::Descend(descent, sculpt) => (descent, sculpt),
        };
        let _claim = descent.checkpointing.claim()?;
        let (mut sides, learn) = self.shared_in_memory(source, watch)?;
        let limited = Limited::new(watch, self.limit);
        let (mut found, choose) = descent.learn(learn, sides.take_choose(), &limited)?;
        sides.choose = choose;
        let nmse = found.chosen_by;
        let stopped = |error: Error| {
            if let (Error::Interrupted, Some(checkpoint)) = (&error, descent.checkpointing.file.as_deref()) {
                watch.tell(Event::Checkpointed { checkpoint, layer: descent.checkpointing.layer.as_deref(), nmse });
            }
            error
        };
        if !found.explains() {
            // The search is kept, being over, until the answer is safe: who stops what follows continues with it.
            descent.checkpointing.save_layer(&found.outcome.layer, &found.notes)?;
        }
        if let Some(settings) = sculpt.as_ref().filter(|_| !found.explains() && !found.out_of_time) {
            watch.tell(Event::NotByDescent(&found.text()));
            match self.sculpt(settings, source, &sides, begun, &limited) {
                Err(Error::Interrupted) if limited.passed() => {
                    watch.tell(Event::OutOfTime { checkpoint: descent.checkpointing.file.as_deref() });
                    found.out_of_time = true;
                }
                Err(Error::Interrupted) => return Err(stopped(Error::Interrupted)),
                // What they cannot be given, sizes beyond single precision say, is no reason to lose what descent has found.
                Err(error) => watch.tell(Event::NotByPhases(&error)),
                Ok(sculpted) => {
                    if better(&sculpted, &found, &sides.choose)? {
                        return Ok(sculpted);
                    }
                }
            }
        }
        descent.certified(found, &sides.certify, sides.parts, begun, watch).map_err(stopped)
    }

    /// Removes the checkpoint: the search is over, and its answer safe.
    pub fn remove_checkpoint(&self) -> Result<()> {
        match &self.route {
            Route::Descend(descent, _) => descent.checkpointing.remove(),
            Route::Sculpt(_) => Ok(()),
        }
    }

    /// Examples there are, up to those asked for.
    fn examples(&self) -> u64 {
        self.checked.1.unwrap_or(u64::MAX).min(self.most)
    }

    /// The examples shared out, those to learn from in memory, as far as they fit.
    fn shared_in_memory(&self, source: &dyn ExampleSource, watch: &dyn Watch) -> Result<(Sides, Batch<f64>)> {
        let (shape, memory) = (source.shape(), self.division.memory);
        let (n, most) = (self.examples(), budget::most_examples(shape, memory));
        budget::check(budget::of_search(shape, n.min(most as u64).max(LEAST)), memory, "learning from examples in memory")?;
        let mut sides = self.division.of(source, n, Some(most), watch)?;
        watch.tell(Event::Shared(sides.parts));
        // Those to learn from are looked at when they are; what judges would fail after all the work.
        for side in [&sides.choose, &sides.certify] {
            side.squares_are_numbers()?;
        }
        let none = || Error::input("examples", "none to learn from", "give more");
        let learn = sides.learn.take().filter(|learn| !learn.is_empty()).ok_or_else(none)?;
        Ok((sides, learn))
    }

    fn phases_alone(
        &self,
        settings: &ValidSettings,
        source: &dyn ExampleSource,
        begun: Instant,
        watch: &dyn Watch,
    ) -> Result<Answer> {
        if source.len().is_some() {
            let sides = self.division.of(source, self.examples(), None, watch)?;
            watch.tell(Event::Shared(sides.parts));
            return self.sculpt(settings, source, &sides, begun, watch);
        }
        watch.tell(Event::Sculpt { examples: None, shape: source.shape() });
        watch.tell(Event::PhasesBegin);
        let silent = Silent(watch);
        let learned = sculpt::learn(&Watched::new(source, &silent), settings, &PhaseEvents(watch))?;
        Ok(Answer::of_phases(learned, settings, None, begun.elapsed().as_secs_f64()))
    }

    /// The six phases on examples that have been shared out.
    fn sculpt(
        &self,
        settings: &ValidSettings,
        source: &dyn ExampleSource,
        sides: &Sides,
        begun: Instant,
        watch: &dyn Watch,
    ) -> Result<Answer> {
        let n = self.examples();
        watch.tell(Event::Sculpt { examples: Some(n), shape: source.shape() });
        // All of them once, so that one that is not finite in single precision is named even if the learner would not have come across it.
        watch.tell(Event::Pass { what: "examples checked", examples: n });
        let reader = Reader(watch);
        let counted = Watched::new(source, &reader).at_most(n);
        scan::<f32, _>(&counted, 0..n.div_ceil(Block::<f32>::CAPACITY as u64), |_| (), |()| ())?;
        watch.tell(Event::PassEnded);
        watch.tell(Event::PhasesBegin);
        let silent = Silent(watch);
        let source = Watched::new(source, &silent).at_most(n);
        let learning = sides.learning(&source);
        let purposes = Purposes { learn: &learning, choose: &sides.choose, certify: &sides.certify };
        let learned = sculpt::learn_apart(purposes, settings, &PhaseEvents(watch))?;
        Ok(Answer::of_phases(learned, settings, Some(sides.parts), begun.elapsed().as_secs_f64()))
    }
}

/// Fewest examples that a refusal speaks of.
const LEAST: u64 = 10;

/// Whether the six phases have a layer that is better than that of descent, by the examples to choose by.
fn better(sculpted: &Answer, found: &Searched, choose: &Batch<f64>) -> Result<bool> {
    let Some(layer) = &sculpted.layer else { return Ok(false) };
    Ok(mean_square(layer, choose)? < mean_square(&found.outcome.layer, choose)?)
}
