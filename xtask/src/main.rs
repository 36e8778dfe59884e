//! Build, test and benchmark commands of the workspace: `cargo xtask --help`.

mod bench;
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
    /// Formatting, lints, documentation and all tests.
    Test,
    /// Measurements, written to `benches/runs/`.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test => test::run(),
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
