//! Which examples serve which purpose.

use crate::data::{Block, ExampleSource};
use crate::sculpt::{Purposes, ValidSettings};
use std::ops::Range;

/// Blocks of validation examples, at most.
pub(super) const VALIDATION: u64 = 2;

/// Which blocks serve which purpose. Held-out blocks are read by the certificate alone.
#[derive(Clone, Debug)]
pub(super) struct Split {
    pub train: Range<u64>,
    pub validation: Range<u64>,
    pub held_out: Range<u64>,
}

impl Split {
    /// All blocks of every source, each for its purpose.
    pub fn apart(examples: &Purposes<'_>) -> Self {
        let all = |source: &dyn ExampleSource| 0..source.len().unwrap_or(0).div_ceil(Block::<f32>::CAPACITY as u64);
        Self { train: all(examples.learn), validation: all(examples.choose), held_out: all(examples.certify) }
    }

    pub fn of(source: &dyn ExampleSource, settings: &ValidSettings) -> Self {
        let size = Block::<f32>::CAPACITY as u64;
        let held = settings.held_out.div_ceil(size);
        match source.len() {
            None => {
                // An endless source has room to keep the purposes far apart.
                let far = 1 << 40;
                Self {
                    train: 0..settings.most_examples / size,
                    validation: far..far + VALIDATION,
                    held_out: 2 * far..2 * far + held,
                }
            }
            Some(n) => {
                let blocks = n.div_ceil(size);
                // A last block that is not full does not make a held-out set by itself.
                let partial = u64::from(!n.is_multiple_of(size));
                let held = held.min(blocks / 5).max(1) + partial;
                let validation = (blocks / 10).clamp(1, VALIDATION);
                let train = blocks.saturating_sub(held + validation);
                Self { train: 0..train, validation: train..blocks - held, held_out: blocks - held..blocks }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::sculpt::testing::teacher;
    use crate::sculpt::{FEWEST_EXAMPLES, Settings};
    use crate::teacher::TeacherStream;

    fn split(len: Option<u64>, held_out: u64) -> Split {
        let source = TeacherStream::new(&teacher(2, 1, 1.0, 0), 2, InputDistribution::Boolean, 0, len);
        Split::of(&source, &Settings { held_out, ..Default::default() }.check(&source).expect("good settings"))
    }

    /// Every block of a file serves one purpose, and no purpose goes without.
    #[test]
    fn a_file_is_divided() {
        for n in [FEWEST_EXAMPLES, 2048, 2049, 5119, 5120, 30_000, 1_000_000] {
            for held_out in [1, 512, 20_000] {
                let Split { train, validation, held_out } = split(Some(n), held_out);
                assert!(train.start == 0 && train.end == validation.start && validation.end == held_out.start);
                assert_eq!(held_out.end, n.div_ceil(512));
                assert!(!train.is_empty() && !validation.is_empty() && !held_out.is_empty(), "{n} examples");
                assert!(n - held_out.start * 512 >= 512, "{n} examples");
            }
        }
    }

    #[test]
    fn purposes_of_an_endless_source_are_apart() {
        let Split { train, validation, held_out } = split(None, 20_000);
        assert!(train.end < validation.start && validation.end < held_out.start);
        assert!((held_out.end - held_out.start) * 512 >= 20_000);
    }
}
