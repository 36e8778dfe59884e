//! Measures what has not been measured, and says what follows.

use crate::experiment::{Done, Entry, Scale, Summary};
use crate::report;
use crate::store::Store;
use attnlearn::data::write_atomically;
use attnlearn::{Error, Result};
use rayon::prelude::*;
use serde::Serialize;
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
    /// What is claimed.
    pub claim: &'static str,
    /// How much was measured.
    pub scale: Scale,
    /// Seed.
    pub seed: u64,
    /// Version of the program.
    pub version: &'static str,
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
#[derive(Serialize)]
struct Kept<'a> {
    experiment: &'static str,
    version: &'static str,
    scale: Scale,
    seed: u64,
    config: &'a toml::Table,
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
        let mut finished = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            finished.push(self.run_one(*entry, watch)?);
            let waiting: Vec<&str> = self.entries[i + 1..].iter().map(|entry| entry.title()).collect();
            write_atomically(&self.out.join("report.html"), report::page(&finished, &waiting)?.as_bytes())?;
        }
        Ok(finished)
    }

    fn run_one(&self, entry: &dyn Entry, watch: &dyn Watch) -> Result<Finished> {
        let (config, folder) = (self.config(entry)?, self.out.join(entry.name()));
        let points = entry.points(&config, self.seed)?;
        let store = Store::open(&folder)?;
        let kept = Kept {
            experiment: entry.name(),
            version: env!("CARGO_PKG_VERSION"),
            scale: self.scale,
            seed: self.seed,
            config: &config,
        };
        let kept = toml::to_string_pretty(&kept)
            .map_err(|e| Error::input("configuration", e.to_string(), "leave it at its defaults"))?;
        write_atomically(&folder.join("config.toml"), kept.as_bytes())?;
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
        let done = store.select(&points);
        let finished = Finished {
            name: entry.name(),
            title: entry.title(),
            question: entry.question(),
            claim: entry.claim(),
            scale: self.scale,
            seed: self.seed,
            version: env!("CARGO_PKG_VERSION"),
            points: points.len(),
            rows: done.iter().map(|done| done.rows.len()).sum(),
            seconds: done.iter().map(|done| done.seconds).sum(),
            config: kept,
            summary: entry.summarise(&config, &done)?,
        };
        finished.write(&folder)?;
        watch.end(&finished);
        Ok(finished)
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
