//! Which keys a query sees: a run of them, so that loops over keys stay loops.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Which keys a query may attend to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    /// All of them.
    #[default]
    None,
    /// Itself and those before it.
    Causal,
    /// Itself and those before it, this many in all: sliding windows.
    Window(usize),
}

impl Mask {
    /// The keys that query `a` sees of `k`.
    #[inline(always)]
    pub fn seen(self, a: usize, k: usize) -> Range<usize> {
        match self {
            Self::None => 0..k,
            Self::Causal => 0..(a + 1).min(k),
            Self::Window(window) => (a + 1).saturating_sub(window)..(a + 1).min(k),
        }
    }

    /// Whether what a query sees depends on where it stands.
    pub fn is_causal(self) -> bool {
        self != Self::None
    }

    /// Refuses a window of nothing.
    pub(crate) fn check(self, place: &str) -> Result<()> {
        match self {
            Self::Window(0) => Err(Error::input(place, "a window of 0 keys", "a query sees itself at least: give 1 or more")),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Causal => f.write_str("causal"),
            Self::Window(window) => write!(f, "window:{window}"),
        }
    }
}

impl std::str::FromStr for Mask {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        match text {
            "none" => Ok(Self::None),
            "causal" => Ok(Self::Causal),
            _ => match text.strip_prefix("window:").map(str::parse) {
                Some(Ok(window)) if window > 0 => Ok(Self::Window(window)),
                _ => Err(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_what_both_ends_leave() {
        let seen = |mask: Mask| (0..4).map(|a| mask.seen(a, 4)).collect::<Vec<_>>();
        assert_eq!(seen(Mask::None), [0..4, 0..4, 0..4, 0..4]);
        assert_eq!(seen(Mask::Causal), [0..1, 0..2, 0..3, 0..4]);
        assert_eq!(seen(Mask::Window(2)), [0..1, 0..2, 1..3, 2..4]);
        assert_eq!(seen(Mask::Window(9)), seen(Mask::Causal));
        assert!(Mask::Window(0).check("mask").is_err() && Mask::Window(1).check("mask").is_ok());
    }

    #[test]
    fn what_is_written_is_read() {
        for mask in [Mask::None, Mask::Causal, Mask::Window(17)] {
            assert_eq!(mask.to_string().parse(), Ok(mask));
        }
        for text in ["", "Causal", "window:", "window:0", "window:-1", "window:x"] {
            assert_eq!(text.parse::<Mask>(), Err(()), "{text}");
        }
    }
}
