//! What can be asked for, and which learner it belongs to.

use super::budget;
use super::descent::Descent;
use super::keeping::Keeping;
use super::split::Division;
use super::{Plan, Route, watch};
use crate::data::{ExampleSource, Watched, check_size};
use crate::descend::{Choice, HeadCount, Rank, StrategySettings, Wanted};
use crate::engine::Batch;
use crate::memory::{ask, numbers};
use crate::scores::{Mask, Rotation, Scores};
use crate::sculpt::{self, ValidSettings};
use crate::{Error, Result};
use std::time::Duration;

/// How to learn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Descent, then the six phases if that did not recover a small layer.
    #[default]
    Auto,
    /// The six phases of Chen and Li, then a polish.
    Sculpt,
    /// Descent and variable projection from random starts: layers of real size, with biases and mask.
    Descend,
}

/// How many heads to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// This many.
    Given(usize),
    /// As many as it takes, and at most this many if that is said.
    Auto(Option<usize>),
    /// All from the first to the second.
    Range(usize, usize),
}

impl Heads {
    /// For the six phases.
    pub fn sculpt(self) -> sculpt::Heads {
        match self {
            Self::Given(m) => sculpt::Heads::Given(m),
            Self::Auto(most) => sculpt::Heads::Auto { most: most.unwrap_or(4) },
            Self::Range(_, last) => sculpt::Heads::Auto { most: last },
        }
    }

    /// For descent.
    pub fn descend(self) -> HeadCount {
        match self {
            Self::Given(m) => HeadCount::Given(m),
            Self::Auto(most) => HeadCount::Auto(most.unwrap_or(16)),
            Self::Range(first, last) => HeadCount::Range(first, last),
        }
    }
}

/// What to look for and how, unchecked.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How (default: auto).
    pub method: Method,
    /// Heads (default: auto, at most 16, with sculpt 4).
    pub heads: Heads,
    /// Seed of the starting points of the search, and of what is held out (default 0).
    pub seed: u64,
    /// One minus the confidence of the certificate (default 0.01).
    pub delta: f64,
    /// Most examples read: the first so many (default 10⁸).
    pub most_examples: u64,
    /// Examples held out for the certificate, at most, and at most a fifth (default 20 000).
    pub held_out: u64,
    /// Bytes that may be taken, about; descent learns from as many examples as fit, drawn at random (default: three quarters of what the machine, its
    /// control group or `ulimit -v` allow).
    pub memory: Option<u64>,
    /// Descent: rank of attention matrices (default: automatic).
    pub rank: Option<Rank>,
    /// Descent: rank of projections (default: automatic).
    pub value_rank: Option<Rank>,
    /// Descent: whether the layer has key biases and an output bias (default: automatic).
    pub biases: Option<Choice>,
    /// Descent: whether later tokens are hidden from earlier ones (default false).
    pub causal: bool,
    /// Descent: how many of the last keys a query sees, itself among them; with `causal` only (default: all).
    pub window: Option<usize>,
    /// Descent: key heads, which all heads share in equal numbers; needs the number of heads and their rank (default: each head has its own).
    pub kv_heads: Option<usize>,
    /// Descent: rotary positions; needs the rank of heads (default: none).
    pub rotation: Option<Rotation>,
    /// Descent: query/key norms, with this ε beside the mean square (default: none).
    pub norm: Option<f64>,
    /// Descent: whether heads have relative biases (default: no).
    pub relative: bool,
    /// Descent: whether outputs are noisy; then a layer that explains all but the noise is recovered (default false).
    pub noise: bool,
    /// Seconds after which a search ends with the best so far; none is no limit (default none). What is read before and certified after is not counted.
    pub time_limit: Option<f64>,
    /// The six phases: polish their answer (default true).
    pub polish: bool,
    /// The six phases: find wide directions by linear programs (default false).
    pub linear_programs: bool,
    /// The six phases: their own answer is wanted for itself, so they come at once (default false).
    pub before_polish: bool,
    /// The six phases: measure how wide the body is with ever more slabs (default false).
    pub sculpture: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let sculpt = sculpt::Settings::default();
        Self {
            method: Method::Auto,
            heads: Heads::Auto(None),
            seed: 0,
            delta: sculpt.delta,
            most_examples: sculpt.most_examples,
            held_out: sculpt.held_out,
            memory: None,
            rank: None,
            value_rank: None,
            biases: None,
            causal: false,
            window: None,
            kv_heads: None,
            rotation: None,
            norm: None,
            relative: false,
            noise: false,
            time_limit: None,
            polish: true,
            linear_programs: false,
            before_polish: false,
            sculpture: false,
        }
    }
}

/// Numbers of all heads together, at most.
const MOST_NUMBERS: usize = 1 << 28;

/// Examples below which the six phases are not worth a try.
pub const FEWEST_FOR_PHASES: u64 = 10_000;

/// Bytes of the attention weights that the passes of descent hold: `k²` a head for the sequence that a thread is at, and two of their kind
/// for derivatives.
fn attention_bytes(k: usize, heads: usize) -> u128 {
    let threads = rayon::current_num_threads().min(Batch::<f64>::PARTS);
    numbers::<f64>(&[threads, heads.saturating_add(2), k, k])
}

impl Settings {
    /// Checks the settings against a source of examples, which errors call `place`.
    pub fn check<'a>(self, source: &'a dyn ExampleSource, place: &str, keeping: &Keeping) -> Result<Plan<'a>> {
        check_size(source.shape(), source.len(), place)?;
        if !(self.delta > 0.0 && self.delta < 1.0) {
            return Err(Error::input("--delta", format!("{}", self.delta), "give a number between 0 and 1"));
        }
        let most = match self.heads {
            Heads::Given(m) | Heads::Auto(Some(m)) | Heads::Range(_, m) => m,
            Heads::Auto(None) => 0,
        };
        let (d, d_out) = (source.shape().d, source.shape().d_out);
        if most.checked_mul(d * (d + d_out)).is_none_or(|numbers| numbers > MOST_NUMBERS) {
            let problem = format!("{most} heads of d = {d}, d_out = {d_out} have more numbers than are worked with");
            return Err(Error::input("--heads", problem, "ask for fewer"));
        }
        ask(attention_bytes(source.shape().k, most.max(1)), place, "give shorter sequences, or use fewer --threads")?;
        let memory = self.memory.unwrap_or_else(budget::default);
        let division = Division {
            held_out: self.held_out,
            seed: self.seed,
            ordered: self.causal || self.window.is_some() || self.rotation.is_some() || self.relative,
            memory,
        };
        let most = self.most_examples;
        let limit = self.limit()?;
        let plan = |route: Route| Ok(Plan { source, limit, route, most, division });
        let (of_sculpt, of_descent) = (self.flags_of_sculpt(), self.flags_of_descent());
        let refuse = |flag: &str, method: &str| {
            Err(Error::input(flag, format!("belongs to --method {method}"), "leave it out, or choose that method"))
        };
        match (self.method, of_sculpt, of_descent) {
            (Method::Descend, Some(flag), _) => refuse(flag, "sculpt"),
            (Method::Sculpt, _, Some(flag)) | (Method::Auto, Some(_), Some(flag)) => refuse(flag, "descend"),
            (Method::Sculpt, ..) | (Method::Auto, Some(_), None) if limit.is_some() => {
                let problem = "the six phases have nothing to show before they end";
                Err(Error::input("--time-limit", problem, "leave it out, or use --method descend"))
            }
            (Method::Sculpt, ..) | (Method::Auto, Some(_), None) => match keeping.given() {
                Some(flag) => refuse(flag, "descend"),
                None => plan(Route::Sculpt(self.sculpt(source)?)),
            },
            (Method::Descend, None, _) | (Method::Auto, None, Some(_)) => {
                plan(Route::Descend(Box::new(self.descent(source, memory, keeping)?), None))
            }
            (Method::Auto, None, None) => {
                // The six phases want examples by the ten thousand.
                let many = source.len().unwrap_or(u64::MAX).min(self.most_examples) >= FEWEST_FOR_PHASES;
                let sculpt = if many { self.sculpt(source).ok() } else { None };
                plan(Route::Descend(Box::new(self.descent(source, memory, keeping)?), sculpt))
            }
        }
    }

    /// The limit of time, checked.
    fn limit(&self) -> Result<Option<Duration>> {
        let Some(seconds) = self.time_limit else { return Ok(None) };
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(Error::input("--time-limit", format!("{seconds} s"), "give a time above 0"));
        }
        // More than clocks count to is no limit.
        Ok(Duration::try_from_secs_f64(seconds).ok())
    }

    /// The first setting given that is for the six phases only, by the name of its flag.
    fn flags_of_sculpt(&self) -> Option<&'static str> {
        let flags =
            [("--before-polish", self.before_polish), ("--no-polish", !self.polish), ("--linear-programs", self.linear_programs)];
        flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }

    /// The first setting given that only descent knows.
    fn flags_of_descent(&self) -> Option<&'static str> {
        let flags = [
            ("--heads FIRST..LAST", matches!(self.heads, Heads::Range(..))),
            ("--rank", self.rank.is_some()),
            ("--value-rank", self.value_rank.is_some()),
            ("--biases", self.biases.is_some()),
            ("--causal", self.causal),
            ("--window", self.window.is_some()),
            ("--kv-heads", self.kv_heads.is_some()),
            ("--rope", self.rotation.is_some()),
            ("--qk-norm", self.norm.is_some()),
            ("--relative-bias", self.relative),
            ("--noise", self.noise),
        ];
        flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }

    /// How scores are made.
    fn scores(&self) -> Scores {
        let mask = match self.window {
            Some(window) => Mask::Window(window),
            None if self.causal => Mask::Causal,
            None => Mask::None,
        };
        Scores { mask, rotation: self.rotation.clone(), norm: self.norm, distances: None }
    }

    fn sculpt(&self, source: &dyn ExampleSource) -> Result<ValidSettings> {
        let settings = sculpt::Settings {
            heads: self.heads.sculpt(),
            most_examples: self.most_examples,
            held_out: self.held_out,
            delta: self.delta,
            linear_programs: self.linear_programs,
            sculpture: self.sculpture,
            polish: self.polish,
            seed: self.seed,
            ..sculpt::Settings::default()
        };
        settings.check(&Watched::new(source, &watch::Silent(&watch::Unwatched)).at_most(self.most_examples))
    }

    fn descent(&self, source: &dyn ExampleSource, memory: u64, keeping: &Keeping) -> Result<Descent> {
        let strategy = StrategySettings { seed: self.seed, ..StrategySettings::default() };
        let pass_numbers = strategy.pass_numbers.min(budget::most_numbers(memory));
        let strategy = StrategySettings { pass_numbers, ..strategy };
        let wanted = Wanted {
            heads: self.heads.descend(),
            rank: self.rank.unwrap_or(Rank::Auto),
            value_rank: self.value_rank.unwrap_or(Rank::Auto),
            biases: self.biases.unwrap_or(Choice::Auto),
            scores: self.scores(),
            groups: self.kv_heads,
            relative: self.relative,
            strategy,
        };
        wanted.check(source.shape())?;
        Ok(Descent { wanted, keeping: keeping.check()?, noise: self.noise, delta: self.delta })
    }
}
