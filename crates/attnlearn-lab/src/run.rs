//! Measures what has not been measured, and says what follows.

use crate::experiment::{Done, Entry, Scale, Summary};
use crate::experiments::all;
use crate::store::{self, Store};
use crate::{findings, report};
use attnlearn::files::write_atomically;
use attnlearn::{Error, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::any::Any;
use std::collections::{BTreeSet, HashSet};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// What an earlier run has left of an experiment cannot be shown.
    fn hidden(&self, _entry: &dyn Entry, _why: &Error) {}
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
    /// Versions of the program that measured it.
    pub version: String,
    /// Points.
    pub points: usize,
    /// Rows.
    pub rows: usize,
    /// Seconds that the points took, added up.
    pub seconds: f64,
    /// What was chosen.
    pub config: toml::Table,
    /// Whether that is the default of its scale.
    #[serde(skip)]
    pub by_default: bool,
    /// Whether several points were measured at once.
    #[serde(skip)]
    pub together: bool,
    /// Whether a later run with other settings has begun in its folder and is not over: tables and configuration there are that run's.
    #[serde(skip)]
    pub overtaken: bool,
    /// What follows.
    #[serde(flatten)]
    pub summary: Summary,
}

/// What an experiment was run with, as it is kept: as a file beside the rows, and in the summary of what is over.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(alias = "name")]
    experiment: String,
    version: String,
    scale: Scale,
    seed: u64,
    config: toml::Table,
}

/// A file that need not be there.
fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|e| Error::io(path, e)),
    }
}

impl Kept {
    /// Of the tables in this folder.
    fn of_tables(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("config.toml");
        let fault = |e: toml::de::Error| Error::input(path.display().to_string(), e.message(), "run the experiment again");
        read(&path)?.map(|text| toml::from_str(&text).map_err(fault)).transpose()
    }

    /// Of the summary in this folder, if it says so: those of the first version do not.
    fn of_summary(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("summary.json");
        let fault = |e: serde_json::Error| Error::input(path.display().to_string(), e.to_string(), "run the experiment again");
        let Some(text) = read(&path)? else { return Ok(None) };
        let summary: Value = serde_json::from_str(&text).map_err(fault)?;
        if summary.get("config").is_none() {
            return Ok(None);
        }
        Self::deserialize(summary).map(Some).map_err(fault)
    }

    fn points(&self, entry: &dyn Entry) -> Result<Vec<Value>> {
        entry.points(&self.config, self.seed)
    }

    fn text(&self) -> Result<String> {
        toml::to_string_pretty(self).map_err(|e| Error::input("configuration", e.to_string(), "leave it at its defaults"))
    }

    /// Whether the same is measured.
    fn same(&self, other: &Self) -> bool {
        (self.scale, self.seed, &self.config) == (other.scale, other.seed, &other.config)
    }

    /// What follows from the points, all of which have been measured.
    fn finish(self, entry: &dyn Entry, done: &[Done]) -> Result<Finished> {
        let versions: BTreeSet<&str> = done.iter().map(|done| done.version.as_str()).collect();
        Ok(Finished {
            name: entry.name(),
            title: entry.title(),
            question: entry.question(),
            claim: entry.claim(),
            scale: self.scale,
            seed: self.seed,
            version: Vec::from_iter(versions).join(", "),
            points: done.len(),
            rows: done.iter().map(|done| done.rows.len()).sum(),
            seconds: done.iter().map(|done| done.seconds).sum(),
            by_default: self.config == entry.config(self.scale, &toml::Table::new())?,
            together: entry.together(),
            overtaken: false,
            summary: entry.summarise(&self.config, done)?,
            config: self.config,
        })
    }
}

/// What a file of configuration says.
#[derive(Debug, Default)]
pub struct Given {
    /// A table an experiment, with what is to differ from the defaults.
    pub replaced: toml::Table,
    /// How much to measure, where a run has kept it.
    pub scale: Option<Scale>,
    /// The seed, likewise.
    pub seed: Option<u64>,
}

impl Given {
    /// Of a file at `place`: one table an experiment, or the configuration that a run has kept of one.
    pub fn new(file: toml::Table, place: &str) -> Result<Self> {
        if !["experiment", "config"].iter().all(|key| file.contains_key(*key)) {
            return Ok(Self { replaced: file, scale: None, seed: None });
        }
        let kept = Kept::deserialize(toml::Value::Table(file)).map_err(|e| {
            let remedy = "take the file as a run has left it, or write [NAME] and what is to differ below";
            Error::input(place, e.to_string().trim().replace('\n', " "), remedy)
        })?;
        let replaced = toml::Table::from_iter([(kept.experiment, toml::Value::Table(kept.config))]);
        Ok(Self { replaced, scale: Some(kept.scale), seed: Some(kept.seed) })
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
            let config = self.config(*entry)?;
            let points = entry.points(&config, self.seed)?;
            if points.is_empty() {
                return Err(Error::input(
                    format!("configuration of {}", entry.name()),
                    "there is nothing to measure",
                    "leave no list empty",
                ));
            }
            if store::measured(&self.folder(*entry), entry.revision(), &points)?.len() < points.len() {
                entry.check(&config)?;
            }
        }
        Ok(())
    }

    fn folder(&self, entry: &dyn Entry) -> PathBuf {
        self.out.join(entry.name())
    }

    fn mine(&self, entry: &dyn Entry) -> bool {
        self.entries.iter().any(|other| other.name() == entry.name())
    }

    /// Runs everything. The pages of what is over are there after every experiment: a run that is killed leaves them too.
    pub fn run(&self, watch: &dyn Watch) -> Result<Vec<Finished>> {
        self.check()?;
        let mut finished = Vec::new();
        let mut told = HashSet::new();
        for entry in &self.entries {
            finished.push(self.run_one(*entry, watch)?);
            self.pages(&finished, |entry, why| {
                if told.insert(entry.name()) {
                    watch.hidden(entry, why);
                }
            })?;
        }
        Ok(finished)
    }

    /// Pages of what is over and of what earlier runs have left, which is read again each time: another run may have written it meanwhile.
    fn pages(&self, finished: &[Finished], mut hide: impl FnMut(&dyn Entry, &Error)) -> Result<()> {
        let unlisted = self.entries.iter().filter(|entry| !all().iter().any(|other| other.name() == entry.name()));
        let every: Vec<&dyn Entry> = all().iter().chain(unlisted).copied().map(|entry| entry as &dyn Entry).collect();
        let mut rest = report::Rest::default();
        let mut before = Vec::new();
        for entry in every.iter().copied().filter(|entry| !finished.iter().any(|one| one.name == entry.name())) {
            let waiting = self.mine(entry).then(|| entry.title());
            match self.earlier(entry) {
                Ok(Some(one)) => {
                    rest.earlier.extend(waiting);
                    before.push(one);
                }
                Ok(None) => rest.waiting.extend(waiting),
                Err(why) => {
                    rest.waiting.extend(waiting);
                    rest.hidden.push(format!("{}: {why}", entry.name()));
                    hide(entry, &why);
                }
            }
        }
        let mut shown: Vec<&Finished> = before.iter().chain(finished).collect();
        shown.sort_by_key(|one| every.iter().position(|entry| entry.name() == one.name));
        write_atomically(&self.out.join("report.html"), report::page(&shown, &rest)?.as_bytes())?;
        let place = self.findings.clone().unwrap_or_else(|| self.out.join("findings.md"));
        write_atomically(&place, findings::markdown(&shown, &from(&place, &self.out)).as_bytes())
    }

    /// The last result of an experiment that an earlier run has left in the same folder, whatever its scale and seed were. `None` if there is none.
    pub fn earlier(&self, entry: &dyn Entry) -> Result<Option<Finished>> {
        let folder = self.folder(entry);
        let (summary, tables) = (Kept::of_summary(&folder)?, Kept::of_tables(&folder)?);
        let overtaken = summary.as_ref().zip(tables.as_ref()).is_some_and(|(one, other)| !one.same(other));
        let over = summary.is_some();
        let Some(kept) = summary.or(tables) else { return Ok(None) };
        let points = kept.points(entry)?;
        let done = store::measured(&folder, entry.revision(), &points)?;
        match points.len() - done.len() {
            0 => kept.finish(entry, &done).map(|finished| Some(Finished { overtaken, ..finished })),
            missing if over => Err(Error::input(
                folder.join("points.jsonl").display().to_string(),
                format!("{missing} of {} points are missing, or of another revision of the experiment", points.len()),
                "run it again",
            )),
            // A run that was not over.
            _ => Ok(None),
        }
    }

    fn run_one(&self, entry: &dyn Entry, watch: &dyn Watch) -> Result<Finished> {
        let folder = self.folder(entry);
        let kept = Kept {
            experiment: entry.name().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            scale: self.scale,
            seed: self.seed,
            config: self.config(entry)?,
        };
        let points = kept.points(entry)?;
        let store = Store::open(&folder, entry.revision(), &points)?;
        write_atomically(&folder.join("config.toml"), kept.text()?.as_bytes())?;
        store.tables()?;
        let left = store.left();
        watch.begin(entry, points.len(), points.len() - left.len());
        let store = Mutex::new(store);
        let stop = || watch.interrupted();
        let measure = |point: Value| -> Result<()> {
            if stop() {
                return Err(Error::Interrupted);
            }
            let begun = Instant::now();
            let rows = measure(entry, &point, &stop)?;
            store.lock().unwrap_or_else(PoisonError::into_inner).add(&point, rows, begun.elapsed().as_secs_f64())?;
            watch.point();
            Ok(())
        };
        let measured = if entry.together() {
            left.into_iter().par_bridge().try_for_each(measure)
        } else {
            left.into_iter().try_for_each(measure)
        };
        let store = store.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Also of a run that is stopped; what stopped it is the first thing to be said.
        let written = store.tables();
        measured.and(written)?;
        let finished = kept.finish(entry, &store.done())?;
        finished.write(&folder)?;
        watch.end(&finished);
        Ok(finished)
    }
}

/// Measures a point. A panic is an error like any other: the other points are kept, and it says which one it was.
fn measure(entry: &dyn Entry, point: &Value, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Value>> {
    let measured = catch_unwind(AssertUnwindSafe(|| entry.measure(point, stop)));
    measured.map_err(|panic| broken(entry, point, &*panic))?.map_err(|e| blame(entry, point, e))
}

/// What a panic said.
fn broken(entry: &dyn Entry, point: &Value, panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::input(
        format!("{} at {point}", entry.name()),
        format!("it broke off ({})", said.unwrap_or("nothing was said")),
        "report it: this is a mistake in the experiment; or choose other sizes",
    )
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
    /// The configuration as it is kept.
    pub fn configuration(&self) -> Result<String> {
        let (experiment, version, config) = (self.name.into(), self.version.clone(), self.config.clone());
        Kept { experiment, version, scale: self.scale, seed: self.seed, config }.text()
    }

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
