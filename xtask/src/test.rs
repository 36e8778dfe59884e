//! All that must hold before a change goes in, in two tiers.
//!
//! The fast tier is for every change: formatting, lints, documentation, and the tests that take seconds. The whole (`--all`) adds what takes minutes:
//! statistics over many runs, recovery of larger layers, the page in a browser, notebooks, torch. In Rust those tests are `#[ignore = "slow: …"]`.
//!
//! What a machine lacks is left out, and named at the end with how to get it; `ATTNLEARN_REQUIRE=chromium,torch` makes that a failure.

use crate::{cargo, python, succeeds};
use std::thread;

/// The features that tests are built with: the whole program.
const FEATURES: [&str; 2] = ["--features", "attnlearn-cli/full"];

/// Runs a tier.
pub fn run(all: bool) -> Result<(), String> {
    let required = std::env::var("ATTNLEARN_REQUIRE").unwrap_or_default();
    let mut absent: Vec<Absent> = if all { SLOW.into_iter().filter(|one| !one.is_there()).collect() } else { Vec::new() };
    if let Some(missing) = absent.iter().find(|one| required.split(',').any(|name| name.trim() == one.name)) {
        return Err(format!("{} is required and not there: {}", missing.name, missing.how));
    }
    cargo(&["fmt", "--all", "--check"], None)?;
    // Mostly waits for the network.
    let environment = thread::spawn(python::environment);
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", FEATURES[0], FEATURES[1], "--", "-D", "warnings"];
    cargo(&clippy, None)?;
    let doc = ["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet", FEATURES[0], FEATURES[1]];
    cargo(&doc, Some(("RUSTDOCFLAGS", "-D warnings")))?;
    let mut test = vec!["test", "--workspace", "--no-fail-fast", FEATURES[0], FEATURES[1]];
    if all {
        test.extend(["--", "--include-ignored"]);
    }
    let browser = !absent.iter().any(|one| one.name == "chromium");
    cargo(&test, if browser { None } else { Some(("ATTNLEARN_NO_BROWSER", "1")) })?;
    environment.join().map_err(|_| "the Python environment could not be made")??;
    python::test(false, all, !absent.iter().any(|one| one.name == "torch"))?;
    if !all {
        absent = Vec::new();
        eprintln!("xtask: passed; cargo xtask test --all adds the slow tests");
    }
    for one in &absent {
        eprintln!("xtask: left out, for want of {}: {}; {}", one.name, one.what, one.how);
    }
    Ok(())
}

/// Something that a machine may lack.
#[derive(Clone, Copy)]
struct Absent {
    name: &'static str,
    is_there: fn() -> bool,
    what: &'static str,
    how: &'static str,
}

impl Absent {
    fn is_there(&self) -> bool {
        (self.is_there)()
    }
}

/// What the slow tests need beyond Rust and Python.
const SLOW: [Absent; 2] = [
    Absent {
        name: "chromium",
        is_there: || BROWSERS.into_iter().any(|name| succeeds(name, &["--version"])),
        what: "the pages in a browser",
        how: "install it (Debian, Ubuntu: apt-get install chromium)",
    },
    Absent {
        name: "torch",
        is_there: || python::with_torch().is_some(),
        what: "layers as modules of torch",
        how: "install a CPU build (Debian: apt-get install python3-torch), or name a Python that has one in ATTNLEARN_TORCH_PYTHON",
    },
];

/// What the report's test can drive.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
