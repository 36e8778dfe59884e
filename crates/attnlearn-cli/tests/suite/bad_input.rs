//! One fault each: exit code 2, one clear line, no file left behind.

use crate::common::*;

/// A folder with a teacher, examples of it and examples of other shapes.
fn bench() -> Workbench {
    let bench = Workbench::new();
    bench.good("generate -o good.npz --examples 3000 --layer-out teacher.safetensors --seed 1");
    bench
}

/// Every command that reads examples.
const READERS: [&str; 2] = ["learn FILE --heads 1 -o new.safetensors", "verify teacher.safetensors FILE"];

#[track_caller]
fn all_readers_refuse(bench: &Workbench, file: &str, what: &[&str]) {
    for line in READERS {
        bench.refused(&line.replace("FILE", file), what);
    }
}

// Usage.

#[test]
fn unknown_flag_command_and_value() {
    let bench = Workbench::new();
    bench.refused("demo --sead 3", &["--sead", "try 'attnlearn demo --help'"]);
    bench.refused("--quiet fit x.npz --ridge 0 -o m.safetensors", &["--ridge", "positive", "try 'attnlearn fit --help'"]);
    bench.refused("--sead 3", &["--sead", "try 'attnlearn --help'"]);
    bench.refused("lern x", &["'lern'", "learn"]);
    bench.refused("", &["no command given"]);
    bench.refused("learn", &["required", "--output", "<EXAMPLES>"]);
    bench.refused("demo --threads 0", &["--threads", "0"]);
    bench.refused("demo --color blue", &["--color", "auto, always, never"]);
    bench.refused("learn x.npz --method magic -o l.safetensors", &["magic", "sculpt"]);
    bench.refused("learn x.npz --heads two -o l.safetensors", &["--heads", "auto"]);
    bench.refused("learn x.npz --delta 1.5 -o l.safetensors", &["--delta", "between 0 and 1"]);
    bench.refused("verify l.safetensors x.npz --epsilon 1e-3,-1", &["--epsilon"]);
    bench.refused("man lern", &["lern", "not a command"]);
}

#[test]
fn generate_settings() {
    let bench = bench();
    let generate = |flags: &str, what: &[&str]| bench.refused(&format!("generate -o e.npz --examples 10 {flags}"), what);
    generate("--k 0", &["--k", "at least 1"]);
    generate("--d 0", &["d = 0"]);
    generate("--heads 0", &["m = 0"]);
    generate("--norm NaN", &["norm NaN"]);
    generate("--norm -1", &["-1"]);
    generate("--norm 1e308", &["norm 1e308"]);
    generate("--target average:p=2 --x-dtype i8", &["--x-dtype", "±1"]);
    generate("--family block:0", &["size 0"]);
    generate("--family low-rank:9", &["rank 9"]);
    generate("--family lace", &["low-rank:RANK"]);
    generate("--cosine -1", &["cosine"]);
    generate("--cosine 0.5 --family low-rank:2", &["cosine"]);
    generate("--singular-values 1,2", &["singular-value"]);
    generate("--x-dtype i8 --inputs gaussian", &["--x-dtype", "±1"]);
    generate("--d 3 --layer teacher.safetensors", &["--layer", "cannot be used with"]);
    bench.refused("generate -o e.npz --examples 0", &["--examples"]);
    bench.refused("generate -o e.npz --examples 1.5", &["--examples", "whole number"]);
    bench.refused("generate -o e.npz --examples 10 --layer none.safetensors", &["does not exist"]);
}

#[test]
fn giant_settings_are_refused_before_memory_is_asked_for() {
    let bench = bench();
    let generate = |flags: &str| bench.refused(&format!("generate -o e.npz {flags}"), &[]);
    generate("--examples 10 --k 1000000000000");
    generate("--examples 10 --d 1000000000000");
    generate("--examples 10 --d-out 18446744073709551615");
    generate("--examples 10 --d 5000 --k 2 --heads 1000000");
    generate("--examples 18446744073709551615");
    bench.refused("compare teacher.safetensors teacher.safetensors --k 10000000000", &["--k"]);
    bench.refused("compare teacher.safetensors teacher.safetensors --k 0", &["0 tokens"]);
    bench.refused("compare teacher.safetensors teacher.safetensors --examples 0", &["0 sequences"]);
}

// Shapes.

#[test]
fn shapes_of_layer_and_examples_differ() {
    let bench = bench();
    bench.good("generate -o narrow.npz --examples 3000 --d 5 --layer-out narrow.safetensors");
    bench.good("generate -o wide.npz --examples 3000 --d-out 3 --layer-out wide.safetensors");
    bench.good("generate -o causal.npz --examples 10 --causal --layer-out causal.safetensors");
    bench.refused("verify teacher.safetensors narrow.npz", &["narrow.npz", "d = 5", "d = 8"]);
    bench.refused("verify teacher.safetensors wide.npz", &["wide.npz", "d_out = 3", "d_out = 8"]);
    bench.refused("apply teacher.safetensors narrow.npz -o y.npz", &["narrow.npz", "d = 5", "d = 8"]);
    bench.refused("compare teacher.safetensors narrow.safetensors", &["d = 5", "d = 8"]);
    bench.refused("compare teacher.safetensors wide.safetensors", &["d_out = 3", "d_out = 8"]);
    bench.refused("compare teacher.safetensors causal.safetensors", &["mask"]);
}

#[test]
fn scores_that_cannot_be() {
    let bench = bench();
    bench.write("words.txt", b"1.0 fast");
    bench.write("nan.txt", b"1.0 nan");
    let learn = |flags: &str, said: &[&str]| {
        bench.refused(&format!("learn good.npz -o l.safetensors {flags}"), said);
        assert!(!bench.path("l.safetensors").exists());
    };
    learn("--heads 2 --rank 4 --kv-heads 3", &["--kv-heads", "2 heads cannot share 3 key heads"]);
    learn("--heads 2 --rank 4 --kv-heads 0", &["--kv-heads", "cannot share 0"]);
    learn("--rank 4 --kv-heads 2", &["--kv-heads", "number of heads", "--heads"]);
    learn("--heads 2 --kv-heads 1", &["--rank", "dimension of a head"]);
    learn("--heads 2 --rope 10000", &["--rope", "--rank"]);
    learn("--heads 2 --rank 3 --rope 10000", &["--rope", "3 coordinates", "pairs"]);
    learn("--heads 2 --rank 4 --rope=-1", &["--rope"]);
    learn("--heads 2 --rank 4 --rope 10000 --rope-dims 6", &["6 coordinates turn, a head has 4"]);
    learn("--heads 2 --rank 4 --rope words.txt", &["words.txt", "fast"]);
    learn("--heads 2 --rank 4 --rope nan.txt", &["nan.txt", "finite"]);
    learn("--heads 2 --rank 4 --rope none.txt", &["none.txt"]);
    learn("--heads 2 --rank 4 --qk-norm=-1", &["--qk-norm"]);
    learn("--heads 2 --window 0", &["window of 0 keys"]);
    learn("--heads 2 --method sculpt --window 3", &["--window", "descend"]);
}

#[test]
fn inputs_and_outputs_differ_in_length() {
    let bench = bench();
    let header = r#"{"x":{"dtype":"F64","shape":[3,2,2],"data_offsets":[0,96]},"y":{"dtype":"F64","shape":[2,2,2],"data_offsets":[96,160]}}"#;
    bench.write("uneven.safetensors", &safetensors(header, &[0; 160]));
    all_readers_refuse(&bench, "uneven.safetensors", &["uneven.safetensors", "[3, 2, 2]", "[2, 2, 2]"]);
}

#[test]
fn one_token_too_few_examples_too_many_heads() {
    let bench = bench();
    bench.good("generate -o single.npz --examples 3000 --k 1");
    bench.good("generate -o few.npz --examples 100");
    bench.good("generate -o large.npz --examples 3000 --d 17");
    bench.refused("learn single.npz --heads 1 -o l.safetensors", &["k = 1", "at least 2 tokens"]);
    bench.refused("learn few.npz --heads 1 --most-examples 9 -o l.safetensors", &["9", "at least 10"]);
    bench.refused("learn good.npz --heads 0 -o l.safetensors", &["--heads", "at least one"]);
    bench.refused("learn good.npz --held-out 0 -o l.safetensors", &["held out"]);
    // The six phases want more.
    let sculpt = |line: &str, said: &[&str]| bench.refused(&format!("{line} --method sculpt -o l.safetensors"), said);
    sculpt("learn single.npz --heads 1", &["k = 1", "at least 2 tokens"]);
    sculpt("learn few.npz --heads 1", &["100", "at least"]);
    sculpt("learn good.npz --heads 1 --most-examples 100", &["100", "at least"]);
    sculpt("learn good.npz --heads 65", &["--heads", "65 heads", "at most"]);
    sculpt("learn good.npz --heads 0", &["--heads", "at least one"]);
    sculpt("learn good.npz --held-out 0", &["held out"]);
    sculpt("learn large.npz --heads 1", &["d = 17"]);
}

// Numbers.

#[test]
fn numbers_that_are_not_finite_are_named_with_their_example() {
    let bench = bench();
    let (per_x, per_y) = (3 * 4, 3 * 4);
    for (name, bad) in [("nan", f64::NAN), ("infinity", f64::INFINITY)] {
        let x = examples(3000, 3, 4, 4, |i| if i == 1234 * per_x + 7 { bad } else { noise(i) }, |i| noise(i + 1));
        let y = examples(3000, 3, 4, 4, noise, |i| if i == 2345 * per_y { bad } else { noise(i + 1) });
        bench.write(&format!("x_{name}.safetensors"), &x);
        bench.write(&format!("y_{name}.safetensors"), &y);
    }
    bench.good("generate -o small.npz --examples 1 --d 4 --k 3 --layer-out small.safetensors");
    let word = |name: &str| if name == "nan" { "NaN" } else { "infinite" };
    for name in ["nan", "infinity"] {
        for (tensor, example) in [("x", "example 1234"), ("y", "example 2345")] {
            let file = format!("{tensor}_{name}.safetensors");
            bench.refused(&format!("verify small.safetensors {file}"), &[&file, example, word(name)]);
            bench.refused(&format!("learn {file} --heads 1 -o l.safetensors"), &[&file, example, word(name)]);
            let run = bench.run(&format!("inspect {file}"));
            assert!(run.code == Some(2) && run.err.contains(example), "{run:?}");
        }
        let file = format!("x_{name}.safetensors");
        bench.refused(&format!("apply small.safetensors {file} -o y.npz"), &[&file, "example 1234", word(name)]);
    }
}

#[test]
fn a_bad_number_is_found_wherever_it_is() {
    let bench = Workbench::new();
    bench.good("generate -o e.safetensors --examples 1e5 --d 3 --d-out 3 --k 2 --heads 1");
    let good = bench.read("e.safetensors");
    for example in [0, 50_000, 75_000, 99_999] {
        // The header says where y begins.
        let header = 8 + u64::from_le_bytes(good[..8].try_into().expect("eight bytes")) as usize;
        let layout: serde_json::Value = serde_json::from_slice(&good[8..header]).expect("JSON");
        let start = header + layout["y"]["data_offsets"][0].as_u64().expect("an offset") as usize + example * 2 * 3 * 8;
        let mut bad = good.clone();
        bad[start..start + 8].copy_from_slice(&f64::NAN.to_le_bytes());
        bench.write("bad.safetensors", &bad);
        bench.refused(
            "learn bad.safetensors --heads 1 -o l.safetensors",
            &["bad.safetensors, y", &format!("example {example}"), "NaN"],
        );
    }
    // Examples that are not asked for are not looked at.
    bench.good("learn bad.safetensors --heads 1 -o l.safetensors --most-examples 9e4");
}

#[test]
fn outputs_that_do_not_vary() {
    let bench = Workbench::new();
    bench.good("generate -o small.npz --examples 1 --d 4 --k 3 --layer-out teacher.safetensors");
    let refused = |file: &str, x: fn(usize) -> f64, y: fn(usize) -> f64| {
        bench.write(file, &examples(3000, 3, 4, 4, x, y));
        bench.refused(&format!("verify teacher.safetensors {file}"), &[file, "zero variance"]);
        for heads in ["1", "auto"] {
            bench.refused(&format!("learn {file} --heads {heads} -o l.safetensors --json r.json"), &["zero variance"]);
        }
    };
    refused("constant.safetensors", noise, |_| 0.75);
    refused("by_column.safetensors", noise, |i| 0.1 + (i % 4) as f64);
    refused("zero.safetensors", |i| noise(i).signum(), |_| 0.0);
    // One input, however often, says even less.
    bench.write("same_inputs.safetensors", &examples(3000, 3, 4, 4, |_| 0.3, |_| 0.1));
    bench.refused("learn same_inputs.safetensors --heads 1 -o l.safetensors", &["only 1 different inputs among 3000"]);
}

/// Outputs of any size are told from outputs that do not vary.
#[test]
fn outputs_that_cannot_be_squared() {
    let bench = Workbench::new();
    bench.good("generate -o small.npz --examples 1 --d 4 --k 3 --layer-out teacher.safetensors");
    for (file, by) in [("large.safetensors", 1e160), ("small.safetensors", 1e-200)] {
        bench.write(file, &examples(600, 3, 4, 4, noise, |i| by * noise(i + 1)));
    }
    bench.refused(
        "verify teacher.safetensors large.safetensors",
        &["large.safetensors, example 0: ", "so large", "scale the outputs down"],
    );
    bench.refused("verify teacher.safetensors small.safetensors", &["small.safetensors: ", "so small that", "scale them up"]);
    let said = bench.good("inspect large.safetensors").out;
    assert!(said.contains("variance inf") && !said.contains("variance 0.0000"), "{said}");
}

/// A message says enough of an argument, and not all of it.
#[test]
fn arguments_are_shown_short() {
    let bench = bench();
    let long = "x".repeat(50_000);
    for line in [
        long.clone(),
        format!("generate -o e.npz --examples 10 --family block:{long}"),
        format!("learn {long} -o l.safetensors"),
        format!("man {long}"),
    ] {
        let said = bench.refused(&line, &["xxx…"]);
        assert!(said.len() < 4000, "{} bytes", said.len());
    }
}

/// What does nothing for a file or a model is refused by its own name.
#[test]
fn flags_that_cannot_apply() {
    let bench = bench();
    bench.good("generate -o sets.npz --examples 20 --target average:p=3 --d 2 --keys 2");
    bench.refused("inspect good.npz --maps", &["--maps: good.npz is no layer", "; leave it out"]);
    bench.good("inspect teacher.safetensors --maps --quiet");
    bench.refused("fit sets.npz --model kernel-rfa --mean-scale 2 -o m.safetensors", &["--mean-scale: "]);
}

/// A checkpoint that is none is not to be removed.
#[test]
fn no_file_is_advised_away() {
    let bench = bench();
    let said = bench
        .refused("learn good.npz --checkpoint teacher.safetensors -o l.safetensors", &["teacher.safetensors: is there already"]);
    assert!(!said.contains("remove"), "{said}");
}

#[test]
fn parquet_is_recognised() {
    let bench = bench();
    bench.write("sets.parquet", b"PAR1 and more");
    bench.refused("learn sets.parquet -o l.safetensors", &["sets.parquet: is a Parquet file"]);
    if !cfg!(feature = "parquet") {
        bench.refused("fit sets.parquet -o m.safetensors", &["sets.parquet: is a Parquet file", "--features full"]);
    }
}

/// Help that did not arrive was not given.
#[cfg(target_os = "linux")]
#[test]
fn help_that_does_not_arrive_is_an_error() {
    let bench = Workbench::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let run: Run = bench.command("--help").stdout(full).output().expect("starts").into();
    assert_eq!((run.code, run.err.lines().count()), (Some(2), 1), "{run:?}");
    assert!(run.err.starts_with("attnlearn: standard output: "), "{run:?}");
}

/// Names that differ in case are two names where the system has it so.
#[cfg(target_os = "linux")]
#[test]
fn names_may_differ_in_case() {
    let bench = Workbench::new();
    bench.good("generate -o E.npz --examples 10 --layer-out e.safetensors --json E.safetensors --quiet");
    assert_eq!(bench.files(), ["E.npz", "E.safetensors", "e.safetensors"]);
}

// Files.

#[test]
fn missing_empty_and_foreign_files() {
    let bench = bench();
    bench.write("empty.npz", b"");
    bench.write("text.npz", b"not at all a file of numbers, but a line of text");
    for line in
        READERS.into_iter().chain(["inspect FILE", "apply teacher.safetensors FILE -o y.npz", "compare teacher.safetensors FILE"])
    {
        bench.refused(&line.replace("FILE", "none.npz"), &["none.npz", "does not exist"]);
        bench.refused(&line.replace("FILE", "empty.npz"), &["empty.npz", "is empty"]);
        bench.refused(&line.replace("FILE", "text.npz"), &["text.npz", "neither a safetensors nor an npz"]);
        bench.refused(&line.replace("FILE", "."), &[".", "is a directory"]);
    }
    bench.refused("verify good.npz good.npz", &["good.npz", "is not a layer"]);
    bench.refused("learn teacher.safetensors -o l.safetensors", &["teacher.safetensors", "no tensor x"]);
}

#[test]
fn truncated_files() {
    let bench = bench();
    bench.good("generate -o good.safetensors --examples 2500");
    for name in ["good.npz", "good.safetensors"] {
        let whole = bench.read(name);
        for cut in [3, 40, whole.len() / 2, whole.len() - 1] {
            let cut_name = format!("cut{cut}_{name}");
            bench.write(&cut_name, &whole[..cut]);
            all_readers_refuse(&bench, &cut_name, &[&cut_name]);
            bench.refused(&format!("inspect {cut_name}"), &[&cut_name]);
        }
    }
    let layer = bench.read("teacher.safetensors");
    bench.write("cut.safetensors", &layer[..layer.len() - 8]);
    bench.refused("verify cut.safetensors good.npz", &["cut.safetensors"]);
    bench.refused("generate -o e.npz --examples 1 --layer cut.safetensors", &["cut.safetensors"]);
}

#[test]
fn corrupt_headers() {
    let bench = bench();
    bench.write("json.safetensors", &safetensors(r#"{"x":{"dtype":"F64","shape":[2,2"#, &[0; 64]));
    bench.write("long.safetensors", &[&u64::MAX.to_le_bytes()[..], b"{}"].concat());
    let mut zip = bench.read("good.npz");
    let end = zip.len();
    zip[end - 12..].fill(0xFF);
    bench.write("zip.npz", &zip);
    for name in ["json.safetensors", "long.safetensors", "zip.npz"] {
        all_readers_refuse(&bench, name, &[name]);
    }
}

#[test]
fn giant_declared_sizes() {
    let bench = bench();
    let giant = r#"{"x":{"dtype":"F64","shape":[1152921504606846976,2,2],"data_offsets":[0,64]},"y":{"dtype":"F64","shape":[2,2,2],"data_offsets":[64,128]}}"#;
    bench.write("giant.safetensors", &safetensors(giant, &[0; 128]));
    all_readers_refuse(&bench, "giant.safetensors", &["giant.safetensors"]);
    // An honest file of sequences so long that a block of them would not fit in memory; of one such sequence it does.
    bench.write("long.safetensors", &examples(20, 50_000, 2, 2, |_| 0.0, |_| 0.0));
    bench.write("one.safetensors", &examples(1, 50_000, 3, 3, |_| 0.0, |_| 0.0));
    bench.good("inspect long.safetensors --quiet");
    bench.good("inspect one.safetensors --quiet");
    bench.refused(
        "generate -o e.npz --examples 512 --k 400000 --d 2 --heads 1",
        &["--k", "k = 400000, d = 2", "at or below 262144"],
    );
}

#[test]
fn layers_of_very_many_heads() {
    let bench = Workbench::new();
    let m = 100_000;
    let header = format!(
        r#"{{"__metadata__":{{"format":"attnlearn.layer","version":"1","mask":"none"}},"theta":{{"dtype":"F64","shape":[{m},1,1],"data_offsets":[0,{}]}},"w":{{"dtype":"F64","shape":[{m},1,1],"data_offsets":[{},{}]}}}}"#,
        8 * m,
        8 * m,
        16 * m
    );
    bench.write("many.safetensors", &safetensors(&header, &vec![0; 16 * m]));
    bench.refused("compare many.safetensors many.safetensors", &["many.safetensors", "100000 heads"]);
    bench.good("inspect many.safetensors --quiet");
}

#[test]
fn unsupported_number_formats() {
    let bench = bench();
    let header = r#"{"x":{"dtype":"I64","shape":[2,2,2],"data_offsets":[0,64]},"y":{"dtype":"F64","shape":[2,2,2],"data_offsets":[64,128]}}"#;
    bench.write("long.safetensors", &safetensors(header, &[0; 128]));
    all_readers_refuse(&bench, "long.safetensors", &["long.safetensors", "x", "I64"]);
    let said = bench.good("inspect long.safetensors").out;
    assert!(said.contains("I64") && said.contains("not a file of attnlearn"), "{said}");
}

// Outputs.

#[test]
fn outputs_that_cannot_be_written() {
    let bench = bench();
    std::fs::create_dir(bench.path("folder.safetensors")).expect("a writable folder");
    let writers = [
        "learn good.npz --heads 1 -o OUT",
        "learn good.npz --heads 1 -o l.safetensors --before-polish OUT",
        "demo -o OUT",
        "generate --examples 10 -o OUT",
        "generate --examples 10 -o e.npz --layer-out OUT",
        "apply teacher.safetensors good.npz -o OUT",
        "verify teacher.safetensors good.npz --json OUT",
    ];
    for line in writers {
        bench.refused(&line.replace("OUT", "no/such/l.safetensors"), &["no/such", "does not exist"]);
        bench.refused(&line.replace("OUT", "folder.safetensors"), &["folder.safetensors", "is a directory"]);
        bench.refused(&line.replace("OUT", "good.npz/l.safetensors"), &["good.npz"]);
    }
}

#[test]
fn unknown_extensions() {
    let bench = bench();
    let what = ["e.csv", ".safetensors"];
    bench.refused("generate --examples 10 -o e.csv", &what);
    bench.refused("apply teacher.safetensors good.npz -o e.csv", &what);
    bench.refused("learn good.npz --heads 1 -o e.csv", &what);
    bench.refused("demo -o e.csv", &what);
    bench.refused("generate --examples 10 -o e.npz --layer-out l.npz", &["l.npz", ".safetensors"]);
}

#[test]
fn one_name_for_two_outputs() {
    let bench = bench();
    bench.refused("generate --examples 10 -o e.safetensors --layer-out ./e.safetensors", &["e.safetensors", "two different"]);
    bench.refused("demo -o e.safetensors --json e.safetensors", &["e.safetensors", "two different"]);
    bench.refused("learn good.npz -o e.safetensors --before-polish e.safetensors", &["two different"]);
}

// Long texts.

/// A zip archive with one stored member.
fn archive(name: &str, contents: &[u8]) -> Vec<u8> {
    let sizes = |size: usize| (size as u32).to_le_bytes();
    let about = [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &sizes(contents.len()), &sizes(contents.len())].concat();
    let name_len = (name.len() as u16).to_le_bytes();
    let local = [b"PK\x03\x04", &about[..], &name_len, &[0, 0], name.as_bytes(), contents].concat();
    let central = [b"PK\x01\x02", &[20, 0][..], &about, &name_len, &[0; 16], name.as_bytes()].concat();
    let end = [b"PK\x05\x06", &[0, 0, 0, 0, 1, 0, 1, 0][..], &sizes(central.len()), &sizes(local.len()), &[0, 0]].concat();
    [local, central, end].concat()
}

fn npy(descr: &str, shape: &str) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    [b"\x93NUMPY\x02\x00", &(header.len() as u32).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat()
}

/// Names, number formats, notes, shapes and descriptions of any length, with escape codes in them: every command says what is wrong in a short line, and
/// `inspect` shows them short.
#[test]
fn texts_of_files_are_shown_short_and_harmless() {
    let bench = bench();
    bench.good("generate -o sets.npz --examples 20 --target average:p=3 --d 2 --keys 2");
    let long = "\u{1b}[31mé".repeat(20_000);
    let json = serde_json::Value::String(long.clone()).to_string();
    let ones = |n: usize| vec!["1"; n].join(",");
    let tensor = |name: &str, shape: &str| format!(r#"{{{name}:{{"dtype":"F64","shape":[{shape}],"data_offsets":[0,8]}}}}"#);
    let noted = |notes: &str| safetensors(&format!(r#"{{"__metadata__":{{{notes}}}}}"#), &[]);
    let files = [
        ("name.safetensors", safetensors(&tensor(&json, "1"), &[0; 8])),
        ("dims.safetensors", safetensors(&tensor(r#""x""#, &ones(100_000)), &[0; 8])),
        ("dims_y.safetensors", safetensors(&tensor(r#""y""#, &ones(100_000)), &[0; 8])),
        ("theta.safetensors", safetensors(&tensor(r#""theta""#, &ones(100_000)), &[0; 8])),
        ("dtype.safetensors", safetensors(&format!(r#"{{"x":{{"dtype":{json},"shape":[1],"data_offsets":[0,8]}}}}"#), &[0; 8])),
        ("field.safetensors", safetensors(&format!(r#"{{"x":{{{json}:1}}}}"#), &[0; 8])),
        ("note.safetensors", noted(&format!(r#"{json}:{json}"#))),
        ("layer.safetensors", noted(&format!(r#""format":"attnlearn.layer","version":{json}"#))),
        ("mask.safetensors", noted(&format!(r#""format":"attnlearn.layer","version":"1","mask":{json}"#))),
        ("model.safetensors", noted(&format!(r#""format":"attnlearn.model","version":{json}"#))),
        ("described.safetensors", noted(&format!(r#""format":"attnlearn.model","version":"1","model":{json}"#))),
        ("name.npz", archive(&format!("{}.npy", long.chars().take(40_000).collect::<String>()), &npy("<f8", "1,"))),
        ("dims.npz", archive("x.npy", &npy("<f8", &ones(100_000)))),
        ("wrong_dims.npz", archive("x.npy", &npy("<f8", &format!("7,{}", ones(100_000))))),
        ("dtype.npz", archive("x.npy", &npy(&long, "1,"))),
        ("endian.npz", archive("x.npy", &npy(&format!(">{long}"), "1,"))),
    ];
    for (name, bytes) in files {
        bench.write(name, &bytes);
        for line in [
            "inspect FILE",
            "verify teacher.safetensors FILE",
            "verify FILE good.npz",
            "learn FILE -o new.safetensors",
            "apply teacher.safetensors FILE -o new.npz",
            "compare FILE teacher.safetensors",
            "fit FILE -o new.safetensors",
            "fit sets.npz --model brfa --mean FILE -o new.safetensors",
            "predict FILE sets.npz -o new.npz",
            "score FILE sets.npz",
            "check FILE",
            "import FILE -o new.safetensors",
        ] {
            let run = bench.run(&line.replace("FILE", name));
            assert_ne!(run.code, Some(101), "{line} {name}: {}", &run.err[..run.err.len().min(2000)]);
            assert!(line.starts_with("inspect") || run.code == Some(2), "{line} {name}: {:?}", run.code);
            assert!(run.out.len() + run.err.len() < 8000, "{line} {name}: {} bytes", run.out.len() + run.err.len());
            assert!(!run.err.contains('\u{1b}') && !run.out.contains('\u{1b}'), "{line} {name}: speaks to the terminal");
            assert!(run.err.lines().count() <= 1, "{line} {name}: {}", run.err);
        }
    }
}
