//! The linear half: for fixed attention matrices the projections are least squares.
//!
//! ```text
//! W(Θ) = argmin_W ‖Y − ΦW‖²,     Φ = [z_1 … z_m],     z_i = Σ_b p_ib x_b
//! ```

use crate::descend::small::sample::Sample;
use crate::linalg::{Mat, solve_spd};
use crate::parallel;

/// Rows whose sums are formed together.
const CHUNK: usize = 96;

/// `W(Θ)` and the error that remains.
#[derive(Clone, Debug)]
pub struct Projected {
    /// `W`, the projections of all heads stacked, md×d_out.
    pub w: Mat<f64>,
    /// `ΦᵀΦ`.
    pub(crate) gram: Mat<f64>,
    /// `‖Y − ΦW‖²`.
    pub cost: f64,
}

/// What the forward pass of one row leaves behind.
pub(crate) struct RowState {
    /// `p_i` of all heads, `[m][k]`.
    pub p: Vec<f64>,
    /// `z_i` of all heads, `[m][d]`.
    pub z: Vec<f64>,
}

/// Attention rows and pooled tokens of row `r`.
pub(crate) fn row_forward(sample: &Sample, thetas: &[Mat<f64>], r: usize, state: &mut RowState) {
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
pub(crate) fn over_chunks<R: Send>(rows: usize, map: impl Fn(std::ops::Range<usize>) -> R + Sync, fold: impl FnMut(R)) {
    let chunks: Vec<_> = (0..rows).step_by(CHUNK).map(|from| from..rows.min(from + CHUNK)).collect();
    // A few chunks at a time: their sums are large.
    let mut fold = fold;
    for group in chunks.chunks(16) {
        let parts: Vec<R> = parallel::map(group, |range| map(range.clone()));
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
