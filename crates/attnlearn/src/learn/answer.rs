//! What a run came to, whichever learner it was.

use super::descent::Descended;
use super::parts::Parts;
use crate::Result;
use crate::certify::Certificate;
use crate::files::write_atomically;
use crate::layer::AttentionLayer;
use crate::sculpt::{Learned, Outcome, Stage, ValidSettings};
use std::collections::BTreeMap;
use std::path::Path;

/// What the six phases came to.
#[derive(Clone, Debug)]
pub struct Sculpted {
    /// Outcome, layers and records.
    pub learned: Learned,
    /// What was asked for.
    pub settings: ValidSettings,
    /// How examples were shared out, if there was an end to them.
    pub parts: Option<Parts>,
    /// Seconds that it took.
    pub seconds: f64,
}

impl Sculpted {
    /// The best layer and its error: polished, if it was.
    pub fn best(&self) -> Option<&Stage> {
        self.learned.after_polish.as_ref().or(self.learned.before_polish.as_ref())
    }

    /// Where a layer comes from, for the notes in its file.
    pub fn notes(&self, stage: &Stage, polished: bool) -> BTreeMap<String, String> {
        sculpt_notes(&self.learned, stage, polished, self.settings.seed)
    }
}

/// Where a layer of the six phases comes from, for the notes in its file. The same run leaves the same notes.
pub fn sculpt_notes(learned: &Learned, stage: &Stage, polished: bool, seed: u64) -> BTreeMap<String, String> {
    let notes = [
        ("producer", format!("attnlearn {}", env!("CARGO_PKG_VERSION"))),
        ("method", "sculpt".into()),
        ("polished", polished.to_string()),
        ("outcome", learned.outcome.to_string()),
        ("held_out_nmse", format!("{:e}", stage.nmse)),
        ("examples", learned.examples.to_string()),
        ("seed", seed.to_string()),
    ];
    notes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The end of a run.
#[derive(Clone, Debug)]
pub enum Answer {
    /// By descent.
    Descended(Box<Descended>),
    /// By the six phases.
    Sculpted(Box<Sculpted>),
}

impl Answer {
    /// The best layer, if there is one.
    pub fn layer(&self) -> Option<&AttentionLayer> {
        match self {
            Self::Descended(found) => Some(&found.outcome.layer),
            Self::Sculpted(found) => found.learned.layer(),
        }
    }

    /// Whether it was recovered.
    pub fn recovered(&self) -> bool {
        match self {
            Self::Descended(found) => found.recovered,
            Self::Sculpted(found) => found.learned.outcome == Outcome::Recovered,
        }
    }

    /// How it ended, in words.
    pub fn text(&self) -> String {
        match self {
            Self::Descended(found) => found.text.clone(),
            Self::Sculpted(found) => found.learned.outcome.to_string(),
        }
    }

    /// Whether the limit of time ended the search before it had recovered a layer: then what was kept of it is to be continued.
    pub fn unfinished(&self) -> bool {
        match self {
            Self::Descended(found) => found.unfinished(),
            Self::Sculpted(_) => false,
        }
    }

    /// What is guaranteed of the layer.
    pub fn certificate(&self) -> Option<&Certificate> {
        match self {
            Self::Descended(found) => Some(&found.certificate),
            Self::Sculpted(found) => found.learned.certificate.as_ref(),
        }
    }

    /// How examples were shared out, if there was an end to them.
    pub fn parts(&self) -> Option<&Parts> {
        match self {
            Self::Descended(found) => Some(&found.parts),
            Self::Sculpted(found) => found.parts.as_ref(),
        }
    }

    /// Seconds that it took.
    pub fn seconds(&self) -> f64 {
        match self {
            Self::Descended(found) => found.seconds,
            Self::Sculpted(found) => found.seconds,
        }
    }

    /// The best layer as the contents of its file, if there is one.
    pub fn to_bytes(&self) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Descended(found) => found.outcome.layer.to_bytes(&found.notes()).map(Some),
            Self::Sculpted(found) => {
                let polished = found.learned.after_polish.is_some();
                found.best().map(|stage| stage.layer.to_bytes(&found.notes(stage, polished))).transpose()
            }
        }
    }

    /// Writes the best layer, if there is one; whether there is.
    pub fn save(&self, path: &Path) -> Result<bool> {
        self.to_bytes()?.map_or(Ok(false), |bytes| write_atomically(path, &bytes).map(|()| true))
    }
}
