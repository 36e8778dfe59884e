//! The command line as a whole: the commands, the flags that all of them share, and how arguments become a run.

use crate::output::Files;
use crate::session::{Colour, Session};
use crate::{
    apply, check, compare, completions, demo, export, fit, generate, import, inspect, interrupt, lab, learn, man, predict, score,
    values, verify,
};
use attnlearn::Error;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Learn attention layers from examples.
///
/// A layer with m heads maps a sequence X of k tokens in R^d to F(X) = Σ_i softmax(X Θ_i Xᵀ) X W_i. Given pairs (X, F(X)),
/// attnlearn finds the heads Θ_i, W_i and certifies them on examples that the learner has not seen. Layers of many frozen
/// random heads with trained values are fitted with `fit`.
#[derive(Parser, Debug)]
#[command(name = "attnlearn", version, after_help = EXAMPLES, max_term_width = 110)]
#[command(disable_help_subcommand = true, subcommand_required = true)]
pub struct Cli {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  attnlearn demo                                        learn a layer with two heads and see how close it comes
  attnlearn generate -o examples.npz --examples 1e6 --layer-out teacher.safetensors
  attnlearn learn examples.npz --heads 2 -o layer.safetensors
  attnlearn compare teacher.safetensors layer.safetensors
  attnlearn generate -o sets.npz --examples 4000 --target average:p=3 --d 16
  attnlearn fit sets.npz --model rfa --heads 200 --ridge auto -o model.safetensors
  attnlearn lab run all --out lab                       every experiment, with a report (built with --features full)

Exit codes:
  0 done · 1 ran, but did not recover or confirm a layer (it says why) · 2 bad input or usage · 130 interrupted";

/// Flags that every command takes.
#[derive(Args, Debug)]
pub struct Shared {
    /// Threads to use [default: all cores]. The results do not depend on it.
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(help_heading = "Shared options")]
    pub threads: Option<u16>,
    /// Write the result as JSON to FILE, or to standard output if it is `-` (the text then goes to standard error).
    #[arg(long, global = true, value_name = "FILE|-", help_heading = "Shared options")]
    pub json: Option<PathBuf>,
    /// Print nothing but errors.
    #[arg(long, short, global = true, help_heading = "Shared options")]
    pub quiet: bool,
    /// When to use colours; `auto` is at a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Shared options")]
    pub color: Colour,
}

impl Shared {
    /// The file that the JSON is to go to; none if it goes to standard output, which has a name in some systems too.
    pub fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| ![Path::new("-"), Path::new("/dev/stdout")].contains(path))
    }
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::Args),
    Generate(generate::Args),
    Learn(learn::Args),
    Verify(verify::Args),
    Compare(compare::Args),
    Apply(apply::Args),
    Fit(fit::Args),
    Predict(predict::Args),
    Score(score::Args),
    Import(import::Args),
    Check(check::Args),
    Export(export::Args),
    Inspect(inspect::Args),
    Lab(lab::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// The files that it reads and writes.
    fn files(&self) -> Files {
        match self {
            Self::Demo(args) => args.files(),
            Self::Generate(args) => args.files(),
            Self::Learn(args) => args.files(),
            Self::Verify(args) => args.files(),
            Self::Compare(args) => args.files(),
            Self::Apply(args) => args.files(),
            Self::Fit(args) => args.files(),
            Self::Predict(args) => args.files(),
            Self::Score(args) => args.files(),
            Self::Import(args) => args.files(),
            Self::Check(args) => args.files(),
            Self::Export(args) => args.files(),
            Self::Inspect(args) => args.files(),
            Self::Lab(args) => args.files(),
            Self::Completions(_) | Self::Man(_) => Files::default(),
        }
    }
}

impl Cli {
    /// The files that are read and written, the shared flags' too.
    fn files(&self) -> Files {
        self.command.files().write(self.shared.json_file())
    }

    /// Refuses what can be told from the flags alone: outputs over inputs, and a result of what has none.
    fn check(&self) -> Result<(), Error> {
        if let (Command::Completions(_) | Command::Man(_), Some(_)) = (&self.command, &self.shared.json) {
            return Err(Error::input("--json", "this command prints a text and has no other result", "leave it out"));
        }
        self.files().check()
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It did what it was asked to.
    Done,
    /// It ran, but did not recover or confirm a layer; the outcome says why.
    NotRecovered,
}

/// Why a command could not be run to its end.
#[derive(Debug)]
pub enum Failure {
    /// Nothing failed: help or the version was asked for, and shown.
    Shown,
    /// The arguments make no sense.
    Usage(String),
    /// The input makes no sense, the system refused, or Ctrl-C was pressed.
    Run(Error),
}

impl Failure {
    /// Whether it was the user who ended the run.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Run(Error::Interrupted))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shown => Ok(()),
            Self::Usage(message) => f.write_str(message),
            Self::Run(error) => f.write_str(&error.told(&values::flag)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Run(error)
    }
}

/// Arguments → plan → run.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<Ending, Failure> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = Cli::try_parse_from(&arguments).map_err(|e| explain(&e, &arguments))?;
    interrupt::begin()?;
    cli.check()?;
    let Cli { shared, command } = cli;
    let session = Session::begin(&shared)?;
    let ending = match command {
        Command::Demo(args) => args.check()?.run(&session),
        Command::Generate(args) => args.check()?.run(&session),
        Command::Learn(args) => args.check()?.run(&session),
        Command::Verify(args) => args.check()?.run(&session),
        Command::Compare(args) => args.check()?.run(&session),
        Command::Apply(args) => args.check()?.run(&session),
        Command::Fit(args) => args.check()?.run(&session),
        Command::Predict(args) => args.check()?.run(&session),
        Command::Score(args) => args.check()?.run(&session),
        Command::Check(args) => args.check()?.run(&session),
        Command::Import(args) => args.check()?.run(&session),
        Command::Export(args) => args.check()?.run(&session),
        Command::Inspect(args) => args.run(&session),
        Command::Lab(args) => args.check(&session)?.run(&session),
        Command::Completions(args) => args.run(),
        Command::Man(args) => args.run(),
    }?;
    session.end()?;
    Ok(ending)
}

/// What the argument parser has to say, on one line; help and version are printed as they are.
fn explain(error: &clap::Error, arguments: &[OsString]) -> Failure {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match error.print() {
            // A reader that has gone away needs no help.
            Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
                Failure::Run(Error::Io { place: "standard output".into(), source })
            }
            _ => Failure::Shown,
        };
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::Usage("no command given; try 'attnlearn --help'".into());
    }
    let text = error.render().to_string();
    let problem = text.split("Usage:").next().unwrap_or_default();
    let problem = problem.split("For more information").next().unwrap_or_default();
    // A flag is hardly ever meant as a value.
    let lines = problem.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"));
    let lines: Vec<String> = lines.map(|line| line.strip_prefix("tip: ").map_or(line.into(), |tip| format!("({tip})"))).collect();
    let problem = lines.join(" ");
    let problem = problem.strip_prefix("error: ").unwrap_or(&problem);
    let known = |word: &&OsString| Cli::command().get_subcommands().any(|command| command.get_name() == word.to_string_lossy());
    let command = arguments.iter().skip(1).find(known).map_or_else(String::new, |word| format!(" {}", word.to_string_lossy()));
    Failure::Usage(format!("{problem}; try 'attnlearn{command} --help'"))
}

#[cfg(test)]
mod tests;
