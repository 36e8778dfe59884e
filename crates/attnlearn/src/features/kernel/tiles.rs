//! Kernel matrices tile by tile: a few sets by a panel of sixteen, each tile a task of its own.

use super::arc::kappa;
use super::biased::{Biased, Scratch};
use super::pack::{Packed, Panel};
use crate::linalg::Mat;
use crate::linalg::lanes::{LANES, vectorised};
use crate::linalg::product::row_dots;
use faer::MatMut;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Rows of a tile: enough to make the interleaving of its panel cheap.
const ROWS: usize = 128;

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
    let mut out = Mat::zeros(a.len(), b.len());
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

    /// Long flat loops over `[key][lane]` between the register tiles of the products: the loop vectoriser takes them whole.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { expectation, sets, row, panel, mut out } = self;
        let line = panel.keys * LANES;
        let (mut query, mut r) = ([0.0; LANES], vec![0.0; sets.places * line]);
        let (mut rho, mut mean, mut scratch) = (vec![0.0; line], vec![0.0; line], Scratch::default());
        for i in 0..out.nrows() {
            let (set, width) = (row + i, sets.width);
            let (len, place) = (sets.lengths[set], set * sets.places);
            let x_0 = &sets.queries[set * sets.query_width..(set + 1) * sets.query_width];
            row_dots(simd, x_0, 1, sets.query_width, 1, &panel.query, &mut query);
            row_dots(simd, &sets.keys[place * width..], len, width, panel.keys, &panel.units, &mut r[..len * line]);
            let mut total = [0.0; LANES];
            for (key, r) in r[..len * line].chunks_exact(line.max(1)).enumerate() {
                for (rho, r) in rho.as_chunks_mut::<LANES>().0.iter_mut().zip(r.as_chunks::<LANES>().0) {
                    for l in 0..LANES {
                        rho[l] = query[l] * r[l];
                    }
                }
                match expectation {
                    Expectation::Centred | Expectation::Perceptron => {
                        for (mean, rho) in mean.iter_mut().zip(&rho) {
                            *mean = kappa(*rho);
                        }
                    }
                    Expectation::Biased(biased) => {
                        let [a, r, phi] = &panel.sides;
                        biased.fill(sets.sides[place + key], [a, r, phi], &rho, &mut scratch, &mut mean);
                    }
                }
                if !matches!(expectation, Expectation::Perceptron) {
                    for (mean, r) in mean.iter_mut().zip(r) {
                        *mean *= r;
                    }
                }
                let weight = sets.weights[place + key];
                for (mean, w) in mean.as_chunks::<LANES>().0.iter().zip(panel.weights.as_chunks::<LANES>().0) {
                    for l in 0..LANES {
                        total[l] = f64::mul_add(weight * w[l], mean[l], total[l]);
                    }
                }
            }
            for l in 0..out.ncols() {
                out[(i, l)] = total[l];
            }
        }
    }
}
