//! Where a search is kept while it goes on, so that it can be continued bit for bit.

use crate::data::AtomicFile;
use crate::layer::AttentionLayer;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is kept of a search, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// The search itself, every minute and when it is stopped. Beside the layer if that has a place and this has none.
    pub checkpoint: Option<PathBuf>,
    /// The best layer so far, when it is stopped.
    pub layer: Option<PathBuf>,
    /// Whether to continue the search that is kept there.
    pub resume: bool,
}

impl Keeping {
    /// The first setting given, by the name of its flag.
    pub(super) fn given(&self) -> Option<&'static str> {
        let flags = [("--checkpoint", self.checkpoint.is_some()), ("--resume", self.resume)];
        flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }

    /// With a checkpoint wherever there can be one; fails now if it cannot be written later, or if there is none to continue.
    pub(super) fn check(&self) -> Result<Self> {
        let checkpoint = self.checkpoint.clone().or_else(|| self.layer.as_deref().map(beside));
        if let Some(path) = &checkpoint {
            if self.resume != path.exists() {
                let (problem, remedy) = if self.resume {
                    ("there is no search to continue", "leave --resume out")
                } else {
                    ("a search was kept here", "continue it with --resume, or remove it")
                };
                return Err(Error::input(path.display().to_string(), problem, remedy));
            }
            AtomicFile::create(path)?;
        } else if self.resume {
            return Err(Error::input("--resume", "there is no search to continue", "name it with --checkpoint"));
        }
        Ok(Self { checkpoint, ..self.clone() })
    }

    /// Writes what was found, before something else is tried.
    pub(super) fn keep(&self, layer: &AttentionLayer, notes: &BTreeMap<String, String>) -> Result<()> {
        self.layer.as_deref().map_or(Ok(()), |path| layer.save(path, notes))
    }

    /// Removes the checkpoint: the search is over.
    pub(super) fn forget(&self) -> Result<()> {
        match self.checkpoint.as_deref().map(|path| (path, fs::remove_file(path))) {
            Some((path, Err(e))) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, e)),
            _ => Ok(()),
        }
    }
}

/// The name of the checkpoint of a layer's file.
fn beside(layer: &Path) -> PathBuf {
    let mut name = layer.as_os_str().to_owned();
    name.push(".checkpoint");
    name.into()
}
