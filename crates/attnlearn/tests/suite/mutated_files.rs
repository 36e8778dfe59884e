//! Damaged files of every format are read or refused, and never bring the reader down. The damage is drawn from fixed
//! seeds; `fuzz/` has the open-ended form of these tests.

use crate::common::*;
use attnlearn::data::{Block, ExampleFile, ExampleSource, FileSummary, InputFile};
use attnlearn::layer::AttentionLayer;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Shows the bytes to every reader. What they say does not matter.
fn show(bytes: &[u8]) {
    let _ = FileSummary::of_bytes(bytes, "file");
    let _ = AttentionLayer::from_bytes(bytes, "file");
    if let Ok(file) = ExampleFile::from_bytes(bytes.to_vec(), "file") {
        let mut block = Block::<f64>::new(file.shape());
        for index in [0, 1, u64::MAX] {
            let _ = file.fill_f64(index, &mut block);
        }
    }
    if let Ok(file) = InputFile::from_bytes(bytes.to_vec(), "file") {
        let shape = attnlearn::data::Shape { k: file.k(), d: file.d(), d_out: 1 };
        let _ = file.fill(0, &mut Block::<f32>::new(shape));
    }
}

#[test]
fn damaged_files_are_read_or_refused() {
    let valid = [
        valid_examples("safetensors"),
        valid_examples("npz"),
        small_layer().to_bytes(&notes(&[("note", "é\"\\")])).expect("bytes"),
        std::fs::read(golden("examples.npz")).expect("golden"),
        std::fs::read(golden("mixed.safetensors")).expect("golden"),
        std::fs::read(golden("bad_compressed.npz")).expect("golden"),
    ];
    each_damaged(&valid, |_, bytes| show(bytes));
}

#[test]
fn every_truncation_is_refused() {
    for bytes in [valid_examples("safetensors"), valid_examples("npz"), small_layer().to_bytes(&notes(&[])).expect("bytes")] {
        for len in 0..bytes.len() {
            show(&bytes[..len]);
            assert!(FileSummary::of_bytes(&bytes[..len], "file").is_err(), "{len} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn made_up_headers_are_read_or_refused() {
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
        show(&safetensors(&format!("{{{}}}", entries.join(",")), &data));

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
        show(&archive(&members));
    }
}
