//! What has been measured, kept in a folder.
//!
//! | file | |
//! |---|---|
//! | `points.jsonl` | one line a finished point: itself, its rows, its seconds. It only grows, and is all that a later run needs |
//! | `rows.csv` | raw rows, the point's columns first. It grows too; when all is measured it is written anew, in the order of the points |
//! | `rows.parquet` | the same, whenever a while has passed and at the end |
//! | `timing.csv` | seconds of every point |
//!
//! A line that was cut short (a killed run) is dropped and its point measured again.

use crate::experiment::Done;
use attnlearn::data::write_atomically;
use attnlearn::{Error, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of one experiment.
pub struct Store {
    folder: PathBuf,
    journal: File,
    done: BTreeMap<String, Done>,
    columns: Option<Columns>,
    written: Instant,
}

/// Columns of a table of rows.
type Columns = Vec<String>;

/// Time between two Parquet files.
const OFTEN: Duration = Duration::from_secs(10);

/// What a point is known by.
fn key(point: &Value) -> String {
    point.to_string()
}

impl Store {
    /// Opens the folder, which is made if there is none.
    pub fn open(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        let path = folder.join("points.jsonl");
        let fault = |e| Error::io(&path, e);
        let mut journal = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(fault)?;
        if journal.try_lock().is_err() {
            return Err(Error::input(
                path.display().to_string(),
                "another run writes to it",
                "wait for it, or use another folder",
            ));
        }
        let mut text = String::new();
        journal.seek(SeekFrom::Start(0)).map_err(fault)?;
        journal.read_to_string(&mut text).map_err(fault)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < text.len() {
            journal.set_len(whole as u64).map_err(fault)?;
        }
        let mut done = BTreeMap::new();
        for (number, line) in text[..whole].lines().enumerate() {
            let point: Done = serde_json::from_str(line).map_err(|e| {
                let place = format!("{}, line {}", path.display(), number + 1);
                Error::input(place, e.to_string(), "remove the file to measure everything again")
            })?;
            done.insert(key(&point.point), point);
        }
        Ok(Self { folder: folder.into(), journal, done, columns: None, written: Instant::now() })
    }

    /// Whether a point is there.
    pub fn has(&self, point: &Value) -> bool {
        self.done.contains_key(&key(point))
    }

    /// Those of these points that are there, in their order.
    pub fn select(&self, points: &[Value]) -> Vec<Done> {
        points.iter().filter_map(|point| self.done.get(&key(point)).cloned()).collect()
    }

    /// Keeps a point.
    pub fn add(&mut self, done: Done) -> Result<()> {
        let path = self.folder.join("points.jsonl");
        let mut line = serde_json::to_string(&done).map_err(|e| Error::io(&path, e.into()))?;
        line.push('\n');
        self.journal.write_all(line.as_bytes()).and_then(|()| self.journal.sync_data()).map_err(|e| Error::io(&path, e))?;
        self.append(&done)?;
        self.done.insert(key(&done.point), done);
        if self.written.elapsed() > OFTEN {
            self.parquet(&self.done.values().cloned().collect::<Vec<_>>())?;
            self.written = Instant::now();
        }
        Ok(())
    }

    /// More rows of the CSV file.
    fn append(&mut self, done: &Done) -> Result<()> {
        let path = self.folder.join("rows.csv");
        let all = || self.done.values().chain(std::iter::once(done));
        let columns = columns(all());
        if self.columns.as_ref() != Some(&columns) {
            // The first of this run, or one that has more to say than those before.
            write_atomically(&path, &csv(&columns, all())?)?;
            self.columns = Some(columns);
            return Ok(());
        }
        let rows = table(&columns, std::iter::once(done))?;
        let mut file = OpenOptions::new().append(true).open(&path).map_err(|e| Error::io(&path, e))?;
        file.write_all(&rows).map_err(|e| Error::io(&path, e))
    }

    /// Writes the tables of these points anew, in their order.
    pub fn finish(&self, points: &[Value]) -> Result<()> {
        let done = self.select(points);
        write_atomically(&self.folder.join("rows.csv"), &csv(&columns(done.iter()), done.iter())?)?;
        let mut times = csv::Writer::from_writer(Vec::new());
        let mut put = |cells: [&str; 2]| times.write_record(cells).map_err(unwritable);
        put(["point", "seconds"])?;
        for done in &done {
            put([&key(&done.point), &format!("{:.3}", done.seconds)])?;
        }
        let times = times.into_inner().map_err(|e| unwritable(e.into_error().into()))?;
        write_atomically(&self.folder.join("timing.csv"), &times)?;
        self.parquet(&done)
    }

    #[cfg(feature = "parquet")]
    fn parquet(&self, done: &[Done]) -> Result<()> {
        crate::parquet::write(&self.folder.join("rows.parquet"), &columns(done.iter()), &rows(done))
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet(&self, _done: &[Done]) -> Result<()> {
        Ok(())
    }
}

fn unwritable(e: csv::Error) -> Error {
    Error::input("rows.csv", e.to_string(), "report it: this is a mistake in the experiment")
}

fn names(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().into_iter().flat_map(serde_json::Map::keys)
}

/// The point's columns, then the rows'.
fn columns<'a>(done: impl Iterator<Item = &'a Done>) -> Columns {
    let (mut of_points, mut of_rows) = (BTreeSet::new(), BTreeSet::new());
    for done in done {
        of_points.extend(names(&done.point).cloned());
        of_rows.extend(done.rows.iter().flat_map(names).cloned());
    }
    let of_rows = of_rows.into_iter().filter(|name| !of_points.contains(name)).collect::<Vec<_>>();
    of_points.iter().cloned().chain(of_rows).collect()
}

/// All rows, with their point's values.
#[cfg(feature = "parquet")]
fn rows(done: &[Done]) -> Vec<serde_json::Map<String, Value>> {
    let full = |done: &Done, row: &Value| {
        [&done.point, row].into_iter().filter_map(Value::as_object).flat_map(|map| map.clone()).collect()
    };
    done.iter().flat_map(|done| done.rows.iter().map(move |row| full(done, row))).collect()
}

fn csv<'a>(columns: &Columns, done: impl Iterator<Item = &'a Done>) -> Result<Vec<u8>> {
    let mut head = csv::Writer::from_writer(Vec::new());
    head.write_record(columns).map_err(unwritable)?;
    let mut bytes = head.into_inner().map_err(|e| unwritable(e.into_error().into()))?;
    bytes.extend(table(columns, done)?);
    Ok(bytes)
}

/// Rows without a head.
fn table<'a>(columns: &Columns, done: impl Iterator<Item = &'a Done>) -> Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for done in done {
        for row in &done.rows {
            let cell = |name: &String| match done.point.get(name).or_else(|| row.get(name)) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            out.write_record(columns.iter().map(cell)).map_err(unwritable)?;
        }
    }
    out.into_inner().map_err(|e| unwritable(e.into_error().into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use serde_json::json;

    fn done(n: u64) -> Done {
        let rows = vec![json!({"error": 0.1 / n as f64, "model": "a,b"}), json!({"error": null, "model": "ReLU"})];
        Done { point: json!({"n": n, "seed": 1}), rows, seconds: 0.5 }
    }

    #[test]
    fn a_run_that_was_killed_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        assert!(Store::open(folder.path()).is_err(), "two runs must not write to one folder");
        (1..4).for_each(|n| store.add(done(n)).unwrap());
        drop(store);
        // Cut the last point short.
        let journal = read("points.jsonl");
        std::fs::write(folder.path().join("points.jsonl"), &journal[..journal.len() - 10]).unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let has: Vec<bool> = (1..4).map(|n| store.has(&done(n).point)).collect();
        assert_eq!(has, [true, true, false]);
        store.add(done(3)).unwrap();
        assert_eq!(read("points.jsonl"), journal);
        let points: Vec<Value> = (1..4).map(|n| done(n).point).collect();
        store.finish(&points).unwrap();
        let rows = read("rows.csv");
        assert_eq!(rows.lines().next(), Some("n,seed,error,model"));
        assert_eq!(rows.lines().nth(1), Some("1,1,0.1,\"a,b\""));
        assert_eq!(rows.lines().count(), 7);
        assert_eq!(store.select(&points[1..]), [done(2), done(3)]);
        assert_eq!(read("timing.csv").lines().count(), 4);
    }

    /// Rows appear while the run goes on, also when a later point has columns of its own.
    #[test]
    fn rows_are_there_as_soon_as_they_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let read = || std::fs::read_to_string(folder.path().join("rows.csv")).unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        store.add(done(2)).unwrap();
        assert_eq!(read().lines().count(), 3);
        store.add(done(1)).unwrap();
        assert_eq!(read().lines().count(), 5);
        store.add(Done { point: json!({"n": 9, "seed": 1}), rows: vec![json!({"more": true})], seconds: 0.0 }).unwrap();
        assert_eq!(read().lines().next(), Some("n,seed,error,model,more"));
        assert_eq!(read().lines().filter(|line| line.ends_with(",true")).count(), 1);
    }

    /// Numbers come back as they were, to the last bit: without care one in a dozen does not.
    #[test]
    fn numbers_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let points: Vec<Value> = (1..200).map(|n| json!({"level": 0.1 / f64::from(n), "seed": n})).collect();
        let rows = |point: &Value| vec![json!({"error": (point["level"].as_f64().unwrap() * 1e-3).exp_m1()})];
        let mut store = Store::open(folder.path()).unwrap();
        points.iter().for_each(|point| store.add(Done { point: point.clone(), rows: rows(point), seconds: 0.0 }).unwrap());
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        for (point, done) in points.iter().zip(store.select(&points)) {
            assert_eq!((&done.point, done.rows), (point, rows(point)));
        }
        assert!(points.iter().all(|point| store.has(point)));
    }

    #[test]
    fn damaged_journals_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("points.jsonl"), "{\"point\": 1\n{}\n").unwrap();
        let error = Store::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
