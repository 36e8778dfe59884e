//! Random-feature attention side by side with NumPy and JAX (`benches/features/`), on the same sets and the same frozen heads.
//!
//! Operations are counted in multiply-adds that any direct method needs: features `n M ((d+1)² + 2N(d+1))`, one triangle of their products
//! `n(n+1)p/2` (or `n p(p+1)/2`), Cholesky `m³/6` for the smaller `m = min(n, p)`. What a program computes beyond these does not count.
//! The yardstick is the fastest of the three libraries' products of 4096×4096 matrices in the same run.

mod job;
mod peers;

use attnlearn::data::{Dtype, SetColumns, SetWriter};
use attnlearn::features::{Experiment, Learner, Paired, Precision};
use attnlearn::features::{MapSpec, Model, SetBlock, SetInputs, SetSource, SetStream, Target, TargetSpec};
use clap::{Args, ValueEnum};
pub use job::{JobArgs, run as run_job};
use peers::{Bench, PEERS, Peer, number, total};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    report.line("# Random-feature attention side by side with NumPy and JAX\n");
    report.line(&format!(
        "Command: `cargo xtask {}`. attnlearn {}, {} threads. Raw rows: `raw.jsonl`.\n",
        arguments.join(" "),
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

    /// A file of sets, drawn unless it is there.
    fn sets(&self, name: &str, n: u64, seed: u64, noise: f64, dtype: Dtype) -> Result<PathBuf, String> {
        let path = self.bench.scratch.join(format!("{name}.npz"));
        if path.exists() {
            return Ok(path);
        }
        let draw = || -> attnlearn::Result<()> {
            let target = Target::new(&TargetSpec::Average { p: 3 }, SetInputs::new(KEYS, D), 0)?;
            let stream = SetStream::new(target, seed, n).with_noise(noise)?;
            let columns = SetColumns { x: Some(dtype), y: Some(dtype), length: false, weight: false };
            let mut writer = SetWriter::create(&path, stream.shape(), n, columns)?;
            let mut block = SetBlock::new(stream.shape());
            for index in 0..stream.blocks() {
                stream.fill(index, &mut block)?;
                writer.append(&block)?;
            }
            writer.finish()
        };
        draw().map_err(|e| e.to_string())?;
        Ok(path)
    }

    /// The frozen heads that attnlearn draws from [`SEED`], for the references.
    fn weights(&self, heads: usize) -> Result<PathBuf, String> {
        let path = self.bench.scratch.join(format!("weights-{heads}.npy"));
        let weights = MapSpec::new(Model::Rfa, D, KEYS, heads, SEED).weights().map_err(|e| e.to_string())?;
        let file = fs::File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut to = BufWriter::new(file);
        let shape = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({heads}, {0}, {0}), }}", D + 1);
        // Version 1.0: magic, length, and a header padded to 64 bytes that ends in a line feed.
        let header = format!("{shape:<width$}\n", width = (shape.len() + 11).next_multiple_of(64) - 11);
        let mut write = || -> std::io::Result<()> {
            to.write_all(b"\x93NUMPY\x01\x00")?;
            to.write_all(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes())?;
            to.write_all(header.as_bytes())?;
            weights.iter().try_for_each(|w| to.write_all(&w.to_le_bytes()))?;
            to.flush()
        };
        write().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
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

    /// Fits by the peers at a ridge; what is given to attnlearn alone is `ours`.
    fn fits(&mut self, peers: &[Peer], data: &Problem, dtype: &str, ridge: f64, ours: &[&str]) -> Result<Vec<Value>, String> {
        let ridge = format!("{ridge:e}");
        let rounds = self.rounds;
        self.bench.side_by_side(peers, rounds, |peer| {
            let mut arguments = words(&["--job", "fit", "--dtype", dtype, "--ridge", &ridge]);
            arguments.extend(["--data".into(), shown(&data.train), "--test".into(), shown(&data.test)]);
            if peer == Peer::Attnlearn {
                arguments.extend(words(&["--heads", &HEADS.to_string(), "--seed", &SEED.to_string()]));
                arguments.extend(words(ours));
            } else {
                arguments.extend(["--weights".into(), shown(&data.weights)]);
            }
            arguments
        })
    }

    fn problem(&self, name: &str, noise: f64) -> Result<Problem, String> {
        Ok(Problem {
            train: self.sets(name, N, 1, noise, Dtype::F64)?,
            test: self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?,
            weights: self.weights(HEADS)?,
        })
    }

    fn fit(&mut self) -> Result<(), String> {
        let p = HEADS * (D + 1);
        let (n, m) = (N as f64, (N as f64).min(p as f64));
        let features = n * (HEADS * ((D + 1) * (D + 1) + 2 * KEYS * (D + 1))) as f64;
        let work = features + n * (n + 1.0) / 2.0 * p as f64 + m.powi(3) / 6.0;
        self.line(&format!("## Fits: d = N = {D}, M = {HEADS} (p = {p}), n = {N}\n"));
        self.line(&format!(
            "Target `average:p=3`, standard deviation of the noise in y as given, errors on {N_TEST} sets without noise, ridge of least exact\n\
             leave-one-out error (`path`, in the widest precision shown). Counted: {work:.3e} multiply-adds, of them features {:.1} %, products {:.1} %, Cholesky {:.1} %.\n",
            100.0 * features / work,
            100.0 * (work - features - m.powi(3) / 6.0) / work,
            100.0 * m.powi(3) / 6.0 / work
        ));
        for (name, noise, dtypes) in [("noise-0.3", 0.3, &DTYPES[..]), ("noise-0", 0.0, &DTYPES[..1])] {
            let data = self.problem(name, noise)?;
            let mut paths = Vec::new();
            for dtype in dtypes {
                let mut arguments = words(&["--job", "path", "--dtype", dtype, "--heads", &HEADS.to_string()]);
                arguments.extend(words(&["--seed", &SEED.to_string(), "--solver", "dual"]));
                arguments.extend(["--data".into(), shown(&data.train), "--test".into(), shown(&data.test)]);
                paths.push(self.bench.run(Peer::Attnlearn, &arguments)?);
            }
            let ridge = paths.last().map_or(f64::NAN, |path| number(path, "ridge"));
            self.line(&format!("### Noise {noise}: ridge {ridge:.3e}\n"));
            self.table(&[
                "",
                "solver",
                "seconds",
                "better reference / it",
                "share of the yardstick",
                "held-out MSE/Var",
                "against the better reference's",
            ]);
            for (index, dtype) in dtypes.iter().enumerate() {
                let direct = self.fits(&PEERS, &data, dtype, ridge, &["--solver", "dual"])?;
                let auto = self.fits(&PEERS[..1], &data, dtype, ridge, &["--solver", "auto"])?;
                let better = if total(&direct[1]) <= total(&direct[2]) { &direct[1] } else { &direct[2] };
                let (seconds, error) = (total(better), number(better, "mse_over_var"));
                let rate = self.rates[index];
                let names = ["attnlearn", "NumPy", "JAX"];
                let all = names.iter().zip(&direct).chain([(&"attnlearn, `auto`", &auto[0])]);
                for (library, r) in all {
                    let solver = match r["solver"].as_str() {
                        Some("cg") => format!("cg, {} iterations", r["iterations"]),
                        Some(name) => name.into(),
                        None => "dual".into(),
                    };
                    let share = match r["solver"].as_str() {
                        Some("cg") => "–".into(),
                        _ => format!("{:.0} %", 100.0 * work / total(r) / rate),
                    };
                    let row = [
                        format!("{library}, {dtype}"),
                        solver,
                        format!("{:.1}", total(r)),
                        format!("{:.2}", seconds / total(r)),
                        share,
                        format!("{:.5e}", number(r, "mse_over_var")),
                        format!("{:+.2} %", 100.0 * (number(r, "mse_over_var") / error - 1.0)),
                    ];
                    self.row(&row);
                }
                let path = &paths[index];
                let row = [
                    format!("attnlearn, {dtype}, 20 ridges with leave-one-out"),
                    "dual".into(),
                    format!("{:.1}", total(path)),
                    format!("{:.2} × the direct fit", total(path) / total(&direct[0])),
                    String::new(),
                    format!("{:.5e}", number(path, "mse_over_var")),
                    format!("at its ridge {:.3e}", number(path, "ridge")),
                ];
                self.row(&row);
            }
            self.line("");
        }
        Ok(())
    }

    fn map(&mut self) -> Result<(), String> {
        let data = self.problem("noise-0.3", 0.3)?;
        self.line(&format!("## Feature maps alone: d = N = {D}, M = {HEADS}, n = {N}, nothing kept\n"));
        self.table(&["model", "", "attnlearn, ns a set", "share of the yardstick", "NumPy / it", "JAX / it"]);
        for model in ["rfa", "softmax", "row-relu", "rfmlp"] {
            for (index, dtype) in DTYPES.iter().enumerate() {
                let peers = if model == "rfa" { &PEERS[..] } else { &PEERS[..1] };
                let rounds = self.rounds;
                let reports = self.bench.side_by_side(peers, rounds, |peer| {
                    let mut arguments = words(&["--job", "features", "--dtype", dtype, "--repeat", "3"]);
                    arguments.extend(["--data".into(), shown(&data.train)]);
                    if peer == Peer::Attnlearn {
                        arguments.extend(words(&["--heads", &HEADS.to_string(), "--model", model]));
                    } else {
                        arguments.extend(["--weights".into(), shown(&data.weights)]);
                    }
                    arguments
                })?;
                let ours = &reports[0];
                let ratio = |peer: usize| reports.get(peer).map_or("–".into(), |r| format!("{:.2}", total(r) / total(ours)));
                let share = 100.0 * number(ours, "multiply_adds") / total(ours) / self.rates[index];
                let row = [
                    model.to_owned(),
                    dtype.to_string(),
                    format!("{:.0}", 1e9 * total(ours) / N as f64),
                    format!("{share:.0} %"),
                    ratio(1),
                    ratio(2),
                ];
                self.row(&row);
            }
        }
        self.line("");
        Ok(())
    }

    fn stream(&mut self) -> Result<(), String> {
        const STREAM_HEADS: usize = 200;
        let p = STREAM_HEADS * (D + 1);
        let gram = (8 * p * p) as f64;
        self.line(&format!("## Streamed from a file: M = {STREAM_HEADS} (p = {p}), f32, Gram {:.0} MB\n", gram / 1e6));
        self.table(&[
            "",
            "n",
            "seconds",
            "µs a set",
            "share of the yardstick",
            "peak memory",
            "over the Gram's 8p²",
            "held-out MSE/Var",
        ]);
        let (test, weights) = (self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?, self.weights(STREAM_HEADS)?);
        for n in [250_000u64, 500_000, 1_000_000] {
            let data = self.sets(&format!("stream-{n}"), n, 3, 0.3, Dtype::F32)?;
            let peers = if n == 1_000_000 { &PEERS[..] } else { &PEERS[..1] };
            let reports = self.bench.side_by_side(peers, 1, |peer| {
                let mut arguments = words(&["--job", "stream", "--dtype", "f32", "--ridge", "1e-4"]);
                arguments.extend(["--data".into(), shown(&data), "--test".into(), shown(&test)]);
                if peer == Peer::Attnlearn {
                    let heads = STREAM_HEADS.to_string();
                    arguments.extend(words(&["--heads", &heads, "--seed", &SEED.to_string(), "--solver", "gram"]));
                } else {
                    arguments.extend(["--weights".into(), shown(&weights)]);
                }
                arguments
            })?;
            let nf = n as f64;
            let work = nf * (STREAM_HEADS * ((D + 1) * (D + 1) + 2 * KEYS * (D + 1))) as f64
                + nf * (p * (p + 1) / 2) as f64
                + (p as f64).powi(3) / 6.0;
            for (library, r) in ["attnlearn", "NumPy", "JAX"].iter().zip(&reports) {
                let row = [
                    library.to_string(),
                    n.to_string(),
                    format!("{:.1}", total(r)),
                    format!("{:.1}", 1e6 * total(r) / nf),
                    format!("{:.0} %", 100.0 * work / total(r) / self.rates[0]),
                    format!("{:.0} MB", number(r, "peak_bytes") / 1e6),
                    format!("{:.2}", number(r, "peak_bytes") / gram),
                    format!("{:.4e}", number(r, "mse_over_var")),
                ];
                self.row(&row);
            }
        }
        self.line("\nThe references' peaks contain Python and their libraries.\n");
        Ok(())
    }

    fn large(&mut self) -> Result<(), String> {
        const LARGE_HEADS: usize = 5883;
        const LARGE_N: u64 = 50_000;
        let p = LARGE_HEADS * (D + 1);
        self.line(&format!("## p = {p} (M = {LARGE_HEADS}), n = {LARGE_N}: conjugate gradients, nothing kept, 4 GiB allowed\n"));
        self.table(&["", "ridge", "seconds", "iterations", "relative residual", "peak memory", "held-out MSE/Var"]);
        let data = self.sets("large", LARGE_N, 4, 0.3, Dtype::F32)?;
        let test = self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?;
        for ridge in ["1e-2", "1e-3"] {
            let mut arguments =
                words(&["--job", "stream", "--dtype", "f32", "--ridge", ridge, "--solver", "cg", "--memory", "4"]);
            arguments.extend(words(&["--heads", &LARGE_HEADS.to_string(), "--seed", &SEED.to_string()]));
            arguments.extend(["--data".into(), shown(&data), "--test".into(), shown(&test)]);
            let r = self.bench.run(Peer::Attnlearn, &arguments)?;
            let row = [
                "f32".into(),
                ridge.to_owned(),
                format!("{:.0}", total(&r)),
                r["iterations"].to_string(),
                format!("{:.1e}", number(&r, "residual")),
                format!("{:.2} GiB", number(&r, "peak_bytes") / f64::from(1u32 << 30)),
                format!("{:.4e}", number(&r, "mse_over_var")),
            ];
            self.row(&row);
        }
        self.line("");
        Ok(())
    }

    /// Paired comparisons of the models, everything drawn from the seed.
    fn paper(&mut self) -> Result<(), String> {
        const PAPER_N: u64 = 4096;
        const SEEDS: std::ops::Range<u64> = 200..205;
        self.line(&format!(
            "## The paper's comparison: d = N = {D}, M = {HEADS}, n = {PAPER_N}, {} seeds, ridge of least leave-one-out error, f32\n",
            SEEDS.end - SEEDS.start
        ));
        self.line(
            "Mean held-out MSE/Var, and the ratio of two models' errors, seed by seed, with its interval of confidence 95 %.\n",
        );
        self.table(&["target", "RFA", "BRFA", "RFMLP", "RFA / RFMLP", "BRFA / RFMLP", "BRFA / RFA"]);
        for target in [
            "average:p=2",
            "average:p=5",
            "correlation:p=1,q=0",
            "correlation:p=1,q=1",
            "correlation:p=2,q=1",
            "correlation:p=4,q=2",
        ] {
            let spec: TargetSpec = target.parse().map_err(|e| format!("{target}: {e}"))?;
            let experiment = Experiment::new(spec, SetInputs::new(KEYS, D), PAPER_N, N_TEST);
            let mut errors = Vec::new();
            for model in [Model::Rfa, Model::Brfa, Model::Rfmlp] {
                let learner = Learner::Frozen { map: MapSpec::new(model, D, KEYS, HEADS, 0), precision: Precision::F32 };
                let fits = SEEDS.map(|seed| experiment.held_out(&learner, seed).map(|score| score.nmse));
                errors.push(fits.collect::<attnlearn::Result<Vec<f64>>>().map_err(|e| e.to_string())?);
                eprintln!("{target} {model:?}: {:.4?}", errors.last());
            }
            self.bench.note(&serde_json::json!({
                "job": "paper", "target": target, "n": PAPER_N, "rfa": errors[0], "brfa": errors[1], "rfmlp": errors[2]
            }))?;
            let mean = |i: usize| format!("{:.4}", errors[i].iter().sum::<f64>() / errors[i].len() as f64);
            let ratio = |a: usize, b: usize| {
                let paired = Paired::log_ratio(&errors[a], &errors[b]).map_err(|e| e.to_string())?;
                Ok::<_, String>(format!("{:.3} ({:.3} to {:.3})", paired.mean.exp(), paired.low.exp(), paired.high.exp()))
            };
            let row = [target.to_owned(), mean(0), mean(1), mean(2), ratio(0, 2)?, ratio(1, 2)?, ratio(1, 0)?];
            self.row(&row);
        }
        self.line("");
        Ok(())
    }

    fn kernel(&mut self) -> Result<(), String> {
        const KERNEL_N: u64 = 4096;
        self.line(&format!("## Infinitely many heads: n = {KERNEL_N}, N = {KEYS}, f64, kernel matrix and Cholesky\n"));
        self.table(&[
            "kernel",
            "seconds",
            "of them kernel",
            "ns a pair of keys",
            "NumPy / it",
            "JAX / it",
            "held-out MSE/Var",
            "NumPy's",
        ]);
        let data = self.sets("kernel", KERNEL_N, 5, 0.3, Dtype::F64)?;
        let test = self.sets("test", N_TEST, 2, 0.0, Dtype::F64)?;
        for model in ["rfa", "brfa", "rfmlp"] {
            let peers = if model == "rfa" { &PEERS[..] } else { &PEERS[..1] };
            let rounds = self.rounds;
            let reports = self.bench.side_by_side(peers, rounds, |peer| {
                let mut arguments = words(&["--job", "kernel", "--dtype", "f64", "--ridge", "1e-4"]);
                arguments.extend(["--data".into(), shown(&data), "--test".into(), shown(&test)]);
                if peer == Peer::Attnlearn {
                    arguments.extend(words(&["--model", model]));
                }
                arguments
            })?;
            let ours = &reports[0];
            let kernel = ours["stages"]["gram"].as_f64().unwrap_or(f64::NAN);
            let pairs = (KERNEL_N * (KERNEL_N + 1) / 2) as f64 * (KEYS * KEYS) as f64;
            let ratio = |peer: usize| reports.get(peer).map_or("–".into(), |r| format!("{:.2}", total(r) / total(ours)));
            let row = [
                model.to_owned(),
                format!("{:.2}", total(ours)),
                format!("{kernel:.2}"),
                if model == "rfmlp" { "–".into() } else { format!("{:.2}", 1e9 * kernel / pairs) },
                ratio(1),
                ratio(2),
                format!("{:.5e}", number(ours, "mse_over_var")),
                reports.get(1).map_or("–".into(), |r| format!("{:.5e}", number(r, "mse_over_var"))),
            ];
            self.row(&row);
        }
        self.line("");
        Ok(())
    }
}

/// The files of a problem.
struct Problem {
    train: PathBuf,
    test: PathBuf,
    weights: PathBuf,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
