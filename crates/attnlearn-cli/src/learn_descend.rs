//! `attnlearn learn --method descend`: the practical learner.

use crate::blocks::Watched;
use crate::cli::Ending;
use crate::console::{duration, error, grouped, plural};
use crate::session::Session;
use crate::{interrupt, page, report};
use attnlearn::certify::{Certificate, CertifySettings, certify};
use attnlearn::data::{Block, ExampleFile, ExampleSource, Shape};
use attnlearn::descend::{Batch, End, Form, HeadCount, Learner, Outcome, Prepared, Stage, Try, Wanted};
use attnlearn::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What has been checked.
pub struct DescendPlan {
    pub examples: ExampleFile,
    pub wanted: Wanted,
    pub output: PathBuf,
    /// Where a page of the run goes.
    pub page: Option<PathBuf>,
    /// Where the search is kept meanwhile.
    pub checkpoint: PathBuf,
    /// Whether to continue from there.
    pub resume: bool,
    /// Whether outputs are noisy.
    pub noise: bool,
    pub most_examples: u64,
    pub held_out: u64,
    pub delta: f64,
}

/// Time between two checkpoints.
const INTERVAL: Duration = Duration::from_secs(60);
/// Held-out NMSE at which a layer counts as recovered.
const RECOVERED: f64 = 1e-12;
/// Time between two counts of the heads in use.
const COUNTED: Duration = Duration::from_secs(10);
/// Numbers that are kept in memory, at most.
const MOST_NUMBERS: usize = 1 << 28;

/// A form that was tried, as it stands in the JSON.
#[derive(Serialize)]
struct TryReport {
    form: Form,
    unknowns: usize,
    effort: f64,
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
    noise: Option<Noise>,
    outcome_text: &'a str,
    heads: usize,
    tries: Vec<TryReport>,
    chosen: usize,
    certificate: &'a Certificate,
    seconds: f64,
    layer: String,
}

/// What outputs hold that no layer explains.
#[derive(Clone, Copy, Serialize)]
pub struct Noise {
    /// Its standard deviation over that of the outputs: `‖F(X) − Y‖²/(numbers − unknowns)`.
    relative: f64,
    /// Its share of the variance, which is the least NMSE that can be reached.
    floor: f64,
    /// Whether the held-out error is that floor, up to chance and the unknowns' own share.
    reached: bool,
}

/// What the search came to.
pub struct Finding {
    outcome: Outcome,
    certificate: Certificate,
    noise: Option<Noise>,
    examples: usize,
    /// Held-out NMSE.
    pub nmse: f64,
    /// Whether the layer was recovered.
    pub recovered: bool,
    /// How it ended, in words.
    pub text: String,
    /// Seconds that it took.
    pub seconds: f64,
}

impl DescendPlan {
    /// Learns.
    pub fn learn(&self, session: &Session) -> Result<Finding> {
        let (console, shape, begun) = (&session.console, self.examples.shape(), Instant::now());
        let all = self.read(session)?;
        let (rest, certified) = split(&all, usize::try_from(self.held_out).unwrap_or(usize::MAX))?;
        drop(all);
        // Forms are compared on examples that neither they nor the certificate see.
        let chosen_by = (rest.len() / 10).clamp(1, 2000);
        let prepared = Prepared::new(&rest, chosen_by)?;
        drop(rest);
        let examples = prepared.examples();
        console.say(format!(
            "{} examples to learn from, {} to choose by, {} for the certificate; k = {}, d = {}, d_out = {}",
            grouped(examples as u64),
            grouped(chosen_by as u64),
            grouped(certified.len() as u64),
            shape.k,
            shape.d,
            shape.d_out
        ));
        let outcome = self.search(session, &prepared)?;
        let settings = CertifySettings { delta: self.delta, ..CertifySettings::default() };
        let blocks = (certified.len() as u64).div_ceil(Block::<f64>::CAPACITY as u64);
        let certificate = certify(&outcome.layer, &certified, 0..blocks, &settings)?;
        let nmse = certificate.nmse.unwrap_or(f64::INFINITY);
        let chosen = &outcome.tries[outcome.chosen];
        let numbers = shape.k * shape.d_out;
        let noise = self.noise.then(|| noise(chosen, nmse, examples * numbers, certified.len() * numbers));
        let recovered = nmse <= RECOVERED || noise.is_some_and(|noise| noise.reached);
        let text = match (recovered, noise, chosen.end) {
            (true, Some(noise), _) if nmse > RECOVERED => {
                format!("recovered up to noise of {:.2} % of the outputs' size", 100.0 * noise.relative)
            }
            (true, ..) => "recovered".to_owned(),
            (false, _, End::Floor) => {
                let hint = if self.noise { "" } else { " (--noise if outputs are noisy)" };
                format!("not recovered: several starts end at NMSE {nmse:.1e}, noise or a layer of another form{hint}")
            }
            (false, ..) => format!("not recovered: held-out NMSE {nmse:.1e}"),
        };
        Ok(Finding { outcome, certificate, noise, examples, nmse, recovered, text, seconds: begun.elapsed().as_secs_f64() })
    }

    /// Tells and writes what was found.
    pub fn conclude(&self, found: &Finding, session: &Session) -> Result<Ending> {
        let (console, outcome) = (&session.console, &found.outcome);
        if matches!(self.wanted.heads, HeadCount::Range(..)) {
            curve(session, outcome);
        }
        console.gap();
        let shown = if found.recovered { console.good(&found.text) } else { console.bad(&found.text) };
        console.say(format!("outcome        {shown} ({})", duration(found.seconds)));
        console.say(format!("held-out NMSE  {}, {}", error(found.nmse), plural(outcome.layer.heads().len(), "head")));
        report::say_certificate(console, Some(&found.certificate));
        self.keep(found)?;
        self.forget()?;
        console.gap();
        console.say(format!("wrote {}", self.output.display()));
        if let Some(path) = &self.page {
            let run = page::Run {
                title: "A layer, learned",
                shape: self.examples.shape(),
                examples: found.examples as u64,
                seed: self.wanted.strategy.seed,
                seconds: found.seconds,
                truth: None,
            };
            page::write(&run.descended(outcome, &found.text, found.recovered, &found.certificate), path)?;
            console.say(format!("wrote {}", path.display()));
        }
        let tries = outcome.tries.iter().map(|t| TryReport {
            form: t.form,
            unknowns: Learner::unknowns(&t.form),
            effort: t.effort,
            end: t.end,
            nmse: t.nmse,
            held_out_nmse: t.held_out,
        });
        session.publish(
            "learn",
            &DescendReport {
                method: "descend",
                seed: self.wanted.strategy.seed,
                settings: &self.wanted,
                shape: self.examples.shape(),
                examples: found.examples,
                recovered: found.recovered,
                noise: found.noise,
                outcome_text: &found.text,
                heads: outcome.layer.heads().len(),
                tries: tries.collect(),
                chosen: outcome.chosen,
                certificate: &found.certificate,
                seconds: found.seconds,
                layer: self.output.display().to_string(),
            },
        )?;
        if found.recovered {
            return Ok(Ending::Done);
        }
        session.insist(&found.text);
        Ok(Ending::NotRecovered)
    }

    /// Writes what was found, before something else is tried.
    pub fn keep(&self, found: &Finding) -> Result<()> {
        found.outcome.layer.save(&self.output, &self.notes(&found.text, found.nmse, found.examples))
    }

    /// Removes the checkpoint: the search is over.
    pub fn forget(&self) -> Result<()> {
        match fs::remove_file(&self.checkpoint) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&self.checkpoint, e)),
            _ => Ok(()),
        }
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
        let mut live = Live::new(&learner);
        loop {
            match learner.advance(&interrupt::requested) {
                Ok(true) => break,
                Ok(false) => {}
                Err(Error::Interrupted) => {
                    learner.save(&self.checkpoint)?;
                    let (layer, nmse) = learner.best_so_far()?;
                    layer.save(&self.output, &self.notes("interrupted", nmse, prepared.examples()))?;
                    bar.suspend(|| {
                        session.console.say(format!("kept the search in {}: continue with --resume", self.checkpoint.display()));
                        session.console.say(format!(
                            "wrote {}, the best layer so far: held-out NMSE {}",
                            self.output.display(),
                            error(nmse)
                        ));
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
            bar.tell(live.line(&learner));
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
    if held_out == 0 {
        return Err(Error::input("--held-out", "no examples held out", "a certificate needs at least one"));
    }
    let last = held_out.min(n / 5);
    let indices: Vec<usize> = (0..n).collect();
    Ok((all.select(&indices[..n - last]), all.select(&indices[n - last..])))
}

fn line(form: &Form, held_out: f64) -> String {
    let rank = form.rank.map_or(String::new(), |r| format!(" of rank {r}"));
    let biases = if form.bias { " with biases" } else { "" };
    format!("  {}{rank}{biases}: NMSE {}", plural(form.heads, "head"), error(held_out))
}

/// Error against size.
fn curve(session: &Session, outcome: &Outcome) {
    let rows: Vec<[String; 4]> = outcome
        .tries
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let mark = if i == outcome.chosen { "written" } else { "" };
            [t.form.heads.to_string(), grouped(Learner::unknowns(&t.form) as u64), error(t.held_out), mark.into()]
        })
        .collect();
    session.console.heading("Error against size");
    session.console.table(["heads", "unknowns", "held-out NMSE", ""], &rows);
}

/// What is left of `numbers` outputs after as many were fitted as there are unknowns; and whether the error on others is about that. A student that is
/// too small looks the same as noise, so noise of more than half the variance is not believed, nor what twice as many numbers as unknowns say.
fn noise(chosen: &Try, held_out_nmse: f64, numbers: usize, held_out_numbers: usize) -> Noise {
    let unknowns = Learner::unknowns(&chosen.form) as f64;
    let (numbers, held_out_numbers) = (numbers as f64, held_out_numbers as f64);
    let floor = chosen.nmse * numbers / (numbers - unknowns).max(1.0);
    // Both are means of squares; and estimated unknowns add their share.
    let chance = 4.0 * (2.0 / held_out_numbers + 2.0 / numbers).sqrt();
    let at_it = held_out_nmse <= floor * (1.0 + unknowns / numbers) * (1.0 + chance);
    Noise { relative: floor.sqrt(), floor, reached: chosen.end != End::Tried && numbers > 2.0 * unknowns && floor < 0.5 && at_it }
}

/// The line that tells what goes on.
struct Live {
    /// Step of descent and when it was made, to tell the rate.
    since: (usize, Instant),
    counted: Option<Instant>,
    in_use: Option<usize>,
}

impl Live {
    fn new(learner: &Learner<'_>) -> Self {
        Self { since: (step(learner).unwrap_or(0), Instant::now()), counted: None, in_use: None }
    }

    /// Error, heads in use, rate and an estimate of what is left of the stage.
    fn line(&mut self, learner: &Learner<'_>) -> String {
        if self.counted.is_none_or(|at| at.elapsed() >= COUNTED) {
            (self.counted, self.in_use) = (Some(Instant::now()), learner.run.heads_in_use().ok());
        }
        let (run, state) = (&learner.run, &learner.run.state);
        let what = match (step(learner), state.chains.first().map(|chain| &chain.stage)) {
            (Some(now), _) => {
                if now < self.since.0 {
                    self.since = (now, Instant::now());
                }
                let rate = (now - self.since.0) as f64 / self.since.1.elapsed().as_secs_f64().max(1e-3);
                let left = run.descent_steps().saturating_sub(now) as f64 / rate.max(1e-9);
                let left = if rate > 0.0 { format!(", {} left", duration(left)) } else { String::new() };
                format!("descent, step {now} of {}, {rate:.1}/s{left}", run.descent_steps())
            }
            (None, Some(Stage::Refine(newton))) if state.chains.len() == 1 => {
                format!("Gauss–Newton, step {}", newton.history.len())
            }
            _ => format!("{} of at most {} refinements", state.refined, run.most()),
        };
        let best = run.best_nmse().map_or(String::new(), |nmse| format!(", best {}", error(nmse)));
        let heads = self.in_use.map_or(String::new(), |n| format!(", {n} of {} in use", plural(learner.form().heads, "head")));
        format!("start {}: {what}; NMSE {}{best}{heads}", state.starts, error(run.nmse()))
    }
}

/// Step of descent, if that goes on.
fn step(learner: &Learner<'_>) -> Option<usize> {
    match &learner.run.state.chains.first()?.stage {
        Stage::Descend(descent) => Some(descent.0.step),
        _ => None,
    }
}
