//! The body being sculpted: how wide it is with ever more of its slabs. Nothing is learned from it; it is there to be looked at.
//!
//! With `K_n` the body of the n best rows, its width along a unit vector u is
//!
//! ```text
//! max_{Θ ∈ K_n} ⟨u, Θ⟩ − min_{Θ ∈ K_n} ⟨u, Θ⟩
//! ```
//!
//! along the directions of the hull, where it must stay wide, since all heads are in it; along the hull's centre; and along some directions drawn at
//! random across both, where it should shrink to nothing.

use super::Run;
use crate::Result;
use crate::convex;
use crate::sculpt::agreement::AgreeingRow;
use crate::sculpt::proxy::Proxy;
use crate::sculpt::record::Widths;
use crate::sculpt::span::{Hull, norm};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Directions across the hull.
const OTHERS: usize = 4;
/// Rows, per dimension, that the first and the last body have; each has twice as many as the one before.
const FIRST: f64 = 0.25;
const LAST: f64 = 8.0;

/// Random unit vectors, orthogonal to the centre and the directions of the hull.
fn across(hull: &Hull, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let unit = |mut v: Vec<f64>| {
        let size = norm(&v);
        v.iter_mut().for_each(|x| *x /= size);
        v
    };
    let inside: Vec<Vec<f64>> = hull.directions.iter().cloned().chain([unit(hull.centre.clone())]).collect();
    let draw = |_| {
        let mut v: Vec<f64> = hull.centre.iter().map(|_| rng.sample(StandardNormal)).collect();
        for u in &inside {
            let along: f64 = u.iter().zip(&v).map(|(u, v)| u * v).sum();
            v.iter_mut().zip(u).for_each(|(v, u)| *v -= along * u);
        }
        unit(v)
    };
    (0..OTHERS).map(draw).collect()
}

impl Run<'_> {
    /// Widths of the body of the `count` best rows along these unit vectors, by linear programs; `None` if these rows have no point in common.
    pub(super) fn widths_along<'v>(
        &self,
        rows: &[AgreeingRow],
        count: usize,
        directions: impl Iterator<Item = &'v Vec<f64>>,
    ) -> Result<Option<Vec<f64>>> {
        let Some(proxy) = Proxy::of(&rows[..count.min(rows.len())], self.radius(), 0.05)? else { return Ok(None) };
        let settings = convex::Settings { tolerance: 1e-6, ..Default::default() };
        let width = |direction: &Vec<f64>| {
            let extent = convex::extent(&proxy.body, direction, &settings)?;
            Ok(extent.high - extent.low)
        };
        directions.map(width).collect::<Result<_>>().map(Some)
    }

    /// Widths of ever more rows.
    pub(super) fn sculpture(&self, rows: &[AgreeingRow], hull: &Hull) -> Result<Vec<Widths>> {
        let size = norm(&hull.centre);
        let centre: Vec<f64> = hull.centre.iter().map(|x| x / size).collect();
        let others = across(hull, self.settings.seed);
        let p = self.dimensions() as f64;
        let mut sculpture = Vec::new();
        let mut share = FIRST;
        while share <= LAST && (share * p) as usize <= rows.len() {
            let count = (share * p) as usize;
            share *= 2.0;
            let directions = hull.directions.iter().chain([&centre]).chain(&others);
            let Some(mut widths) = self.widths_along(rows, count, directions)? else { continue };
            let others = widths.split_off(hull.directions.len() + 1);
            let centre = widths.pop().unwrap_or(f64::NAN);
            sculpture.push(Widths { rows: count as u64, hull: widths, centre, others });
        }
        Ok(sculpture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_across_are_orthonormal_to_the_hull() {
        let directions = vec![vec![0.6, 0.8, 0.0, 0.0, 0.0, 0.0]];
        let hull = Hull { centre: vec![-1.6, 1.2, 1.0, 0.0, 0.0, 0.0], directions, spectrum: Vec::new(), rows: 9 };
        for u in across(&hull, 3) {
            let along = |v: &[f64]| u.iter().zip(v).map(|(u, v)| u * v).sum::<f64>().abs();
            assert!(along(&hull.centre) < 1e-12 && along(&hull.directions[0]) < 1e-12 && (norm(&u) - 1.0).abs() < 1e-12);
        }
    }
}
