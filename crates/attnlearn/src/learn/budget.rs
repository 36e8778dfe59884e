//! Memory: what a run may take, what examples take, and a refusal where the one is more than the other.
//!
//! What may be taken follows from the machine's size, not from what is free at the moment, so that the same command does the same thing every time. What
//! is free is asked before it is taken.

use crate::data::Shape;
use crate::memory::{self, Size};
use crate::words::{Setting, Wording};
use crate::{Error, Result};

/// Bytes that a search keeps for every number of an example, at most: in double precision as it is, balanced, and where it is refined by; in single where it
/// descends, and where it is refined by (`descend/search/strategy.rs` lists the copies).
const COPIES: u64 = 8 + 8 + 8 + 4 + 4;

/// Three quarters of what the machine, its control group or `ulimit -v` allow.
pub(super) fn default() -> u64 {
    let bytes = memory::allowed() / 4 * 3;
    // What is used already differs a little from run to run: three leading bits are enough.
    let step = bytes.checked_ilog2().map_or(1, |log| 1 << log.saturating_sub(2));
    bytes / step * step
}

/// Bytes of some examples in double precision.
pub(super) fn bytes(shape: Shape, examples: u64) -> u64 {
    let numbers = (shape.k as u64).saturating_mul((shape.d + shape.d_out) as u64);
    numbers.saturating_mul(examples).saturating_mul(8)
}

/// Examples that a search may have: what passes keep and all else have three eighths for themselves.
pub(super) fn most_examples(shape: Shape, memory: u64) -> usize {
    usize::try_from(memory / 8 * 5 / (bytes(shape, 1) / 8 * COPIES).max(1)).unwrap_or(usize::MAX)
}

/// Bytes of a search with so many examples.
pub(super) fn of_search(shape: Shape, examples: u64) -> u64 {
    (bytes(shape, examples) / 8).saturating_mul(COPIES)
}

/// Numbers that passes over the examples may keep, in double precision.
pub(super) fn most_numbers(memory: u64) -> usize {
    usize::try_from(memory / 4 / 8).unwrap_or(usize::MAX)
}

/// Refuses what is more than may be taken, or than there is.
pub(super) fn check(needed: u64, allowed: u64, what: &str) -> Result<()> {
    if needed > allowed {
        let problem = format!("{what} takes about {}, and {} may be taken", size(needed), size(allowed));
        let enough = Setting::to("memory", format!("{:.1}", gib(needed) + 0.05));
        let remedy = Wording::from("allow more with ").then(enough).then(", or read fewer with ");
        return Err(Error::input("memory", problem, remedy.then(Setting::new("most_examples"))));
    }
    let there = memory::available().bytes;
    if needed > there {
        let problem = format!("{what} takes about {}, and there are {}", size(needed), size(there));
        let fewer = Setting::to("memory", format!("{:.2}", gib(there / 4 * 3)));
        let remedy = Wording::from("make room, or keep fewer examples with ").then(fewer);
        return Err(Error::input("memory", problem, remedy));
    }
    Ok(())
}

/// What was asked for and not given.
pub(super) fn refused(needed: u64, what: &str) -> Error {
    let remedy = Wording::from("keep fewer with ").then(Setting::new("memory"));
    Error::input("memory", format!("{what} take {}, which the system refuses", size(needed)), remedy)
}

/// The unit in which people say it.
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn size(bytes: u64) -> Size {
    Size(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { k: 3, d: 4, d_out: 2 };

    #[test]
    fn a_search_with_as_many_examples_as_are_allowed_fits() {
        for memory in [1 << 20, 1 << 30, 17 << 30] {
            let most = most_examples(SHAPE, memory) as u64;
            let (taken, more) = (of_search(SHAPE, most), of_search(SHAPE, most + 1));
            assert!(taken <= memory / 8 * 5 && more > memory / 8 * 5, "{memory}: {taken}, {more}");
            assert!(taken + 8 * most_numbers(memory) as u64 <= memory);
        }
        assert_eq!(bytes(SHAPE, 10), 10 * 18 * 8);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_needed_what_there_is_and_what_to_do() {
        assert!(check(1 << 20, 1 << 21, "learning").is_ok());
        let said = check(3 << 20, 1 << 20, "learning").map_err(|e| e.to_string());
        let wanted = "memory: learning takes about 3.0 MiB, and 1.0 MiB may be taken; allow more with memory = 0.1, or read fewer with most_examples";
        assert_eq!(said, Err(wanted.to_owned()));
        // No machine has an exabyte.
        let said = check(1 << 60, u64::MAX, "learning").map_err(|e| e.to_string()).unwrap_err();
        assert!(!cfg!(target_os = "linux") || said.contains("more than 1024 PiB, and there are"), "{said}");
    }

    #[test]
    fn something_may_be_taken() {
        assert!(default() >= 1 << 20);
    }
}
