//! The tensors of a model: one safetensors file, or many with an index, and the `config.json` that lies beside them.

use crate::data::file::{Bytes, Contents};
use crate::linalg::Mat;
use crate::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
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
    config: Option<Value>,
}

impl ModelFile {
    /// Opens a safetensors file, an index of several (`….safetensors.index.json`), or a folder that has either.
    pub fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let path = if path.is_dir() { in_folder(path)? } else { path.to_owned() };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let files = if path.extension().is_some_and(|e| e == "json") { listed(&path)? } else { vec![path] };
        let mut model = Self { place, shards: Vec::new(), names: BTreeMap::new(), config: None };
        for file in files {
            let bytes = Bytes::open(&file)?;
            let contents = Contents::read(&bytes, &file.display().to_string())?;
            model.names.extend(contents.tensors.keys().map(|name| (name.clone(), model.shards.len())));
            model.shards.push((bytes, contents));
        }
        let config = folder.join("config.json");
        if config.is_file() {
            model.config = Some(json(&config)?);
        }
        Ok(model)
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

    /// Whether there is such a tensor.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// A setting of `config.json`.
    pub(super) fn setting(&self, key: &str) -> Option<&Value> {
        self.config.as_ref()?.get(key)
    }

    /// A matrix, as it stands in the file.
    pub(super) fn matrix(&self, name: &str) -> Result<Mat<f64>> {
        let (shape, numbers) = self.numbers(name)?;
        let [rows, cols] = shape[..] else { return Err(self.rank(name, &shape, "two")) };
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
            format!("{}, {name}", self.place),
            format!("has shape {}", crate::words::shape(shape)),
            format!("it must have {wanted} dimensions"),
        )
    }

    fn numbers(&self, name: &str) -> Result<(Vec<usize>, Vec<f64>)> {
        let place = format!("{}, {name}", self.place);
        let Some((bytes, contents)) = self.names.get(name).map(|&shard| &self.shards[shard]) else {
            return Err(Error::input(&self.place, format!("has no tensor {name}"), "give all files of the model"));
        };
        contents.any_float(name, bytes, &place)
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
