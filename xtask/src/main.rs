//! Build, test and benchmark commands of the workspace: `cargo xtask --help`.

mod bench;
mod python;
mod test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
    #[command(subcommand)]
    Bench(bench::Bench),
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
        // The tests share the dev build with this program; a measurement needs the release build.
        Command::Bench(_) if cfg!(debug_assertions) => in_release(),
        Command::Bench(bench) => bench::run(&bench),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The same command again, by the release build.
fn in_release() -> Result<(), String> {
    let mut run = vec!["run".to_owned(), "--release".into(), "--quiet".into(), "--package".into(), "xtask".into(), "--".into()];
    run.extend(std::env::args().skip(1));
    test::cargo(&run, None)
}
