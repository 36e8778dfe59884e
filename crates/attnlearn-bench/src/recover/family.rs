//! The families of teachers that learners are judged on, and examples of them.
//!
//! Sizes are (d, k, m) = (8, 4, 3) and (32, 8, 3), and k = 2 for parities. The *counting bound* is the number of unknowns over that of outputs of a sequence; every family has
//! four times as many sequences unless its name says otherwise; noise at least 800, parities 8d times, heads like those of transformers twenty times: what counts
//! there is time.

use attnlearn::Result;
use attnlearn::data::{Block, ExampleSource, InputDistribution};
use attnlearn::engine::Batch;
use attnlearn::layer::{AttentionLayer, Head, Mask};
use attnlearn::linalg::Mat;
use attnlearn::teacher::{Family as Shape, TeacherSpec, TeacherStream, parity_teacher};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// All families, easiest questions first.
pub const NAMES: [&str; 22] = [
    "random 4x",
    "random 2x",
    "random 1.5x",
    "random 1.2x",
    "gaussian",
    "sphere",
    "correlated 2",
    "correlated 4",
    "sharp",
    "low rank",
    "diagonal",
    "block",
    "nearly equal",
    "repeated",
    "dead",
    "causal",
    "rectangular",
    "too many heads",
    "noise",
    "parity of 3",
    "parity of 5",
    "transformer",
];

/// A teacher, examples of it, and what a learner is told.
pub struct Problem {
    /// In canonical form.
    pub teacher: AttentionLayer,
    pub examples: Batch<f64>,
    /// More of them, where the outputs are all that can be judged.
    pub fresh: Option<Batch<f64>>,
    /// Heads of the student.
    pub heads: usize,
    /// Rank of attention matrices; 0 for full.
    pub rank: usize,
    /// That of projections.
    pub value_rank: usize,
    pub mask: Mask,
    /// Standard deviation of the noise over that of the outputs.
    pub noise: f64,
}

/// A standard normal number.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    // Box and Muller.
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Heads as transformers have them: d/8 of them (at least 2) of rank r = 8, 16 with d = 32, 64, in both matrices.
fn transformer_heads(d: usize, rng: &mut ChaCha8Rng) -> Result<(AttentionLayer, usize, usize)> {
    let (m, r) = ((d / 8).max(2), (d / 4).max(2));
    let mut factor = |rows: usize, cols: usize, size: f64| Mat::from_fn(rows, cols, |_, _| size * normal(rng));
    // ‖A Bᵀ‖_F about 3.
    let size = (3.0 / (d as f64 * (r as f64).sqrt())).sqrt();
    let heads = (0..m)
        .map(|_| {
            let (a, b) = (factor(d, r, size), factor(d, r, size));
            Head::factored(a, b, factor(d, r, (d as f64).powf(-0.5)) * factor(r, d, ((r * m) as f64).powf(-0.5)))
        })
        .collect();
    Ok((AttentionLayer::new(heads, None, Mask::None)?, m, r))
}

fn transformer(d: usize, seed: u64) -> Result<Problem> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (teacher, heads, rank) = transformer_heads(d, &mut rng)?;
    let k = 8;
    let unknowns = heads * 2 * rank * (2 * d - rank);
    let n = (20 * unknowns).div_ceil(k * d);
    let stream = TeacherStream::new(&teacher, k, InputDistribution::Boolean, seed + 1000, None);
    let examples = Batch::read(&stream, 0..n.div_ceil(Block::<f64>::CAPACITY) as u64, n)?;
    let teacher = teacher.canonical(1e-9).layer;
    Ok(Problem { teacher, examples, fresh: None, heads, rank, value_rank: rank, mask: Mask::None, noise: 0.0 })
}

/// The problem of a family, a dimension and a seed.
pub fn problem(name: &str, d: usize, seed: u64) -> Result<Problem> {
    if name == "transformer" {
        return transformer(d, seed);
    }
    let parity = match name {
        "parity of 3" => Some(2),
        "parity of 5" => Some(4),
        _ => None,
    };
    let (k, m) = if let Some(m) = parity {
        (2, m)
    } else if d <= 8 {
        (4, 3)
    } else {
        (8, 3)
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rank = if name == "low rank" { d / 4 } else { 0 };
    let spec = TeacherSpec {
        norm: if name == "sharp" { 16.0 } else { 2.0 },
        family: match name {
            "diagonal" => Shape::Diagonal,
            "block" => Shape::Block { size: d / 4 },
            "low rank" => Shape::LowRank { rank },
            _ => Shape::Dense,
        },
        cosine: (name == "nearly equal").then_some(0.95),
        d_out: if name == "rectangular" { d / 2 } else { d },
        mask: if name == "causal" { Mask::Causal } else { Mask::None },
        ..TeacherSpec::dense(d, m, 2.0)
    };
    let mut teacher = spec.draw(&mut rng)?;
    if parity.is_some() {
        teacher = parity_teacher(d, m)?;
    }
    if name == "repeated" || name == "dead" {
        let mut heads: Vec<Head> = teacher.heads().to_vec();
        if name == "repeated" {
            heads[2].theta = heads[1].theta.clone();
        } else {
            heads[2].w.fill(0.0);
        }
        teacher = AttentionLayer::new(heads, None, spec.mask)?;
    }
    let heads = if name == "too many heads" { 2 * m } else { m };
    let theta = if rank > 0 { rank * (2 * d - rank) } else { d * d };
    let unknowns = heads * (theta + d * spec.d_out);
    let share = match name {
        "random 2x" => 2.0,
        "random 1.5x" => 1.5,
        "random 1.2x" => 1.2,
        // One output says something, and only where the two tokens differ in the first bit.
        _ if parity.is_some() => 8.0 * d as f64,
        _ => 4.0,
    };
    let n =
        if name == "noise" { 800.max(unknowns / k) } else { (share * unknowns as f64 / (k * spec.d_out) as f64).ceil() as usize };
    let inputs = match name {
        "gaussian" | "correlated 2" | "correlated 4" => InputDistribution::Gaussian,
        "sphere" => InputDistribution::Sphere,
        _ => InputDistribution::Boolean,
    };
    let stream = TeacherStream::new(&teacher, k, inputs, seed + 1000, None);
    let blocks = n.div_ceil(Block::<f64>::CAPACITY) as u64;
    let mut examples = Batch::read(&stream, 0..blocks, n)?;
    let power = match name {
        "correlated 2" => 1,
        "correlated 4" => 2,
        _ => 0,
    };
    if power > 0 {
        // Covariance with the spectrum j^−2 or j^−4, in the coordinates' own directions: no learner is told which.
        for token in examples.x.chunks_exact_mut(d) {
            token.iter_mut().enumerate().for_each(|(j, x)| *x /= ((j + 1) as f64).powi(power));
        }
        examples.y = teacher.forward(k, &examples.x);
    }
    let noise = if name == "noise" { 0.1 } else { 0.0 };
    if noise > 0.0 {
        let size = (examples.variance()? / examples.y.len() as f64).sqrt();
        examples.y.iter_mut().for_each(|y| *y += noise * size * normal(&mut rng));
    }
    debug_assert_eq!(stream.shape(), examples.shape);
    let fresh = TeacherStream::new(&teacher, k, inputs, seed + 2000, None);
    let fresh = if parity.is_some() { Some(Batch::read(&fresh, 0..8, 1000)?) } else { None };
    Ok(Problem { teacher: teacher.canonical(1e-9).layer, examples, fresh, heads, rank, value_rank: 0, mask: spec.mask, noise })
}
