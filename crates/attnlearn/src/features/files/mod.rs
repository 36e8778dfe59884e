//! Sets in files: in those of tensors, and in Parquet.

#[cfg(feature = "parquet")]
mod parquet;
mod sets;

#[cfg(feature = "parquet")]
pub use parquet::{PARQUET_THREAD, ParquetSets};
#[cfg(feature = "parquet")]
pub(crate) use parquet::{ParquetColumn, ParquetContents, is_parquet, parquet_contents};
pub use sets::{SetColumns, SetFile, SetWriter, Targets};
pub(crate) use sets::{sets_in, targets_in};

use super::SetSource;
use crate::Result;
use std::path::Path;

/// What a file of sets holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetsFound {
    /// How many sets.
    pub n: usize,
    /// The most keys.
    pub keys: usize,
    /// Dimension of query and keys.
    pub d: usize,
    /// Targets of a set; 0 if there are none.
    pub targets: usize,
    /// Whether sets may differ in length.
    pub lengths: bool,
    /// Whether sets have weights.
    pub weights: bool,
}

/// What a file of targets alone holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetsFound {
    /// Targets of how many sets.
    pub n: usize,
    /// Targets of a set.
    pub targets: usize,
}

/// Opens a file of sets in any of the formats, told apart by their content.
pub fn open_sets(path: &Path, targets: Targets) -> Result<Box<dyn SetSource>> {
    #[cfg(feature = "parquet")]
    if is_parquet(&crate::files::Bytes::open(path)?) {
        return Ok(Box::new(ParquetSets::open(path, targets)?));
    }
    Ok(Box::new(SetFile::open(path, targets)?))
}
