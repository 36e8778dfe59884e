//! What a file is written through, whatever its format: tensors that grow side by side.

use super::atomic::AtomicFile;
use super::tensor::{Dtype, FileFormat, offence};
use crate::linalg::lanes::Real;
use crate::{Error, Result};
use std::io;
use std::path::Path;

impl FileFormat {
    /// The format that a file name asks for: `.safetensors` or `.npz`.
    pub fn of_name(path: &Path) -> Result<Self> {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("safetensors") => Ok(Self::Safetensors),
            Some("npz") => Ok(Self::Npz),
            _ => {
                let place = path.display().to_string();
                Err(Error::input(place, "its name does not say which format to write", "let it end in .safetensors or .npz"))
            }
        }
    }
}

/// A file whose tensors grow side by side.
pub(crate) trait TensorSink: Send {
    /// Appends to one of the tensors.
    fn write(&mut self, tensor: usize, bytes: &[u8]) -> io::Result<()>;
    /// Completes the file.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Numbers that are encoded at a time: what is written takes little memory beside what it is made of.
pub(crate) const AT_ONCE: usize = 1 << 16;

/// Appends numbers that the format [holds](Dtype::holds) to one of the tensors.
pub(crate) fn put<T: Real>(sink: &mut dyn TensorSink, tensor: usize, dtype: Dtype, values: &[T]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(values.len().min(AT_ONCE) * dtype.size());
    for values in values.chunks(AT_ONCE) {
        bytes.clear();
        dtype.encode(values, &mut bytes).map_err(|value| io::Error::other(offence(value)))?;
        sink.write(tensor, &bytes)?;
    }
    Ok(())
}

/// What is said of a number that the format does not hold.
pub(crate) fn unholdable(place: String, value: f64, dtype: Dtype) -> Error {
    Error::input(place, format!("{} ({})", offence(value), dtype.name()), "choose a wider number format or mend it")
}

/// Refuses to go on with a file of which part of a block is missing.
pub(crate) fn check_whole(torn: bool, file: &AtomicFile) -> Result<()> {
    if !torn {
        return Ok(());
    }
    let place = file.path().display().to_string();
    Err(Error::input(place, "an earlier block could not be written whole", "begin the file again"))
}
