//! The six-phase learner on random teachers.

use super::rate::multiply_add_rate;
use attnlearn::data::InputDistribution;
use attnlearn::layer::AttentionLayer;
use attnlearn::sculpt::{Heads, Settings, Stage, Unwatched, learn};
use attnlearn::teacher::{TeacherSpec, TeacherStream};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

/// A problem and the limits it is set.
pub struct Problem {
    d: usize,
    k: usize,
    /// Heads.
    pub m: usize,
    norm: f64,
    inputs: InputDistribution,
    /// Limit on examples.
    pub most_examples: u64,
    seconds: f64,
}

/// All problems, in the order of the table.
pub fn problems() -> Vec<Problem> {
    let boolean = |(d, k, m, norm): (usize, usize, usize, f64)| {
        let (most_examples, seconds) = match m {
            1 => (5_000_000, 5.0),
            2 => (5_000_000, 60.0),
            3 => (100_000_000, 600.0),
            _ => (1_000_000_000, 1800.0),
        };
        Problem { d, k, m, norm, inputs: InputDistribution::Boolean, most_examples, seconds }
    };
    let mut all: Vec<Problem> = [
        (6, 3, 1, 4.0),
        (12, 4, 1, 4.0),
        (8, 4, 2, 4.0),
        (8, 4, 2, 8.0),
        (6, 3, 2, 6.0),
        (10, 4, 2, 6.0),
        (12, 6, 2, 6.0),
        (12, 3, 3, 8.0),
        (10, 3, 3, 8.0),
        (12, 4, 3, 8.0),
        (8, 3, 3, 8.0),
        (6, 3, 3, 6.0),
        (8, 4, 3, 8.0),
        (16, 3, 4, 8.0),
    ]
    .map(boolean)
    .into();
    for inputs in [InputDistribution::Gaussian, InputDistribution::Sphere] {
        all.insert(all.len() - 1, Problem { inputs, ..boolean((8, 4, 2, 6.0)) });
    }
    all
}

impl Problem {
    /// `d,k,m,‖Θ‖_F` and the inputs if not Boolean.
    pub fn name(&self) -> String {
        let inputs = match self.inputs {
            InputDistribution::Boolean => "",
            InputDistribution::Gaussian => " Gaussian",
            InputDistribution::Sphere => " sphere",
        };
        format!("{},{},{},{}{inputs}", self.d, self.k, self.m, self.norm)
    }
}

/// One teacher.
#[derive(Serialize)]
struct Row {
    problem: String,
    /// Seed of the teacher.
    teacher: u64,
    outcome: String,
    separated: bool,
    before_nmse: Option<f64>,
    before_theta: Option<f64>,
    after_nmse: Option<f64>,
    after_theta: Option<f64>,
    examples: u64,
    seconds: f64,
}

/// Runs the problems, one row per teacher, and writes the table.
pub fn run(problems: &[Problem], first_teacher: u64, teachers: u64, four_head_teachers: u64, out: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", out.display());
    fs::create_dir_all(out).map_err(fail)?;
    let mut raw = fs::File::create(out.join("raw.jsonl")).map_err(fail)?;
    let mut table = String::new();
    let _ = writeln!(table, "# The six-phase learner on random teachers\n");
    let _ = writeln!(table, "Command: `{}`.", crate::command_line());
    let _ = writeln!(
        table,
        "attnlearn {}, {} threads, {:.0} G multiply-adds/s (f32, 16×16 in cache). Raw rows: `raw.jsonl`.\n",
        env!("CARGO_PKG_VERSION"),
        rayon::current_num_threads(),
        multiply_add_rate()
    );
    let _ = writeln!(
        table,
        "Before: held-out NMSE ≤ 10⁻² and every Θ_i within 15 %. After: every Θ_i within 10⁻⁸. Both within the limits on examples and time.\n\
         Of which separated: teachers whose answer before the polish rests on rows certified with separated projections.\n"
    );
    let _ = writeln!(
        table,
        "| d, k, m, ‖Θ‖_F | before polish | of which separated | after polish | Θ error before, median (worst) | after, worst | examples, median | seconds, median (worst) | limits |"
    );
    let _ = writeln!(table, "|---|---|---|---|---|---|---|---|---|");
    for problem in problems {
        let count = if problem.m > 3 { four_head_teachers.min(teachers) } else { teachers };
        let mut rows = Vec::new();
        for teacher in first_teacher..first_teacher + count {
            let row = one(problem, teacher)?;
            let line = serde_json::to_string(&row).map_err(|e| e.to_string())?;
            writeln!(raw, "{line}").map_err(fail)?;
            eprintln!("{line}");
            rows.push(row);
        }
        if !rows.is_empty() {
            let line = summary(problem, &rows);
            println!("{line}");
            let _ = writeln!(table, "{line}");
            fs::write(out.join("table.md"), &table).map_err(fail)?;
        }
    }
    Ok(())
}

fn one(problem: &Problem, number: u64) -> Result<Row, String> {
    let text = |e: attnlearn::Error| e.to_string();
    let recipe = TeacherSpec::dense(problem.d, problem.m, problem.norm);
    let teacher = recipe.draw(&mut ChaCha8Rng::seed_from_u64(number)).map_err(text)?;
    let source = TeacherStream::new(&teacher, problem.k, problem.inputs, 1000 + number, None);
    let settings = Settings { heads: Heads::Given(problem.m), most_examples: problem.most_examples, ..Default::default() };
    let settings = settings.check(&source).map_err(text)?;
    let start = Instant::now();
    let learned = learn(&source, &settings, &Unwatched).map_err(text)?;
    let seconds = start.elapsed().as_secs_f64();
    let worst = |stage: &Option<Stage>| stage.as_ref().and_then(|stage| worst_theta(&teacher, &stage.layer));
    Ok(Row {
        problem: problem.name(),
        teacher: number,
        outcome: learned.outcome.to_string(),
        separated: learned.separated,
        before_nmse: learned.before_polish.as_ref().map(|s| s.nmse),
        before_theta: worst(&learned.before_polish),
        after_nmse: learned.after_polish.as_ref().map(|s| s.nmse),
        after_theta: worst(&learned.after_polish),
        examples: learned.examples,
        seconds,
    })
}

/// Largest relative error of a head's attention matrix; `None` if heads are missing.
fn worst_theta(teacher: &AttentionLayer, found: &AttentionLayer) -> Option<f64> {
    let distance = teacher.distance(found).ok()?;
    distance.missing.is_empty().then(|| distance.worst_theta())
}

fn summary(problem: &Problem, rows: &[Row]) -> String {
    let within = |row: &&Row| row.seconds <= problem.seconds && row.examples <= problem.most_examples;
    let below = |value: Option<f64>, limit: f64| value.is_some_and(|v| v <= limit);
    let good: Vec<&Row> =
        rows.iter().filter(within).filter(|r| below(r.before_nmse, 1e-2) && below(r.before_theta, 0.15)).collect();
    let after = rows.iter().filter(within).filter(|r| below(r.after_theta, 1e-8)).count();
    let sorted = |value: fn(&Row) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2], values[values.len() - 1])
    };
    let before_theta = sorted(|r| r.before_theta.unwrap_or(f64::INFINITY));
    let after_theta = sorted(|r| r.after_theta.unwrap_or(f64::INFINITY));
    let examples = sorted(|r| r.examples as f64);
    let seconds = sorted(|r| r.seconds);
    let n = rows.len();
    format!(
        "| {} | {}/{n} | {} | {after}/{n} | {:.1} % ({:.1} %) | {:.0e} | {:.1e} | {:.1} ({:.1}) | {:.0} s, {:.0e} |",
        problem.name(),
        good.len(),
        good.iter().filter(|r| r.separated).count(),
        100.0 * before_theta.0,
        100.0 * before_theta.1,
        after_theta.1,
        examples.0,
        seconds.0,
        seconds.1,
        problem.seconds,
        problem.most_examples as f64,
    )
}
