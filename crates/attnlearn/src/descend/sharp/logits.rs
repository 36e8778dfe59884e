//! Attention matrices from attention: logits are linear in them.
//!
//! `free` finds attention up to mixtures of heads. A sharp head attends to some tokens not at all, where a mixture with others would: the right mixture
//! `π = Σ_j g_j p_j`, `Σ_j g_j = 1`, of a head has the most zeros,
//!
//! ```text
//! min Σ π² / (π² + ε²)     from     min Σ ((π − p°) / (p° + ε))²
//! ```
//!
//! with the attention `p°` of a student that is roughly right, and ε from 10⁻³ down to rounding: least squares with the weights of the last ones. What is
//! left of the zeros is the uncertainty of `π`, and above it, for the token `b°` that a query attends to most,
//!
//! ```text
//! ln π_b − ln π_b° = x_a Θ (x_b − x_b°)ᵀ + ⟨c, x_b − x_b°⟩
//! ```
//!
//! so Θ (and the key bias c) is linear regression, with weights `π` up to a largest one. Logits show down to `π` of rounding, e^−30, where outputs show
//! an error of Θ by its product with π alone.

use crate::descend::sharp::free_attention::FreeAttention;
use crate::engine::batch::Batch;
use crate::engine::pass::Pass;
use crate::engine::student::{Form, Part, Student};
use crate::linalg::Mat;
use crate::linalg::cholesky::{Halt, cholesky, solve};
use crate::linalg::solve_spd;
use crate::linalg::symmetric::{multiply, update_lower};
use crate::{Error, Result};
use faer::MatRef;

/// The first ε, the least, and what it falls by from one to the next.
const UNCERTAINTY: (f64, f64, f64) = (1e-3, 1e-15, 0.1);

/// Solutions for each.
const REPEATS: usize = 2;

/// Share of all attention that is none in a head that is sharp.
const ZEROS: f64 = 0.1;

/// What is above so many ε is seen.
const SEEN: f64 = 3.0;

/// Attention above this, and above so many ε, has the same weight: weights from 1 to rounding would leave nothing of the least.
const LARGE: (f64, f64) = (1e-6, 100.0);

/// Towards the student, as a share of the mean of the diagonal.
const RIDGE: f64 = 1e-12;

/// Regressions: the ridge leaves less from one to the next.
const REGRESSIONS: usize = 4;

/// Uncertainty above which heads were not taken apart.
const APART: f64 = 1e-6;

/// Logits in one product.
const CHUNK: usize = 2048;

/// A logit of a query at a token, relative to that at another.
struct Logit {
    row: usize,
    token: usize,
    most: usize,
    value: f64,
    weight: f64,
}

/// A student with this attention; `None` where heads cannot be taken apart.
pub(crate) fn settle(
    free: &FreeAttention,
    examples: &Batch<f64>,
    student: &Student<f64>,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Student<f64>>> {
    let k = examples.shape.k;
    let mut student = student.clone();
    for (head, roughly) in attention_of(&student, examples).iter().enumerate() {
        let (pure, uncertain) = sparsest(&free.attention, head, roughly);
        if uncertain > APART || !pure.iter().all(|p| p.is_finite()) {
            return Ok(None);
        }
        let logits = logits(&pure, k, uncertain);
        for _ in 0..REGRESSIONS {
            regress(&logits, examples, &mut student, head, stop)?;
        }
    }
    Ok(Some(student))
}

/// Attention of a student, `[head][row][key]`.
fn attention_of(student: &Student<f64>, examples: &Batch<f64>) -> Vec<Vec<f64>> {
    let (form, k) = (&student.form, examples.shape.k);
    let mut pass = Pass::default();
    pass.pool(form, &student.values, &examples.x, k);
    let of_head = |head: usize| (0..examples.len() * k).flat_map(|row| pass.attention(form, row, head)).copied().collect();
    (0..form.heads).map(of_head).collect()
}

/// The mixture with the most zeros near `p°`, and what it has for zeros.
fn sparsest(attention: &[Vec<f64>], head: usize, roughly: &[f64]) -> (Vec<f64>, f64) {
    let (mut epsilon, least, share) = UNCERTAINTY;
    let mut pure = mixture(attention, head, |at| (roughly[at], (roughly[at] + epsilon).powi(-2)));
    while epsilon > least {
        for _ in 0..REPEATS {
            pure = mixture(attention, head, |at| (0.0, 1.0 / (pure[at].powi(2) + epsilon.powi(2))));
        }
        epsilon *= share;
    }
    let mut sizes: Vec<f64> = pure.iter().map(|p| p.abs()).collect();
    let (_, left, _) = sizes.select_nth_unstable_by((ZEROS * pure.len() as f64) as usize, f64::total_cmp);
    let uncertain = left.max(least);
    (pure, uncertain)
}

/// The mixture that is nearest to a target, which has a value and a weight everywhere.
fn mixture(attention: &[Vec<f64>], head: usize, target: impl Fn(usize) -> (f64, f64)) -> Vec<f64> {
    let own = &attention[head];
    let others: Vec<&Vec<f64>> = attention.iter().enumerate().filter(|(h, _)| *h != head).map(|(_, p)| p).collect();
    let n = others.len();
    if n == 0 {
        return own.clone();
    }
    let (mut gram, mut right) = (Mat::<f64>::zeros(n, n), Mat::<f64>::zeros(n, 1));
    for at in 0..own.len() {
        let (value, weight) = target(at);
        for i in 0..n {
            let of_i = weight * (others[i][at] - own[at]);
            right[(i, 0)] += of_i * (value - own[at]);
            (0..n).for_each(|j| gram[(i, j)] += of_i * (others[j][at] - own[at]));
        }
    }
    let share = solve_spd(gram.as_ref(), right.as_ref());
    let mixed = |at: usize| own[at] + (0..n).map(|j| share[(j, 0)] * (others[j][at] - own[at])).sum::<f64>();
    (0..own.len()).map(mixed).collect()
}

/// Those that are seen.
fn logits(attention: &[f64], k: usize, epsilon: f64) -> Vec<Logit> {
    let large = LARGE.0.max(LARGE.1 * epsilon);
    let of_row = |(row, p): (usize, &[f64])| {
        let most = (0..k).fold(0, |most, b| if p[b] > p[most] { b } else { most });
        let seen = (0..k).filter(|b| *b != most && p[*b] > SEEN * epsilon);
        let logit = |b: usize| Logit { row, token: b, most, value: (p[b] / p[most]).ln(), weight: (p[b] / large).min(1.0) };
        seen.map(logit).collect::<Vec<_>>()
    };
    attention.chunks_exact(k).enumerate().flat_map(of_row).collect()
}

/// Moves the attention matrix of a head to where its logits are these.
fn regress(
    logits: &[Logit],
    examples: &Batch<f64>,
    student: &mut Student<f64>,
    head: usize,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    let (form, k, d) = (student.form.clone(), examples.shape.k, student.form.d);
    let places = places(&form, head);
    let token = |row: usize| &examples.x[row * d..(row + 1) * d];
    let n = places.len();
    let (mut gram, mut right) = (Mat::<f64>::zeros(n, n), Mat::<f64>::zeros(n, 1));
    for chunk in logits.chunks(CHUNK) {
        if stop() {
            return Err(Error::Interrupted);
        }
        let mut rows = vec![0.0; n * chunk.len()];
        let mut misses = Mat::zeros(chunk.len(), 1);
        for (at, (row, logit)) in rows.chunks_exact_mut(n).zip(chunk).enumerate() {
            let first = logit.row / k * k;
            let (to, from) = (token(first + logit.token), token(first + logit.most));
            // The key bias is that of a query with a last coordinate 1.
            for (u, query) in token(logit.row).iter().chain(form.key_bias.then_some(&1.0)).enumerate() {
                (0..d).for_each(|v| row[u * d + v] = logit.weight * query * (to[v] - from[v]));
            }
            let now: f64 = row.iter().zip(&places).map(|(x, place)| x * student.values[*place]).sum();
            misses[(at, 0)] = logit.weight * logit.value - now;
        }
        let rows = MatRef::from_column_major_slice(&rows, n, chunk.len());
        update_lower(gram.as_mut(), 1.0, rows, rows);
        multiply(right.as_mut(), true, 1.0, rows, misses.as_ref());
    }
    let mean = (0..n).map(|i| gram[(i, i)]).sum::<f64>() / n as f64;
    (0..n).for_each(|i| gram[(i, i)] += RIDGE * mean);
    match cholesky(gram.as_mut(), stop) {
        Ok(()) => solve(gram.as_ref(), right.as_mut()),
        Err(Halt::Stopped) => return Err(Error::Interrupted),
        // No logits at all: it stays.
        Err(Halt::Unfit) => return Ok(()),
    }
    places.iter().enumerate().for_each(|(i, place)| student.values[*place] += right[(i, 0)]);
    Ok(())
}

/// Where the attention matrix of a head stands, row by row, and then its key bias.
fn places(form: &Form, head: usize) -> Vec<usize> {
    let (d, m) = (form.d, form.heads);
    let (a, c) = (form.range(Part::A).start, form.range(Part::C));
    let theta = (0..d * d).map(|i| a + i / d * m * d + head * d + i % d);
    theta.chain((0..c.len() / m).map(|v| c.start + v * m + head)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::descend::sharp::free_attention::applies;
    use crate::layer::Mask;
    use crate::scores::Scores;
    use crate::teacher::TeacherStream;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    const FORM: Form = Form {
        d: 16,
        d_out: 16,
        heads: 2,
        rank: None,
        value_rank: None,
        key_bias: false,
        bias: false,
        scores: Scores::of(Mask::None),
        groups: None,
        relative: None,
    };

    /// A teacher, examples of it, and a student whose every number is wrong by `size` of its own.
    fn problem(form: Form, norm: f64, size: f64, seed: u64) -> (Student<f64>, Batch<f64>, Student<f64>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut teacher: Student<f64> = Student::random(form.clone(), norm, &mut rng).unwrap();
        for part in [Part::C, Part::Bias] {
            teacher.values[form.range(part)].iter_mut().for_each(|v| *v = rng.sample(StandardNormal));
        }
        let layer = teacher.layer().unwrap();
        let source = TeacherStream::new(&layer, 4, InputDistribution::Boolean, seed + 1, None);
        let examples = Batch::read(&source, 0..8, 160).unwrap();
        let mut student = teacher.clone();
        student.values.iter_mut().for_each(|v| *v *= 1.0 + size * rng.sample::<f64, _>(StandardNormal));
        (teacher, examples, student)
    }

    /// Sharp heads come back from students that are wrong by a third: ten of ten to 10⁻⁸, with biases and without.
    #[test]
    fn sharp_heads_are_taken_apart() {
        for seed in 0..10 {
            let biased = seed % 2 == 1;
            let form = Form { key_bias: biased, bias: biased, ..FORM };
            let (teacher, examples, student) = problem(form.clone(), 16.0, 0.3, seed);
            assert!(applies(&form, examples.len(), 4));
            let free = FreeAttention::find(&examples, &student, &|| false).unwrap().unwrap();
            let found = settle(&free, &examples, &student, &|| false).unwrap().unwrap();
            let heads = 0..form.range(Part::O).start;
            let size: f64 = teacher.values[heads.clone()].iter().map(|v| v * v).sum();
            let gap: f64 = heads.map(|i| (found.values[i] - teacher.values[i]).powi(2)).sum();
            assert!((gap / size).sqrt() < 1e-8, "seed {seed}: {:.1e}", (gap / size).sqrt());
        }
    }

    /// What is not exact is not believed: noise, heads that attend to everything, and too few examples.
    #[test]
    fn what_cannot_be_taken_apart_is_left() {
        let never = || false;
        for seed in 0..3 {
            let (_, mut examples, student) = problem(FORM, 16.0, 0.1, seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            examples.y.iter_mut().for_each(|y| *y += 1e-3 * rng.sample::<f64, _>(StandardNormal));
            assert!(FreeAttention::find(&examples, &student, &never).unwrap().is_none());
            let (_, examples, student) = problem(FORM, 0.5, 0.1, seed);
            let free = FreeAttention::find(&examples, &student, &never).unwrap().unwrap();
            assert!(settle(&free, &examples, &student, &never).unwrap().is_none());
        }
        assert!(!applies(&FORM, 10, 4), "few sequences");
        assert!(!applies(&FORM, 1000, 9), "as many unknowns as outputs");
        assert!(
            !applies(&Form { scores: Scores::of(Mask::Causal), ..FORM }, 1000, 4)
                && !applies(&Form { rank: Some(3), ..FORM }, 1000, 4)
        );
    }

    #[test]
    fn it_can_be_stopped() {
        let (_, examples, student) = problem(FORM, 16.0, 0.1, 0);
        assert!(matches!(FreeAttention::find(&examples, &student, &|| true), Err(Error::Interrupted)));
        let free = FreeAttention::find(&examples, &student, &|| false).unwrap().unwrap();
        assert!(matches!(settle(&free, &examples, &student, &|| true), Err(Error::Interrupted)));
    }
}
