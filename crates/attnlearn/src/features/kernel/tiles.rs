//! Kernel matrices tile by tile: a few sets by a panel of sixteen, each tile a task of its own.

use super::arc::kappas;
use super::biased::{Biased, Scratch, Side};
use super::pack::{Packed, Panel};
use crate::linalg::lanes::{LANES, vectorised};
use crate::linalg::product::row_dots;
use crate::linalg::{Mat, staggered};
use faer::MatMut;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Rows of a tile: enough to make the interleaving of its panel cheap.
const ROWS: usize = 128;

/// Keys of a set that are taken together.
const KEYS: usize = 4;

/// The expectation `E(ρ)` of a pair and the power of `r` before it.
pub enum Expectation {
    /// `r κ(ρ)`.
    Centred,
    /// `r F(a, b; ρ)`.
    Biased(Box<Biased>),
    /// `κ(ρ)`.
    Perceptron,
}

/// `K(a_i, b_j)` for all pairs; with `symmetric`, `a` and `b` are the same and each pair is computed once. `None` if `stop`, which is
/// asked before every tile, said so.
pub fn matrix(
    expectation: &Expectation,
    a: &Packed,
    b: &Packed,
    symmetric: bool,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<Mat<f64>> {
    let mut out = staggered(a.len(), b.len());
    let mut tiles = Vec::new();
    let mut rest = out.as_mut();
    for first in (0..b.len()).step_by(LANES) {
        let (columns, others) = rest.split_at_col_mut(LANES.min(b.len() - first));
        rest = others;
        let mut row = if symmetric { first } else { 0 };
        let (_, mut below) = columns.split_at_row_mut(row);
        while below.nrows() > 0 {
            let height = ROWS.min(below.nrows());
            let (tile, others) = below.split_at_row_mut(height);
            tiles.push((row, first, tile));
            (row, below) = (row + height, others);
        }
    }
    tiles.into_par_iter().try_for_each(|(row, first, out)| {
        if stop() {
            return None;
        }
        let panel = b.panel(first);
        vectorised(Tile { expectation, sets: a, row, panel: &panel, out });
        Some(())
    })?;
    if symmetric {
        for j in 0..out.ncols() {
            for i in 0..j {
                out[(i, j)] = out[(j, i)];
            }
        }
    }
    Some(out)
}

/// `out[i][l] = K(set row + i, set l of the panel)`.
struct Tile<'a> {
    expectation: &'a Expectation,
    sets: &'a Packed,
    row: usize,
    panel: &'a Panel,
    out: MatMut<'a, f64>,
}

impl WithSimd for Tile<'_> {
    type Output = ();

    /// The keys of a set are taken [`KEYS`] at a time, so that their products with the panel stay in the first-level cache.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { expectation, sets, row, panel, mut out } = self;
        let line = panel.keys * LANES;
        let (mut query, mut r) = ([0.0; LANES], vec![0.0; KEYS * line]);
        let (mut rho, mut mean, mut scratch) = (Vec::new(), Vec::new(), Scratch::default());
        if matches!(expectation, Expectation::Biased(_)) {
            rho = vec![0.0; KEYS * line];
            mean = vec![0.0; KEYS * line];
        }
        for i in 0..out.nrows() {
            let (set, width) = (row + i, sets.width);
            let x_0 = &sets.queries[set * sets.query_width..(set + 1) * sets.query_width];
            row_dots(simd, x_0, 1, sets.query_width, 1, &panel.query, &mut query);
            let mut total = [0.0; LANES];
            for key in (0..sets.lengths[set]).step_by(KEYS) {
                let (count, place) = (KEYS.min(sets.lengths[set] - key), set * sets.places + key);
                let r = &mut r[..count * line];
                row_dots(simd, &sets.keys[place * width..], count, width, panel.keys, &panel.units, r);
                let weights = &sets.weights[place..place + count];
                match expectation {
                    Expectation::Centred => centred::<true>(weights, &query, panel, r, &mut total),
                    Expectation::Perceptron => centred::<false>(weights, &query, panel, r, &mut total),
                    Expectation::Biased(biased) => {
                        let (rho, mean) = (&mut rho[..count * line], &mut mean[..count * line]);
                        for (rho, r) in rho.as_chunks_mut::<LANES>().0.iter_mut().zip(r.as_chunks::<LANES>().0) {
                            for l in 0..LANES {
                                rho[l] = query[l] * r[l];
                            }
                        }
                        let sides = &sets.sides[place..place + count];
                        if let Ok(sides) = <&[Side; KEYS]>::try_from(sides) {
                            biased.fill(simd, sides, &panel.sides, rho, &mut scratch, mean);
                        } else {
                            for ((side, rho), mean) in sides.iter().zip(rho.chunks(line)).zip(mean.chunks_mut(line)) {
                                biased.fill(simd, &[*side], &panel.sides, rho, &mut scratch, mean);
                            }
                        }
                        for ((weight, r), mean) in weights.iter().zip(r.chunks(line)).zip(mean.chunks(line)) {
                            add(*weight, panel, r, mean, &mut total);
                        }
                    }
                }
            }
            for l in 0..out.ncols() {
                out[(i, l)] = total[l];
            }
        }
    }
}

/// `total += Σ_ij w_i w_j' r_ij^e κ(r_0 r_ij)`, lane by lane; `e` is 1 for attention, 0 for the perceptron.
#[inline(always)]
fn centred<const ATTENTION: bool>(weights: &[f64], query: &[f64; LANES], panel: &Panel, r: &[f64], total: &mut [f64; LANES]) {
    for (weight, r) in weights.iter().zip(r.chunks_exact((panel.keys * LANES).max(1))) {
        for (r, w) in r.as_chunks::<LANES>().0.iter().zip(panel.weights.as_chunks::<LANES>().0) {
            let mut rho = [0.0; LANES];
            for l in 0..LANES {
                rho[l] = query[l] * r[l];
            }
            let kappa = kappas(&rho);
            for l in 0..LANES {
                let term = if ATTENTION { r[l] * kappa[l] } else { kappa[l] };
                total[l] = f64::mul_add(weight * w[l], term, total[l]);
            }
        }
    }
}

/// `total += weight Σ_j w_j' r_j mean_j`, lane by lane.
#[inline(always)]
fn add(weight: f64, panel: &Panel, r: &[f64], mean: &[f64], total: &mut [f64; LANES]) {
    let (r, mean) = (r.as_chunks::<LANES>().0, mean.as_chunks::<LANES>().0);
    for ((w, r), mean) in panel.weights.as_chunks::<LANES>().0.iter().zip(r).zip(mean) {
        for l in 0..LANES {
            total[l] = f64::mul_add(weight * w[l], r[l] * mean[l], total[l]);
        }
    }
}
