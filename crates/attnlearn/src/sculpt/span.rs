//! Phase 5: the span of the attention matrices.
//!
//! Every accepted row says `⟨Θ_i, v_r⟩ = ℓ_r` for all heads at once, that is, `⟨(Θ_i, 1), (v_r, −ℓ_r)⟩ = 0`: the vectors `(Θ_i, 1)` span the
//! kernel of the rows `ṽ_r = (v_r, −ℓ_r)`. So the m bottom eigenvectors of `Σ_r w_r ṽ_r ṽ_rᵀ` give the affine hull of the heads: its
//! direction space `span{Θ_i − Θ_j}` (where the body K stays wide) and its minimum-norm point `Θ̄`, both at once.
//!
//! Rows are weighted by `1/(η² + η₀²)` and, since a few of them agree by accident only, re-weighted by their distance to the kernel
//! (Cauchy weights, scale the median distance). When fewer rows than directions were accepted, K stays wide in more than m−1 directions:
//! the hull is then given more dimensions than m, and the search has more room.

use super::agreement::AgreeingRow;
use super::proxy::Proxy;
use crate::linalg::{Mat, symmetric_eigen};
use crate::{Result, convex};
use faer::linalg::matmul::matmul;
use faer::{Accum, Par};

/// An affine subspace of attention matrices (as vectors of R^{d²}): `Θ̄ + span(directions)`.
#[derive(Clone, Debug)]
pub struct Hull {
    /// The point of least norm, orthogonal to all directions.
    pub centre: Vec<f64>,
    /// Orthonormal directions.
    pub directions: Vec<Vec<f64>>,
    /// All eigenvalues of the weighted rows, increasing.
    pub spectrum: Vec<f64>,
    /// Rows used.
    pub rows: usize,
}

/// Rounds of re-weighting.
const ROUNDS: usize = 6;

impl Hull {
    /// The hull of dimension `dimension` (directions and centre: m for m heads in general position) seen by the best `count` rows.
    pub(crate) fn fit(rows: &[AgreeingRow], count: usize, dimension: usize) -> Option<Self> {
        let rows = &rows[..count.min(rows.len())];
        if rows.is_empty() {
            return None;
        }
        // (Θ, 1) is balanced by the size of Θ, which a first fit tells.
        let first = Self::fit_scaled(rows, dimension, 4.0)?;
        let size = norm(&first.centre);
        if !(0.1..100.0).contains(&size) {
            return Some(first);
        }
        Self::fit_scaled(rows, dimension, size)
    }

    fn fit_scaled(rows: &[AgreeingRow], dimension: usize, scale: f64) -> Option<Self> {
        let p = rows[0].x_a.len() * rows[0].gap.len();
        if dimension > p {
            return None;
        }
        let v = extended(rows, scale);
        let typical = rows[rows.len() / 2].eta;
        let prior: Vec<f64> = rows.iter().map(|r| 1.0 / (r.eta * r.eta + typical * typical + 1e-12)).collect();
        let mut weights = prior.clone();
        let mut eigen = kernel(&v, &weights)?;
        for _ in 0..ROUNDS {
            let t = &v * eigen.1.as_ref().subcols(0, dimension);
            let distance: Vec<f64> = (0..rows.len()).map(|r| (0..dimension).map(|j| t[(r, j)].powi(2)).sum()).collect();
            // Never below the rows' own uncertainty: the kernel would fall into the span of a few of them.
            let scale = super::Quantiles::of(distance.iter().copied()).median.max(4.0 * typical * typical).max(1e-12);
            for r in 0..rows.len() {
                weights[r] = prior[r] / (1.0 + distance[r] / scale);
            }
            eigen = kernel(&v, &weights)?;
        }
        let (spectrum, vectors) = eigen;
        let kernel: Vec<Vec<f64>> = (0..dimension).map(|j| (0..=p).map(|i| vectors[(i, j)]).collect()).collect();
        let (centre, directions) = affine(&kernel, scale)?;
        Some(Self { centre, directions, spectrum, rows: rows.len() })
    }

    /// The paper-shaped way to the same hull: the m−1 widest directions of the body of these rows, by linear programs, and its point of
    /// least norm. Every slab counts in full here, so one accidental row widens the whole body.
    pub(crate) fn by_linear_programs(rows: &[AgreeingRow], m: usize, radius: f64, seed: u64) -> Result<Option<Self>> {
        let Some(proxy) = Proxy::of(rows, radius, 0.02)? else { return Ok(None) };
        let settings = convex::Settings { tolerance: 1e-7, ..Default::default() };
        let found = convex::wide_directions(&proxy.body, m - 1, seed, &convex::WideSettings::default(), &settings)?;
        let directions: Vec<Vec<f64>> = found.directions.col_iter().map(|c| c.iter().copied().collect()).collect();
        let mut centre = proxy.point;
        orthogonalise(&mut centre, &directions);
        let spectrum = Self::fit(rows, rows.len(), m).map_or_else(Vec::new, |hull| hull.spectrum);
        let complete = directions.len() + 1 == m && !spectrum.is_empty();
        Ok(complete.then_some(Self { centre, directions, spectrum, rows: rows.len() }))
    }

    /// The matrices (as vectors) that span the hull's linear span: centre first, then the directions.
    pub fn basis(&self) -> Vec<Vec<f64>> {
        std::iter::once(self.centre.clone()).chain(self.directions.iter().cloned()).collect()
    }

    /// How many heads the spectrum suggests: the number of eigenvalues before the largest relative jump, at most `most`.
    pub fn suggested_heads(&self, most: usize) -> usize {
        // Below this an eigenvalue is all noise, and jumps between such mean nothing.
        let floor = 1e-6 * self.spectrum[self.spectrum.len() / 2];
        let jump = |j: usize| self.spectrum[j].max(floor) / self.spectrum[j - 1].max(floor);
        (1..=most.min(self.spectrum.len() - 1)).max_by(|a, b| jump(*a).total_cmp(&jump(*b))).unwrap_or(1)
    }
}

/// Rows `(v, −ℓ/scale)` scaled to norm 1.
fn extended(rows: &[AgreeingRow], scale: f64) -> Mat<f64> {
    let p = rows[0].x_a.len() * rows[0].gap.len();
    let mut v = Mat::zeros(rows.len(), p + 1);
    for (r, row) in rows.iter().enumerate() {
        let last = -row.log_odds / (row.norm() * scale);
        let size = (1.0 + last * last).sqrt();
        for (j, x) in row.direction().into_iter().enumerate() {
            v[(r, j)] = x / size;
        }
        v[(r, p)] = last / size;
    }
    v
}

/// Eigenvalues, increasing, and eigenvectors of `Σ_r w_r v_r v_rᵀ / Σ w`.
fn kernel(v: &Mat<f64>, w: &[f64]) -> Option<(Vec<f64>, Mat<f64>)> {
    let total: f64 = w.iter().sum();
    let scaled = Mat::from_fn(v.nrows(), v.ncols(), |r, j| (w[r] / total).sqrt() * v[(r, j)]);
    let mut gram = Mat::zeros(v.ncols(), v.ncols());
    matmul(gram.as_mut(), Accum::Replace, scaled.transpose(), scaled.as_ref(), 1.0, Par::Seq);
    symmetric_eigen(gram.as_ref())
}

/// The affine subspace `{Θ : (Θ, scale) ∈ span(kernel)}` as centre and directions.
fn affine(kernel: &[Vec<f64>], scale: f64) -> Option<(Vec<f64>, Vec<Vec<f64>>)> {
    let p = kernel[0].len() - 1;
    // Rotate the kernel so that one vector carries the whole last coordinate; the others are directions.
    let last: Vec<f64> = kernel.iter().map(|k| k[p]).collect();
    let size = norm(&last);
    if size < 1e-9 {
        return None;
    }
    let carrier: Vec<f64> = (0..p).map(|i| kernel.iter().zip(&last).map(|(k, l)| k[i] * l / size).sum()).collect();
    let mut directions: Vec<Vec<f64>> = Vec::new();
    for k in kernel {
        let along: f64 = k[p] / size;
        let mut direction: Vec<f64> = (0..p).map(|i| k[i] - along * carrier[i]).collect();
        orthogonalise(&mut direction, &directions);
        let length = norm(&direction);
        if length > 1e-6 && directions.len() + 1 < kernel.len() {
            direction.iter_mut().for_each(|x| *x /= length);
            directions.push(direction);
        }
    }
    let mut centre: Vec<f64> = carrier.iter().map(|c| c * scale / size).collect();
    orthogonalise(&mut centre, &directions);
    Some((centre, directions))
}

/// Subtracts from `v` its components along orthonormal vectors (twice, for the last digits).
pub(crate) fn orthogonalise(v: &mut [f64], against: &[Vec<f64>]) {
    for _ in 0..2 {
        for u in against {
            let along: f64 = u.iter().zip(v.iter()).map(|(a, b)| a * b).sum();
            v.iter_mut().zip(u).for_each(|(v, u)| *v -= along * u);
        }
    }
}

/// `‖v‖`.
pub(crate) fn norm(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::row_major;
    use crate::teacher::TeacherSpec;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Rows on which all heads of a random layer agree up to `noise`, built by solving for a query token.
    fn agreeing_rows(thetas: &[Mat<f64>], count: usize, noise: f64, rng: &mut ChaCha8Rng) -> Vec<AgreeingRow> {
        let d = thetas[0].nrows();
        let mut normal = || -> f64 { rng.sample(rand_distr::StandardNormal) };
        (0..count)
            .map(|_| {
                let gap: Vec<f64> = (0..d).map(|_| normal()).collect();
                let mut x_a: Vec<f64> = (0..d).map(|_| normal()).collect();
                // Make x_a orthogonal to (Θ_i − Θ_1) gap for all i.
                let image = |t: &Mat<f64>| -> Vec<f64> { (0..d).map(|i| (0..d).map(|j| t[(i, j)] * gap[j]).sum()).collect() };
                let mut differences: Vec<Vec<f64>> = Vec::new();
                for theta in &thetas[1..] {
                    let mut v: Vec<f64> = image(theta).iter().zip(image(&thetas[0])).map(|(a, b)| a - b).collect();
                    orthogonalise(&mut v, &differences);
                    let size = norm(&v);
                    v.iter_mut().for_each(|x| *x /= size);
                    differences.push(v);
                }
                orthogonalise(&mut x_a, &differences);
                let logit: f64 = x_a.iter().zip(image(&thetas[0])).map(|(a, b)| a * b).sum();
                let delta = noise * normal();
                AgreeingRow { eta: noise, delta: noise, log_odds: logit + delta, x_a, gap }
            })
            .collect()
    }

    /// Largest sine of the angle between a head and the linear span of the hull.
    fn worst_sine(hull: &Hull, thetas: &[Mat<f64>]) -> f64 {
        let mut basis: Vec<Vec<f64>> = Vec::new();
        for mut v in hull.basis() {
            orthogonalise(&mut v, &basis);
            let size = norm(&v);
            v.iter_mut().for_each(|x| *x /= size);
            basis.push(v);
        }
        let sine = |theta: &Mat<f64>| {
            let mut v = row_major(theta.as_ref());
            let size = norm(&v);
            orthogonalise(&mut v, &basis);
            norm(&v) / size
        };
        thetas.iter().map(sine).fold(0.0, f64::max)
    }

    #[test]
    fn span_error_vanishes_with_exact_slabs() {
        for (seed, m) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let layer = TeacherSpec::dense(5, m, 4.0).draw(&mut rng).expect("a valid recipe");
            let thetas: Vec<_> = layer.heads().iter().map(|h| h.theta.to_dense()).collect();
            let errors: Vec<f64> = [1e-1, 1e-3, 0.0]
                .iter()
                .map(|noise| {
                    let rows = agreeing_rows(&thetas, 120, *noise, &mut rng);
                    worst_sine(&Hull::fit(&rows, 120, m).expect("enough rows"), &thetas)
                })
                .collect();
            assert!(errors[0] < 0.3 && errors[1] < 3e-3 && errors[2] < 1e-6, "m = {m}: {errors:?}");
        }
    }

    #[test]
    fn linear_programs_find_the_same_hull() {
        for (seed, m) in [(21, 1), (22, 2), (23, 3)] {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let layer = TeacherSpec::dense(5, m, 4.0).draw(&mut rng).expect("a valid recipe");
            let thetas: Vec<_> = layer.heads().iter().map(|h| h.theta.to_dense()).collect();
            let rows = agreeing_rows(&thetas, 300, 1e-3, &mut rng);
            let spectral = Hull::fit(&rows, 300, m).expect("enough rows");
            let programs = Hull::by_linear_programs(&rows, m, 40.0, 1).expect("good input").expect("a body");
            assert!(worst_sine(&spectral, &thetas) < 3e-3, "eigenvectors, m = {m}");
            assert!(worst_sine(&programs, &thetas) < 3e-2, "linear programs, m = {m}: {}", worst_sine(&programs, &thetas));
            let apart: Vec<f64> = spectral.centre.iter().zip(&programs.centre).map(|(a, b)| a - b).collect();
            assert!(norm(&apart) < 0.05 * norm(&spectral.centre), "minimum-norm points, m = {m}");
        }
    }

    #[test]
    fn minimum_norm_point_has_equal_inner_products() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let layer = TeacherSpec::dense(5, 3, 4.0).draw(&mut rng).expect("a valid recipe");
        let thetas: Vec<_> = layer.heads().iter().map(|h| h.theta.to_dense()).collect();
        let hull = Hull::fit(&agreeing_rows(&thetas, 150, 0.0, &mut rng), 150, 3).expect("enough rows");
        let square = norm(&hull.centre).powi(2);
        for theta in &thetas {
            let inner: f64 = row_major(theta.as_ref()).iter().zip(&hull.centre).map(|(a, b)| a * b).sum();
            assert!((inner / square - 1.0).abs() < 1e-6, "⟨Θ_i, Θ̄⟩ = ‖Θ̄‖²: {inner} against {square}");
        }
    }

    #[test]
    fn the_spectrum_counts_the_heads() {
        for m in 1..=4 {
            let mut rng = ChaCha8Rng::seed_from_u64(10 + m as u64);
            let layer = TeacherSpec::dense(5, m, 4.0).draw(&mut rng).expect("a valid recipe");
            let thetas: Vec<_> = layer.heads().iter().map(|h| h.theta.to_dense()).collect();
            let rows = agreeing_rows(&thetas, 200, 1e-3, &mut rng);
            assert_eq!(Hull::fit(&rows, 200, m).expect("enough rows").suggested_heads(6), m);
        }
    }
}
