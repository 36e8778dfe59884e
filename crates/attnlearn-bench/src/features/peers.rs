//! Runs jobs of attnlearn and of the references, each in a process of its own, and reads the line of JSON that each prints.

use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Who can do a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Attnlearn,
    Numpy,
    Jax,
}

/// All of them, in the order of the tables.
pub const PEERS: [Peer; 3] = [Peer::Attnlearn, Peer::Numpy, Peer::Jax];

/// Where everything is.
pub struct Bench {
    /// The interpreter that has NumPy and JAX.
    pub python: PathBuf,
    /// Folder of the results.
    pub out: PathBuf,
    /// Folder of sets and weights.
    pub scratch: PathBuf,
    raw: File,
}

impl Bench {
    pub fn new(python: PathBuf, out: PathBuf, scratch: PathBuf) -> Result<Self, String> {
        let fail = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
        fs::create_dir_all(&out).map_err(|e| fail(&out, e))?;
        fs::create_dir_all(&scratch).map_err(|e| fail(&scratch, e))?;
        let raw = File::create(out.join("raw.jsonl")).map_err(|e| fail(&out, e))?;
        Ok(Self { python, out, scratch, raw })
    }

    /// Runs one job; its report goes to the raw rows too.
    pub fn run(&mut self, peer: Peer, arguments: &[String]) -> Result<Value, String> {
        let mut command = match peer {
            Peer::Attnlearn => {
                let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
                command.arg("feature-job");
                command
            }
            Peer::Numpy | Peer::Jax => {
                let name = if peer == Peer::Numpy { "reference_numpy.py" } else { "reference_jax.py" };
                let mut command = Command::new(&self.python);
                command.arg(Path::new("benches/features").join(name));
                command
            }
        };
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let start = Instant::now();
        let output = command.output().map_err(|e| format!("{peer:?} cannot be run: {e} (is --python right?)"))?;
        if !output.status.success() {
            return Err(format!("{peer:?} failed: {}", arguments.join(" ")));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        let mut report: Value = serde_json::from_str(line).map_err(|e| format!("{peer:?} printed no report: {e}"))?;
        report["arguments"] = self.plain(arguments).into();
        report["wall_seconds"] = start.elapsed().as_secs_f64().into();
        self.note(&report)?;
        eprintln!("{peer:?} {}: {:.2} s", self.plain(arguments), total(&report));
        Ok(report)
    }

    /// Adds a raw row.
    pub fn note(&mut self, row: &Value) -> Result<(), String> {
        writeln!(self.raw, "{row}").map_err(|e| e.to_string())
    }

    /// Runs a job by several peers in turn, `rounds` times, and keeps the fastest report of each.
    pub fn side_by_side(
        &mut self,
        peers: &[Peer],
        rounds: usize,
        arguments: impl Fn(Peer) -> Vec<String>,
    ) -> Result<Vec<Value>, String> {
        let mut best: Vec<Option<Value>> = vec![None; peers.len()];
        for _ in 0..rounds.max(1) {
            for (peer, best) in peers.iter().zip(&mut best) {
                let report = self.run(*peer, &arguments(*peer))?;
                if best.as_ref().is_none_or(|least| total(&report) < total(least)) {
                    *best = Some(report);
                }
            }
        }
        Ok(best.into_iter().flatten().collect())
    }

    /// The arguments without this machine's folders.
    fn plain(&self, arguments: &[String]) -> String {
        arguments.join(" ").replace(&format!("{}/", self.scratch.display()), "")
    }
}

/// Seconds that count.
pub fn total(report: &Value) -> f64 {
    report["seconds"]["total"].as_f64().unwrap_or(f64::NAN)
}

/// A number of a report.
pub fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or(f64::NAN)
}
