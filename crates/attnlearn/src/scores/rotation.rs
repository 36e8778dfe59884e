//! Rotary positions: pairs of coordinates of queries and keys, taken for complex numbers, are turned by an angle that grows with the position.
//!
//! ```text
//! (R_a q)_j + i (R_a q)_{j+n} = e^{i ω_j a} (q_j + i q_{j+n}),   j < n        so that ⟨R_a q, R_b k⟩ depends on a − b alone
//! ```
//!
//! The first `2n` coordinates turn, pair `j` being `(j, j + n)`; the others stand still (partial rotation). Where pairs are neighbours, `(2j, 2j + 1)`, columns are
//! permuted on the way in. Scaled frequencies (linear, NTK, Llama 3, YaRN) are just another list.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The frequencies `ω_j` of the pairs that turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rotation {
    /// `ω_j`, in radians a position.
    pub frequencies: Vec<f64>,
}

impl Rotation {
    /// `ω_j = base^(−2j/turned)`, for the first `turned` coordinates of a head.
    pub fn of_base(base: f64, turned: usize) -> Self {
        let frequency = |j: usize| base.powf(-2.0 * j as f64 / turned as f64);
        Self { frequencies: (0..turned / 2).map(frequency).collect() }
    }

    /// Coordinates that turn.
    pub fn turned(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Where coordinate `i` of a head stands whose pairs are neighbours, `(2j, 2j + 1)`.
    pub fn from_neighbours(&self, i: usize) -> usize {
        let n = self.frequencies.len();
        match i {
            _ if i >= 2 * n => i,
            _ if i < n => 2 * i,
            _ => 2 * (i - n) + 1,
        }
    }

    /// Refuses frequencies that are no numbers, none at all, and more pairs than a head of dimension `r` has.
    pub(crate) fn check(&self, r: usize, place: &str) -> Result<()> {
        if self.frequencies.is_empty() || !self.frequencies.iter().all(|w| w.is_finite()) {
            return Err(Error::input(
                place,
                "a rotation whose frequencies are not finite numbers",
                "give one for every pair that turns",
            ));
        }
        if self.turned() > r {
            let problem = format!("{} coordinates turn, a head has {r}", self.turned());
            return Err(Error::input(place, problem, "give at most a frequency for every two coordinates of a head"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_told_apart() {
        let rotation = Rotation::of_base(1e4, 4);
        assert_eq!((0..6).map(|i| rotation.from_neighbours(i)).collect::<Vec<_>>(), [0, 2, 1, 3, 4, 5]);
        assert_eq!(rotation.turned(), 4);
        assert!((rotation.frequencies[1] - 0.01).abs() < 1e-15);
    }

    #[test]
    fn what_cannot_turn_is_refused() {
        assert!(Rotation::of_base(1e4, 4).check(4, "head").is_ok());
        assert!(Rotation::of_base(1e4, 6).check(4, "head").is_err());
        assert!(Rotation { frequencies: vec![] }.check(4, "head").is_err());
        assert!(Rotation { frequencies: vec![f64::INFINITY] }.check(4, "head").is_err());
    }
}
