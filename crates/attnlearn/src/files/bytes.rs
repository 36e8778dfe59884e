//! The bytes of a file: mapped into memory, so that a file larger than memory is read like any other.

use crate::{Error, Result};
use memmap2::Mmap;
#[cfg(unix)]
use memmap2::UncheckedAdvice;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that Linux maps around one that is read.
#[cfg(unix)]
const AROUND: usize = 1 << 16;

/// Where files are mapped.
static MAPPED: Mutex<Vec<(Range<usize>, PathBuf)>> = Mutex::new(Vec::new());

fn mapped() -> MutexGuard<'static, Vec<(Range<usize>, PathBuf)>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that is mapped at an address: of interest to who is told that what stands there could not be read, because another program has
/// cut the file short.
pub fn mapped_file(address: usize) -> Option<PathBuf> {
    mapped().iter().find(|(range, _)| range.contains(&address)).map(|(_, path)| path.clone())
}

/// A map with its entry in the list.
#[derive(Debug)]
pub(crate) struct Map(Mmap);

impl Map {
    fn new(map: Mmap, path: &Path) -> Self {
        let start = map.as_ptr().addr();
        mapped().push((start..start + map.len(), path.to_owned()));
        Self(map)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let start = self.0.as_ptr().addr();
        mapped().retain(|(range, _)| range.start != start);
    }
}

/// Bytes to be parsed. The parsers see a slice and do not know where it comes from.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Map),
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
        // the file is cut short, stops the program, which says so (see `mapped_file`). The writers of this crate replace files and never change them.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) };
        Ok(Self::Mapped(Map::new(map.map_err(|e| Error::io(path, e))?, path)))
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
            let _ = unsafe { map.0.unchecked_advise_range(UncheckedAdvice::DontNeed, start, range.end - start) };
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => &map.0,
            Self::Owned(bytes) => bytes,
        }
    }
}
