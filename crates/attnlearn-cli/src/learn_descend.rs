//! `attnlearn learn --method descend`: the practical learner.

use crate::blocks::Watched;
use crate::cli::Ending;
use crate::console::{duration, error, grouped, plural};
use crate::session::Session;
use crate::{interrupt, report};
use attnlearn::certify::{Certificate, CertifySettings, certify};
use attnlearn::data::{Block, ExampleFile, ExampleSource, Shape};
use attnlearn::descend::{Batch, End, Form, Learner, Outcome, Prepared, Stage, Wanted};
use attnlearn::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What has been checked.
pub struct DescendPlan {
    pub examples: ExampleFile,
    pub wanted: Wanted,
    pub output: PathBuf,
    /// Where the search is kept meanwhile.
    pub checkpoint: PathBuf,
    /// Whether to continue from there.
    pub resume: bool,
    pub most_examples: u64,
    pub held_out: u64,
    pub delta: f64,
}

/// Time between two checkpoints.
const INTERVAL: Duration = Duration::from_secs(60);
/// Held-out NMSE at which a layer counts as recovered.
const RECOVERED: f64 = 1e-12;
/// Numbers that are kept in memory, at most.
const MOST_NUMBERS: usize = 1 << 28;

/// A form that was tried, as it stands in the JSON.
#[derive(Serialize)]
struct TryReport {
    form: Form,
    end: End,
    nmse: f64,
    held_out_nmse: f64,
}

#[derive(Serialize)]
struct DescendReport<'a> {
    method: &'static str,
    seed: u64,
    settings: &'a Wanted,
    shape: Shape,
    examples: usize,
    recovered: bool,
    outcome_text: &'a str,
    heads: usize,
    tries: Vec<TryReport>,
    chosen: usize,
    certificate: &'a Certificate,
    seconds: f64,
    layer: String,
}

impl DescendPlan {
    /// Learns.
    pub fn run(self, session: &Session) -> Result<Ending> {
        interrupt::listen()?;
        let (console, shape, begun) = (&session.console, self.examples.shape(), Instant::now());
        let all = self.read(session)?;
        let (rest, certified) = split(&all, usize::try_from(self.held_out).unwrap_or(usize::MAX))?;
        drop(all);
        // Forms are compared on examples that neither they nor the certificate see.
        let chosen_by = (rest.len() / 10).clamp(1, 2000);
        let prepared = Prepared::new(&rest, chosen_by)?;
        drop(rest);
        console.say(format!(
            "{} examples to learn from, {} to choose by, {} for the certificate; k = {}, d = {}, d_out = {}",
            grouped(prepared.examples() as u64),
            grouped(chosen_by as u64),
            grouped(certified.len() as u64),
            shape.k,
            shape.d,
            shape.d_out
        ));
        let outcome = self.search(session, &prepared)?;
        let seconds = begun.elapsed().as_secs_f64();
        let settings = CertifySettings { delta: self.delta, ..CertifySettings::default() };
        let blocks = (certified.len() as u64).div_ceil(Block::<f64>::CAPACITY as u64);
        let certificate = certify(&outcome.layer, &certified, 0..blocks, &settings)?;
        let nmse = certificate.nmse.unwrap_or(f64::INFINITY);
        let recovered = nmse <= RECOVERED;
        let text = match (recovered, outcome.tries[outcome.chosen].end) {
            (true, _) => "recovered".to_owned(),
            (false, End::Floor) => {
                format!("not recovered: several starts end at NMSE {nmse:.1e}, noise or a layer of another form")
            }
            (false, _) => format!("not recovered: held-out NMSE {nmse:.1e}"),
        };
        console.gap();
        let shown = if recovered { console.good(&text) } else { console.bad(&text) };
        console.say(format!("outcome        {shown} ({})", duration(seconds)));
        console.say(format!("held-out NMSE  {}, {}", error(nmse), plural(outcome.layer.heads().len(), "head")));
        report::say_certificate(console, Some(&certificate));
        outcome.layer.save(&self.output, &self.notes(&text, nmse, prepared.examples()))?;
        remove(&self.checkpoint)?;
        console.gap();
        console.say(format!("wrote {}", self.output.display()));
        let tries = outcome.tries.iter();
        session.publish(
            "learn",
            &DescendReport {
                method: "descend",
                seed: self.wanted.strategy.seed,
                settings: &self.wanted,
                shape,
                examples: prepared.examples(),
                recovered,
                outcome_text: &text,
                heads: outcome.layer.heads().len(),
                tries: tries.map(|t| TryReport { form: t.form, end: t.end, nmse: t.nmse, held_out_nmse: t.held_out }).collect(),
                chosen: outcome.chosen,
                certificate: &certificate,
                seconds,
                layer: self.output.display().to_string(),
            },
        )?;
        if recovered {
            return Ok(Ending::Done);
        }
        session.insist(&text);
        Ok(Ending::NotRecovered)
    }

    /// All examples that fit in memory.
    fn read(&self, session: &Session) -> Result<Batch<f64>> {
        let shape = self.examples.shape();
        let most = (MOST_NUMBERS / (shape.k * (shape.d + shape.d_out)).max(1)) as u64;
        let n = self.examples.len().unwrap_or(0).min(self.most_examples).min(most);
        let bar = session.bar(n, "examples read");
        let source = Watched::new(&self.examples, &bar).at_most(n);
        Batch::read(&source, 0..n.div_ceil(Block::<f64>::CAPACITY as u64), usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// Searches to the end, and keeps the search in the checkpoint every minute and at Ctrl-C.
    fn search(&self, session: &Session, prepared: &Prepared) -> Result<Outcome> {
        let mut learner = if self.resume {
            let bytes = fs::read(&self.checkpoint).map_err(|e| Error::io(&self.checkpoint, e))?;
            Learner::resume(prepared, self.wanted.clone(), &bytes, &self.checkpoint.display().to_string())?
        } else {
            Learner::new(prepared, self.wanted.clone())?
        };
        let (bar, mut saved, mut tried) = (session.spinner(), Instant::now(), learner.tries.len());
        loop {
            match learner.advance(&interrupt::requested) {
                Ok(true) => break,
                Ok(false) => {}
                Err(Error::Interrupted) => {
                    learner.save(&self.checkpoint)?;
                    bar.suspend(|| {
                        session.console.say(format!("kept the search in {}: continue with --resume", self.checkpoint.display()))
                    });
                    return Err(Error::Interrupted);
                }
                Err(other) => return Err(other),
            }
            if learner.tries.len() > tried {
                tried = learner.tries.len();
                let last = &learner.tries[tried - 1];
                bar.suspend(|| session.console.say(line(&last.form, last.held_out)));
            }
            bar.tell(live(&learner));
            if saved.elapsed() >= INTERVAL {
                learner.save(&self.checkpoint)?;
                saved = Instant::now();
            }
        }
        learner.outcome()
    }

    fn notes(&self, text: &str, nmse: f64, examples: usize) -> BTreeMap<String, String> {
        let notes = [
            ("producer", format!("attnlearn {}", env!("CARGO_PKG_VERSION"))),
            ("method", "descend".into()),
            ("outcome", text.into()),
            ("held_out_nmse", format!("{nmse:e}")),
            ("examples", examples.to_string()),
            ("seed", self.wanted.strategy.seed.to_string()),
        ];
        notes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// The last `held_out` examples, and at most a fifth, apart from the others.
fn split(all: &Batch<f64>, held_out: usize) -> Result<(Batch<f64>, Batch<f64>)> {
    let n = all.len();
    if n < 10 {
        return Err(Error::input("examples", format!("only {n} of them"), "give at least 10"));
    }
    let last = held_out.min(n / 5).max(1);
    let indices: Vec<usize> = (0..n).collect();
    Ok((all.select(&indices[..n - last]), all.select(&indices[n - last..])))
}

fn line(form: &Form, held_out: f64) -> String {
    let rank = form.rank.map_or(String::new(), |r| format!(" of rank {r}"));
    let biases = if form.bias { " with biases" } else { "" };
    format!("  {}{rank}{biases}: NMSE {}", plural(form.heads, "head"), error(held_out))
}

/// What goes on, on one line.
fn live(learner: &Learner<'_>) -> String {
    let state = &learner.run.state;
    let stage = match &state.stage {
        Stage::Descend(descent) => format!("descent, step {}", descent.0.step),
        Stage::Refine(newton) => format!("Gauss–Newton, step {}", newton.history.len()),
        Stage::Done(_) => "done".into(),
    };
    let best = learner.run.best().map_or(String::new(), |found| format!(", best {}", error(found.nmse)));
    let redrawn = if state.redraws > 0 { format!(", {} redrawn", plural(state.redraws, "head")) } else { String::new() };
    format!("start {}{redrawn}: {stage}, NMSE {}{best}", state.starts, error(learner.run.nmse()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}
