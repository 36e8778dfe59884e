//! All that must hold before a change goes in.

use std::process::Command;

/// Formatting, lints with warnings denied, documentation without warnings, and all tests.
pub fn run() -> Result<(), String> {
    let deny = ("RUSTDOCFLAGS", "-D warnings");
    cargo(&["fmt", "--all", "--check"], None)?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], None)?;
    cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"], Some(deny))?;
    let browser = BROWSERS.into_iter().any(is_installed);
    let leave_out = ("ATTNLEARN_NO_BROWSER", "1");
    cargo(&["test", "--workspace", "--no-fail-fast"], if browser { None } else { Some(leave_out) })?;
    if !browser {
        eprintln!("xtask: there is no Chromium, so the test of the report in a browser was left out (CONTRIBUTING.md)");
    }
    Ok(())
}

/// What the report's test can drive.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs cargo, after saying so.
pub fn cargo<S: AsRef<str>>(arguments: &[S], variable: Option<(&str, &str)>) -> Result<(), String> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    eprintln!("$ cargo {}", arguments.join(" "));
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    let status = command.args(&arguments).envs(variable).status().map_err(|e| format!("cargo cannot be run: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments[0])) }
}
