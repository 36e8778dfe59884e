//! The npz format: a ZIP archive with one uncompressed `.npy` file for each array.

use super::atomic::AtomicFile;
use super::npy;
use super::sink::TensorSink;
use super::tensor::{Contents, FileFormat, Refusal, Tensor, TensorSpec};
use crate::words::quoted;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zip::read::{ArchiveOffset, Config};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Whether the file is an archive. Two bytes "PK" would not do: they may be the length of a safetensors header.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Reads the archive's directory and the header of every array. The checksums are not verified: that would read it all.
pub(crate) fn read(bytes: &[u8], place: &str) -> Result<Contents> {
    let corrupt = |e: zip::result::ZipError| {
        let problem = format!("is truncated or corrupt ({})", quoted(&e.to_string()));
        Error::input(place, problem, "write or download it again")
    };
    // Archives behind other data are not wanted, and to look for their beginning would read the whole file.
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let mut archive = ZipArchive::with_config(config, Cursor::new(bytes)).map_err(corrupt)?;
    let mut tensors = BTreeMap::new();
    for i in 0..archive.len() {
        let member = archive.by_index_raw(i).map_err(corrupt)?;
        let file_name = member.name().map_err(corrupt)?;
        let Some(name) = file_name.strip_suffix(".npy") else { continue };
        let tensor = if member.compression() == CompressionMethod::Stored {
            let range = member.data_start().and_then(|start| range_within(bytes, start, member.compressed_size()));
            let (start, array) = range.ok_or_else(|| {
                let problem = format!("is truncated or corrupt: {} reaches beyond its end", quoted(&file_name));
                Error::input(place, problem, "write or download it again")
            })?;
            npy::read(array, start)
        } else {
            let problem = "is compressed, so it cannot be mapped into memory".into();
            Tensor {
                dtype: "?".into(),
                shape: Vec::new(),
                data: Err(Refusal { problem, remedy: "save it with numpy.savez" }),
                half: None,
            }
        };
        tensors.insert(name.to_string(), tensor);
    }
    Ok(Contents { place: place.into(), format: FileFormat::Npz, tensors, metadata: BTreeMap::new() })
}

/// The `len` bytes from `start`, with their place.
fn range_within(bytes: &[u8], start: u64, len: u64) -> Option<(usize, &[u8])> {
    let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
    Some((start, bytes.get(start..start.checked_add(len)?)?))
}

/// A file that swallows what comes after it was given up. The archive's writer completes what it is dropped with, and where that fails, as on a full
/// disk, it prints a line of its own, though the failure has been returned already.
struct Quiet {
    file: File,
    over: Arc<AtomicBool>,
}

impl Write for Quiet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.over.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        let written = self.file.write(bytes);
        if written.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted) {
            self.over.store(true, Ordering::Relaxed);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Quiet {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Gives the file up when it is dropped.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes the first array straight into the archive. The others wait in unnamed files next to it: an archive is written
/// from front to back, with checksums.
pub(crate) struct NpzSink {
    /// Dropped before the archive.
    over: GiveUp,
    archive: ZipWriter<Quiet>,
    waiting: Vec<(TensorSpec, File)>,
}

impl NpzSink {
    pub fn create(file: &AtomicFile, tensors: &[TensorSpec]) -> Result<Self> {
        let io_error = |e| Error::io(file.path(), e);
        let over = Arc::new(AtomicBool::new(false));
        let archive = ZipWriter::new(Quiet { file: file.handle()?, over: over.clone() });
        let mut sink = Self { over: GiveUp(over), archive, waiting: Vec::new() };
        for (i, tensor) in tensors.iter().enumerate() {
            if i == 0 {
                begin(&mut sink.archive, tensor).map_err(io_error)?;
            } else {
                sink.waiting.push((tensor.clone(), tempfile::tempfile_in(file.folder()).map_err(io_error)?));
            }
        }
        Ok(sink)
    }
}

/// Begins a member of the archive.
fn begin(archive: &mut ZipWriter<Quiet>, tensor: &TensorSpec) -> io::Result<()> {
    // As NumPy does, every member is given the 64-bit sizes that those over 4 GiB need.
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    archive.start_file(format!("{}.npy", tensor.name), options)?;
    archive.write_all(&npy::header(tensor))
}

impl TensorSink for NpzSink {
    fn write(&mut self, tensor: usize, bytes: &[u8]) -> io::Result<()> {
        match tensor.checked_sub(1) {
            None => self.archive.write_all(bytes),
            Some(i) => self.waiting[i].1.write_all(bytes),
        }
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        // What is declared last is dropped first: the file is given up, if it comes to that, before the archive is dropped.
        let Self { over, mut archive, waiting } = *self;
        let over = over;
        if over.0.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier part of the archive could not be written"));
        }
        for (tensor, mut file) in waiting {
            begin(&mut archive, &tensor)?;
            file.rewind()?;
            io::copy(&mut file, &mut archive)?;
        }
        archive.finish()?;
        Ok(())
    }
}
