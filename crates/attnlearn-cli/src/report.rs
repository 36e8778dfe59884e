//! How a run of a learner is told: a line a phase, the outcome, the errors, the certificate.

use crate::console::{Console, duration, error, grouped, plural};
use crate::values::flag;
use attnlearn::certify::Certificate;
use attnlearn::layer::AttentionLayer;
use attnlearn::learn::Answer;
use attnlearn::sculpt::Record;

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

/// How the run ended, the held-out errors and the certificate.
pub fn say_answer(console: &Console, answer: &Answer) {
    say_outcome(console, answer);
    say_certificate(console, answer.certificate.as_ref());
}

/// How the run ended, and the held-out errors: with the six phases before and after the polish.
pub fn say_outcome(console: &Console, answer: &Answer) {
    let text = answer.outcome.told(&flag);
    let text = if answer.recovered { console.good(&text) } else { console.bad(&text) };
    console.gap();
    console.say(format!("outcome        {text} ({} examples, {})", grouped(answer.examples), duration(answer.seconds)));
    let errors = |layer: &AttentionLayer, nmse: f64| format!("{}, {}", error(nmse), plural(layer.heads().len(), "head"));
    if let (None, Some(layer), Some(nmse)) = (&answer.before_polish, &answer.layer, answer.nmse) {
        console.say(format!("held-out NMSE  {}", errors(layer, nmse)));
    }
    if let Some(own) = &answer.before_polish {
        let separated = answer.phases().is_some_and(|phases| phases.separated);
        let how = if separated { " (rows certified with separated projections)" } else { "" };
        console.say(format!("before polish  held-out NMSE {}{how}", errors(&own.layer, own.nmse)));
        let after = answer.after_polish().map_or("–".into(), |(layer, nmse)| format!("held-out NMSE {}", errors(layer, nmse)));
        console.say(format!("after polish   {after}"));
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
