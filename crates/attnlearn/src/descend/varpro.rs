//! Variable projection: for fixed attention matrices the projections are a linear least-squares problem, so only the attention
//! matrices are searched.
//!
//! Rows are (example, query) pairs. With `p_i` the attention row of head i, `z_i = Σ_b p_ib x_b` its pooled token,
//! `Φ = [z_1 … z_m] ∈ R^{N×md}`,
//!
//! ```text
//! W(Θ) = argmin_W ‖Y − ΦW‖²,     R = Y − ΦW,     P⊥ = I − Φ(ΦᵀΦ)⁻¹Φᵀ
//! ```
//!
//! Gauss–Newton with Kaufman's approximation uses the Jacobian `J: dΘ ↦ P⊥ dΦ[dΘ] W`, where
//!
//! ```text
//! dz_i = Σ_b p_ib (dℓ_b − Σ_c p_ic dℓ_c) x_b = C_i dΘ_iᵀ x_a,     C_i = Σ_b p_ib (x_b − z_i)(x_b − z_i)ᵀ,
//! ```
//!
//! so that `dz_iᵀ W_i = x_aᵀ dΘ_i E_i` with `E_i = C_i W_i`. The step solves `(JᵀJ + λ diag JᵀJ) δ = −Jᵀ(−R)`; by
//! `JᵀP⊥J = JᵀJ − (ΦᵀJ)ᵀ(ΦᵀΦ)⁻¹(ΦᵀJ)` only sums over rows are needed, never the Jacobian itself.

use super::Sample;
use crate::layer::{AttentionLayer, Head, Mask};
use crate::linalg::{Mat, solve_spd};
use crate::{Error, Result};
use faer::linalg::matmul::matmul;
use faer::{Accum, Par};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Rows whose sums are formed together.
const CHUNK: usize = 96;

/// Which attention matrices are searched.
#[derive(Clone, Debug)]
pub enum Parametrisation {
    /// All of `R^{d×d}` for every head.
    Full,
    /// Combinations of these matrices.
    Span(Vec<Mat<f64>>),
}

impl Parametrisation {
    /// Free numbers per head.
    fn per_head(&self, d: usize) -> usize {
        match self {
            Self::Full => d * d,
            Self::Span(basis) => basis.len(),
        }
    }

    /// `dΘ` of one head from its free numbers.
    fn matrix(&self, d: usize, values: &[f64]) -> Mat<f64> {
        match self {
            Self::Full => crate::linalg::from_row_major(d, d, values),
            Self::Span(basis) => {
                let mut theta = Mat::zeros(d, d);
                for (b, v) in basis.iter().zip(values) {
                    theta += b * faer::Scale(*v);
                }
                theta
            }
        }
    }
}

/// When to stop, and how to step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Most Gauss–Newton iterations (default 60).
    pub iterations: usize,
    /// Stop when the fraction of unexplained variance on the sample is below this (default 10⁻²⁶).
    pub goal: f64,
    /// Stop when it falls by less than this fraction in three iterations running (default 10⁻³).
    pub progress: f64,
    /// First damping λ (default 10⁻²).
    pub damping: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { iterations: 60, goal: 1e-26, progress: 1e-3, damping: 1e-2 }
    }
}

/// Why the iterations ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The goal was reached.
    Goal,
    /// The error stopped falling.
    Stalled,
    /// The limit on iterations was reached.
    Limit,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Attention matrices.
    pub thetas: Vec<Mat<f64>>,
    /// Projections.
    pub ws: Vec<Mat<f64>>,
    /// Fraction of unexplained variance on the sample.
    pub nmse: f64,
    /// That fraction at every iteration.
    pub history: Vec<f64>,
    /// Why the iterations ended.
    pub stop: Stop,
}

impl Fit {
    /// The fit as a layer.
    pub fn layer(&self) -> Result<AttentionLayer> {
        let heads = self.thetas.iter().zip(&self.ws).map(|(t, w)| Head::dense(t.clone(), w.clone())).collect();
        AttentionLayer::new(heads, None, Mask::None)
    }
}

/// `W(Θ)` and the error that remains.
#[derive(Clone, Debug)]
pub struct Projected {
    /// `W`, the projections of all heads stacked, md×d_out.
    pub w: Mat<f64>,
    /// `ΦᵀΦ`.
    gram: Mat<f64>,
    /// `‖Y − ΦW‖²`.
    pub cost: f64,
}

/// What the forward pass of one row leaves behind.
struct RowState {
    p: Vec<f64>,
    z: Vec<f64>,
}

fn row_forward(sample: &Sample, thetas: &[Mat<f64>], r: usize, state: &mut RowState) {
    let s = sample.shape();
    let x = sample.tokens(r / s.k);
    let x_a = &x[r % s.k * s.d..(r % s.k + 1) * s.d];
    let mut query = vec![0.0; s.d];
    for (i, theta) in thetas.iter().enumerate() {
        for f in 0..s.d {
            let column = theta.col(f);
            query[f] = (0..s.d).map(|e| x_a[e] * column[e]).sum();
        }
        let p = &mut state.p[i * s.k..(i + 1) * s.k];
        for (p, x_b) in p.iter_mut().zip(x.chunks_exact(s.d)) {
            *p = query.iter().zip(x_b).map(|(q, x)| q * x).sum();
        }
        let top = p.iter().copied().fold(f64::MIN, f64::max);
        p.iter_mut().for_each(|v| *v = (*v - top).exp());
        let total: f64 = p.iter().sum();
        p.iter_mut().for_each(|v| *v /= total);
        let z = &mut state.z[i * s.d..(i + 1) * s.d];
        z.fill(0.0);
        for (p, x_b) in p.iter().zip(x.chunks_exact(s.d)) {
            z.iter_mut().zip(x_b).for_each(|(z, x)| *z += p * x);
        }
    }
}

/// Sums over fixed chunks of rows, on all threads, added up in order.
fn over_chunks<R: Send>(rows: usize, map: impl Fn(std::ops::Range<usize>) -> R + Sync, fold: impl FnMut(R)) {
    let chunks: Vec<_> = (0..rows).step_by(CHUNK).map(|from| from..rows.min(from + CHUNK)).collect();
    // A few chunks at a time: their sums are large.
    let mut fold = fold;
    for group in chunks.chunks(16) {
        let parts: Vec<R> = group.par_iter().map(|range| map(range.clone())).collect();
        parts.into_iter().for_each(&mut fold);
    }
}

/// `ΦᵀΦ` and `ΦᵀY`.
pub fn pooled_moments(sample: &Sample, thetas: &[Mat<f64>]) -> (Mat<f64>, Mat<f64>) {
    let s = sample.shape();
    let (m, md) = (thetas.len(), thetas.len() * s.d);
    let mut gram = Mat::zeros(md, md);
    let mut cross = Mat::zeros(md, s.d_out);
    over_chunks(
        sample.rows(),
        |range| {
            let mut state = RowState { p: vec![0.0; m * s.k], z: vec![0.0; md] };
            let mut phi = Mat::zeros(range.len(), md);
            let y = Mat::from_fn(range.len(), s.d_out, |i, o| sample.output(range.start + i)[o]);
            for (i, r) in range.enumerate() {
                row_forward(sample, thetas, r, &mut state);
                for j in 0..md {
                    phi[(i, j)] = state.z[j];
                }
            }
            (phi.transpose() * &phi, phi.transpose() * &y)
        },
        |(g, c)| {
            gram += g;
            cross += c;
        },
    );
    (gram, cross)
}

/// Eliminates the projections: the best `W` for these attention matrices.
pub fn project(sample: &Sample, thetas: &[Mat<f64>]) -> Projected {
    let (gram, cross) = pooled_moments(sample, thetas);
    let w = solve_spd(gram.as_ref(), cross.as_ref());
    // ‖Y‖² − ⟨W, ΦᵀY⟩ cancels near a perfect fit, so the cost is summed from the residuals themselves.
    let cost = squared_error(sample, thetas, &w);
    Projected { w, gram, cost }
}

/// `‖Y − ΦW‖²`.
fn squared_error(sample: &Sample, thetas: &[Mat<f64>], w: &Mat<f64>) -> f64 {
    let s = sample.shape();
    let (m, md) = (thetas.len(), thetas.len() * s.d);
    let mut cost = 0.0;
    over_chunks(
        sample.rows(),
        |range| {
            let mut state = RowState { p: vec![0.0; m * s.k], z: vec![0.0; md] };
            let mut sum = 0.0;
            for r in range {
                row_forward(sample, thetas, r, &mut state);
                for (o, y) in sample.output(r).iter().enumerate() {
                    let w = w.col(o);
                    let fit: f64 = (0..md).map(|j| state.z[j] * w[j]).sum();
                    sum += (y - fit).powi(2);
                }
            }
            sum
        },
        |part| cost += part,
    );
    cost
}

/// Fraction of the sample's variance that the heads `(Θ_i, W_i)` leave unexplained.
pub fn nmse(sample: &Sample, thetas: &[Mat<f64>], ws: &[Mat<f64>]) -> f64 {
    let d = sample.shape().d;
    let w = Mat::from_fn(thetas.len() * d, sample.shape().d_out, |r, o| ws[r / d][(r % d, o)]);
    squared_error(sample, thetas, &w) / sample.total_variance().max(f64::MIN_POSITIVE)
}

/// `JᵀP⊥J` and `JᵀR`.
fn normal_equations(sample: &Sample, thetas: &[Mat<f64>], at: &Projected, free: &Parametrisation) -> (Mat<f64>, Mat<f64>) {
    let s = sample.shape();
    let (m, md) = (thetas.len(), thetas.len() * s.d);
    let (d, d_out) = (s.d, s.d_out);
    let per_head = free.per_head(d);
    let params = m * per_head;
    let mut jj = Mat::zeros(params, params);
    let mut jr = Mat::zeros(params, 1);
    // ΦᵀJ_o for every output o, side by side: md × (params d_out).
    let mut pj = Mat::zeros(md, params * d_out);
    over_chunks(
        sample.rows(),
        |range| {
            let mut state = RowState { p: vec![0.0; m * s.k], z: vec![0.0; md] };
            let n = range.len();
            let mut phi = Mat::zeros(n, md);
            let mut residual = Mat::zeros(n, d_out);
            // One row of `jac` per (output, row): the block of output o stands in rows o·n..(o+1)·n.
            let mut jac = Mat::<f64>::zeros(n * d_out, params);
            let mut e = vec![0.0; d * d_out];
            for (i, r) in range.enumerate() {
                row_forward(sample, thetas, r, &mut state);
                let x = sample.tokens(r / s.k);
                let x_a = &x[r % s.k * d..(r % s.k + 1) * d];
                for j in 0..md {
                    phi[(i, j)] = state.z[j];
                }
                for (o, y) in sample.output(r).iter().enumerate() {
                    let w = at.w.col(o);
                    residual[(i, o)] = y - (0..md).map(|j| state.z[j] * w[j]).sum::<f64>();
                }
                for h in 0..m {
                    let (p, z) = (&state.p[h * s.k..(h + 1) * s.k], &state.z[h * d..(h + 1) * d]);
                    // E = Σ_b p_b (x_b − z) ((x_b − z)ᵀ W_h)
                    e.fill(0.0);
                    for (p, x_b) in p.iter().zip(x.chunks_exact(d)) {
                        if *p < 1e-300 {
                            continue;
                        }
                        for o in 0..d_out {
                            let w = at.w.col(o);
                            let along = p * (0..d).map(|f| (x_b[f] - z[f]) * w[h * d + f]).sum::<f64>();
                            for f in 0..d {
                                e[o * d + f] += (x_b[f] - z[f]) * along;
                            }
                        }
                    }
                    match free {
                        Parametrisation::Full => {
                            for a in 0..d {
                                for f in 0..d {
                                    let mut column = jac.as_mut().col_mut(h * per_head + a * d + f);
                                    for o in 0..d_out {
                                        column[o * n + i] = x_a[a] * e[o * d + f];
                                    }
                                }
                            }
                        }
                        Parametrisation::Span(basis) => {
                            for (j, b) in basis.iter().enumerate() {
                                let mut column = jac.as_mut().col_mut(h * per_head + j);
                                for f in 0..d {
                                    let b = b.col(f);
                                    let query: f64 = (0..d).map(|a| x_a[a] * b[a]).sum();
                                    for o in 0..d_out {
                                        column[o * n + i] += query * e[o * d + f];
                                    }
                                }
                            }
                        }
                    }
                }
            }
            let mut part_jj = Mat::zeros(params, params);
            matmul(part_jj.as_mut(), Accum::Replace, jac.transpose(), jac.as_ref(), 1.0, Par::Seq);
            let mut part_jr = Mat::zeros(params, 1);
            let mut part_pj = Mat::zeros(md, params * d_out);
            for o in 0..d_out {
                let jac = jac.as_ref().subrows(o * n, n);
                let column = residual.as_ref().subcols(o, 1);
                matmul(part_jr.as_mut(), Accum::Add, jac.transpose(), column, 1.0, Par::Seq);
                let out = part_pj.as_mut().subcols_mut(o * params, params);
                matmul(out, Accum::Replace, phi.transpose(), jac, 1.0, Par::Seq);
            }
            (part_jj, part_jr, part_pj)
        },
        |(a, b, c)| {
            jj += a;
            jr += b;
            pj += c;
        },
    );
    for o in 0..d_out {
        let t = pj.as_ref().subcols(o * params, params);
        let solved = solve_spd(at.gram.as_ref(), t);
        matmul(jj.as_mut(), Accum::Add, t.transpose(), solved.as_ref(), -1.0, Par::Seq);
    }
    (jj, jr)
}

/// Levenberg–Marquardt from the given attention matrices, moving only in the directions that `free` allows.
pub fn fit(sample: &Sample, start: &[Mat<f64>], free: &Parametrisation, settings: &Settings) -> Result<Fit> {
    let d = sample.shape().d;
    if sample.is_empty() || start.is_empty() {
        return Err(Error::input("variable projection", "no examples or no heads", "give at least one of each"));
    }
    let per_head = free.per_head(d);
    let variance = sample.total_variance().max(f64::MIN_POSITIVE);
    let mut thetas = start.to_vec();
    let mut at = project(sample, &thetas);
    let mut lambda = settings.damping;
    let mut history = vec![at.cost / variance];
    let (mut stop, mut slow) = (Stop::Limit, 0);
    'iterations: for _ in 0..settings.iterations {
        if at.cost <= settings.goal * variance {
            stop = Stop::Goal;
            break;
        }
        let (jj, jr) = normal_equations(sample, &thetas, &at, free);
        let largest = (0..jj.nrows()).map(|i| jj[(i, i)]).fold(0.0, f64::max);
        loop {
            let mut damped = jj.clone();
            for i in 0..damped.nrows() {
                damped[(i, i)] += lambda * jj[(i, i)].max(1e-12 * largest);
            }
            let step = solve_spd(damped.as_ref(), jr.as_ref());
            let values: Vec<f64> = step.col(0).iter().copied().collect();
            let moved: Vec<Mat<f64>> =
                thetas.iter().zip(values.chunks(per_head)).map(|(theta, v)| theta + free.matrix(d, v)).collect();
            let trial = project(sample, &moved);
            if trial.cost.is_finite() && trial.cost < at.cost {
                let gain = 1.0 - trial.cost / at.cost;
                slow = if gain < settings.progress { slow + 1 } else { 0 };
                (thetas, at) = (moved, trial);
                lambda = (lambda * 0.2).max(1e-14);
                break;
            }
            lambda = (lambda * 5.0).max(1e-10);
            if lambda > 1e8 {
                stop = Stop::Stalled;
                break 'iterations;
            }
        }
        history.push(at.cost / variance);
        if slow >= 3 {
            stop = Stop::Stalled;
            break;
        }
    }
    let ws = (0..thetas.len()).map(|i| at.w.as_ref().subrows(i * d, d).to_owned()).collect();
    Ok(Fit { thetas, ws, nmse: at.cost / variance, history, stop })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{InputDistribution, TeacherSpec, TeacherStream};
    use crate::linalg::{frobenius, row_major};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn problem(d: usize, k: usize, m: usize, n: usize, seed: u64) -> (AttentionLayer, Sample) {
        let layer = TeacherSpec::dense(d, m, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).expect("a valid recipe");
        let source = TeacherStream::new(&layer, k, InputDistribution::Gaussian, seed + 100, None);
        let sample = Sample::read(&source, 0..8, n).expect("a stream never fails");
        (layer, sample)
    }

    fn random(d: usize, m: usize, size: f64, rng: &mut ChaCha8Rng) -> Vec<Mat<f64>> {
        let scale = size / d as f64;
        (0..m).map(|_| Mat::from_fn(d, d, |_, _| scale * rng.sample::<f64, _>(rand_distr::StandardNormal))).collect()
    }

    /// `d cost / d Θ = −2 JᵀR`, exactly: Kaufman's approximation leaves the gradient untouched.
    #[test]
    fn gradient_is_that_of_finite_differences() {
        for seed in 0..4 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (_, sample) = problem(4, 3, 2, 60, seed);
            let thetas = random(4, 2, 2.0, &mut rng);
            let basis = random(4, 3, 2.0, &mut rng);
            for free in [Parametrisation::Full, Parametrisation::Span(basis)] {
                let at = project(&sample, &thetas);
                let (_, jr) = normal_equations(&sample, &thetas, &at, &free);
                let per_head = free.per_head(4);
                let direction: Vec<f64> = (0..2 * per_head).map(|_| rng.sample(rand_distr::StandardNormal)).collect();
                let moved = |t: f64| -> f64 {
                    let step: Vec<f64> = direction.iter().map(|v| t * v).collect();
                    let thetas: Vec<_> = thetas.iter().zip(step.chunks(per_head)).map(|(th, v)| th + free.matrix(4, v)).collect();
                    project(&sample, &thetas).cost
                };
                let numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                let analytic: f64 = -2.0 * direction.iter().enumerate().map(|(i, v)| v * jr[(i, 0)]).sum::<f64>();
                assert!((numeric / analytic - 1.0).abs() < 1e-5, "{numeric} against {analytic}");
            }
        }
    }

    /// `JᵀP⊥J` from sums equals the Jacobian by finite differences of the model at fixed W, projected and multiplied out.
    #[test]
    fn normal_matrix_is_that_of_the_projected_jacobian() {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let (_, sample) = problem(3, 3, 2, 30, 9);
        let thetas = random(3, 2, 2.0, &mut rng);
        let at = project(&sample, &thetas);
        let (jj, _) = normal_equations(&sample, &thetas, &at, &Parametrisation::Full);
        let rows = sample.rows();
        let pooled = |thetas: &[Mat<f64>]| {
            let mut state = RowState { p: vec![0.0; 6], z: vec![0.0; 6] };
            Mat::from_fn(rows, 6, |r, j| {
                row_forward(&sample, thetas, r, &mut state);
                state.z[j]
            })
        };
        let phi = pooled(&thetas);
        let columns: Vec<Mat<f64>> = (0..18)
            .map(|c| {
                let shifted = |t: f64| {
                    let mut moved = thetas.clone();
                    moved[c / 9][(c % 9 / 3, c % 3)] += t;
                    pooled(&moved) * &at.w
                };
                let column = (shifted(1e-6) - shifted(-1e-6)) * faer::Scale(0.5e6);
                &column - &phi * solve_spd(at.gram.as_ref(), (phi.transpose() * &column).as_ref())
            })
            .collect();
        for i in 0..18 {
            for j in 0..18 {
                let expected = crate::linalg::inner(columns[i].as_ref(), columns[j].as_ref());
                assert!((jj[(i, j)] - expected).abs() < 1e-5 * jj[(i, i)].max(1.0), "entry {i},{j}");
            }
        }
    }

    /// Success rate stated: at 6 times the counting bound, 9 of 10 random starts reach the teacher.
    #[test]
    fn random_starts_reach_the_teacher() {
        let mut reached = 0;
        for seed in 0..10 {
            let (layer, sample) = problem(5, 4, 2, 80, seed);
            let start = random(5, 2, 2.0, &mut ChaCha8Rng::seed_from_u64(seed + 50));
            let found = fit(&sample, &start, &Parametrisation::Full, &Settings::default()).expect("good input");
            let distance = layer.distance(&found.layer().expect("finite")).expect("same shape");
            reached += usize::from(found.nmse < 1e-24 && distance.worst_theta() < 1e-8 && distance.worst_w() < 1e-8);
        }
        assert!(reached >= 9, "{reached} of 10");
    }

    #[test]
    fn a_span_is_never_left() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (layer, sample) = problem(4, 3, 2, 60, 3);
        let basis: Vec<Mat<f64>> = layer.heads().iter().map(|h| h.theta.to_dense()).collect();
        let start = vec![&basis[0] + &basis[1] * faer::Scale(0.4), &basis[1] - &basis[0] * faer::Scale(0.3)];
        let found = fit(&sample, &start, &Parametrisation::Span(basis.clone()), &Settings::default()).expect("good input");
        assert!(found.nmse < 1e-20, "the heads themselves are in the span: {}", found.nmse);
        let off_span = random(4, 2, 2.0, &mut rng);
        let other =
            fit(&sample, &off_span, &Parametrisation::Span(vec![basis[0].clone()]), &Settings::default()).expect("good input");
        for (theta, start) in other.thetas.iter().zip(&off_span) {
            let moved = theta - start;
            let along = crate::linalg::inner(moved.as_ref(), basis[0].as_ref()) / frobenius(basis[0].as_ref()).powi(2);
            let rest = &moved - &basis[0] * faer::Scale(along);
            assert!(frobenius(rest.as_ref()) < 1e-9 * (1.0 + row_major(moved.as_ref()).iter().map(|v| v.abs()).sum::<f64>()));
        }
    }
}
