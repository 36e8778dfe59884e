//! Layers as today's models have them: causal rotary heads in key groups, learned from random inputs. The learner is told the shape: heads, groups, rank and base.

use attnlearn::data::InputDistribution;
use attnlearn::descend::{Choice, HeadCount, Learner, Prepared, Rank, Stage, Wanted};
use attnlearn::engine::{Batch, Form, Student};
use attnlearn::scores::{Mask, Rotation, Scores};
use attnlearn::teacher::TeacherStream;
use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

/// The command line.
#[derive(Args)]
pub struct TodayArgs {
    /// Token dimension.
    #[arg(long, default_value_t = 128)]
    d: usize,
    /// Heads.
    #[arg(long, default_value_t = 8)]
    heads: usize,
    /// Key groups.
    #[arg(long, default_value_t = 2)]
    groups: usize,
    /// Dimension of a head.
    #[arg(long, default_value_t = 16)]
    rank: usize,
    /// Tokens of a sequence.
    #[arg(long, default_value_t = 16)]
    tokens: usize,
    /// Base of the frequencies.
    #[arg(long, default_value_t = 1e4)]
    base: f64,
    /// Sizes of the logits.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    norms: Vec<f64>,
    /// Teachers a size.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Seed of the first teacher.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Sequences to learn from.
    #[arg(long, default_value_t = 1000)]
    sequences: usize,
    /// Seconds after which a teacher is given up, with the best so far.
    #[arg(long, default_value_t = 600.0)]
    limit: f64,
    /// Where the table and the raw rows go.
    #[arg(long, default_value = "benches/runs/today")]
    out: PathBuf,
}

/// Runs all teachers and writes the table.
pub fn run(args: &TodayArgs) -> Result<(), String> {
    fs::create_dir_all(&args.out).map_err(|e| format!("{}: {e}", args.out.display()))?;
    let mut raw = fs::File::create(args.out.join("raw.jsonl")).map_err(|e| e.to_string())?;
    let mut text = format!(
        "# Causal rotary heads in groups\n\nCommand: `{}`. attnlearn {}, {} threads. Errors are the worst of all heads, of Θ(Δ) over the distances within a sequence. Raw rows: `raw.jsonl`.\n\n\
         | logits | seed | descent | relaxed | steps | products | worst Θ(Δ) | worst W | NMSE | seconds | of descent |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        crate::command_line(),
        env!("CARGO_PKG_VERSION"),
        rayon::current_num_threads(),
    );
    for norm in &args.norms {
        for seed in args.first_seed..args.first_seed + args.seeds {
            let (row, line) = recover(args, *norm, seed).map_err(|e| e.to_string())?;
            eprint!("{row}");
            writeln!(raw, "{line}").map_err(|e| e.to_string())?;
            text.push_str(&row);
            fs::write(args.out.join("README.md"), &text).map_err(|e| e.to_string())?;
        }
    }
    println!("{text}");
    Ok(())
}

fn recover(args: &TodayArgs, norm: f64, seed: u64) -> attnlearn::Result<(String, String)> {
    let form = Form {
        d: args.d,
        d_out: args.d,
        heads: args.heads,
        rank: Some(args.rank),
        value_rank: Some(args.rank),
        groups: Some(args.groups),
        key_bias: false,
        relative: None,
        bias: false,
        scores: Scores { rotation: Some(Rotation::of_base(args.base, args.rank)), ..Scores::of(Mask::Causal) },
    };
    let teacher = Student::<f64>::random(form.clone(), norm, &mut ChaCha8Rng::seed_from_u64(1000 + seed))?.layer()?;
    let source = TeacherStream::new(&teacher, args.tokens, InputDistribution::Gaussian, seed + 1, None);
    let blocks = args.sequences.div_ceil(512) as u64;
    let examples = Batch::read(&source, 0..blocks, args.sequences)?;
    let begun = Instant::now();
    let none = examples.select(&[]);
    let prepared = Prepared::new(examples, none)?;
    let wanted = Wanted {
        heads: HeadCount::Given(args.heads),
        rank: Rank::Given(args.rank),
        value_rank: Rank::Given(args.rank),
        biases: Choice::No,
        groups: Some(args.groups),
        scores: form.scores.clone(),
        ..Wanted::default()
    };
    let mut learner = Learner::new(&prepared, wanted)?;
    let (mut descent, mut relaxed, mut descent_seconds, mut over) = (f64::NAN, f64::NAN, 0.0, false);
    let (mut steps, mut products) = (0, 0);
    while !over && begun.elapsed().as_secs_f64() < args.limit {
        over = learner.advance(&|| false)?;
        match learner.run.state.chains.first().map(|chain| &chain.stage) {
            Some(Stage::Descend(descending)) => {
                (descent, descent_seconds) = (descending.0.nmse, begun.elapsed().as_secs_f64());
            }
            Some(Stage::Relax(relaxing)) => {
                (steps, products) = (relaxing.0.history.len().saturating_sub(1), relaxing.0.products);
                relaxed = relaxing.0.history.last().copied().unwrap_or(relaxed);
            }
            _ => {}
        }
    }
    let layer = if over { learner.outcome()?.layer } else { learner.best_so_far()?.0 };
    let seconds = begun.elapsed().as_secs_f64();
    let fresh = TeacherStream::new(&teacher, args.tokens, InputDistribution::Gaussian, seed + 7777, None);
    let test = Batch::<f64>::read(&fresh, 0..1, 200)?;
    let error: f64 = layer.forward(args.tokens, &test.x).iter().zip(&test.y).map(|(f, y)| (f - y).powi(2)).sum();
    let nmse = error / test.variance()?;
    let distance = teacher.distance_within(&layer, args.tokens)?;
    let mut row = String::new();
    let _ = writeln!(
        row,
        "| {norm} | {seed} | {descent:.1e} | {relaxed:.1e} | {steps} | {products} | {:.1e} | {:.1e} | {nmse:.1e} | {seconds:.0} | {descent_seconds:.0} |",
        distance.worst_theta(),
        distance.worst_w(),
    );
    let line = json!({ "norm": norm, "seed": seed, "descent": descent, "relaxed": relaxed, "steps": steps, "products": products, "distance": distance,
                       "nmse": nmse, "seconds": seconds, "descent_seconds": descent_seconds, "over": over });
    Ok((row, line.to_string()))
}
