//! What has been measured, kept in a folder.
//!
//! | file | |
//! |---|---|
//! | `points.jsonl` | one line a finished point: itself, its rows, its seconds, and what measured it. It only grows, and is all that a later run needs |
//! | `rows.csv` | raw rows of the points that are wanted now, the point's columns first. It grows too; when a run ends it is written anew, in the order of the points |
//! | `rows.parquet` | the same, whenever a while has passed and when a run ends |
//! | `timing.csv` | seconds of every point, when a run ends |
//!
//! A line that was cut short (a killed run) is dropped and its point measured again. So is a point of another revision of the experiment, whose line stays.

use crate::experiment::Done;
use attnlearn::files::write_atomically;
use attnlearn::{Error, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of one experiment, opened to measure these points.
pub struct Store {
    folder: PathBuf,
    journal: File,
    revision: u32,
    points: Vec<Value>,
    done: BTreeMap<String, Done>,
    columns: Columns,
    written: Instant,
}

/// Time between two Parquet files.
const OFTEN: Duration = Duration::from_secs(10);

/// What a point is known by.
fn key(point: &Value) -> String {
    point.to_string()
}

/// What a journal has of these points, and how many of its bytes are whole lines. Of two lines of a point the newer one counts.
fn read(path: &Path, bytes: &[u8], revision: u32, points: &[Value]) -> Result<(BTreeMap<String, Done>, usize)> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let wanted: HashSet<String> = points.iter().map(key).collect();
    let mut done = BTreeMap::new();
    for (number, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
        let one: Done = serde_json::from_slice(line).map_err(|e| {
            let place = format!("{}, line {}", path.display(), number + 1);
            Error::input(place, e.to_string(), "remove this line, and its point is measured again")
        })?;
        let known = key(&one.point);
        if one.revision == revision && wanted.contains(&known) {
            done.insert(known, one);
        }
    }
    Ok((done, whole))
}

/// Those of these points that a folder has, in their order. Nothing is changed, and another run may be writing to it.
pub fn measured(folder: &Path, revision: u32, points: &[Value]) -> Result<Vec<Done>> {
    let path = folder.join("points.jsonl");
    let bytes = match std::fs::read(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|e| Error::io(&path, e))?,
    };
    let (mut done, _) = read(&path, &bytes, revision, points)?;
    Ok(points.iter().filter_map(|point| done.remove(&key(point))).collect())
}

/// All of it or nothing.
fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    file.write_all(bytes).and_then(|()| file.sync_data()).inspect_err(|_| {
        // If this fails too the next run drops what is not a whole line.
        let _ = file.set_len(before);
    })
}

impl Store {
    /// Opens the folder, which is made if there is none. Kept points of another `revision` count for nothing.
    pub fn open(folder: &Path, revision: u32, points: &[Value]) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        let path = folder.join("points.jsonl");
        let fault = |e| Error::io(&path, e);
        let mut journal = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(fault)?;
        match journal.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(Error::input(
                    path.display().to_string(),
                    "another run writes to it",
                    "wait for it, or use another folder",
                ));
            }
            // Some file systems have no locks: one run at a time is then up to the user.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let mut bytes = Vec::new();
        journal.seek(SeekFrom::Start(0)).map_err(fault)?;
        journal.read_to_end(&mut bytes).map_err(fault)?;
        let (done, whole) = read(&path, &bytes, revision, points)?;
        if whole < bytes.len() {
            journal.set_len(whole as u64).map_err(fault)?;
        }
        let (folder, points) = (folder.into(), points.to_vec());
        Ok(Self { folder, journal, revision, points, done, columns: Columns::default(), written: Instant::now() })
    }

    /// The points that are not there yet.
    pub fn left(&self) -> Vec<Value> {
        self.points.iter().filter(|point| !self.done.contains_key(&key(point))).cloned().collect()
    }

    /// The points that are there, in their order.
    pub fn done(&self) -> Vec<Done> {
        self.points.iter().filter_map(|point| self.done.get(&key(point)).cloned()).collect()
    }

    /// Keeps a point.
    pub fn add(&mut self, point: &Value, rows: Vec<Value>, seconds: f64) -> Result<()> {
        let version = env!("CARGO_PKG_VERSION").into();
        let done = Done { point: point.clone(), rows, seconds, revision: self.revision, version };
        let path = self.folder.join("points.jsonl");
        let mut line = serde_json::to_string(&done).map_err(|e| Error::io(&path, e.into()))?;
        line.push('\n');
        append(&mut self.journal, line.as_bytes()).map_err(|e| Error::io(&path, e))?;
        self.grow(done)?;
        if self.written.elapsed() > OFTEN {
            self.parquet(&self.done())?;
            self.written = Instant::now();
        }
        Ok(())
    }

    /// More rows of the CSV file.
    fn grow(&mut self, done: Done) -> Result<()> {
        let path = self.folder.join("rows.csv");
        let known = key(&done.point);
        if self.columns.add(&done) {
            // The first of this run, or one that has more to say than those before.
            self.done.insert(known, done);
            self.done.values().for_each(|done| {
                self.columns.add(done);
            });
            return write_atomically(&path, &csv(&self.columns.names(), &self.done())?);
        }
        let rows = table(&self.columns.names(), std::slice::from_ref(&done))?;
        self.done.insert(known, done);
        let mut file = OpenOptions::new().append(true).open(&path).map_err(|e| Error::io(&path, e))?;
        file.write_all(&rows).map_err(|e| Error::io(&path, e))
    }

    /// Writes the tables of what is there anew, in the order of the points. Where nothing is there yet, tables of other points are taken away.
    pub fn tables(&self) -> Result<()> {
        let done = self.done();
        if done.is_empty() {
            return ["rows.csv", "rows.parquet", "timing.csv"].iter().try_for_each(|name| remove(&self.folder.join(name)));
        }
        write_atomically(&self.folder.join("rows.csv"), &csv(&Columns::of(&done).names(), &done)?)?;
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
        crate::parquet::write(&self.folder.join("rows.parquet"), &Columns::of(done).names(), &rows(done))
    }

    #[cfg(not(feature = "parquet"))]
    fn parquet(&self, _done: &[Done]) -> Result<()> {
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

fn unwritable(e: csv::Error) -> Error {
    Error::input("rows.csv", e.to_string(), "report it: this is a mistake in the experiment")
}

fn names(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().into_iter().flat_map(serde_json::Map::keys)
}

/// Columns of a table of rows: the point's, then the rows'.
#[derive(Default)]
struct Columns {
    points: BTreeSet<String>,
    rows: BTreeSet<String>,
}

impl Columns {
    fn of(done: &[Done]) -> Self {
        let mut columns = Self::default();
        done.iter().for_each(|done| {
            columns.add(done);
        });
        columns
    }

    /// Those of another point; whether there are more now.
    fn add(&mut self, done: &Done) -> bool {
        let before = self.points.len() + self.rows.len();
        self.points.extend(names(&done.point).cloned());
        self.rows.extend(done.rows.iter().flat_map(names).cloned());
        self.points.len() + self.rows.len() > before
    }

    fn names(&self) -> Vec<String> {
        self.points.iter().chain(self.rows.difference(&self.points)).cloned().collect()
    }
}

/// All rows, with their point's values.
#[cfg(feature = "parquet")]
fn rows(done: &[Done]) -> Vec<serde_json::Map<String, Value>> {
    let full = |done: &Done, row: &Value| {
        [&done.point, row].into_iter().filter_map(Value::as_object).flat_map(|map| map.clone()).collect()
    };
    done.iter().flat_map(|done| done.rows.iter().map(move |row| full(done, row))).collect()
}

fn csv(columns: &[String], done: &[Done]) -> Result<Vec<u8>> {
    let mut head = csv::Writer::from_writer(Vec::new());
    head.write_record(columns).map_err(unwritable)?;
    let mut bytes = head.into_inner().map_err(|e| unwritable(e.into_error().into()))?;
    bytes.extend(table(columns, done)?);
    Ok(bytes)
}

/// Rows without a head.
fn table(columns: &[String], done: &[Done]) -> Result<Vec<u8>> {
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

    fn point(n: u64) -> Value {
        json!({"n": n, "seed": 1})
    }

    fn points(all: impl Iterator<Item = u64>) -> Vec<Value> {
        all.map(point).collect()
    }

    fn add(store: &mut Store, n: u64) {
        let rows = vec![json!({"error": 0.1 / n as f64, "model": "a,b"}), json!({"error": null, "model": "ReLÜ"})];
        store.add(&point(n), rows, 0.5).unwrap();
    }

    /// The points that are there.
    fn there(store: &Store) -> Vec<u64> {
        store.done().iter().map(|done| done.point["n"].as_u64().unwrap()).collect()
    }

    #[test]
    fn a_run_that_was_killed_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.jsonl");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let points = points(1..4);
        let open = || Store::open(folder.path(), 0, &points);
        let mut store = open().unwrap();
        assert!(open().is_err(), "two runs must not write to one folder");
        (1..4).for_each(|n| add(&mut store, n));
        drop(store);
        let journal = read("points.jsonl");
        // Cut the last point short: anywhere, and within a letter of two bytes.
        for cut in [journal.len() - 10, journal.rfind('Ü').unwrap() + 1] {
            std::fs::write(&path, &journal.as_bytes()[..cut]).unwrap();
            // Who only reads leaves it as it is, and need not wait.
            assert_eq!(measured(folder.path(), 0, &points).unwrap().len(), 2);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), cut as u64);
            let mut store = open().unwrap();
            assert_eq!((there(&store), store.left()), (vec![1, 2], vec![point(3)]));
            assert_eq!(measured(folder.path(), 0, &points).unwrap(), store.done());
            add(&mut store, 3);
            assert_eq!(read("points.jsonl"), journal);
        }
        open().unwrap().tables().unwrap();
        let rows = read("rows.csv");
        assert_eq!(rows.lines().next(), Some("n,seed,error,model"));
        assert_eq!(rows.lines().nth(1), Some("1,1,0.1,\"a,b\""));
        assert_eq!(rows.lines().count(), 7);
        assert_eq!(read("timing.csv").lines().count(), 4);
    }

    /// Rows appear while the run goes on, also when a later point has columns of its own.
    #[test]
    fn rows_are_there_as_soon_as_they_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let read = || std::fs::read_to_string(folder.path().join("rows.csv")).unwrap();
        let mut store = Store::open(folder.path(), 0, &points(1..10)).unwrap();
        add(&mut store, 2);
        assert_eq!(read().lines().count(), 3);
        add(&mut store, 1);
        assert_eq!(read().lines().count(), 5);
        store.add(&point(9), vec![json!({"more": true})], 0.0).unwrap();
        assert_eq!(read().lines().next(), Some("n,seed,error,model,more"));
        assert_eq!(read().lines().filter(|line| line.ends_with(",true")).count(), 1);
    }

    /// Tables are of the points that are wanted, whatever else the journal has.
    #[test]
    fn tables_have_only_what_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let read = || std::fs::read_to_string(folder.path().join("rows.csv")).unwrap();
        let mut store = Store::open(folder.path(), 0, &points(1..4)).unwrap();
        (1..4).for_each(|n| add(&mut store, n));
        store.tables().unwrap();
        drop(store);
        let mut store = Store::open(folder.path(), 0, &points(3..6)).unwrap();
        store.tables().unwrap();
        assert_eq!(read().lines().count(), 3);
        add(&mut store, 5);
        assert_eq!(read().lines().count(), 5);
        assert!(read().lines().skip(1).all(|line| line.starts_with("3,") || line.starts_with("5,")), "{}", read());
        drop(store);
        Store::open(folder.path(), 0, &points(8..9)).unwrap().tables().unwrap();
        assert!(["rows.csv", "rows.parquet", "timing.csv"].iter().all(|name| !folder.path().join(name).exists()));
    }

    /// What another revision of an experiment has measured is measured again.
    #[test]
    fn other_revisions_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.jsonl");
        // As the first version wrote it.
        std::fs::write(&path, "{\"point\":{\"n\":1,\"seed\":1},\"rows\":[{\"error\":7}],\"seconds\":1.0}\n").unwrap();
        let points = points(1..2);
        assert_eq!(measured(folder.path(), 0, &points).unwrap()[0].version, "0.1.0");
        let mut store = Store::open(folder.path(), 1, &points).unwrap();
        assert_eq!(store.left(), points);
        add(&mut store, 1);
        drop(store);
        let kept = measured(folder.path(), 1, &points).unwrap();
        assert_eq!((kept[0].revision, kept[0].version.as_str(), kept[0].rows.len()), (1, env!("CARGO_PKG_VERSION"), 2));
        // The newer of two lines counts.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{}", text.lines().nth(1).unwrap().replace("0.5", "2.5") + "\n")).unwrap();
        assert!((measured(folder.path(), 1, &points).unwrap()[0].seconds - 2.5).abs() < 1e-12);
    }

    /// Numbers come back as they were, to the last bit: without care one in a dozen does not.
    #[test]
    fn numbers_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let points: Vec<Value> = (1..200).map(|n| json!({"level": 0.1 / f64::from(n), "seed": n})).collect();
        let rows = |point: &Value| vec![json!({"error": (point["level"].as_f64().unwrap() * 1e-3).exp_m1()})];
        let mut store = Store::open(folder.path(), 0, &points).unwrap();
        points.iter().for_each(|point| store.add(point, rows(point), 0.0).unwrap());
        let read = measured(folder.path(), 0, &points).unwrap();
        assert_eq!(read.len(), points.len());
        for (point, done) in points.iter().zip(read) {
            assert_eq!((&done.point, done.rows), (point, rows(point)));
        }
    }

    #[test]
    fn damaged_journals_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("points.jsonl"), "{\"point\": 1\n{}\n").unwrap();
        let error = Store::open(folder.path(), 0, &[]).err().unwrap().to_string();
        assert!(error.contains("line 1") && error.contains("remove this line"), "{error}");
    }
}
