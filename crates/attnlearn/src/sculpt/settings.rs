//! What can be asked of the six-phase learner.

use crate::data::{ExampleSource, Shape};
use crate::words::{Setting, Wording};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How many heads to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heads {
    /// This many.
    Given(usize),
    /// As many as the spectrum of phase 5 and validation ask for, at most this many.
    Auto {
        /// Largest number tried.
        most: usize,
    },
}

/// Settings of the learner, unchecked. Every field has a default that suits layers with d ≤ 16.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Heads (default: automatic, at most 4).
    pub heads: Heads,
    /// Most distinct examples read from an endless source for learning (default 10⁸). Phases read them again as they need.
    pub most_examples: u64,
    /// Held-out examples for the certificate, at most (default 20 000). A file gives about a fifth of its examples.
    pub held_out: u64,
    /// The search in the span ends the stream when its validation NMSE falls below this (default 3·10⁻³).
    pub goal: f64,
    /// A result is called recovered when its held-out NMSE is at most this (default 10⁻¹²); without the polish it is called approximated
    /// when that is at most `goal`.
    pub recovered: f64,
    /// One minus the confidence of the certificate (default 0.01).
    pub delta: f64,
    /// Use the paper's net over the affine hull for m ≤ 2 before the in-span optimisation (default true).
    pub net: bool,
    /// Find the wide directions of the body by linear programs instead of eigenvectors (default false: slower, and one accidental row
    /// among the slabs widens the whole body).
    pub linear_programs: bool,
    /// Where too few rows agree, certify rows with projections found without a span (default true); otherwise the answer rests on agreement alone.
    pub separate: bool,
    /// Measure how wide the body is with ever more of its slabs (default false: it costs time and is there to be looked at).
    pub sculpture: bool,
    /// Polish the answer over all parameters (default true).
    pub polish: bool,
    /// Seed of the starting points of the search (default 0).
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heads: Heads::Auto { most: 4 },
            most_examples: 100_000_000,
            held_out: 20_000,
            goal: 3e-3,
            recovered: 1e-12,
            delta: 0.01,
            net: true,
            linear_programs: false,
            sculpture: false,
            separate: true,
            polish: true,
            seed: 0,
        }
    }
}

/// Settings that make sense for one source of examples; the only kind that [`super::learn`] takes.
#[derive(Clone, Debug)]
pub struct ValidSettings {
    settings: Settings,
    shape: Shape,
}

impl std::ops::Deref for ValidSettings {
    type Target = Settings;
    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl ValidSettings {
    /// Sizes of the examples that the settings were checked against.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

/// Fewest examples with which anything can be said.
pub const FEWEST_EXAMPLES: u64 = 2_000;

impl Settings {
    /// Checks the settings against a source of examples.
    pub fn check(self, source: &dyn ExampleSource) -> Result<ValidSettings> {
        let shape = source.shape();
        let bad = |place: Wording, problem: String, remedy: String| Err(Error::input(place, problem, remedy));
        if shape.k < 2 {
            return bad(
                "examples".into(),
                format!("sequences of k = {} token", shape.k),
                "attention over one token is no choice at all: give sequences of at least 2 tokens".into(),
            );
        }
        if shape.d > 16 {
            return bad("examples".into(), format!("d = {}", shape.d), "the six-phase learner is built for d ≤ 16".into());
        }
        let allowed = shape.d_out.min(shape.d * shape.d);
        let asked = match self.heads {
            Heads::Given(m) => m,
            Heads::Auto { most } => most,
        };
        if asked == 0 {
            return bad(Setting::new("heads").into(), "0 heads".into(), "ask for at least one".into());
        }
        if let Heads::Given(m) = self.heads
            && m > allowed
        {
            return bad(
                Setting::new("heads").into(),
                format!("{m} heads with d = {}, d_out = {}", shape.d, shape.d_out),
                format!("agreement of more than {allowed} heads cannot be certified at this size: ask for at most {allowed}"),
            );
        }
        if let Some(n) = source.len()
            && n < FEWEST_EXAMPLES
        {
            return bad(
                "examples".into(),
                format!("only {n} of them"),
                format!("the six-phase learner needs at least {FEWEST_EXAMPLES}, and far more as heads are added"),
            );
        }
        let positive = |v: f64| v.is_finite() && v > 0.0;
        if !positive(self.goal) || !positive(self.recovered) {
            return bad("settings".into(), "a goal that is not positive".into(), "give a positive NMSE".into());
        }
        if !(positive(self.delta) && self.delta < 1.0) {
            return bad(Setting::new("delta").into(), format!("{}", self.delta), "give a number between 0 and 1".into());
        }
        if self.most_examples < FEWEST_EXAMPLES || self.held_out == 0 {
            return bad(
                "settings".into(),
                format!("{} examples, {} held out", self.most_examples, self.held_out),
                format!("allow at least {FEWEST_EXAMPLES} examples and one held out"),
            );
        }
        let mut settings = self;
        if let Heads::Auto { most } = &mut settings.heads {
            *most = (*most).min(allowed);
        }
        Ok(ValidSettings { settings, shape })
    }
}
