//! Files appear whole or not at all.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

/// Temporary names of the files that are being written.
static PARTIAL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn partial() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files that are being written, then calls `end`, which is to end the program where nothing is dropped any more, as in a
/// signal handler. No file is begun in between.
pub fn remove_partial_files(end: impl FnOnce()) {
    let names = partial();
    for name in names.iter() {
        // One that has just been committed or dropped is not there any more.
        let _ = fs::remove_file(name);
    }
    end();
}

/// An entry in the list of partial files.
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        partial().remove(&self.0);
    }
}

/// A file that is written under a temporary name next to its place and moved there by [`Self::commit`]. Dropped before
/// that, it leaves nothing behind, and a file that was there before stays as it was.
#[derive(Debug)]
pub struct AtomicFile {
    temporary: NamedTempFile,
    path: PathBuf,
    _listed: Listed,
}

impl AtomicFile {
    /// Begins a file. Fails now, rather than after the work of filling it, if the place cannot be written to.
    pub fn create(path: &Path) -> Result<Self> {
        let bad = |problem: String, remedy: &str| Err(Error::input(path.display().to_string(), problem, remedy));
        match fs::metadata(path) {
            Ok(about) if about.is_dir() => return bad("is a directory".into(), "give the name of a file"),
            Ok(about) if !about.is_file() => return bad("is not a regular file".into(), "give the name of a file on disk"),
            _ => {}
        }
        let Some(name) = path.file_name() else {
            return bad("is not the name of a file".into(), "give the name of a file");
        };
        let folder = folder_of(path);
        let prefix = format!(".{}.", name.to_string_lossy());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".part");
        // Temporary files are private by default; this one is to become an ordinary file.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut names = partial();
        match builder.tempfile_in(folder) {
            Ok(temporary) => {
                let name = temporary.path().to_owned();
                names.insert(name.clone());
                Ok(Self { temporary, path: path.to_owned(), _listed: Listed(name) })
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                bad(format!("its directory {} does not exist", folder.display()), "create it first")
            }
            Err(e) => bad(format!("cannot be written ({e})"), "choose another place or change its permissions"),
        }
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory in which it will be.
    pub(crate) fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// A handle to write with, at the beginning of the file; every handle keeps its own place.
    pub fn handle(&self) -> Result<File> {
        self.temporary.reopen().map_err(|e| Error::io(&self.path, e))
    }

    /// Moves the file to its place, once its contents have reached the disk.
    pub fn commit(self) -> Result<()> {
        self.temporary.as_file().sync_all().map_err(|e| Error::io(&self.path, e))?;
        self.temporary.persist(&self.path).map_err(|e| Error::io(&self.path, e.error))?;
        Ok(())
    }
}

/// Writes a whole file in one go.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = AtomicFile::create(path)?;
    file.handle()?.write_all(bytes).map_err(|e| Error::io(path, e))?;
    file.commit()
}

/// A bare name has an empty parent, which no system call takes for the current directory.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
