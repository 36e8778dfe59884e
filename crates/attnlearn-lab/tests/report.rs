//! A run leaves a page of what is over, whenever it ends.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use attnlearn::{Error, Result};
use attnlearn_lab::experiment::Of;
use attnlearn_lab::{Entry, Experiment, Finding, Finished, Measurements, Plan, Scale, Summary, Watch};
use attnlearn_page::Estimate;
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Serialize, Deserialize)]
struct Config {
    sizes: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct Point {
    n: u64,
    seed: u64,
}

#[derive(Serialize, Deserialize)]
struct Row {
    square: u64,
}

/// Squares numbers, under one of two names.
struct Squares<const SECOND: bool>;

impl<const SECOND: bool> Experiment for Squares<SECOND> {
    const NAME: &'static str = if SECOND { "second" } else { "first" };
    const TITLE: &'static str = if SECOND { "Squares again" } else { "Squares" };
    const QUESTION: &'static str = "How do squares grow?";
    const CLAIM: &'static str = "Squarely.";
    const TOGETHER: bool = true;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(_scale: Scale) -> Config {
        Config { sizes: vec![1, 2, 3] }
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        config.sizes.iter().map(|n| Point { n: *n, seed }).collect()
    }

    fn measure(point: &Point, _stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        Ok(vec![Row { square: point.n * point.n }])
    }

    fn summarise(_config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let points = rows.iter().map(|one| (one.point.n as f64, Estimate::exact(one.row.square as f64)));
        let chart =
            Chart { title: String::new(), x: Axis::log("n"), y: Axis::log("n²"), series: vec![Series::new("squares", points)] };
        let figure = Figure {
            name: "squares".into(),
            title: "Squares".into(),
            caption: "Two for one.".into(),
            panels: vec![Panel::Chart(chart)],
        };
        let sum: u64 = rows.iter().map(|one| one.row.square).sum();
        Ok(Summary { findings: vec![Finding::open(format!("They sum to {sum}."))], figures: vec![figure], tables: Vec::new() })
    }
}

static FIRST: Of<Squares<false>> = Of::new();
static SECOND: Of<Squares<true>> = Of::new();

/// Stops as soon as an experiment is over.
#[derive(Default)]
struct Impatient {
    ended: AtomicUsize,
}

impl Watch for Impatient {
    fn end(&self, _finished: &Finished) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn interrupted(&self) -> bool {
        self.ended.load(Ordering::SeqCst) > 0
    }
}

struct Patient;
impl Watch for Patient {}

/// Does something else as soon as an experiment is over, and hears what cannot be shown.
struct Meanwhile<F> {
    act: F,
    heard: Mutex<Vec<String>>,
}

impl<F: Fn() + Sync> Watch for Meanwhile<F> {
    fn end(&self, _finished: &Finished) {
        (self.act)();
    }

    fn hidden(&self, entry: &dyn Entry, why: &Error) {
        self.heard.lock().unwrap().push(format!("{}: {why}", entry.name()));
    }
}

fn plan(out: &Path) -> Plan {
    some(out, vec![&FIRST, &SECOND])
}

fn some(out: &Path, entries: Vec<&'static dyn Entry>) -> Plan {
    Plan { entries, scale: Scale::Quick, seed: 5, out: out.into(), findings: None, replaced: toml::Table::new() }
}

#[test]
fn a_run_that_is_stopped_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = || std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(plan(folder.path()).run(&Impatient::default()).is_err());
    assert!(page().contains("They sum to 14.") && page().contains("Not finished when this page was written: Squares again."));
    // What was finished is known to later runs, whatever they are to do themselves.
    let later = Plan { scale: Scale::Full, seed: 6, ..plan(folder.path()) };
    let first = later.earlier(&FIRST).unwrap().unwrap();
    assert_eq!(
        (first.scale, first.seed, first.points, first.summary.findings[0].text.as_str()),
        (Scale::Quick, 5, 3, "They sum to 14.")
    );
    assert!(later.earlier(&SECOND).unwrap().is_none());
    let finished = plan(folder.path()).run(&Patient).unwrap();
    assert_eq!(finished.len(), 2);
    assert!(!page().contains("Not finished") && page().contains("href=\"#second\"") && page().contains("sizes = ["));
    // Everything that the page links to is there.
    for name in ["first", "second"] {
        for file in ["rows.csv", "points.jsonl", "timing.csv", "summary.json", "config.toml", "squares.svg"] {
            assert!(folder.path().join(name).join(file).is_file(), "{name}/{file}");
            assert!(page().replace("&#x2f;", "/").contains(&format!("{name}/{file}")), "{name}/{file}");
        }
    }
}

/// What is in the folder stays on the page, whoever measured it and whatever is still to be measured again.
#[test]
fn a_page_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let page = || std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    plan(folder.path()).run(&Patient).unwrap();
    // Again, with another seed, and stopped after the first.
    let again = Plan { seed: 6, ..plan(folder.path()) };
    assert!(again.run(&Impatient::default()).is_err());
    assert!(page().contains("id=\"first\"") && page().contains("id=\"second\""));
    assert!(page().contains("an earlier one has left it: Squares again.") && !page().contains("Not finished when"));
    let markdown = std::fs::read_to_string(folder.path().join("findings.md")).unwrap();
    assert!(markdown.contains("## Squares again") && markdown.contains("--seed 5") && markdown.contains("--seed 6"));
}

/// Two runs at once: the page of either has what the other has finished meanwhile.
#[test]
fn two_runs_share_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let page = || std::fs::read_to_string(out.join("report.html")).unwrap();
    // Of experiments that are in the registry; this one takes no time.
    let noise: Vec<&'static dyn Entry> = vec![attnlearn_lab::find("noise").unwrap()];
    let small = "[noise]\nseeds = 1\nm = 1\nd = 4\nk = 3\nlevels = [0.05, 0.1]\nexamples = [60, 120]\n".parse().unwrap();
    let other = Plan { replaced: small, ..some(out, noise) };
    let act = || {
        if !out.join("noise").exists() {
            other.run(&Patient).unwrap();
        }
    };
    let watch = Meanwhile { act, heard: Mutex::default() };
    some(out, vec![&FIRST]).run(&watch).unwrap();
    assert!(page().contains("id=\"first\"") && page().contains("id=\"noise\""));
    // What cannot be shown is named, once to who watches; the run goes on.
    std::fs::write(out.join("noise/points.jsonl"), "{}\n").unwrap();
    plan(out).run(&watch).unwrap();
    assert!(page().contains("Cannot be shown: noise: ") && page().contains("points.jsonl, line 1"), "{}", page());
    let heard = watch.heard.into_inner().unwrap();
    assert!(heard.len() == 1 && heard[0].starts_with("noise: "), "{heard:?}");
}
