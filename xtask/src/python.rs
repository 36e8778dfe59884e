//! The Python package: a virtual environment under `target/`, the wheel in it, and its tests.

use crate::{cargo, command, succeeds};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tests need, with versions.
const REQUIREMENTS: &str = "crates/attnlearn-py/tests/requirements.txt";

/// Builds the wheel, installs it and runs pytest, the slow tests too if `all`; `build` builds the program too, which after the other tests is there
/// already.
pub fn test(build: bool, all: bool, torch: bool) -> Result<(), String> {
    if build {
        cargo(&["test", "--quiet", "--workspace", "--no-run", "--features", "attnlearn-cli/full"], None)?;
    }
    let python = environment()?;
    // The wheel and the program are built like everything else that is tested: optimised, with assertions.
    let wheel = wheel(&python, "dev", "as-tested")?;
    pip(&python, &["install", "--quiet", "--force-reinstall", "--no-deps", &wheel.display().to_string()])?;
    let program = absolute(Path::new("target/debug/attnlearn"))?;
    let tests = if all { "slow or not slow" } else { "not slow" };
    command(
        Command::new(&python)
            // Much of what they do is one thread's work.
            .args(["-m", "pytest", "-m", tests, "--numprocesses", "auto", "crates/attnlearn-py/tests"])
            // Torch is that of another interpreter, below.
            .env_remove("ATTNLEARN_REQUIRE")
            .env("ATTNLEARN_PROGRAM", program)
            .env("ATTNLEARN_WHEEL", &wheel),
    )?;
    match with_torch().filter(|_| all && torch) {
        Some(with_torch) => test_torch(&python, &with_torch, &wheel),
        None => Ok(()),
    }
}

/// A Python that has torch: the one that is named, or the first of the usual ones.
pub fn with_torch() -> Option<String> {
    let named = std::env::var("ATTNLEARN_TORCH_PYTHON").ok();
    let usual = ["python3".to_owned(), "/usr/bin/python3".to_owned()];
    named.into_iter().chain(usual).find(|python| succeeds(python, &["-c", "import torch"]))
}

/// The tests of torch by an interpreter that has it: it sees the wheel and pytest beside its own packages.
fn test_torch(python: &Path, with_torch: &str, wheel: &Path) -> Result<(), String> {
    let folder = absolute(Path::new("target"))?.join("python-torch");
    let (place, wheel) = (folder.display().to_string(), wheel.display().to_string());
    let into = ["install", "--quiet", "--upgrade", "--target", place.as_str()];
    pip(python, &[&into[..], &["pytest"]].concat())?;
    pip(python, &[&into[..], &["--no-deps", wheel.as_str()]].concat())?;
    command(
        Command::new(with_torch)
            .args(["-m", "pytest", "--noconftest", "crates/attnlearn-py/tests/test_torch.py"])
            .env("PYTHONPATH", &folder)
            .env("ATTNLEARN_REQUIRE", "torch"),
    )
}

/// The interpreter of the virtual environment, which is made anew when its requirements change.
pub fn environment() -> Result<PathBuf, String> {
    let folder = absolute(Path::new("target"))?.join("python");
    let python = folder.join("bin/python");
    let wanted = fs::read_to_string(REQUIREMENTS).map_err(|e| format!("{REQUIREMENTS}: {e}"))?;
    let installed = folder.join("requirements.txt");
    if fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    command(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    pip(&python, &["install", "--quiet", "--requirement", REQUIREMENTS])?;
    fs::write(&installed, wanted).map_err(|e| format!("{}: {e}", installed.display()))?;
    Ok(python)
}

/// Builds the wheel with a profile and features of cargo's; its path.
pub fn wheel(python: &Path, profile: &str, features: &str) -> Result<PathBuf, String> {
    let folder = absolute(Path::new("target"))?.join("wheels").join(profile);
    // An older one would be found beside the new one.
    let _ = fs::remove_dir_all(&folder);
    command(
        Command::new(python)
            .args(["-m", "maturin", "build", "--quiet", "--strip", "--profile", profile, "--features", features, "--interpreter"])
            .arg(python)
            .arg("--out")
            .arg(&folder),
    )?;
    let mut files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten().map(|entry| entry.path());
    files.find(|path| path.extension().is_some_and(|e| e == "whl")).ok_or_else(|| "maturin built no wheel".into())
}

/// Runs pip of an interpreter.
pub fn pip(python: &Path, arguments: &[&str]) -> Result<(), String> {
    command(Command::new(python).args(["-m", "pip", "--disable-pip-version-check"]).args(arguments))
}

/// The same place from the root on.
pub fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Command;

    /// Features of every package, as a build with these arguments resolves them.
    fn features(arguments: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let tree = ["tree", "--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"];
        let output = Command::new(cargo).args(tree).args(arguments).output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let (package, features) = line.split_once('|').unwrap_or((line, ""));
            packages.entry(package.to_owned()).or_default().insert(features.to_owned());
        }
        packages
    }

    /// Otherwise the library and all it depends on are compiled once more for the wheel.
    #[test]
    fn the_tested_wheel_has_the_features_of_the_tests() {
        let wheel = features(&["--package", "attnlearn-py", "--features", "as-tested", "--edges", "normal,build"]);
        let tests = features(&["--workspace", "--features", "attnlearn-cli/full", "--edges", "normal,build,dev"]);
        assert!(wheel.len() > 20 && wheel.keys().any(|package| package.starts_with("attnlearn v")), "{wheel:?}");
        for (package, has) in wheel.iter().filter(|(package, _)| !package.starts_with("attnlearn-py ")) {
            let empty = BTreeSet::new();
            let there = tests.get(package).unwrap_or(&empty);
            assert!(
                has.is_subset(there),
                "{package}: the wheel has {has:?}, the tests {there:?}; see the feature as-tested of attnlearn-py"
            );
        }
    }
}
