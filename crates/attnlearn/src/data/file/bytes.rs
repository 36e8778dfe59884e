//! The bytes of a file: mapped into memory, so that a file larger than memory is read like any other.

use crate::{Error, Result};
use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::{Deref, Range};
use std::path::Path;

/// Bytes that Linux maps around one that is read.
#[cfg(unix)]
const AROUND: usize = 1 << 16;

/// Bytes to be parsed. The parsers see a slice and do not know where it comes from.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a file. Nothing is read yet.
    pub fn open(path: &Path) -> Result<Self> {
        let bad = |problem: &str, remedy: &str| Err(Error::input(path.display().to_string(), problem, remedy));
        // Asked before opening: to open a pipe would wait for its writer.
        let about = match fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return bad("does not exist", "check the path"),
            about => about.map_err(|e| Error::io(path, e))?,
        };
        if about.is_dir() {
            return bad("is a directory", "give a file");
        }
        if !about.is_file() {
            return bad("is not a regular file", "give a file on disk, which can be mapped into memory");
        }
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        // Mapping is unsafe since another process could change the file under us. Every value read from the map is
        // checked when it is used and no reference to it outlives it: a change gives other numbers, or at worst, if
        // the file is cut short, stops the program. The writers of this crate replace files and never change them.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) };
        Ok(Self::Mapped(map.map_err(|e| Error::io(path, e))?))
    }

    /// Says that these bytes have been read: their pages no longer count as memory of this process, so that a pass over a file of
    /// any size needs little of it. Who reads them again gets them again, most likely from the system's cache.
    pub fn forget(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Self::Mapped(map) = self {
            // A page that is read brings its neighbours, which may have been let go already.
            let start = range.start.saturating_sub(AROUND);
            // Unsafe where a map has been written to, since its changes would be lost; this one is only ever read. Advice that is
            // refused changes nothing.
            #[allow(unsafe_code)]
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, range.end - start) };
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}
