//! The directions in which the body is widest (phase 5 of the learner: `K` is thin except along `span{Θ_i − Θ_j}`).
//!
//! The width of `K` along a unit vector `u` is that of the difference body,
//!
//! ```text
//! width(u) = max { ⟨u, x − y⟩ : x, y ∈ K }
//! ```
//!
//! Directions are found one after the other, each orthogonal to those before. From a random `u` the step
//!
//! ```text
//! w = P (x − y)   where x, y maximise ⟨u, x − y⟩,        u' = w / ‖w‖
//! ```
//!
//! (`P` projects onto what is left) never makes the width smaller: `width(u') ≥ ⟨u', w⟩ = ‖w‖ ≥ ⟨u, w⟩ = width(u)`.
//! A body that is thin but for a few directions needs a step or two, since `w` lies along those directions up to the
//! thickness of the rest.

use super::{Body, Settings, Status, extent};
use crate::linalg::Mat;
use crate::{Error, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// How the widest directions are searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WideSettings {
    /// Random directions from which each direction is searched; the widest result is kept. Default 1.
    pub starts: usize,
    /// Most steps `u ← w / ‖w‖` from one start. Default 6.
    pub max_steps: usize,
    /// A step that widens by less than this part is the last. Default 0.02.
    pub least_gain: f64,
}

impl Default for WideSettings {
    fn default() -> Self {
        Self { starts: 1, max_steps: 6, least_gain: 0.02 }
    }
}

/// The widest directions of a body.
#[derive(Clone, Debug)]
pub struct WideDirections {
    /// `p × count`: orthonormal columns, in the order found.
    pub directions: Mat<f64>,
    /// The width of the body along each.
    pub widths: Vec<f64>,
    /// Interior-point steps of all linear programs.
    pub iterations: usize,
    /// Solved; or empty, with fewer directions than asked; or stalled, when the width of some direction is imprecise.
    pub status: Status,
}

/// `count` orthonormal directions in which `K` is widest, found greedily from random starts drawn with `seed`.
pub fn wide_directions(body: &Body, count: usize, seed: u64, wide: &WideSettings, settings: &Settings) -> Result<WideDirections> {
    let p = body.dimension();
    if count > p {
        let problem = format!("{count} were asked for in {p} dimensions");
        return Err(Error::input("wide directions", problem, "ask for at most as many as there are coordinates"));
    }
    if wide.starts == 0 || wide.least_gain.is_nan() || wide.least_gain < 0.0 {
        let problem = format!("{} starts and a least gain of {}", wide.starts, wide.least_gain);
        return Err(Error::input("wide directions, settings", problem, "give a start or more and a gain ≥ 0"));
    }
    let mut found: Vec<Vec<f64>> = vec![];
    let mut widths = vec![];
    let (mut iterations, mut status) = (0, Status::Solved);
    for k in 0..count {
        let mut widest: Option<(f64, Vec<f64>, Status)> = None;
        for start in 0..wide.starts {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream((k * wide.starts + start) as u64);
            let mut u = random_direction(&found, p, &mut rng);
            let mut last = 0.0;
            for step in 0..=wide.max_steps {
                let e = extent(body, &u, settings)?;
                iterations += e.iterations;
                if let Status::Empty { .. } = e.status {
                    return Ok(WideDirections { directions: columns(&found, p), widths, iterations, status: e.status });
                }
                if widest.as_ref().is_none_or(|(width, ..)| e.width() > *width) {
                    widest = Some((e.width(), u.clone(), e.status));
                }
                if step > 0 && e.width() <= (1.0 + wide.least_gain) * last {
                    break;
                }
                last = e.width();
                let w = e.argmax.iter().zip(&e.argmin).map(|(x, y)| x - y).collect();
                let Some(next) = orthogonal_unit(w, &found) else { break }; // no width at all is left
                u = next;
            }
        }
        if let Some((width, u, how)) = widest {
            widths.push(width);
            found.push(u);
            if how != Status::Solved {
                status = how;
            }
        }
    }
    Ok(WideDirections { directions: columns(&found, p), widths, iterations, status })
}

/// A random unit vector orthogonal to `found`.
fn random_direction(found: &[Vec<f64>], p: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    loop {
        let normal = (0..p).map(|_| StandardNormal.sample(rng)).collect();
        if let Some(u) = orthogonal_unit(normal, found) {
            return u;
        }
    }
}

/// `P w / ‖P w‖`; nothing when `w` is (almost) in the span of `found`.
fn orthogonal_unit(mut w: Vec<f64>, found: &[Vec<f64>]) -> Option<Vec<f64>> {
    let norm = |w: &[f64]| w.iter().map(|w| w * w).sum::<f64>().sqrt();
    let whole = norm(&w);
    for _ in 0..2 {
        // Twice is enough: the second pass removes what rounding left of the first.
        for u in found {
            let along: f64 = w.iter().zip(u).map(|(w, u)| w * u).sum();
            w.iter_mut().zip(u).for_each(|(w, u)| *w -= along * u);
        }
    }
    let left = norm(&w);
    (left > 1e-10 * whole).then(|| w.iter().map(|w| w / left).collect())
}

fn columns(vectors: &[Vec<f64>], p: usize) -> Mat<f64> {
    Mat::from_fn(p, vectors.len(), |i, j| vectors[j][i])
}
