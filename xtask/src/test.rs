//! All that must hold before a change goes in.

use std::process::Command;

/// Formatting, lints with warnings denied, documentation without warnings, and all tests, those of the Python package last.
pub fn run() -> Result<(), String> {
    let deny = ("RUSTDOCFLAGS", "-D warnings");
    cargo(&["fmt", "--all", "--check"], None)?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], None)?;
    cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"], Some(deny))?;
    let browser = BROWSERS.into_iter().any(is_installed);
    let leave_out = ("ATTNLEARN_NO_BROWSER", "1");
    cargo(&["test", "--workspace", "--no-fail-fast"], if browser { None } else { Some(leave_out) })?;
    crate::python::test(false)?;
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
    run_it(Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())).args(&arguments).envs(variable))
}

/// Runs any program, after saying so.
pub fn command(command: &mut Command) -> Result<(), String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    eprintln!("$ {}", words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "));
    run_it(command)
}

fn run_it(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("{name} cannot be run: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} failed")) }
}
