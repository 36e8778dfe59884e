//! What one command writes the next one reads.

use crate::common::*;
use attnlearn::data::{Block, ExampleFile, ExampleSource};

fn f(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn generate_inspect_apply_verify_compare() {
    for (extension, flags) in [
        ("npz", ""),
        ("safetensors", "--d 5 --d-out 3 --k 3 --heads 3 --norm 4 --cosine 0.5"),
        ("npz", "--inputs gaussian --causal --family block:3"),
        ("safetensors", "--inputs sphere --dtype f32 --family low-rank:2 --heads 1"),
        ("npz", "--x-dtype f32 --singular-values 4,2,1 --d 3"),
    ] {
        let bench = Workbench::new();
        let (examples, outputs) = (format!("e.{extension}"), format!("y.{extension}"));
        bench.good(&format!("generate -o {examples} --examples 1500 --layer-out t.safetensors --seed 5 {flags}"));
        assert_eq!(bench.files(), [examples.as_str(), "t.safetensors"]);
        let about = bench.good(&format!("inspect {examples} --quiet --json -")).json();
        assert_eq!(about["file"]["content"]["kind"], "examples");
        assert_eq!(about["file"]["content"]["n"], 1500);
        assert_eq!(about["sample"]["signs"], !flags.contains("--inputs"));

        // Applying the teacher to the inputs gives the outputs.
        bench.good(&format!("apply t.safetensors {examples} -o {outputs} --with-inputs"));
        let read = |name: &str| ExampleFile::open(&bench.path(name)).expect("examples");
        let (given, applied) = (read(&examples), read(&outputs));
        assert_eq!((given.len(), given.shape()), (applied.len(), applied.shape()));
        let tolerance = if flags.contains("--dtype f32") { 1e-5 } else { 0.0 };
        let (mut a, mut b) = (Block::<f64>::new(given.shape()), Block::<f64>::new(given.shape()));
        for index in 0..3 {
            given.fill_f64(index, &mut a).expect("finite");
            applied.fill_f64(index, &mut b).expect("finite");
            for i in 0..a.len() {
                for t in 0..given.shape().k {
                    assert_eq!(a.token(i, t), b.token(i, t));
                    assert!(a.output(i, t).iter().zip(b.output(i, t)).all(|(a, b)| (a - b).abs() <= tolerance));
                }
            }
        }
        let verified = bench.good(&format!("verify t.safetensors {examples} --quiet --json -")).json();
        assert!(f(&verified["nmse"]) < 1e-13, "{verified}");
        assert_eq!((verified["confirmed"].as_bool(), verified["certificate"]["n"].as_u64()), (Some(true), Some(1500)));

        let compared = bench.good("compare t.safetensors t.safetensors --examples 2000 --quiet --json -").json();
        assert!(f(&compared["worst_theta"]) <= 0.0 && f(&compared["functional_error"]["mse"]) <= 0.0, "{compared}");
    }
}

#[test]
fn a_wrong_layer_is_not_confirmed() {
    let bench = Workbench::new();
    bench.good("generate -o a.npz --examples 1000 --layer-out a.safetensors --seed 1");
    bench.good("generate -o b.npz --examples 1000 --layer-out b.safetensors --seed 2");
    let run = bench.run("verify a.safetensors b.npz");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.out.contains("not confirmed: NMSE"), "{run:?}");
    let quiet = bench.run("verify a.safetensors b.npz --quiet");
    assert_eq!((quiet.code, quiet.out.as_str()), (Some(1), ""));
    assert!(quiet.err.starts_with("attnlearn: not confirmed") && quiet.err.lines().count() == 1, "{quiet:?}");
    bench.good("verify a.safetensors b.npz --tolerance 100 --delta 0.001 --epsilon 1e-3,1");
    let compared = bench.good("compare a.safetensors b.safetensors --quiet --json -").json();
    assert!(f(&compared["worst_theta"]) > 0.5 && f(&compared["functional_error"]["nmse"]) > 0.1, "{compared}");
}

#[test]
fn a_given_teacher_is_the_one_that_was_drawn() {
    let bench = Workbench::new();
    bench.good("generate -o a.npz --examples 700 --seed 3 --layer-out t.safetensors");
    bench.good("generate -o b.npz --examples 700 --seed 3 --layer t.safetensors");
    assert!(bench.read("a.npz") == bench.read("b.npz"));
    bench.good("generate -o c.npz --examples 700 --seed 4 --layer t.safetensors");
    assert!(bench.read("a.npz") != bench.read("c.npz"));
    bench.good("verify t.safetensors c.npz");
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let bench = Workbench::new();
    for threads in [1, 2, 5] {
        let flags = format!("--threads {threads} --quiet");
        bench.good(&format!(
            "generate -o e{threads}.npz --examples 20000 --inputs gaussian --layer-out t{threads}.safetensors {flags}"
        ));
        bench.good(&format!("generate -o e{threads}.safetensors --examples 20000 --dtype f32 --inputs sphere {flags}"));
        bench.good(&format!("apply t{threads}.safetensors e{threads}.npz -o y{threads}.npz {flags}"));
        bench.good(&format!("verify t{threads}.safetensors e{threads}.npz --json v{threads}.json {flags}"));
        bench.good(&format!("compare t1.safetensors t{threads}.safetensors --json c{threads}.json {flags}"));
        for name in ["eN.npz", "eN.safetensors", "tN.safetensors", "yN.npz", "vN.json", "cN.json"] {
            let (one, many) = (name.replace('N', "1"), name.replace('N', &threads.to_string()));
            assert!(bench.read(&one) == bench.read(&many), "{many}");
        }
    }
}

#[test]
fn a_file_in_the_way_is_replaced_whole_or_not_at_all() {
    let bench = Workbench::new();
    bench.good("generate -o e.npz --examples 100 --layer-out t.safetensors");
    let before = bench.read("e.npz");
    bench.refused("apply t.safetensors missing.npz -o e.npz", &["missing.npz"]);
    assert!(bench.read("e.npz") == before);
    bench.write("y.npz", b"something else");
    bench.good("apply t.safetensors e.npz -o y.npz --with-inputs");
    bench.good("verify t.safetensors y.npz");
    assert_eq!(bench.files(), ["e.npz", "t.safetensors", "y.npz"]);
}

#[test]
fn merged_and_dead_heads_are_told() {
    let bench = Workbench::new();
    let header = r#"{"__metadata__":{"format":"attnlearn.layer","version":"1","mask":"none"},"theta":{"dtype":"F64","shape":[3,1,1],"data_offsets":[0,24]},"w":{"dtype":"F64","shape":[3,1,1],"data_offsets":[24,48]}}"#;
    let data: Vec<u8> = [1.0, 2.0, 1.0, 1.0, 0.0, 0.5f64].iter().flat_map(|v| v.to_le_bytes()).collect();
    bench.write("l.safetensors", &safetensors(header, &data));
    let said = bench.good("compare l.safetensors l.safetensors --inputs gaussian").out;
    assert!(said.contains("3 heads") && said.contains("2 heads merged, 1 head dropped"), "{said}");
    let json = bench.good("compare l.safetensors l.safetensors --inputs gaussian --quiet --json -").json();
    assert_eq!(json["reference"]["merged"], serde_json::json!([[0, 2]]));
    assert_eq!(json["reference"]["dropped"], serde_json::json!([1]));
}
