//! Projections without attention matrices: rows of attention are free, and found like the projections.
//!
//! A row of attention over `k` tokens is `k − 1` numbers `ξ`, its sum being 1. With the orthonormal columns of `Z`, `Zᵀ1 = 0`, for a query `a`
//!
//! ```text
//! p_ia = 1ᵀ/k + ξ_ia Zᵀ        Y_a − Σ_i 1ᵀXW_i/k − bias = Σ_i ξ_ia ZᵀXW_i = ξ_a A
//! ```
//!
//! For fixed `W` these are `m(k − 1)` unknowns and `d_out` equations, and where that is more, what is left over says how wrong `W` is: Gauss–Newton with
//! `ξ` eliminated,
//!
//! ```text
//! (Σ_s S_s ⊗ P⊥_s + λ) dW = Σ_a z_aᵀE_a      z_a = (p_1a X … p_ma X 1)   S_s = Σ_a z_aᵀz_a   P⊥_s = I − Aᵀ(AAᵀ)⁻¹A   E_a = (Y_a − …)P⊥_s
//! ```
//!
//! over sequences `s` and their queries. There is no softmax in it that could saturate: a handful of steps lead to rounding from projections that are
//! wrong by a tenth. Attention and projections are determined up to mixtures of heads, `p_i → Σ_j g_ij p_j` with `Σ_j g_ij = 1`, which `logits` takes
//! apart.

use crate::Result;
use crate::descend::optimise::dense::Dense;
use crate::descend::optimise::levenberg::{Crawl, Fall, LeastSquares, LevenbergSettings, Solver, descend};
use crate::engine::batch::Batch;
use crate::engine::eliminate::columns;
use crate::engine::student::{Form, Part, Student};
use crate::linalg::Mat;
use crate::linalg::cholesky::{small_cholesky, small_inverse};
use crate::linalg::symmetric::{multiply, product};
use crate::parallel;
use crate::scores::{Mask, Scores};
use faer::MatRef;

/// Most unknowns of all projections, and of an attention matrix.
const LARGEST: usize = 4096;

/// Equations for every unknown.
const ENOUGH: f64 = 1.2;

/// Steps, at most.
const STEPS: usize = 25;

/// Share of unexplained variance at which there is nothing more to gain, and up to which attention is exact.
const GOAL: f64 = 1e-28;
const EXACT: f64 = 1e-20;

/// Sequences whose products are added at a time.
const CHUNK: usize = 256;

/// Attention that leaves nothing unexplained.
pub(crate) struct FreeAttention {
    /// `[head][row][key]`.
    pub(crate) attention: Vec<Vec<f64>>,
}

/// Whether examples say more than free attention can explain.
pub(crate) fn applies(form: &Form, sequences: usize, k: usize) -> bool {
    let (free, unknowns) = (form.heads * (k - 1), columns(form) * form.d_out);
    let full =
        form.rank.is_none() && form.value_rank.is_none() && form.scores == Scores::of(Mask::None) && form.relative.is_none();
    let left = sequences * k * form.d_out.saturating_sub(free);
    full && unknowns <= LARGEST && (form.d + 1) * form.d <= LARGEST && left as f64 >= ENOUGH * unknowns as f64
}

/// What a sequence says.
struct Sequence {
    /// Attention of all heads side by side, a row for every query.
    p: Mat<f64>,
    /// `z`.
    z: Mat<f64>,
    /// `E`.
    e: Mat<f64>,
    /// `P⊥`.
    projector: Mat<f64>,
}

impl FreeAttention {
    /// From the projections of a student; `None` where that leads nowhere.
    pub(crate) fn find(examples: &Batch<f64>, student: &Student<f64>, stop: &dyn Fn() -> bool) -> Result<Option<Self>> {
        let form = &student.form;
        let variance = examples.variance()?;
        let first = form.range(Part::O).start;
        let w = MatRef::from_row_major_slice(&student.values[first..], columns(form), form.d_out).to_owned();
        let problem = Projections { examples, form, stop };
        let Some(start) = problem.at(w) else { return Ok(None) };
        let found = descend(&problem, start, &damping(variance))?;
        if found.error() > EXACT * variance {
            return Ok(None);
        }
        let (k, sequences) = (examples.shape.k, &found.point.sequences);
        let rows = |h: usize| sequences.iter().flat_map(move |s| (0..k * k).map(move |at| s.p[(at / k, h * k + at % k)]));
        Ok(Some(Self { attention: (0..form.heads).map(|h| rows(h).collect()).collect() }))
    }
}

/// λ in units of the mean of the diagonal. Where attention is exact, a step that does not even halve the error is rounding.
fn damping(variance: f64) -> LevenbergSettings {
    LevenbergSettings {
        steps: STEPS,
        goal: GOAL * variance,
        progress: 0.0,
        crawl: Some(Crawl { below: EXACT * variance, leaves: 0.5, patience: 1 }),
        first: 1e-3,
        least: 1e-9,
        largest: 1e4,
        fall: Fall::By(0.1),
        ..LevenbergSettings::default()
    }
}

/// Least squares for all projections, with the attention of every sequence eliminated.
struct Projections<'a> {
    examples: &'a Batch<f64>,
    form: &'a Form,
    stop: &'a dyn Fn() -> bool,
}

/// Projections, and what all sequences say of them.
struct Explained {
    w: Mat<f64>,
    sequences: Vec<Sequence>,
}

impl Projections<'_> {
    /// What sequences say of some projections, and the error; `None` where heads are alike, or numbers not finite.
    fn at(&self, w: Mat<f64>) -> Option<(Explained, f64)> {
        let (error, sequences) = all(self.examples, self.form, &w)?;
        Some((Explained { w, sequences }, error))
    }
}

impl LeastSquares for Projections<'_> {
    type Point = Explained;

    fn linearise(&self, Explained { w, sequences }: &Explained) -> Result<impl Solver> {
        let (matrix, gradient) = normal_equations(sequences, w.nrows(), w.ncols());
        let n = matrix.nrows();
        let mean = (0..n).map(|i| matrix[(i, i)]).sum::<f64>() / n as f64;
        Ok(Dense { matrix, scale: vec![mean; n], right: gradient.col_as_slice(0).to_vec(), stop: self.stop })
    }

    fn moved(&self, Explained { w, .. }: &Explained, step: &[f64]) -> Option<(Explained, f64)> {
        let d_out = w.ncols();
        self.at(Mat::from_fn(w.nrows(), d_out, |i, e| w[(i, e)] + step[i * d_out + e]))
    }
}

/// All sequences, and the sum of `|E|²`; `None` where heads are alike, or numbers not finite.
fn all(examples: &Batch<f64>, form: &Form, w: &Mat<f64>) -> Option<(f64, Vec<Sequence>)> {
    let (k, d, d_out) = (examples.shape.k, form.d, form.d_out);
    let z = contrasts(k);
    let of = |(x, y): (&[f64], &[f64])| {
        let (x, y) = (MatRef::from_row_major_slice(x, k, d), MatRef::from_row_major_slice(y, k, d_out));
        sequence(form, w.as_ref(), z.as_ref(), x, y)
    };
    let (x, y) = (examples.x.chunks_exact(k * d), examples.y.chunks_exact(k * d_out));
    let sequences: Vec<Sequence> = parallel::map(x.zip(y), of).into_iter().collect::<Option<_>>()?;
    let error: f64 = sequences.iter().map(|s| s.e.squared_norm_l2()).sum();
    error.is_finite().then_some((error, sequences))
}

/// `Z`: what tells the first tokens from the next.
fn contrasts(k: usize) -> Mat<f64> {
    Mat::from_fn(k, k - 1, |b, c| {
        let size = (((c + 1) * (c + 2)) as f64).sqrt();
        match b {
            _ if b <= c => 1.0 / size,
            _ if b == c + 1 => -((c + 1) as f64) / size,
            _ => 0.0,
        }
    })
}

fn sequence(form: &Form, w: MatRef<'_, f64>, z: MatRef<'_, f64>, x: MatRef<'_, f64>, y: MatRef<'_, f64>) -> Option<Sequence> {
    let (k, d, m, d_out) = (x.nrows(), form.d, form.heads, form.d_out);
    let (mut a, mut r) = (Mat::zeros(m * (k - 1), d_out), y.to_owned());
    for h in 0..m {
        let t = x * w.subrows(h * d, d);
        multiply(a.as_mut().subrows_mut(h * (k - 1), k - 1), false, 1.0, z.transpose(), t.as_ref());
        for e in 0..d_out {
            let mean = (0..k).map(|b| t[(b, e)]).sum::<f64>() / k as f64;
            (0..k).for_each(|b| r[(b, e)] -= mean);
        }
    }
    if form.bias {
        (0..d_out).for_each(|e| (0..k).for_each(|b| r[(b, e)] -= w[(m * d, e)]));
    }
    let mut l = &a * a.transpose();
    small_cholesky(l.as_mut()).ok()?;
    let inverse = small_inverse(l.as_ref());
    let q = &inverse * &a;
    let mut xi = &r * q.transpose();
    let mut e = &r - &xi * &q;
    // Once more, for what rounding has left.
    let rest = &e * q.transpose();
    e -= &rest * &q;
    xi += rest;
    let xi = xi * inverse;
    let mut p = Mat::full(k, m * k, 1.0 / k as f64);
    let mut pooled = Mat::full(k, columns(form), 1.0);
    for h in 0..m {
        let of_head = xi.subcols(h * (k - 1), k - 1);
        multiply(p.as_mut().subcols_mut(h * k, k), true, 1.0, of_head, z.transpose());
        multiply(pooled.as_mut().subcols_mut(h * d, d), false, 1.0, p.as_ref().subcols(h * k, k), x);
    }
    let projector = Mat::<f64>::identity(d_out, d_out) - q.transpose() * &q;
    Some(Sequence { p, z: pooled, e, projector })
}

/// `Σ S ⊗ P⊥`, its lower triangle, and `Σ zᵀE`, projections row by row.
fn normal_equations(sequences: &[Sequence], c: usize, d_out: usize) -> (Mat<f64>, Mat<f64>) {
    let pairs = c * (c + 1) / 2;
    let mut sums = Mat::<f64>::zeros(pairs, d_out * d_out);
    let mut gradient = Mat::<f64>::zeros(c, d_out);
    for chunk in sequences.chunks(CHUNK) {
        let mut squares = vec![0.0; pairs * chunk.len()];
        parallel::each(squares.chunks_exact_mut(pairs).zip(chunk), |(column, s)| {
            let square = s.z.transpose() * &s.z;
            let lower = (0..c).flat_map(|j| &square.col_as_slice(j)[j..]);
            column.iter_mut().zip(lower).for_each(|(to, from)| *to = *from);
        });
        let squares = MatRef::from_column_major_slice(&squares, pairs, chunk.len());
        let projectors = Mat::from_fn(d_out * d_out, chunk.len(), |i, s| chunk[s].projector[(i / d_out, i % d_out)]);
        product(sums.as_mut(), true, 1.0, squares, projectors.transpose());
        for s in chunk {
            multiply(gradient.as_mut(), true, 1.0, s.z.transpose(), s.e.as_ref());
        }
    }
    let mut matrix = Mat::<f64>::zeros(c * d_out, c * d_out);
    let mut at = 0;
    for j in 0..c {
        for i in j..c {
            for f in 0..d_out {
                for e in if i == j { f } else { 0 }..d_out {
                    matrix[(i * d_out + e, j * d_out + f)] = sums[(at, e * d_out + f)];
                }
            }
            at += 1;
        }
    }
    let gradient = Mat::from_fn(c * d_out, 1, |i, _| gradient[(i / d_out, i % d_out)]);
    (matrix, gradient)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::teacher::TeacherStream;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// A form, examples, the projections that explain them, and a direction.
    fn problem(seed: u64) -> (Form, Batch<f64>, Mat<f64>, Mat<f64>) {
        let bias = seed.is_multiple_of(2);
        let form = Form {
            d: 4,
            d_out: 9,
            heads: 2,
            rank: None,
            value_rank: None,
            key_bias: bias,
            bias,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let teacher: Student<f64> = Student::random(form.clone(), 6.0, &mut rng).unwrap();
        let source = TeacherStream::new(&teacher.layer().unwrap(), 3, InputDistribution::Gaussian, seed + 1, None);
        let examples = Batch::read(&source, 0..1, 40).unwrap();
        let c = columns(&form);
        let w = MatRef::from_row_major_slice(&teacher.values[form.range(Part::O).start..], c, form.d_out).to_owned();
        let direction = Mat::from_fn(c, form.d_out, |_, _| rng.sample(StandardNormal));
        (form, examples, w, direction)
    }

    /// The right-hand side is half the slope of the error, downwards, wherever it is taken.
    #[test]
    fn gradient_is_that_of_finite_differences() {
        for seed in 0..6 {
            let (form, examples, w, direction) = problem(seed);
            let from = Mat::from_fn(w.nrows(), w.ncols(), |i, j| w[(i, j)] + 0.3 * (direction[(j % w.nrows(), i % 9)]));
            let error = |h: f64| all(&examples, &form, &(&from + faer::Scale(h) * &direction)).unwrap().0;
            let (_, gradient) = normal_equations(&all(&examples, &form, &from).unwrap().1, w.nrows(), 9);
            let h = 1e-5;
            let slope = (error(h) - error(-h)) / (2.0 * h);
            let claimed: f64 = (0..gradient.nrows()).map(|i| -2.0 * gradient[(i, 0)] * direction[(i / 9, i % 9)]).sum();
            assert!((slope / claimed - 1.0).abs() < 1e-6, "seed {seed}: {slope} and {claimed}");
        }
    }

    /// Where nothing is left unexplained, the matrix is half the curvature of the error.
    #[test]
    fn matrix_is_the_curvature_at_the_end() {
        for seed in 0..6 {
            let (form, examples, w, direction) = problem(seed);
            let error = |h: f64| all(&examples, &form, &(&w + faer::Scale(h) * &direction)).unwrap().0;
            let (matrix, _) = normal_equations(&all(&examples, &form, &w).unwrap().1, w.nrows(), 9);
            let n = matrix.nrows();
            let at = |i: usize| direction[(i / 9, i % 9)];
            let lower = |i: usize, j: usize| matrix[(i.max(j), i.min(j))];
            let claimed: f64 = (0..n * n).map(|ij| at(ij / n) * lower(ij / n, ij % n) * at(ij % n)).sum();
            let h = 1e-4;
            let curvature = (error(h) + error(-h)) / (2.0 * h * h);
            assert!((curvature / claimed - 1.0).abs() < 1e-4, "seed {seed}: {curvature} and {claimed}");
        }
    }
}
