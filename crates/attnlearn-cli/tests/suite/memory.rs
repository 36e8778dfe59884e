//! Memory is asked for, not assumed: whatever sizes come in, one line says what is needed and what there is.
#![cfg(target_os = "linux")]

use crate::common::*;

impl Workbench {
    /// Runs a command line under `ulimit -v` of so many MiB, on two threads.
    fn under(&self, mebibytes: usize, line: &str) -> Run {
        let shell = format!("ulimit -v {}; exec \"$0\" \"$@\"", mebibytes << 10);
        let mut command = std::process::Command::new("sh");
        command.current_dir(self.path("")).args(["-c", &shell, env!("CARGO_BIN_EXE_attnlearn")]);
        command.args(line.split_whitespace()).args(["--threads", "2"]).output().expect("a shell").into()
    }

    /// As [`Workbench::refused`], under a limit.
    #[track_caller]
    fn refused_under(&self, mebibytes: usize, line: &str, what: &[&str]) {
        let before = self.files();
        let run = self.under(mebibytes, line);
        assert_eq!((run.code, run.err.lines().count()), (Some(2), 1), "{line}: {run:?}");
        assert!(run.err.starts_with("attnlearn: ") && run.err.len() < 1000, "{line}: {}", run.err);
        for part in what {
            assert!(run.err.contains(part), "{line}: no {part:?} in {}", run.err);
        }
        assert_eq!(self.files(), before, "{line}");
    }
}

/// The cases of the issue that need no file, and their like: with the memory of this machine.
#[test]
fn sizes_beyond_every_machine_are_refused() {
    let bench = Workbench::new();
    for (flags, what) in [
        ("--target average:p=3 --keys 1000000000000", "TiB"),
        ("--target average:p=3 --d 1000000000000", "TiB"),
        ("--target average:p=3 --keys 18446744073709551615", "PiB"),
        ("--target correlation:p=1,q=1,s=rotation --d 1000000", "TiB"),
        ("--target softmax:scale=1 --d 1000000", "TiB"),
        ("--target average:p=3 --keys 1000000000000 --min-keys 1", "TiB"),
    ] {
        bench.refused(&format!("generate -o s.npz --examples 1 {flags}"), &["of memory are needed and", what]);
    }
}

#[test]
fn what_a_limit_does_not_hold_is_refused() {
    let bench = Workbench::new();
    let generate = "generate -o new.npz --examples 600";
    bench.refused_under(2000, &format!("{generate} --target correlation:p=1,q=1,s=rotation --d 10000"), &["left of ulimit -v"]);
    bench.refused_under(1000, &format!("{generate} --target average:p=3 --keys 40000 --d 16"), &["--keys", "left of ulimit -v"]);
    bench.refused_under(1000, &format!("{generate} --k 40000 --d 3"), &["--k", "left of ulimit -v"]);
    bench.refused_under(1000, &format!("{generate} --d 4000 --heads 2 --k 2"), &["--heads", "left of ulimit -v"]);
}

#[test]
fn fits_ask_for_what_their_solvers_need() {
    let bench = Workbench::new();
    bench.good("generate -o sets.npz --examples 8000 --target average:p=3 --d 4 --keys 4");
    let fit = |flags: &str| format!("fit sets.npz -o model.safetensors {flags}");
    let all = ["memory:", "of memory are needed and", "left of ulimit -v"];
    bench.refused_under(1000, &fit("--model kernel-rfa"), &all);
    bench.refused_under(1000, &fit("--heads 200000 --solver gram --memory 1e9"), &all);
    bench.refused_under(600, &fit("--heads 10000 --solver dual --memory 1e9 --precision f64"), &all);
    bench.refused_under(1000, &fit("--heads 100000000"), &["feature map", "left of ulimit -v"]);
    bench.refused(&fit("--heads 100000000000"), &["feature map", "of memory are needed and"]);
    bench.refused(&fit("--heads 1000000000000000000"), &["feature map"]);
    bench.refused(&fit("--model rfmlp --width 100000000000"), &["feature map"]);
    bench.refused(&fit("--heads 100000 --solver gram --memory 1e9"), &["memory: ", "TiB of memory are needed and"]);
    // What fits is fitted under the same limit.
    let run = bench.under(1000, &fit("--heads 50"));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
}

/// What is needed is never more than what would do.
#[test]
fn a_refusal_for_want_of_memory_does_not_contradict_itself() {
    let bench = Workbench::new();
    bench.good("generate -o sets.npz --examples 2000 --target average:p=3 --d 4 --keys 4");
    for flags in ["--solver dual", "--solver gram", "--solver cg", ""] {
        let said = bench.refused(
            &format!("fit sets.npz -o model.safetensors --heads 500 --ridge 1e-3 --memory 1e-6 {flags}"),
            &["memory: ", " are needed and 1.0 KiB allowed; allow more, or"],
        );
        assert!(!said.contains("allow at least"), "{said}");
    }
}

/// 12 × 40 000 × 3 would have k² logits of 204 GB; in tiles it takes a few megabytes. A single head and a short run of the same kind here.
#[test]
#[ignore = "slow: sequences of three thousand tokens; cargo xtask test --all"]
fn long_sequences_are_attended_in_little_memory() {
    let bench = Workbench::new();
    bench.good("generate -o few.npz --examples 2 --k 3000 --d 2 --heads 1 --layer-out t.safetensors");
    for line in
        ["verify t.safetensors few.npz --quiet", "apply t.safetensors few.npz -o y.npz --quiet", "inspect few.npz --quiet"]
    {
        let run = bench.under(700, line);
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{line}: {run:?}");
    }
}

/// Learning holds `k²` numbers a head for the sequences that a thread is at.
#[test]
fn learning_asks_for_long_sequences() {
    let bench = Workbench::new();
    bench.good("generate -o long.npz --examples 10 --k 5000 --d 1 --heads 1 --dtype f32");
    bench.refused_under(1000, "learn long.npz --heads 2 -o l.safetensors", &["of memory are needed and", "left of ulimit -v"]);
}

/// A length is only a number to `check`: any will do, and none overflows.
#[test]
fn lengths_of_any_size_are_measured_for() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 1 --layer-out t.safetensors");
    bench.good("check t.safetensors --k 18446744073709551615");
}

/// Threads that do not start are no panic.
#[test]
fn threads_that_cannot_be_started_are_said() {
    let bench = Workbench::new();
    let shell = "ulimit -v 900000; exec \"$0\" demo -o d.safetensors --threads 1024";
    let run: Run = std::process::Command::new("sh")
        .current_dir(bench.path(""))
        .args(["-c", shell, env!("CARGO_BIN_EXE_attnlearn")])
        .output()
        .expect("a shell")
        .into();
    assert_eq!((run.code, run.err.lines().count()), (Some(2), 1), "{run:?}");
    assert!(run.err.starts_with("attnlearn: --threads: they cannot be started"), "{run:?}");
}

/// What no estimate foresaw ends with a line too: a header of a hundred megabytes of notes becomes many times as much.
#[test]
fn memory_that_runs_out_is_said() {
    let bench = Workbench::new();
    let notes: String = (0..2_000_000).map(|i| format!("\"{i}\":\"\",")).collect();
    let header = format!("{{\"__metadata__\":{{{notes}\"z\":\"\"}}}}");
    bench.write("notes.safetensors", &[&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat());
    bench.refused_under(400, "inspect notes.safetensors", &["more are needed than there are; give less, or allow more"]);
}

/// What is written takes little memory beside what it is made of.
#[test]
fn examples_of_many_outputs_are_written_in_the_memory_that_was_asked_for() {
    let bench = Workbench::new();
    let run = bench.under(700, "generate -o x.npz --examples 512 --d 1 --d-out 4000 --k 12 --heads 1 --quiet");
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
}

/// Wherever it runs out, on whatever thread and whatever the others do: a line or a result, and nothing of both left behind. Limits from where
/// nothing fits to where all does.
#[test]
fn memory_may_run_out_on_any_thread() {
    let bench = Workbench::new();
    let line = "generate -o x.npz --examples 15872 --d 1 --d-out 40 --k 12 --heads 1 --quiet";
    let mut ran_out = 0;
    for mebibytes in (68..292).step_by(16) {
        let run = bench.under(mebibytes, line);
        match run.code {
            Some(0) => assert_eq!((run.err.as_str(), bench.files()), ("", vec!["x.npz".to_owned()]), "{mebibytes}"),
            // So little that not even the program itself fits.
            None | Some(127) if mebibytes < 100 => {}
            code => {
                assert_eq!((code, run.err.lines().count()), (Some(2), 1), "{mebibytes}: {run:?}");
                assert!(run.err.starts_with("attnlearn: "), "{mebibytes}: {run:?}");
                ran_out += usize::from(run.err.contains("more are needed than there are"));
                assert_eq!(bench.files(), [""; 0], "{mebibytes}");
            }
        }
        let _ = std::fs::remove_file(bench.path("x.npz"));
    }
    assert!(ran_out > 0, "no limit was reached unforeseen");
}

/// Long sequences take their time; Ctrl-C takes effect between their tiles, and nothing is left behind.
#[test]
fn long_sequences_are_interrupted() {
    let bench = Workbench::new();
    // Inputs and outputs of nothing but zeros are made quickly, and attended as slowly as any.
    let (n, k) = (2, 60_000);
    let zeros = vec![0; 8 * n * k];
    let header = |name: &str| format!(r#"{{"{name}":{{"dtype":"F64","shape":[{n},{k},1],"data_offsets":[0,{}]}}}}"#, zeros.len());
    let file =
        |header: String, parts: usize| [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &zeros.repeat(parts)].concat();
    bench.write("x.safetensors", &file(header("x"), 1));
    let (x, y) =
        (header("x"), header("y").replace(&format!("[0,{}]", zeros.len()), &format!("[{},{}]", zeros.len(), 2 * zeros.len())));
    bench.write("xy.safetensors", &file(format!("{},{}", &x[..x.len() - 1], &y[1..]), 2));
    bench.good("generate -o small.npz --examples 1 --d 1 --heads 40 --layer-out t.safetensors");
    let before = bench.files();
    for line in ["verify t.safetensors xy.safetensors", "apply t.safetensors x.safetensors -o y.npz"] {
        let child = bench
            .command(line)
            .args(["--threads", "1"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("starts");
        std::thread::sleep(std::time::Duration::from_millis(1500));
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        let run: Run = child.wait_with_output().expect("ends").into();
        assert_eq!((run.code, run.err.as_str()), (Some(130), "attnlearn: interrupted\n"), "{line}");
        assert_eq!(bench.files(), before, "{line}");
    }
}
