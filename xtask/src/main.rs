//! Build, test and benchmark commands of the workspace: `cargo xtask --help`.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask::{cargo, python, test};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, test and benchmark commands")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Formatting, lints, documentation and the tests.
    Test(Tier),
    /// The tests of the Python package alone.
    TestPython(Tier),
    /// Measurements, written to `benches/runs/`.
    #[command(disable_help_flag = true)]
    Bench {
        /// Which one, and its options; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Which tests.
#[derive(clap::Args)]
struct Tier {
    /// The slow ones too: statistics, recovery of larger layers, the page in a browser, notebooks, torch.
    #[arg(long)]
    all: bool,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(tier) => test::run(tier.all),
        Command::TestPython(tier) => python::test(true, tier.all, true),
        Command::Bench { arguments } => bench(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The measurements have a program of their own, built for release.
fn bench(arguments: Vec<String>) -> Result<(), String> {
    let run = ["run", "--release", "--quiet", "--package", "attnlearn-bench", "--"].map(str::to_owned);
    cargo(&[run.to_vec(), arguments].concat(), None)
}
