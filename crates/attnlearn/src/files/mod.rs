//! Files: written whole or not at all, and the tensors in them, in two formats that are told apart by their content:
//!
//! - safetensors, as the Python package of that name writes it;
//! - npz, as `numpy.savez` writes it (not `savez_compressed`: a compressed array cannot be mapped into memory).
//!
//! Numbers are little-endian and in C order. Files are mapped, not loaded; the parsers work on byte slices and trust nothing that they
//! read. What the tensors of a file mean is said where that is read: in `data`, `layer`, `features` and `transformer`.

mod atomic;
mod bytes;
mod claim;
mod npy;
mod npz;
mod safetensors;
mod sink;
mod tensor;

pub use atomic::{AtomicFile, destination, remove_partial_files, try_remove_partial_files, write_atomically};
pub use bytes::mapped_file;
pub use claim::Claim;
pub use tensor::{Dtype, FileFormat};

#[cfg(feature = "parquet")]
pub(crate) use atomic::Temporary;
pub(crate) use bytes::Bytes;
pub(crate) use safetensors::layout;
pub(crate) use sink::{AT_ONCE, TensorSink, check_whole, put, unholdable};
pub(crate) use tensor::{COUNTS, Contents, FLOATS, INPUTS, MASKS, TensorSpec, View, byte_len, offence, spread};

use crate::{Error, Result};
use npz::NpzSink;
use safetensors::SafetensorsSink;

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

/// Begins a file with these tensors.
pub(crate) fn sink(file: &AtomicFile, format: FileFormat, tensors: &[TensorSpec]) -> Result<Box<dyn TensorSink>> {
    Ok(match format {
        FileFormat::Safetensors => Box::new(SafetensorsSink::create(file, tensors)?),
        FileFormat::Npz => Box::new(NpzSink::create(file, tensors)?),
        FileFormat::Parquet => {
            let place = file.path().display().to_string();
            return Err(Error::input(place, "Parquet is read and not written", "write .safetensors or .npz"));
        }
    })
}
