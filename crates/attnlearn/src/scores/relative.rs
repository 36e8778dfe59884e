//! Relative biases: `β(a − b)` is added to the logit of key `b` for query `a`.
//!
//! ```text
//! slope (ALiBi)     β(Δ) = −s |Δ|
//! table (T5)        β(Δ) = t[Δ − first], the ends standing for all distances beyond them
//! ```

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// A relative bias of one head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Relative {
    /// `β(Δ) = −s |Δ|`.
    Slope(f64),
    /// A number for every distance from the first on.
    Table {
        /// The least distance `a − b`.
        first: isize,
        /// The numbers; the ends stand for all distances beyond them.
        values: Vec<f64>,
    },
}

impl Relative {
    /// `β(Δ)`.
    pub fn at(&self, distance: isize) -> f64 {
        match self {
            Self::Slope(slope) => -slope * distance.unsigned_abs() as f64,
            Self::Table { first, values } => {
                let at = distance.saturating_sub(*first).clamp(0, values.len() as isize - 1);
                values[at.unsigned_abs()]
            }
        }
    }

    /// `β(Δ)` for all distances between tokens of a sequence of `k`, from `−(k − 1)` on.
    pub fn table(&self, k: usize) -> Vec<f64> {
        let last = k as isize - 1;
        (-last..=last).map(|distance| self.at(distance)).collect()
    }

    /// Refuses tables of nothing, and numbers that are none.
    pub(crate) fn check(&self, place: &str) -> Result<()> {
        let bad = |problem: &str| Err(Error::input(place, problem, "give a finite number for every distance"));
        match self {
            Self::Slope(slope) if !slope.is_finite() => bad("the slope of its relative bias is not finite"),
            Self::Table { values, .. } if values.is_empty() => bad("the table of its relative bias is empty"),
            Self::Table { values, .. } if !values.iter().all(|v| v.is_finite()) => bad("its relative bias is not finite"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_stand_for_all_beyond() {
        let table = Relative::Table { first: -1, values: vec![5.0, 6.0, 7.0] };
        assert_eq!(table.table(3), [5.0, 5.0, 6.0, 7.0, 7.0]);
        assert_eq!(Relative::Slope(0.5).table(3), [-1.0, -0.5, -0.0, -0.5, -1.0]);
        assert!(Relative::Table { first: 0, values: vec![] }.check("head 0").is_err());
        assert!(Relative::Slope(f64::NAN).check("head 0").is_err() && table.check("head 0").is_ok());
    }
}
