//! Damaged files of every format are read or refused, and never bring the reader down. The damage is drawn from fixed
//! seeds; `fuzz/` has the open-ended form of these tests.

mod common;

use attnlearn::data::{Block, ExampleFile, ExampleSource, FileSummary, InputFile};
use attnlearn::layer::AttentionLayer;
use common::*;
use rand::{Rng, RngExt, SeedableRng};
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

/// Numbers that headers are fond of getting wrong.
const EVIL: [u64; 10] = [0, 1, 0xff, 0xffff, 0xffff_ffff, 1 << 32, 1 << 61, (1 << 63) - 1, 1 << 63, u64::MAX];

/// One piece of damage.
fn damage(rng: &mut impl Rng, bytes: &mut Vec<u8>, donor: &[u8]) {
    if bytes.is_empty() {
        return bytes.extend(donor);
    }
    let at = rng.random_range(0..bytes.len());
    let len = rng.random_range(1..32);
    match rng.random_range(0..8) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = rng.random(),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..bytes.len().min(at + len))),
        4 => drop(bytes.splice(at..at, (0..len).map(|_| rng.random::<u8>()).collect::<Vec<_>>())),
        5 => {
            let from = rng.random_range(0..donor.len());
            let piece = donor[from..donor.len().min(from + len)].to_vec();
            drop(bytes.splice(at..bytes.len().min(at + piece.len()), piece));
        }
        6 => {
            let value = EVIL[rng.random_range(0..EVIL.len())].to_le_bytes();
            let width = [2, 4, 8][rng.random_range(0..3)];
            bytes.iter_mut().skip(at).zip(&value[..width]).for_each(|(b, v)| *b = *v);
        }
        // A digit of a size or an offset in a text header.
        _ => {
            if let Some(digit) = bytes.iter_mut().skip(at).find(|b| b.is_ascii_digit()) {
                *digit = b'0' + rng.random_range(0..10);
            }
        }
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
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for bytes in &valid {
        for _ in 0..1500 {
            let donor = &valid[rng.random_range(0..valid.len())];
            let mut bytes = bytes.clone();
            for _ in 0..rng.random_range(1..4) {
                damage(&mut rng, &mut bytes, donor);
            }
            show(&bytes);
        }
    }
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
