//! Layers in files: safetensors with the tensors
//!
//! ```text
//! theta       [m, d, d]       attention matrices
//! theta_bias  [m, d]          key biases, zero for a head that has none; absent if no head has one
//! w           [m, d, d_out]   projections
//! bias        [d_out]         output bias; absent if there is none
//! ```
//!
//! in double precision (single precision is read too), and metadata `format`, `version`, `mask` and whatever notes the
//! writer left. Attention matrices of low rank are written out in full.

use super::{AttentionLayer, Head, Mask, Theta};
use crate::files::{Bytes, Contents, Dtype, FLOATS, FileFormat, TensorSpec, View, layout, write_atomically};
use crate::linalg::{from_row_major, row_major};
use crate::memory::{ask, numbers};
use crate::words::quoted;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

const FORMAT: &str = "attnlearn.layer";
const VERSION: &str = "1";

impl AttentionLayer {
    /// Writes the layer to a safetensors file, with `notes` (its provenance, say) in the metadata.
    pub fn save(&self, path: &Path, notes: &BTreeMap<String, String>) -> Result<()> {
        write_atomically(path, &self.to_bytes(notes)?)
    }

    /// Reads a layer from a safetensors file.
    pub fn load(path: &Path) -> Result<Self> {
        Self::from_bytes(&Bytes::open(path)?, &path.display().to_string())
    }

    /// The layer as the contents of a safetensors file: the same bytes for the same layer and notes.
    pub fn to_bytes(&self, notes: &BTreeMap<String, String>) -> Result<Vec<u8>> {
        let mask = match self.mask {
            Mask::None => "none",
            Mask::Causal => "causal",
        };
        let mut metadata = notes.clone();
        for (key, value) in [("format", FORMAT), ("version", VERSION), ("mask", mask)] {
            if metadata.insert(key.into(), value.into()).is_some() {
                return Err(Error::input("layer notes", format!("the key {key} is taken"), "use another key"));
            }
        }
        let (m, d, d_out) = (self.heads.len(), self.d, self.d_out);
        let mut tensors = vec![
            ("theta", vec![m, d, d], self.per_head(|head| row_major(head.theta.to_dense().as_ref()))),
            ("w", vec![m, d, d_out], self.per_head(|head| row_major(head.w.as_ref()))),
        ];
        if self.heads.iter().any(|head| head.key_bias.is_some()) {
            let biases = self.per_head(|head| head.key_bias.clone().unwrap_or(vec![0.0; d]));
            tensors.push(("theta_bias", vec![m, d], biases));
        }
        if let Some(bias) = &self.bias {
            tensors.push(("bias", vec![d_out], bias.clone()));
        }
        let specs: Vec<_> = tensors
            .iter()
            .map(|(name, shape, _)| TensorSpec { name: (*name).into(), dtype: Dtype::F64, shape: shape.clone() })
            .collect();
        // All numbers are of one format, so the tensors stand in the order given.
        let (mut bytes, _) = layout(&specs, &metadata);
        for (_, _, numbers) in &tensors {
            bytes.extend(numbers.iter().flat_map(|v| v.to_le_bytes()));
        }
        Ok(bytes)
    }

    fn per_head(&self, numbers: impl Fn(&Head) -> Vec<f64>) -> Vec<f64> {
        self.heads.iter().flat_map(numbers).collect()
    }

    /// Reads a layer from the contents of a safetensors file; errors will call it `place`.
    pub fn from_bytes(bytes: &[u8], place: &str) -> Result<Self> {
        Self::from_contents(&Contents::read(bytes, place)?, bytes)
    }

    /// Reads a layer from a file of which the table of contents has been read.
    pub(crate) fn from_contents(contents: &Contents, bytes: &[u8]) -> Result<Self> {
        let mask = read_metadata(contents)?;
        let theta = contents.require("theta", ["m", "d", "d"], FLOATS)?;
        let w = contents.require("w", ["m", "d", "d_out"], FLOATS)?;
        let theta_bias = contents.optional("theta_bias", ["m", "d"], FLOATS)?;
        let bias = contents.optional("bias", ["d_out"], FLOATS)?;
        let [m, d, d_out] = w.shape;
        check_shape(&theta, [m, d, d])?;
        theta_bias.as_ref().map_or(Ok(()), |c| check_shape(c, [m, d]))?;
        bias.as_ref().map_or(Ok(()), |b| check_shape(b, [d_out]))?;

        // As numbers, and once more as matrices; whoever works with the layer takes as much again.
        ask(numbers::<f64>(&[3, m, d]).saturating_mul(d as u128 + d_out as u128), &contents.place, "allow more memory")?;
        let (thetas, ws) = (theta.numbers(bytes)?, w.numbers(bytes)?);
        let key_biases = theta_bias.map(|c| c.numbers(bytes)).transpose()?;
        let heads = thetas.chunks_exact(d * d).zip(ws.chunks_exact(d * d_out)).enumerate().map(|(i, (theta, w))| {
            let key_bias = key_biases.as_ref().map(|c| c[i * d..(i + 1) * d].to_vec());
            Head {
                theta: Theta::Dense(from_row_major(d, d, theta)),
                key_bias: key_bias.filter(|c| c.iter().any(|v| v.to_bits() != 0)),
                w: from_row_major(d, d_out, w),
            }
        });
        let bias = bias.map(|b| b.numbers(bytes)).transpose()?;
        Self::new(heads.collect(), bias, mask).map_err(|e| match e {
            Error::Input { problem, remedy, .. } => Error::input(&contents.place, problem, remedy),
            other => other,
        })
    }
}

/// Checks that the file is a layer that this version can read, and gives its mask.
fn read_metadata(contents: &Contents) -> Result<Mask> {
    let bad = |problem: String, remedy: &str| Err(Error::input(&contents.place, problem, remedy));
    let value = |key: &str| contents.metadata.get(key).map(|v| quoted(v));
    if contents.format != FileFormat::Safetensors || value("format").as_deref() != Some(FORMAT) {
        return bad("is not a layer".into(), "give a safetensors file with metadata format = attnlearn.layer");
    }
    match value("version").as_deref() {
        Some(VERSION) => {}
        Some(other) => {
            return bad(format!("is a layer of version {other}"), "use an attnlearn that reads it; this one reads version 1");
        }
        None => return bad("is a layer without a version".into(), "set its metadata version = 1"),
    }
    match value("mask").as_deref() {
        Some("none") => Ok(Mask::None),
        Some("causal") => Ok(Mask::Causal),
        Some(other) => bad(format!("has the unknown mask {other}"), "the masks are none and causal"),
        None => bad("is a layer without a mask".into(), "set its metadata mask to none or causal"),
    }
}

fn check_shape<const R: usize>(view: &View<R>, wanted: [usize; R]) -> Result<()> {
    if view.shape == wanted {
        return Ok(());
    }
    Err(Error::input(
        &view.place,
        format!("has shape {:?}", view.shape),
        format!("with the w of this file it must be {wanted:?}"),
    ))
}
