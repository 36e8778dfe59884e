//! Measures what has not been measured, and says what follows.

use crate::experiment::{Done, Entry, Scale, Summary};
use crate::experiments::all;
use crate::store::Store;
use crate::{findings, report};
use attnlearn::data::write_atomically;
use attnlearn::{Error, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What to run.
pub struct Plan {
    /// Which experiments.
    pub entries: Vec<&'static dyn Entry>,
    /// How much of them.
    pub scale: Scale,
    /// Seed of everything.
    pub seed: u64,
    /// Where to.
    pub out: PathBuf,
    /// Where the page of Markdown goes, if not there.
    pub findings: Option<PathBuf>,
    /// A table an experiment, with what is to differ from the defaults.
    pub replaced: toml::Table,
}

/// Who watches, and may stop it.
pub trait Watch: Sync {
    /// An experiment begins; so many of its points were there before.
    fn begin(&self, _entry: &dyn Entry, _points: usize, _before: usize) {}
    /// A point has been measured.
    fn point(&self) {}
    /// An experiment is over.
    fn end(&self, _finished: &Finished) {}
    /// Whether to stop.
    fn interrupted(&self) -> bool {
        false
    }
}

/// An experiment that is over.
#[derive(Serialize)]
pub struct Finished {
    /// Its name.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What was asked.
    pub question: &'static str,
    /// What is claimed.
    pub claim: &'static str,
    /// How much was measured.
    pub scale: Scale,
    /// Seed.
    pub seed: u64,
    /// Version of the program.
    pub version: String,
    /// Points.
    pub points: usize,
    /// Rows.
    pub rows: usize,
    /// Seconds that they took, all in all.
    pub seconds: f64,
    /// The configuration as it is kept.
    #[serde(skip)]
    pub config: String,
    /// Whether that is the default of its scale.
    #[serde(skip)]
    pub by_default: bool,
    /// What follows.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The configuration as it is kept beside the rows: with it an experiment's rows can be told from others in its folder.
#[derive(Serialize, Deserialize)]
struct Kept {
    experiment: String,
    version: String,
    scale: Scale,
    seed: u64,
    config: toml::Table,
}

impl Kept {
    fn points(&self, entry: &dyn Entry) -> Result<Vec<Value>> {
        entry.points(&self.config, self.seed)
    }

    fn text(&self) -> Result<String> {
        toml::to_string_pretty(self).map_err(|e| Error::input("configuration", e.to_string(), "leave it at its defaults"))
    }

    /// What follows from the points, all of which have been measured.
    fn finish(&self, entry: &dyn Entry, done: &[Done]) -> Result<Finished> {
        Ok(Finished {
            name: entry.name(),
            title: entry.title(),
            question: entry.question(),
            claim: entry.claim(),
            scale: self.scale,
            seed: self.seed,
            version: self.version.clone(),
            points: done.len(),
            rows: done.iter().map(|done| done.rows.len()).sum(),
            seconds: done.iter().map(|done| done.seconds).sum(),
            config: self.text()?,
            by_default: self.config == entry.config(self.scale, &toml::Table::new())?,
            summary: entry.summarise(&self.config, done)?,
        })
    }
}

/// What is to differ from the defaults, a table an experiment, as a file has it: one table each, or the configuration that a run has kept of one.
pub fn replaced(file: toml::Table) -> toml::Table {
    match Kept::deserialize(toml::Value::Table(file.clone())) {
        Ok(kept) => toml::Table::from_iter([(kept.experiment, toml::Value::Table(kept.config))]),
        Err(_) => file,
    }
}

impl Plan {
    /// The configuration of an experiment.
    pub fn config(&self, entry: &dyn Entry) -> Result<toml::Table> {
        let none = toml::Table::new();
        let replaced = match self.replaced.get(entry.name()) {
            None => &none,
            Some(toml::Value::Table(table)) => table,
            Some(_) => {
                return Err(Error::input(
                    format!("configuration of {}", entry.name()),
                    "it is no table",
                    "write [NAME] and its values below",
                ));
            }
        };
        entry.config(self.scale, replaced)
    }

    /// Refuses what cannot be run, before anything is.
    pub fn check(&self) -> Result<()> {
        if let Some(name) = self.replaced.keys().find(|name| !self.entries.iter().any(|entry| entry.name() == **name)) {
            return Err(Error::input(
                "configuration",
                format!("[{name}] is not among the experiments to be run"),
                "see `attnlearn lab list`",
            ));
        }
        for entry in &self.entries {
            if entry.points(&self.config(*entry)?, self.seed)?.is_empty() {
                return Err(Error::input(
                    format!("configuration of {}", entry.name()),
                    "there is nothing to measure",
                    "leave no list empty",
                ));
            }
        }
        Ok(())
    }

    /// Runs everything. The pages of what is over are there after every experiment: a run that is killed leaves them too.
    pub fn run(&self, watch: &dyn Watch) -> Result<Vec<Finished>> {
        self.check()?;
        let mine = |entry: &&dyn Entry| self.entries.iter().any(|other| other.name() == entry.name());
        let others = all().iter().copied().filter(|entry| !mine(entry));
        let before: Vec<Finished> = others.filter_map(|entry| self.earlier(entry)).collect();
        let mut finished = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            finished.push(self.run_one(*entry, watch)?);
            let waiting: Vec<&str> = self.entries[i + 1..].iter().map(|entry| entry.title()).collect();
            let mut shown: Vec<&Finished> = before.iter().chain(&finished).collect();
            shown.sort_by_key(|one| all().iter().position(|entry| entry.name() == one.name));
            write_atomically(&self.out.join("report.html"), report::page(&shown, &waiting)?.as_bytes())?;
            let place = self.findings.clone().unwrap_or_else(|| self.out.join("findings.md"));
            write_atomically(&place, findings::markdown(&shown, &from(&place, &self.out)).as_bytes())?;
        }
        Ok(finished)
    }

    /// An experiment that an earlier run has finished in the same folder, whatever its scale and seed were. `None` if points are missing, or if it cannot
    /// be read any more.
    pub fn earlier(&self, entry: &dyn Entry) -> Option<Finished> {
        let folder = self.out.join(entry.name());
        let kept: Kept = toml::from_str(&std::fs::read_to_string(folder.join("config.toml")).ok()?).ok()?;
        let points = kept.points(entry).ok()?;
        let done = Store::open(&folder).ok()?.select(&points);
        if done.len() < points.len() { None } else { kept.finish(entry, &done).ok() }
    }

    fn run_one(&self, entry: &dyn Entry, watch: &dyn Watch) -> Result<Finished> {
        let folder = self.out.join(entry.name());
        let kept = Kept {
            experiment: entry.name().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            scale: self.scale,
            seed: self.seed,
            config: self.config(entry)?,
        };
        let points = kept.points(entry)?;
        let store = Store::open(&folder)?;
        write_atomically(&folder.join("config.toml"), kept.text()?.as_bytes())?;
        let left: Vec<&Value> = points.iter().filter(|point| !store.has(point)).collect();
        watch.begin(entry, points.len(), points.len() - left.len());
        let store = Mutex::new(store);
        let stop = || watch.interrupted();
        let measure = |point: &Value| -> Result<()> {
            if stop() {
                return Err(Error::Interrupted);
            }
            let begun = Instant::now();
            let rows = entry.measure(point, &stop).map_err(|e| blame(entry, point, e))?;
            let done = Done { point: point.clone(), rows, seconds: begun.elapsed().as_secs_f64() };
            store.lock().unwrap_or_else(PoisonError::into_inner).add(done)?;
            watch.point();
            Ok(())
        };
        if entry.together() {
            left.into_iter().par_bridge().try_for_each(measure)?;
        } else {
            left.into_iter().try_for_each(measure)?;
        }
        let store = store.into_inner().unwrap_or_else(PoisonError::into_inner);
        store.finish(&points)?;
        let finished = kept.finish(entry, &store.select(&points))?;
        finished.write(&folder)?;
        watch.end(&finished);
        Ok(finished)
    }
}

/// A folder as a page links to it: relative where the page is in a folder above it.
fn from(page: &Path, folder: &Path) -> String {
    let within = page.parent().and_then(|above| folder.strip_prefix(above).ok());
    match within.map(|path| path.display().to_string().replace('\\', "/")) {
        Some(path) if path.is_empty() => ".".into(),
        Some(path) => path,
        None => folder.display().to_string(),
    }
}

/// Says which point it was.
fn blame(entry: &dyn Entry, point: &Value, error: Error) -> Error {
    match error {
        Error::Input { place, problem, remedy } => Error::input(format!("{} at {point}: {place}", entry.name()), problem, remedy),
        other => other,
    }
}

impl Finished {
    /// The command that measures the same again, if results are in `folder`.
    pub fn command(&self, folder: &str) -> String {
        let scale = report::word(self.scale);
        let config = if self.by_default { String::new() } else { format!(" --config {folder}/{}/config.toml", self.name) };
        format!("attnlearn lab run {} --scale {scale} --seed {}{config}", self.name, self.seed)
    }

    /// Summary and pictures.
    fn write(&self, folder: &Path) -> Result<()> {
        let place = folder.join("summary.json");
        let mut text = serde_json::to_string_pretty(self).map_err(|e| Error::io(&place, e.into()))?;
        text.push('\n');
        write_atomically(&place, text.as_bytes())?;
        self.summary
            .figures
            .iter()
            .try_for_each(|figure| write_atomically(&folder.join(format!("{}.svg", figure.name)), figure.file().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_where_they_can_be() {
        for (page, folder, link) in
            [("lab/findings.md", "lab", "."), ("docs/findings.md", "docs/findings", "findings"), ("a.md", "/b", "/b")]
        {
            assert_eq!(from(Path::new(page), Path::new(folder)), link);
        }
    }
}
