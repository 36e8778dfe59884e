//! Runs that go on where they were, with an experiment made for it.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use attnlearn::{Error, Result};
use attnlearn_lab::experiment::Of;
use attnlearn_lab::{Entry, Experiment, Finding, Measurements, Plan, Scale, Summary, Watch};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Squares of numbers, and how often one was computed.
struct Squares;

#[derive(Serialize, Deserialize)]
struct Config {
    numbers: Vec<u64>,
    factor: f64,
}

#[derive(Serialize, Deserialize)]
struct Point {
    number: u64,
    seed: u64,
}

#[derive(Serialize, Deserialize)]
struct Row {
    square: u64,
    odd: bool,
}

/// Of points with this seed: a test has one of its own.
static COMPUTED: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

impl Experiment for Squares {
    const NAME: &'static str = "squares";
    const TITLE: &'static str = "Squares of numbers";
    const QUESTION: &'static str = "How large are they?";
    const CLAIM: &'static str = "Large.";
    const TOGETHER: bool = true;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config { numbers: (1..scale.pick(6, 60)).collect(), factor: 1.0 }
    }

    fn check(config: &Config) -> Result<()> {
        if config.factor < 0.0 { Err(Error::input("factor", "it is negative", "take another")) } else { Ok(()) }
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        config.numbers.iter().map(|&number| Point { number, seed }).collect()
    }

    fn measure(point: &Point, _: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        COMPUTED[point.seed as usize].fetch_add(1, Ordering::Relaxed);
        match point.number {
            13 => return Err(Error::input("number", "it is 13", "take another")),
            14 => panic!("it is {}", point.number),
            _ => {}
        }
        Ok(vec![Row { square: point.number.pow(2), odd: point.number % 2 == 1 }])
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let sum: u64 = rows.iter().map(|measured| measured.row.square).sum();
        Ok(Summary { findings: vec![Finding::open(format!("The sum is {}.", config.factor * sum as f64))], ..Summary::default() })
    }
}

static SQUARES: Of<Squares> = Of::new();

fn plan(out: &Path, seed: u64, replaced: &str) -> Plan {
    let entries: Vec<&'static dyn Entry> = vec![&SQUARES];
    Plan { entries, scale: Scale::Quick, seed, out: out.into(), findings: None, replaced: replaced.parse().unwrap() }
}

fn computed(seed: u64) -> usize {
    COMPUTED[seed as usize].load(Ordering::Relaxed)
}

/// Stops after so many points.
struct After(usize, AtomicUsize);

impl Watch for After {
    fn point(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    fn interrupted(&self) -> bool {
        self.1.load(Ordering::Relaxed) >= self.0
    }
}

fn watch(points: usize) -> After {
    After(points, AtomicUsize::new(0))
}

fn read(out: &Path, name: &str) -> String {
    std::fs::read_to_string(out.join("squares").join(name)).unwrap()
}

#[test]
fn what_has_been_measured_is_not_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    // No more points can be under way than there are threads.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    assert!(matches!(pool.install(|| plan(out, 1, "").run(&watch(2))), Err(Error::Interrupted)));
    let before = computed(1);
    assert!((2..4).contains(&before), "{before}");
    assert_eq!(read(out, "rows.csv").lines().count(), 1 + before, "rows are there as soon as they are measured");
    let finished = plan(out, 1, "").run(&watch(100)).unwrap();
    assert_eq!(computed(1), 5);
    assert_eq!(finished[0].summary.findings, [Finding::open("The sum is 55.")]);
    // Another choice of points measures only what is new, and tells of its own points alone.
    let finished = plan(out, 1, "[squares]\nnumbers = [2, 9]").run(&watch(100)).unwrap();
    assert_eq!((computed(1), finished[0].points), (6, 2));
    assert_eq!(read(out, "rows.csv"), "number,seed,odd,square\n2,1,false,4\n9,1,true,81\n");
    assert!(read(out, "config.toml").contains("numbers = ["));
    assert!(read(out, "summary.json").contains("The sum is 85."));
    // What points do not depend on asks for no measurement.
    let finished = plan(out, 1, "[squares]\nnumbers = [2, 9]\nfactor = 2.0").run(&watch(100)).unwrap();
    assert_eq!((computed(1), finished[0].summary.findings[0].text.as_str()), (6, "The sum is 170."));
}

#[test]
fn rows_do_not_depend_on_threads_or_interruptions() {
    let rows = |threads: usize, stops: &[usize], seed: u64| {
        let folder = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            stops.iter().for_each(|stop| assert!(plan(folder.path(), seed, "").run(&watch(*stop)).is_err()));
            plan(folder.path(), seed, "").run(&watch(100)).unwrap();
        });
        (read(folder.path(), "rows.csv"), std::fs::read(folder.path().join("squares/rows.parquet")).unwrap())
    };
    let whole = rows(1, &[], 2);
    assert_eq!(whole.0.lines().count(), 6);
    assert!(whole == rows(2, &[1, 1], 2));
}

#[test]
fn bad_configurations_are_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let bad = [
        ("[squares]\nnumber = [1]", "there is no `number`"),
        ("[squares]\nnumbers = 7", "configuration of squares"),
        ("[squares]\nnumbers = []", "nothing to measure"),
        ("squares = 3", "it is no table"),
        ("[cubes]\nnumbers = [1]", "[cubes] is not among"),
        ("[squares]\nfactor = -1.0", "it is negative"),
    ];
    for (text, problem) in bad {
        let error = plan(folder.path(), 3, text).run(&watch(100)).err().unwrap().to_string();
        assert!(error.contains(problem), "{text}: {error}");
    }
    assert_eq!(computed(3), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_point_that_fails_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = plan(folder.path(), 4, "[squares]\nnumbers = [1, 13]").run(&watch(100)).err().unwrap().to_string();
    assert!(error.contains("squares") && error.contains("\"number\":13") && error.contains("it is 13"), "{error}");
}

/// A panic is an error that names the point; what was measured before it is kept, in all tables.
#[test]
fn a_point_that_panics_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = || plan(folder.path(), 5, "[squares]\nnumbers = [1, 14]").run(&watch(100)).err().unwrap().to_string();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let error = pool.install(run);
    assert!(error.contains("squares at {\"number\":14,") && error.contains("it is 14") && error.contains("report it"), "{error}");
    assert_eq!(read(folder.path(), "rows.csv").lines().count(), 2);
    assert!(folder.path().join("squares/rows.parquet").is_file());
}

/// What need not be measured need not be possible any more.
#[test]
fn only_what_is_to_be_measured_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), 6, "").run(&watch(100)).unwrap();
    assert!(plan(folder.path(), 6, "[squares]\nfactor = -1.0").run(&watch(100)).is_ok());
    let error = plan(folder.path(), 6, "[squares]\nfactor = -1.0\nnumbers = [1, 7]").check().err().unwrap().to_string();
    assert!(error.contains("it is negative"), "{error}");
}

/// A run that is stopped leaves the result of the one before, and tables of its own points alone.
#[test]
fn a_stopped_run_leaves_the_last_result() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    plan(out, 7, "").run(&watch(100)).unwrap();
    let summary = read(out, "summary.json");
    let other = plan(out, 7, "[squares]\nnumbers = [5, 7, 8, 9, 10]\nfactor = 2.0");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert!(pool.install(|| other.run(&watch(1))).is_err());
    assert!(read(out, "rows.csv").lines().skip(1).all(|row| row.starts_with("5,") || row.starts_with("7,")));
    assert!(read(out, "rows.csv").lines().count() == 3 && read(out, "config.toml").contains("factor = 2.0"));
    assert_eq!(read(out, "summary.json"), summary);
    let last = other.earlier(&SQUARES).unwrap().unwrap();
    assert_eq!((last.points, last.overtaken, last.summary.findings[0].text.as_str()), (5, true, "The sum is 55."));
    assert!(last.configuration().unwrap().contains("factor = 1.0"));
    // Folders of the first version have the configuration beside the summary only.
    let old = summary.replace("\"config\"", "\"else\"");
    std::fs::write(out.join("squares/summary.json"), old).unwrap();
    assert!(other.earlier(&SQUARES).unwrap().is_none(), "that run is not over");
    plan(out, 7, "").run(&watch(100)).unwrap();
    let last = other.earlier(&SQUARES).unwrap().unwrap();
    assert_eq!((last.points, last.overtaken, last.version.as_str()), (5, false, env!("CARGO_PKG_VERSION")));
    // What cannot be shown says why.
    std::fs::write(out.join("squares/points.jsonl"), "").unwrap();
    let error = other.earlier(&SQUARES).err().unwrap().to_string();
    assert!(error.contains("5 of 5 points are missing") && error.contains("run it again"), "{error}");
}
