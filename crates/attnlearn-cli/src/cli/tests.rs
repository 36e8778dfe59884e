use super::*;
use clap::Arg;
use std::any::TypeId;
use std::fs;

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_examples() {
    for command in Cli::command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains(&format!("attnlearn {}", command.get_name())), "{}", command.get_name());
    }
}

/// A command with the words that stand before its flags, those of `lab run` for example.
fn commands() -> Vec<(Vec<String>, clap::Command)> {
    let mut found = Vec::new();
    let mut program = Cli::command();
    program.build();
    for command in program.get_subcommands() {
        let below: Vec<_> = command.get_subcommands().collect();
        let name = command.get_name().to_owned();
        found.extend(below.iter().map(|one| (vec![name.clone(), one.get_name().to_owned()], (*one).clone())));
        if below.is_empty() {
            found.push((vec![name], command.clone()));
        }
    }
    found
}

/// Whether an argument is the name of a file or folder.
fn is_path(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// The names of a command's arguments that are files it writes. All others are read.
const WRITTEN: [&str; 8] = ["output", "json", "report", "before_polish", "checkpoint", "layer_out", "findings", "out"];

/// A command line with these files, and with what else it cannot do without.
fn line(words: &[String], command: &clap::Command, files: &[(&Arg, &Path)]) -> Vec<OsString> {
    let mut line: Vec<OsString> =
        std::iter::once("attnlearn").map(OsString::from).chain(words.iter().map(OsString::from)).collect();
    let mut behind: Vec<OsString> = Vec::new();
    for arg in command.get_arguments() {
        let file = files.iter().find(|(other, _)| other.get_id() == arg.get_id());
        let value: OsString = match (file, arg.is_required_set()) {
            (Some((_, path)), _) => path.into(),
            (None, false) => continue,
            (None, true) if is_path(arg) => format!("{}-of-{}", arg.get_id(), words.join("-")).into(),
            (None, true) if arg.get_id() == "names" => "all".into(),
            (None, true) if arg.get_id() == "shell" => "bash".into(),
            // Numbers: examples, dimensions.
            (None, true) => "1".into(),
        };
        match arg.get_long() {
            Some(flag) => line.extend([format!("--{flag}").into(), value]),
            None => behind.push(value),
        }
    }
    line.extend(behind);
    line
}

fn parsed(line: &[OsString]) -> Cli {
    Cli::try_parse_from(line).unwrap_or_else(|e| panic!("{line:?}: {e}"))
}

/// Every file that the definition knows of is declared: a new flag that is not fails here.
#[test]
fn every_file_is_declared() {
    let mut seen = 0;
    for (words, command) in commands() {
        for arg in command.get_arguments().filter(|arg| is_path(arg)) {
            let path = Path::new("some.file");
            let files = parsed(&line(&words, &command, &[(arg, path)])).files();
            let declared = match arg.get_id().as_str() {
                // A folder: what is written into it is.
                "out" => files.declares(&path.join("report.html")),
                "json" if words == ["completions"] || words == ["man"] => true,
                _ => files.declares(path),
            };
            assert!(declared, "{words:?} {}", arg.get_id());
            seen += 1;
        }
    }
    assert!(seen > 45, "{seen}");
}

/// Every output of every command over every input, and over every other output, under whatever name: refused.
#[test]
fn no_output_overwrites_what_is_read_or_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("there.safetensors"), b"contents").expect("writable");
    fs::create_dir(path("sub")).expect("writable");
    let mut names = vec![path("there.safetensors"), path("./sub/../there.safetensors")];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("there.safetensors", path("link")).expect("links");
        std::os::unix::fs::symlink(path("link"), path("link to a link")).expect("links");
        std::os::unix::fs::symlink("sub/..", path("folder link")).expect("links");
        fs::hard_link(path("there.safetensors"), path("hard link")).expect("links");
        names.extend(["link", "link to a link", "folder link/there.safetensors", "hard link"].map(path));
    }
    let (mut over_inputs, mut over_outputs) = (0, 0);
    for (words, command) in commands() {
        let args: Vec<&Arg> = command.get_arguments().filter(|arg| is_path(arg) && arg.get_id() != "out").collect();
        let written = |arg: &&&Arg| WRITTEN.contains(&arg.get_id().as_str());
        for output in args.iter().filter(written) {
            for other in args.iter().filter(|other| other.get_id() != output.get_id()) {
                let conflicts: Vec<_> = command.get_arg_conflicts_with(other).iter().map(|arg| arg.get_id().clone()).collect();
                if conflicts.contains(output.get_id()) {
                    continue;
                }
                for name in &names {
                    let line = line(&words, &command, &[(output, name), (other, &names[0])]);
                    let cli = parsed(&line);
                    if matches!(cli.command, Command::Completions(_) | Command::Man(_)) {
                        continue;
                    }
                    let said = cli.check().expect_err(&format!("{line:?}")).to_string();
                    let both = WRITTEN.contains(&other.get_id().as_str());
                    let what = if both { "is given for two different outputs" } else { "would overwrite what is read" };
                    assert!(said.contains(what), "{line:?}: {said}");
                    (over_inputs, over_outputs) = (over_inputs + usize::from(!both), over_outputs + usize::from(both));
                }
            }
        }
    }
    assert!(over_inputs >= 28 * names.len() && over_outputs >= 15 * names.len(), "{over_inputs} {over_outputs}");
    assert_eq!(fs::read(path("there.safetensors")).expect("there"), b"contents");
}

/// Names of files that are not there yet, and those that a command makes up itself.
#[test]
fn outputs_that_are_not_there_yet_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let check = |line: &str| parsed(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>()).check();
    let new = path("new.safetensors");
    for (line, refused) in [
        (format!("attnlearn demo -o {new} --report {}", path("./new.safetensors")), true),
        (format!("attnlearn demo -o {new} --report {}", path("NEW.safetensors")), cfg!(any(windows, target_vendor = "apple"))),
        (format!("attnlearn demo -o {new} --report {}", path("other.html")), false),
        (format!("attnlearn learn e.npz -o {new} --json {new}.checkpoint"), true),
        (format!("attnlearn learn {new} -o {new}.layer"), false),
        (format!("attnlearn lab run noise --out {} --json {}", path("lab"), path("lab/findings.md")), true),
        ("attnlearn compare a b --json -".to_owned(), false),
    ] {
        assert_eq!(check(&line).is_err(), refused, "{line}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("new.safetensors", path("dangling")).expect("links");
        assert!(check(&format!("attnlearn demo -o {new} --report {}", path("dangling"))).is_err());
    }
}

/// A model is several files: none of them is overwritten.
#[test]
fn no_file_of_a_model_is_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let index = r#"{"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}"#;
    fs::write(path("model.safetensors.index.json"), index).expect("writable");
    for name in ["one.safetensors", "two.safetensors", "config.json", "mine.safetensors"] {
        fs::write(path(name), b"{}").expect("writable");
    }
    let models = [folder.path().display().to_string(), path("model.safetensors.index.json")];
    for (model, output, refused) in models.iter().flat_map(|model| {
        [("one.safetensors", true), ("two.safetensors", true), ("config.json", true), ("mine.safetensors", false)]
            .map(|(output, refused)| (model, path(output), refused))
    }) {
        for line in [format!("attnlearn import {model} -o {output}"), format!("attnlearn check {model} --json {output}")] {
            let cli = parsed(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
            assert_eq!(cli.check().is_err(), refused, "{line}");
        }
    }
}
