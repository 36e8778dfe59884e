//! Layers of a real transformer, recovered from random inputs or from their own: the learner is told the number of heads, their rank and that there are
//! biases.
//!
//! A model's own activations do not vary in all directions, so not all of a head shows in them. What shows is
//!
//! ```text
//! E ⟨(x, 1) Θ̃, x' − E x'⟩²  =  tr(Θ̃ᵀ C Θ̃ C'),     Θ̃ = [Θ; cᵀ],  C = E (x, 1)ᵀ(x, 1),  C' = Cov x
//! ```
//!
//! the size of the logits up to what softmax ignores. A head's error is given in that norm and in the plain one, with the share of the head in directions
//! that never occur: the data leave that undetermined, whoever learns from them.

use attnlearn::data::{Block, InputDistribution, InputFile, Shape};
use attnlearn::descend::{Choice, HeadCount, Learner, Prepared, Rank, Stage, Wanted};
use attnlearn::engine::{Batch, Form};
use attnlearn::layer::{AttentionLayer, Head, LayerDistance};
use attnlearn::linalg::{Mat, MatRef, frobenius, symmetric, symmetric_eigen};
use attnlearn::teacher::TeacherStream;
use attnlearn::transformer::{ModelFile, Request};
use clap::Args;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The command line.
#[derive(Args)]
pub struct RealArgs {
    /// The model, as `attnlearn import` takes it.
    #[arg(long)]
    model: PathBuf,
    /// Which layers.
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,3,4,5")]
    layers: Vec<usize>,
    /// Sequences to learn from.
    #[arg(long, default_value_t = 16_000)]
    sequences: usize,
    /// Tokens of a sequence.
    #[arg(long, default_value_t = 8)]
    tokens: usize,
    /// Seconds after which a layer is given up, with the best so far.
    #[arg(long, default_value_t = 1800.0)]
    limit: f64,
    /// Inputs of the layer, `x` in an npz as `benches/recover/activations.py` writes it, instead of random ones; for one layer.
    #[arg(long)]
    activations: Option<PathBuf>,
    /// Seed of inputs and learner.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where the table and the raw rows go.
    #[arg(long, default_value = "benches/runs/real")]
    out: PathBuf,
}

/// What a layer took.
#[derive(Default)]
struct Work {
    steps: usize,
    newton: usize,
    descent_seconds: f64,
}

/// Runs all layers and writes the table.
pub fn run(args: &RealArgs) -> Result<(), String> {
    fs::create_dir_all(&args.out).map_err(|e| format!("{}: {e}", args.out.display()))?;
    let mut raw = fs::File::create(args.out.join("raw.jsonl")).map_err(|e| e.to_string())?;
    let mut text = format!(
        "# Layers of a real transformer\n\nCommand: `{}` (the path of the model is that of this run). attnlearn {}, {} threads. {}; the learner is told the number of heads, their rank, and that there are biases. Operations are multiplications \
         with an addition each in the large products of descent. Raw rows: `raw.jsonl`.\n\n| layer | sharpest head, ‖Θ‖_F | rows | heads within 10⁻⁶ | worst Θ | worst W | held-out NMSE | \
         steps of descent | operations | steps of Gauss–Newton | seconds | of descent |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        crate::command_line(),
        env!("CARGO_PKG_VERSION"),
        rayon::current_num_threads(),
        match &args.activations {
            None => format!("{} random Boolean sequences of {} tokens", args.sequences, args.tokens),
            Some(_) => "The model's own activations (`benches/recover/activations.py`)".into(),
        },
    );
    if args.activations.is_some() && args.layers.len() != 1 {
        return Err("--activations are those of one layer: give it with --layers".into());
    }
    for layer in &args.layers {
        let (row, line) = recover(args, *layer).map_err(|e| e.to_string())?;
        writeln!(raw, "{line}").map_err(|e| e.to_string())?;
        text.push_str(&row);
        fs::write(args.out.join("README.md"), &text).map_err(|e| e.to_string())?;
    }
    println!("{text}");
    Ok(())
}

fn recover(args: &RealArgs, index: usize) -> attnlearn::Result<(String, String)> {
    let model = ModelFile::open(&args.model)?;
    let (projections, _) = model.attention(&Request { layer: index, heads: None, prefix: None, causal: None })?;
    let (teacher, rank) = (projections.fold()?, projections.head_dim());
    let (examples, test) = match &args.activations {
        None => (
            random_inputs(&teacher, args.sequences, args.tokens, args.seed + 1)?,
            random_inputs(&teacher, TEST, args.tokens, args.seed + 2)?,
        ),
        Some(path) => own_inputs(&teacher, path, args.sequences)?,
    };
    let (n, k) = (examples.len(), examples.shape.k);
    let seen = Seen::new(&examples)?;
    let begun = Instant::now();
    let none = examples.select(&[]);
    let prepared = Prepared::new(examples, none)?;
    let wanted = Wanted {
        heads: HeadCount::Given(teacher.heads().len()),
        rank: Rank::Given(rank),
        value_rank: Rank::Given(rank),
        biases: Choice::Yes,
        scores: teacher.scores().clone(),
        ..Wanted::default()
    };
    let mut learner = Learner::new(&prepared, wanted)?;
    let form = learner.form();
    let mut work = Work::default();
    let truth = teacher.canonical(1e-9).layer;
    let mut told = Instant::now();
    let mut over = false;
    while !over && begun.elapsed().as_secs_f64() < args.limit {
        let before = step(&learner);
        let now = Instant::now();
        over = learner.advance(&|| false)?;
        match before {
            Some(before) => {
                work.steps +=
                    step(&learner).unwrap_or_else(|| learner.run.descent_steps().min(before + 20)).saturating_sub(before);
                work.descent_seconds += now.elapsed().as_secs_f64();
            }
            None => work.newton += 1,
        }
        if told.elapsed().as_secs_f64() > 20.0 {
            told = Instant::now();
            let (seconds, steps, newton) = (begun.elapsed().as_secs_f64(), work.steps, work.newton);
            let good = if newton > 0 { found(&truth.distance(&learner.best_so_far()?.0)?) } else { 0 };
            eprintln!(
                "layer {index}: {seconds:.0} s, {steps} steps of descent, {newton} of Gauss–Newton, NMSE {:.2e}, {good} heads",
                learner.run.nmse()
            );
        }
    }
    let layer = if over { learner.outcome()?.layer } else { learner.best_so_far()?.0 };
    let seconds = begun.elapsed().as_secs_f64();
    let error: f64 = layer.forward(k, &test.x).iter().zip(&test.y).map(|(f, y)| (f - y).powi(2)).sum();
    let nmse = error / test.variance()?;
    let distance = truth.distance(&layer)?;
    let good = found(&distance);
    let sharpest = teacher.heads().iter().map(|head| frobenius(head.theta.to_dense().as_ref())).fold(0.0, f64::max);
    let rows = n * k;
    let operations = work.steps as f64 * operations(&form, k);
    let mut row = String::new();
    let _ = writeln!(
        row,
        "| {index} | {sharpest:.1} | {rows} | {good} of {} | {:.1e} | {:.1e} | {nmse:.1e} | {} | {operations:.1e} | {} | {seconds:.0} | {:.0} |",
        teacher.heads().len(),
        distance.worst_theta(),
        distance.worst_w(),
        work.steps,
        work.newton,
        work.descent_seconds,
    );
    eprint!("{row}");
    let shown: Vec<(f64, f64, f64)> = teacher
        .heads()
        .iter()
        .map(|head| {
            let (visible, plain) = seen.error(head, &layer);
            (visible, plain, seen.unseen(head))
        })
        .collect();
    if args.activations.is_some() {
        row.push_str("\n| head | error of Θ̃ as the data see it | plain | share that never shows |\n|---|---|---|---|\n");
        for (h, (seen, plain, unseen)) in shown.iter().enumerate() {
            let _ = writeln!(row, "| {h} | {seen:.1e} | {plain:.1e} | {unseen:.1e} |");
        }
    }
    let line = json!({ "layer": index, "sharpest": sharpest, "rows": rows, "good": good, "distance": distance, "nmse": nmse,
                       "steps": work.steps, "newton": work.newton, "seconds": seconds, "descent_seconds": work.descent_seconds,
                       "operations": operations, "over": over, "seen_plain_unseen": shown });
    Ok((row, line.to_string()))
}

/// Heads within 10⁻⁶ in both matrices.
fn found(distance: &LayerDistance) -> usize {
    distance.heads.iter().filter(|head| head.theta < 1e-6 && head.w < 1e-6).count()
}

/// Multiply-adds of a step: the products with A, B, V and O, forward once and backward twice.
fn operations(form: &Form, tokens: usize) -> f64 {
    let pooled = form.heads * form.s();
    let rows = (10 * pooled).clamp(256, 4096) / tokens * tokens;
    (3 * rows * form.len()) as f64
}

fn step(learner: &Learner<'_>) -> Option<usize> {
    match &learner.run.state.chains.first()?.stage {
        Stage::Descend(descent) => Some(descent.0.step),
        _ => None,
    }
}

/// The moments by which the data see a head.
struct Seen {
    query: Mat<f64>,
    key: Mat<f64>,
    /// Projectors on the directions in which these are not 0.
    spans: [Mat<f64>; 2],
}

/// Directions with less than this share of the largest moment never show: rounding.
const NOTHING: f64 = 1e-13;

impl Seen {
    fn new(examples: &Batch<f64>) -> attnlearn::Result<Self> {
        let (d, rows) = (examples.shape.d, examples.len() * examples.shape.k);
        let x = MatRef::from_row_major_slice(&examples.x, rows, d);
        let mut moment = Mat::zeros(d, d);
        symmetric::product(moment.as_mut(), false, 1.0 / rows as f64, x.transpose(), x);
        let mean: Vec<f64> = (0..d).map(|j| (0..rows).map(|i| x[(i, j)]).sum::<f64>() / rows as f64).collect();
        let at = |i: usize| if i < d { mean[i] } else { 1.0 };
        let query = Mat::from_fn(d + 1, d + 1, |i, j| if i < d && j < d { moment[(i, j)] } else { at(i) * at(j) });
        let key = Mat::from_fn(d, d, |i, j| moment[(i, j)] - mean[i] * mean[j]);
        let spans = [span(&query)?, span(&key)?];
        Ok(Self { query, key, spans })
    }

    /// Share of a head in directions of queries or keys that never show.
    fn unseen(&self, head: &Head) -> f64 {
        let theta = stacked(head);
        let seen = &self.spans[0] * &theta * &self.spans[1];
        frobenius((&theta - seen).as_ref()) / frobenius(theta.as_ref())
    }

    fn size(&self, theta: &Mat<f64>) -> f64 {
        let moved = &self.query * theta * &self.key;
        let (rows, cols) = (theta.nrows(), theta.ncols());
        (0..cols).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|at| moved[at] * theta[at]).sum::<f64>().max(0.0).sqrt()
    }

    /// Relative error of the head of a layer that is nearest to one of the teacher's, seen and plain.
    fn error(&self, head: &Head, layer: &AttentionLayer) -> (f64, f64) {
        let theta = stacked(head);
        let errors = layer.heads().iter().map(|other| {
            let gap = &theta - stacked(other);
            (self.size(&gap) / self.size(&theta), frobenius(gap.as_ref()) / frobenius(theta.as_ref()))
        });
        errors.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, f64::INFINITY))
    }
}

/// The projector on the range of a moment.
fn span(moment: &Mat<f64>) -> attnlearn::Result<Mat<f64>> {
    let (values, u) = symmetric_eigen(moment.as_ref())
        .ok_or_else(|| attnlearn::Error::input("inputs", "their second moments are not finite", "scale them down"))?;
    let largest = values.iter().copied().fold(0.0, f64::max);
    let shown = Mat::from_fn(u.nrows(), u.ncols(), |i, j| if values[j] > NOTHING * largest { u[(i, j)] } else { 0.0 });
    Ok(&shown * shown.transpose())
}

/// `Θ̃`.
fn stacked(head: &Head) -> Mat<f64> {
    let theta = head.theta.to_dense();
    let d = theta.nrows();
    Mat::from_fn(d + 1, d, |i, j| if i < d { theta[(i, j)] } else { head.key_bias.as_ref().map_or(0.0, |c| c[j]) })
}

/// Inputs from a file, the first to learn from and the next to test on, with the layer's outputs.
fn own_inputs(teacher: &AttentionLayer, path: &Path, n: usize) -> attnlearn::Result<(Batch<f64>, Batch<f64>)> {
    let file = InputFile::open(path)?;
    let shape = Shape { k: file.k(), d: file.d(), d_out: teacher.d_out() };
    let (per, wanted) = (shape.k * shape.d, (n + TEST).min(file.n()));
    let mut block = Block::<f64>::new(shape);
    let mut all = Vec::with_capacity(wanted * per);
    for index in 0..wanted.div_ceil(Block::<f64>::CAPACITY) as u64 {
        file.fill(index, &mut block)?;
        let start = all.len();
        all.resize(start + block.len() * per, 0.0);
        block.copy_inputs(&mut all[start..]);
    }
    let split = wanted.saturating_sub(TEST) * per;
    let batch = |x: &[f64]| Batch { shape, y: teacher.forward(shape.k, x), x: x.to_vec() };
    Ok((batch(&all[..split]), batch(&all[split..wanted * per])))
}

/// Sequences that errors are measured on.
const TEST: usize = 500;

fn random_inputs(teacher: &AttentionLayer, n: usize, k: usize, seed: u64) -> attnlearn::Result<Batch<f64>> {
    let stream = TeacherStream::new(teacher, k, InputDistribution::Boolean, seed, None);
    Batch::read(&stream, 0..n.div_ceil(Block::<f64>::CAPACITY) as u64, n)
}
