//! Recovery of layers from examples, family by family, side by side with what one would write oneself: Adam with JAX and with PyTorch, and
//! scipy's nonlinear least squares (`benches/recover/`).
//!
//! A run is a success if every head of the teacher, in canonical form, is found to a relative error of 10⁻⁶ in both of its matrices, and nothing
//! else; under noise, if no head is further from the teacher than 1.05 times the worst head of the least-squares estimate that Gauss–Newton
//! reaches from the teacher itself; for parities, whose heads their outputs do not determine, if at most 10⁻¹⁰ of the variance of fresh examples is
//! left unexplained. Learners see the examples, the number of heads, their rank and the mask.

mod family;
mod real;

pub use real::{RealArgs, run as run_real};

use attnlearn::data::{Block, Columns, Dtype, ExampleWriter};
use attnlearn::descend::{
    Batch, Choice, Form, HeadCount, Learner, Newton, NewtonSettings, Part, Prepared, Rank, Student, Wanted,
};
use attnlearn::layer::{AttentionLayer, Mask};
use clap::{Args, ValueEnum};
use family::{NAMES, Problem, problem};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Who learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Attnlearn,
    AdamJax,
    AdamTorch,
    LeastSquares,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Attnlearn => "attnlearn",
            Self::AdamJax => "Adam, JAX",
            Self::AdamTorch => "Adam, PyTorch",
            Self::LeastSquares => "least squares, scipy",
        }
    }

    fn program(self) -> Option<&'static str> {
        match self {
            Self::Attnlearn => None,
            Self::AdamJax => Some("adam_jax.py"),
            Self::AdamTorch => Some("adam_torch.py"),
            Self::LeastSquares => Some("least_squares.py"),
        }
    }
}

/// The command line.
#[derive(Args)]
pub struct RecoverArgs {
    /// A Python interpreter with the packages of `benches/recover/requirements.txt`.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Who learns.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "attnlearn,adam-jax,adam-torch,least-squares")]
    learners: Vec<Who>,
    /// Only families whose name contains one of these.
    #[arg(long, value_delimiter = ',', default_value = "")]
    only: Vec<String>,
    /// Dimensions of the tokens.
    #[arg(long, value_delimiter = ',', default_value = "8,32")]
    sizes: Vec<usize>,
    /// Teachers of each family.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Seconds that a peer has for a problem.
    #[arg(long, default_value_t = 60.0)]
    limit: f64,
    /// Where the table and the raw rows go.
    #[arg(long, default_value = "benches/runs/recover")]
    out: PathBuf,
    /// Where examples and layers are kept meanwhile.
    #[arg(long, default_value = "target/bench-recover")]
    scratch: PathBuf,
}

/// One learner on one problem.
struct Row {
    success: bool,
    seconds: f64,
    report: Value,
}

/// Runs all families and writes the table.
pub fn run(args: &RecoverArgs) -> Result<(), String> {
    for folder in [&args.out, &args.scratch] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut raw = fs::File::create(args.out.join("raw.jsonl")).map_err(|e| e.to_string())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut text = format!(
        "# Recovery of layers, family by family\n\nCommand: `cargo xtask {}`. attnlearn {}, {} threads. Successes of {} teachers, and the median of \
         the seconds of all runs. Raw rows: `raw.jsonl`.\n\n| family | d |",
        arguments.join(" "),
        env!("CARGO_PKG_VERSION"),
        rayon::current_num_threads(),
        args.seeds
    );
    for who in &args.learners {
        let _ = write!(text, " {} | s |", who.name());
    }
    let _ = writeln!(text, "\n|---|---|{}", "---|---|".repeat(args.learners.len()));
    for d in &args.sizes {
        for name in NAMES.iter().filter(|name| args.only.iter().any(|only| name.contains(only.as_str()))) {
            let problems: Vec<Problem> = (0..args.seeds)
                .map(|seed| problem(name, *d, seed))
                .collect::<attnlearn::Result<_>>()
                .map_err(|e| e.to_string())?;
            let _ = write!(text, "| {name} | {d} |");
            for who in &args.learners {
                let rows = match who.program() {
                    None => ours(&problems)?,
                    Some(program) => theirs(args, program, name, *d, &problems)?,
                };
                let found = rows.iter().filter(|row| row.success).count();
                let mut seconds: Vec<f64> = rows.iter().map(|row| row.seconds).collect();
                seconds.sort_by(f64::total_cmp);
                let median = seconds[seconds.len() / 2];
                let _ = write!(text, " {found}/{} | {median:.2} |", rows.len());
                eprintln!("{name}, d = {d}: {} {found}/{} in {median:.2} s", who.name(), rows.len());
                for (seed, row) in rows.iter().enumerate() {
                    let line = json!({ "family": name, "d": d, "seed": seed, "learner": who.name(), "success": row.success,
                                       "seconds": row.seconds, "report": row.report });
                    writeln!(raw, "{line}").map_err(|e| e.to_string())?;
                }
            }
            text.push('\n');
            fs::write(args.out.join("README.md"), &text).map_err(|e| e.to_string())?;
        }
    }
    println!("{text}");
    Ok(())
}

/// This project's learner.
fn ours(problems: &[Problem]) -> Result<Vec<Row>, String> {
    problems.iter().map(|problem| learn(problem).map_err(|e| e.to_string())).collect()
}

fn learn(problem: &Problem) -> attnlearn::Result<Row> {
    let begun = Instant::now();
    // The form is given: no examples need to be held out to choose it.
    let prepared = Prepared::new(&problem.examples, 0)?;
    let wanted = Wanted {
        heads: HeadCount::Given(problem.heads),
        rank: if problem.rank > 0 { Rank::Given(problem.rank) } else { Rank::Full },
        value_rank: if problem.value_rank > 0 { Rank::Given(problem.value_rank) } else { Rank::Full },
        biases: Choice::No,
        mask: problem.mask,
        ..Wanted::default()
    };
    let outcome = Learner::new(&prepared, wanted)?.finish(&|| false)?;
    let seconds = begun.elapsed().as_secs_f64();
    let chosen = &outcome.tries[outcome.chosen];
    let (theta, w) = worst(&problem.teacher, &outcome.layer);
    let report = json!({ "nmse": chosen.nmse, "held_out": chosen.held_out, "end": chosen.end, "theta": theta, "w": w });
    Ok(Row { success: success(problem, &outcome.layer)?, seconds, report })
}

/// The peers, all problems in one process so that compilation is paid once; what they say of their time leaves it out.
fn theirs(args: &RecoverArgs, program: &str, name: &str, d: usize, problems: &[Problem]) -> Result<Vec<Row>, String> {
    let stem = |seed: usize| format!("{}-{d}-{seed}", name.replace(' ', "-"));
    let mut command = Command::new(&args.python);
    command.arg(Path::new("benches/recover").join(program));
    for (seed, problem) in problems.iter().enumerate() {
        let path = args.scratch.join(format!("{}.npz", stem(seed)));
        write(&problem.examples, &path).map_err(|e| e.to_string())?;
        command.arg(path);
    }
    let out = args.scratch.join(program.trim_end_matches(".py"));
    let first = &problems[0];
    command.args(["--heads", &first.heads.to_string(), "--rank", &first.rank.to_string()]);
    command.args(["--value-rank", &first.value_rank.to_string(), "--limit", &args.limit.to_string()]);
    command.arg("--out").arg(&out);
    if first.mask == Mask::Causal {
        command.arg("--causal");
    }
    if first.noise > 0.0 {
        // They may stop once they explain all but the noise.
        command.args(["--floor", &(first.noise * first.noise).to_string()]);
    }
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output().map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{program} failed on {name}"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let reports: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if reports.len() != problems.len() {
        return Err(format!("{program} reported {} of {} problems", reports.len(), problems.len()));
    }
    problems
        .iter()
        .zip(reports)
        .enumerate()
        .map(|(seed, (problem, mut report))| {
            let layer = AttentionLayer::load(&out.join(format!("{}.safetensors", stem(seed)))).map_err(|e| e.to_string())?;
            let (theta, w) = worst(&problem.teacher, &layer);
            (report["theta"], report["w"]) = (json!(theta), json!(w));
            let seconds = report["seconds"].as_f64().unwrap_or(f64::NAN);
            Ok(Row { success: success(problem, &layer).map_err(|e| e.to_string())?, seconds, report })
        })
        .collect()
}

fn write(examples: &Batch<f64>, path: &Path) -> attnlearn::Result<()> {
    let shape = examples.shape;
    let columns = Columns { x: Some(Dtype::F64), y: Some(Dtype::F64) };
    let mut writer = ExampleWriter::create(path, shape, examples.len() as u64, columns)?;
    let mut block = Block::<f64>::new(shape);
    let most = Block::<f64>::CAPACITY;
    for (x, y) in examples.x.chunks(most * shape.k * shape.d).zip(examples.y.chunks(most * shape.k * shape.d_out)) {
        block.set_inputs(x);
        block.set_outputs(y);
        writer.append(&block)?;
    }
    writer.finish()
}

/// Largest relative errors of the heads of `teacher` in a layer, `Θ` and `W`; infinite where heads are missing or left over.
fn worst(teacher: &AttentionLayer, layer: &AttentionLayer) -> (f64, f64) {
    match teacher.distance(&layer.canonical(1e-7).layer) {
        Ok(distance) if distance.missing.is_empty() && distance.extra.is_empty() => (distance.worst_theta(), distance.worst_w()),
        _ => (f64::INFINITY, f64::INFINITY),
    }
}

fn success(problem: &Problem, layer: &AttentionLayer) -> attnlearn::Result<bool> {
    if let Some(fresh) = &problem.fresh {
        let outputs = layer.forward(fresh.shape.k, &fresh.x);
        let error: f64 = outputs.iter().zip(&fresh.y).map(|(f, y)| (f - y).powi(2)).sum();
        return Ok(error / fresh.variance()? < 1e-10);
    }
    let (theta, w) = worst(&problem.teacher, layer);
    if problem.noise <= 0.0 {
        return Ok(theta < 1e-6 && w < 1e-6);
    }
    let (best_theta, best_w) = worst(&problem.teacher, &estimate(problem)?);
    Ok(theta < 1.05 * best_theta && w < 1.05 * best_w)
}

/// The least-squares estimate that Gauss–Newton reaches from the teacher: the statistical limit.
fn estimate(problem: &Problem) -> attnlearn::Result<AttentionLayer> {
    let (teacher, shape) = (&problem.teacher, problem.examples.shape);
    let form = Form {
        d: shape.d,
        d_out: shape.d_out,
        heads: teacher.heads().len(),
        rank: None,
        value_rank: None,
        key_bias: false,
        bias: false,
        mask: problem.mask,
    };
    let mut values = vec![0.0; form.len()];
    let (a, o) = (form.range(Part::A).start, form.range(Part::O).start);
    for (h, head) in teacher.heads().iter().enumerate() {
        let theta = head.theta.to_dense();
        for i in 0..form.d {
            for j in 0..form.d {
                values[a + i * form.heads * form.d + h * form.d + j] = theta[(i, j)];
            }
            for e in 0..form.d_out {
                values[o + (h * form.d + i) * form.d_out + e] = head.w[(i, e)];
            }
        }
    }
    let mut student = Student { form, values };
    let settings = NewtonSettings { progress: 1e-9, ..NewtonSettings::default() };
    Newton::new(&settings).run(&mut student, &problem.examples, &settings, &|_| false)?;
    student.layer()
}
