//! The Python package: a virtual environment under `target/`, the wheel in it, and its tests.

use crate::test::{cargo, command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tests need, with versions.
const REQUIREMENTS: &str = "crates/attnlearn-py/tests/requirements.txt";

/// Builds the wheel, installs it and runs pytest; `build` builds the program too, which after the other tests is there already.
pub fn test(build: bool) -> Result<(), String> {
    if build {
        cargo(&["test", "--quiet", "--workspace", "--no-run"], None)?;
    }
    let python = environment()?;
    // The wheel and the program are built like everything else that is tested: optimised, with assertions.
    let wheel = wheel(&python, "dev", "as-tested")?;
    pip(&python, &["install", "--quiet", "--force-reinstall", "--no-deps", &wheel.display().to_string()])?;
    let program = absolute(Path::new("target/debug/attnlearn"))?;
    command(
        Command::new(&python)
            .args(["-m", "pytest", "crates/attnlearn-py/tests"])
            .env("ATTNLEARN_PROGRAM", program)
            .env("ATTNLEARN_WHEEL", &wheel),
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
            .args(["-m", "maturin", "build", "--quiet", "--profile", profile, "--features", features, "--interpreter"])
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
