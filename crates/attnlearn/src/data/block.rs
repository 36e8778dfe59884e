//! A block of examples in memory, interleaved in panels of [`LANES`] (see [`crate::linalg::lanes`]).

use super::Shape;
use crate::linalg::Aligned;
use crate::linalg::lanes::{LANES, Real};
use crate::memory::{ask, numbers};
use crate::{Error, Result};

/// Largest block that is worked with, in bytes.
const LARGEST: u128 = 1 << 30;

/// Numbers of a panel of which a whole block is taken at once.
const SMALL_PANEL: usize = 1 << 16;

/// Examples that a block of a source takes room for: of a source of `n` examples, if that is known.
fn places(n: Option<u64>) -> usize {
    let capacity = Block::<f64>::CAPACITY;
    n.and_then(|n| usize::try_from(n).ok()).map_or(capacity, |n| n.clamp(1, capacity).next_multiple_of(LANES))
}

/// Bytes of a block in double precision, of a source of `n` examples.
pub fn block_bytes(shape: Shape, n: Option<u64>) -> u128 {
    let per_token = numbers::<f64>(&[shape.d]).saturating_add(numbers::<f64>(&[shape.d_out]));
    per_token.saturating_mul(numbers::<u8>(&[shape.k, places(n)]))
}

/// The same with a copy of its outputs: what work on one block needs.
pub(crate) fn work_bytes(shape: Shape, n: Option<u64>) -> u128 {
    block_bytes(shape, n).saturating_add(numbers::<f64>(&[shape.d_out, shape.k, places(n)]))
}

/// Refuses examples so large that a block of them would not fit in memory; `n` is how many there are, if that is known.
pub fn check_size(shape: Shape, n: Option<u64>, place: &str) -> Result<()> {
    if block_bytes(shape, n) <= LARGEST {
        return ask(work_bytes(shape, n), place, "give shorter sequences, or allow more memory");
    }
    let most = LARGEST / numbers::<f64>(&[places(n)]);
    Err(Error::input(place, format!("sequences with {shape}"), format!("keep k (d + d_out) at or below {most}")))
}

/// Up to [`Block::CAPACITY`] examples. Unused lanes of the last panel are zero. Memory is taken as examples come: a few long sequences
/// take no more than they need.
#[derive(Debug)]
pub struct Block<T> {
    shape: Shape,
    len: usize,
    /// `[panel][k][d][LANES]`
    x: Aligned<T>,
    /// `[panel][k][d_out][LANES]`
    y: Aligned<T>,
}

impl<T> Block<T> {
    /// Examples in a full block.
    pub const CAPACITY: usize = 512;
}

impl<T: Real> Block<T> {
    /// An empty block for examples of one shape.
    pub fn new(shape: Shape) -> Self {
        Self { shape, len: 0, x: Aligned::zeros(0), y: Aligned::zeros(0) }
    }

    /// Sizes of every example.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of examples held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no example is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Zeroes the lanes of the last panel that no example uses.
    pub(crate) fn clear_unused_lanes(&mut self) {
        let (panel, used) = (self.len / LANES, self.len % LANES);
        if used == 0 {
            return;
        }
        let (px, py) = self.panel_sizes();
        let x = self.x[panel * px..(panel + 1) * px].iter_mut().enumerate();
        let y = self.y[panel * py..(panel + 1) * py].iter_mut().enumerate();
        x.chain(y).filter(|(i, _)| i % LANES >= used).for_each(|(_, v)| *v = T::ZERO);
    }

    /// Sets the number of examples held. What is held stays, and further examples are zero or what was there before.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= Self::CAPACITY);
        let ((px, py), panels) = (self.panel_sizes(), len.div_ceil(LANES));
        // A whole block at once when it grows beyond one panel: most blocks are full.
        let room = if panels > 1 && px + py <= SMALL_PANEL { Self::CAPACITY / LANES } else { panels };
        if self.x.len() < panels * px || self.y.len() < panels * py {
            self.x.grow(room * px);
            self.y.grow(room * py);
        }
        self.len = len;
    }

    fn panel_sizes(&self) -> (usize, usize) {
        (self.shape.k * self.shape.d * LANES, self.shape.k * self.shape.d_out * LANES)
    }

    /// The panels in use, `x` and `y` of each, `[k][d][LANES]` and `[k][d_out][LANES]`.
    pub fn panels(&self) -> impl Iterator<Item = (&[T], &[T])> {
        let (px, py) = self.panel_sizes();
        self.x.chunks_exact(px).zip(self.y.chunks_exact(py)).take(self.len.div_ceil(LANES))
    }

    /// The panels in use, outputs to be written.
    pub(crate) fn panels_mut(&mut self) -> impl Iterator<Item = (&mut [T], &mut [T])> {
        let (px, py) = self.panel_sizes();
        let panels = self.len.div_ceil(LANES);
        self.x.chunks_exact_mut(px).zip(self.y.chunks_exact_mut(py)).take(panels)
    }

    /// Token `t` of example `i`, in double precision.
    pub fn token(&self, i: usize, t: usize) -> Vec<f64> {
        gather(&self.x, self.shape.k * self.shape.d, i, t * self.shape.d, self.shape.d)
    }

    /// Row `a` of the output of example `i`, in double precision.
    pub fn output(&self, i: usize, a: usize) -> Vec<f64> {
        gather(&self.y, self.shape.k * self.shape.d_out, i, a * self.shape.d_out, self.shape.d_out)
    }

    /// Fills in the inputs of as many sequences as `x` (`[n][k][d]`) holds.
    pub fn set_inputs(&mut self, x: &[T]) {
        let per = self.shape.k * self.shape.d;
        self.set_len(x.len() / per);
        interleave(x, per, &mut self.x);
    }

    /// Fills in the outputs of as many sequences as `y` (`[n][k][d_out]`) holds.
    pub fn set_outputs(&mut self, y: &[T]) {
        let per = self.shape.k * self.shape.d_out;
        self.y.grow((y.len() / per).div_ceil(LANES) * per * LANES);
        interleave(y, per, &mut self.y);
    }

    /// Copies the inputs out in plain order, `[n][k][d]`.
    pub fn copy_inputs(&self, x: &mut [T]) {
        self.copy_inputs_from(0, x);
    }

    /// Copies the outputs out in plain order, `[n][k][d_out]`.
    pub fn copy_outputs(&self, y: &mut [T]) {
        self.copy_outputs_from(0, y);
    }

    /// The same from example `first` on, the first of a panel.
    pub(crate) fn copy_inputs_from(&self, first: usize, x: &mut [T]) {
        let per = self.shape.k * self.shape.d;
        deinterleave(&self.x[first * per..], per, x);
    }

    /// The same of outputs.
    pub(crate) fn copy_outputs_from(&self, first: usize, y: &mut [T]) {
        let per = self.shape.k * self.shape.d_out;
        deinterleave(&self.y[first * per..], per, y);
    }
}

/// Example-major numbers, `per` an example, into panels; the unused lanes of the last panel become 0.
fn interleave<T: Real>(plain: &[T], per: usize, panels: &mut [T]) {
    for (examples, panel) in plain.chunks(per * LANES).zip(panels.chunks_exact_mut(per * LANES)) {
        if examples.len() < panel.len() {
            panel.fill(T::ZERO);
        }
        for (l, example) in examples.chunks_exact(per).enumerate() {
            for (i, &v) in example.iter().enumerate() {
                panel[i * LANES + l] = v;
            }
        }
    }
}

/// The inverse of [`interleave`], for as many examples as `plain` has room for.
fn deinterleave<T: Real>(panels: &[T], per: usize, plain: &mut [T]) {
    for (examples, panel) in plain.chunks_mut(per * LANES).zip(panels.chunks_exact(per * LANES)) {
        for (l, example) in examples.chunks_exact_mut(per).enumerate() {
            for (i, v) in example.iter_mut().enumerate() {
                *v = panel[i * LANES + l];
            }
        }
    }
}

/// `count` numbers of example `i`, from `first` on.
fn gather<T: Real>(panels: &[T], per: usize, i: usize, first: usize, count: usize) -> Vec<f64> {
    let panel = &panels[i / LANES * per * LANES..];
    (first..first + count).map(|e| panel[e * LANES + i % LANES].to_f64()).collect()
}
