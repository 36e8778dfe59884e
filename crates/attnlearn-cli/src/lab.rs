//! `attnlearn lab`: the experiments, listed and run.

use crate::cli::Ending;
use crate::console::{Console, complain, duration, grouped};
use crate::output::Files;
use crate::progress::Bar;
use crate::session::Session;
use crate::{interrupt, output};
use attnlearn::{Error, Result};
use attnlearn_lab::{Entry, Finished, Given, Plan as Experiments, Scale, Stance, Watch, all, find};
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Run the experiments: both papers' questions, answered with pictures.
///
/// Every experiment measures points, keeps each as soon as it is finished, and says in a sentence what follows from them. Its folder has the exact
/// configuration, raw rows (Parquet and CSV), a summary (JSON) and plots (SVG); report.html shows them all on one page. A run that was stopped goes on where it was;
/// what has been measured is never measured again. The same seed gives the same rows.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn lab list
  attnlearn lab list samples --config                    what can be chosen, and the defaults
  attnlearn lab run all --out lab                        all of them, in about ten minutes
  attnlearn lab run samples means --scale full --out lab --seed 1
  attnlearn lab run samples --config mine.toml --out lab")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// What there is.
    List(ListArgs),
    /// Measure, and say what follows.
    Run(RunArgs),
}

/// What to list.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn lab list
  attnlearn lab list samples --config --scale full")]
struct ListArgs {
    /// Experiments [default: all].
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print their configuration, as --config of `lab run` takes it.
    #[arg(long)]
    config: bool,
    /// Whose defaults.
    #[arg(long, value_enum, default_value_t)]
    scale: Size,
}

/// What to run.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn lab run all --out lab
  attnlearn lab run growth parity --scale full --out lab --seed 1")]
struct RunArgs {
    /// Experiments, or `all`.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// How much to measure: `quick` takes about ten minutes for all experiments on two cores, `full` hours [default: quick, or that of a config.toml of a run].
    #[arg(long, value_enum)]
    scale: Option<Size>,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "lab")]
    out: PathBuf,
    /// Seed of everything [default: 0, or that of a config.toml of a run].
    #[arg(long)]
    seed: Option<u64>,
    /// Where the findings go as Markdown; not into the folder of an experiment [default: DIR/findings.md].
    #[arg(long, value_name = "FILE")]
    findings: Option<PathBuf>,
    /// What is to differ from the defaults (.toml): a table for every experiment, with what `lab list NAME --config` prints; or the config.toml that a run has
    /// left for one, with its scale and seed.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How much to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Size {
    /// Minutes.
    #[default]
    Quick,
    /// Hours.
    Full,
}

impl From<Size> for Scale {
    fn from(size: Size) -> Self {
        match size {
            Size::Quick => Self::Quick,
            Size::Full => Self::Full,
        }
    }
}

impl From<Scale> for Size {
    fn from(scale: Scale) -> Self {
        scale.pick(Self::Quick, Self::Full)
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Scale::from(*self).pick("quick", "full"))
    }
}

/// What has been checked.
pub enum Plan {
    /// Of these, with their configuration if it was asked for.
    List(Vec<(&'static dyn Entry, Option<toml::Table>)>),
    /// These.
    Run(Experiments),
}

/// Those of these names, each once, in the order of the report.
fn entries(names: &[String]) -> Result<Vec<&'static dyn Entry>> {
    if let Some(name) = names.iter().find(|name| *name != "all" && find(name).is_none()) {
        let known: Vec<&str> = all().iter().map(|entry| entry.name()).collect();
        return Err(Error::input(
            "lab",
            format!("there is no experiment `{name}`"),
            format!("choose among {}, or `all`", known.join(", ")),
        ));
    }
    let everything = names.is_empty() || names.iter().any(|name| name == "all");
    Ok(all().iter().copied().filter(|entry| everything || names.iter().any(|name| name == entry.name())).collect())
}

/// What a file of configuration says.
fn given(path: &Path) -> Result<Given> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let remedy = "mend it; `attnlearn lab list --config` shows what it may hold";
    let bad = |before: &[u8], problem: String| {
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::input(format!("{}, line {line}", path.display()), problem, remedy)
    };
    let text = std::str::from_utf8(&bytes).map_err(|e| bad(&bytes[..e.valid_up_to()], "this is no text in UTF-8".into()))?;
    let table = text.parse().map_err(|e: toml::de::Error| {
        let start = e.span().map_or(0, |span| span.start.min(bytes.len()));
        bad(&bytes[..start], e.message().replace('\n', " "))
    })?;
    Given::new(table, &path.display().to_string())
}

/// What the command line and a kept configuration agree upon.
fn agreed<T: PartialEq + Display>(flag: &str, asked: Option<T>, kept: Option<T>, file: Option<&Path>) -> Result<Option<T>> {
    match (asked, kept) {
        (Some(asked), Some(kept)) if asked != kept => Err(Error::input(
            file.unwrap_or(Path::new("configuration")).display().to_string(),
            format!("it is of a run with {flag} {kept}, and {flag} {asked} is asked for"),
            format!("leave {flag} out, or copy what is below [config] to a file of your own, below [NAME]"),
        )),
        (asked, kept) => Ok(asked.or(kept)),
    }
}

impl RunArgs {
    /// Refuses outputs that would overwrite what experiments keep.
    fn check_outputs(&self, json: Option<&Path>) -> Result<()> {
        for path in [self.findings.as_deref(), json].into_iter().flatten() {
            if let Some(entry) = all().iter().find(|entry| output::within(path, &self.out.join(entry.name()))) {
                return Err(Error::input(
                    path.display().to_string(),
                    format!("this folder is that of the results of `{}`", entry.name()),
                    "put it elsewhere",
                ));
            }
        }
        // The folder of the results need not be there yet: the run makes it.
        let made = |path: &Path| !self.out.exists() && path.parent().is_some_and(|folder| output::same_place(folder, &self.out));
        self.findings.as_deref().filter(|path| !made(path)).map_or(Ok(()), output::writable)
    }
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        match &self.command {
            Command::List(_) => Files::default(),
            Command::Run(args) => {
                let findings = args.findings.clone().unwrap_or_else(|| args.out.join("findings.md"));
                Files::default().read(&args.config).write([findings, args.out.join("report.html")])
            }
        }
    }

    /// Finds the experiments and reads the configuration.
    pub fn check(self, session: &Session) -> Result<Plan> {
        match self.command {
            Command::List(args) => {
                let config = |entry: &dyn Entry| entry.config(args.scale.into(), &toml::Table::new());
                let with = |entry: &'static dyn Entry| Ok((entry, if args.config { Some(config(entry)?) } else { None }));
                entries(&args.names)?.into_iter().map(with).collect::<Result<_>>().map(Plan::List)
            }
            Command::Run(args) => {
                let entries = entries(&args.names)?;
                args.check_outputs(session.json_file())?;
                let file = args.config.as_deref();
                let given = file.map_or_else(|| Ok(Given::default()), given)?;
                let kept = given.scale.map(Size::from);
                let plan = Experiments {
                    entries,
                    scale: agreed("--scale", args.scale, kept, file)?.unwrap_or_default().into(),
                    seed: agreed("--seed", args.seed, given.seed, file)?.unwrap_or(0),
                    out: args.out,
                    findings: args.findings,
                    replaced: given.replaced,
                };
                plan.check()?;
                Ok(Plan::Run(plan))
            }
        }
    }
}

/// One of the list, as it stands in the JSON.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: &'static str,
    question: &'static str,
    claim: &'static str,
    config: Option<toml::Table>,
}

/// A run, as it stands in the JSON.
#[derive(Serialize)]
struct RunReport<'a> {
    out: &'a Path,
    experiments: &'a [Finished],
}

impl Plan {
    /// Lists or runs.
    pub fn run(self, session: &Session) -> Result<Ending> {
        match self {
            Self::List(entries) => list(entries, session),
            Self::Run(plan) => run(&plan, session),
        }?;
        Ok(Ending::Done)
    }
}

fn list(entries: Vec<(&'static dyn Entry, Option<toml::Table>)>, session: &Session) -> Result<()> {
    let console = &session.console;
    let listed: Vec<Listed> = entries
        .into_iter()
        .map(|(entry, config)| Listed {
            name: entry.name(),
            title: entry.title(),
            question: entry.question(),
            claim: entry.claim(),
            config,
        })
        .collect();
    let width = listed.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    for entry in &listed {
        match &entry.config {
            None => console.say(format!("  {}  {}", console.bold(&format!("{:<width$}", entry.name)), entry.title)),
            Some(config) => {
                console.say(format!("[{}]", entry.name));
                console.say(config);
            }
        }
    }
    session.publish("lab", &serde_json::json!({ "experiments": listed }))
}

fn run(plan: &Experiments, session: &Session) -> Result<()> {
    interrupt::listen();
    let console = &session.console;
    let watch = LabWatch { session, bar: Mutex::new(None) };
    let ran = plan.run(&watch);
    watch.clear();
    if matches!(ran, Err(Error::Interrupted)) {
        console.say(format!("kept what has been measured in {}: the same command goes on from there", plan.out.display()));
    }
    let finished = ran?;
    console.gap();
    console.say(format!("wrote {}: plots, tables, and the findings in full", plan.out.join("report.html").display()));
    session.publish("lab", &RunReport { out: &plan.out, experiments: &finished })
}

/// A bar for every experiment, and its findings when it is over.
struct LabWatch<'a> {
    session: &'a Session,
    bar: Mutex<Option<Bar>>,
}

impl LabWatch<'_> {
    fn console(&self) -> &Console {
        &self.session.console
    }

    fn clear(&self) {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Watch for LabWatch<'_> {
    fn begin(&self, entry: &dyn Entry, points: usize, before: usize) {
        let bar = self.session.bar(points as u64, entry.name()).resumed(before as u64);
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar);
    }

    fn point(&self) {
        if let Some(bar) = self.bar.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            bar.advance(1);
        }
    }

    fn end(&self, finished: &Finished) {
        self.clear();
        let (console, points) = (self.console(), grouped(finished.points as u64));
        console.say(format!(
            "{}  {}  {}",
            console.bold(finished.name),
            finished.title,
            console.dim(&format!("({points} points, {})", duration(finished.seconds)))
        ));
        for finding in &finished.summary.findings {
            let mark = match finding.stance {
                Stance::Agrees => console.good("✓"),
                Stance::Differs => console.bad("✗"),
                Stance::Open => "–".into(),
            };
            console.say(format!("  {mark} {}", finding.headline()));
        }
    }

    fn hidden(&self, entry: &dyn Entry, why: &Error) {
        complain(&format!("what an earlier run has left of {} cannot be shown: {why}", entry.name()));
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}
