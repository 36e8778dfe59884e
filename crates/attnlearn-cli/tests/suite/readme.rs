//! Everything that the README shows is run: its console commands in order, its demo line by line. (Its Rust example is a doctest of the
//! library.)

use std::path::Path;
use std::process::Command;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    std::fs::read_to_string(path).expect("the README")
}

/// The contents of the fenced blocks of one language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

#[test]
fn console_commands_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let readme = readme();
    let commands: Vec<&str> =
        blocks(&readme, "console").iter().flat_map(|b| b.lines()).filter_map(|l| l.strip_prefix("$ attnlearn ")).collect();
    assert!(commands.len() >= 7, "{commands:?}");
    for command in commands {
        let output = Command::new(env!("CARGO_BIN_EXE_attnlearn"))
            .args(command.split_whitespace())
            .current_dir(folder.path())
            .output()
            .expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "attnlearn {command}: {errors}");
    }
}

/// The line with every number replaced by #: times and last digits differ from machine to machine.
fn shape(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if (c == '#' || c == ' ') && out.ends_with(c) {
            continue;
        }
        out.push(c);
    }
    out.trim().to_string()
}

#[test]
fn the_demo_prints_what_the_readme_shows() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_attnlearn"))
        .arg("demo")
        .current_dir(folder.path())
        .output()
        .expect("the program starts");
    assert!(output.status.success());
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "it writes nothing unless it is asked to");
    let printed: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(shape).collect();
    let readme = readme();
    let shown = blocks(&readme, "text")[0];
    let mut lines = 0;
    for line in shown.lines().filter(|l| !l.starts_with("$ ") && l.trim() != "…" && !l.trim().is_empty()) {
        assert!(printed.contains(&shape(line)), "not printed: {line}\nprinted:\n{}", printed.join("\n"));
        lines += 1;
    }
    assert!(lines > 20, "the README shows {lines} lines of the demo");
}
