//! `import` and `export`: a layer goes out as a transformer's weights and comes back.

use crate::common::Workbench;

#[test]
fn a_layer_goes_out_and_comes_back() {
    let bench = Workbench::new();
    bench.good(
        "generate -o e.npz --examples 10 --d 8 --heads 2 --family low-rank:3 --norm 4 --layer-out layer.safetensors --quiet",
    );
    for family in ["bert", "vit", "distilbert", "mha"] {
        let said = bench.good(&format!("export layer.safetensors --head-dim 4 --to {family} --layer 3 -o w.safetensors"));
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
    bench.good("export layer.safetensors --head-dim 3 --to mha -o mha.safetensors");
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
    bench.good("export layer.safetensors --head-dim 4 --to bert --layer 5 -o model.safetensors --quiet");
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
    bench.refused("check absent.safetensors", &["does not exist"]);
}
