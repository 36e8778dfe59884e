//! How much of what is left unexplained is noise.

use crate::descend::{End, Learner, Try};
use serde::Serialize;

/// What outputs hold that no layer explains.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Noise {
    /// Its standard deviation over that of the outputs: `‖F(X) − Y‖²/(numbers − unknowns)`.
    pub relative: f64,
    /// Its share of the variance, which is the least NMSE that can be reached.
    pub floor: f64,
    /// Why it is not believed: the held-out error has to be that floor, up to chance and the unknowns' own share, and more.
    pub short: Option<Short>,
}

impl Noise {
    /// What is left of `numbers` outputs after as many were fitted as there are unknowns, `σ̂² = nmse · numbers/(numbers − unknowns)`; and whether the
    /// error on others is about what that makes of it, `σ̂² numbers/(numbers − unknowns)` with as many estimated unknowns. A student that is too small
    /// looks the same as noise, so noise of more than half the variance is not believed, nor what twice as many numbers as unknowns say. `held_out` is in
    /// units of the variance of the examples learned from, and `chance` is what both may differ by, as a share.
    pub(super) fn of(chosen: &Try, held_out: f64, numbers: usize, chance: f64) -> Self {
        let unknowns = Learner::unknowns(&chosen.student.form) as f64;
        let numbers = numbers as f64;
        let inflated = numbers / (numbers - unknowns).max(1.0);
        let floor = chosen.nmse * inflated;
        let short = if !matches!(chosen.end, End::Exact | End::Floor) {
            Some(Short::Search)
        } else if numbers <= 2.0 * unknowns {
            Some(Short::Numbers)
        } else if floor >= 0.5 {
            Some(Short::Explained)
        } else if held_out > floor * inflated * (1.0 + chance) {
            Some(Short::Others)
        } else {
            None
        };
        Self { relative: floor.sqrt(), floor, short }
    }

    /// Whether it is believed.
    pub fn reached(&self) -> bool {
        self.short.is_none()
    }
}

/// Why what is left is not believed to be noise, whatever it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Short {
    /// The search did not come to its end.
    Search,
    /// Twice as many numbers as unknowns say nothing.
    Numbers,
    /// It is more than half of the variance.
    Explained,
    /// Other examples are explained worse than those that were learned from.
    Others,
}

impl Short {
    /// In words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Search => "the search did not end at a floor",
            Self::Numbers => "there are too few examples for so many unknowns",
            Self::Explained => "it is more than half of the outputs' variance",
            Self::Others => "the error on other examples is above it",
        }
    }
}
