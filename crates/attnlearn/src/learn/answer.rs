//! What a run came to, whichever learner it was.
//!
//! An [`Answer`] says the same of every learner, field by field; what only one of them has to say stands in its [`Details`].

use super::lack_of_fit::LackOfFit;
use super::noise::Noise;
use super::parts::Parts;
use crate::Result;
use crate::certify::Certificate;
use crate::data::Shape;
use crate::descend::{Try, Wanted};
use crate::files::write_atomically;
use crate::layer::AttentionLayer;
use crate::sculpt::{self, Learned, Record, Stage, ValidSettings};
use crate::words::Wording;
use std::collections::BTreeMap;
use std::path::Path;

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The best layer, if there is one.
    pub layer: Option<AttentionLayer>,
    /// Its held-out NMSE.
    pub nmse: Option<f64>,
    /// The layer as it was before the polish, and its held-out NMSE; only the six phases polish, and they have it without a polish too.
    pub before_polish: Option<Stage>,
    /// Whether the layer was recovered.
    pub recovered: bool,
    /// How it ended, in words.
    pub outcome: Wording,
    /// Whether the limit of time ended the search before a layer explained the examples to choose by: then what was kept of it is to be continued.
    /// Held-out examples have no part in that.
    pub unfinished: bool,
    /// What is guaranteed of the layer.
    pub certificate: Option<Certificate>,
    /// Examples learned from.
    pub examples: u64,
    /// How they were shared out, if there was an end to them.
    pub parts: Option<Parts>,
    /// Sizes of an example.
    pub shape: Shape,
    /// Seed of the run.
    pub seed: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// What only one learner has.
    pub details: Details,
}

/// What only one learner has.
#[derive(Clone, Debug)]
pub enum Details {
    /// Descent.
    Search(Box<Search>),
    /// The six phases.
    Phases(Box<Phases>),
}

/// What a search by descent leaves behind.
#[derive(Clone, Debug)]
pub struct Search {
    /// What was looked for.
    pub wanted: Wanted,
    /// Everything that was tried.
    pub tries: Vec<Try>,
    /// Which of them is the answer.
    pub chosen: usize,
    /// Its NMSE on the examples to choose by.
    pub chosen_by: f64,
    /// Whether the limit of time ended the search.
    pub out_of_time: bool,
    /// The noise, if outputs were said to be noisy.
    pub noise: Option<Noise>,
    /// Whether what the layer leaves depends on the inputs, if there is enough left to ask: noise was said to be there, or the search ended at a floor.
    pub lack_of_fit: Option<LackOfFit>,
}

/// What the six phases leave behind.
#[derive(Clone, Debug)]
pub struct Phases {
    /// What was asked for.
    pub settings: ValidSettings,
    /// How it ended, for machines.
    pub outcome: sculpt::Outcome,
    /// Whether the layer is that after the polish.
    pub polished: bool,
    /// Whether the answer before the polish rests on rows certified with separated projections, too few being certified by agreement alone.
    pub separated: bool,
    /// One record per phase, in order.
    pub records: Vec<Record>,
}

impl Answer {
    /// That of the six phases.
    pub(super) fn of_phases(learned: Learned, settings: &ValidSettings, parts: Option<Parts>, seconds: f64) -> Self {
        let Learned { outcome, before_polish, after_polish, certificate, records, examples, separated } = learned;
        let polished = after_polish.is_some();
        let (layer, nmse) = after_polish.or_else(|| before_polish.clone()).map(|best| (best.layer, best.nmse)).unzip();
        Self {
            layer,
            nmse,
            before_polish,
            recovered: outcome == sculpt::Outcome::Recovered,
            outcome: outcome.to_string().into(),
            unfinished: false,
            certificate,
            examples,
            parts,
            shape: settings.shape(),
            seed: settings.seed,
            seconds,
            details: Details::Phases(Box::new(Phases { settings: settings.clone(), outcome, polished, separated, records })),
        }
    }

    /// What descent has to say, if it is its answer.
    pub fn search(&self) -> Option<&Search> {
        match &self.details {
            Details::Search(search) => Some(search),
            Details::Phases(_) => None,
        }
    }

    /// What the six phases have to say, if it is theirs.
    pub fn phases(&self) -> Option<&Phases> {
        match &self.details {
            Details::Search(_) => None,
            Details::Phases(phases) => Some(phases),
        }
    }

    /// The layer after the polish and its held-out NMSE, if it was polished.
    pub fn after_polish(&self) -> Option<(&AttentionLayer, f64)> {
        self.phases().filter(|phases| phases.polished).and(self.layer.as_ref().zip(self.nmse))
    }

    /// The best layer as the contents of its file, if there is one.
    pub fn to_bytes(&self) -> Result<Option<Vec<u8>>> {
        let polished = self.after_polish().is_some();
        let bytes = |(layer, nmse): (&AttentionLayer, f64)| layer.to_bytes(&self.notes(nmse, polished));
        self.layer.as_ref().zip(self.nmse).map(bytes).transpose()
    }

    /// Writes the best layer, if there is one; whether there is.
    pub fn save(&self, path: &Path) -> Result<bool> {
        self.to_bytes()?.map_or(Ok(false), |bytes| write_atomically(path, &bytes).map(|()| true))
    }

    /// Writes the layer as it was before the polish, if there is one; whether there is.
    pub fn save_before_polish(&self, path: &Path) -> Result<bool> {
        let save = |stage: &Stage| stage.layer.save(path, &self.notes(stage.nmse, false)).map(|()| true);
        self.before_polish.as_ref().map_or(Ok(false), save)
    }

    /// Where a layer comes from, for the notes in its file. The same run leaves the same notes.
    fn notes(&self, nmse: f64, polished: bool) -> BTreeMap<String, String> {
        let method = if self.search().is_some() { "descend" } else { "sculpt" };
        let mut notes = notes(method, &self.outcome.to_string(), ("held_out_nmse", nmse), self.examples, self.seed);
        if self.phases().is_some() {
            notes.insert("polished".into(), polished.to_string());
        }
        notes
    }
}

/// Where a layer comes from: whose it is, how it ended, a share of unexplained variance by its name, examples learned from and seed.
pub(super) fn notes(
    method: &str,
    outcome: &str,
    (kind, nmse): (&str, f64),
    examples: u64,
    seed: u64,
) -> BTreeMap<String, String> {
    let notes = [
        ("producer", format!("attnlearn {}", env!("CARGO_PKG_VERSION"))),
        ("method", method.into()),
        ("outcome", outcome.into()),
        (kind, format!("{nmse:e}")),
        ("examples", examples.to_string()),
        ("seed", seed.to_string()),
    ];
    notes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
