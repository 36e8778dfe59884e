//! What a run may overwrite, and how: inputs never, modes and links kept, nothing left over.

use crate::common::*;

/// One line a command: that it may not overwrite what it reads. Every pair of flags is tried in the program's own tests.
#[test]
fn no_command_overwrites_what_it_reads() {
    let bench = Workbench::new();
    bench.good("generate -o e.safetensors --examples 600 --d 4 --k 3 --heads 1 --layer-out t.safetensors --quiet");
    bench.good("generate -o s.safetensors --examples 300 --target average:p=2 --quiet");
    bench.good("fit s.safetensors --heads 20 --ridge 0.1 -o m.safetensors --quiet");
    std::fs::copy(bench.path("t.safetensors"), bench.path("a.toml")).expect("copied");
    let lines = [
        "learn e.safetensors -o e.safetensors",
        "learn e.safetensors -o l.safetensors --json ./e.safetensors",
        "learn e.safetensors -o l.safetensors --report e.safetensors",
        "learn e.safetensors -o l.safetensors --before-polish e.safetensors",
        "learn e.safetensors -o l.safetensors --checkpoint e.safetensors",
        "generate -o t.safetensors --examples 10 --layer t.safetensors",
        "generate -o n.npz --examples 10 --layer t.safetensors --layer-out t.safetensors",
        "verify t.safetensors e.safetensors --json t.safetensors",
        "verify t.safetensors e.safetensors --json e.safetensors",
        "compare t.safetensors t.safetensors --json t.safetensors",
        "apply t.safetensors e.safetensors -o e.safetensors",
        "apply t.safetensors e.safetensors -o t.safetensors",
        "fit s.safetensors -o s.safetensors",
        "fit s.safetensors -o n.safetensors --checkpoint s.safetensors",
        "predict m.safetensors s.safetensors -o s.safetensors",
        "predict m.safetensors s.safetensors -o m.safetensors",
        "score m.safetensors s.safetensors --json m.safetensors",
        "export t.safetensors --head-dim 4 -o t.safetensors",
        "import t.safetensors -o t.safetensors",
        "check t.safetensors --json t.safetensors",
        "inspect t.safetensors --json t.safetensors",
        "lab run noise --config a.toml --findings a.toml",
    ];
    let contents = |bench: &Workbench| bench.files().iter().map(|name| bench.read(name)).collect::<Vec<_>>();
    let before = contents(&bench);
    for line in lines {
        bench.refused(line, &["would overwrite what is read; give another name"]);
    }
    assert!(contents(&bench) == before);
}

#[test]
fn a_demonstration_writes_nothing_unless_asked() {
    let bench = Workbench::new();
    bench.write("layer.safetensors", b"dear to somebody");
    bench.good("demo --quiet");
    assert_eq!(bench.files(), ["layer.safetensors"]);
    assert_eq!(bench.read("layer.safetensors"), b"dear to somebody");
    let run = bench.good("demo -o mine.safetensors");
    assert!(run.out.contains("wrote mine.safetensors"), "{}", run.out);
    bench.good("inspect mine.safetensors --quiet");
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let bench = Workbench::new();
    bench.good("generate -o s.npz --examples 300 --target average:p=2 --quiet");
    let fit = |flags: &str, what: &[&str]| bench.refused(&format!("fit s.npz {flags} -o m.safetensors"), what);
    for model in ["rfa", "brfa", "row-relu", "kernel-rfa"] {
        fit(&format!("--model {model} --inverse-temperature 2"), &["--inverse-temperature: ", "no softmax; ", "--model softmax"]);
    }
    for model in ["kernel-rfa", "kernel-brfa", "kernel-rfmlp"] {
        fit(&format!("--model {model} --heads 40"), &["--heads: ", "infinitely many", "; leave it out"]);
        fit(&format!("--model {model} --seed 4"), &["--seed: "]);
        fit(&format!("--model {model} --precision f64"), &["--precision: "]);
        fit(&format!("--model {model} --tolerance 1e-3"), &["--tolerance: "]);
        fit(&format!("--model {model} --store-weights"), &["--store-weights: "]);
    }
    fit("--model rfmlp --heads 4 --width 9", &["--heads: ", "--width"]);
    for solver in ["--solver gram", "--solver dual", "--checkpoint sums"] {
        fit(&format!("{solver} --tolerance 1e-3"), &["--tolerance: ", "exact; ", "--solver cg"]);
    }
    fit("--checkpoint-every 3", &["--checkpoint"]);
    // Where it depends on the examples which solver is taken, it is said that it did not count.
    let run = bench.good("fit s.npz --heads 20 --tolerance 1e-3 -o m.safetensors");
    assert!(run.out.contains("--tolerance was not needed"), "{}", run.out);
    let run = bench.good("fit s.npz --heads 20 --solver cg --ridge 0.1 --tolerance 1e-3 -o m.safetensors");
    assert!(!run.out.contains("--tolerance"), "{}", run.out);
    for line in ["completions bash --json r.json", "completions zsh --json -", "man --json r.json", "man learn --json -"] {
        bench.refused(line, &["--json: ", "; leave it out"]);
    }
}

/// Names of files may hold anything; none of it reaches the terminal.
#[cfg(unix)]
#[test]
fn hostile_names_do_not_speak_to_the_terminal() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 100 --layer-out t.safetensors --quiet");
    let name = "x\x1b]0;owned\x07\x1b[2J";
    let with = |line: &str, more: &str| {
        let mut command = bench.command(line);
        command.arg(format!("{name}{more}")).arg("--color").arg("always");
        Run::from(command.output().expect("starts"))
    };
    for (line, more, code) in [
        ("verify t.safetensors", "none.npz", 2),
        ("inspect", "none.npz", 2),
        ("generate --examples 10 -o", ".csv", 2),
        ("generate --examples 10 -o", ".npz", 0),
        ("apply t.safetensors e.npz -o", ".npz", 0),
        ("inspect", ".npz", 0),
        ("man", "", 2),
        ("compare t.safetensors t.safetensors --examples 10 --inputs", "", 2),
    ] {
        let run = with(line, more);
        assert_eq!(run.code, Some(code), "{line}: {run:?}");
        for bad in ["\x1b]", "\x07", "\x1b[2J"] {
            assert!(!run.out.contains(bad) && !run.err.contains(bad), "{line}: {run:?}");
        }
    }
}

/// A run that was killed while it wrote leaves a file behind, until the next one that writes to the same place.
#[cfg(unix)]
#[test]
fn what_a_killed_run_has_left_is_removed_by_the_next() {
    let bench = Workbench::new();
    let mut child = bench.command("generate -o e.npz --examples 1e9 --quiet").spawn().expect("starts");
    let parts = || bench.files().into_iter().filter(|name| name.ends_with(".part")).count();
    while parts() == 0 {
        assert!(child.try_wait().expect("a child").is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Not while it is being written.
    bench.good("generate -o e.npz --examples 10 --quiet");
    assert_eq!(parts(), 1);
    child.kill().expect("can be killed");
    child.wait().expect("ends");
    assert_eq!(parts(), 1);
    bench.good("generate -o other.npz --examples 10 --quiet");
    assert_eq!(parts(), 1, "it may belong to somebody");
    bench.good("generate -o e.npz --examples 10 --quiet");
    assert_eq!(bench.files(), ["e.npz", "other.npz"]);
}

/// A file whose name looks like one that a run makes for itself is read, and stays.
#[test]
fn no_file_of_the_user_is_taken_for_a_lock() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 600 --d 4 --k 3 --heads 1 --norm 2 --quiet");
    std::fs::copy(bench.path("e.npz"), bench.path(".l.safetensors.lock")).expect("copied");
    bench.good("learn .l.safetensors.lock --heads 1 -o l.safetensors --quiet");
    bench.good("learn e.npz --heads 1 -o m.safetensors --json .m.safetensors.lock --quiet");
    assert_eq!(bench.files(), [".l.safetensors.lock", ".m.safetensors.lock", "e.npz", "l.safetensors", "m.safetensors"]);
    assert!(bench.read(".l.safetensors.lock") == bench.read("e.npz"));
    assert_eq!(bench.read(".m.safetensors.lock")[0], b'{');
}

/// Standard output has names of its own. What it leads to is written to, and not replaced.
#[cfg(target_os = "linux")]
#[test]
fn what_is_open_already_is_not_replaced() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --layer-out t.safetensors --quiet");
    let appended = |line: &str| {
        bench.write("log", b"precious\n");
        let log = std::fs::OpenOptions::new().append(true).open(bench.path("log")).expect("there");
        let mut run: Run = bench.command(line).stdout(log).output().expect("starts").into();
        run.out = String::from_utf8(bench.read("log")).expect("text");
        assert!(run.out.starts_with("precious\n"), "{line}: {run:?}");
        run
    };
    let run = appended("inspect t.safetensors --json /dev/stdout");
    assert_eq!((run.code, &run.out[9..10]), (Some(0), "{"), "{run:?}");
    for name in ["/proc/self/fd/1", "/dev/fd/1"] {
        let run = appended(&format!("inspect t.safetensors --json {name}"));
        let what = format!("attnlearn: {name}: stands for a file that is already open; give the name of a file on disk\n");
        assert_eq!((run.code, run.err), (Some(2), what));
        bench.refused(&format!("inspect t.safetensors --json {name}"), &["already open"]);
    }
    assert_eq!(bench.run("inspect t.safetensors --json -").out, bench.run("inspect t.safetensors --json /dev/stdout").out);
}

/// What cannot be a file is told before the work, not after it.
#[test]
fn a_name_with_a_slash_behind_it_is_no_file() {
    let bench = Workbench::new();
    bench.good("generate -o s.npz --examples 300 --target average:p=2 --quiet");
    for name in ["m.safetensors/", "m.safetensors/.", "s.npz/"] {
        let run = bench.run(&format!("fit s.npz --heads 20 -o {name}"));
        assert_eq!((run.code, run.out.as_str(), run.err.lines().count()), (Some(2), "", 1), "{name}: {run:?}");
    }
}
