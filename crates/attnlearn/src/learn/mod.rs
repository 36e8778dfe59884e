//! The whole job: from examples to a layer, an outcome and a certificate.
//!
//! ```text
//! auto:     descent; if that does not recover a small layer, the six phases; the better of the two
//! descend:  variable projection from random starts (`crate::descend`)
//! sculpt:   the six phases of Chen and Li, then a polish (`crate::sculpt`)
//! ```
//!
//! The last examples, at most a fifth, are held out: only the certificate sees them. Every door to the library (the program, the Python package)
//! goes through here, so that the same examples, settings and seed give the same bits, the same words and the same files.
//!
//! [`Settings`] are checked against a source, which gives a [`Plan`]; a plan runs under the eyes of a [`Watch`] and comes to an [`Answer`].

mod answer;
mod descent;
mod keeping;
mod lack_of_fit;
mod limit;
mod report;
mod settings;
mod telling;
mod watch;

pub use answer::{Answer, Sculpted};
pub use descent::{Descended, Noise};
pub use keeping::Keeping;
pub use lack_of_fit::{Dependence, LackOfFit, Verdict};
pub use report::{DescendReport, SculptReport, StageErrors, TryReport, sculpt_notes};
pub use settings::{FEW, Heads, Method, Settings};
pub use telling::{Live, told};
pub use watch::{Event, Parts, Unwatched, Watch};

use crate::data::{Block, ExampleSource, Watched, scan};
use crate::sculpt::{self, ValidSettings};
use crate::{Error, Result};
use descent::Descent;
use limit::Limited;
use std::time::{Duration, Instant};
use watch::{Phases, Reader, Silent};

/// What has been checked against a source of examples.
pub struct Plan<'a> {
    source: &'a dyn ExampleSource,
    /// Time for all searches together.
    limit: Option<Duration>,
    route: Route,
}

/// Which learners, and in which order.
enum Route {
    /// The six phases.
    Sculpt(ValidSettings),
    /// Descent, and the six phases should it fail.
    Descend(Box<Descent>, Option<ValidSettings>),
}

impl Plan<'_> {
    /// Learns. The search that was kept meanwhile stays until it is [forgotten](Self::forget).
    pub fn run(&self, watch: &dyn Watch) -> Result<Answer> {
        let (descent, sculpt) = match &self.route {
            Route::Sculpt(settings) => return Ok(Answer::Sculpted(Box::new(self.sculpt(settings, watch)?))),
            Route::Descend(descent, sculpt) => (descent, sculpt),
        };
        let limited = Limited::new(watch, self.limit);
        let mut found = descent.learn(self.source, &limited)?;
        let settings = match sculpt {
            Some(settings) if !found.recovered && !found.out_of_time => settings,
            _ => return Ok(Answer::Descended(Box::new(found))),
        };
        watch.tell(Event::NotByDescent(&found.text));
        descent.keeping.keep(&found)?;
        descent.keeping.forget()?;
        let sculpted = match self.sculpt(settings, &limited) {
            Err(Error::Interrupted) if limited.passed() => {
                found.text.push_str("; the limit of time ended the six phases");
                found.out_of_time = true;
                return Ok(Answer::Descended(Box::new(found)));
            }
            sculpted => sculpted?,
        };
        if sculpted.is_better_than(found.nmse) {
            return Ok(Answer::Sculpted(Box::new(sculpted)));
        }
        found.seconds += sculpted.seconds;
        Ok(Answer::Descended(Box::new(found)))
    }

    /// Removes the search that was kept: it is over, and its answer safe.
    pub fn forget(&self) -> Result<()> {
        match &self.route {
            Route::Descend(descent, _) => descent.keeping.forget(),
            Route::Sculpt(_) => Ok(()),
        }
    }

    fn sculpt(&self, settings: &ValidSettings, watch: &dyn Watch) -> Result<Sculpted> {
        let (begun, examples) = (Instant::now(), self.source.len());
        watch.tell(Event::Sculpt { examples, shape: self.source.shape() });
        if let Some(n) = examples.map(|n| n.min(settings.most_examples)) {
            // All of them once, so that one that is not finite is named even if the learner would not have come across it.
            watch.tell(Event::Pass { what: "examples checked", examples: n });
            let reader = Reader(watch);
            let source = Watched::new(self.source, &reader).at_most(n);
            scan::<f32, _>(&source, 0..n.div_ceil(Block::<f32>::CAPACITY as u64), |_| (), |()| ())?;
            watch.tell(Event::PassEnded);
        }
        watch.tell(Event::PhasesBegin);
        let silent = Silent(watch);
        let source = Watched::new(self.source, &silent).at_most(settings.most_examples);
        let learned = sculpt::learn(&source, settings, &Phases(watch))?;
        Ok(Sculpted { learned, settings: settings.clone(), seconds: begun.elapsed().as_secs_f64() })
    }
}
