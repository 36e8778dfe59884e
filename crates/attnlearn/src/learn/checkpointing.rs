//! Checkpoints of a search: where they go and how often, so that it can be continued bit for bit.

use crate::files::{AtomicFile, Claim};
use crate::layer::AttentionLayer;
use crate::words::{Setting, Wording};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two checkpoints, if nothing else is said.
const INTERVAL: Duration = Duration::from_secs(60);

/// What is kept of a search, where and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpointing {
    /// The search itself, every minute (or [`Self::every`]), when it is stopped and when it is over. Beside the layer if that has a place and this has none.
    pub file: Option<PathBuf>,
    /// The best layer so far, when it is stopped.
    pub layer: Option<PathBuf>,
    /// Whether to continue the search that is kept there.
    pub resume: bool,
    /// Time between two checkpoints (default: a minute).
    pub every: Option<Duration>,
}

impl Checkpointing {
    /// The first setting given.
    pub(super) fn given(&self) -> Option<Setting> {
        let all = [
            (Setting::new("checkpoint"), self.file.is_some()),
            (Setting::switch("resume", true), self.resume),
            (Setting::new("checkpoint_every"), self.every.is_some()),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(setting, _)| setting)
    }

    /// With a checkpoint wherever there can be one; fails now if it cannot be written later, or if there is none to continue.
    pub(super) fn check(&self) -> Result<Self> {
        let file = self.file.clone().or_else(|| self.layer.as_deref().map(checkpoint_beside));
        if let Some(path) = &file {
            // While another run keeps its search here, it is neither to be continued nor removed.
            drop(Claim::take(path)?);
            if self.resume != path.exists() {
                let resume = Setting::switch("resume", true);
                let (problem, remedy) = if self.resume {
                    ("there is no search to continue", Wording::from("leave ").then(resume).then(" out"))
                } else if is_search(path) {
                    ("a search was kept here", Wording::from("continue it with ").then(resume).then(", or remove it"))
                } else {
                    let remedy = Wording::from("give ").then(Setting::new("checkpoint")).then(" another name");
                    ("is there already and no search that was kept", remedy)
                };
                return Err(Error::input(path.display().to_string(), problem, remedy));
            }
            AtomicFile::create(path)?;
        } else if self.resume {
            let remedy = Wording::from("name it with ").then(Setting::new("checkpoint"));
            return Err(Error::input(Setting::switch("resume", true), "there is no search to continue", remedy));
        }
        Ok(Self { file, ..self.clone() })
    }

    /// Writes what was found, before something else is tried.
    pub(super) fn save_layer(&self, layer: &AttentionLayer, notes: &BTreeMap<String, String>) -> Result<()> {
        self.layer.as_deref().map_or(Ok(()), |path| layer.save(path, notes))
    }

    /// Time between two checkpoints.
    pub(super) fn interval(&self) -> Duration {
        self.every.unwrap_or(INTERVAL)
    }

    /// Claims the checkpoint: two searches that keep themselves in one place would lose one another's.
    pub(super) fn claim(&self) -> Result<Option<Claim>> {
        self.file.as_deref().map(Claim::take).transpose()
    }

    /// Removes the checkpoint: the search is over.
    pub(super) fn remove(&self) -> Result<()> {
        match self.file.as_deref().map(|path| (path, fs::remove_file(path))) {
            Some((path, Err(e))) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, e)),
            _ => Ok(()),
        }
    }
}

/// Whether a file begins like a search that was kept.
fn is_search(path: &Path) -> bool {
    let mut magic = [0; 7];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && &magic == b"attnrun"
}

/// The checkpoint of a search whose layer is to go to a file: beside it.
pub fn checkpoint_beside(layer: &Path) -> PathBuf {
    let mut name = layer.as_os_str().to_owned();
    name.push(".checkpoint");
    name.into()
}
