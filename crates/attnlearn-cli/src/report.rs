//! How a run of the learner is told: a line a phase, the outcome, the errors before and after the polish, the certificate.

use crate::console::{Console, duration, error, grouped, plural};
use attnlearn::certify::Certificate;
use attnlearn::layer::AttentionLayer;
use attnlearn::sculpt::{Learned, Outcome, Record, Stage};

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

/// One line on what a layer is.
pub fn describe(layer: &AttentionLayer) -> String {
    let mask = if layer.mask() == attnlearn::layer::Mask::Causal { ", causal" } else { "" };
    format!("{}, d = {}, d_out = {}{mask}", plural(layer.heads().len(), "head"), layer.d(), layer.d_out())
}
