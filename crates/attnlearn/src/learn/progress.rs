//! The progress of a search, in words.

use crate::descend::{Learner, Stage, Try};
use crate::words::{duration, error, plural};
use std::time::{Duration, Instant};

/// Time between two counts of the heads in use.
const COUNTED: Duration = Duration::from_secs(10);

/// A form that was tried, on one line.
pub fn describe(one: &Try) -> String {
    let form = &one.form;
    let rank = form.rank.map_or(String::new(), |r| format!(" of rank {r}"));
    let biases = if form.bias { " with biases" } else { "" };
    format!("{}{rank}{biases}: NMSE {}", plural(form.heads, "head"), error(one.held_out))
}

/// The line that tells what goes on.
pub struct Progress {
    /// Step of descent and when it was made, to tell the rate.
    since: (usize, Instant),
    counted: Option<Instant>,
    in_use: Option<usize>,
}

impl Progress {
    /// From the beginning.
    pub fn new(learner: &Learner<'_>) -> Self {
        Self { since: (step(learner).unwrap_or(0), Instant::now()), counted: None, in_use: None }
    }

    /// Error, heads in use, rate and an estimate of what is left of the stage.
    pub fn line(&mut self, learner: &Learner<'_>) -> String {
        if self.counted.is_none_or(|at| at.elapsed() >= COUNTED) {
            (self.counted, self.in_use) = (Some(Instant::now()), learner.run.heads_in_use().ok());
        }
        let (run, state) = (&learner.run, &learner.run.state);
        let what = match (step(learner), state.chains.first().map(|chain| &chain.stage)) {
            (Some(now), _) => {
                if now < self.since.0 {
                    self.since = (now, Instant::now());
                }
                let rate = (now - self.since.0) as f64 / self.since.1.elapsed().as_secs_f64().max(1e-3);
                let left = run.descent_steps().saturating_sub(now) as f64 / rate.max(1e-9);
                let left = if rate > 0.0 { format!(", {} left", duration(left)) } else { String::new() };
                format!("descent, step {now} of {}, {rate:.1}/s{left}", run.descent_steps())
            }
            (None, Some(Stage::Refine(newton))) if state.chains.len() == 1 => {
                format!("Gauss–Newton, step {}", newton.history.len())
            }
            _ => format!("{} of at most {} refinements", state.refined, run.most()),
        };
        let best = run.best_nmse().map_or(String::new(), |nmse| format!(", best {}", error(nmse)));
        let heads = self.in_use.map_or(String::new(), |n| format!(", {n} of {} in use", plural(learner.form().heads, "head")));
        format!("start {}: {what}; NMSE {}{best}{heads}", state.starts, error(run.nmse()))
    }
}

/// Step of descent, if that goes on.
fn step(learner: &Learner<'_>) -> Option<usize> {
    match &learner.run.state.chains.first()?.stage {
        Stage::Descend(descent) => Some(descent.0.step),
        _ => None,
    }
}
