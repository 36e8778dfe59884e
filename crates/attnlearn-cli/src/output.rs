//! Files to be written: checked before the work, written whole after it.

use attnlearn::data::{AtomicFile, FileFormat};
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

/// Fails if two of the outputs would overwrite each other.
pub fn distinct(outputs: &[Option<&Path>]) -> Result<()> {
    let given: Vec<&Path> = outputs.iter().flatten().copied().collect();
    for (i, path) in given.iter().enumerate() {
        if given[..i].iter().any(|other| same_place(path, other)) {
            return Err(Error::input(path.display().to_string(), "is given for two different outputs", "give each its own name"));
        }
    }
    Ok(())
}

/// Fails if an output would overwrite an input.
#[cfg(feature = "lab")]
pub fn spares(input: &Path, outputs: &[Option<&Path>]) -> Result<()> {
    match outputs.iter().flatten().find(|output| same_place(input, output)) {
        Some(output) => Err(Error::input(output.display().to_string(), "would overwrite what is read", "give another name")),
        None => Ok(()),
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
    resolved(path).zip(resolved(folder)).is_some_and(|(path, folder)| path.starts_with(folder))
}

/// Whether two names mean one file, which may not be there yet.
pub fn same_place(a: &Path, b: &Path) -> bool {
    a == b || resolved(a).is_some_and(|a| Some(a) == resolved(b))
}
