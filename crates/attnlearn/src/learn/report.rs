//! A run as data: what stands in the program's JSON and in the results of the Python package.

use super::answer::Sculpted;
use super::descent::Descended;
use super::lack_of_fit::LackOfFit;
use super::noise::Noise;
use super::parts::Parts;
use crate::certify::Certificate;
use crate::data::Shape;
use crate::descend::{End, Learner, Wanted};
use crate::engine::Form;
use crate::layer::LayerDistance;
use crate::sculpt::{Learned, Outcome, Record, Settings, Stage};
use serde::Serialize;

/// A form that was tried.
#[derive(Serialize)]
pub struct TryReport {
    /// Its shape.
    pub form: Form,
    /// Numbers that a layer of this form is determined by.
    pub unknowns: usize,
    /// Share of the effort that was allowed.
    pub effort: f64,
    /// How it ended.
    pub end: End,
    /// Share of unexplained variance on the examples it was learned from.
    pub nmse: f64,
    /// The same on those that chose among forms.
    pub held_out_nmse: f64,
}

/// A run of descent.
#[derive(Serialize)]
pub struct DescendReport<'a> {
    method: &'static str,
    seed: u64,
    settings: &'a Wanted,
    shape: Shape,
    examples: usize,
    split: Parts,
    recovered: bool,
    noise: Option<Noise>,
    lack_of_fit: Option<LackOfFit>,
    out_of_time: bool,
    outcome_text: &'a str,
    heads: usize,
    tries: Vec<TryReport>,
    chosen: usize,
    certificate: &'a Certificate,
    seconds: f64,
    layer: Option<String>,
}

impl Descended {
    /// As data; `layer` is the file that it was written to.
    pub fn report(&self, layer: Option<String>) -> DescendReport<'_> {
        let tries = self.outcome.tries.iter().map(|t| TryReport {
            form: t.form.clone(),
            unknowns: Learner::unknowns(&t.form),
            effort: t.effort,
            end: t.end,
            nmse: t.nmse,
            held_out_nmse: t.held_out,
        });
        DescendReport {
            method: "descend",
            seed: self.wanted.strategy.seed,
            settings: &self.wanted,
            shape: self.shape,
            examples: self.examples,
            split: self.parts,
            recovered: self.recovered,
            noise: self.noise,
            lack_of_fit: self.lack_of_fit,
            out_of_time: self.out_of_time,
            outcome_text: &self.text,
            heads: self.outcome.layer.heads().len(),
            tries: tries.collect(),
            chosen: self.outcome.chosen,
            certificate: &self.certificate,
            seconds: self.seconds,
            layer,
        }
    }
}

/// The errors of a stage of learning.
#[derive(Clone, Debug, Serialize)]
pub struct StageErrors {
    /// Held-out NMSE.
    pub nmse: f64,
    /// Heads found.
    pub heads: usize,
    /// Distance from the teacher, where there is one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<LayerDistance>,
    /// The largest relative error of an attention matrix; null when a head is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_theta: Option<f64>,
    /// The largest relative error of a projection; null when a head is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_w: Option<f64>,
}

impl StageErrors {
    /// Without a teacher to compare with.
    pub fn of(stage: &Stage) -> Self {
        Self { nmse: stage.nmse, heads: stage.layer.heads().len(), distance: None, worst_theta: None, worst_w: None }
    }
}

/// A run of the six phases.
#[derive(Serialize)]
pub struct SculptReport<'a> {
    method: &'static str,
    seed: u64,
    settings: &'a Settings,
    shape: Shape,
    examples: u64,
    /// How they were shared out, if there was an end to them.
    split: Option<Parts>,
    outcome: &'a Outcome,
    outcome_text: String,
    /// Whether the rows were certified with separated projections, agreement alone not sufficing.
    separated: bool,
    recovered: bool,
    before_polish: Option<StageErrors>,
    after_polish: Option<StageErrors>,
    certificate: Option<&'a Certificate>,
    records: &'a [Record],
    seconds: f64,
    layer: Option<String>,
}

impl<'a> SculptReport<'a> {
    /// Of a run with these settings, on examples of this shape; `layer` is the file that the layer was written to.
    pub fn new(learned: &'a Learned, settings: &'a Settings, shape: Shape, seconds: f64, layer: Option<String>) -> Self {
        Self {
            method: "sculpt",
            seed: settings.seed,
            settings,
            shape,
            examples: learned.examples,
            split: None,
            outcome: &learned.outcome,
            outcome_text: learned.outcome.to_string(),
            separated: learned.separated,
            recovered: learned.outcome == Outcome::Recovered,
            before_polish: learned.before_polish.as_ref().map(StageErrors::of),
            after_polish: learned.after_polish.as_ref().map(StageErrors::of),
            certificate: learned.certificate.as_ref(),
            records: &learned.records,
            seconds,
            layer,
        }
    }

    /// With other errors before and after the polish, as where there is a teacher to compare with.
    pub fn with_errors(self, before_polish: Option<StageErrors>, after_polish: Option<StageErrors>) -> Self {
        Self { before_polish, after_polish, ..self }
    }
}

impl Sculpted {
    /// As data; `layer` is the file that the best layer was written to.
    pub fn report(&self, layer: Option<String>) -> SculptReport<'_> {
        let report = SculptReport::new(&self.learned, &self.settings, self.settings.shape(), self.seconds, layer);
        SculptReport { split: self.parts, ..report }
    }
}
