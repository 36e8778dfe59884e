//! Files appear whole or not at all.
//!
//! What is written stands under a temporary name beside its place, `.NAME.abc123.part`, until it is whole, and is then moved there.
//! What was there before
//!
//! - keeps its permissions, and its owner where the system allows that;
//! - stays a symbolic link if it is one: the file that it leads to is replaced;
//! - is refused if it is write-protected, though a move would do;
//! - lives on under its other names if it has any (hard links): they keep the old contents.
//!
//! A temporary file is locked while it is written, and a lock ends with its program. So one that can be locked is left over from a run that was
//! killed; the next run that writes to the same place removes it.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

/// Files that are to go when the program does: those that are being written, under their temporary names, and those that are locked.
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
pub(super) struct Listed(PathBuf);

impl Listed {
    pub(super) fn new(name: &Path) -> Self {
        partial().insert(name.to_owned());
        Self(name.to_owned())
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        partial().remove(&self.0);
    }
}

/// Where a path leads: through symbolic links, also one that points to nothing yet.
pub fn destination(path: &Path) -> Result<PathBuf> {
    let mut place = path.to_owned();
    // As many as Linux follows.
    for _ in 0..40 {
        match fs::read_link(&place) {
            Ok(target) => place = folder_of(&place).join(target),
            Err(_) => return Ok(place),
        }
    }
    Err(Error::input(path.display().to_string(), "is a link that leads nowhere", "give another name"))
}

/// A file that is written under a temporary name next to its place and moved there by [`Self::commit`]. Dropped before
/// that, it leaves nothing behind, and a file that was there before stays as it was.
#[derive(Debug)]
pub struct AtomicFile {
    temporary: NamedTempFile,
    /// As it was given.
    path: PathBuf,
    /// Where it leads.
    place: PathBuf,
    _listed: Listed,
}

impl AtomicFile {
    /// Begins a file. Fails now, rather than after the work of filling it, if the place cannot be written to.
    pub fn create(path: &Path) -> Result<Self> {
        let bad = |problem: String, remedy: &str| Err(Error::input(path.display().to_string(), problem, remedy));
        let place = destination(path)?;
        let before = fs::metadata(&place).ok();
        match &before {
            Some(about) if about.is_dir() => return bad("is a directory".into(), "give the name of a file"),
            Some(about) if !about.is_file() => {
                return bad("is not a regular file".into(), "give the name of a file on disk");
            }
            Some(about) if is_protected(&place, about) => {
                return bad("is write-protected".into(), "give another name, or permit writing to it");
            }
            _ => {}
        }
        let Some(name) = place.file_name() else {
            return bad("is not the name of a file".into(), "give the name of a file");
        };
        let folder = folder_of(&place);
        let prefix = format!(".{}.", name.to_string_lossy());
        remove_stale(folder, &prefix);
        // No file is begun while others are removed because the program ends.
        let mut names = partial();
        match begin(folder, &prefix, before.as_ref()) {
            Ok(temporary) => {
                let name = temporary.path().to_owned();
                names.insert(name.clone());
                Ok(Self { temporary, path: path.to_owned(), place, _listed: Listed(name) })
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
        folder_of(&self.place)
    }

    /// A handle to write with, at the beginning of the file; every handle keeps its own place.
    pub fn handle(&self) -> Result<File> {
        self.temporary.reopen().map_err(|e| Error::io(&self.path, e))
    }

    /// Moves the file to its place, once its contents have reached the disk.
    pub fn commit(self) -> Result<()> {
        self.temporary.as_file().sync_all().map_err(|e| Error::io(&self.path, e))?;
        self.temporary.persist(&self.place).map_err(|e| Error::io(&self.path, e.error))?;
        Ok(())
    }
}

/// Writes a whole file in one go.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = AtomicFile::create(path)?;
    file.handle()?.write_all(bytes).map_err(|e| Error::io(path, e))?;
    file.commit()
}

/// Whether a file says that it is not to be written to. A super-user may write to it all the same, and is not to by accident.
fn is_protected(place: &Path, about: &Metadata) -> bool {
    let refused = || OpenOptions::new().write(true).open(place).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
    about.permissions().readonly() || refused()
}

/// A locked temporary file, with the permissions of the one that it is to replace.
fn begin(folder: &Path, prefix: &str, before: Option<&Metadata>) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(".part");
    // Temporary files are private by default; this one is to become an ordinary file.
    #[cfg(unix)]
    if before.is_none() {
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    }
    loop {
        let temporary = builder.tempfile_in(folder)?;
        if is_locked(temporary.as_file()) {
            #[cfg(unix)]
            if let Some(before) = before {
                like(temporary.as_file(), before)?;
            }
            return Ok(temporary);
        }
    }
}

/// Gives a file the owner of another, where that is allowed, and its permissions.
#[cfg(unix)]
fn like(file: &File, before: &Metadata) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        // Who may not give files away keeps this one.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    }
    file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o777))
}

/// Locks a new temporary file. Between its creation and the lock another run may have taken it for one that was left over.
fn is_locked(file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // Where there are no locks nothing is taken for left over.
        file.lock().is_err() || file.metadata().is_ok_and(|about| about.nlink() > 0)
    }
    #[cfg(not(unix))]
    {
        // A lock would keep our own handles from writing.
        let _ = file;
        true
    }
}

/// Removes what runs that were killed have left of a file. What cannot be removed is not in the way.
fn remove_stale(folder: &Path, prefix: &str) {
    if cfg!(not(unix)) {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let random = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(".part")).unwrap_or_default();
        let ours = random.len() == 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // The lock is held until the file is gone: who has just begun it waits, sees that, and begins another.
        if let Ok(file) = OpenOptions::new().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A bare name has an empty parent, which no system call takes for the current directory.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
