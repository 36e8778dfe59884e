//! Benchmarks: dated runs with their command, machine and raw rows, committed as evidence.
//!
//! `cargo xtask bench …` runs this program, built for release. It is a crate of its own so that tests need not wait for it.

mod features;
mod python;
mod rate;
mod recover;
mod sculpt;
mod today;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask bench", about = "Measurements, written to `benches/runs/`")]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

fn main() -> ExitCode {
    match run(&Cli::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The command of this run, as tables name it.
fn command_line() -> String {
    let words: Vec<String> = ["cargo", "xtask", "bench"].map(str::to_owned).into_iter().chain(std::env::args().skip(1)).collect();
    words.join(" ")
}

/// Which benchmark.
#[derive(Subcommand)]
enum Bench {
    /// The six-phase learner on random teachers: success before and after the polish, examples, time.
    Sculpt {
        /// Teachers per problem.
        #[arg(long, default_value_t = 20)]
        teachers: u64,
        /// Seed of the first teacher; the others follow it.
        #[arg(long, default_value_t = 0)]
        first_teacher: u32,
        /// Teachers of the four-head problem, which takes minutes each.
        #[arg(long, default_value_t = 3)]
        four_head_teachers: u64,
        /// Examples at most, whatever the problem allows.
        #[arg(long, default_value_t = u64::MAX)]
        most_examples: u64,
        /// Only problems whose name contains this, e.g. `8,4,2`.
        #[arg(long, default_value = "")]
        only: String,
        /// Only problems with these numbers of heads.
        #[arg(long, value_delimiter = ',', default_value = "1,2,3,4")]
        heads: Vec<usize>,
        /// Where the table and the raw rows go.
        #[arg(long, default_value = "benches/runs/sculpt")]
        out: PathBuf,
    },
    /// Sampling, forward pass and certification against the machine's multiply-add rate.
    Rate,
    /// Random-feature attention side by side with NumPy and JAX.
    Features(features::FeatureArgs),
    /// One job of that, for itself.
    #[command(hide = true)]
    FeatureJob(features::JobArgs),
    /// Recovery of layers, family by family, side by side with Adam and least squares.
    Recover(recover::RecoverArgs),
    /// Recovery of the layers of a real transformer.
    Real(recover::RealArgs),
    /// Layers of today: causal rotary heads in key groups.
    Today(today::TodayArgs),
    /// The Python package: overhead of its calls, import, memory, wheel, and the same jobs by hand.
    Python(python::PythonArgs),
}

/// Runs it.
fn run(bench: &Bench) -> Result<(), String> {
    match bench {
        Bench::Sculpt { teachers, first_teacher, four_head_teachers, most_examples, only, heads, out } => {
            let mut problems = sculpt::problems();
            problems.retain(|p| p.name().contains(only) && heads.contains(&p.m));
            problems.iter_mut().for_each(|p| p.most_examples = p.most_examples.min(*most_examples));
            sculpt::run(&problems, u64::from(*first_teacher), *teachers, *four_head_teachers, out)
        }
        Bench::Rate => rate::run(),
        Bench::Features(args) => features::run(args),
        Bench::FeatureJob(args) => features::run_job(args),
        Bench::Recover(args) => recover::run(args),
        Bench::Today(args) => today::run(args),
        Bench::Real(args) => recover::run_real(args),
        Bench::Python(args) => python::run(args),
    }
}
