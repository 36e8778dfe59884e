//! One run at a time writes to a place.
//!
//! The right to do so is a lock on `.NAME.lock` beside it. Not on the file itself, which may not be there yet and is replaced by another each
//! time it is written. The system ends a lock with its program, however that ends, so a file that was left over is in nobody's way.

use super::atomic::{Listed, destination, folder_of};
use crate::{Error, Result};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// The right to write to a place, until it is dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub struct Claim {
    /// Nothing on file systems without locks.
    _held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    name: PathBuf,
    _listed: Listed,
    /// Dropped last, and with it the lock.
    _file: File,
}

impl Claim {
    /// Claims the place of a file, which need not be there. Fails if another run has it. On file systems without locks there is nothing to
    /// claim: one run at a time is then up to the user.
    pub fn take(path: &Path) -> Result<Self> {
        let place = destination(path)?;
        let Some(name) = place.file_name() else { return Ok(Self { _held: None }) };
        let name = folder_of(&place).join(format!(".{}.lock", name.to_string_lossy()));
        loop {
            // A place where no file can be made cannot be written to either, which is said where that is tried.
            let Ok(file) = OpenOptions::new().create(true).truncate(false).write(true).open(&name) else {
                return Ok(Self { _held: None });
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let place = path.display().to_string();
                    return Err(Error::input(place, "another run writes to it", "wait for that one, or give another name"));
                }
                Err(TryLockError::Error(_)) => return Ok(Self { _held: None }),
            }
            if is_there(&file, &name) {
                let _listed = Listed::new(&name);
                return Ok(Self { _held: Some(Held { name, _listed, _file: file }) });
            }
            // The run that had it has removed the file between our opening and our locking: what we hold nobody else will look at.
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Still locked, so nobody else has it.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.name);
        }
    }
}

/// Whether a file is the one that has this name.
fn is_there(file: &File, name: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let of = |about: fs::Metadata| (about.dev(), about.ino());
        matches!((file.metadata().map(of), fs::metadata(name).map(of)), (Ok(a), Ok(b)) if a == b)
    }
    #[cfg(not(unix))]
    {
        let _ = (file, name);
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_place_is_claimed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layer");
        let first = Claim::take(&path).unwrap();
        let said = Claim::take(&path).unwrap_err().to_string();
        assert!(said.contains("layer: another run writes to it; wait"), "{said}");
        let other = Claim::take(&folder.path().join("other")).unwrap();
        drop((first, other));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left over");
        // What a killed run has left over is in nobody's way.
        fs::write(folder.path().join(".layer.lock"), b"").unwrap();
        drop(Claim::take(&path).unwrap());
    }

    /// Through a link too.
    #[cfg(unix)]
    #[test]
    fn a_link_is_claimed_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("layer"), folder.path().join("link"));
        std::os::unix::fs::symlink("layer", &link).unwrap();
        let _first = Claim::take(&link).unwrap();
        assert!(Claim::take(&path).is_err());
    }

    /// However claims follow one another, no two are held at once.
    #[cfg(unix)]
    #[test]
    fn no_two_hold_it_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layer");
        let (holders, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Ok(claim) = Claim::take(&path) else { continue };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        taken.fetch_add(1, Ordering::SeqCst);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(claim);
                    }
                });
            }
        });
        assert!(taken.into_inner() >= 500);
    }
}
