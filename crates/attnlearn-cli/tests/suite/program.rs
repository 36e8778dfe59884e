//! Help, completions, the manual, JSON, colours, streams.

use crate::common::*;
use std::process::Stdio;

const COMMANDS: [&str; 9] = ["demo", "generate", "learn", "verify", "compare", "apply", "inspect", "completions", "man"];

#[test]
fn help_has_examples() {
    let bench = Workbench::new();
    let all = bench.good("--help").out;
    for command in COMMANDS {
        assert!(all.contains(&format!("  {command} ")), "{all}");
        for flag in ["--help", "-h"] {
            let help = bench.good(&format!("{command} {flag}")).out;
            assert!(help.contains("Examples:") && help.contains(&format!("attnlearn {command} ")), "{help}");
        }
    }
    assert_eq!(bench.good("--version").out, format!("attnlearn {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_and_manual() {
    let bench = Workbench::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = bench.good(&format!("completions {shell}")).out;
        assert!(script.contains("attnlearn") && script.contains("most-examples"), "{shell}");
    }
    bench.refused("completions tcsh", &["tcsh", "bash"]);
    assert!(bench.good("man").out.contains(".SH SYNOPSIS"));
    for command in COMMANDS {
        let page = bench.good(&format!("man {command}")).out;
        assert!(page.contains(&format!(".TH attnlearn-{command} 1")) && page.contains("Examples:"), "{page}");
    }
}

#[test]
fn json_goes_where_it_is_asked_to() {
    let bench = Workbench::new();
    let run = bench.run("generate -o e.npz --examples 600 --layer-out t.safetensors --seed 9 --json -");
    assert_eq!(run.code, Some(0));
    assert!(run.err.contains("wrote e.npz"), "{run:?}");
    let json = run.json();
    assert_eq!((json["command"].as_str(), json["seed"].as_u64()), (Some("generate"), Some(9)));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["settings"]["teacher"]["m"], 2);
    assert_eq!(json["shape"], serde_json::json!({"k": 4, "d": 8, "d_out": 8}));

    let lines = [
        ("inspect", "inspect t.safetensors"),
        ("inspect", "inspect e.npz"),
        ("verify", "verify t.safetensors e.npz"),
        ("compare", "compare t.safetensors t.safetensors --examples 100"),
        ("apply", "apply t.safetensors e.npz -o y.npz"),
    ];
    for (command, line) in lines {
        let quiet = bench.good(&format!("{line} --quiet --json -")).json();
        assert_eq!(quiet["command"], command);
        let said = bench.good(&format!("{line} --json result.json")).out;
        assert!(!said.is_empty());
        let filed: serde_json::Value = serde_json::from_slice(&bench.read("result.json")).expect("JSON");
        assert_eq!(filed, quiet, "{line}");
    }
    let heads = bench.good("inspect t.safetensors --quiet --json -").json();
    let norm = heads["heads"][0]["theta_frobenius"].as_f64().expect("a number");
    assert!((norm - 6.0).abs() < 1e-9);
}

#[test]
fn quiet_is_quiet() {
    let bench = Workbench::new();
    assert_eq!(bench.good("generate -o e.npz --examples 10 --layer-out t.safetensors --quiet").out, "");
    assert_eq!(bench.good("--quiet verify t.safetensors e.npz").out, "");
    assert_eq!(bench.good("inspect -q e.npz").out, "");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --layer-out t.safetensors");
    let plain = bench.good("inspect t.safetensors --maps").out;
    assert!(!plain.contains('\x1b') && plain.contains("tenths of"), "{plain}");
    assert!(!bench.good("inspect t.safetensors --maps --color never").out.contains('\x1b'));
    let coloured = bench.good("inspect t.safetensors --maps --color always").out;
    assert!(coloured.matches("\x1b[48;2;").count() >= 2 * 64, "{coloured}");
}

#[test]
fn a_hostile_file_does_not_speak_to_the_terminal() {
    let bench = Workbench::new();
    let header = r#"{"__metadata__":{"note\u001b[2J":"\u001b]0;title\u0007\n"},"x\u001b[31m":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#;
    bench.write("h.safetensors", &safetensors(header, &[0; 8]));
    let said = bench.good("inspect h.safetensors").out;
    assert!(!said.contains('\x1b') && !said.contains('\x07'), "{said:?}");
}

#[cfg(unix)]
#[test]
fn readers_may_go_away_and_disks_may_be_full() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --layer-out t.safetensors");
    for line in ["inspect t.safetensors --maps", "man", "completions zsh", "inspect e.npz --json - --quiet"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let run: Run = bench.command(line).stdout(writer).stderr(Stdio::piped()).output().expect("starts").into();
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{line}");
        if let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") {
            let run: Run = bench.command(line).stdout(full).stderr(Stdio::piped()).output().expect("starts").into();
            assert_eq!(run.code, Some(2), "{line}: {run:?}");
            assert!(run.err.starts_with("attnlearn: standard output") && run.err.lines().count() == 1, "{run:?}");
        }
    }
}

#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
}

/// Starts a run that would take forever, interrupts it `times` times: it ends as it should and leaves nothing behind.
#[cfg(unix)]
#[track_caller]
fn ends_without_a_trace(line: &str, times: usize) {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --layer-out t.safetensors");
    let mut child = bench.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let pause = || std::thread::sleep(std::time::Duration::from_millis(10));
    // Wait until it is at work: its temporary file is there.
    for _ in 0..500 {
        if bench.files().len() > 2 {
            break;
        }
        pause();
    }
    assert!(bench.files().len() > 2 && child.try_wait().expect("a child").is_none());
    for _ in 0..times {
        interrupt(&child);
        pause();
    }
    let run: Run = child.wait_with_output().expect("ends").into();
    assert_eq!((run.code, run.err.as_str()), (Some(130), "attnlearn: interrupted\n"), "{run:?}");
    assert_eq!(bench.files(), ["e.npz", "t.safetensors"]);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    ends_without_a_trace("generate -o long.npz --examples 1e9 --layer t.safetensors", 1);
}

/// A step of this run takes seconds: the second Ctrl-C does not wait for its end.
#[cfg(unix)]
#[test]
fn not_even_when_interrupted_twice() {
    ends_without_a_trace("generate -o long.npz --examples 1e6 --d 128 --k 64 --heads 64 --causal", 2);
}
