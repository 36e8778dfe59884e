//! The Python package: what its calls cost over those from Rust, import, memory, wheel, and the same jobs by hand.

use attnlearn::data::{Block, ExampleSlices, ExampleSource, InputDistribution, Numbers};
use attnlearn::features::ridge::{Options, Ridge, Solver, Unwatched};
use attnlearn::features::{FitSpec, MapSpec, Model, Precision, SetInputs, SetStream, Sets, Target, TargetSpec};
use attnlearn::learn::{self, Checkpointing, Heads, Method};
use attnlearn::teacher::{TeacherSpec, TeacherStream};
use clap::Args;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use xtask::command;
use xtask::python::{absolute, pip, wheel};

/// What to measure.
#[derive(Args)]
pub struct PythonArgs {
    /// Rounds of calls from Rust and from Python in turn.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Draws of the heads, or of the starting points, that the scripts are run with.
    #[arg(long, default_value_t = 3)]
    draws: usize,
    /// Where the table goes.
    #[arg(long, default_value = "benches/runs/python")]
    out: PathBuf,
}

const N: u64 = 10_000;

/// Measures everything and writes a table.
pub fn run(args: &PythonArgs) -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("calls from Rust must be built as the wheel is: cargo xtask bench python".into());
    }
    let folder = absolute(Path::new("target"))?.join("python-bench");
    let python = folder.join("bin/python");
    command(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    pip(&python, &["install", "--quiet", "--requirement", "benches/python/requirements.txt"])?;
    let wheel = wheel(&python, "release", "default")?;
    pip(&python, &["install", "--quiet", "--no-deps", &wheel.display().to_string()])?;
    let scripts = absolute(Path::new("benches/python"))?;
    let ask = |script: &str, argument: &str| -> Result<Value, String> {
        let mut call = Command::new(&python);
        let output = call.arg(scripts.join(script)).arg(argument).current_dir(&folder).output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim()
            .lines()
            .last()
            .map_or(Ok(Value::Null), |line| serde_json::from_str(line).map_err(|e| format!("{script}: {e}")))
    };
    let mut table =
        String::from("| call, n = 10⁴ | Rust | Python | overhead of a round, median (least to most) |\n|---|---|---|---|\n");
    let jobs = ["forward, f64", "fit by sums, f64", "learn"];
    let mut rounds = [const { Vec::new() }; 3];
    for round in 1..=args.rounds {
        eprintln!("calls, round {round} of {}", args.rounds);
        let (rust, python) = (from_rust()?, ask("calls.py", "calls")?);
        for ((rounds, rust), job) in rounds.iter_mut().zip(rust).zip(jobs) {
            rounds.push([rust, python[job].as_f64().unwrap_or(f64::INFINITY)]);
        }
    }
    for (rounds, job) in rounds.iter().zip(jobs) {
        let least = |which: usize| 1e3 * rounds.iter().map(|both| both[which]).fold(f64::INFINITY, f64::min);
        let overheads = rounds.iter().map(|[rust, python]| 100.0 * (python / rust - 1.0)).collect();
        let overhead = told(overheads, |percent| format!("{percent:+.1} %"));
        table += &format!("| {job} | {:.2} ms | {:.2} ms | {overhead} |\n", least(0), least(1));
    }
    let import = ask("calls.py", "import")?.as_f64().unwrap_or(f64::NAN);
    let outside = 1e3 * ask("calls.py", "outside")?.as_f64().unwrap_or(f64::NAN);
    let memory = ask("calls.py", "memory")?;
    let size = fs::metadata(&wheel).map_err(|e| e.to_string())?.len() as f64 / 1e6;
    table += &format!(
        "\nlearning outside the library's own clock {outside:.1} ms; import {import:.2} s; wheel {size:.1} MB; peak memory over that of X, as a share of X: {memory}\n"
    );
    ask("calls.py", "problem")?;
    table +=
        "\n| job | script | lines | seconds, median (least to most) | error, median (least to most) |\n|---|---|---|---|---|\n";
    for (job, scripts_of) in [
        ("random features", ["features_by_hand.py", "features_attnlearn.py"]),
        ("recovery", ["recover_by_hand.py", "recover_attnlearn.py"]),
    ] {
        for script in scripts_of {
            let text = fs::read_to_string(scripts.join(script)).map_err(|e| format!("{script}: {e}"))?;
            let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')).count();
            let (mut seconds, mut errors) = (Vec::new(), Vec::new());
            for seed in 0..args.draws {
                eprintln!("{script}, draw {} of {}", seed + 1, args.draws);
                let found = ask(script, &seed.to_string())?;
                seconds.push(found["seconds"].as_f64().unwrap_or(f64::NAN));
                errors.push(found["error"].as_f64().unwrap_or(f64::NAN));
            }
            table += &format!(
                "| {job} | `{script}` | {lines} | {} | {} |\n",
                told(seconds, |s| format!("{s:.2}")),
                told(errors, |e| format!("{e:.2e}"))
            );
        }
    }
    println!("{table}");
    fs::create_dir_all(&args.out).map_err(|e| e.to_string())?;
    fs::write(args.out.join("table.md"), table).map_err(|e| e.to_string())
}

/// The median, and from where to where.
fn told(mut values: Vec<f64>, text: impl Fn(f64) -> String) -> String {
    values.sort_by(f64::total_cmp);
    let ends = values.first().zip(values.last()).map_or(String::new(), |(a, b)| format!(" ({} to {})", text(*a), text(*b)));
    values.get(values.len() / 2).map_or(String::new(), |median| text(*median) + &ends)
}

/// Least seconds of the forward pass, of a fit and of learning.
fn from_rust() -> Result<[f64; 3], String> {
    let text = |e: attnlearn::Error| e.to_string();
    let teacher = TeacherSpec::dense(16, 4, 4.0).draw_from(1).map_err(text)?;
    let stream = TeacherStream::new(&teacher, 8, InputDistribution::Boolean, 2, Some(N));
    let (mut x, mut y) = (Vec::new(), Vec::new());
    let mut block = Block::<f64>::new(stream.shape());
    for index in 0..N.div_ceil(Block::<f64>::CAPACITY as u64) {
        stream.fill_f64(index, &mut block).map_err(text)?;
        let mut part = vec![0.0; block.len() * 8 * 16];
        block.copy_inputs(&mut part);
        x.extend_from_slice(&part);
        block.copy_outputs(&mut part);
        y.extend_from_slice(&part);
    }
    let forward = best(30, || {
        std::hint::black_box(teacher.forward(8, &x));
        Ok(())
    })?;
    let inputs = SetInputs::new(8, 16);
    let sets = Target::new(&TargetSpec::Average { p: 2 }, inputs, 0).map_err(text)?;
    let sets = Sets::read(&SetStream::new(sets, 1, N)).map_err(text)?;
    let spec = FitSpec::Frozen(MapSpec::new(Model::Rfa, 16, 8, 40, 0), Precision::F64);
    let options = Options { ridge: Ridge::Given(1e-3), solver: Solver::Gram, ..Options::default() };
    let fit = best(5, || spec.fit(&sets, &options, None, &Unwatched).map(drop).map_err(text))?;
    let source = ExampleSlices::new(Numbers::F64(&x), Numbers::F64(&y), N as usize, stream.shape()).map_err(text)?;
    let settings = learn::Settings { heads: Heads::Given(4), method: Method::Descend, ..Default::default() };
    let learn = best(2, || {
        let plan = settings.clone().check(&source, "examples", &Checkpointing::default()).map_err(text)?;
        plan.run(&source, &learn::Unwatched).map(drop).map_err(text)
    })?;
    Ok([forward, fit, learn])
}

/// The least time of so many calls.
fn best(times: usize, mut call: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let mut least = f64::INFINITY;
    for _ in 0..times {
        let begun = Instant::now();
        call()?;
        least = least.min(begun.elapsed().as_secs_f64());
    }
    Ok(least)
}
