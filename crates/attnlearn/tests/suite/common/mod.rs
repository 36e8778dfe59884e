//! What the tests of files share.
#![allow(dead_code)] // no test uses all of it

pub mod plain;

use attnlearn::data::{Block, Columns, ExampleFile, ExampleSource, ExampleWriter, Shape};
use attnlearn::files::Dtype;
use attnlearn::layer::{AttentionLayer, Head, Mask};
use attnlearn::linalg::Mat;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

pub const SHAPE: Shape = Shape { k: 3, d: 2, d_out: 4 };

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Writes plain `[n][k][d]` and `[n][k][d_out]` numbers through the writer.
pub fn write_examples(path: &Path, shape: Shape, columns: Columns, x: &[f64], y: &[f64]) -> attnlearn::Result<()> {
    let n = x.len() / (shape.k * shape.d);
    let mut writer = ExampleWriter::create(path, shape, n as u64, columns)?;
    let mut block = Block::new(shape);
    let capacity = Block::<f64>::CAPACITY;
    for (x, y) in x.chunks(capacity * shape.k * shape.d).zip(y.chunks(capacity * shape.k * shape.d_out)) {
        block.set_inputs(x);
        block.set_outputs(y);
        writer.append(&block)?;
    }
    writer.finish()
}

/// Reads everything back in plain order.
pub fn read_examples(file: &ExampleFile) -> attnlearn::Result<(Vec<f64>, Vec<f64>)> {
    let shape = file.shape();
    let mut block = Block::<f64>::new(shape);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for index in 0.. {
        file.fill_f64(index, &mut block)?;
        if block.is_empty() {
            break;
        }
        let (mut bx, mut by) = (vec![0.0; block.len() * shape.k * shape.d], vec![0.0; block.len() * shape.k * shape.d_out]);
        block.copy_inputs(&mut bx);
        block.copy_outputs(&mut by);
        x.append(&mut bx);
        y.append(&mut by);
    }
    Ok((x, y))
}

/// A safetensors file with any header and any data.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// An `.npy` file with any header text.
pub fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    [b"\x93NUMPY\x01\x00", (header.len() as u16).to_le_bytes().as_slice(), header.as_bytes(), data].concat()
}

/// An uncompressed archive of `(file name, contents)`.
pub fn archive(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, contents) in members {
        archive.start_file(*name, options).expect("a new member");
        archive.write_all(contents).expect("memory suffices");
    }
    archive.finish().expect("memory suffices").into_inner()
}

/// The bytes of a small valid file of each format.
pub fn valid_examples(extension: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("examples").with_extension(extension);
    let numbers = |n: usize| (0..n).map(|i| (i % 5) as f64 - 2.0).collect::<Vec<_>>();
    let columns = Columns { x: Some(Dtype::I8), y: Some(Dtype::F32) };
    write_examples(&path, SHAPE, columns, &numbers(18 * 6), &numbers(18 * 12)).expect("valid examples");
    std::fs::read(path).expect("just written")
}

/// A small layer with every optional part.
pub fn small_layer() -> AttentionLayer {
    let matrix = |rows, cols, scale: f64| Mat::from_fn(rows, cols, |i, j| scale * (i as f64 - 0.3 * j as f64));
    let heads = vec![
        Head { key_bias: Some(vec![0.5, -0.25]), ..Head::dense(matrix(2, 2, 1.0), matrix(2, 3, 0.1)) },
        Head::dense(matrix(2, 2, -2.0), matrix(2, 3, 1e-7)),
    ];
    AttentionLayer::new(heads, Some(vec![1.0, 2.0, -3.0]), Mask::Causal).expect("a valid layer")
}

pub fn notes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

/// Numbers that headers are fond of getting wrong.
pub const EVIL: [u64; 10] = [0, 1, 0xff, 0xffff, 0xffff_ffff, 1 << 32, 1 << 61, (1 << 63) - 1, 1 << 63, u64::MAX];

/// One piece of damage.
pub fn damage(rng: &mut impl Rng, bytes: &mut Vec<u8>, donor: &[u8]) {
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

/// Shows 1500 copies of every file, each damaged one to three times with pieces of any of them.
pub fn each_damaged(valid: &[Vec<u8>], mut show: impl FnMut(usize, &[u8])) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (kind, bytes) in valid.iter().enumerate() {
        for _ in 0..1500 {
            let donor = &valid[rng.random_range(0..valid.len())];
            let mut bytes = bytes.clone();
            for _ in 0..rng.random_range(1..4) {
                damage(&mut rng, &mut bytes, donor);
            }
            show(kind, &bytes);
        }
    }
}
