//! Frozen maps described by a few numbers, from which their weights are drawn again bit for bit.
//!
//! Head m has its own generator, ChaCha8 with the seed of the map and a stream addressed by m, so the draw depends neither on threads nor
//! on the number of heads: a map with more heads begins with the same ones. In double precision, with `z` standard normals in row-major
//! order,
//!
//! ```text
//! W_m = z/2 + W_0             (d+1)×(d+1), attention heads
//! w_j = z/√(N+2)              (N+1)d + 1, neurons of RFMLP
//! ```
//!
//! rounded to the precision of the map last. For a query and a key on the unit sphere `‖x̃_0‖ ‖x̃_i‖ = 2`, so `⟨W_m − W_0, x̃_0 x̃_iᵀ⟩` is
//! exactly standard normal, and so is `⟨w_j, [vec(x_{0:N}); 1]⟩`.

use super::attention::{Attention, Rule};
use super::map::check_sets;
use super::mlp::Neurons;
use super::{FeatureMap, SetShape};
use crate::linalg::Aligned;
use crate::linalg::lanes::{LANES, Real};
use crate::memory::{ask, numbers};
use crate::parallel;
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

/// What the features are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// ReLU attention with weights of mean zero.
    Rfa,
    /// ReLU attention with weights of mean `W_0`.
    Brfa,
    /// A layer of ReLU neurons that reads the whole set as one vector.
    Rfmlp,
    /// Softmax attention.
    Softmax,
    /// ReLU attention whose weights are divided by their sum.
    RowRelu,
}

impl Model {
    /// The name that the program uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rfa => "rfa",
            Self::Brfa => "brfa",
            Self::Rfmlp => "rfmlp",
            Self::Softmax => "softmax",
            Self::RowRelu => "row-relu",
        }
    }
}

/// The mean `W_0` of every head's matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mean {
    /// 0.
    #[default]
    Zero,
    /// `scale · diag(I_d, 0)`: heads that lean towards keys like the query.
    Identity {
        /// The factor.
        scale: f64,
    },
    /// Any matrix, `(d+1)×(d+1)` row-major; rows belong to the query, columns to the key.
    Matrix(Vec<f64>),
}

impl Mean {
    /// Whether it is a finite matrix for dimension `d`.
    pub fn check(&self, d: usize) -> Result<()> {
        let size = d.checked_add(1).and_then(|side| side.checked_mul(side));
        let (fits, finite) = match self {
            Self::Zero => (true, true),
            Self::Identity { scale } => (true, scale.is_finite()),
            Self::Matrix(w) => (Some(w.len()) == size, w.iter().all(|v| v.is_finite())),
        };
        match size {
            Some(_) if fits && finite => Ok(()),
            Some(size) => {
                let problem = format!("a mean that is not a finite {0}×{0} matrix", d + 1);
                Err(Error::input("mean", problem, format!("give {size} finite numbers, row by row")))
            }
            None => Err(Error::input("mean", format!("dimension {d}: more entries than can be counted"), "ask for fewer")),
        }
    }

    /// The `(d+1)×(d+1)` entries, row by row.
    pub fn entries(&self, d: usize) -> Result<Vec<f64>> {
        self.check(d)?;
        let size = (d + 1) * (d + 1);
        let mut entries = Vec::new();
        entries.try_reserve_exact(size).map_err(|e| Error::input("mean", format!("{size} entries: {e}"), "ask for fewer"))?;
        match self {
            Self::Matrix(w) => entries.extend_from_slice(w),
            Self::Zero | Self::Identity { .. } => entries.resize(size, 0.0),
        }
        if let Self::Identity { scale } = self {
            entries.iter_mut().step_by(d + 2).take(d).for_each(|w| *w = *scale);
        }
        Ok(entries)
    }
}

/// A frozen feature map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapSpec {
    /// What the features are.
    pub model: Model,
    /// Dimension of query and keys.
    pub d: usize,
    /// The most keys of a set, N. Only RFMLP depends on it.
    pub keys: usize,
    /// Heads, M.
    pub heads: usize,
    /// Seed of the weights.
    pub seed: u64,
    /// Mean of the heads' matrices.
    #[serde(default)]
    pub mean: Mean,
    /// The β of `softmax(β ℓ)`: 1 by default, which on the unit sphere makes the logits standard normal.
    #[serde(default = "one")]
    pub inverse_temperature: f64,
    /// Neurons of RFMLP, K; `M(d+1)` if not given, as many features as M heads have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
}

fn one() -> f64 {
    1.0
}

/// Where the streams of weights begin: inputs drawn from the same seed use streams 0, 1, …, and must be independent of the weights.
const STREAMS: u64 = 1 << 62;

impl MapSpec {
    /// The usual map of a model: BRFA has mean `diag(I_d, 0)`, all others 0.
    pub fn new(model: Model, d: usize, keys: usize, heads: usize, seed: u64) -> Self {
        let mean = if model == Model::Brfa { Mean::Identity { scale: 1.0 } } else { Mean::Zero };
        Self { model, d, keys, heads, seed, mean, inverse_temperature: 1.0, width: None }
    }

    /// Refuses what cannot be built.
    pub fn check(&self) -> Result<()> {
        let bad = |problem: String, remedy: &str| Err(Error::input("feature map", problem, remedy));
        let Self { model, d, keys, heads, .. } = *self;
        if d == 0 || keys == 0 || heads == 0 || self.width == Some(0) {
            let width = self.width.map_or_else(String::new, |k| format!(", width = {k}"));
            return bad(format!("d = {d}, keys = {keys}, heads = {heads}{width}"), "all must be at least 1");
        }
        // Whole panels of weights in double precision, and the features themselves, must be countable in bytes.
        let side = d.checked_add(1);
        let inputs = keys.checked_add(1).and_then(|n| n.checked_mul(d)?.checked_add(1));
        let p = self.width.or_else(|| heads.checked_mul(side?));
        let (columns, rows) =
            if model == Model::Rfmlp { (p, inputs) } else { (Some(heads), side.and_then(|s| s.checked_mul(s))) };
        let bytes = || columns?.checked_next_multiple_of(LANES)?.checked_mul(rows?)?.checked_mul(size_of::<f64>());
        if p.is_none() || inputs.is_none() || bytes().is_none_or(|b| b > isize::MAX as usize) {
            return bad(
                format!("d = {d}, keys = {keys}, heads = {heads}: more weights than memory can address"),
                "ask for fewer",
            );
        }
        if self.width.is_some() && model != Model::Rfmlp {
            return bad("a width for a map of attention heads".into(), "leave it out, or choose the model rfmlp");
        }
        if self.mean != Mean::Zero && matches!(model, Model::Rfa | Model::Rfmlp) {
            return bad("a mean for a model whose weights have none".into(), "leave it out, or choose the model brfa");
        }
        self.mean.check(d)?;
        if !self.inverse_temperature.is_finite() {
            return bad(format!("inverse temperature {}", self.inverse_temperature), "give a finite number");
        }
        Ok(())
    }

    /// Refuses sets that the map cannot read.
    pub fn check_sets(&self, shape: SetShape) -> Result<()> {
        check_sets(shape, self.d, (self.model == Model::Rfmlp).then_some(self.keys))
    }

    /// Number of features p.
    pub fn features(&self) -> usize {
        self.width.unwrap_or_else(|| self.heads.saturating_mul(self.d.saturating_add(1)))
    }

    /// Vectors of weights: heads, or neurons.
    fn units(&self) -> usize {
        if self.model == Model::Rfmlp { self.features() } else { self.heads }
    }

    /// Weights of a head, or of a neuron.
    fn unit_size(&self) -> usize {
        if self.model == Model::Rfmlp { (self.keys + 1) * self.d + 1 } else { (self.d + 1) * (self.d + 1) }
    }

    /// Draws the map in precision `T`.
    pub fn build<T: Real>(&self) -> Result<Box<dyn FeatureMap<T>>> {
        self.check()?;
        let weights = self.panels::<T>()?;
        let rule = match self.model {
            Model::Rfmlp => return Ok(Box::new(Neurons::new(self.d, self.keys, self.units(), weights))),
            Model::Rfa | Model::Brfa => Rule::Relu,
            Model::Softmax => Rule::Softmax(self.inverse_temperature),
            Model::RowRelu => Rule::RowRelu,
        };
        Ok(Box::new(Attention::new(self.d, self.heads, rule, weights)))
    }

    /// The frozen weights in double precision: `[M][(d+1)²]`, row-major with the query's rows, or `[K][(N+1)d + 1]` for RFMLP.
    pub fn weights(&self) -> Result<Vec<f64>> {
        self.check()?;
        let size = self.unit_size();
        let mut weights = zeros(self.units() * size)?;
        parallel::each(weights.chunks_exact_mut(size).enumerate(), |(m, w)| self.draw(m, w));
        Ok(weights.to_vec())
    }

    /// The weights in precision `T` as `[panel][weight][LANES]`.
    fn panels<T: Real>(&self) -> Result<Aligned<T>> {
        let (units, size) = (self.units(), self.unit_size());
        let mut panels = zeros(units.next_multiple_of(LANES) * size)?;
        parallel::each(panels.chunks_exact_mut(size * LANES).enumerate(), |(index, panel)| {
            let mut w = vec![0.0; size];
            for lane in 0..LANES.min(units - index * LANES) {
                self.draw(index * LANES + lane, &mut w);
                for (entry, &w) in panel.chunks_exact_mut(LANES).zip(&w) {
                    entry[lane] = T::from_f64(w);
                }
            }
        });
        Ok(panels)
    }

    /// The weights of head or neuron `m`.
    fn draw(&self, m: usize, weights: &mut [f64]) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(STREAMS + m as u64);
        let scale = if self.model == Model::Rfmlp { 1.0 / (self.keys as f64 + 2.0).sqrt() } else { 0.5 };
        for w in weights.iter_mut() {
            *w = scale * rng.sample::<f64, _>(StandardNormal);
        }
        match &self.mean {
            Mean::Zero => {}
            Mean::Identity { scale } => weights.iter_mut().step_by(self.d + 2).take(self.d).for_each(|w| *w += scale),
            Mean::Matrix(mean) => weights.iter_mut().zip(mean).for_each(|(w, mean)| *w += mean),
        }
    }
}

fn zeros<T: Real>(len: usize) -> Result<Aligned<T>> {
    ask(numbers::<T>(&[len]), "feature map", "ask for fewer heads")?;
    Aligned::try_zeros(len).map_err(|e| Error::input("feature map", format!("{len} weights: {e}"), "ask for fewer"))
}
