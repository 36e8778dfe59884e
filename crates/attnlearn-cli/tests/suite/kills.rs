//! `kill -9` at any moment, and what comes after: the run goes on, and ends with the bits of one that was left alone.
#![cfg(unix)]

use crate::common::*;
use crate::signals::{hard_examples, send};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A command that goes on where it was.
struct Resumable {
    bench: Workbench,
    /// The command line; its outputs go below the folder `OUT`.
    line: &'static str,
    /// What is added where this file is there after the kill.
    resume: Option<(&'static str, &'static str)>,
    /// How it ends when it is left alone.
    code: i32,
    /// What has to have the same bits, in the folder of the outputs; of JSON but for times.
    results: &'static [&'static str],
    /// How many runs are killed.
    moments: u64,
}

/// JSON without times.
fn timeless(bytes: &[u8], folder: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| key != "seconds" && key != "stages");
                map.values_mut().for_each(strip);
            }
            Value::Array(values) => values.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let text = String::from_utf8(bytes.to_vec()).expect("UTF-8").replace(&format!("{folder}/"), "");
    let mut value: Value = serde_json::from_str(&text).expect("JSON that is whole");
    strip(&mut value);
    value
}

/// Files below a folder, with those that are hidden.
fn below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry")) {
        if entry.file_type().expect("a kind").is_dir() {
            found.extend(below(&entry.path()));
        } else {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

impl Resumable {
    fn line(&self, folder: &str) -> String {
        self.line.replace("OUT", folder)
    }

    #[track_caller]
    fn compare(&self, folder: &str) {
        for name in self.results {
            let of = |folder: &str| self.bench.read(&format!("{folder}/{name}"));
            if name.ends_with(".json") {
                assert_eq!(timeless(&of("whole"), "whole"), timeless(&of(folder), folder), "{folder}/{name}");
            } else {
                assert!(of("whole") == of(folder), "{folder}/{name} has other bits");
            }
        }
        let left: Vec<String> = below(&self.bench.path(folder));
        let over = |name: &&String| name.ends_with(".part") || name.ends_with(".lock") || name.contains("checkpoint");
        assert_eq!(left.iter().find(over), None);
    }

    /// Kills it at moments that are spread over a run, in a random place between their neighbours', and continues it each time. Every other one is
    /// killed again while it goes on.
    fn check(&self) {
        std::fs::create_dir(self.bench.path("whole")).expect("a folder");
        let begun = Instant::now();
        let run = self.bench.run(&self.line("whole"));
        let length = begun.elapsed().as_secs_f64();
        assert_eq!((run.code, run.err.as_str()), (Some(self.code), ""), "{run:?}");
        self.compare("whole");
        let (mut killed, mut continued) = (0, 0);
        for moment in 0..self.moments {
            let folder = format!("killed{moment}");
            std::fs::create_dir(self.bench.path(&folder)).expect("a folder");
            let random = |i: u64| 0.5 + 0.5 * noise((2 * moment + i) as usize);
            let times = [Some((moment as f64 + random(0)) / self.moments as f64), (moment % 2 == 1).then(|| random(1))];
            for share in times.into_iter().flatten() {
                let child = self.bench.command(&self.resumed(&folder)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
                let mut child = child.expect("starts");
                std::thread::sleep(Duration::from_secs_f64(share * length));
                if child.try_wait().expect("a child").is_none() {
                    send(&child, "-KILL");
                }
                let run: Run = child.wait_with_output().expect("ends").into();
                assert!(run.code.is_none_or(|code| code == self.code) && run.err.is_empty(), "{folder}: {run:?}");
                killed += u64::from(run.code.is_none());
                // What is there is whole.
                for name in self.results.iter().filter(|name| self.bench.path(&format!("{folder}/{name}")).exists()) {
                    if name.ends_with(".safetensors") {
                        self.bench.good(&format!("inspect {folder}/{name} --quiet"));
                    } else if name.ends_with(".json") {
                        timeless(&self.bench.read(&format!("{folder}/{name}")), &folder);
                    }
                }
            }
            let line = self.resumed(&folder);
            continued += u64::from(line.contains("--resume") || self.resume.is_none());
            let run = self.bench.run(&line);
            assert_eq!((run.code, run.err.as_str()), (Some(self.code), ""), "{line}: {run:?}");
            self.compare(&folder);
        }
        // On a busy machine some runs may have been over before: not most of them.
        assert!(2 * killed >= self.moments && continued > 0, "{killed} killed, {continued} continued, of {}", self.moments);
    }

    /// The command that goes on in a folder: the same, or the same with a flag.
    fn resumed(&self, folder: &str) -> String {
        match self.resume {
            Some((file, flag)) if self.bench.path(&format!("{folder}/{file}")).exists() => {
                format!("{} {flag}", self.line(folder))
            }
            _ => self.line(folder),
        }
    }
}

/// Descent, which fails, then the six phases, which fail too; with a checkpoint after every step.
fn learn(n: usize, moments: u64) -> Resumable {
    let bench = Workbench::new();
    bench.write("e.safetensors", &hard_examples(n));
    Resumable {
        bench,
        line: "learn e.safetensors --heads 1 -o OUT/l.safetensors --json OUT/r.json --checkpoint-every 0",
        resume: Some(("l.safetensors.checkpoint", "--resume")),
        code: 1,
        results: &["l.safetensors", "r.json"],
        moments,
    }
}

fn fit(n: usize, heads: usize, moments: u64) -> Resumable {
    let bench = Workbench::new();
    bench.good(&format!("generate -o sets.npz --examples {n} --target average:p=2 --d 8 --keys 8 --quiet"));
    let line = match heads {
        60 => {
            "fit sets.npz --heads 60 --ridge 0.1 --checkpoint OUT/sums.checkpoint --checkpoint-every 0 -o OUT/m.safetensors --json OUT/r.json --quiet"
        }
        _ => {
            "fit sets.npz --heads 120 --ridge 0.1 --checkpoint OUT/sums.checkpoint --checkpoint-every 0 -o OUT/m.safetensors --json OUT/r.json --quiet"
        }
    };
    Resumable { bench, line, resume: None, code: 0, results: &["m.safetensors", "r.json"], moments }
}

fn lab(seeds: usize, moments: u64) -> Resumable {
    let bench = Workbench::new();
    let config = format!("[noise]\nseeds = {seeds}\nm = 1\nd = 4\nk = 3\nlevels = [0.05, 0.1]\nexamples = [60, 120]\n");
    bench.write("small.toml", config.as_bytes());
    Resumable {
        bench,
        line: "lab run noise --config small.toml --out OUT --quiet",
        resume: None,
        code: 0,
        results: &["noise/rows.csv", "noise/rows.parquet", "noise/config.toml", "noise/summary.json"],
        moments,
    }
}

#[test]
fn fitting_survives_kills() {
    fit(20_000, 60, 4).check();
}

#[test]
#[ignore = "slow: twenty runs that are killed and continued; cargo xtask test --all"]
fn learning_survives_twenty_kills() {
    learn(30_000, 20).check();
}

#[test]
#[ignore = "slow: twenty runs that are killed and continued; cargo xtask test --all"]
fn fitting_survives_twenty_kills() {
    fit(60_000, 120, 20).check();
}

#[test]
#[ignore = "slow: twenty runs that are killed and continued; cargo xtask test --all"]
fn the_lab_survives_twenty_kills() {
    lab(60, 20).check();
}
