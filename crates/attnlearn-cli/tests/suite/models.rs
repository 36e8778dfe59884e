//! Files of sets and fitted models from outside: what `inspect` says of them, and how bad ones are refused.

use crate::common::{Workbench, safetensors};
use serde_json::Value;
use std::path::Path;

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../attnlearn/tests/golden");
    std::fs::read(folder.join(name)).expect("a golden file")
}

/// `sets.npz` and `m.safetensors`, fitted to it.
fn fitted(bench: &Workbench, fit: &str) {
    bench.good("generate -o sets.npz --examples 120 --target average:p=2 --d 3 --keys 4 --min-keys 2 --quiet");
    bench.good(&format!("fit sets.npz {fit} -o m.safetensors --quiet"));
}

#[track_caller]
fn near(value: &Value, wanted: f64, tolerance: f64) {
    let found = value.as_f64().expect("a number");
    assert!((found - wanted).abs() <= tolerance, "{found} for {wanted}");
}

#[test]
fn inspect_says_what_sets_are() {
    let bench = Workbench::new();
    bench.good("generate -o a.npz --examples 900 --target average:p=1 --d 3 --keys 5 --min-keys 2 --dtype f32 --quiet");
    let said = bench.good("inspect a.npz").out;
    for part in ["sets: n = 900, N = up to 5, d = 3, 1 target", "First 900 sets", "2 to 5 keys", "all of norm 1", "variance"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let about = bench.good("inspect a.npz --quiet --json -").json();
    let content = &about["file"]["content"];
    assert_eq!((&content["kind"], &content["n"], &content["keys"]), (&"sets".into(), &900.into(), &5.into()));
    assert_eq!((&content["lengths"], &content["weights"]), (&true.into(), &false.into()));
    let sets = &about["sets"];
    assert_eq!((&sets["n"], &sets["lengths"], &sets["unit"]), (&900.into(), &serde_json::json!([2, 5]), &true.into()));
    // Targets have mean 0 and variance 1; these are six standard errors of 900 draws, and more for the variance.
    near(&sets["y"][0]["mean"], 0.0, 0.2);
    near(&sets["y"][0]["variance"], 1.0, 0.4);
    near(&sets["x_variance"], 1.0 / 3.0, 0.02);

    // Predictions are targets alone.
    bench.good("fit a.npz --heads 8 --ridge 0.1 -o m.safetensors --quiet");
    bench.good("predict m.safetensors a.npz -o p.npz --quiet");
    assert!(bench.good("inspect p.npz").out.contains("targets of sets: n = 900, t = 1"));
}

#[test]
fn inspect_says_what_a_parquet_file_holds() {
    let bench = Workbench::new();
    bench.write("sets.parquet", &golden("sets.parquet"));
    bench.write("flat.parquet", &golden("bad_flat.parquet"));
    let said = bench.good("inspect sets.parquet").out;
    for part in ["sets: n = 3, N = up to 3, d = 2, 1 target, weighted", "parquet", "[3, 4, 2]", "1 to 3 keys", "weights from 0"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let about = bench.good("inspect sets.parquet --quiet --json -").json();
    assert_eq!((&about["file"]["format"], &about["file"]["content"]["n"]), (&"parquet".into(), &3.into()));
    near(&about["sets"]["y"][0]["mean"], 0.5, 1e-12);
    near(&about["sets"]["y"][0]["variance"], 8.0 / 3.0, 1e-12);
    // A file of something else is described as far as it goes.
    let said = bench.good("inspect flat.parquet").out;
    assert!(said.contains("not a file of attnlearn") && said.contains("list of lists"), "{said}");
    bench.write("cut.parquet", &golden("sets.parquet")[..40]);
    bench.refused("inspect cut.parquet", &["cut.parquet", "cannot be read as Parquet"]);
}

/// Some of these bring down the Parquet crate; people see one line whatever happens.
#[test]
#[ignore = "slow: hundreds of damaged files; cargo xtask test --all"]
fn damaged_parquet_is_one_line() {
    let bench = Workbench::new();
    let whole = golden("sets.parquet");
    let mut refused = 0;
    for at in (4..whole.len()).step_by(5) {
        let mut bytes = whole.clone();
        bytes[at] = 0xff;
        bench.write("bad.parquet", &bytes);
        let run = bench.run("inspect bad.parquet --quiet");
        assert!(matches!(run.code, Some(0 | 2)), "byte {at}: {run:?}");
        assert_eq!(run.err.lines().count(), usize::from(run.code == Some(2)), "byte {at}: {run:?}");
        refused += usize::from(run.code == Some(2));
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn inspect_says_what_a_model_is() {
    let bench = Workbench::new();
    fitted(&bench, "--model brfa --heads 12 --seed 9 --ridge 0.25 --precision f64 --mean-scale 0.5");
    let said = bench.good("inspect m.safetensors").out;
    let parts =
        ["model: brfa with 12 heads, 48 features; N = 4, d = 3, 1 target", "seed of the heads  9", "double", "2.500e-1", "‖v‖"];
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let about = bench.good("inspect m.safetensors --quiet --json -").json();
    let model = &about["file"]["content"];
    assert_eq!((&model["kind"], &model["map"]["heads"], &model["map"]["seed"]), (&"model".into(), &12.into(), &9.into()));
    assert_eq!((&model["size"], &model["ridge"]), (&48.into(), &0.25.into()));
    assert!(model["norms"][0].as_f64().is_some_and(|norm| norm > 0.0));
    fitted(&bench, "--model kernel-rfmlp --ridge 0.25");
    let said = bench.good("inspect m.safetensors").out;
    assert!(said.contains("model: kernel-rfmlp on 120 sets; N = 4, d = 3, 1 target") && said.contains("‖α‖"), "{said}");
}

/// The model with its header as text replaced.
fn edited(bench: &Workbench, from: &str, to: &str) -> Vec<u8> {
    let bytes = bench.read("m.safetensors");
    let (len, rest) = bytes.split_first_chunk::<8>().expect("a header");
    let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
    let header = std::str::from_utf8(header).expect("text");
    assert!(header.contains(from), "no {from} in {header}");
    safetensors(&header.replace(from, to), data)
}

/// One line, code 2, no new file, whichever command reads the model.
#[test]
fn bad_models_are_refused_by_every_command() {
    let bench = Workbench::new();
    fitted(&bench, "--model rfa --heads 6 --ridge 0.1");
    bench.good("generate -o e.npz --layer-out t.safetensors --examples 20 --d 3 --k 2 --heads 1 --quiet");
    let whole = bench.read("m.safetensors");
    let mut infinite = whole.clone();
    let end = infinite.len();
    infinite[end - 8..].copy_from_slice(&f64::INFINITY.to_le_bytes());
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "is empty"),
        (b"{}".to_vec(), "neither a safetensors nor an npz"),
        (whole[..20].to_vec(), "truncated"),
        (whole[..end - 3].to_vec(), "truncated"),
        (infinite, "infinite"),
        (bench.read("t.safetensors"), "is not a model of attnlearn fit"),
        (bench.read("sets.npz"), "is not a model of attnlearn fit"),
        (edited(&bench, "\"version\":\"1\"", "\"version\":\"7\""), "is a model of version 7"),
        (edited(&bench, "attnlearn-features", "attnlearn-fortunes"), "is not a model of attnlearn fit"),
        (edited(&bench, "\"intercept\"", "\"interlude\""), "has no tensor intercept"),
        (edited(&bench, "\\\"heads\\\":6", "\\\"heads\\\":1000000000000"), "v has shape [24, 1]"),
        (edited(&bench, "\\\"heads\\\":6", "\\\"heads\\\":9000000000000000000"), "more weights than memory can address"),
        (edited(&bench, "\\\"ridge\\\":0.1", "\\\"ridge\\\":1e999"), "does not describe its model"),
    ];
    for (bytes, words) in cases {
        bench.write("bad.safetensors", &bytes);
        for line in ["predict bad.safetensors sets.npz -o p.npz", "score bad.safetensors sets.npz"] {
            bench.refused(line, &["bad.safetensors", words]);
        }
    }
    // A model is no layer, and no file of examples or sets either.
    for line in [
        "verify m.safetensors e.npz",
        "verify t.safetensors m.safetensors",
        "apply m.safetensors e.npz -o y.npz",
        "compare t.safetensors m.safetensors",
        "fit m.safetensors -o n.safetensors",
        "score m.safetensors m.safetensors",
    ] {
        bench.refused(line, &["m.safetensors"]);
    }
    // `inspect` says what it can of a file that claims to be a model and is none.
    bench.write("bad.safetensors", &edited(&bench, "\"version\":\"1\"", "\"version\":\"7\""));
    let said = bench.good("inspect bad.safetensors").out;
    assert!(said.contains("is a model of version 7"), "{said}");
}
