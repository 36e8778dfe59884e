//! Random-feature attention from outside: generate → fit → predict → score, and everything that can be wrong.

use crate::common::Workbench;
use serde_json::Value;

fn json(bench: &Workbench, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(bench.path(name)).expect("a report")).expect("valid JSON")
}

/// `train.npz` and `test.npz` with one target.
fn data(bench: &Workbench, target: &str, n: usize) {
    let sizes = format!("--target {target} --d 4 --keys 3 --quiet");
    bench.good(&format!("generate -o train.npz --examples {n} --seed 1 {sizes}"));
    bench.good(&format!("generate -o test.npz --examples 300 --seed 2 {sizes}"));
}

#[test]
fn every_model_is_fitted_and_scored() {
    let bench = Workbench::new();
    data(&bench, "average:p=2", 400);
    for model in ["rfa", "brfa", "rfmlp", "softmax", "row-relu", "kernel-rfa", "kernel-brfa", "kernel-rfmlp"] {
        let heads = if model.starts_with("kernel") { "" } else { "--heads 40" };
        bench.good(&format!("fit train.npz --model {model} {heads} -o m.safetensors --json fit.json --quiet"));
        let fit = json(&bench, "fit.json");
        // Ridges that the precision of the features cannot tell from 0 are left out of the twenty.
        assert!(matches!(fit["path"].as_array().map(Vec::len), Some(10..=20)), "{model}: {}", fit["path"]);
        bench.good("score m.safetensors test.npz --quiet --json score.json");
        let nmse = json(&bench, "score.json")["targets"][0]["nmse"].as_f64().expect("a number");
        // The mean alone has 1. A square of keys is easy for ReLU attention; the others must do better than the mean.
        let easy = ["rfa", "brfa", "kernel-rfa", "kernel-brfa"].contains(&model);
        assert!(nmse < if easy { 0.2 } else { 0.9 }, "{model}: {nmse}");
    }
}

#[test]
fn predictions_are_what_is_scored() {
    let bench = Workbench::new();
    data(&bench, "query:p=2", 200);
    bench.good("fit train.npz --model rfa --heads 20 --ridge 1e-3 --precision f64 -o m.safetensors --quiet");
    bench.good("predict m.safetensors test.npz -o p.npz");
    let said = bench.good("inspect p.npz").out;
    assert!(said.contains("300"), "{said}");
    let said = bench.good("score m.safetensors test.npz").out;
    assert!(said.contains("MSE/Var") && said.contains("±"), "{said}");
}

#[test]
fn all_solvers_and_thread_counts_agree() {
    let bench = Workbench::new();
    data(&bench, "correlation:p=1,q=1", 150);
    let mut scores = Vec::new();
    for solver in ["gram", "dual", "cg --tolerance 1e-12"] {
        let fit = format!("fit train.npz --heads 16 --ridge 1e-3 --precision f64 --solver {solver} -o m.safetensors --quiet");
        bench.good(&fit);
        bench.good("score m.safetensors test.npz --quiet --json score.json");
        scores.push(json(&bench, "score.json")["targets"][0]["mse"].as_f64().expect("a number"));
        let bytes = std::fs::read(bench.path("m.safetensors")).expect("a model");
        bench.good(&format!("{fit} --threads 1"));
        assert_eq!(bytes, std::fs::read(bench.path("m.safetensors")).expect("a model"), "{solver} on one thread");
    }
    assert!(scores.iter().all(|s| (s / scores[0] - 1.0).abs() < 1e-8), "{scores:?}");
}

#[test]
fn weights_are_stored_only_when_asked_for() {
    let bench = Workbench::new();
    data(&bench, "average:p=1", 60);
    bench.good("fit train.npz --heads 64 --ridge 0.1 -o small.safetensors --quiet");
    bench.good("fit train.npz --heads 64 --ridge 0.1 -o large.safetensors --store-weights --quiet");
    let size = |name: &str| std::fs::metadata(bench.path(name)).expect("a model").len();
    assert_eq!(size("large.safetensors").saturating_sub(size("small.safetensors")) / 8, 64 * 25 + 9, "weights and their entry");
}

#[test]
fn bad_input_is_refused() {
    let bench = Workbench::new();
    data(&bench, "average:p=2", 50);
    let fit = |rest: &str| format!("fit train.npz -o m.safetensors {rest}");
    bench.refused(&fit("--ridge 0"), &["--ridge", "positive"]);
    bench.refused(&fit("--ridge -1"), &["ridge"]);
    bench.refused(&fit("--heads 0"), &["at least 1"]);
    bench.refused(&fit("--model rfa --mean-scale 1"), &["mean", "brfa"]);
    bench.refused(&fit("--width 10"), &["width", "rfmlp"]);
    bench.refused(&fit("--solver cg --ridge ridgeless --precision f64"), &["conjugate gradients", "ridgeless"]);
    bench.refused(&fit("--ridge ridgeless"), &["single precision"]);
    bench.refused(&fit("--heads 1000 --solver gram --memory 0.001"), &["memory", "MiB", "use dual"]);
    bench.refused(&fit("--model kernel-rfa --memory 0.00001"), &["memory", "finitely many heads"]);
    bench.refused("fit train.npz -o m.npz", &["safetensors"]);
    bench.refused("fit nowhere.npz -o m.safetensors", &["nowhere.npz"]);
    bench.refused("fit train.npz -o nowhere/m.safetensors", &["nowhere"]);
    bench.refused("generate -o a.npz --examples 10 --target average:p=0", &["p between 1 and 32"]);
    bench.refused("generate -o a.npz --examples 10 --target cubic:p=2", &["no family"]);
    bench.refused("generate -o a.npz --examples 10 --target average:p=2 --heads 3", &["--heads"]);
    bench.refused("generate -o a.npz --examples 10 --target average:p=2 --inputs boolean", &["--inputs"]);
    bench.refused("generate -o a.npz --examples 10 --keys 4", &["--target"]);
    bench.refused("predict train.npz test.npz -o p.npz", &["train.npz", "not a model"]);
    bench.good("fit train.npz --heads 8 --ridge 0.1 -o m.safetensors --quiet");
    bench.good("generate -o wide.npz --examples 10 --target average:p=2 --d 5 --keys 3 --quiet");
    bench.refused("score m.safetensors wide.npz", &["dimension 5", "dimension 4"]);
    bench.good("predict m.safetensors test.npz -o p.npz --quiet");
    bench.refused("score m.safetensors p.npz", &["p.npz", "no tensor x"]);
}

/// Sets of different lengths go through the whole chain.
#[test]
fn sets_of_different_lengths() {
    let bench = Workbench::new();
    bench.good("generate -o a.safetensors --examples 300 --target average:p=1 --d 3 --keys 5 --min-keys 2 --quiet");
    for (model, heads) in [("rfa", "--heads 30"), ("kernel-rfa", ""), ("rfmlp", "--heads 30")] {
        bench.good(&format!("fit a.safetensors --model {model} {heads} -o m.safetensors --quiet"));
        bench.good("score m.safetensors a.safetensors --quiet --json s.json");
        assert!(json(&bench, "s.json")["targets"][0]["r2"].as_f64().expect("a number") > 0.5, "{model}");
    }
}

/// Conjugate gradients choose by GCV and say so; leave-one-out errors are absent, not zero.
#[test]
fn conjugate_gradients_choose_a_ridge() {
    let bench = Workbench::new();
    data(&bench, "average:p=2", 400);
    bench.good("fit train.npz --heads 30 --solver gram -o m.safetensors --json exact.json --quiet");
    let said = bench.good("fit train.npz --heads 30 --solver cg -o m.safetensors --json fit.json").out;
    assert!(said.contains("ridge of least GCV") && said.contains('–'), "{said}");
    let (fit, exact) = (json(&bench, "fit.json"), json(&bench, "exact.json"));
    assert_eq!((fit["chosen_by"].as_str(), exact["chosen_by"].as_str()), (Some("gcv"), Some("leave_one_out")));
    assert!(fit["path"].as_array().is_some_and(|path| path.iter().all(|point| point["loo"].is_null())));
    // The exact GCV of its ridge is the least there is, to what the probes can tell.
    let gcv = |point: &Value| point["gcv"].as_f64().expect("a number");
    let path = exact["path"].as_array().expect("a path");
    let least = path.iter().map(gcv).fold(f64::INFINITY, f64::min);
    let near = |point: &&Value| (point["lambda"].as_f64().unwrap_or(0.0) / fit["lambda"].as_f64().expect("λ") - 1.0).abs() < 1e-3;
    let chosen = path.iter().find(near).expect("the same grid");
    assert!(gcv(chosen) < 1.1 * least, "{chosen} {least}");
    bench.good("score m.safetensors test.npz --quiet --json score.json");
    assert!(json(&bench, "score.json")["targets"][0]["nmse"].as_f64().expect("a number") < 0.2);
}

/// A fit interrupted in the library and continued by the program has the bits of one that never stopped.
#[test]
fn a_fit_continues_from_its_checkpoint() {
    use attnlearn::features::ridge::{Checkpoint, Options, Watch, fit_with_checkpoint};
    use attnlearn::features::{MapSpec, Model, Precision};
    use std::sync::atomic::{AtomicUsize, Ordering};
    struct After(AtomicUsize);
    impl Watch for After {
        fn interrupted(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) >= 9
        }
    }
    let bench = Workbench::new();
    data(&bench, "average:p=2", 1600);
    let fit = "fit train.npz --heads 12 --ridge 1e-3 --quiet";
    bench.good(&format!("{fit} --solver gram -o whole.safetensors"));
    let interrupted = || {
        let sets =
            attnlearn::features::open_sets(&bench.path("train.npz"), attnlearn::features::Targets::Required).expect("sets");
        let shape = sets.shape();
        let map = MapSpec::new(Model::Rfa, shape.d, shape.keys, 12, 0);
        let kept = Checkpoint::new(&bench.path("sums"), &map, Precision::F32).expect("a checkpoint");
        let built = map.build::<f32>().expect("a map");
        // Four blocks of targets, four to know the file by, and one panel of two.
        fit_with_checkpoint(built.as_ref(), sets.as_ref(), &Options::default(), Some(&kept), &After(AtomicUsize::new(0)))
    };
    assert!(matches!(interrupted(), Err(attnlearn::Error::Interrupted)));
    let sums = bench.read("sums");
    let parts = [("train.npz --heads 12 --seed 1", "another feature map"), ("test.npz --heads 12", "other examples")];
    for (other, what) in parts {
        bench.refused(&format!("fit {other} --checkpoint sums -o m.safetensors"), &["sums", what, "remove it"]);
    }
    bench.refused("fit train.npz --heads 12 --precision f64 --checkpoint sums -o m.safetensors", &["sums", "precision"]);
    bench.write("sums", &sums[..sums.len() - 3]);
    bench.refused("fit train.npz --heads 12 --checkpoint sums -o m.safetensors", &["sums", "damaged"]);
    bench.write("sums", &sums);
    bench.good(&format!("{fit} --checkpoint sums -o continued.safetensors --json fit.json"));
    assert_eq!(json(&bench, "fit.json")["solver"], "Gram");
    assert_eq!(bench.read("continued.safetensors"), bench.read("whole.safetensors"));
    assert!(!bench.files().contains(&"sums".to_owned()), "the checkpoint is removed in the end");
    for other in ["--solver dual", "--solver cg"] {
        bench.refused(&format!("{fit} {other} --checkpoint sums -o m.safetensors"), &["--checkpoint", "--solver gram"]);
    }
    let kernel = "fit train.npz --ridge 1e-3 --quiet --model kernel-rfa --checkpoint sums -o m.safetensors";
    bench.refused(kernel, &["--checkpoint", "--solver gram"]);
    bench.refused(&format!("{fit} --checkpoint train.npz -o m.safetensors"), &["train.npz"]);
}

/// Whoever wants to hear nothing hears why it failed.
#[test]
fn a_fit_that_falls_short_says_so_in_any_case() {
    let bench = Workbench::new();
    bench.good("generate -o s.npz --examples 300 --target average:p=2 --quiet");
    let run = bench.run("fit s.npz --heads 5 --solver cg --ridge 1e-6 --tolerance 1e-16 --quiet -o m.safetensors");
    assert_eq!((run.code, run.out.as_str(), run.err.lines().count()), (Some(1), "", 1), "{run:?}");
}
