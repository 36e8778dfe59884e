//! Everything that the README and the guide to the program show is run: console commands in order, the demo line by line. (Python's blocks are run by
//! its own tests.)

use std::path::Path;
use std::process::Command;

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).expect("a page of the documentation")
}

/// The contents of the fenced blocks of one language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

/// Runs the console commands of a page in an empty folder.
fn run_commands(name: &str, least: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let text = page(name);
    let commands: Vec<&str> =
        blocks(&text, "console").iter().flat_map(|b| b.lines()).filter_map(|l| l.strip_prefix("$ attnlearn ")).collect();
    assert!(commands.len() >= least, "{commands:?}");
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

#[test]
fn the_commands_of_the_readme_run() {
    run_commands("README.md", 3);
}

#[test]
fn the_commands_of_the_guide_run() {
    run_commands("docs/program.md", 16);
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
    let readme = page("README.md");
    let blocks = blocks(&readme, "text");
    let shown = blocks.iter().find(|block| block.starts_with("Teacher: ")).expect("the demo");
    let mut lines = 0;
    for line in shown.lines().filter(|l| !l.starts_with("$ ") && l.trim() != "…" && !l.trim().is_empty()) {
        assert!(printed.contains(&shape(line)), "not printed: {line}\nprinted:\n{}", printed.join("\n"));
        lines += 1;
    }
    assert!(lines > 12, "the README shows {lines} lines of the demo");
}
