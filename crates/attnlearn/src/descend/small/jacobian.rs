//! The normal equations of a Gauss–Newton step. Kaufman's approximation takes for the Jacobian `P⊥ J` with `J: dΘ ↦ dΦ[dΘ] W`, where
//!
//! ```text
//! dz_i = Σ_b p_ib (dℓ_b − Σ_c p_ic dℓ_c) x_b = C_i dΘ_iᵀ x_a,     C_i = Σ_b p_ib (x_b − z_i)(x_b − z_i)ᵀ,
//! ```
//!
//! so that `dz_iᵀ W_i = x_aᵀ dΘ_i E_i` with `E_i = C_i W_i`. By `JᵀP⊥J = JᵀJ − (ΦᵀJ)ᵀ(ΦᵀΦ)⁻¹(ΦᵀJ)` only sums over rows are needed, never
//! the Jacobian itself; and `P⊥R = R`.

use crate::descend::small::project::{Projected, RowState, over_chunks, row_forward};
use crate::descend::small::sample::Sample;
use crate::linalg::{Mat, solve_spd};
use faer::linalg::matmul::matmul;
use faer::{Accum, Par};

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
    pub(crate) fn per_head(&self, d: usize) -> usize {
        match self {
            Self::Full => d * d,
            Self::Span(basis) => basis.len(),
        }
    }

    /// `dΘ` of one head from its free numbers.
    pub(crate) fn matrix(&self, d: usize, values: &[f64]) -> Mat<f64> {
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

/// `JᵀP⊥J` and `JᵀR`.
pub(crate) fn normal_equations(
    sample: &Sample,
    thetas: &[Mat<f64>],
    at: &Projected,
    free: &Parametrisation,
) -> (Mat<f64>, Mat<f64>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descend::small::project::project;
    use crate::descend::testing::{problem, random};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

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
}
