//! Files to be written: checked before the work, written whole after it.

use attnlearn::files::{AtomicFile, FileFormat, destination};
use attnlearn::{Error, Result};
use std::path::{Path, PathBuf};

/// Fails now if `path` cannot be written later.
pub fn writable(path: &Path) -> Result<()> {
    AtomicFile::create(path).map(drop)
}

/// Fails now if a layer cannot be written to `path` later.
pub fn writable_layer(path: &Path) -> Result<()> {
    if FileFormat::of_name(path).ok() != Some(FileFormat::Safetensors) {
        let place = path.display().to_string();
        return Err(Error::input(place, "layers are written as safetensors", "let the name end in .safetensors"));
    }
    writable(path)
}

/// The files that a run reads and those that it writes: declared by every command, and checked in one place before anything is opened.
#[derive(Debug, Default)]
pub struct Files {
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
}

impl Files {
    /// Reads these.
    pub fn read(mut self, paths: impl IntoIterator<Item: AsRef<Path>>) -> Self {
        self.reads.extend(paths.into_iter().map(|path| path.as_ref().to_owned()));
        self
    }

    /// Writes these.
    pub fn write(mut self, paths: impl IntoIterator<Item: AsRef<Path>>) -> Self {
        self.writes.extend(paths.into_iter().map(|path| path.as_ref().to_owned()));
        self
    }

    /// Whether a path has been declared.
    #[cfg(test)]
    pub fn declares(&self, path: &Path) -> bool {
        self.reads.iter().chain(&self.writes).any(|known| known == path)
    }

    /// Refuses an output that would overwrite an input or another output, under whatever names.
    pub fn check(&self) -> Result<()> {
        let reads: Vec<Place> = self.reads.iter().map(|path| Place::of(path)).collect();
        let writes: Vec<Place> = self.writes.iter().map(|path| Place::of(path)).collect();
        for (i, (path, place)) in self.writes.iter().zip(&writes).enumerate() {
            let refuse = |problem: &str, remedy: &str| Err(Error::input(path.display().to_string(), problem, remedy));
            if writes[..i].iter().any(|other| other.same(place)) {
                return refuse("is given for two different outputs", "give each its own name");
            }
            if reads.iter().any(|other| other.same(place)) {
                return refuse("would overwrite what is read", "give another name");
            }
        }
        Ok(())
    }
}

/// Where a name leads.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// To a file that is there: its device and its number on it, which all its names share.
    #[cfg(unix)]
    There(u64, u64),
    /// The same where files have no numbers: its one name.
    #[cfg(not(unix))]
    There(PathBuf),
    /// To nothing yet.
    Nowhere(PathBuf),
}

impl Place {
    fn of(path: &Path) -> Self {
        #[cfg(unix)]
        if let Ok(about) = std::fs::metadata(path) {
            use std::os::unix::fs::MetadataExt;
            return Self::There(about.dev(), about.ino());
        }
        #[cfg(not(unix))]
        if let Ok(path) = path.canonicalize() {
            return Self::There(path);
        }
        let end = destination(path).unwrap_or_else(|_| path.to_owned());
        Self::Nowhere(resolved(&end).unwrap_or(end))
    }

    /// Names of files that are not there yet may differ in case and mean one file, where that is usual.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nowhere(a), Self::Nowhere(b)) if cfg!(any(windows, target_vendor = "apple")) => {
                let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().to_lowercase());
                a.parent() == b.parent() && name(a) == name(b)
            }
            _ => self == other,
        }
    }
}

/// Where a path leads; the end of it may not be there yet.
fn resolved(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().ok().or_else(|| resolved(folder))?;
    Some(folder.join(path.file_name()?))
}

/// Whether a file is, or would be, in a folder or in one of its folders.
#[cfg(feature = "lab")]
pub fn within(path: &Path, folder: &Path) -> bool {
    let path = destination(path).unwrap_or_else(|_| path.to_owned());
    resolved(&path).zip(resolved(folder)).is_some_and(|(path, folder)| path.starts_with(folder))
}

/// Whether two names mean one file or folder, which may not be there yet.
#[cfg(feature = "lab")]
pub fn same_place(a: &Path, b: &Path) -> bool {
    Place::of(a).same(&Place::of(b))
}
