//! Measures what has not been measured, and says what follows.

use crate::experiment::{Done, Entry, Scale, Summary};
use crate::store::Store;
use crate::{experiments, report};
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
    /// How much was measured.
    pub scale: Scale,
    /// Seed.
    pub seed: u64,
    /// Version of the program that measured.
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
    /// What follows.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The configuration as it is kept beside the rows.
#[derive(Serialize, Deserialize)]
struct Kept {
    experiment: String,
    version: String,
    scale: Scale,
    seed: u64,
    config: toml::Table,
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

    /// Runs everything. The page of what is over is there after every experiment: a run that is killed leaves one too.
    pub fn run(&self, watch: &dyn Watch) -> Result<Vec<Finished>> {
        self.check()?;
        let planned = |name: &str| self.entries.iter().any(|entry| entry.name() == name);
        let mut finished: Vec<Finished> =
            experiments::all().iter().filter(|entry| !planned(entry.name())).filter_map(|entry| self.earlier(*entry)).collect();
        let place = |one: &Finished| experiments::all().iter().position(|entry| entry.name() == one.name).unwrap_or(usize::MAX);
        for (i, entry) in self.entries.iter().enumerate() {
            finished.push(self.run_one(*entry, watch)?);
            finished.sort_by_key(place);
            let waiting: Vec<&str> = self.entries[i + 1..].iter().map(|entry| entry.title()).collect();
            write_atomically(&self.out.join("report.html"), report::page(&finished, &waiting)?.as_bytes())?;
        }
        finished.retain(|one| planned(one.name));
        Ok(finished)
    }

    /// An experiment that an earlier run finished in the same folder, whatever its scale and seed were: the page shows it too. There is none if
    /// points are missing, or if it cannot be read any more.
    pub fn earlier(&self, entry: &dyn Entry) -> Option<Finished> {
        let folder = self.out.join(entry.name());
        let text = std::fs::read_to_string(folder.join("config.toml")).ok()?;
        let kept: Kept = toml::from_str(&text).ok()?;
        let points = entry.points(&kept.config, kept.seed).ok()?;
        let store = Store::open(&folder).ok()?;
        points.iter().all(|point| store.has(point)).then(|| conclude(entry, kept, text, &store, &points).ok())?
    }

    fn run_one(&self, entry: &dyn Entry, watch: &dyn Watch) -> Result<Finished> {
        let (config, folder) = (self.config(entry)?, self.out.join(entry.name()));
        let points = entry.points(&config, self.seed)?;
        let store = Store::open(&folder)?;
        let version = env!("CARGO_PKG_VERSION").into();
        let kept = Kept { experiment: entry.name().into(), version, scale: self.scale, seed: self.seed, config };
        let text = toml::to_string_pretty(&kept)
            .map_err(|e| Error::input("configuration", e.to_string(), "leave it at its defaults"))?;
        write_atomically(&folder.join("config.toml"), text.as_bytes())?;
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
        let finished = conclude(entry, kept, text, &store, &points)?;
        finished.write(&folder)?;
        watch.end(&finished);
        Ok(finished)
    }
}

/// What follows from the points that are there.
fn conclude(entry: &dyn Entry, kept: Kept, text: String, store: &Store, points: &[Value]) -> Result<Finished> {
    let done = store.select(points);
    Ok(Finished {
        name: entry.name(),
        title: entry.title(),
        question: entry.question(),
        scale: kept.scale,
        seed: kept.seed,
        version: kept.version,
        points: points.len(),
        rows: done.iter().map(|done| done.rows.len()).sum(),
        seconds: done.iter().map(|done| done.seconds).sum(),
        config: text,
        summary: entry.summarise(&kept.config, &done)?,
    })
}

/// Says which point it was.
fn blame(entry: &dyn Entry, point: &Value, error: Error) -> Error {
    match error {
        Error::Input { place, problem, remedy } => Error::input(format!("{} at {point}: {place}", entry.name()), problem, remedy),
        other => other,
    }
}

impl Finished {
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
