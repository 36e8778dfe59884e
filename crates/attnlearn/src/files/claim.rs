//! One run at a time writes to a place.
//!
//! The right to do so is a locked file beside it, `.NAME.abc123.lock`, with no other locked file of that kind there. Not the file itself, which may
//! not be there yet and is replaced by another each time it is written. The name is drawn anew each time, as for files that are being written:
//! so nothing is opened or removed but what a run has made for this, and the system ends a lock with its program, however that ends.
//!
//! Who claims a place first makes such a file and then looks for others. So of two that come at once at least one sees the other, and not
//! both have it.

use super::atomic::{Temporary, destination, folder_of};
use crate::{Error, Result};
use std::path::Path;

/// What the names end in.
const LOCK: &str = ".lock";

/// The right to write to a place, until it is dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub struct Claim {
    /// Nothing where no file can be made.
    _held: Option<Temporary>,
}

impl Claim {
    /// Claims the place of a file, which need not be there. Fails if another run has it. On file systems without locks every run has it: one at
    /// a time is then up to the user.
    pub fn take(path: &Path) -> Result<Self> {
        let place = destination(path)?;
        let Some(name) = place.file_name() else { return Ok(Self { _held: None }) };
        let folder = folder_of(&place);
        // A place where no file can be made cannot be written to either, which is said where that is tried.
        let Ok(held) = Temporary::begin(folder, name, LOCK, true) else { return Ok(Self { _held: None }) };
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Whoever may write to the place is to see the lock, and to open the file is enough for that.
            let _ = held.file().set_permissions(std::fs::Permissions::from_mode(0o644));
        }
        // Elsewhere files under temporary names are not locked, since they are written to by other handles: this one is not.
        #[cfg(not(unix))]
        let _ = held.file().try_lock();
        if Temporary::sweep(folder, name, LOCK, Some(&held)) {
            let place = path.display().to_string();
            return Err(Error::input(place, "another run writes to it", "wait for that one, or give another name"));
        }
        Ok(Self { _held: Some(held) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use std::fs::{self, File};
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
        fs::write(folder.path().join(".layer.abc123.lock"), b"").unwrap();
        drop(Claim::take(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // Whatever else has a name like that is nobody's lock.
        for name in [".layer.lock", ".layer.npz.abc123.lock", "layer.abc123.lock"] {
            fs::write(folder.path().join(name), b"dear").unwrap();
        }
        drop(Claim::take(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    /// Another user may be allowed to read it and no more.
    #[cfg(unix)]
    #[test]
    fn a_claim_can_be_seen_by_all() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layer");
        let _claim = Claim::take(&path).unwrap();
        let lock = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(File::open(&lock).unwrap().try_lock().is_err());
        assert!(Claim::take(&path).is_err());
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
        // Two that come at the same time may see one another, and then neither has it; the last is alone.
        assert!(taken.into_inner() > 0);
    }
}
