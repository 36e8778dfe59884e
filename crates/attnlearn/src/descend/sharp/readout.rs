//! A sharp head read off what the others leave: its attention is linear in that, and its logits in `Θ`.
//!
//! With all other heads and its own projection about right, the attention of a query over k tokens is least squares with d_out equations,
//!
//! ```text
//! Y_a − Σ_{j≠i} (P_j X W_j)_a − bias ≈ Σ_b p_ab u_b,    u_b = x_b W_i,    Σ_b p_ab = 1
//! var p_ab = σ² (G_bb − (G1)_b² / 1ᵀG1),                 G = (U Uᵀ)⁻¹
//! ```
//!
//! and its logarithms are regression for the matrices of the head (`regression`).
//!
//! σ is what is read of attention that is none, not what is left of the outputs: errors of the other heads are not noise.

use crate::Result;
use crate::descend::sharp::regression::{Attention, quantile, regress};
use crate::engine::batch::Batch;
use crate::engine::pass::Pass;
use crate::engine::student::{Form, Part, Student};
use crate::linalg::Mat;
use crate::linalg::cholesky::{small_cholesky, small_inverse};
use crate::linalg::symmetric::multiply;
use crate::parallel;
use crate::scores::Mask;
use faer::{MatMut, MatRef};

/// Share of all attention that is none in a sharp head.
const ZEROS: f64 = 0.1;

/// Uncertainty that rounding leaves.
const ROUNDING: f64 = 1e-14;

/// A reading that leaves more than this of the error gains little.
const GAIN: f64 = 0.5;

/// Reads the attention matrix and key bias of one head off the examples, if that makes the student better: whether it gained much.
pub(crate) fn read(student: &mut Student<f64>, head: usize, examples: &Batch<f64>, stop: &dyn Fn() -> bool) -> Result<bool> {
    let form = student.form.clone();
    let plain = form.scores.is_bilinear() && form.relative.is_none() && form.groups.is_none();
    if !plain || matches!(form.scores.mask, Mask::Window(_)) {
        return Ok(false);
    }
    // Values of more tokens than they have dimensions cannot be told apart.
    if examples.shape.k > form.s().min(form.d_out - 1) {
        return Ok(false);
    }
    let Some(attention) = Attention::read(student, head, examples) else { return Ok(false) };
    let places = student.places(head, &[Part::A, Part::B, Part::C]);
    let values = places.iter().map(|at| student.values[*at]).collect();
    let read = regress(&attention, examples, Form { heads: 1, bias: false, ..form.clone() }, values, stop)?;
    let mut moved = student.values.clone();
    places.iter().zip(&read).for_each(|(at, value)| moved[*at] = *value);
    examples.refit(&form, &mut moved)?;
    let (before, after) = (examples.error(&form, &student.values), examples.error(&form, &moved));
    if after < before {
        student.values = moved;
    }
    Ok(after < GAIN * before)
}

impl Attention {
    /// Of the queries of all examples; `None` if nothing is to be told from them.
    pub(crate) fn read(student: &Student<f64>, head: usize, examples: &Batch<f64>) -> Option<Self> {
        let (form, k) = (student.form.clone(), examples.shape.k);
        let own = student.places(head, &[Part::O]);
        let output: Vec<f64> = own.iter().map(|at| student.values[*at]).collect();
        let output = MatRef::from_row_major_slice(&output, form.s(), form.d_out);
        let mut others = student.values.clone();
        own.into_iter().for_each(|at| others[at] = 0.0);
        let runs: Vec<(Self, Vec<f64>)> = parallel::map(examples.parts(), |chunks| {
            let (mut pass, mut run, mut believed) = (Pass::default(), Self { p: Vec::new(), uncertain: Vec::new() }, Vec::new());
            for range in &chunks {
                let (_, miss) = examples.miss(&form, &others, range, &mut pass);
                let mut u = vec![0.0; miss.len()];
                let into = MatMut::from_row_major_slice_mut(&mut u, range.len() * k, form.d_out);
                multiply(into, false, 1.0, pass.head_values(&form, examples.inputs(range), head), output);
                for (miss, u) in miss.chunks_exact(k * form.d_out).zip(u.chunks_exact(k * form.d_out)) {
                    run.add(&form, k, miss, u);
                }
                for row in 0..range.len() * k {
                    let p = pass.attention(&form, row, head);
                    believed.extend((0..k).map(|b| p.get(b).copied().unwrap_or(0.0)));
                }
            }
            (run, believed)
        });
        let (mut all, mut believed) = (Self { p: Vec::new(), uncertain: Vec::new() }, Vec::new());
        for (run, of_run) in runs {
            all.p.extend(run.p);
            all.uncertain.extend(run.uncertain);
            believed.extend(of_run);
        }
        let sigma = all.sigma(&believed)?;
        all.uncertain.iter_mut().for_each(|spread| *spread = (sigma * *spread).max(ROUNDING));
        Some(all)
    }

    /// Adds a sequence, of which the others leave `−miss`; its uncertainty as that of σ = 1.
    fn add(&mut self, form: &Form, k: usize, miss: &[f64], u: &[f64]) {
        let (miss, u) = (MatRef::from_row_major_slice(miss, k, form.d_out), MatRef::from_row_major_slice(u, k, form.d_out));
        let (mut gram, mut right) = (Mat::zeros(k, k), Mat::zeros(k, k));
        multiply(gram.as_mut(), false, 1.0, u, u.transpose());
        multiply(right.as_mut(), false, -1.0, u, miss.transpose());
        let (mut inverse, mut sums): (Mat<f64>, Vec<f64>) = (Mat::zeros(0, 0), Vec::new());
        for a in 0..k {
            let keys = form.scores.mask.seen(a, k).end;
            if inverse.nrows() != keys {
                let mut l = gram.as_ref().submatrix(0, 0, keys, keys).to_owned();
                if small_cholesky(l.as_mut()).is_err() {
                    // Tokens that are alike, or opposite: nothing can be told.
                    self.p.extend(std::iter::repeat_n(0.0, (k - a) * k));
                    self.uncertain.extend(std::iter::repeat_n(f64::INFINITY, (k - a) * k));
                    return;
                }
                let l = small_inverse(l.as_ref());
                inverse = l.transpose() * &l;
                sums = (0..keys).map(|b| (0..keys).map(|i| inverse[(i, b)]).sum()).collect();
            }
            let free = inverse.as_ref() * right.as_ref().submatrix(0, a, keys, 1);
            let total = sums.iter().sum::<f64>();
            let excess = ((0..keys).map(|b| free[(b, 0)]).sum::<f64>() - 1.0) / total;
            self.p.extend((0..k).map(|b| if b < keys { free[(b, 0)] - sums[b] * excess } else { 0.0 }));
            // A query that sees itself alone has nothing uncertain.
            let variance = |b: usize| (inverse[(b, b)] - sums[b].powi(2) / total).max(0.0);
            self.uncertain.extend((0..k).map(|b| if b < keys { variance(b).sqrt() } else { 0.0 }));
        }
    }

    /// σ: the size of what is read where the student believes in least attention, by the median.
    fn sigma(&self, believed: &[f64]) -> Option<f64> {
        let mut visible: Vec<usize> =
            (0..self.p.len()).filter(|i| self.uncertain[*i] > 0.0 && self.uncertain[*i].is_finite()).collect();
        let share = (ZEROS * visible.len() as f64) as usize;
        if share == 0 {
            return None;
        }
        visible.select_nth_unstable_by(share, |i, j| believed[*i].total_cmp(&believed[*j]).then(i.cmp(j)));
        let sizes = visible[..share].iter().map(|i| (self.p[*i] - believed[*i]).abs() / self.uncertain[*i]);
        Some(quantile(sizes, 0.5) / NORMAL_MEDIAN)
    }
}

/// The median of |z| for a normal z.
const NORMAL_MEDIAN: f64 = 0.6745;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::Error;
    use crate::descend::testing::{K, mixed_form as form, sharp_problem as problem};
    use crate::scores::Scores;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// A sharp head that is wrong by a twentieth, beside others that are wrong by 10⁻⁵, comes back so well that with outputs refitted the error is below
    /// that of the others with its true attention: twelve of twelve, of low rank and full, with biases and mask or without.
    #[test]
    fn a_sharp_head_is_read_off() {
        for seed in 0..12 {
            let form = form(seed);
            let (teacher, examples, mut rng) = problem(form.clone(), 600, seed);
            let mut student = teacher.clone();
            student.values.iter_mut().for_each(|v| *v *= 1.0 + 1e-5 * rng.sample::<f64, _>(StandardNormal));
            let floor = examples.error(&form, &student.values);
            let own = student.places(1, &[Part::A, Part::B, Part::C]);
            own.iter().for_each(|at| student.values[*at] *= 1.0 + 0.05 * rng.sample::<f64, _>(StandardNormal));
            let before = examples.error(&form, &student.values);
            assert!(read(&mut student, 1, &examples, &|| false).unwrap(), "seed {seed}");
            let after = examples.error(&form, &student.values);
            assert!(after < floor && floor < 1e-6 * before, "seed {seed}: {before:.1e} to {after:.1e}, others leave {floor:.1e}");
        }
    }

    /// The spread of attention that is read of noisy outputs is what is claimed, within a tenth, and its sum is 1.
    #[test]
    fn uncertainty_is_the_spread_of_readings() {
        let form = Form { scores: Scores::of(Mask::None), ..form(1) };
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut normal = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.sample(StandardNormal)).collect() };
        let (u, draws) = (normal(K * form.d_out), 4000);
        let mut all = Attention { p: Vec::new(), uncertain: Vec::new() };
        for _ in 0..draws {
            // Every query attends to the first token alone.
            let noise = normal(K * form.d_out);
            let miss: Vec<f64> = (0..K * form.d_out).map(|i| -u[i % form.d_out] - 0.1 * noise[i]).collect();
            all.add(&form, K, &miss, &u);
        }
        for at in 0..K * K {
            let truth = if at % K == 0 { 1.0 } else { 0.0 };
            let spread = (0..draws).map(|draw| (all.p[draw * K * K + at] - truth).powi(2)).sum::<f64>() / f64::from(draws as u32);
            let claimed = 0.1 * all.uncertain[at];
            assert!((spread.sqrt() / claimed - 1.0).abs() < 0.1, "{at}: {} and {claimed}", spread.sqrt());
        }
        assert!(all.p.chunks_exact(K).all(|p| (p.iter().sum::<f64>() - 1.0).abs() < 1e-9));
    }

    /// A student that is right stays; one with more tokens than values, or that is stopped, too.
    #[test]
    fn what_cannot_be_read_is_left() {
        let low = Form { rank: Some(3), value_rank: Some(4), ..form(0) };
        let (teacher, examples, _) = problem(low, 100, 3);
        let mut student = teacher.clone();
        assert!(!read(&mut student, 1, &examples, &|| false).unwrap() && student == teacher);
        let (teacher, examples, _) = problem(form(1), 100, 3);
        let mut student = teacher.clone();
        student.places(1, &[Part::A]).into_iter().for_each(|at| student.values[at] *= 1.1);
        assert!(matches!(read(&mut student.clone(), 1, &examples, &|| true), Err(Error::Interrupted)));
    }
}
