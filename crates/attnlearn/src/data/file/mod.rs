//! Files of sets, and what a file is.

mod inspect;
#[cfg(feature = "parquet")]
mod parquet;
mod sets;

pub use inspect::{FileKind, FileSummary, ModelSummary, TensorSummary, inspect};
#[cfg(feature = "parquet")]
pub use parquet::{PARQUET_THREAD, ParquetSets};
pub use sets::{SetColumns, SetFile, SetWriter, Targets, open_sets};
