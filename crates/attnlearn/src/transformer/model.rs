//! The tensors of a model: one safetensors file, or many with an index, and the `config.json` that lies beside them.

use crate::files::{Bytes, Contents, offence};
use crate::layer::Mask;
use crate::linalg::Mat;
use crate::memory::filled;
use crate::words::quoted;
use crate::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Names that models have in their folder.
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The most that an index or a configuration may have: they are read whole.
const LONGEST: u64 = 64 << 20;

/// A model's tensors, mapped and not loaded.
#[derive(Debug)]
pub struct ModelFile {
    /// What errors call it.
    pub(super) place: String,
    shards: Vec<(Bytes, Contents)>,
    /// Name → number of the shard.
    names: BTreeMap<String, usize>,
    pub(super) config: Option<Value>,
    /// What the files' own metadata say, as settings.
    pub(super) metadata: Value,
}

impl ModelFile {
    /// Opens a safetensors file, an index of several (`….safetensors.index.json`), or a folder that has either.
    pub fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let path = if path.is_dir() { in_folder(path)? } else { path.to_owned() };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let paths = if path.extension().is_some_and(|e| e == "json") { listed(&path)? } else { vec![path] };
        let mut model = Self { place, shards: Vec::new(), names: BTreeMap::new(), config: None, metadata: Value::Null };
        let mut metadata = serde_json::Map::new();
        for file in &paths {
            let bytes = Bytes::open(file)?;
            let contents = Contents::read(&bytes, &file.display().to_string())?;
            for name in contents.tensors.keys() {
                if let Some(other) = model.names.insert(name.clone(), model.shards.len()) {
                    let problem = format!("the tensor {} stands in {} too", quoted(name), paths[other].display());
                    let remedy = "take one of the two away: which of them a program reads is chance";
                    return Err(Error::input(file.display().to_string(), problem, remedy));
                }
            }
            metadata.extend(contents.metadata.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))));
            model.shards.push((bytes, contents));
        }
        model.metadata = Value::Object(metadata);
        let config = folder.join("config.json");
        if config.is_file() {
            model.config = Some(json(&config)?);
        }
        Ok(model)
    }

    /// The files that opening this model would read, as far as they can be told.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let file = if path.is_dir() { in_folder(path).ok() } else { Some(path.to_owned()) };
        let Some(file) = file else { return Vec::new() };
        let shards = if file.extension().is_some_and(|e| e == "json") { listed(&file).unwrap_or_default() } else { Vec::new() };
        let config = file.parent().map(|folder| folder.join("config.json"));
        shards.into_iter().chain(config).chain([file]).collect()
    }

    /// Whether it is no file of this crate: then what is missing in it is a transformer's layer.
    pub fn is_foreign(&self) -> bool {
        self.shards
            .iter()
            .all(|(_, contents)| !contents.metadata.get("format").is_some_and(|format| format.starts_with("attnlearn")))
    }

    /// All names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// All names that begin like this, in order.
    pub(super) fn names_from<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let from = self.names.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.map(|(name, _)| name.as_str()).take_while(move |name| name.starts_with(prefix))
    }

    /// Whether there is such a tensor.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The mask that [`super::Projections::to_bytes`] notes in the metadata.
    pub(super) fn mask_of_file(&self) -> Option<Mask> {
        match self.metadata.get("mask").and_then(Value::as_str) {
            Some("causal") => Some(Mask::Causal),
            Some("none") => Some(Mask::None),
            _ => None,
        }
    }

    /// The number of heads that [`super::Projections::to_bytes`] notes there.
    pub(super) fn heads_of_file(&self) -> Option<usize> {
        self.metadata.get("heads").and_then(Value::as_str)?.parse().ok().filter(|&heads| heads > 0)
    }

    /// The shape of a tensor that is there.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        let (_, contents) = &self.shards[*self.names.get(name)?];
        contents.tensors.get(name).map(|tensor| tensor.shape.as_slice())
    }

    /// A matrix, as it stands in the file.
    pub(super) fn matrix(&self, name: &str) -> Result<Mat<f64>> {
        let (shape, numbers) = self.numbers(name)?;
        let [rows, cols] = shape[..] else { return Err(self.rank(name, &shape, "two")) };
        // Zero times enormous is no number at all, but an enormous matrix.
        if rows == 0 || cols == 0 {
            let place = format!("{}, {}", self.place, quoted(name));
            return Err(Error::input(place, format!("has shape {shape:?}"), "every dimension must be at least 1"));
        }
        Ok(Mat::from_fn(rows, cols, |i, j| numbers[i * cols + j]))
    }

    /// A vector; zeros if there is none.
    pub(super) fn vector(&self, name: &str, len: usize) -> Result<Vec<f64>> {
        if !self.has(name) {
            return Ok(vec![0.0; len]);
        }
        let (shape, numbers) = self.numbers(name)?;
        if shape.len() == 1 { Ok(numbers) } else { Err(self.rank(name, &shape, "one")) }
    }

    fn rank(&self, name: &str, shape: &[usize], wanted: &str) -> Error {
        Error::input(
            format!("{}, {}", self.place, quoted(name)),
            format!("has shape {}", crate::words::shape(shape)),
            format!("it must have {wanted} dimensions"),
        )
    }

    /// Shape and numbers of a tensor of real numbers.
    pub(super) fn numbers(&self, name: &str) -> Result<(Vec<usize>, Vec<f64>)> {
        let place = format!("{}, {}", self.place, quoted(name));
        let Some((bytes, contents)) = self.names.get(name).map(|&shard| &self.shards[shard]) else {
            return Err(Error::input(&self.place, format!("has no tensor {}", quoted(name)), "give all files of the model"));
        };
        contents.any_float(name, bytes, &place)
    }

    /// As [`Self::numbers`], of whole numbers and truth values too.
    pub(super) fn any_numbers(&self, name: &str) -> Result<(Vec<usize>, Vec<f64>)> {
        let found = self.names.get(name).map(|&shard| &self.shards[shard]);
        match found.and_then(|(bytes, contents)| Some((bytes, contents.tensors.get(name)?))) {
            Some((bytes, tensor)) if tensor.half.is_none() && tensor.data.is_ok() => {
                let place = || format!("{}, {}", self.place, quoted(name));
                let mut numbers = filled(tensor.shape.iter().product(), &place(), "allow more memory")?;
                let data = tensor.data.clone().map_err(|refusal| Error::input(place(), refusal.problem, refusal.remedy))?;
                let decoded = data.dtype.decode(&bytes[data.range], &mut numbers, 1);
                decoded.map_err(|value| Error::input(place(), offence(value), "give finite numbers"))?;
                Ok((tensor.shape.clone(), numbers))
            }
            _ => self.numbers(name),
        }
    }
}

fn in_folder(folder: &Path) -> Result<PathBuf> {
    let found = [WHOLE, INDEX].map(|name| folder.join(name)).into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let problem = format!("has neither {WHOLE} nor {INDEX}");
        Error::input(folder.display().to_string(), problem, "give the file itself")
    })
}

/// The files that an index names, each once, beside it.
fn listed(index: &Path) -> Result<Vec<PathBuf>> {
    let place = index.display().to_string();
    let wrong = |problem: &str| Error::input(&place, problem, "give an index as model hubs write it");
    let value = json(index)?;
    let map = value.get("weight_map").and_then(Value::as_object).ok_or_else(|| wrong("has no weight_map"))?;
    let mut names: Vec<&str> = map.values().filter_map(Value::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Err(wrong("names no files"));
    }
    // A name that leads out of the folder is not one of a shard.
    if names.iter().any(|name| name.contains(['/', '\\']) || name.starts_with("..")) {
        return Err(wrong("names files of other folders"));
    }
    let folder = index.parent().unwrap_or(Path::new(""));
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

fn json(path: &Path) -> Result<Value> {
    let place = path.display().to_string();
    let about = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if about.len() > LONGEST {
        return Err(Error::input(place, "is too long for an index or a configuration", "check the path"));
    }
    let text = fs::read(path).map_err(|e| Error::io(path, e))?;
    serde_json::from_slice(&text).map_err(|e| Error::input(place, format!("is no JSON ({e})"), "download it again"))
}
