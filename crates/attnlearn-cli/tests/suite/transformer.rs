//! `import` and `export`: a layer goes out as a transformer's weights and comes back.

use crate::common::{Workbench, safetensors};
use serde_json::{Map, Value};

/// A model in one file: the tensors of files without what they note, each under a prefix, and more of zeros.
fn model(parts: &[(&str, &[u8])], more: &[(&str, usize)]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (prefix, bytes) in parts {
        let len = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))).expect("small");
        let tensors: Map<String, Value> = serde_json::from_slice(&bytes[8..len]).expect("a header");
        for (name, mut tensor) in tensors.into_iter().filter(|(name, _)| name != "__metadata__") {
            for at in tensor["data_offsets"].as_array_mut().expect("offsets") {
                *at = (at.as_u64().expect("a number") + data.len() as u64).into();
            }
            header.insert(format!("{prefix}{name}"), tensor);
        }
        data.extend(&bytes[len..]);
    }
    for (name, len) in more {
        let offsets = [data.len(), data.len() + 8 * len];
        header.insert((*name).into(), serde_json::json!({"dtype": "F64", "shape": [1, len], "data_offsets": offsets}));
        data.resize(offsets[1], 0);
    }
    safetensors(&Value::Object(header).to_string(), &data)
}

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

/// What `import` asks for `check` asks for too, of the layers that leave it open; the others are measured.
#[test]
fn layers_that_leave_their_mask_open() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 10 --d 8 --heads 2 --layer-out layer.safetensors --quiet");
    bench.good("export layer.safetensors --head-dim 4 --lossy --to mha -o mha.safetensors --quiet");
    let mha = bench.read("mha.safetensors");
    let (text, image) = ("transformer.resblocks.0.attn.", "visual.transformer.resblocks.0.attn.");
    bench.write("clip.safetensors", &model(&[(text, &mha), (image, &mha)], &[("token_embedding.weight", 8)]));
    let said = bench.run("check clip.safetensors --heads 2 --json -");
    assert_eq!(said.code, Some(1), "{said:?}");
    let report = said.json();
    assert_eq!((report["layers"].as_array().map(Vec::len), report["confirmed"].clone()), (Some(1), false.into()));
    assert_eq!(
        (&report["layers"][0]["layer"], &report["refused"][0]["layer"]),
        (&image[..image.len() - 1].into(), &text[..text.len() - 1].into())
    );
    let said = bench.run("check clip.safetensors --heads 2");
    for part in
        ["visual.transformer", "1 of 2 layers are not measured", "CLIP's text model", "--causal true", "no configuration names"]
    {
        assert!(said.out.contains(part), "no {part:?} in {}", said.out);
    }
    bench.refused("check clip.safetensors --heads 2 --prefix transformer.", &["CLIP's text model", "--causal true"]);
    let said = bench.good("check clip.safetensors --heads 2 --prefix transformer. --causal true").out;
    assert!(said.contains("2 heads, d = 8") && !said.contains("not measured"), "{said}");
    bench.good("check clip.safetensors --heads 2 --causal true");
    bench.refused("check clip.safetensors --heads 2 --prefix audio.", &["'audio.'", "'visual.transformer.resblocks.0.attn.'"]);
    // The layer with the mask that was given is the one that is written.
    bench.refused("import clip.safetensors --heads 2 --prefix transformer.resblocks.0.attn -o x.safetensors", &["--causal true"]);
    let line = format!("import clip.safetensors --heads 2 --prefix {text} --causal true -o x.safetensors --json -");
    assert_eq!(bench.run(&line).json()["causal"], true);
    // A type that is held is said to be one, and says nothing.
    bench.good("export layer.safetensors --head-dim 4 --lossy --to bert -o model.safetensors --quiet");
    bench.write("config.json", br#"{"model_type": "bert", "num_attention_heads": 2}"#);
    assert!(!bench.good("check model.safetensors").out.contains("no configuration names"));
    bench.write("config.json", br#"{"model_type": "bert", "num_attention_heads": 2, "auto_map": {"AutoModel": "of.mine"}}"#);
    bench.refused("import model.safetensors -o x.safetensors", &["code of its own", "of.mine", "remove auto_map"]);
    bench.refused("check model.safetensors", &["code of its own"]);
}

/// Squares of the layer's numbers overflow: what is lost is seen all the same.
#[test]
fn losses_of_enormous_layers_are_refused() {
    let bench = Workbench::new();
    // Θ and W have rank one, and c is beside what Θ reads.
    let mut numbers = [0.0; 36];
    (numbers[0], numbers[16], numbers[33]) = (1.0, 1.0, 1e200);
    let header = r#"{"__metadata__":{"format":"attnlearn.layer","version":"1","mask":"none"},"theta":{"dtype":"F64","shape":[1,4,4],"data_offsets":[0,128]},
        "w":{"dtype":"F64","shape":[1,4,4],"data_offsets":[128,256]},"theta_bias":{"dtype":"F64","shape":[1,4],"data_offsets":[256,288]}}"#;
    let bytes: Vec<u8> = numbers.iter().flat_map(|v: &f64| v.to_le_bytes()).collect();
    bench.write("layer.safetensors", &safetensors(header, &bytes));
    bench.refused("export layer.safetensors --head-dim 1 -o w.safetensors", &["100.0 % of c of head 1", "give --head-dim 2"]);
    assert_eq!(bench.run("export layer.safetensors --head-dim 2 -o w.safetensors --json -").json()["lossy"], false);
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
    bench.refused("import mha.safetensors --heads 3 -o x.safetensors", &["its metadata says", "2 heads, and 3 were asked for"]);
    bench.refused("import mha.safetensors --heads 2 --layer 1 -o x.safetensors", &["no layer 1"]);
    bench.write("plain.safetensors", &model(&[("", &bench.read("mha.safetensors"))], &[]));
    bench.refused("import plain.safetensors -o x.safetensors", &["how many heads", "--heads"]);
    bench.refused("import plain.safetensors --heads 4 -o x.safetensors", &["4 heads cannot share"]);
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
    bench.refused("check model.safetensors --heads 4", &["2 heads, and 4 were asked for"]);
    bench.write("plain.safetensors", &model(&[("", &bench.read("model.safetensors"))], &[]));
    bench.refused("check plain.safetensors", &["how many heads"]);
    for flag in ["--heads 2", "--prefix encoder", "--causal true"] {
        bench.refused(&format!("check layer.safetensors {flag}"), &["belongs to models"]);
    }
    bench.refused("check layer.safetensors --k 0", &["--k: ", "give at least 1"]);
    bench.refused("check absent.safetensors", &["does not exist"]);
}
