//! `attnlearn learn`: the heads behind examples in a file.

use crate::blocks::{Watched, check_size};
use crate::cli::Ending;
use crate::learn_descend::DescendPlan;
use crate::progress::{Bar, PhaseWatch};
use crate::report::{self, LearnReport};
use crate::session::Session;
use crate::{interrupt, output, page, values};
use attnlearn::data::{Block, ExampleFile, ExampleSource, scan};
use attnlearn::descend::{Choice, Rank, StrategySettings, Wanted};
use attnlearn::layer::Mask;
use attnlearn::sculpt::{self, Learned, Outcome, Settings, ValidSettings};
use attnlearn::{Error, Result};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Learn a layer from examples in a file.
///
/// The file (safetensors or npz) has x [n, k, d] as f32, f64 or i8, and y [n, k, d_out] as f32 or f64. A part of it is
/// held out: the learner does not see it, and the certificate is computed on it.
///
/// By default descent comes first, which also learns layers of real size, with biases, low rank and causal mask; if it does not recover a small
/// layer, the six phases of Chen and Li follow. Descent keeps its state every minute and at Ctrl-C, together with the best layer so far, and
/// --resume continues from there bit for bit.
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
  attnlearn learn examples.npz --heads 12 --rank 32 -o layer.safetensors --resume
  attnlearn learn measured.npz --heads 3 --noise -o layer.safetensors
  attnlearn learn examples.npz --heads 1..6 -o small.safetensors --report small.html")]
pub struct Args {
    /// Examples (.safetensors or .npz).
    examples: PathBuf,
    /// Number of heads, `auto` (at most 16, with sculpt 4), `auto:MOST`, or a range `FIRST..LAST` for the error against the number of heads.
    #[arg(long, value_name = "M|auto|A..B", default_value = "auto", value_parser = values::heads)]
    heads: values::Heads,
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
    /// Descend: outputs are noisy; report the noise, and count a layer that explains all but it as recovered.
    #[arg(long)]
    noise: bool,
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
pub enum Plan {
    /// For the six phases.
    Sculpt(Box<SculptPlan>),
    /// For descent, and for the six phases should it fail.
    Descend(Box<DescendPlan>, Option<Box<SculptPlan>>),
}

/// What has been checked, for the six phases.
pub struct SculptPlan {
    examples: ExampleFile,
    settings: ValidSettings,
    output: PathBuf,
    page: Option<PathBuf>,
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
            sculpture: self.report.is_some(),
            polish: !self.no_polish,
            seed: self.seed,
            ..Settings::default()
        }
    }

    /// Opens the examples and checks the settings against them.
    pub fn check(self, session: &Session) -> Result<Plan> {
        let examples = ExampleFile::open(&self.examples)?;
        check_size(examples.shape(), &self.examples.display().to_string())?;
        output::distinct(&[
            Some(&self.output),
            self.before_polish.as_deref(),
            self.report.as_deref(),
            self.checkpoint.as_deref(),
            session.json_file(),
        ])?;
        output::writable_layer(&self.output)?;
        self.report.as_deref().map_or(Ok(()), output::writable)?;
        self.before_polish.as_deref().map_or(Ok(()), output::writable_layer)?;
        let (of_sculpt, of_descent) = (self.flags_of_sculpt(), self.flags_of_descent());
        let kept = [("--checkpoint", self.checkpoint.is_some()), ("--resume", self.resume)];
        let kept = kept.iter().find(|(_, given)| *given).map(|(flag, _)| *flag);
        let refuse = |flag: &str, method: &str| {
            Err(Error::input(flag, format!("belongs to --method {method}"), "leave it out, or choose that method"))
        };
        match (self.method, of_sculpt, of_descent) {
            (Method::Descend, Some(flag), _) => refuse(flag, "sculpt"),
            (Method::Sculpt, _, Some(flag)) | (Method::Auto, Some(_), Some(flag)) => refuse(flag, "descend"),
            (Method::Sculpt, ..) | (Method::Auto, Some(_), None) if kept.is_some() => refuse(kept.unwrap_or_default(), "descend"),
            (Method::Sculpt, ..) | (Method::Auto, Some(_), None) => Ok(Plan::Sculpt(Box::new(self.check_sculpt(examples)?))),
            (Method::Descend, None, _) | (Method::Auto, None, Some(_)) => {
                Ok(Plan::Descend(Box::new(self.check_descend(examples)?), None))
            }
            (Method::Auto, None, None) => {
                // The six phases want examples by the ten thousand.
                let many = examples.len().is_some_and(|n| n >= FEW) && !matches!(self.heads, values::Heads::Range(..));
                let again = if many { ExampleFile::open(&self.examples).and_then(|e| self.check_sculpt(e)).ok() } else { None };
                Ok(Plan::Descend(Box::new(self.check_descend(examples)?), again.map(Box::new)))
            }
        }
    }

    /// The first flag given that is for the six phases only.
    fn flags_of_sculpt(&self) -> Option<&'static str> {
        let flags = [
            ("--before-polish", self.before_polish.is_some()),
            ("--no-polish", self.no_polish),
            ("--linear-programs", self.linear_programs),
        ];
        flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }

    /// The first flag given that only descent knows.
    fn flags_of_descent(&self) -> Option<&'static str> {
        let flags = [
            ("--heads FIRST..LAST", matches!(self.heads, values::Heads::Range(..))),
            ("--rank", self.rank.is_some()),
            ("--value-rank", self.value_rank.is_some()),
            ("--biases", self.biases.is_some()),
            ("--causal", self.causal),
            ("--noise", self.noise),
        ];
        flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
    }

    fn check_sculpt(&self, examples: ExampleFile) -> Result<SculptPlan> {
        let bar = Bar::hidden();
        let settings = self.settings().check(&Watched::new(&examples, &bar).at_most(self.most_examples))?;
        Ok(SculptPlan {
            examples,
            settings,
            output: self.output.clone(),
            page: self.report.clone(),
            before_polish: self.before_polish.clone(),
        })
    }

    fn check_descend(self, examples: ExampleFile) -> Result<DescendPlan> {
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
            value_rank: self.value_rank.unwrap_or(Rank::Auto),
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
            page: self.report,
            checkpoint,
            resume: self.resume,
            noise: self.noise,
            most_examples: self.most_examples,
            held_out: self.held_out,
            delta: self.delta,
        })
    }
}

/// Examples below which the six phases are not worth a try.
const FEW: u64 = 10_000;

/// The name of the checkpoint of a layer's file.
fn beside(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".checkpoint");
    name.into()
}

impl Plan {
    /// Learns.
    pub fn run(self, session: &Session) -> Result<Ending> {
        interrupt::listen()?;
        match self {
            Self::Sculpt(plan) => {
                let (learned, seconds) = plan.learn(session)?;
                plan.conclude(&learned, seconds, session)
            }
            Self::Descend(plan, None) => {
                let finding = plan.learn(session)?;
                plan.conclude(&finding, session)
            }
            Self::Descend(plan, Some(other)) => {
                let mut finding = plan.learn(session)?;
                if finding.recovered {
                    return plan.conclude(&finding, session);
                }
                session.console.gap();
                session.console.say(format!("descent: {}; now the six phases", finding.text));
                plan.keep(&finding)?;
                plan.forget()?;
                let (learned, seconds) = other.learn(session)?;
                let better = learned.after_polish.as_ref().or(learned.before_polish.as_ref());
                if learned.outcome == Outcome::Recovered || better.is_some_and(|stage| stage.nmse < finding.nmse) {
                    other.conclude(&learned, seconds, session)
                } else {
                    finding.seconds += seconds;
                    plan.conclude(&finding, session)
                }
            }
        }
    }
}

impl SculptPlan {
    /// Learns; and the seconds that it took.
    fn learn(&self, session: &Session) -> Result<(Learned, f64)> {
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
        let bar = Bar::hidden();
        let source = Watched::new(&self.examples, &bar).at_most(self.settings.most_examples);
        let learned = sculpt::learn(&source, &self.settings, &PhaseWatch::new(console, session.spinner()))?;
        Ok((learned, begun.elapsed().as_secs_f64()))
    }

    /// Tells and writes what was found.
    fn conclude(&self, learned: &Learned, seconds: f64, session: &Session) -> Result<Ending> {
        let (console, shape) = (&session.console, self.examples.shape());
        report::say_outcome(console, learned, seconds);
        report::say_certificate(console, learned.certificate.as_ref());

        interrupt::check()?;
        let seed = self.settings.seed;
        let polished = learned.after_polish.is_some();
        let best = learned.after_polish.as_ref().or(learned.before_polish.as_ref());
        console.gap();
        if let Some(stage) = best {
            stage.layer.save(&self.output, &report::notes(learned, stage, polished, seed))?;
            console.say(format!("wrote {}", self.output.display()));
        } else {
            console.say("no layer was found, none is written");
        }
        if let (Some(path), Some(stage)) = (&self.before_polish, &learned.before_polish) {
            stage.layer.save(path, &report::notes(learned, stage, false, seed))?;
            console.say(format!("wrote {} (before the polish)", path.display()));
        }
        if let Some(path) = &self.page {
            let run = page::Run { title: "A layer, learned", shape, examples: learned.examples, seed, seconds, truth: None };
            page::write(&run.sculpted(learned), path)?;
            console.say(format!("wrote {}", path.display()));
        }
        session.publish(
            "learn",
            &LearnReport {
                method: "sculpt",
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
