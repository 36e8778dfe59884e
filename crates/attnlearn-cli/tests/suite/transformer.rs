//! `import` and `export`: a layer goes out as a transformer's weights and comes back.

use crate::common::Workbench;

#[test]
fn a_layer_goes_out_and_comes_back() {
    let bench = Workbench::new();
    bench.good(
        "generate -o e.npz --examples 10 --d 8 --heads 2 --family low-rank:3 --norm 4 --layer-out layer.safetensors --quiet",
    );
    for family in ["bert", "vit", "distilbert", "mha"] {
        let said = bench.good(&format!("export layer.safetensors --head-dim 4 --to {family} --layer 3 --lossy -o w.safetensors"));
        assert!(said.out.contains("largest relative error of a head"), "{}", said.out);
        let number = if family == "mha" { 0 } else { 3 };
        let line = format!("import w.safetensors --layer {number} --heads 2 -o back.safetensors --json -");
        let report = bench.run(&line).json();
        assert_eq!((&report["heads"], &report["head_dim"]), (&2.into(), &4.into()));
        // W has rank 8 and a head dimension of 4 keeps half of it: attention comes back whole, projections do not.
        let compared = bench.run("compare layer.safetensors back.safetensors --json -").json();
        assert!(compared["worst_theta"].as_f64().is_some_and(|worst| worst < 1e-9), "{compared}");
    }
}

/// What is lost is refused with the dimension that would do, written when it is asked for, and said both times.
#[test]
fn losses_are_asked_for() {
    let bench = Workbench::new();
    bench.good(
        "generate -o e.npz --examples 10 --d 8 --heads 2 --family low-rank:3 --norm 4 --layer-out layer.safetensors --quiet",
    );
    std::fs::write(bench.path("w.safetensors"), "precious").expect("a file");
    bench.refused(
        "export layer.safetensors --head-dim 2 -o w.safetensors",
        &["2 has no room for", "%", "--head-dim 8", "--lossy"],
    );
    bench.refused(
        "export layer.safetensors --head-dim 4 --to bert -o w.safetensors",
        &["% of W of head", "no head dimension", "plain factors"],
    );
    assert_eq!(std::fs::read(bench.path("w.safetensors")).expect("untouched"), b"precious");
    let whole = bench.run("export layer.safetensors --head-dim 8 -o w.safetensors --json -").json();
    assert_eq!(whole["lossy"], false);
    assert!(whole["worst"].as_f64().is_some_and(|worst| worst < 1e-9), "{whole}");
    let report = bench.run("export layer.safetensors --head-dim 2 --lossy -o w.safetensors --json -").json();
    assert_eq!(report["lossy"], true);
    let lost = report["lost"].as_array().expect("one for each head");
    assert_eq!(lost.len(), 2);
    assert!(lost.iter().all(|lost| lost["theta"].as_f64() > Some(1e-3) && lost["w"].as_f64() > Some(1e-3)), "{report}");
    assert!(bench.good("export layer.safetensors --head-dim 2 --lossy -o w.safetensors").out.contains("an approximation of it"));
}

/// The program refuses what the library does, and says what its check was of.
#[test]
fn layers_that_are_not_held_are_refused() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --d 8 --heads 2 --layer-out layer.safetensors --quiet");
    bench.good("export layer.safetensors --head-dim 4 --lossy --to bert -o model.safetensors --quiet");
    let said = bench.good("import model.safetensors --heads 2 -o back.safetensors").out;
    assert!(said.contains("all 8 tensors of it") && said.contains("no configuration names the type of model"), "{said}");
    std::fs::write(bench.path("config.json"), r#"{"model_type": "bert", "num_attention_heads": 2}"#).expect("a file");
    let report = bench.run("import model.safetensors -o back.safetensors --json -").json();
    assert_eq!((&report["confirmed"], report["tensors"].as_array().map(Vec::len)), (&true.into(), Some(8)));
    std::fs::write(bench.path("config.json"), r#"{"model_type": "roformer", "num_attention_heads": 2}"#).expect("a file");
    bench.refused("import model.safetensors -o back.safetensors", &["roformer", "RoPE"]);
    bench.refused("check model.safetensors", &["roformer", "RoPE"]);
}

#[test]
fn bad_input_is_refused() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --d 6 --heads 2 --layer-out layer.safetensors --quiet");
    bench.refused("import layer.safetensors -o x.safetensors", &["no attention layer that is known", "theta", "expected one of"]);
    bench.refused("import absent.safetensors -o x.safetensors", &["absent.safetensors", "does not exist"]);
    bench.refused("import e.npz -o x.npz", &["safetensors"]);
    bench.refused("export layer.safetensors --head-dim 4 --to bert -o x.safetensors", &["do not make up 6", "plain factors"]);
    bench.refused("export layer.safetensors --head-dim 3 --to gpt2 -o x.safetensors", &["causal"]);
    bench.refused("export layer.safetensors --head-dim 0 -o x.safetensors", &["head dimension"]);
    bench.refused("export e.npz --head-dim 3 -o x.safetensors", &["not a layer"]);
    for r in ["99999999999", "7"] {
        bench
            .refused(&format!("export layer.safetensors --head-dim {r} -o x.safetensors"), &["head dimension", "give at most 6"]);
    }
    bench.good("export layer.safetensors --head-dim 3 --to mha --lossy -o mha.safetensors");
    bench.refused("import mha.safetensors -o x.safetensors", &["how many heads", "--heads"]);
    bench.refused("import mha.safetensors --heads 4 -o x.safetensors", &["4 heads cannot share"]);
    bench.refused("import mha.safetensors --heads 2 --layer 1 -o x.safetensors", &["no layer 1"]);
}

#[test]
fn conditions_of_layers_and_models() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --d 8 --heads 2 --norm 6 --layer-out layer.safetensors --quiet");
    let said = bench.good("check layer.safetensors").out;
    for part in ["2 heads, d = 8", "effective rank", "separation", "incoherence", "met"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    bench.good("export layer.safetensors --head-dim 4 --lossy --to bert --layer 5 -o model.safetensors --quiet");
    let said = bench.good("check model.safetensors --heads 2").out;
    assert!(said.contains("2 heads, d = 8"), "{said}");
    let report = bench.run("check model.safetensors --heads 2 --k 3 --json -").json();
    assert_eq!((&report["k"], &report["layers"][0]["layer"]), (&3.into(), &"encoder.layer.5".into()));
    assert_eq!(report["layers"][0]["heads"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["layers"][0]["conditions"].as_array().map(Vec::len), Some(10));
    bench.good("generate -o e.npz --examples 10 --d 6 --heads 2 --cosine 0.999 --layer-out twins.safetensors --quiet");
    assert!(bench.good("check twins.safetensors").out.contains("two heads attend nearly alike"));
    bench.refused("check e.npz", &["no attention layer that is known"]);
    bench.refused("check model.safetensors", &["how many heads"]);
    bench.refused("check layer.safetensors --k 0", &["--k: ", "give at least 1"]);
    bench.refused("check absent.safetensors", &["does not exist"]);
}
