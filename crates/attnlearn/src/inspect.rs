//! What a file is: told from all that the other modules can read.

use crate::Result;
use crate::data::{examples_in, inputs_in, outputs_in};
#[cfg(feature = "parquet")]
use crate::features::files::{ParquetColumn, ParquetContents, is_parquet, parquet_contents};
use crate::features::files::{SetsFound, TargetsFound, sets_in, targets_in};
use crate::features::{FittedModel, KernelSpec, MapSpec, Precision, Predictor, SetShape};
use crate::files::{Bytes, Contents, FileFormat};
use crate::layer::{AttentionLayer, Mask};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What there is to say about a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileSummary {
    /// Its name, as given.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The container format.
    pub format: FileFormat,
    /// What it holds.
    pub content: FileKind,
    /// Every tensor in it, by name.
    pub tensors: Vec<TensorSummary>,
    /// Notes that its writer left.
    pub metadata: BTreeMap<String, String>,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum FileKind {
    /// A layer.
    Layer {
        /// Heads.
        m: usize,
        /// Token dimension.
        d: usize,
        /// Output dimension.
        d_out: usize,
        /// Which keys a query may attend to.
        mask: Mask,
        /// Whether any head has a key bias.
        key_bias: bool,
        /// Whether there is an output bias.
        bias: bool,
    },
    /// Inputs with their outputs.
    Examples {
        /// How many.
        n: usize,
        /// Tokens per sequence.
        k: usize,
        /// Token dimension.
        d: usize,
        /// Output dimension.
        d_out: usize,
    },
    /// Inputs alone.
    Inputs {
        /// How many sequences.
        n: usize,
        /// Tokens per sequence.
        k: usize,
        /// Token dimension.
        d: usize,
    },
    /// Outputs alone.
    Outputs {
        /// How many sequences.
        n: usize,
        /// Tokens per sequence.
        k: usize,
        /// Output dimension.
        d_out: usize,
    },
    /// Sets: a query with its keys each, and perhaps targets.
    Sets {
        /// How many.
        n: usize,
        /// The most keys, N.
        keys: usize,
        /// Dimension of query and keys.
        d: usize,
        /// Targets of a set; 0 if there are none.
        targets: usize,
        /// Whether sets may differ in length.
        lengths: bool,
        /// Whether sets have weights.
        weights: bool,
    },
    /// Targets of sets alone: predictions.
    Targets {
        /// How many sets.
        n: usize,
        /// Targets of a set.
        targets: usize,
    },
    /// A model that `attnlearn fit` wrote.
    Model(Box<ModelSummary>),
    /// None of these.
    Unknown {
        /// Why it is not.
        reason: String,
    },
}

/// What there is to say about a fitted model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSummary {
    /// The frozen map, heads and seed and all; of a model with finitely many heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<MapSpec>,
    /// Precision of its features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// The kernel; of a model with infinitely many heads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSpec>,
    /// Trained numbers for one target: features p, or sets n that the kernel was fitted on.
    pub size: usize,
    /// Sizes of the sets it was fitted on.
    pub shape: SetShape,
    /// The ridge; 0 for the ridgeless limit.
    pub ridge: f64,
    /// `‖v_t‖` of every target, or `‖α_t‖` for a kernel.
    pub norms: Vec<f64>,
    /// `b` of every target.
    pub intercept: Vec<f64>,
}

impl From<FittedModel> for ModelSummary {
    fn from(model: FittedModel) -> Self {
        let FittedModel { predictor, intercept, ridge, shape } = model;
        let t = intercept.len();
        let (map, precision, kernel, numbers) = match predictor {
            Predictor::Frozen { map, v, precision } => (Some(map), Some(precision), None, v),
            Predictor::Kernel { kernel, alpha, .. } => (None, None, Some(kernel), alpha),
        };
        let norm = |o: usize| numbers.iter().skip(o).step_by(t).map(|v| v * v).sum::<f64>().sqrt();
        Self { map, precision, kernel, size: numbers.len() / t, shape, ridge, norms: (0..t).map(norm).collect(), intercept }
    }
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorSummary {
    /// Its name.
    pub name: String,
    /// Its number format.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Why its numbers cannot be used, if they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Says what a file is. Fails only if it cannot be read at all or is in none of the container formats.
pub fn inspect(path: &Path) -> Result<FileSummary> {
    let bytes = Bytes::open(path)?;
    #[cfg(feature = "parquet")]
    if is_parquet(&bytes) {
        return parquet_contents(path).map(|contents| FileSummary::of_parquet(contents, path));
    }
    FileSummary::of_bytes(&bytes, &path.display().to_string())
}

impl FileSummary {
    /// As [`inspect`], for bytes in memory that are called `place`.
    pub fn of_bytes(bytes: &[u8], place: &str) -> Result<Self> {
        let contents = Contents::read(bytes, place)?;
        let content = FileKind::of(&contents, bytes).unwrap_or_else(|e| FileKind::Unknown { reason: e.to_string() });
        let tensors = contents
            .tensors
            .into_iter()
            .map(|(name, tensor)| TensorSummary {
                name,
                dtype: tensor.dtype,
                shape: tensor.shape,
                problem: tensor.data.err().map(|refusal| refusal.problem),
            })
            .collect();
        Ok(Self {
            path: place.into(),
            bytes: bytes.len() as u64,
            format: contents.format,
            content,
            tensors,
            metadata: contents.metadata,
        })
    }
}

#[cfg(feature = "parquet")]
impl FileSummary {
    fn of_parquet(contents: ParquetContents, path: &Path) -> Self {
        let tensor = |column: ParquetColumn| {
            let ParquetColumn { name, dtype, shape } = column;
            TensorSummary { name, dtype, shape, problem: None }
        };
        Self {
            path: path.display().to_string(),
            bytes: contents.bytes,
            format: FileFormat::Parquet,
            content: contents.sets.map_or_else(|e| FileKind::Unknown { reason: e.to_string() }, FileKind::from),
            tensors: contents.columns.into_iter().map(tensor).collect(),
            metadata: contents.metadata,
        }
    }
}

impl From<SetsFound> for FileKind {
    fn from(found: SetsFound) -> Self {
        let SetsFound { n, keys, d, targets, lengths, weights } = found;
        Self::Sets { n, keys, d, targets, lengths, weights }
    }
}

impl From<TargetsFound> for FileKind {
    fn from(TargetsFound { n, targets }: TargetsFound) -> Self {
        Self::Targets { n, targets }
    }
}

impl FileKind {
    fn of(contents: &Contents, bytes: &[u8]) -> Result<Self> {
        if FittedModel::claimed_by(contents) {
            return FittedModel::from_contents(contents, bytes).map(|model| Self::Model(Box::new(model.into())));
        }
        if let Some(sets) = sets_in(contents) {
            return sets.map(Self::from);
        }
        if let Some(targets) = targets_in(contents) {
            return targets.map(Self::from);
        }
        let has = |name| contents.tensors.contains_key(name);
        match (has("x"), has("y")) {
            (true, true) => examples_in(contents).map(|(x, y)| {
                let [n, k, d] = x.shape;
                Self::Examples { n, k, d, d_out: y.shape[2] }
            }),
            (true, false) => inputs_in(contents).map(|x| {
                let [n, k, d] = x.shape;
                Self::Inputs { n, k, d }
            }),
            (false, true) => outputs_in(contents).map(|y| {
                let [n, k, d_out] = y.shape;
                Self::Outputs { n, k, d_out }
            }),
            (false, false) => AttentionLayer::from_contents(contents, bytes).map(|layer| Self::Layer {
                m: layer.heads().len(),
                d: layer.d(),
                d_out: layer.d_out(),
                mask: layer.mask(),
                key_bias: layer.heads().iter().any(|head| head.key_bias.is_some()),
                bias: layer.bias().is_some(),
            }),
        }
    }
}
