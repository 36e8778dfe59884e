//! `attnlearn learn`: the heads behind examples in a file.

use crate::cli::Ending;
use crate::console::{duration, error, grouped, plural};
use crate::learn_watch::LearnWatch;
use crate::output::Files;
use crate::scores::ScoresArgs;
use crate::session::Session;
use crate::{interrupt, output, page, report, values};
use attnlearn::Result;
use attnlearn::data::{ExampleFile, ExampleSource};
use attnlearn::descend::{Choice, HeadCount, Learner, Outcome, Rank};
use attnlearn::files::Claim;
use attnlearn::learn::{self, Answer, Descended, Heads, Keeping, Settings};
use clap::ValueEnum;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Learn a layer from examples in a file.
///
/// The file (safetensors or npz) has x [n, k, d] as f32, f64 or i8, and y [n, k, d_out] as f32 or f64. A part of it, drawn by the seed,
/// is held out: the learner does not see it, and the certificate is computed on it. Copies of an input are never on both sides.
///
/// By default descent comes first, which also learns layers of real size, with biases, low rank and causal mask; if it does not recover a small
/// layer, the six phases of Chen and Li follow. Descent keeps its state every minute and at Ctrl-C, together with the best layer so far, and
/// --resume continues from there bit for bit, in the six phases too.
///
/// The exit code is 0 if the layer was recovered and 1 if not; the outcome says why. What was found is written in either
/// case; if nothing was found, nothing is written.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn learn examples.npz --heads 2 -o layer.safetensors
  attnlearn learn examples.safetensors --heads auto -o layer.safetensors --json result.json
  attnlearn learn examples.npz --heads auto:3 --delta 0.001 -o layer.safetensors --before-polish crude.safetensors
  attnlearn learn examples.npz --heads 12 --rank 32 -o layer.safetensors
  attnlearn learn examples.npz --heads 8 --rank 16 --kv-heads 2 --rope 10000 --causal -o layer.safetensors
  attnlearn learn examples.npz --heads 12 --rank 32 -o layer.safetensors --resume
  attnlearn learn measured.npz --heads 3 --noise -o layer.safetensors
  attnlearn learn examples.npz --heads 12 --time-limit 10m -o layer.safetensors
  attnlearn learn examples.npz --heads 1..6 -o small.safetensors --report small.html")]
pub struct Args {
    /// Examples (.safetensors or .npz).
    examples: PathBuf,
    /// Number of heads, `auto` (at most 16, with sculpt 4), `auto:MOST`, or a range `FIRST..LAST` for the error against the number of heads.
    #[arg(long, value_name = "M|auto|A..B", default_value = "auto", value_parser = values::heads)]
    heads: Heads,
    /// How to learn.
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// Where to write the layer (.safetensors).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Where to write a page with pictures of the run (.html).
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Where to write the layer as it was before the polish (.safetensors).
    #[arg(long, value_name = "FILE")]
    before_polish: Option<PathBuf>,
    /// Seed of the starting points of the search, and of which examples are held out.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// One minus the confidence of the certificate.
    #[arg(long, default_value_t = Settings::default().delta, value_parser = values::share)]
    delta: f64,
    /// Most examples read: the first so many of the file.
    #[arg(long, value_name = "N", default_value = "1e8", value_parser = values::count)]
    most_examples: u64,
    /// Examples held out for the certificate, at most (and at most a fifth of the file).
    #[arg(long, value_name = "N", default_value_t = Settings::default().held_out, value_parser = values::count)]
    held_out: u64,
    /// Memory to take, about, in GiB; descent learns from as many examples as fit, drawn at random, and says so [default: three quarters of what
    /// the machine, its control group or `ulimit -v` allow].
    #[arg(long, value_name = "GiB", value_parser = values::positive)]
    memory: Option<f64>,
    /// Leave the six phases' answer as it is.
    #[arg(long)]
    no_polish: bool,
    /// Descend: rank of attention matrices, `full` or `auto` [default: auto].
    #[arg(long, value_name = "R|full|auto", value_parser = values::rank)]
    rank: Option<Rank>,
    /// Descend: rank of projections, `full` or `auto` [default: auto, that of attention matrices or full].
    #[arg(long, value_name = "R|full|auto", value_parser = values::rank)]
    value_rank: Option<Rank>,
    /// Descend: whether the layer has key biases and an output bias [default: auto].
    #[arg(long, value_enum)]
    biases: Option<Biases>,
    /// Descend: later tokens are hidden from earlier ones.
    #[arg(long)]
    causal: bool,
    #[command(flatten)]
    scores: ScoresArgs,
    /// Descend: outputs are noisy; report the noise, and count a layer that explains all but it as recovered, if what is left does not depend on inputs.
    #[arg(long)]
    noise: bool,
    /// Descend: where the search is kept every minute, at Ctrl-C and when it is over, until the result is written [default: OUTPUT.checkpoint].
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Descend: continue the search that was kept.
    #[arg(long)]
    resume: bool,
    /// Descend: seconds between two checkpoints [default: 60].
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    checkpoint_every: Option<Duration>,
    /// End the search after this long with the best so far; --resume continues it.
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    time_limit: Option<f64>,
    /// Find the wide directions of the convex body by linear programs instead of eigenvectors: slower.
    #[arg(long)]
    linear_programs: bool,
}

/// The learners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Method {
    /// Descent, then the six phases if that did not recover a small layer.
    #[default]
    Auto,
    /// The six phases of Chen and Li, then a polish.
    Sculpt,
    /// Descent and variable projection from random starts: layers of real size, with biases and mask.
    Descend,
}

/// With or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Biases {
    /// It has them.
    Yes,
    /// It has none.
    No,
    /// With them where examples abound, else without, and with them if that does not suffice.
    Auto,
}

/// What has been checked.
pub struct Plan {
    examples: ExampleFile,
    place: String,
    settings: Settings,
    keeping: Keeping,
    output: PathBuf,
    page: Option<PathBuf>,
    before_polish: Option<PathBuf>,
    _claim: Claim,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        let beside = learn::checkpoint_beside(&self.output);
        let checkpoint = self.checkpoint.as_ref().unwrap_or(&beside);
        Files::default()
            .read([&self.examples])
            .read(self.scores.file())
            .write([&self.output, checkpoint])
            .write(&self.report)
            .write(&self.before_polish)
    }

    /// Opens the examples and checks the settings against them.
    pub fn check(self) -> Result<Plan> {
        let examples = ExampleFile::open(&self.examples)?;
        let claim = Claim::take(&self.output)?;
        output::writable_layer(&self.output)?;
        self.report.as_deref().map_or(Ok(()), output::writable)?;
        self.before_polish.as_deref().map_or(Ok(()), output::writable_layer)?;
        let mut settings = Settings {
            method: match self.method {
                Method::Auto => learn::Method::Auto,
                Method::Sculpt => learn::Method::Sculpt,
                Method::Descend => learn::Method::Descend,
            },
            heads: self.heads,
            seed: self.seed,
            delta: self.delta,
            most_examples: self.most_examples,
            held_out: self.held_out,
            memory: self.memory.map(|memory| (memory * f64::from(1u32 << 30)) as u64),
            rank: self.rank,
            value_rank: self.value_rank,
            biases: self.biases.map(|biases| match biases {
                Biases::Yes => Choice::Yes,
                Biases::No => Choice::No,
                Biases::Auto => Choice::Auto,
            }),
            causal: self.causal,
            noise: self.noise,
            time_limit: self.time_limit,
            polish: !self.no_polish,
            linear_programs: self.linear_programs,
            before_polish: self.before_polish.is_some(),
            sculpture: self.report.is_some(),
            ..Settings::default()
        };
        self.scores.apply(&mut settings)?;
        let keeping = Keeping {
            checkpoint: self.checkpoint,
            layer: Some(self.output.clone()),
            resume: self.resume,
            every: self.checkpoint_every,
        };
        let plan = Plan {
            place: self.examples.display().to_string(),
            examples,
            settings,
            keeping,
            output: self.output,
            page: self.report,
            before_polish: self.before_polish,
            _claim: claim,
        };
        plan.learning()?;
        Ok(plan)
    }
}

impl Plan {
    fn learning(&self) -> Result<learn::Plan<'_>> {
        self.settings.clone().check(&self.examples, &self.place, &self.keeping)
    }

    /// Learns.
    pub fn run(self, session: &Session) -> Result<Ending> {
        interrupt::listen();
        let plan = self.learning()?;
        let answer = plan.run(&LearnWatch::new(session))?;
        match &answer {
            Answer::Descended(found) => tell_descended(found, session),
            Answer::Sculpted(found) => {
                report::say_outcome(&session.console, &found.learned, found.seconds);
                report::say_certificate(&session.console, found.learned.certificate.as_ref());
            }
        }
        session.console.gap();
        let written = answer.save(&self.output)?;
        let layer = written.then(|| self.output.display().to_string());
        match &layer {
            Some(name) => session.console.say(format!("wrote {name}")),
            None => session.console.say("no layer was found, none is written"),
        }
        if let (Some(path), Answer::Sculpted(found)) = (&self.before_polish, &answer)
            && let Some(stage) = &found.learned.before_polish
        {
            stage.layer.save(path, &found.notes(stage, false))?;
            session.console.say(format!("wrote {} (before the polish)", path.display()));
        }
        if let Some(path) = &self.page {
            page::write(&self.page(&answer, path, written, session), path)?;
            session.console.say(format!("wrote {}", path.display()));
        }
        match &answer {
            Answer::Descended(found) => session.publish("learn", &found.report(layer))?,
            Answer::Sculpted(found) => session.publish("learn", &found.report(layer))?,
        }
        // All that there is to say is safe now; a search that was ended by the clock may go on.
        if !answer.unfinished() {
            plan.forget()?;
        }
        if answer.recovered() {
            return Ok(Ending::Done);
        }
        session.insist(&answer.text());
        Ok(Ending::NotRecovered)
    }

    /// The page that goes to `path`, and whether a layer was `written`.
    fn page(&self, answer: &Answer, path: &Path, written: bool, session: &Session) -> attnlearn_page::RunPage {
        let mut files = vec![("examples", Path::new(&self.place))];
        files.extend(written.then_some(("layer", &*self.output)));
        files.extend(session.json_file().map(|file| ("result", file)));
        let run = |examples: u64, settings: serde_json::Result<Value>| page::Run {
            title: "A layer, learned",
            shape: self.examples.shape(),
            examples,
            seed: self.settings.seed,
            seconds: answer.seconds(),
            truth: None,
            page: path,
            files: files.clone(),
            settings: settings.unwrap_or_default(),
        };
        let mut page = match answer {
            Answer::Descended(found) => {
                let run = run(found.examples as u64, serde_json::to_value(&found.wanted));
                run.descended(&found.outcome, &found.text, found.recovered, &found.certificate)
            }
            Answer::Sculpted(found) => {
                run(found.learned.examples, serde_json::to_value(&*found.settings)).sculpted(&found.learned)
            }
        };
        page.notes.extend(answer.parts().map(|parts| format!("{parts}.")));
        page
    }
}

/// Tells what descent came to.
fn tell_descended(found: &Descended, session: &Session) {
    let (console, outcome) = (&session.console, &found.outcome);
    if matches!(found.wanted.heads, HeadCount::Range(..)) {
        curve(session, outcome);
    }
    console.gap();
    let shown = if found.recovered { console.good(&found.text) } else { console.bad(&found.text) };
    console.say(format!("outcome        {shown} ({})", duration(found.seconds)));
    console.say(format!("held-out NMSE  {}, {}", error(found.nmse), plural(outcome.layer.heads().len(), "head")));
    report::say_certificate(console, Some(&found.certificate));
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
    session.console.table(["heads", "unknowns", "NMSE, choosing", ""], &rows);
}
