//! The lab from the command line: lists, small runs, killed ones, and what is refused.

use crate::common::{Run, Workbench};

/// Small enough for a test.
const SMALL: &str = "[noise]\nseeds = 2\nm = 1\nd = 4\nk = 3\nlevels = [0.05, 0.1]\nexamples = [60, 120]\n";

#[test]
fn experiments_are_listed() {
    let bench = Workbench::new();
    let list = bench.run("lab list --quiet --json -").json();
    let experiments = list["experiments"].as_array().expect("a list");
    assert_eq!(experiments.len(), 15);
    let text = bench.good("lab list").out;
    for experiment in experiments {
        assert!(text.contains(experiment["name"].as_str().expect("a name")) && experiment["config"].is_null());
        assert!(!experiment["claim"].as_str().expect("a claim").is_empty());
    }
    let config = bench.good("lab list noise --config").out;
    assert!(config.starts_with("[noise]\n") && config.contains("levels = ["), "{config}");
}

#[test]
fn a_run_leaves_rows_plots_and_pages() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL.as_bytes());
    let run = bench.good("lab run noise --config small.toml --out out --seed 3");
    assert!(run.out.contains("noise") && run.out.contains("report.html"), "{run:?}");
    let file = |name: &str| String::from_utf8(bench.read(&format!("out/{name}"))).expect("UTF-8");
    assert!(file("noise/config.toml").contains("seed = 3") && file("noise/rows.csv").lines().count() > 4);
    let summary: serde_json::Value = serde_json::from_str(&file("noise/summary.json")).expect("JSON");
    let finding = summary["findings"][0]["text"].as_str().expect("a finding");
    assert!(file("findings.md").contains(finding));
    assert!(file("report.html").contains("</html>"));
    assert!(bench.read("out/noise/rows.parquet").starts_with(b"PAR1"));
    // The same seed gives the same rows, elsewhere and on one thread.
    bench.good("lab run noise --config small.toml --out other --seed 3 --threads 1");
    for name in ["noise/rows.csv", "noise/rows.parquet"] {
        assert!(bench.read(&format!("out/{name}")) == bench.read(&format!("other/{name}")), "{name}");
    }
    // Again: nothing is measured twice.
    let journal = bench.read("out/noise/points.jsonl");
    bench.good("lab run noise --config small.toml --out out --seed 3 --quiet");
    assert!(journal == bench.read("out/noise/points.jsonl"));
    // The same as JSON, and the page of Markdown elsewhere.
    let list = bench.run("lab run noise --config small.toml --out out --seed 3 --quiet --json -").json();
    assert_eq!(list["experiments"][0]["name"], "noise");
    bench.good("lab run noise --config small.toml --out out --findings page.md --seed 3 --quiet");
    assert!(String::from_utf8(bench.read("page.md")).expect("UTF-8").contains("](out/noise/"));
    // What a run has left for an experiment is a configuration too; other commands are not enough to get its rows again.
    let page = file("findings.md");
    assert!(page.contains("--seed 3 --config ./noise/config.toml`"), "{page}");
    bench.good("lab run noise --config out/noise/config.toml --out again --quiet");
    for name in ["rows.csv", "config.toml"] {
        assert!(bench.read(&format!("out/noise/{name}")) == bench.read(&format!("again/noise/{name}")), "{name}");
    }
    let kept = "lab run noise --config out/noise/config.toml --out again";
    bench.refused(&format!("{kept} --seed 4"), &["--seed 3", "--seed 4", "out/noise/config.toml"]);
    bench.refused(&format!("{kept} --scale full"), &["--scale quick", "--scale full"]);
    bench.write("kept.toml", file("noise/config.toml").replace("seed = 3", "seed = \"three\"").as_bytes());
    bench.refused("lab run noise --config kept.toml --out again", &["kept.toml", "expected u64"]);
    // Into a folder that is not there yet.
    bench.good("lab run noise --config small.toml --out fresh --findings fresh/page.md --seed 3 --quiet");
    assert!(!bench.read("fresh/page.md").is_empty());
}

/// Nothing that was kept or given is overwritten by a page.
#[test]
fn outputs_do_not_overwrite_what_is_kept() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL.as_bytes());
    let run = "lab run noise --config small.toml --out out";
    bench.refused(&format!("{run} --findings small.toml"), &["small.toml", "overwrite"]);
    bench.refused(&format!("{run} --findings out/noise/points.jsonl"), &["results of `noise`"]);
    bench.refused(&format!("{run} --findings out/parity/page.md"), &["results of `parity`"]);
    bench.refused(&format!("{run} --findings ./out/report.html"), &["two different outputs"]);
    bench.refused(&format!("{run} --findings nowhere/page.md"), &["nowhere"]);
    bench.write("x.json", b"");
    bench.refused(&format!("{run} --findings x.json --json ./x.json"), &["two different outputs"]);
    std::fs::create_dir_all(bench.path("out/noise")).expect("a folder");
    bench.refused(&format!("{run} --json out/noise/points.jsonl"), &["results of `noise`"]);
    bench.refused(&format!("{run} --json out/findings.md"), &["two different outputs"]);
}

/// A run that is killed loses the points in progress and nothing else.
#[cfg(unix)]
#[test]
fn a_killed_run_goes_on() {
    let bench = Workbench::new();
    let config = SMALL.replace("seeds = 2", "seeds = 16");
    bench.write("small.toml", config.as_bytes());
    let line = |out: &str| format!("lab run noise --config small.toml --out {out} --quiet");
    bench.good(&line("whole"));
    for signal in ["-KILL", "-INT"] {
        let out = format!("parts{signal}");
        let points = || std::fs::read_to_string(bench.path(&format!("{out}/noise/points.jsonl"))).unwrap_or_default();
        let mut child = bench.command(&line(&out)).stderr(std::process::Stdio::piped()).spawn().expect("starts");
        while points().lines().count() < 5 && child.try_wait().expect("a process").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
        let run: Run = child.wait_with_output().expect("ends").into();
        let before = points();
        let whole = &before[..before.rfind('\n').map_or(0, |end| end + 1)];
        assert!(whole.lines().count() >= 5, "{run:?}");
        match signal {
            "-INT" => assert!(run.code == Some(130) && run.err == "attnlearn: interrupted\n", "{run:?}"),
            _ => assert_eq!(run.code, None, "it was not killed: {run:?}"),
        }
        bench.good(&line(&out));
        assert!(points().starts_with(whole), "what was measured has been measured again");
        assert!(bench.read("whole/noise/rows.csv") == bench.read(&format!("{out}/noise/rows.csv")));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bench = Workbench::new();
    bench.refused("lab run nois", &["no experiment `nois`", "noise"]);
    bench.refused("lab run", &["lab --help"]);
    bench.refused("lab run noise --config there-is-none.toml", &["there-is-none.toml"]);
    let bad = [
        ("[noise]\nlevel = [0.1]\n", "there is no `level`"),
        ("[noise]\nlevels = \"many\"\n", "configuration of noise"),
        ("[noise]\nlevels = []\n", "nothing to measure"),
        ("[noise]\nlevels = =\n", "bad.toml, line 2:"),
        ("[noise]\nk = 0\n", "`k` may not be 0"),
        ("[noise]\nk = 1000000000000\n", "`k` is above 1000000000"),
        ("[noise]\nseeds = 9223372036854775807\n", "`seeds` is above 100000"),
        ("[parity]\n", "[parity] is not among"),
        ("noise = 1\n", "it is no table"),
    ];
    for (text, what) in bad {
        bench.write("bad.toml", text.as_bytes());
        bench.refused("lab run noise --config bad.toml", &[what]);
    }
    bench.write("bad.toml", b"[noise]\n# caf\xe9\n");
    bench.refused("lab run noise --config bad.toml", &["bad.toml, line 2:", "UTF-8", "mend it"]);
    // A folder that cannot be one.
    bench.write("file", b"");
    bench.refused("lab run noise --out file", &["file"]);
    // A journal that is none.
    std::fs::create_dir_all(bench.path("damaged/noise")).expect("a folder");
    bench.write("damaged/noise/points.jsonl", b"{\"point\": 3}\n");
    bench.refused("lab run noise --out damaged", &["points.jsonl, line 1", "remove"]);
}

/// Pages of single runs.
#[test]
fn learners_write_pages() {
    let bench = Workbench::new();
    bench.good("demo --quiet --report demo.html -o layer.safetensors");
    let page = String::from_utf8(bench.read("demo.html")).expect("UTF-8");
    for part in [
        "recovered",
        "The body being sculpted",
        "head 1: true",
        "What is guaranteed",
        "attnlearn demo --quiet --report",
        "href=\"layer.safetensors\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    bench.good("generate -o e.npz --examples 600 --d 6 --k 3 --heads 2 --norm 2 --seed 1 --quiet");
    std::fs::create_dir(bench.path("pages")).expect("a folder");
    bench.good("learn e.npz --heads 1..2 -o l.safetensors --report pages/learn.html --json r.json --quiet");
    let page = String::from_utf8(bench.read("pages/learn.html")).expect("UTF-8").replace("&#x2f;", "/").replace("&quot;", "\"");
    for part in ["recovered", "Error against size", "head 1: found", "attnlearn learn e.npz --heads 1..2", "\"seed\": 0"] {
        assert!(page.contains(part), "{part}");
    }
    for (what, file) in [("examples", "e.npz"), ("layer", "l.safetensors"), ("result", "r.json")] {
        assert!(page.contains(&format!("<a href=\"../{file}\">{what} {file}</a>")), "{file}");
    }
    bench.refused("demo --report layer.safetensors -o layer.safetensors", &["two different outputs"]);
    bench.refused("learn e.npz --heads 2 -o m.safetensors --report nowhere/p.html", &["nowhere"]);
}
