//! What the commands of the workspace share: running programs, the Python package, the tests.
//!
//! It depends on nothing of the workspace, so that `cargo xtask test` is there before anything is compiled.

pub mod python;
pub mod test;

use std::process::Command;
use std::time::Instant;

/// Whether a program is there and ends well.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Runs cargo, after saying so.
pub fn cargo<S: AsRef<str>>(arguments: &[S], variable: Option<(&str, &str)>) -> Result<(), String> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    eprintln!("$ cargo {}", arguments.join(" "));
    run_it(Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())).args(&arguments).envs(variable))
}

/// Runs any program, after saying so; and says how long it took, where that matters.
pub fn command(command: &mut Command) -> Result<(), String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    eprintln!("$ {}", words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "));
    run_it(command)
}

fn run_it(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{name} cannot be run: {e}"))?;
    let seconds = start.elapsed().as_secs();
    if seconds > 0 {
        eprintln!("  {} min {} s", seconds / 60, seconds % 60);
    }
    if status.success() { Ok(()) } else { Err(format!("{name} failed")) }
}
