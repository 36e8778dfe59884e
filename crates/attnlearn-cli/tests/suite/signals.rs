//! Signals: Ctrl-C and its kin, limits of the system, files that are cut short while they are read.
#![cfg(unix)]

use crate::common::*;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Sends a signal, such as `-INT`.
pub fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// Waits for something that happens soon, or for the end of the child.
#[track_caller]
fn wait_for(child: &mut Child, what: impl Fn() -> bool) {
    for _ in 0..6000 {
        if what() {
            return;
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended before it was at work");
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it is not at work after half a minute");
}

/// Whether a file is being written.
fn is_writing(bench: &Workbench) -> bool {
    bench.files().iter().any(|name| name.ends_with(".part"))
}

/// The program, started by a shell after something that the shell does.
fn after(bench: &Workbench, shell: &str, line: &str) -> Command {
    let mut command = Command::new("sh");
    let words = [&*format!("{shell}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_attnlearn")];
    command.arg("-c").args(words).args(line.split_whitespace()).current_dir(bench.path("."));
    command
}

fn piped(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

fn end(child: Child) -> Run {
    child.wait_with_output().expect("ends").into()
}

/// What was to be ignored when the program started stays ignored, as under `nohup` and for jobs of a script.
#[test]
fn what_was_ignored_stays_ignored() {
    let bench = Workbench::new();
    for (ignored, signals) in [("HUP", vec!["-HUP"]), ("HUP INT", vec!["-INT", "-HUP", "-INT"])] {
        let line = "generate -o e.npz --examples 4e3 --k 64 --d 4 --heads 8 --quiet";
        let mut child = piped(after(&bench, &format!("trap '' {ignored}"), line));
        wait_for(&mut child, || is_writing(&bench));
        signals.iter().for_each(|signal| send(&child, signal));
        let run = end(child);
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{ignored}: {run:?}");
        assert_eq!(bench.files(), ["e.npz"]);
        std::fs::remove_file(bench.path("e.npz")).expect("there");
    }
}

/// All that ends a program politely ends it like Ctrl-C.
#[test]
fn they_all_leave_nothing_behind() {
    let bench = Workbench::new();
    for signal in ["-INT", "-TERM", "-HUP", "-QUIT", "-XCPU"] {
        let mut child = piped(bench.command("generate -o e.npz --examples 1e9"));
        wait_for(&mut child, || is_writing(&bench));
        send(&child, signal);
        let run = end(child);
        assert_eq!((run.code, run.err.as_str()), (Some(130), "attnlearn: interrupted\n"), "{signal}: {run:?}");
        assert_eq!(bench.files(), [""; 0]);
    }
}

/// Sequences so long that a block of them takes a minute.
fn long_sequences(bench: &Workbench) {
    bench.good("generate -o one.npz --examples 1 --d 3 --k 2 --heads 8 --layer-out t.safetensors --quiet");
    bench.write("long.safetensors", &examples(12, 10_000, 3, 3, noise, |i| noise(i + 5)));
}

#[test]
fn apply_is_interrupted_within_a_block() {
    let bench = Workbench::new();
    long_sequences(&bench);
    let before = bench.files();
    let mut child = piped(bench.command("apply t.safetensors long.safetensors -o y.npz"));
    wait_for(&mut child, || is_writing(&bench));
    send(&child, "-INT");
    let run = end(child);
    assert_eq!((run.code, run.err.as_str()), (Some(130), "attnlearn: interrupted\n"), "{run:?}");
    assert_eq!(bench.files(), before);
}

#[test]
fn verify_is_interrupted_within_a_block() {
    let bench = Workbench::new();
    long_sequences(&bench);
    // Until it listens, which takes a moment on a busy machine, the system ends it.
    let codes = [100, 400, 1600].map(|milliseconds| {
        let child = piped(bench.command("verify t.safetensors long.safetensors --json r.json"));
        std::thread::sleep(Duration::from_millis(milliseconds));
        send(&child, "-INT");
        end(child).code
    });
    assert!(codes.iter().all(|code| matches!(code, None | Some(130))) && codes[2] == Some(130), "{codes:?}");
    assert!(!bench.files().contains(&"r.json".to_owned()));
}

/// Beyond the limit of a file's size a write fails like any other: with one line, and nothing left behind.
#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 4000 --layer-out t.safetensors --quiet");
    bench.good("generate -o sets.npz --examples 4000 --target average:p=2 --quiet");
    let before = bench.files();
    let lines = [
        "generate -o out.npz --examples 4000",
        "generate -o out.safetensors --examples 4000",
        "generate -o out.npz --examples 4000 --target average:p=2",
        "apply t.safetensors e.npz -o out.npz --with-inputs",
        "apply t.safetensors e.npz -o out.safetensors",
        "fit sets.npz --heads 300 --ridge 0.1 -o out.safetensors",
        "fit sets.npz --heads 300 --ridge 0.1 -o out.safetensors --checkpoint sums",
    ];
    for line in lines {
        let run: Run = after(&bench, "ulimit -f 16", &format!("{line} --quiet")).output().expect("starts").into();
        assert_eq!((run.code, run.err.lines().count()), (Some(2), 1), "{line}: {run:?}");
        assert!(run.err.starts_with("attnlearn: ") && run.err.contains("large"), "{line}: {run:?}");
        assert_eq!(bench.files(), before, "{line}");
    }
}

/// A mapped file that another program cuts short cannot be read any more: that is said, and nothing is left behind.
#[test]
fn a_file_that_is_cut_short_is_an_error() {
    let bench = Workbench::new();
    bench.good("generate -o one.npz --examples 1 --heads 2 --layer-out t.safetensors --quiet");
    // Zeros that take no room on the disk.
    let n = 4_000_000_u64;
    let header = format!(r#"{{"x":{{"dtype":"I8","shape":[{n},4,8],"data_offsets":[0,{}]}}}}"#, 32 * n);
    bench.write("x.safetensors", &safetensors(&header, &[]));
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("x.safetensors")).expect("there");
    file.set_len(8 + header.len() as u64 + 32 * n).expect("sparse files");
    let before = bench.files();
    let mut child = piped(bench.command("apply t.safetensors x.safetensors -o y.safetensors --dtype f32"));
    wait_for(&mut child, || is_writing(&bench));
    file.set_len(100).expect("can be cut short");
    let run = end(child);
    let what = "attnlearn: x.safetensors: was cut short while it was read; leave it alone until the run is over\n";
    assert_eq!((run.code, run.err.as_str()), (Some(2), what), "{run:?}");
    assert_eq!(bench.files(), before);
}

/// Examples for which descent fails soon, and after it the six phases: the mean of the tokens, and noise.
pub fn hard_examples(n: usize) -> Vec<u8> {
    const K: usize = 3;
    const D: usize = 4;
    // SplitMix64: in [−1, 1).
    let random = |i: usize| {
        let z = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    let x = |i: usize| random(i).signum();
    let mean = |i: usize| (0..K).map(|t| x((i / (K * D) * K + t) * D + i % D)).sum::<f64>() / K as f64;
    examples(n, K, D, D, x, |i| mean(i) + 0.15 * random(i + (1 << 40)))
}

/// Two runs with one output: the second is refused, and the first goes on undisturbed. When the first is killed its place is free.
#[test]
fn a_second_run_with_the_same_output_is_refused() {
    let bench = Workbench::new();
    // Descent has work for minutes here.
    bench.write("e.safetensors", &examples(10_000, 3, 4, 4, |i| noise(i).signum(), |i| noise(i + 77)));
    let line = "learn e.safetensors --heads 3 -o l.safetensors --quiet";
    let mut child = piped(bench.command(&format!("{line} --checkpoint-every 0")));
    // It has everything that it claims once it searches.
    wait_for(&mut child, || bench.path("l.safetensors.checkpoint").exists());
    let run = bench.run(line);
    let what = "attnlearn: l.safetensors: another run writes to it; wait for that one, or give another name\n";
    assert_eq!((run.code, run.err.as_str()), (Some(2), what));
    std::os::unix::fs::symlink("l.safetensors", bench.path("link.safetensors")).expect("links");
    assert_eq!(bench.run(&line.replace("-o l.", "-o link.")).code, Some(2));
    // The checkpoint is a place too.
    let run = bench.run(&format!("{} --checkpoint l.safetensors.checkpoint", line.replace("-o l.", "-o m.")));
    assert!(run.code == Some(2) && run.err.contains("another run"), "{run:?}");
    send(&child, "-KILL");
    assert_eq!(end(child).code, None);
    let run = bench.run(line);
    assert!(
        run.code == Some(2) && run.err.contains("a search was kept here; continue it with --resume, or remove it"),
        "{run:?}"
    );
    std::fs::remove_file(bench.path("l.safetensors.checkpoint")).expect("a search that was kept");
    bench.good("generate -o easy.npz --examples 600 --d 4 --k 3 --heads 1 --norm 2 --quiet");
    bench.good("learn easy.npz --heads 1 -o l.safetensors --quiet");
    assert!(!bench.files().iter().any(|name| name.ends_with(".lock") && name.starts_with(".l.")), "{:?}", bench.files());
}

#[test]
fn a_second_fit_and_a_second_lab_are_refused() {
    let bench = Workbench::new();
    bench.good("generate -o sets.npz --examples 4e4 --target average:p=2 --quiet");
    let line = "fit sets.npz --heads 200 --ridge 0.1 --checkpoint sums -o m.safetensors --quiet";
    let mut child = piped(bench.command(line));
    let is_claimed = |name: &str| {
        let prefix = format!(".{name}.");
        bench.files().iter().any(|file| file.starts_with(&prefix) && file.ends_with(".lock"))
    };
    wait_for(&mut child, || is_claimed("m.safetensors") && is_claimed("sums"));
    for other in [line.to_owned(), line.replace("m.safetensors", "other.safetensors")] {
        let run = bench.run(&other);
        assert!(run.code == Some(2) && run.err.lines().count() == 1 && run.err.contains("another run"), "{run:?}");
    }
    send(&child, "-KILL");
    end(child);

    bench.write("many.toml", b"[noise]\nseeds = 4000\nm = 1\nd = 4\nk = 3\nlevels = [0.05, 0.1]\nexamples = [60, 120]\n");
    let line = "lab run noise --config many.toml --out lab --quiet";
    let mut child = piped(bench.command(line));
    wait_for(&mut child, || bench.path("lab/noise/rows.csv").exists());
    let run = bench.run(line);
    assert!(run.code == Some(2) && run.err.lines().count() == 1 && run.err.contains("another run"), "{run:?}");
    send(&child, "-KILL");
    end(child);
}

/// Ctrl-C in the six phases keeps the search that came before them, and says what is where; continued, the run has the bits of one that never stopped.
#[test]
fn the_six_phases_are_interrupted_and_continued() {
    let bench = Workbench::new();
    bench.write("e.safetensors", &hard_examples(20_000));
    let line = |name: &str| format!("learn e.safetensors --heads 1 -o {name}.safetensors --json {name}.json");
    let whole = bench.run(&line("whole"));
    assert_eq!(whole.code, Some(1), "{whole:?}");
    assert!(whole.out.contains("now the six phases"), "{whole:?}");
    let said = bench.path("said");
    let child =
        bench.command(&line("parts")).stdout(std::fs::File::create(&said).expect("writable")).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("starts");
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    wait_for(&mut child, || text(&said).contains("now the six phases"));
    send(&child, "-INT");
    let run = end(child);
    assert_eq!((run.code, run.err.as_str()), (Some(130), "attnlearn: interrupted\n"), "{run:?}");
    let said = text(&said);
    assert!(said.contains("kept the search in parts.safetensors.checkpoint: continue with --resume"), "{said}");
    assert!(said.contains("wrote parts.safetensors"), "{said}");
    bench.good("inspect parts.safetensors");
    let resumed = bench.run(&format!("{} --resume", line("parts")));
    assert_eq!((resumed.code, resumed.err.as_str()), (Some(1), ""), "{resumed:?}");
    assert!(bench.read("whole.safetensors") == bench.read("parts.safetensors"));
    assert!(!bench.files().iter().any(|name| name.contains("checkpoint") || name.contains("lock")), "{:?}", bench.files());
}

/// A process that may start no threads: one line, no panic. Limits of that kind do not bind the super-user, who becomes somebody else for it.
#[test]
fn threads_that_may_not_be_started_are_said() {
    use std::os::unix::process::CommandExt;
    let bench = Workbench::new();
    for most in [1, 2] {
        let mut command = bench.command("generate -o x.npz --examples 3000");
        // SAFETY: between fork and exec only functions may be called that a signal handler may call: these may, with valid pointers.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || {
                let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
                if libc::geteuid() == 0 && (libc::setgid(54_321) != 0 || libc::setuid(54_321) != 0)
                    || libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) != 0
                {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let run: Run = command.output().expect("starts").into();
        assert_eq!((run.code, run.err.lines().count()), (Some(2), 1), "{most}: {run:?}");
        assert!(run.err.starts_with("attnlearn: "), "{most}: {run:?}");
        assert_eq!(bench.files(), [""; 0]);
    }
}
