//! Random-feature attention side by side with NumPy and JAX (`benches/features/`), on the same sets and the same frozen heads.
//!
//! The yardstick is the fastest of the three libraries' products of 4096×4096 matrices in the same run.

mod fit;
mod job;
mod kernel;
mod large;
mod map;
mod paper;
mod peers;
mod problem;
mod stream;

use clap::{Args, ValueEnum};
pub use job::{JobArgs, run as run_job};
use peers::{Bench, PEERS, number, total};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Sizes of the main problem: d = N = 16, M = 1000, n = 16 384.
const D: usize = 16;
const KEYS: usize = 16;
const HEADS: usize = 1000;
const N: u64 = 16_384;
/// Sets that errors are measured on, without noise.
const N_TEST: u64 = 4096;
/// Seed of the frozen heads.
const SEED: u64 = 1;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Direct and automatic solver, and the ridge path.
    Fit,
    /// Feature maps alone.
    Map,
    /// A million sets from a file.
    Stream,
    /// A hundred thousand features.
    Large,
    /// Infinitely many heads.
    Kernel,
    /// RFA, BRFA and RFMLP on the paper's targets.
    Paper,
}

/// The command line.
#[derive(Args)]
pub struct FeatureArgs {
    /// A Python interpreter with the packages of `benches/features/requirements.txt`.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fit,map,stream,large,kernel,paper")]
    only: Vec<Part>,
    /// Times that everyone has a turn; the fastest counts.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Where the tables and the raw rows go.
    #[arg(long, default_value = "benches/runs/features")]
    out: PathBuf,
    /// Where sets and weights are kept meanwhile.
    #[arg(long, default_value = "target/bench-features")]
    scratch: PathBuf,
}

/// The tables as they grow.
struct Report {
    bench: Bench,
    rounds: usize,
    text: String,
    /// Multiply-adds per second, f32 and f64.
    rates: [f64; 2],
}

/// Runs all parts and writes the tables.
pub fn run(args: &FeatureArgs) -> Result<(), String> {
    let bench = Bench::new(args.python.clone(), args.out.clone(), args.scratch.clone())?;
    let mut report = Report { bench, rounds: args.rounds, text: String::new(), rates: [f64::NAN; 2] };
    report.line("# Random-feature attention side by side with NumPy and JAX\n");
    report.line(&format!(
        "Command: `{}`. attnlearn {}, {} threads. Raw rows: `raw.jsonl`.\n",
        crate::command_line(),
        env!("CARGO_PKG_VERSION"),
        rayon::current_num_threads()
    ));
    report.yardstick()?;
    for part in &args.only {
        match part {
            Part::Fit => report.fit()?,
            Part::Map => report.map()?,
            Part::Stream => report.stream()?,
            Part::Large => report.large()?,
            Part::Kernel => report.kernel()?,
            Part::Paper => report.paper()?,
        }
        report.save()?;
    }
    println!("{}", report.text);
    Ok(())
}

const DTYPES: [&str; 2] = ["f32", "f64"];

impl Report {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    fn table(&mut self, heads: &[&str]) {
        self.line(&format!("| {} |", heads.join(" | ")));
        self.line(&format!("|{}", "---|".repeat(heads.len())));
    }

    fn row(&mut self, cells: &[String]) {
        self.line(&format!("| {} |", cells.join(" | ")));
    }

    fn save(&self) -> Result<(), String> {
        let path = self.bench.out.join("README.md");
        fs::write(&path, &self.text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn yardstick(&mut self) -> Result<(), String> {
        self.line("## Yardstick: products of 4096×4096 matrices, G multiply-adds/s\n");
        self.table(&["", "attnlearn", "NumPy", "JAX"]);
        for (index, dtype) in DTYPES.iter().enumerate() {
            let arguments = words(&["--job", "matmul", "--dtype", dtype, "--repeat", "5"]);
            let reports = self.bench.side_by_side(&PEERS, self.rounds, |_| arguments.clone())?;
            let rates: Vec<f64> = reports.iter().map(|r| number(r, "multiply_adds") / total(r)).collect();
            self.rates[index] = rates.iter().fold(0.0, |a, b| a.max(*b));
            let cells = [dtype.to_string()].into_iter().chain(rates.iter().map(|rate| format!("{:.1}", rate / 1e9)));
            self.row(&cells.collect::<Vec<_>>());
        }
        self.line("");
        Ok(())
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
