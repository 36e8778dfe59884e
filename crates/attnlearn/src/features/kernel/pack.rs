//! Sets made ready for pairs: unit vectors, weights and means, computed once a set.
//!
//! With `x̂ = x̃/|x̃|`, `r_0 = ⟨x̂_0, x̂_0'⟩` and `r_ij = ⟨x̂_i, x̂_j'⟩`, all three kernels read
//!
//! ```text
//! K = Σ_ij w_i w_j' r_ij^e E(r_0 r_ij),      w_i = |x̃_0||x̃_i|²/2N  (attention, e = 1),   w = |z|/√(N+2)  (perceptron, e = 0)
//! ```
//!
//! where the perceptron has one key only, `z = [vec(x_{0:N}); 1]`.

use super::biased::{Side, Sides, TERMS};
use crate::features::SetBlock;
use crate::linalg::lanes::LANES;

/// The sets of a block, one after another.
pub struct Packed {
    /// Numbers of a query vector.
    pub query_width: usize,
    /// Numbers of a key vector.
    pub width: usize,
    /// Keys of every set.
    pub lengths: Vec<usize>,
    /// The most keys of a set: the places that every set has below.
    pub places: usize,
    /// `[set][query_width]`: `x̂_0`.
    pub queries: Vec<f64>,
    /// `[set][places][width]`: `x̂_i`.
    pub keys: Vec<f64>,
    /// `[set][places]`: `w_i`; 0 past the set's length.
    pub weights: Vec<f64>,
    /// `[set][places]`: mean over standard deviation of the pre-activations; empty where they are centred.
    pub sides: Vec<Side>,
}

impl Packed {
    /// Attention over keys; `mean` is `W_0`, `(d+1) × (d+1)` row-major.
    pub fn attention(block: &SetBlock, mean: Option<&[f64]>) -> Self {
        let (width, places, n) = (block.shape.d + 1, block.shape.keys, block.len());
        let mut packed = Self {
            query_width: width,
            width,
            lengths: block.lengths.clone(),
            places,
            queries: Vec::with_capacity(n * width),
            keys: vec![0.0; n * places * width],
            weights: vec![0.0; n * places],
            sides: if mean.is_some() { vec![Side::default(); n * places] } else { Vec::new() },
        };
        for i in 0..n {
            let query = Unit::new(block.query(i));
            // ⟨W_0, x̂_0 x̂_iᵀ⟩ = ⟨W_0ᵀ x̂_0, x̂_i⟩; the standard deviation of the pre-activation is |x̃_0||x̃_i|/2.
            let pulled: Option<Vec<f64>> = mean.map(|w| {
                (0..width).map(|c| query.vector.iter().enumerate().map(|(r, q)| 2.0 * q * w[r * width + c]).sum()).collect()
            });
            for (j, key) in block.keys(i).chunks_exact(block.shape.d).enumerate() {
                let (key, place) = (Unit::new(key), i * places + j);
                packed.weights[place] = 0.5 * query.norm * key.norm * key.norm / block.lengths[i] as f64;
                if let Some(pulled) = &pulled {
                    packed.sides[place] = Side::new(pulled.iter().zip(&key.vector).map(|(p, k)| p * k).sum());
                }
                packed.keys[place * width..(place + 1) * width].copy_from_slice(&key.vector);
            }
            packed.queries.extend(query.vector);
        }
        packed
    }

    /// The perceptron's one key.
    pub fn perceptron(block: &SetBlock) -> Self {
        let (n, size) = (block.len(), (block.shape.keys + 1) * block.shape.d);
        let mut packed = Self {
            query_width: 1,
            width: size + 1,
            lengths: vec![1; n],
            places: 1,
            queries: vec![1.0; n],
            keys: Vec::with_capacity(n * (size + 1)),
            weights: Vec::with_capacity(n),
            sides: Vec::new(),
        };
        for x in block.x.chunks_exact(size.max(1)) {
            let z = Unit::new(x);
            packed.weights.push(z.norm / ((block.shape.keys + 2) as f64).sqrt());
            packed.keys.extend(z.vector);
        }
        packed
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Sets `first …` interleaved, as many as there are lanes.
    pub fn panel(&self, first: usize) -> Panel {
        let count = LANES.min(self.len() - first);
        let keys = self.lengths[first..first + count].iter().copied().max().unwrap_or(0);
        let (all, width) = (self.places, self.width);
        let mut panel = Panel {
            keys,
            query: interleave(&self.queries[first * self.query_width..], self.query_width, self.query_width, count),
            units: interleave(&self.keys[first * all * width..], all * width, keys * width, count),
            weights: interleave(&self.weights[first * all..], all, keys, count),
            sides: Sides::default(),
        };
        if !self.sides.is_empty() {
            let sides = &self.sides[first * all..(first + count) * all];
            let a: Vec<f64> = sides.iter().map(|side| side.a).collect();
            panel.sides.a = interleave(&a, all, keys, count);
            panel.sides.c = vec![0.0; keys * TERMS * LANES];
            for (key, c) in panel.sides.c.chunks_exact_mut(TERMS * LANES).enumerate() {
                for (l, side) in sides.iter().skip(key).step_by(all).enumerate() {
                    c.iter_mut().skip(l).step_by(LANES).zip(side.c).for_each(|(to, c)| *to = c);
                }
            }
        }
        panel
    }
}

/// Sixteen sets interleaved; lanes without a set hold zeros.
pub struct Panel {
    /// Keys of the longest set.
    pub keys: usize,
    /// `[query_width][LANES]`.
    pub query: Vec<f64>,
    /// `[keys][width][LANES]`.
    pub units: Vec<f64>,
    /// `[keys][LANES]`.
    pub weights: Vec<f64>,
    /// Empty where pre-activations are centred.
    pub sides: Sides,
}

/// `x̃/|x̃|` and `|x̃|`.
struct Unit {
    vector: Vec<f64>,
    norm: f64,
}

impl Unit {
    fn new(x: &[f64]) -> Self {
        let norm = (1.0 + x.iter().map(|v| v * v).sum::<f64>()).sqrt();
        Self { vector: x.iter().copied().chain([1.0]).map(|v| v / norm).collect(), norm }
    }
}

/// The first `used` of the `stride` numbers of `count` sets, as `[used][LANES]`.
fn interleave(values: &[f64], stride: usize, used: usize, count: usize) -> Vec<f64> {
    let mut out = vec![0.0; used * LANES];
    for l in 0..count {
        for e in 0..used {
            out[e * LANES + l] = values[l * stride + e];
        }
    }
    out
}
