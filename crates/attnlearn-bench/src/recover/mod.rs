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

use attnlearn::data::{Block, Columns, ExampleWriter};
use attnlearn::descend::{Choice, HeadCount, Learner, Prepared, Rank, Wanted};
use attnlearn::engine::Batch;
use attnlearn::files::Dtype;
use attnlearn::layer::{AttentionLayer, Mask};
use attnlearn::scores::Scores;
use attnlearn_lab::recovery::{judge, statistical_limit, unexplained};
use clap::{Args, ValueEnum};
use family::{NAMES, Problem, problem};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// All of them, in the order of the table.
const LEARNERS: [Who; 4] = [Who::Attnlearn, Who::AdamJax, Who::AdamTorch, Who::LeastSquares];

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
    /// Seed of the first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seconds that a learner has for a problem.
    #[arg(long, default_value_t = 60.0)]
    limit: f64,
    /// Raw rows of earlier runs: nothing is learned, and they go into one table.
    #[arg(long, value_delimiter = ',')]
    from: Vec<PathBuf>,
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

/// Runs all families, or takes the rows of earlier runs, and writes the table.
pub fn run(args: &RecoverArgs) -> Result<(), String> {
    for folder in [&args.out, &args.scratch] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut rows = Vec::new();
    for path in &args.from {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let parsed: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        rows.extend(parsed.map_err(|e| format!("{}: {e}", path.display()))?);
    }
    let mut raw = fs::File::create(args.out.join("raw.jsonl")).map_err(|e| e.to_string())?;
    let mut keep = |row: &Value| writeln!(raw, "{row}").map_err(|e| e.to_string());
    rows.iter().try_for_each(&mut keep)?;
    let families = NAMES.iter().filter(|name| args.only.iter().any(|only| name.contains(only.as_str())));
    let families: Vec<&str> = if args.from.is_empty() { families.copied().collect() } else { Vec::new() };
    for (d, name) in args.sizes.iter().flat_map(|d| families.iter().map(move |name| (*d, *name))) {
        let problems: Result<Vec<Problem>, _> =
            (args.first..args.first + args.seeds).map(|seed| problem(name, d, seed)).collect();
        let problems = problems.map_err(|e| e.to_string())?;
        for who in &args.learners {
            let found = match who.program() {
                None => ours(args, &problems)?,
                Some(program) => theirs(args, program, name, d, &problems)?,
            };
            for (seed, row) in (args.first..).zip(&found) {
                let row = json!({ "family": name, "d": d, "seed": seed, "learner": who.name(), "success": row.success,
                                  "seconds": row.seconds, "limit": args.limit, "threads": rayon::current_num_threads(),
                                  "report": row.report });
                keep(&row)?;
                rows.push(row);
            }
            eprintln!(
                "{name}, d = {d}: {} {}",
                who.name(),
                cell(&found.iter().map(|r| (r.success, r.seconds)).collect::<Vec<_>>())
            );
        }
        fs::write(args.out.join("README.md"), table(&rows)).map_err(|e| e.to_string())?;
    }
    fs::write(args.out.join("README.md"), table(&rows)).map_err(|e| e.to_string())?;
    println!("{}", table(&rows));
    Ok(())
}

/// Successes, and the median of the seconds.
fn cell(runs: &[(bool, f64)]) -> String {
    let mut seconds: Vec<f64> = runs.iter().map(|(_, seconds)| *seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let found = runs.iter().filter(|(success, _)| *success).count();
    seconds.get(seconds.len() / 2).map_or("–".into(), |median| format!("{found}/{}, {median:.2} s", runs.len()))
}

/// The table of raw rows: a line for every family and size, a column for every learner.
fn table(rows: &[Value]) -> String {
    let learners: Vec<&str> =
        LEARNERS.iter().map(|who| who.name()).filter(|who| rows.iter().any(|r| r["learner"] == *who)).collect();
    let all = |key: &str| {
        let mut values: Vec<u64> = rows.iter().filter_map(|row| row[key].as_f64()).map(|v| v as u64).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let mut text = format!(
        "# Recovery of layers, family by family\n\nBy `cargo xtask bench recover`, attnlearn {}, {} threads for every learner. Successes of so many \
         teachers, and the median of the seconds of all runs, compilation not counted. A learner that has found nothing at its limit has failed. \
         Raw rows: `raw.jsonl`.\n\n| family | d | limit, s | {} |\n|---|---|---|{}\n",
        env!("CARGO_PKG_VERSION"),
        all("threads").iter().map(u64::to_string).collect::<Vec<_>>().join(" or "),
        learners.join(" | "),
        "---|".repeat(learners.len())
    );
    for (d, name) in all("d").into_iter().flat_map(|d| NAMES.iter().map(move |name| (d, name))) {
        let of: Vec<&Value> = rows.iter().filter(|row| row["family"] == *name && row["d"] == d).collect();
        let Some(first) = of.first() else { continue };
        let _ = write!(text, "| {name} | {d} | {} |", first["limit"]);
        for who in &learners {
            let runs = of.iter().filter(|row| row["learner"] == *who);
            let runs: Vec<(bool, f64)> =
                runs.map(|row| (row["success"] == true, row["seconds"].as_f64().unwrap_or(f64::INFINITY))).collect();
            let _ = write!(text, " {} |", cell(&runs));
        }
        text.push('\n');
    }
    text
}

/// This project's learner.
fn ours(args: &RecoverArgs, problems: &[Problem]) -> Result<Vec<Row>, String> {
    problems.iter().map(|problem| learn(problem, args.limit).map_err(|e| e.to_string())).collect()
}

fn learn(problem: &Problem, limit: f64) -> attnlearn::Result<Row> {
    let begun = Instant::now();
    // The form is given: no examples need to be held out to choose it.
    let prepared = Prepared::new(problem.examples.clone(), problem.examples.select(&[]))?;
    let wanted = Wanted {
        heads: HeadCount::Given(problem.heads),
        rank: if problem.rank > 0 { Rank::Given(problem.rank) } else { Rank::Full },
        value_rank: if problem.value_rank > 0 { Rank::Given(problem.value_rank) } else { Rank::Full },
        biases: Choice::No,
        scores: Scores::of(problem.mask),
        ..Wanted::default()
    };
    let mut learner = Learner::new(&prepared, wanted)?;
    let over = || begun.elapsed().as_secs_f64() > limit;
    let end = loop {
        match learner.advance(&over) {
            Ok(false) => {}
            Ok(true) => break learner.tries.last().map(|tried| tried.end),
            Err(attnlearn::Error::Interrupted) => break None,
            Err(other) => return Err(other),
        }
    };
    let (layer, nmse) = learner.best_so_far()?;
    let seconds = begun.elapsed().as_secs_f64();
    let judged = judge(&problem.teacher, &layer);
    let report = json!({ "nmse": nmse, "end": end, "theta": judged.theta_error, "w": judged.w_error });
    Ok(Row { success: success(problem, &layer)?, seconds, report })
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
            let judged = judge(&problem.teacher, &layer);
            (report["theta"], report["w"]) = (json!(judged.theta_error), json!(judged.w_error));
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

fn success(problem: &Problem, layer: &AttentionLayer) -> attnlearn::Result<bool> {
    if let Some(fresh) = &problem.fresh {
        return Ok(unexplained(layer, fresh)? < 1e-10);
    }
    let judged = judge(&problem.teacher, layer);
    if problem.noise <= 0.0 {
        return Ok(judged.recovered());
    }
    let best = judge(&problem.teacher, &statistical_limit(&problem.teacher, &problem.examples)?);
    Ok(judged.theta_error < 1.05 * best.theta_error && judged.w_error < 1.05 * best.w_error)
}
