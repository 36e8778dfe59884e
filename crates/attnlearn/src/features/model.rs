//! A fitted model: what predicts, and the file that it lives in.
//!
//! ```text
//! f(x) = b + Σ_j φ_j(x) v_j          frozen features, regenerated from a few numbers
//! f(x) = b + Σ_i K(x, x_i) α_i       a kernel and the sets that it was fitted on
//! ```
//!
//! Saved as safetensors: `intercept [t]` with `v [p, t]`, or with `alpha [n, t]`, `x [n, N+1, d]` and `length [n]`. The metadata hold the
//! description of the map or kernel. Frozen weights are stored only when asked for (`weights`), and never read back.

use super::evaluate::part;
use super::{FeatureMap, KernelSpec, MapSpec, SetBlock, SetShape};
use crate::files::{Bytes, Contents, Dtype, FLOATS, TensorSpec, layout, write_atomically};
use crate::linalg::lanes::Real;
use crate::parallel;
use crate::words::quoted;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const FORMAT: &str = "attnlearn-features";
const VERSION: &str = "1";

/// Sets whose features one thread holds at a time.
const SETS: usize = 32;

/// The floating-point format of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single.
    #[default]
    F32,
    /// Double.
    F64,
}

/// What is linear in the trained numbers.
#[derive(Clone, Debug)]
pub enum Predictor {
    /// Frozen features and their values.
    Frozen {
        /// The map.
        map: MapSpec,
        /// `v`, `[p][t]`.
        v: Vec<f64>,
        /// Precision of the features.
        precision: Precision,
    },
    /// A kernel, and the sets it was fitted on.
    Kernel {
        /// The kernel.
        kernel: KernelSpec,
        /// The sets.
        sets: SetBlock,
        /// `α`, `[n][t]`.
        alpha: Vec<f64>,
    },
}

/// A fitted model.
#[derive(Clone, Debug)]
pub struct FittedModel {
    /// What predicts.
    pub predictor: Predictor,
    /// `b`, one number a target.
    pub intercept: Vec<f64>,
    /// The ridge it was fitted with; 0 for the ridgeless limit.
    pub ridge: f64,
    /// Sizes of the sets it was fitted on.
    pub shape: SetShape,
}

/// What the metadata of a file say of the model.
#[derive(Serialize, Deserialize)]
struct Description {
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<MapSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<Precision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<KernelSpec>,
    ridge: f64,
    shape: SetShape,
}

/// A model made ready to predict: its frozen weights are drawn once.
pub struct Prediction<'a> {
    model: &'a FittedModel,
    map: Option<Drawn>,
}

enum Drawn {
    Single(Box<dyn FeatureMap<f32>>),
    Double(Box<dyn FeatureMap<f64>>),
}

impl FittedModel {
    /// Draws the frozen weights.
    pub fn prepare(&self) -> Result<Prediction<'_>> {
        let map = match &self.predictor {
            Predictor::Frozen { map, precision: Precision::F32, .. } => Some(Drawn::Single(map.build()?)),
            Predictor::Frozen { map, precision: Precision::F64, .. } => Some(Drawn::Double(map.build()?)),
            Predictor::Kernel { .. } => None,
        };
        Ok(Prediction { model: self, map })
    }

    /// Refuses sets that the model cannot read.
    pub fn check_sets(&self, shape: SetShape, place: &str) -> Result<()> {
        let most = matches!(&self.predictor, Predictor::Frozen { map, .. } if map.model == super::Model::Rfmlp)
            || matches!(&self.predictor, Predictor::Kernel { kernel: KernelSpec::Rfmlp, .. });
        if shape.d != self.shape.d || (most && shape.keys > self.shape.keys) {
            let problem = format!(
                "has sets of up to {} keys in dimension {}, the model was fitted on {} keys in dimension {}",
                shape.keys, shape.d, self.shape.keys, self.shape.d
            );
            return Err(Error::input(place, problem, "give sets like those of the fit"));
        }
        Ok(())
    }

    /// The model as the contents of a safetensors file; with `weights`, the frozen weights too.
    pub fn to_bytes(&self, notes: &BTreeMap<String, String>, weights: bool) -> Result<Vec<u8>> {
        let t = self.intercept.len();
        let mut tensors: Vec<(&'static str, Vec<usize>, Vec<f64>)> = vec![("intercept", vec![t], self.intercept.clone())];
        let mut lengths = None;
        let mut description = Description { map: None, precision: None, kernel: None, ridge: self.ridge, shape: self.shape };
        match &self.predictor {
            Predictor::Frozen { map, v, precision } => {
                tensors.push(("v", vec![v.len() / t, t], v.clone()));
                if weights {
                    let w = map.weights()?;
                    tensors.push(("weights", vec![w.len()], w));
                }
                (description.map, description.precision) = (Some(map.clone()), Some(*precision));
            }
            Predictor::Kernel { kernel, sets, alpha } => {
                tensors.push(("alpha", vec![sets.len(), t], alpha.clone()));
                tensors.push(("x", vec![sets.len(), sets.shape.keys + 1, sets.shape.d], sets.x.clone()));
                lengths = Some(sets.lengths.iter().map(|&l| l as f64).collect::<Vec<f64>>());
                description.kernel = Some(kernel.clone());
            }
        }
        let mut specs: Vec<_> = tensors
            .iter()
            .map(|(name, shape, _)| TensorSpec { name: (*name).into(), dtype: Dtype::F64, shape: shape.clone() })
            .collect();
        if let Some(lengths) = &lengths {
            specs.push(TensorSpec { name: "length".into(), dtype: Dtype::I64, shape: vec![lengths.len()] });
        }
        let described = serde_json::to_string(&description)
            .map_err(|e| Error::input("model", format!("cannot be described ({e})"), "give finite numbers"))?;
        let mut metadata = notes.clone();
        for (key, value) in [("format", FORMAT), ("version", VERSION), ("model", &described)] {
            metadata.insert(key.into(), value.into());
        }
        // All numbers take eight bytes, so the tensors stand in the order given.
        let (mut bytes, _) = layout(&specs, &metadata);
        let infinite = |v: f64| Error::input("model", format!("holds {v}"), "use a larger ridge");
        for (_, _, numbers) in &tensors {
            Dtype::F64.encode(numbers, &mut bytes).map_err(infinite)?;
        }
        if let Some(lengths) = &lengths {
            Dtype::I64.encode(lengths, &mut bytes).map_err(infinite)?;
        }
        Ok(bytes)
    }

    /// Writes the model; the file appears only when it is whole.
    pub fn save(&self, path: &Path, notes: &BTreeMap<String, String>, weights: bool) -> Result<()> {
        write_atomically(path, &self.to_bytes(notes, weights)?)
    }

    /// Reads a model.
    pub fn load(path: &Path) -> Result<Self> {
        Self::from_bytes(&Bytes::open(path)?, &path.display().to_string())
    }

    /// Reads a model from the contents of a file that errors will call `place`.
    pub fn from_bytes(bytes: &[u8], place: &str) -> Result<Self> {
        Self::from_contents(&Contents::read(bytes, place)?, bytes)
    }

    /// Whether a file says that it is a model.
    pub(crate) fn claimed_by(contents: &Contents) -> bool {
        contents.metadata.get("format").is_some_and(|format| format == FORMAT)
    }

    /// Reads a model from a file of which the table of contents has been read. Nothing is drawn, so what is held is no larger than the file.
    pub(crate) fn from_contents(contents: &Contents, bytes: &[u8]) -> Result<Self> {
        let again = "write it again with attnlearn fit";
        let bad = |problem: String, remedy: &str| Err(Error::input(&contents.place, problem, remedy));
        // Errors about the description are errors of this file.
        let of_file = |e: Error| match e {
            Error::Input { place, problem, .. } => Error::input(&contents.place, format!("{place}: {problem}"), again),
            other => other,
        };
        if !Self::claimed_by(contents) {
            return bad("is not a model of attnlearn fit".into(), "give the file that attnlearn fit wrote");
        }
        let note = |key: &str| contents.metadata.get(key).map(String::as_str);
        match note("version") {
            Some(VERSION) => {}
            Some(other) => {
                let problem = format!("is a model of version {}", quoted(other));
                return bad(problem, &format!("use an attnlearn that reads it; this one reads version {VERSION}"));
            }
            None => return bad("is a model without a version".into(), again),
        }
        let description: Description = match note("model").map(serde_json::from_str) {
            Some(Ok(description)) => description,
            Some(Err(e)) => return bad(format!("does not describe its model ({})", quoted(&e.to_string())), again),
            None => return bad("does not describe its model".into(), again),
        };
        let (shape, ridge) = (description.shape, description.ridge);
        let intercept = contents.require("intercept", ["t"], FLOATS)?;
        let t = intercept.shape[0];
        if shape.targets != t || shape.d == 0 || shape.keys == 0 || !(ridge.is_finite() && ridge >= 0.0) {
            let SetShape { keys, d, targets } = shape;
            let problem = format!("describes N = {keys}, d = {d}, {targets} targets and ridge {ridge:e}, with {t} intercepts");
            return bad(problem, again);
        }
        let predictor = match (description.map, description.kernel) {
            (Some(map), None) => {
                map.check().and_then(|()| map.check_sets(shape)).map_err(of_file)?;
                let v = contents.require("v", ["p", "t"], FLOATS)?;
                if v.shape != [map.features(), t] {
                    return bad(format!("v has shape {:?}, its model wants [{}, {t}]", v.shape, map.features()), again);
                }
                Predictor::Frozen { map, v: v.numbers(bytes)?, precision: description.precision.unwrap_or_default() }
            }
            (None, Some(kernel)) => {
                let alpha = contents.require("alpha", ["n", "t"], FLOATS)?;
                let x = contents.require("x", ["n", "N+1", "d"], FLOATS)?;
                let length = contents.require("length", ["n"], &[Dtype::I64])?;
                let n = alpha.shape[0];
                let places = shape.keys.saturating_add(1);
                if alpha.shape[1] != t || x.shape != [n, places, shape.d] || length.shape != [n] {
                    return bad("alpha, x, length and intercept do not fit together".into(), again);
                }
                if let KernelSpec::Brfa { mean } = &kernel {
                    mean.check(shape.d).map_err(of_file)?;
                }
                let lengths: Vec<usize> = length.numbers(bytes)?.into_iter().map(|l| l as usize).collect();
                if lengths.iter().any(|l| !(1..=shape.keys).contains(l)) {
                    return bad("length is not between 1 and N".into(), again);
                }
                let shape = SetShape { targets: 0, ..shape };
                let sets = SetBlock { shape, x: x.numbers(bytes)?, lengths, y: Vec::new(), weights: vec![1.0; n] };
                Predictor::Kernel { kernel, sets, alpha: alpha.numbers(bytes)? }
            }
            _ => return bad("does not describe one map or one kernel".into(), again),
        };
        Ok(Self { predictor, intercept: intercept.numbers(bytes)?, ridge, shape })
    }
}

impl Prediction<'_> {
    /// `f(x)` of every set, `[len][t]`, on all threads.
    pub fn predict(&self, sets: &SetBlock) -> Result<Vec<f64>> {
        self.model.check_sets(sets.shape, "sets")?;
        let t = self.model.intercept.len();
        let mut out = self.model.intercept.repeat(sets.len());
        match (&self.model.predictor, &self.map) {
            (Predictor::Frozen { v, .. }, Some(Drawn::Single(map))) => frozen(map.as_ref(), v, sets, t, &mut out),
            (Predictor::Frozen { v, .. }, Some(Drawn::Double(map))) => frozen(map.as_ref(), v, sets, t, &mut out),
            (Predictor::Kernel { kernel, sets: centres, alpha }, _) => {
                let k = kernel.cross(&padded(sets, centres.shape.keys), centres)?;
                parallel::each(out.chunks_mut(t).enumerate(), |(i, out)| {
                    for j in 0..centres.len() {
                        (0..t).for_each(|o| out[o] += k[(i, j)] * alpha[j * t + o]);
                    }
                });
            }
            (Predictor::Frozen { .. }, None) => {}
        }
        Ok(out)
    }
}

/// The same sets with room for `keys` keys.
fn padded(sets: &SetBlock, keys: usize) -> SetBlock {
    if sets.shape.keys >= keys {
        return sets.clone();
    }
    let mut wide = SetBlock::new(SetShape { keys, targets: 0, ..sets.shape });
    for i in 0..sets.len() {
        wide.push(&[sets.query(i), sets.keys(i)].concat(), &[], 1.0);
    }
    wide
}

/// `out += Φ v`.
fn frozen<T: Real>(map: &dyn FeatureMap<T>, v: &[f64], sets: &SetBlock, t: usize, out: &mut [f64]) {
    parallel::each(out.chunks_mut(SETS * t).enumerate(), |(task, out)| {
        let part = part(sets, task * SETS, out.len() / t);
        let mut phi = Vec::new();
        for strip in 0..map.strips() {
            let columns = map.strip(strip);
            phi.resize(part.len() * columns.len(), T::ZERO);
            map.fill(&part, strip, columns.len(), &mut phi);
            for (out, phi) in out.chunks_exact_mut(t).zip(phi.chunks_exact(columns.len())) {
                for (phi, v) in phi.iter().zip(v[columns.start * t..].chunks_exact(t)) {
                    let phi = phi.to_f64();
                    (0..t).for_each(|o| out[o] += phi * v[o]);
                }
            }
        }
    });
}
