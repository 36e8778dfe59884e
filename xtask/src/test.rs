//! All that must hold before a change goes in.

use std::process::Command;

/// Formatting, lints with warnings denied, documentation without warnings, and all tests.
pub fn run() -> Result<(), String> {
    let deny = ("RUSTDOCFLAGS", "-D warnings");
    cargo(&["fmt", "--all", "--check"], None)?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], None)?;
    cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"], Some(deny))?;
    cargo(&["test", "--workspace", "--no-fail-fast"], None)
}

/// Runs cargo, after saying so.
pub fn cargo<S: AsRef<str>>(arguments: &[S], variable: Option<(&str, &str)>) -> Result<(), String> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    eprintln!("$ cargo {}", arguments.join(" "));
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    let status = command.args(&arguments).envs(variable).status().map_err(|e| format!("cargo cannot be run: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments[0])) }
}
