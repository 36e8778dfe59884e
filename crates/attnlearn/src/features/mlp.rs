//! Features of a frozen layer of neurons, the control that knows nothing of keys: with `w_j ~ N(0, I/(N+2))`,
//!
//! ```text
//! φ_j = relu(⟨w_j, [vec(x_{0:N}); 1]⟩)
//! ```
//!
//! where a set with fewer than N keys has zeros in the missing places. Neurons stand in the lanes: a product of sets by panels, a
//! piece of the inputs at a time.

use super::map::check_sets;
use super::{FeatureMap, SetBlock, SetShape};
use crate::Result;
use crate::linalg::Aligned;
use crate::linalg::lanes::{LANES, Real, chunks, vectorised};
use crate::linalg::product::{Finish, Panel, Place, Scalars, Start, product};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// A frozen layer of neurons in precision `T`.
pub(super) struct Neurons<T> {
    d: usize,
    keys: usize,
    width: usize,
    /// `[panel][(N+1)d + 1][LANES]`; zeros for neurons that are not there.
    weights: Aligned<T>,
}

impl<T: Real> Neurons<T> {
    /// Panels to a strip.
    const STRIP: usize = 8;

    /// `weights` is `[panel][(N+1)d + 1][LANES]`.
    pub fn new(d: usize, keys: usize, width: usize, weights: Aligned<T>) -> Self {
        debug_assert_eq!(weights.len(), width.div_ceil(LANES) * ((keys + 1) * d + 1) * LANES);
        Self { d, keys, width, weights }
    }
}

impl<T: Real> FeatureMap<T> for Neurons<T> {
    fn features(&self) -> usize {
        self.width
    }

    fn strips(&self) -> usize {
        self.width.div_ceil(Self::STRIP * LANES)
    }

    fn strip(&self, strip: usize) -> Range<usize> {
        let first = |s: usize| (s * Self::STRIP * LANES).min(self.width);
        first(strip)..first(strip + 1)
    }

    fn check_sets(&self, shape: SetShape) -> Result<()> {
        check_sets(shape, self.d, Some(self.keys))
    }

    fn fill(&self, sets: &SetBlock, strip: usize, stride: usize, out: &mut [T]) {
        assert_eq!(sets.shape.d, self.d, "sets of another dimension than the map's");
        assert!(sets.shape.keys <= self.keys, "sets with more keys than the map has weights for");
        vectorised(Kernel { map: self, sets, neurons: self.strip(strip), stride, out });
    }
}

/// Sets and panels computed together.
const SETS: usize = 16;
const PANELS: usize = 4;

/// Inputs taken at a time: their weights, 24 KiB, stay in the nearest cache while the sets pass.
const fn depth<T>() -> usize {
    24 * 1024 / (PANELS * LANES * size_of::<T>())
}

struct Kernel<'a, T> {
    map: &'a Neurons<T>,
    sets: &'a SetBlock,
    neurons: Range<usize>,
    stride: usize,
    out: &'a mut [T],
}

impl<T: Real> WithSimd for Kernel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { map, sets, neurons, stride, out } = self;
        let (inputs, places) = ((map.keys + 1) * map.d + 1, (sets.shape.keys + 1) * map.d);
        let weights = T::vectors::<S>(&map.weights);
        let mut x = Aligned::<T>::zeros(SETS * inputs);
        let mut values = Aligned::<T>::zeros(SETS * PANELS * LANES);
        for first in (0..sets.len()).step_by(SETS) {
            let group = SETS.min(sets.len() - first);
            for s in 0..group {
                let x = &mut x[s * inputs..(s + 1) * inputs];
                for (x, &place) in x.iter_mut().zip(&sets.x[(first + s) * places..][..places]) {
                    *x = T::from_f64(place);
                }
                x[inputs - 1] = T::ONE;
            }
            for neuron in neurons.clone().step_by(PANELS * LANES) {
                let count = (PANELS * LANES).min(neurons.end - neuron);
                let panels = count.div_ceil(LANES);
                for c in (0..inputs).step_by(depth::<T>()) {
                    let depth = depth::<T>().min(inputs - c);
                    let x = Scalars { entries: &x[c..], outer: inputs, inner: 1 };
                    let w = &weights[(neuron / LANES * inputs + c) * chunks::<T, S>()..];
                    let w = Panel { entries: w, outer: inputs, inner: 1 };
                    let start = if c == 0 { Start::Zero } else { Start::Out };
                    let finish = if c + depth == inputs { Finish::Relu } else { Finish::Sum };
                    let place = Place { entries: T::vectors_mut::<S>(&mut values), outer: PANELS, inner: 1 };
                    product(simd, (group, panels, depth), x, w, (start, finish), place);
                }
                for (s, values) in values.chunks_exact(PANELS * LANES).take(group).enumerate() {
                    out[(first + s) * stride + neuron - neurons.start..][..count].copy_from_slice(&values[..count]);
                }
            }
        }
    }
}
