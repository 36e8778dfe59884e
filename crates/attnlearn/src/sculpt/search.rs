//! Phase 6: search in the span, regress the projections.
//!
//! Inside the affine hull `Θ̄ + span(D)` every tuple of candidate attention matrices leaves an ordinary linear regression for the
//! projections. Two searches:
//!
//! - the paper's **net** for m ≤ 2: candidates `Θ̄ + t D_1` for t on a grid, all pairs of them, every pair scored by its regression;
//! - the **in-span optimisation** for any m: variable projection over the coordinates of the heads in the span, from several starts.
//!   For orthogonal heads of equal norm the `Θ_i − Θ̄` form a regular simplex of radius `‖Θ̄‖ √(m−1)`, so the starts are randomly rotated
//!   simplices of that size.

use super::fit::{Fit, FitSettings, Parametrisation, fit, heads};
use super::span::{Hull, norm, orthogonalise};
use crate::Result;
use crate::engine::Batch;
use crate::linalg::{Mat, from_row_major, solve_spd};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Points of the net along the hull's direction, from −3 to 3 times the radius of the simplex.
const NET: usize = 49;

/// The best pair of points `Θ̄ + t D` on the net (m = 2), or the centre alone (m = 1).
pub(crate) fn net(sample: &Batch<f64>, hull: &Hull) -> Vec<Mat<f64>> {
    let d = sample.shape.d;
    let centre = from_row_major(d, d, &hull.centre);
    let Some(direction) = hull.directions.first() else { return vec![centre] };
    let direction = from_row_major(d, d, direction);
    let radius = norm(&hull.centre);
    let candidates: Vec<Mat<f64>> = (0..NET)
        .map(|i| {
            let t = 3.0 * radius * (2.0 * i as f64 / (NET - 1) as f64 - 1.0);
            &centre + &direction * faer::Scale(t)
        })
        .collect();
    // One Gram matrix, of which the lower triangle is there, holds the regressions of all pairs.
    let all = heads(sample.shape, &candidates);
    let (gram, cross) = sample.pooled_moments(&all.form, &all.values);
    let entry = |a: usize, b: usize| gram[(a.max(b), a.min(b))];
    let part = |i: usize, j: usize| Mat::from_fn(2 * d, 2 * d, |a, b| entry(at(i, j, d, a), at(i, j, d, b)));
    let mut best = (f64::MIN, 0, 1);
    for i in 0..NET {
        for j in 0..i {
            // Without projections what is missed is −Y.
            let c = Mat::from_fn(2 * d, cross.ncols(), |a, o| -cross[(at(i, j, d, a), o)]);
            let w = solve_spd(part(i, j).as_ref(), c.as_ref());
            let explained = crate::linalg::inner(w.as_ref(), c.as_ref());
            if explained > best.0 {
                best = (explained, i, j);
            }
        }
    }
    vec![candidates[best.1].clone(), candidates[best.2].clone()]
}

/// Row of the Gram matrix of all candidates for entry `a` of the pair (i, j).
fn at(i: usize, j: usize, d: usize, a: usize) -> usize {
    if a < d { i * d + a } else { j * d + a - d }
}

/// What the search may spend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Random starts at most.
    pub starts: usize,
    /// Stop at the first start below this NMSE on the sample.
    pub enough: f64,
}

/// The best heads found in the span, from the given starts first and then from random simplices.
pub(crate) fn in_span(
    sample: &Batch<f64>,
    hull: &Hull,
    m: usize,
    given: &[Vec<Mat<f64>>],
    effort: Effort,
    seed: u64,
) -> Result<Option<Fit>> {
    let d = sample.shape.d;
    let basis: Vec<Mat<f64>> = hull.basis().iter().map(|b| from_row_major(d, d, b)).collect();
    let free = Parametrisation::Span(basis);
    let settings = FitSettings { steps: 30, goal: 1e-9, progress: 2e-2 };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut best: Option<Fit> = None;
    let random = (0..effort.starts).map(|_| simplex(hull, m, d, &mut rng));
    for start in given.iter().map(|heads| inside(hull, heads, d)).chain(random) {
        let found = fit(sample, &start, &free, &settings)?;
        if best.as_ref().is_none_or(|b| found.nmse < b.nmse) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|b| b.nmse < effort.enough) {
            break;
        }
    }
    Ok(best)
}

/// Heads at the corners of a randomly rotated regular simplex about the centre of the hull.
fn simplex(hull: &Hull, m: usize, d: usize, rng: &mut ChaCha8Rng) -> Vec<Mat<f64>> {
    let radius = norm(&hull.centre).max(1.0) * ((m as f64) - 1.0).max(0.0).sqrt();
    // m orthonormal vectors minus their mean are a simplex; random vectors serve when the hull has fewer directions.
    let room = hull.directions.len().max(1);
    let mut frame: Vec<Vec<f64>> = Vec::new();
    for _ in 0..m {
        let mut v: Vec<f64> = (0..room + 1).map(|_| rng.sample(StandardNormal)).collect();
        orthogonalise(&mut v, &frame);
        let size = norm(&v).max(1e-9);
        v.iter_mut().for_each(|x| *x /= size);
        frame.push(v);
    }
    let mean: Vec<f64> = (0..=room).map(|j| frame.iter().map(|v| v[j]).sum::<f64>() / m as f64).collect();
    frame
        .iter()
        .map(|v| {
            // The first coordinate of the frame stands for the centre's direction and is dropped.
            let offset: Vec<f64> = (1..=room).map(|j| v[j] - mean[j]).collect();
            let size = norm(&offset).max(1e-9);
            let mut theta = hull.centre.clone();
            for (c, direction) in offset.iter().zip(&hull.directions) {
                theta.iter_mut().zip(direction).for_each(|(t, x)| *t += radius * c / size * x);
            }
            from_row_major(d, d, &theta)
        })
        .collect()
}

/// Heads projected onto the linear span of the hull.
fn inside(hull: &Hull, heads: &[Mat<f64>], d: usize) -> Vec<Mat<f64>> {
    let mut basis = hull.directions.clone();
    let mut centre = hull.centre.clone();
    let size = norm(&centre).max(1e-12);
    centre.iter_mut().for_each(|x| *x /= size);
    basis.push(centre);
    heads
        .iter()
        .map(|theta| {
            let v = crate::linalg::row_major(theta.as_ref());
            let mut rest = v.clone();
            orthogonalise(&mut rest, &basis);
            from_row_major(d, d, &v.iter().zip(&rest).map(|(v, r)| v - r).collect::<Vec<_>>())
        })
        .collect()
}

/// Heads found without any span, by variable projection over all parameters from random starts of the given norm: what the search does
/// while the body has not been sculpted enough to have a span.
pub(crate) fn open(sample: &Batch<f64>, m: usize, size: f64, effort: Effort, seed: u64) -> Result<Option<Fit>> {
    let d = sample.shape.d;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let settings = FitSettings { goal: 1e-10, ..FitSettings::default() };
    let mut best: Option<Fit> = None;
    for _ in 0..effort.starts {
        let scale = size / d as f64;
        let start: Vec<Mat<f64>> =
            (0..m).map(|_| Mat::from_fn(d, d, |_, _| scale * rng.sample::<f64, _>(StandardNormal))).collect();
        let found = fit(sample, &start, &Parametrisation::Full, &settings)?;
        if best.as_ref().is_none_or(|b| found.nmse < b.nmse) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|b| b.nmse < effort.enough) {
            break;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{examples, hull_of_two, relative, teacher, thetas};
    use super::*;

    /// Relative error of the worse head, in the better order.
    fn worst(found: &[Mat<f64>], truth: &[Mat<f64>]) -> f64 {
        let error = |i: usize, j: usize| relative(&found[i], &truth[0]).max(relative(&found[j], &truth[1]));
        error(0, 1).min(error(1, 0))
    }

    /// On the exact hull of two heads, over 4 seeds: the net comes within its mesh, the optimisation to the heads themselves.
    #[test]
    fn both_searches_find_the_heads_in_their_hull() {
        for seed in 0..4 {
            let layer = teacher(6, 2, 5.0, seed);
            let truth = thetas(&layer);
            let hull = hull_of_two(&truth);
            let sample = Batch::read(&examples(&layer, 3), 0..2, 512).expect("a stream never fails");
            let on_net = net(&sample, &hull);
            let mesh = 6.0 * norm(&hull.centre) / (NET - 1) as f64;
            assert!(worst(&on_net, &truth) < 1.01 * mesh / 5.0, "seed {seed}: {}", worst(&on_net, &truth));
            let effort = Effort { starts: 6, enough: 1e-8 };
            for given in [Vec::new(), vec![on_net]] {
                let found = in_span(&sample, &hull, 2, &given, effort, seed).expect("good input").expect("a fit");
                assert!(worst(&found.thetas(), &truth) < 1e-3, "seed {seed}: {}", worst(&found.thetas(), &truth));
            }
        }
    }

    #[test]
    fn random_simplices_lie_in_the_hull() {
        let truth = thetas(&teacher(5, 2, 4.0, 1));
        let hull = hull_of_two(&truth);
        for theta in simplex(&hull, 2, 5, &mut ChaCha8Rng::seed_from_u64(3)) {
            let mut rest = crate::linalg::row_major(theta.as_ref());
            orthogonalise(&mut rest, &hull.directions);
            let off: Vec<f64> = rest.iter().zip(&hull.centre).map(|(a, b)| a - b).collect();
            assert!(norm(&off) < 1e-9);
        }
    }
}
