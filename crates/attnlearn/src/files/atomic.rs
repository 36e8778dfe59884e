//! Files appear whole or not at all.
//!
//! What is written stands under a temporary name beside its place, `.NAME.abc123.part`, until it is whole, and is then moved there.
//! What was there before
//!
//! - keeps its permissions, and its owner and group where the system allows that: a group that it cannot be given gets no permissions.
//!   Access lists (ACLs) are not kept;
//! - stays a symbolic link if it is one: the file that it leads to is replaced;
//! - is refused if it is write-protected, though a move would do, and if it cannot be moved away: a file that is mounted by itself, or
//!   somebody else's in a folder like `/tmp`;
//! - lives on under its other names if it has any (hard links): they keep the old contents.
//!
//! If the move fails in spite of all that, the whole file is kept beside its place, and the error names it.
//!
//! A temporary file is locked while it is there, and a lock ends with its program. So one that can be locked is left over from a run that was
//! killed; the next run that writes to the same place removes it.

use crate::{Error, Result};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

/// Files that are to go when the program does, under their temporary names.
static PARTIAL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn partial() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the files that are being written, then calls `end`, which is to end the program where nothing is dropped any more, as in a
/// signal handler. No file is begun in between.
pub fn remove_partial_files(end: impl FnOnce()) {
    remove(&partial());
    end();
}

/// The same from within the allocator, when there is no memory: the list may be held by this very thread, or by one that waits for this one.
/// Then the files stay, and the next run that writes to the same place removes them.
pub fn try_remove_partial_files(end: impl FnOnce()) {
    let free = || match PARTIAL.try_lock() {
        Ok(names) => Some(names),
        Err(std::sync::TryLockError::Poisoned(names)) => Some(names.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => {
            std::thread::sleep(Duration::from_millis(1));
            None
        }
    };
    let names = (0..100).find_map(|_| free());
    names.iter().for_each(|names| remove(names));
    end();
}

fn remove(names: &BTreeSet<PathBuf>) {
    for name in names {
        // One that has just been committed or dropped is not there any more.
        let _ = fs::remove_file(name);
    }
}

/// An entry in the list of partial files.
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        partial().remove(&self.0);
    }
}

/// A locked file under a temporary name, `.NAME.abc123SUFFIX`, which goes when it is dropped and when the program ends. Nobody else has that
/// name, now or later.
#[derive(Debug)]
pub(crate) struct Temporary {
    file: NamedTempFile,
    _listed: Listed,
}

impl Temporary {
    pub(crate) fn begin(folder: &Path, name: &OsStr, suffix: &str, private: bool) -> io::Result<Self> {
        let prefix = prefix(name);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(suffix);
        // Temporary files are private by default; most are to become ordinary files.
        #[cfg(unix)]
        if !private {
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        }
        // No file is begun while others are removed because the program ends.
        let mut names = partial();
        loop {
            let file = builder.tempfile_in(folder)?;
            if is_locked(file.as_file()) {
                names.insert(file.path().to_owned());
                return Ok(Self { _listed: Listed(file.path().to_owned()), file });
            }
        }
    }

    pub(super) fn file(&self) -> &File {
        self.file.as_file()
    }

    #[cfg(feature = "parquet")]
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Removes what runs that were killed have left of files like this one; what cannot be removed is not in the way. Tells whether another
    /// such file is in use.
    pub(super) fn sweep(folder: &Path, name: &OsStr, suffix: &str, own: Option<&Self>) -> bool {
        let prefix = prefix(name);
        let Ok(entries) = fs::read_dir(folder) else { return false };
        let mut in_use = false;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let text = name.to_string_lossy();
            let random = text.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(suffix)).unwrap_or_default();
            let ours = random.len() == 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let own = own.is_some_and(|own| own.file.path().file_name() == Some(&name));
            if !ours || own || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            // Another user's can be read, at most.
            let opened = OpenOptions::new().write(true).open(entry.path()).or_else(|_| File::open(entry.path()));
            match opened.as_ref().map(File::try_lock) {
                // The lock is held until the file is gone: who has just begun it waits, sees that, and begins another.
                Ok(Ok(())) => drop(fs::remove_file(entry.path())),
                Ok(Err(TryLockError::WouldBlock)) => in_use = true,
                Ok(Err(TryLockError::Error(_))) | Err(_) => {}
            }
        }
        in_use
    }
}

/// What temporary names begin with. Names as long as they may be are shortened, to leave room for the rest.
fn prefix(name: &OsStr) -> String {
    let mut name = name.to_string_lossy().into_owned();
    while name.len() > 240 {
        name.pop();
    }
    format!(".{name}.")
}

/// Where a path leads: through symbolic links, also one that points to nothing yet.
pub fn destination(path: &Path) -> Result<PathBuf> {
    let mut place = path.to_owned();
    // As many as Linux follows.
    for _ in 0..40 {
        match fs::read_link(&place) {
            Ok(target) => {
                // Such a link stands for what is open there. To replace that would be to lose what others write to it.
                if folder_of(&place).canonicalize().is_ok_and(|folder| folder.starts_with("/proc")) {
                    let place = path.display().to_string();
                    return Err(Error::input(place, "stands for a file that is already open", "give the name of a file on disk"));
                }
                place = folder_of(&place).join(target);
            }
            Err(_) => return Ok(place),
        }
    }
    Err(Error::input(path.display().to_string(), "is a link that leads nowhere", "give another name"))
}

/// A file that is written under a temporary name next to its place and moved there by [`Self::commit`]. Dropped before
/// that, it leaves nothing behind, and a file that was there before stays as it was.
#[derive(Debug)]
pub struct AtomicFile {
    temporary: Temporary,
    /// As it was given.
    path: PathBuf,
    /// Where it leads.
    place: PathBuf,
}

/// What temporary names of files that are being written end in.
const PART: &str = ".part";

impl AtomicFile {
    /// Begins a file. Fails now, rather than after the work of filling it, if it can be told that the place cannot be written to.
    pub fn create(path: &Path) -> Result<Self> {
        let bad = |problem: &str, remedy: &str| Err(Error::input(path.display().to_string(), problem, remedy));
        let place = destination(path)?;
        let unwritable =
            |e: &io::Error| bad(&format!("cannot be written ({})", bare(e)), "choose another place or change its permissions");
        let before = match fs::metadata(&place) {
            Ok(about) => Some(about),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return unwritable(&e),
        };
        match &before {
            Some(about) if about.is_dir() => return bad("is a directory", "give the name of a file"),
            Some(about) if !about.is_file() => return bad("is not a regular file", "give the name of a file on disk"),
            Some(about) if is_protected(&place, about) => {
                return bad("is write-protected", "give another name, or permit writing to it");
            }
            _ => {}
        }
        // A name with a slash behind it is that of a folder.
        let is_last = |name: &&OsStr| place.as_os_str().as_encoded_bytes().ends_with(name.as_encoded_bytes());
        let Some(name) = place.file_name().filter(is_last) else {
            return bad("is not the name of a file", "give the name of a file");
        };
        let folder = folder_of(&place);
        if cfg!(unix) {
            Temporary::sweep(folder, name, PART, None);
        }
        let temporary = match Temporary::begin(folder, name, PART, before.is_some()) {
            Ok(temporary) => temporary,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return bad(&format!("its directory {} does not exist", folder.display()), "create it first");
            }
            Err(e) => return unwritable(&e),
        };
        #[cfg(unix)]
        if let Some(before) = &before {
            let fault = |e| Error::io(path, e);
            if !unix::may_replace(temporary.file(), before, folder).map_err(fault)? {
                return bad("is somebody else's, in a folder where only owners replace files", "give another name");
            }
            if unix::is_mounted(folder, name) {
                return bad("is mounted by itself and cannot be replaced", "mount its folder instead, or give another name");
            }
            unix::like(temporary.file(), before).map_err(fault)?;
        }
        Ok(Self { temporary, path: path.to_owned(), place })
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
        self.temporary.file.reopen().map_err(|e| Error::io(&self.path, e))
    }

    /// Moves the file to its place, once its contents have reached the disk. Should that fail, the file is kept: it may be the work of days.
    pub fn commit(self) -> Result<()> {
        let Temporary { file, _listed } = self.temporary;
        file.as_file().sync_all().map_err(|e| Error::io(&self.path, e))?;
        let Err(failed) = file.persist(&self.place) else { return Ok(()) };
        let name = failed.file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.trim_start_matches('.').trim_end_matches(PART);
        let kept = folder_of(&self.place).join(name);
        if failed.file.persist_noclobber(&kept).is_err() {
            return Err(Error::io(&self.path, failed.error));
        }
        let problem = format!("cannot be replaced ({})", failed.error);
        Err(Error::input(self.path.display().to_string(), problem, format!("{} has it all: move it", kept.display())))
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

/// What the system said, without the name that is said anyway.
fn bare(e: &io::Error) -> String {
    e.get_ref().and_then(std::error::Error::source).map_or_else(|| e.to_string(), ToString::to_string)
}

/// What becomes of owners, groups and permissions.
#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::fs::{self, File, Metadata};
    use std::io;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    use std::path::Path;

    /// Whether the owner of a new file may replace another in its folder: not in a sticky one, if neither is theirs.
    pub fn may_replace(new: &File, before: &Metadata, folder: &Path) -> io::Result<bool> {
        let (me, folder) = (new.metadata()?.uid(), fs::metadata(folder)?);
        Ok(lets_replace(me, before.uid(), folder.uid(), folder.mode()))
    }

    fn lets_replace(me: u32, file: u32, folder: u32, mode: u32) -> bool {
        mode & 0o1000 == 0 || [0, file, folder].contains(&me)
    }

    /// Whether a file is mounted by itself, as containers do.
    pub fn is_mounted(folder: &Path, name: &OsStr) -> bool {
        let Ok(folder) = folder.canonicalize() else { return false };
        let place = folder.join(name);
        // Only Linux has such mounts, and the table.
        fs::read_to_string("/proc/self/mountinfo").is_ok_and(|table| place.to_str().is_some_and(|place| is_listed(&table, place)))
    }

    fn is_listed(table: &str, place: &str) -> bool {
        let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
        let plain = |text: &str| escapes.iter().fold(text.to_owned(), |text, (code, c)| text.replace(code, c));
        table.lines().filter_map(|line| line.split(' ').nth(4)).any(|mounted| plain(mounted) == place)
    }

    /// Gives a file the owner and the group of another, where that is allowed, and its permissions.
    pub fn like(file: &File, before: &Metadata) -> io::Result<()> {
        let now = file.metadata()?;
        let (owners, wanted) = ((now.uid(), now.gid()), (before.uid(), before.gid()));
        let mode = adopt(owners, wanted, before.mode() & 0o777, |owner, group| fchown(file, owner, group));
        file.set_permissions(fs::Permissions::from_mode(mode))
    }

    /// Who may not give files away may still give them a group of theirs. If not even that, what the old group might do the new one may not.
    fn adopt(now: (u32, u32), wanted: (u32, u32), mode: u32, chown: impl Fn(Option<u32>, Option<u32>) -> io::Result<()>) -> u32 {
        let has_group = now == wanted
            || chown(Some(wanted.0), Some(wanted.1)).is_ok()
            || now.1 == wanted.1
            || chown(None, Some(wanted.1)).is_ok();
        if has_group { mode } else { mode & !0o070 }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::cell::RefCell;

        /// Root, the owner, a member of the group, and a stranger to it.
        #[test]
        fn a_group_keeps_its_permissions_and_no_other_gets_them() {
            for (may_give, member, mode, tried) in [
                (true, true, 0o660, vec![(Some(1), Some(2))]),
                (false, true, 0o660, vec![(Some(1), Some(2)), (None, Some(2))]),
                (false, false, 0o600, vec![(Some(1), Some(2)), (None, Some(2))]),
            ] {
                let calls = RefCell::new(Vec::new());
                let chown = |owner: Option<u32>, group| {
                    calls.borrow_mut().push((owner, group));
                    let allowed = if owner.is_some() { may_give } else { member };
                    if allowed { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
                };
                assert_eq!(adopt((4, 4), (1, 2), 0o660, chown), mode);
                assert_eq!(calls.into_inner(), tried);
            }
            let refused = |_, _| Err(io::ErrorKind::PermissionDenied.into());
            assert_eq!(adopt((4, 2), (1, 2), 0o664, refused), 0o664, "the group is the same");
            assert_eq!(adopt((1, 2), (1, 2), 0o664, refused), 0o664);
        }

        #[test]
        fn in_sticky_folders_only_owners_replace() {
            assert!(!lets_replace(7, 8, 9, 0o1777));
            for (me, file, folder, mode) in [(7, 8, 9, 0o777), (7, 7, 9, 0o1777), (7, 8, 7, 0o1777), (0, 8, 9, 0o1777)] {
                assert!(lets_replace(me, file, folder, mode));
            }
        }

        #[test]
        fn files_that_are_mounted_are_found() {
            let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 22 8:1 /a /data/my\\040layer.npz rw - ext4 /dev/sda1 rw\n";
            assert!(is_listed(table, "/data/my layer.npz") && is_listed(table, "/"));
            assert!(!is_listed(table, "/data") && !is_listed(table, "/data/other.npz"));
        }
    }
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

/// A bare name has an empty parent, which no system call takes for the current directory.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
