//! Layers in files: safetensors with the tensors
//!
//! ```text
//! theta        [m, d, d]       attention matrices; or their factors Θ = ABᵀ, of version 2:
//! a            [m, d, r]
//! b            [g, d, r]       one for every key group
//! group        [m]             the number of every head's group
//! theta_bias   [m, d]          key biases c; like all that follow, zero for a head that has none and absent if no head has one
//! query_bias   [m, r]          a°
//! key_bias     [m, r]          b°
//! query_gain   [m, r]          γ
//! key_gain     [m, r]          κ
//! frequencies  [pairs]         rotary positions: pair j is of the coordinates j and j + pairs
//! slopes       [m]             relative biases −s|Δ|; or a table of them, from the distance `relative_first` in the metadata on:
//! relative     [m, distances]
//! w            [m, d, d_out]   projections
//! bias         [d_out]         output bias
//! ```
//!
//! in double precision (single precision is read too), and metadata `format`, `version`, `mask` (`none`, `causal` or `window:N`), `norm` (the ε of query/key norms) and whatever notes the
//! writer left. What version 1 has no place for, factors above all, is version 2; version 1 is written where it has a place for everything, and is read for ever.

use super::{AttentionLayer, Head, Mask, Relative, Rotation, Scores, Terms, Theta};
use crate::files::{Bytes, Contents, Dtype, FLOATS, FileFormat, TensorSpec, View, layout, write_atomically};
use crate::linalg::{Mat, from_row_major, row_major};
use crate::memory::{ask, numbers};
use crate::words::quoted;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

const FORMAT: &str = "attnlearn.layer";

/// A tensor to be written, and a note in the metadata.
type Named = (&'static str, Vec<usize>, Vec<f64>);
type Note = (&'static str, String);

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
        let (m, d, d_out) = (self.heads.len(), self.d, self.d_out);
        let (mut tensors, mut more) = self.attention_tensors()?;
        let second = tensors[0].0 == "a" || !more.is_empty() || tensors.len() > 1 || matches!(self.scores.mask, Mask::Window(_));
        more.extend([
            ("format", FORMAT.to_owned()),
            ("version", if second { "2" } else { "1" }.to_owned()),
            ("mask", self.scores.mask.to_string()),
        ]);
        let mut metadata = notes.clone();
        for (key, value) in more {
            if metadata.insert(key.into(), value).is_some() {
                return Err(Error::input("layer notes", format!("the key {key} is taken"), "use another key"));
            }
        }
        tensors.push(("w", vec![m, d, d_out], self.per_head(|head| row_major(head.w.as_ref()))));
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

    /// What attention is made of, `a` or `theta` first, and what of it stands in the metadata.
    fn attention_tensors(&self) -> Result<(Vec<Named>, Vec<Note>)> {
        let (m, d) = (self.heads.len(), self.d);
        let factors: Option<Vec<(&Mat<f64>, &Mat<f64>)>> = self.heads.iter().map(|head| head.theta.factors()).collect();
        let same = |factors: &Vec<(&Mat<f64>, &Mat<f64>)>| factors.iter().all(|(a, _)| a.ncols() == factors[0].0.ncols());
        let (mut tensors, mut metadata) = (Vec::new(), Vec::new());
        match factors.filter(same) {
            // Factors that are as large as what they make are not worth keeping for themselves.
            Some(factors) if !self.scores.is_bilinear() || 2 * factors[0].0.ncols() < d => {
                let (r, groups) = (factors[0].0.ncols(), self.groups());
                let count = groups.iter().max().map_or(0, |most| most + 1);
                let keys = (0..count).filter_map(|group| groups.iter().position(|other| *other == group));
                tensors.push(("a", vec![m, d, r], factors.iter().flat_map(|(a, _)| row_major(a.as_ref())).collect()));
                tensors.push(("b", vec![count, d, r], keys.flat_map(|head| row_major(factors[head].1.as_ref())).collect()));
                tensors.push(("group", vec![m], groups.iter().map(|group| *group as f64).collect()));
                let of_r = |name: &'static str, none: f64, of: &dyn Fn(&Terms) -> Option<Vec<f64>>| {
                    let any = self.heads.iter().any(|head| of(&head.terms).is_some());
                    any.then(|| (name, vec![m, r], self.per_head(|head| of(&head.terms).unwrap_or_else(|| vec![none; r]))))
                };
                tensors.extend(of_r("query_bias", 0.0, &|terms| terms.query.clone()));
                tensors.extend(of_r("key_bias", 0.0, &|terms| terms.key.clone()));
                tensors.extend(of_r("query_gain", 1.0, &|terms| terms.gains.as_ref().map(|gains| gains[0].clone())));
                tensors.extend(of_r("key_gain", 1.0, &|terms| terms.gains.as_ref().map(|gains| gains[1].clone())));
            }
            _ => tensors.push(("theta", vec![m, d, d], self.per_head(|head| row_major(head.theta.to_dense().as_ref())))),
        }
        if let Some(Rotation { frequencies }) = &self.scores.rotation {
            tensors.push(("frequencies", vec![frequencies.len()], frequencies.clone()));
        }
        if let Some(epsilon) = self.scores.norm {
            metadata.push(("norm", format!("{epsilon:e}")));
        }
        let relative: Vec<Option<&Relative>> = self.heads.iter().map(|head| head.terms.relative.as_ref()).collect();
        if relative.iter().any(Option::is_some) {
            let slope = |relative: &Option<&Relative>| match relative {
                None => Some(0.0),
                Some(Relative::Slope(slope)) => Some(*slope),
                Some(Relative::Table { .. }) => None,
            };
            if let Some(slopes) = relative.iter().map(slope).collect() {
                tensors.push(("slopes", vec![m], slopes));
            } else if let Some((first, last)) = tables(&relative) {
                let row = |relative: &Option<&Relative>| {
                    (first..=last).map(|at| relative.map_or(0.0, |relative| relative.at(at))).collect::<Vec<_>>()
                };
                tensors.push(("relative", vec![m, (last - first) as usize + 1], relative.iter().flat_map(row).collect()));
                metadata.push(("relative_first", first.to_string()));
            } else {
                let problem = "some heads have a slope for a relative bias, others a table";
                return Err(Error::input("layer", problem, "give all heads the same kind"));
            }
        }
        Ok((tensors, metadata))
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
        let mut scores = read_metadata(contents)?;
        let w = contents.require("w", ["m", "d", "d_out"], FLOATS)?;
        let [m, d, d_out] = w.shape;
        // As numbers, and once more as matrices; whoever works with the layer takes as much again.
        ask(numbers::<f64>(&[3, m, d]).saturating_mul(d as u128 + d_out as u128), &contents.place, "allow more memory")?;
        let reader = Reader { contents, bytes, m };
        if let Some(frequencies) = contents.optional("frequencies", ["pairs"], FLOATS)? {
            scores.rotation = Some(Rotation { frequencies: frequencies.numbers(bytes)? });
        }
        let (thetas, r) = match contents.optional("a", ["m", "d", "r"], FLOATS)? {
            Some(a) => reader.factors(&a, d)?,
            None => (reader.dense(d)?, 0),
        };
        let key_biases = reader.rows("theta_bias", d)?;
        let [query, key, query_gain, key_gain] =
            ["query_bias", "key_bias", "query_gain", "key_gain"].map(|name| reader.rows(name, r));
        let (query, key, query_gain, key_gain) = (query?, key?, query_gain?, key_gain?);
        let relative = reader.relative()?;
        let row =
            |rows: &Option<Vec<f64>>, i: usize, width: usize| rows.as_ref().map(|rows| rows[i * width..(i + 1) * width].to_vec());
        let some = |row: Option<Vec<f64>>| row.filter(|row| row.iter().any(|v| v.to_bits() != 0));
        let ws = w.numbers(bytes)?;
        let heads = thetas.into_iter().zip(ws.chunks_exact((d * d_out).max(1))).enumerate().map(|(i, (theta, w))| {
            let gains = match (row(&query_gain, i, r), row(&key_gain, i, r)) {
                (None, None) => None,
                (query, key) => Some([query, key].map(|gains| gains.unwrap_or_else(|| vec![1.0; r]))),
            };
            let terms = Terms {
                query: some(row(&query, i, r)),
                key: some(row(&key, i, r)),
                gains,
                relative: relative.as_ref().map(|relative| relative[i].clone()),
            };
            Head { theta, key_bias: some(row(&key_biases, i, d)), w: from_row_major(d, d_out, w), terms }
        });
        let bias = contents.optional("bias", ["d_out"], FLOATS)?;
        bias.as_ref().map_or(Ok(()), |b| check_shape(b, [d_out]))?;
        let bias = bias.map(|b| b.numbers(bytes)).transpose()?;
        Self::new(heads.collect(), bias, scores).map_err(|e| match e {
            Error::Input { place, problem, remedy } if place != *"layer" => {
                Error::input(format!("{}, {place}", contents.place), problem, remedy)
            }
            Error::Input { problem, remedy, .. } => Error::input(&contents.place, problem, remedy),
            other => other,
        })
    }
}

impl Theta {
    /// `A` and `B`, if it is kept as a product.
    pub fn factors(&self) -> Option<(&Mat<f64>, &Mat<f64>)> {
        match self {
            Self::Dense(_) => None,
            Self::LowRank { a, b } => Some((a, b)),
        }
    }
}

/// The distances that tables go over; `None` if not all are tables.
fn tables(relative: &[Option<&Relative>]) -> Option<(isize, isize)> {
    let ends = relative.iter().flatten().map(|relative| match relative {
        Relative::Table { first, values } => Some((*first, *first + values.len() as isize - 1)),
        Relative::Slope(_) => None,
    });
    let ends: Vec<(isize, isize)> = ends.collect::<Option<_>>()?;
    Some((ends.iter().map(|end| end.0).min()?, ends.iter().map(|end| end.1).max()?))
}

/// The tensors of a file.
struct Reader<'a> {
    contents: &'a Contents,
    bytes: &'a [u8],
    m: usize,
}

impl Reader<'_> {
    fn dense(&self, d: usize) -> Result<Vec<Theta>> {
        let theta = self.contents.require("theta", ["m", "d", "d"], FLOATS)?;
        check_shape(&theta, [self.m, d, d])?;
        let thetas = theta.numbers(self.bytes)?;
        Ok(thetas.chunks_exact((d * d).max(1)).map(|theta| Theta::Dense(from_row_major(d, d, theta))).collect())
    }

    /// Factors of all heads, and their rank.
    fn factors(&self, a: &View<3>, d: usize) -> Result<(Vec<Theta>, usize)> {
        let r = a.shape[2];
        check_shape(a, [self.m, d, r])?;
        let b = self.contents.require("b", ["groups", "d", "r"], FLOATS)?;
        let count = b.shape[0];
        check_shape(&b, [count, d, r])?;
        let group = self.contents.require("group", ["m"], FLOATS)?;
        check_shape(&group, [self.m])?;
        let (a, b, groups) = (a.numbers(self.bytes)?, b.numbers(self.bytes)?, group.numbers(self.bytes)?);
        let block = |numbers: &[f64], i: usize| from_row_major(d, r, &numbers[i * d * r..(i + 1) * d * r]);
        let head = |(i, group): (usize, &f64)| {
            let whole = *group >= 0.0 && *group < count as f64 && group.fract() <= 0.0;
            if !whole {
                let problem = format!("head {i} is in group {group}, the file has {count}");
                return Err(Error::input(&self.contents.place, problem, "number the groups from 0"));
            }
            Ok(Theta::LowRank { a: block(&a, i), b: block(&b, *group as usize) })
        };
        Ok((groups.iter().enumerate().map(head).collect::<Result<_>>()?, r))
    }

    /// A row of `width` numbers for every head, if they are there.
    fn rows(&self, name: &str, width: usize) -> Result<Option<Vec<f64>>> {
        let Some(rows) = self.contents.optional(name, ["m", "numbers"], FLOATS)? else { return Ok(None) };
        check_shape(&rows, [self.m, width])?;
        rows.numbers(self.bytes).map(Some)
    }

    fn relative(&self) -> Result<Option<Vec<Relative>>> {
        if let Some(slopes) = self.contents.optional("slopes", ["m"], FLOATS)? {
            check_shape(&slopes, [self.m])?;
            return Ok(Some(slopes.numbers(self.bytes)?.into_iter().map(Relative::Slope).collect()));
        }
        let Some(table) = self.contents.optional("relative", ["m", "distances"], FLOATS)? else { return Ok(None) };
        let width = table.shape[1];
        check_shape(&table, [self.m, width])?;
        let bad =
            |problem: &str| Error::input(&self.contents.place, problem, "set relative_first to the distance of the first number");
        let first = self
            .contents
            .metadata
            .get("relative_first")
            .ok_or_else(|| bad("has a table of relative biases and no first distance"))?;
        let first: i32 = first.parse().map_err(|_| bad("has a first distance that is no whole number"))?;
        if width == 0 {
            return Err(bad("has an empty table of relative biases"));
        }
        let rows = table.numbers(self.bytes)?;
        Ok(Some(rows.chunks_exact(width).map(|row| Relative::Table { first: first as isize, values: row.to_vec() }).collect()))
    }
}

/// Checks that the file is a layer that this version can read, and gives its mask and norm.
fn read_metadata(contents: &Contents) -> Result<Scores> {
    let bad = |problem: String, remedy: &str| Err(Error::input(&contents.place, problem, remedy));
    let value = |key: &str| contents.metadata.get(key).map(|v| quoted(v));
    if contents.format != FileFormat::Safetensors || value("format").as_deref() != Some(FORMAT) {
        return bad("is not a layer".into(), "give a safetensors file with metadata format = attnlearn.layer");
    }
    match value("version").as_deref() {
        Some("1" | "2") => {}
        Some(other) => {
            return bad(
                format!("is a layer of version {other}"),
                "use an attnlearn that reads it; this one reads versions 1 and 2",
            );
        }
        None => return bad("is a layer without a version".into(), "set its metadata version = 2"),
    }
    let Some(mask) = value("mask") else {
        return bad("is a layer without a mask".into(), "set its metadata mask to none, causal or window:N");
    };
    let Ok(mask) = mask.parse() else {
        return bad(format!("has the unknown mask {mask}"), "the masks are none, causal and window:N with N ≥ 1");
    };
    let norm = match contents.metadata.get("norm").map(|norm| norm.parse::<f64>()) {
        None => None,
        Some(Ok(norm)) => Some(norm),
        Some(Err(_)) => {
            return bad("has a norm whose ε is no number".into(), "set its metadata norm to the ε beside the mean square");
        }
    };
    Ok(Scores { mask, rotation: None, norm, distances: None })
}

fn check_shape<const R: usize>(view: &View<R>, wanted: [usize; R]) -> Result<()> {
    if view.shape == wanted {
        return Ok(());
    }
    Err(Error::input(
        &view.place,
        format!("has shape {:?}", view.shape),
        format!("with the other tensors of this file it must be {wanted:?}"),
    ))
}
