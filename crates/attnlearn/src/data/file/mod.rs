//! Files of examples, inputs and outputs, in two formats that are told apart by their content:
//!
//! - safetensors, as the Python package of that name writes it;
//! - npz, as `numpy.savez` writes it (not `savez_compressed`: a compressed array cannot be mapped into memory).
//!
//! Both hold `x` of shape `[n, k, d]` and `y` of shape `[n, k, d_out]`, little-endian and in C order. Files are mapped,
//! not loaded; the parsers work on byte slices and trust nothing that they read.

mod atomic;
mod bytes;
mod claim;
mod examples;
mod inspect;
mod npy;
mod npz;
#[cfg(feature = "parquet")]
mod parquet;
mod safetensors;
mod sets;
mod tensor;
mod writer;

pub use atomic::{AtomicFile, destination, remove_partial_files, try_remove_partial_files, write_atomically};
pub use bytes::mapped_file;
pub use claim::Claim;
pub use examples::{ExampleFile, InputFile};
pub use inspect::{FileKind, FileSummary, ModelSummary, TensorSummary, inspect};
#[cfg(feature = "parquet")]
pub use parquet::{PARQUET_THREAD, ParquetSets};
pub use sets::{SetColumns, SetFile, SetWriter, Targets, open_sets};
pub use tensor::{Dtype, FileFormat};
pub use writer::{Columns, ExampleWriter};

pub(crate) use bytes::Bytes;
pub(crate) use safetensors::layout;
pub(crate) use tensor::{Contents, FLOATS, TensorSpec, View, offence, spread};

use crate::{Error, Result};

impl Contents {
    /// Reads the table of contents of a file in either format.
    pub fn read(bytes: &[u8], place: &str) -> Result<Self> {
        if bytes.is_empty() {
            Err(Error::input(place, "is empty", "check that it was written to the end"))
        } else if npz::is_archive(bytes) {
            npz::read(bytes, place)
        } else if bytes.starts_with(npy::MAGIC) {
            Err(Error::input(place, "is a single .npy array", "save x and y together, with numpy.savez(path, x=x, y=y)"))
        } else if bytes.starts_with(b"PAR1") {
            let (problem, remedy) = if cfg!(feature = "parquet") {
                ("is a Parquet file: only sets are read from those", "write it as .safetensors or .npz")
            } else {
                ("is a Parquet file, which this program was built without", "build it with --features full, or write .npz")
            };
            Err(Error::input(place, problem, remedy))
        } else {
            safetensors::read(bytes, place)
        }
    }
}
