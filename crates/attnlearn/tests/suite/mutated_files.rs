//! Damaged files of every format are refused with one line, or read as what they now say: every name, size, format, note and number is that of
//! a second reader ([`crate::common::plain`]) which shares nothing with the library's. Damage to numbers changes numbers and nothing else, damage to
//! what carries no data nothing at all. The damage is drawn from fixed seeds; `fuzz/` has the open-ended form of these tests.

use crate::common::plain::{self, Plain};
use crate::common::*;
use attnlearn::data::{Block, ExampleFile, ExampleSource, InputFile};
use attnlearn::inspect::FileSummary;
use attnlearn::layer::AttentionLayer;
use attnlearn::linalg::Mat;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// What was accepted among all that was shown, reader by reader: a test in which nothing is accepted says nothing.
#[derive(Debug, Default)]
struct Accepted {
    summaries: usize,
    layers: usize,
    examples: usize,
    inputs: usize,
}

/// A refusal is one line of place, problem and remedy.
#[track_caller]
fn accepted<T>(read: attnlearn::Result<T>) -> Option<T> {
    read.map_err(|e| {
        let said = e.to_string();
        assert!(said.starts_with("file") && said.contains(": ") && said.contains("; ") && !said.contains('\n'), "{said}");
    })
    .ok()
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|v| v.to_bits()).collect()
}

/// The tensor `name`, whose numbers the second reader must find in these sizes.
#[track_caller]
fn numbers(tensors: &BTreeMap<String, Plain>, name: &str, shape: &[usize]) -> Vec<f64> {
    tensors
        .get(name)
        .and_then(|tensor| tensor.of_shape(shape))
        .unwrap_or_else(|| panic!("{name} is not of {shape:?}: {tensors:?}"))
}

/// Shows the bytes to every reader: each refuses them or says what the second reader does.
fn show(bytes: &[u8], count: &mut Accepted) {
    let Some(summary) = accepted(FileSummary::of_bytes(bytes, "file")) else {
        // What is no container is no file of any kind.
        assert!(accepted(AttentionLayer::from_bytes(bytes, "file")).is_none());
        assert!(accepted(ExampleFile::from_bytes(bytes.to_vec(), "file")).is_none());
        assert!(accepted(InputFile::from_bytes(bytes.to_vec(), "file")).is_none());
        return;
    };
    count.summaries += 1;
    let (tensors, notes) = plain::contents(bytes).expect("what is read holds together");
    assert_eq!(summary.metadata, notes);
    assert_eq!(summary.bytes, bytes.len() as u64);
    let names: Vec<&String> = summary.tensors.iter().map(|tensor| &tensor.name).collect();
    assert_eq!(names, tensors.keys().collect::<Vec<_>>());
    for found in summary.tensors.iter().filter(|found| found.problem.is_none()) {
        let plain = &tensors[&found.name];
        assert_eq!((&found.dtype, &found.shape), (&plain.dtype, &plain.shape), "{}", found.name);
        assert!(plain.numbers().is_some(), "{}", found.name);
    }
    if let Some(layer) = accepted(AttentionLayer::from_bytes(bytes, "file")) {
        count.layers += 1;
        let (m, d, d_out) = (layer.heads().len(), layer.d(), layer.d_out());
        let of_heads = |f: &dyn Fn(usize) -> Vec<f64>| (0..m).flat_map(f).collect::<Vec<f64>>();
        let rows = |a: &Mat<f64>| (0..a.nrows()).flat_map(|i| (0..a.ncols()).map(move |j| a[(i, j)])).collect::<Vec<f64>>();
        let theta = of_heads(&|h| rows(&layer.heads()[h].theta.to_dense()));
        assert_eq!(bits(&theta), bits(&numbers(&tensors, "theta", &[m, d, d])));
        assert_eq!(bits(&of_heads(&|h| rows(&layer.heads()[h].w))), bits(&numbers(&tensors, "w", &[m, d, d_out])));
        let biases = of_heads(&|h| layer.heads()[h].key_bias.clone().unwrap_or(vec![0.0; d]));
        let plain = if tensors.contains_key("theta_bias") { numbers(&tensors, "theta_bias", &[m, d]) } else { vec![0.0; m * d] };
        assert_eq!(bits(&biases), bits(&plain));
        assert_eq!(layer.bias().map(bits), tensors.contains_key("bias").then(|| bits(&numbers(&tensors, "bias", &[d_out]))));
        let note = |key: &str| notes.get(key).map(String::as_str);
        assert_eq!((note("format"), note("mask")), (Some("attnlearn.layer"), Some(layer.mask().to_string().as_str())));
        assert!(matches!(note("version"), Some("1" | "2")));
    }
    // Numbers are looked at when they are read: then the only thing left to refuse is one that is not finite.
    let finite = |numbers: &[f64]| numbers.iter().all(|v| v.is_finite());
    if let Some(file) = accepted(ExampleFile::from_bytes(bytes.to_vec(), "file")) {
        count.examples += 1;
        let (shape, n) = (file.shape(), file.len().expect("a file has an end") as usize);
        let x = numbers(&tensors, "x", &[n, shape.k, shape.d]);
        let y = numbers(&tensors, "y", &[n, shape.k, shape.d_out]);
        match accepted(read_examples(&file)) {
            Some((found_x, found_y)) => assert_eq!((bits(&found_x), bits(&found_y)), (bits(&x), bits(&y))),
            None => assert!(!finite(&x) || !finite(&y)),
        }
        let mut block = Block::<f64>::new(shape);
        file.fill_f64(u64::MAX, &mut block).expect("nothing to read");
        assert!(block.is_empty());
    }
    if let Some(file) = accepted(InputFile::from_bytes(bytes.to_vec(), "file")) {
        count.inputs += 1;
        let shape = attnlearn::data::Shape { k: file.k(), d: file.d(), d_out: 1 };
        let x = numbers(&tensors, "x", &[file.n(), file.k(), file.d()]);
        let mut block = Block::<f64>::new(shape);
        match accepted(file.fill(0, &mut block)) {
            Some(()) => {
                let mut found = vec![0.0; block.len() * shape.k * shape.d];
                block.copy_inputs(&mut found);
                assert_eq!(bits(&found), bits(&x[..found.len()]));
                assert_eq!(block.len(), file.n().min(Block::<f64>::CAPACITY));
            }
            None => assert!(!finite(&x)),
        }
    }
}

#[test]
fn damaged_files_are_refused_or_read_as_what_they_say() {
    let mut count = Accepted::default();
    let valid = [
        valid_examples("safetensors"),
        valid_examples("npz"),
        small_layer().to_bytes(&notes(&[("note", "é\"\\")])).expect("bytes"),
        std::fs::read(golden("examples.npz")).expect("golden"),
        std::fs::read(golden("mixed.safetensors")).expect("golden"),
        std::fs::read(golden("bad_compressed.npz")).expect("golden"),
    ];
    each_damaged(&valid, |_, bytes| show(bytes, &mut count));
    let Accepted { summaries, layers, examples, inputs } = count;
    assert!(summaries > 500 && layers > 100 && examples > 200 && inputs > 200, "{count:?}");
}

#[test]
fn every_truncation_is_refused() {
    for bytes in [valid_examples("safetensors"), valid_examples("npz"), small_layer().to_bytes(&notes(&[])).expect("bytes")] {
        for len in 0..bytes.len() {
            show(&bytes[..len], &mut Accepted::default());
            assert!(FileSummary::of_bytes(&bytes[..len], "file").is_err(), "{len} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn made_up_headers_are_refused_or_read_as_what_they_say() {
    let mut count = Accepted::default();
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut size = {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        move || if rng.random() { rng.random_range(0..5) } else { EVIL[rng.random_range(0..EVIL.len())] }
    };
    let dtypes = ["F64", "F32", "I8", "BF16", "F4", "?"];
    let descrs = ["<f8", "<f4", "|i1", ">f8", "O", ""];
    for _ in 0..3000 {
        let shape =
            |size: &mut dyn FnMut() -> u64, rank: usize| (0..rank).map(|_| size().to_string()).collect::<Vec<_>>().join(",");
        let entries: Vec<String> = ["x", "y", "theta", "w"]
            .into_iter()
            .map(|name| {
                let (dtype, rank) = (dtypes[rng.random_range(0..dtypes.len())], rng.random_range(0..5));
                let shape = shape(&mut size, rank);
                format!(r#""{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{},{}]}}"#, size(), size())
            })
            .collect();
        let data = vec![0; rng.random_range(0..64)];
        show(&safetensors(&format!("{{{}}}", entries.join(",")), &data), &mut count);

        let members: Vec<(&str, Vec<u8>)> = ["x.npy", "y.npy"]
            .into_iter()
            .map(|name| {
                let descr = descrs[rng.random_range(0..descrs.len())];
                let rank = rng.random_range(0..5);
                let shape = shape(&mut size, rank);
                let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape})}}");
                (name, npy(&header, &data))
            })
            .collect();
        show(&archive(&members), &mut count);
    }
    assert!(count.summaries > 1000, "{count:?}");
}

/// What carries no data changes nothing: notes, fields of a header that nobody knows, blanks, the order of the entries.
#[test]
fn what_carries_no_data_changes_nothing() {
    let bytes = small_layer().to_bytes(&notes(&[])).expect("bytes");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let (header, data) = (std::str::from_utf8(&bytes[8..8 + len]).expect("text"), &bytes[8 + len..]);
    let with = |header: String| AttentionLayer::from_bytes(&safetensors(&header, data), "file");
    for blanks in [" ", "\n", "\t \r\n", "                "] {
        assert_eq!(with(header.trim_end().to_owned() + blanks).expect("the same layer"), small_layer());
        assert_eq!(with(header.replacen(':', &format!("{blanks}:{blanks}"), 1)).expect("the same layer"), small_layer());
    }
    let more = header.replacen("\"format\"", "\"anything\":\"x: 1; y\",\"format\"", 1);
    assert_eq!(with(more).expect("the same layer"), small_layer());
    let order: serde_json::Map<String, serde_json::Value> = serde_json::from_str(header).expect("JSON");
    let backwards: Vec<String> = order.iter().rev().map(|(key, value)| format!("{}:{value}", serde_json::json!(key))).collect();
    assert_eq!(with(format!("{{{}}}", backwards.join(","))).expect("the same layer"), small_layer());
}
