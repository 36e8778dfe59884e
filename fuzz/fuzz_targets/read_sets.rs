//! What both targets for sets do with a file.

use attnlearn::features::{SetBlock, SetFile, SetSource, Targets};
use attnlearn::inspect::FileSummary;

/// Shows a file to every reader of sets.
pub fn read(bytes: &[u8]) {
    let _ = FileSummary::of_bytes(bytes, "fuzz");
    for targets in [Targets::Required, Targets::Ignored] {
        let Ok(file) = SetFile::from_bytes(bytes.to_vec(), "fuzz", targets) else { continue };
        check(&file);
    }
}

/// A block that is read is whole, and its sets have keys.
pub fn check(source: &dyn SetSource) {
    let (shape, mut block) = (source.shape(), SetBlock::new(source.shape()));
    for index in [0, source.blocks() - 1, source.blocks(), u64::MAX] {
        if source.fill(index, &mut block).is_ok() {
            assert_eq!(block.is_empty(), index >= source.blocks());
            assert_eq!(block.x.len(), block.len() * (shape.keys + 1) * shape.d);
            assert!(block.lengths.iter().all(|length| (1..=shape.keys).contains(length)));
            assert!(block.x.iter().chain(&block.y).chain(&block.weights).all(|v| v.is_finite()));
        }
    }
}
