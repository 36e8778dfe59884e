//! `attnlearn learn`: the heads behind examples in a file.

use crate::blocks::{Watched, check_size};
use crate::cli::Ending;
use crate::learn_descend::DescendPlan;
use crate::progress::{Bar, PhaseWatch};
use crate::report::{self, LearnReport};
use crate::session::Session;
use crate::{interrupt, output, values};
use attnlearn::data::{Block, ExampleFile, ExampleSource, scan};
use attnlearn::descend::{Choice, Rank, StrategySettings, Wanted};
use attnlearn::layer::Mask;
use attnlearn::sculpt::{self, Outcome, Settings, ValidSettings};
use attnlearn::{Error, Result};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Learn a layer from examples in a file.
///
/// The file (safetensors or npz) has x [n, k, d] as f32, f64 or i8, and y [n, k, d_out] as f32 or f64. A part of it is
/// held out: the learner does not see it, and the certificate is computed on it.
///
/// The exit code is 0 if the layer was recovered and 1 if not; the outcome says why. What was found is written in either
/// case; if nothing was found, nothing is written.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn learn examples.npz --heads 2 -o layer.safetensors
  attnlearn learn examples.safetensors --heads auto -o layer.safetensors --json result.json
  attnlearn learn examples.npz --heads auto:3 --delta 0.001 -o layer.safetensors --before-polish crude.safetensors
  attnlearn learn examples.npz --method descend --heads 12 --rank 32 -o layer.safetensors")]
pub struct Args {
    /// Examples (.safetensors or .npz).
    examples: PathBuf,
    /// Number of heads, `auto` (at most 4, with descend 16) or `auto:MOST`.
    #[arg(long, value_name = "M|auto", default_value = "auto", value_parser = values::heads)]
    heads: values::Heads,
    /// How to learn.
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// Where to write the layer (.safetensors).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Where to write the layer as it was before the polish (.safetensors).
    #[arg(long, value_name = "FILE")]
    before_polish: Option<PathBuf>,
    /// Seed of the starting points of the search.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// One minus the confidence of the certificate.
    #[arg(long, default_value_t = Settings::default().delta, value_parser = values::share)]
    delta: f64,
    /// Most examples read: those at the beginning of the file.
    #[arg(long, value_name = "N", default_value = "1e8", value_parser = values::count)]
    most_examples: u64,
    /// Examples held out for the certificate, at most (and at most a fifth of the file).
    #[arg(long, value_name = "N", default_value_t = Settings::default().held_out, value_parser = values::count)]
    held_out: u64,
    /// Leave the six phases' answer as it is.
    #[arg(long)]
    no_polish: bool,
    /// Descend: rank of attention matrices and projections, `full` or `auto`.
    #[arg(long, value_name = "R|full|auto", value_parser = values::rank)]
    rank: Option<Rank>,
    /// Descend: whether the layer has key biases and an output bias [default: auto].
    #[arg(long, value_enum)]
    biases: Option<Biases>,
    /// Descend: later tokens are hidden from earlier ones.
    #[arg(long)]
    causal: bool,
    /// Descend: where the search is kept every minute and at Ctrl-C [default: OUTPUT.checkpoint].
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Descend: continue the search that was kept.
    #[arg(long)]
    resume: bool,
    /// Find the wide directions of the convex body by linear programs instead of eigenvectors: slower.
    #[arg(long)]
    linear_programs: bool,
}

/// The learners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Method {
    /// The six phases of Chen and Li, then a polish.
    #[default]
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
pub enum Plan {
    /// For the six phases.
    Sculpt(Box<SculptPlan>),
    /// For descent.
    Descend(Box<DescendPlan>),
}

/// What has been checked, for the six phases.
pub struct SculptPlan {
    examples: ExampleFile,
    settings: ValidSettings,
    output: PathBuf,
    before_polish: Option<PathBuf>,
}

impl Args {
    /// What the learner is to do, not yet checked.
    fn settings(&self) -> Settings {
        Settings {
            heads: self.heads.sculpt(),
            most_examples: self.most_examples,
            held_out: self.held_out,
            delta: self.delta,
            linear_programs: self.linear_programs,
            polish: !self.no_polish,
            seed: self.seed,
            ..Settings::default()
        }
    }

    /// Opens the examples and checks the settings against them.
    pub fn check(self, session: &Session) -> Result<Plan> {
        let examples = ExampleFile::open(&self.examples)?;
        check_size(examples.shape(), &self.examples.display().to_string())?;
        output::distinct(&[Some(&self.output), self.before_polish.as_deref(), self.checkpoint.as_deref(), session.json_file()])?;
        output::writable_layer(&self.output)?;
        self.before_polish.as_deref().map_or(Ok(()), output::writable_layer)?;
        match self.method {
            Method::Sculpt => self.check_sculpt(examples).map(|plan| Plan::Sculpt(Box::new(plan))),
            Method::Descend => self.check_descend(examples).map(|plan| Plan::Descend(Box::new(plan))),
        }
    }

    fn check_sculpt(self, examples: ExampleFile) -> Result<SculptPlan> {
        self.refuse(&[
            ("--rank", self.rank.is_some()),
            ("--biases", self.biases.is_some()),
            ("--causal", self.causal),
            ("--checkpoint", self.checkpoint.is_some()),
            ("--resume", self.resume),
        ])?;
        let bar = Bar::hidden();
        let settings = self.settings().check(&Watched::new(&examples, &bar).at_most(self.most_examples))?;
        Ok(SculptPlan { examples, settings, output: self.output, before_polish: self.before_polish })
    }

    fn check_descend(self, examples: ExampleFile) -> Result<DescendPlan> {
        self.refuse(&[
            ("--before-polish", self.before_polish.is_some()),
            ("--no-polish", self.no_polish),
            ("--linear-programs", self.linear_programs),
        ])?;
        let checkpoint = self.checkpoint.clone().unwrap_or_else(|| beside(&self.output));
        if self.resume != checkpoint.exists() {
            let (problem, remedy) = if self.resume {
                ("there is no search to continue", "leave --resume out")
            } else {
                ("a search was kept here", "continue it with --resume, or remove it")
            };
            return Err(Error::input(checkpoint.display().to_string(), problem, remedy));
        }
        output::writable(&checkpoint)?;
        let wanted = Wanted {
            heads: self.heads.descend(),
            rank: self.rank.unwrap_or(Rank::Auto),
            biases: match self.biases.unwrap_or(Biases::Auto) {
                Biases::Yes => Choice::Yes,
                Biases::No => Choice::No,
                Biases::Auto => Choice::Auto,
            },
            mask: if self.causal { Mask::Causal } else { Mask::None },
            strategy: StrategySettings { seed: self.seed, ..StrategySettings::default() },
        };
        Ok(DescendPlan {
            examples,
            wanted,
            output: self.output,
            checkpoint,
            resume: self.resume,
            most_examples: self.most_examples,
            held_out: self.held_out,
            delta: self.delta,
        })
    }

    /// Refuses flags of the other method.
    fn refuse(&self, flags: &[(&str, bool)]) -> Result<()> {
        let other = if self.method == Method::Sculpt { "descend" } else { "sculpt" };
        match flags.iter().find(|(_, given)| *given) {
            Some((flag, _)) => {
                Err(Error::input(*flag, format!("belongs to --method {other}"), "leave it out, or choose that method"))
            }
            None => Ok(()),
        }
    }
}

/// The name of the checkpoint of a layer's file.
fn beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".checkpoint");
    name.into()
}

impl Plan {
    /// Learns.
    pub fn run(self, session: &Session) -> Result<Ending> {
        match self {
            Self::Sculpt(plan) => plan.run(session),
            Self::Descend(plan) => plan.run(session),
        }
    }
}

impl SculptPlan {
    /// Learns.
    pub fn run(self, session: &Session) -> Result<Ending> {
        interrupt::listen()?;
        let (console, shape, begun) = (&session.console, self.examples.shape(), Instant::now());
        console.say(format!(
            "{} examples, k = {}, d = {}, d_out = {}",
            crate::console::grouped(self.examples.len().unwrap_or(0)),
            shape.k,
            shape.d,
            shape.d_out
        ));
        self.read_through(session)?;
        console.gap();
        report::phase_header(console);
        let learned = {
            let bar = Bar::hidden();
            let source = Watched::new(&self.examples, &bar).at_most(self.settings.most_examples);
            sculpt::learn(&source, &self.settings, &PhaseWatch::new(console, session.spinner()))?
        };
        let seconds = begun.elapsed().as_secs_f64();
        report::say_outcome(console, &learned, seconds);
        report::say_certificate(console, learned.certificate.as_ref());

        interrupt::check()?;
        let seed = self.settings.seed;
        let polished = learned.after_polish.is_some();
        let best = learned.after_polish.as_ref().or(learned.before_polish.as_ref());
        console.gap();
        if let Some(stage) = best {
            stage.layer.save(&self.output, &report::notes(&learned, stage, polished, seed))?;
            console.say(format!("wrote {}", self.output.display()));
        } else {
            console.say("no layer was found, none is written");
        }
        if let (Some(path), Some(stage)) = (&self.before_polish, &learned.before_polish) {
            stage.layer.save(path, &report::notes(&learned, stage, false, seed))?;
            console.say(format!("wrote {} (before the polish)", path.display()));
        }
        session.publish(
            "learn",
            &LearnReport {
                seed,
                settings: &self.settings,
                shape,
                examples: learned.examples,
                outcome: &learned.outcome,
                outcome_text: learned.outcome.to_string(),
                recovered: learned.outcome == Outcome::Recovered,
                separated: learned.separated,
                before_polish: learned.before_polish.as_ref().map(report::stage_errors),
                after_polish: learned.after_polish.as_ref().map(report::stage_errors),
                certificate: learned.certificate.as_ref(),
                records: &learned.records,
                seconds,
                layer: best.map(|_| self.output.display().to_string()),
            },
        )?;
        if learned.outcome == Outcome::Recovered {
            return Ok(Ending::Done);
        }
        session.insist(&learned.outcome.to_string());
        Ok(Ending::NotRecovered)
    }

    /// Reads all examples once, so that one that is not finite is named even if the learner would not have come across it.
    fn read_through(&self, session: &Session) -> Result<()> {
        let n = self.examples.len().unwrap_or(0).min(self.settings.most_examples);
        let bar = session.bar(n, "examples checked");
        let source = Watched::new(&self.examples, &bar).at_most(n);
        scan::<f32, _>(&source, 0..n.div_ceil(Block::<f32>::CAPACITY as u64), |_| (), |()| ())
    }
}
