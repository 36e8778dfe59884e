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

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        config.numbers.iter().map(|&number| Point { number, seed }).collect()
    }

    fn measure(point: &Point, _: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        COMPUTED[point.seed as usize].fetch_add(1, Ordering::Relaxed);
        if point.number == 13 {
            return Err(Error::input("number", "it is 13", "take another"));
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
    assert!(matches!(plan(out, 1, "").run(&watch(2)), Err(Error::Interrupted)));
    let before = computed(1);
    assert!((2..5).contains(&before), "{before}");
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
