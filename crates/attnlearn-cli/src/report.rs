//! How a run of the learner is told: a line a phase, the outcome, the errors before and after the polish, the certificate.

use crate::console::{Console, duration, error, grouped, plural};
use crate::errors::StageErrors;
use attnlearn::certify::Certificate;
use attnlearn::data::Shape;
use attnlearn::layer::AttentionLayer;
use attnlearn::sculpt::{Learned, Outcome, Record, Settings, Stage};
use serde::Serialize;
use std::collections::BTreeMap;

/// A run of the learner, as it stands in the JSON.
#[derive(Serialize)]
pub struct LearnReport<'a> {
    /// How it learned.
    pub method: &'static str,
    /// Seed of the learner.
    pub seed: u64,
    /// Settings of the learner.
    pub settings: &'a Settings,
    /// Sizes of the examples.
    pub shape: Shape,
    /// Distinct examples read.
    pub examples: u64,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// The same, in words.
    pub outcome_text: String,
    /// Whether the rows were certified with separated projections, agreement alone not sufficing.
    pub separated: bool,
    /// Whether it ended well.
    pub recovered: bool,
    /// Errors of the six phases' own answer.
    pub before_polish: Option<StageErrors>,
    /// Errors after the polish.
    pub after_polish: Option<StageErrors>,
    /// What is guaranteed of the layer.
    pub certificate: Option<&'a Certificate>,
    /// One record a phase.
    pub records: &'a [Record],
    /// Seconds from beginning to end.
    pub seconds: f64,
    /// The layer file, if one was written.
    pub layer: Option<String>,
}

/// The header over the lines of the phases.
pub fn phase_header(console: &Console) {
    let line = format!("  {:<34} {:>13} {:>11} {:>10}  {}", "phase", "rows seen", "accepted", "time", "");
    console.say(console.dim(line.trim_end()));
}

/// One phase on one line.
pub fn phase_line(record: &Record) -> String {
    let count = |n: u64| if n == 0 { "–".into() } else { grouped(n) };
    let line = format!(
        "  {:<2} {:<31} {:>13} {:>11} {:>10}  {}",
        record.phase.label(),
        record.phase.title(),
        count(record.rows_seen),
        count(record.rows_accepted),
        duration(record.seconds),
        record.note
    );
    line.trim_end().to_owned()
}

/// The errors of a stage without a teacher to compare with.
pub fn stage_errors(stage: &Stage) -> StageErrors {
    StageErrors { nmse: stage.nmse, heads: stage.layer.heads().len(), distance: None, worst_theta: None, worst_w: None }
}

/// How the run ended, and the held-out errors before and after the polish.
pub fn say_outcome(console: &Console, learned: &Learned, seconds: f64) {
    let text = learned.outcome.to_string();
    let text = if learned.outcome == Outcome::Recovered { console.good(&text) } else { console.bad(&text) };
    console.gap();
    console.say(format!("outcome        {text} ({} examples, {})", grouped(learned.examples), duration(seconds)));
    let errors = |stage: &Option<Stage>| match stage {
        Some(stage) => format!("held-out NMSE {}, {}", error(stage.nmse), plural(stage.layer.heads().len(), "head")),
        None => "–".into(),
    };
    if learned.layer().is_some() {
        let how = if learned.separated { " (rows certified with separated projections)" } else { "" };
        console.say(format!("before polish  {}{how}", errors(&learned.before_polish)));
        console.say(format!("after polish   {}", errors(&learned.after_polish)));
    }
}

/// The certificate, if there is one.
pub fn say_certificate(console: &Console, certificate: Option<&Certificate>) {
    if let Some(certificate) = certificate {
        console.heading("Certificate");
        console.say(certificate);
    }
}

/// Where a layer comes from, for the notes in its file. The same run leaves the same notes.
pub fn notes(learned: &Learned, stage: &Stage, polished: bool, seed: u64) -> BTreeMap<String, String> {
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

/// One line on what a layer is.
pub fn describe(layer: &AttentionLayer) -> String {
    let mask = if layer.mask() == attnlearn::layer::Mask::Causal { ", causal" } else { "" };
    format!("{}, d = {}, d_out = {}{mask}", plural(layer.heads().len(), "head"), layer.d(), layer.d_out())
}
