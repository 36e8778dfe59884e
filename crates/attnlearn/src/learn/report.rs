//! A run as data: what stands in the program's JSON and in the results of the Python package.

use super::answer::{Answer, Details};
use super::lack_of_fit::LackOfFit;
use super::noise::Noise;
use super::parts::Parts;
use crate::certify::Certificate;
use crate::data::Shape;
use crate::descend::{End, Learner, Wanted};
use crate::engine::Form;
use crate::layer::LayerDistance;
use crate::sculpt::{Outcome, Record, Settings};
use serde::Serialize;

/// A form that was tried.
#[derive(Serialize)]
struct TryReport {
    /// Its shape.
    form: Form,
    /// Numbers that a layer of this form is determined by.
    unknowns: usize,
    /// Share of the effort that was allowed.
    effort: f64,
    /// How it ended.
    end: End,
    /// Share of unexplained variance on the examples it was learned from.
    nmse: f64,
    /// The same on those that chose among forms.
    held_out_nmse: f64,
}

/// The errors of a stage of learning.
#[derive(Clone, Debug, Serialize)]
struct StageErrors {
    /// Held-out NMSE.
    nmse: f64,
    /// Heads found.
    heads: usize,
    /// Distance from the teacher, where there is one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    distance: Option<LayerDistance>,
    /// The largest relative error of an attention matrix; null when a head is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_theta: Option<f64>,
    /// The largest relative error of a projection; null when a head is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_w: Option<f64>,
}

impl StageErrors {
    /// Without a teacher to compare with.
    fn new(heads: usize, nmse: f64) -> Self {
        Self { nmse, heads, distance: None, worst_theta: None, worst_w: None }
    }

    /// With the distance from a teacher.
    fn compare(&mut self, distance: &LayerDistance) {
        (self.worst_theta, self.worst_w) = (Some(distance.worst_theta()), Some(distance.worst_w()));
        self.distance = Some(distance.clone());
    }
}

/// What was asked for, in the terms of the learner that gave the answer.
#[derive(Serialize)]
#[serde(untagged)]
pub enum SettingsReport<'a> {
    /// Descent.
    Search(&'a Wanted),
    /// The six phases.
    Phases(&'a Settings),
}

/// What only one learner has to say.
#[derive(Serialize)]
#[serde(untagged)]
enum DetailsReport<'a> {
    Search {
        noise: Option<Noise>,
        lack_of_fit: Option<LackOfFit>,
        out_of_time: bool,
        heads: Option<usize>,
        tries: Vec<TryReport>,
        chosen: usize,
    },
    Phases {
        outcome: &'a Outcome,
        /// Whether the rows were certified with separated projections, agreement alone not sufficing.
        separated: bool,
        before_polish: Option<StageErrors>,
        after_polish: Option<StageErrors>,
        records: &'a [Record],
    },
}

/// A run.
#[derive(Serialize)]
pub struct Report<'a> {
    method: &'static str,
    seed: u64,
    settings: SettingsReport<'a>,
    shape: Shape,
    examples: u64,
    /// How they were shared out, if there was an end to them.
    split: Option<Parts>,
    recovered: bool,
    outcome_text: String,
    #[serde(flatten)]
    details: DetailsReport<'a>,
    certificate: Option<&'a Certificate>,
    seconds: f64,
    layer: Option<String>,
}

impl Report<'_> {
    /// With the outcome in the words of whoever shows it.
    #[must_use]
    pub fn with_outcome(self, outcome_text: String) -> Self {
        Self { outcome_text, ..self }
    }

    /// With the distances from a teacher before and after the polish.
    #[must_use]
    pub fn beside(mut self, before: Option<&LayerDistance>, after: Option<&LayerDistance>) -> Self {
        if let DetailsReport::Phases { before_polish, after_polish, .. } = &mut self.details {
            for (errors, distance) in [(before_polish, before), (after_polish, after)] {
                if let (Some(errors), Some(distance)) = (errors, distance) {
                    errors.compare(distance);
                }
            }
        }
        self
    }
}

impl Answer {
    /// What was asked for, in the terms of the learner that gave the answer.
    pub fn settings(&self) -> SettingsReport<'_> {
        match &self.details {
            Details::Search(search) => SettingsReport::Search(&search.wanted),
            Details::Phases(phases) => SettingsReport::Phases(&phases.settings),
        }
    }

    /// As data; `layer` is the file that the best layer was written to.
    pub fn report(&self, layer: Option<String>) -> Report<'_> {
        let (method, details) = match &self.details {
            Details::Search(search) => {
                let tries = search.tries.iter().map(|t| TryReport {
                    form: t.form.clone(),
                    unknowns: Learner::unknowns(&t.form),
                    effort: t.effort,
                    end: t.end,
                    nmse: t.nmse,
                    held_out_nmse: t.held_out,
                });
                let details = DetailsReport::Search {
                    noise: search.noise,
                    lack_of_fit: search.lack_of_fit,
                    out_of_time: search.out_of_time,
                    heads: self.layer.as_ref().map(|layer| layer.heads().len()),
                    tries: tries.collect(),
                    chosen: search.chosen,
                };
                ("descend", details)
            }
            Details::Phases(phases) => {
                let details = DetailsReport::Phases {
                    outcome: &phases.outcome,
                    separated: phases.separated,
                    before_polish: self.before_polish.as_ref().map(|s| StageErrors::new(s.layer.heads().len(), s.nmse)),
                    after_polish: self.after_polish().map(|(layer, nmse)| StageErrors::new(layer.heads().len(), nmse)),
                    records: &phases.records,
                };
                ("sculpt", details)
            }
        };
        Report {
            method,
            seed: self.seed,
            settings: self.settings(),
            shape: self.shape,
            examples: self.examples,
            split: self.parts,
            recovered: self.recovered,
            outcome_text: self.outcome.to_string(),
            details,
            certificate: self.certificate.as_ref(),
            seconds: self.seconds,
            layer,
        }
    }
}
