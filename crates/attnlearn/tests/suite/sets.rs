//! Files of sets: written and read back, from NumPy's types, and everything that can be wrong with them.

use crate::common::{archive, npy, safetensors};
use attnlearn::features::{SetBlock, SetColumns, SetFile, SetShape, SetSource, SetWriter, Sets, Targets};
use attnlearn::files::Dtype;

const SHAPE: SetShape = SetShape { keys: 3, d: 2, targets: 1 };

fn sets(n: usize, targets: usize, varied: bool) -> SetBlock {
    let mut block = SetBlock::new(SetShape { targets, ..SHAPE });
    for i in 0..n {
        let keys = if varied { 1 + i % 3 } else { 3 };
        let tokens: Vec<f64> = (0..2 * (keys + 1)).map(|e| (7 * i + e) as f64 / 16.0).collect();
        let y: Vec<f64> = (0..targets).map(|t| (i * 10 + t) as f64).collect();
        block.push(&tokens, &y, 1.0);
    }
    block
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for (name, targets, varied) in
        [("a.npz", 1, false), ("b.npz", 2, true), ("c.safetensors", 1, true), ("d.safetensors", 3, false)]
    {
        let path = folder.path().join(name);
        let block = sets(1030, targets, varied);
        let columns = SetColumns { x: Some(Dtype::F32), y: Some(Dtype::F64), length: varied, weight: false };
        let mut writer = SetWriter::create(&path, block.shape, 1030, columns).unwrap();
        let mut part = SetBlock::new(block.shape);
        for index in 0..3 {
            Sets::new(block.clone()).fill(index, &mut part).unwrap();
            writer.append(&part).unwrap();
        }
        writer.finish().unwrap();
        let file = SetFile::open(&path, Targets::Required).unwrap();
        assert_eq!((file.len(), file.shape()), (1030, block.shape));
        let read = Sets::read(&file).unwrap();
        assert_eq!((&read.block().x, &read.block().y, &read.block().lengths), (&block.x, &block.y, &block.lengths));
        // Without targets the same file gives the same sets.
        let plain = SetFile::open(&path, Targets::Ignored).unwrap();
        assert_eq!((plain.shape().targets, Sets::read(&plain).unwrap().block().x.len()), (0, block.x.len()));
    }
}

#[test]
fn a_file_that_lacks_sets_does_not_appear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let columns = SetColumns { x: Some(Dtype::F64), y: None, length: false, weight: false };
    let mut writer = SetWriter::create(&path, SHAPE, 5, columns).unwrap();
    writer.append(&sets(3, 1, false)).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("3 sets of 5"));
    assert!(SetWriter::create(&path, SHAPE, 0, columns).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn array(descr: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    npy(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), bytes)
}

/// Two sets of up to two keys in one dimension, and one more tensor.
fn with(name: &str, extra: Vec<u8>) -> Vec<u8> {
    let x = array("<f8", "(2, 3, 1)", &doubles(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let y = array("<f8", "(2,)", &doubles(&[0.5, 1.5]));
    archive(&[("x.npy", x), ("y.npy", y), (name, extra)])
}

#[test]
fn masks_gather_the_keys_that_are_there() {
    let bytes = with("mask.npy", array("|b1", "(2, 2)", &[0, 1, 1, 0]));
    let read = Sets::read(&SetFile::from_bytes(bytes, "file", Targets::Required).unwrap()).unwrap();
    assert_eq!(read.block().lengths, [1, 1]);
    assert_eq!((read.block().keys(0), read.block().keys(1)), ([3.0].as_slice(), [5.0].as_slice()));
    assert_eq!(read.block().x, [1.0, 3.0, 0.0, 4.0, 5.0, 0.0]);
}

#[test]
fn lengths_and_weights_are_read() {
    let lengths: Vec<u8> = [2i64, 1].iter().flat_map(|v| v.to_le_bytes()).collect();
    let bytes = with("length.npy", array("<i8", "(2,)", &lengths));
    let read = Sets::read(&SetFile::from_bytes(bytes, "file", Targets::Required).unwrap()).unwrap();
    assert_eq!(read.block().lengths, [2, 1]);
    let bytes = with("weight.npy", array("<f8", "(2,)", &doubles(&[0.0, 3.0])));
    let read = Sets::read(&SetFile::from_bytes(bytes, "file", Targets::Required).unwrap()).unwrap();
    assert_eq!(read.block().weights, [0.0, 3.0]);
}

fn refused(bytes: Vec<u8>, words: &str) {
    let said = match SetFile::from_bytes(bytes, "file", Targets::Required) {
        Ok(file) => Sets::read(&file).map(drop).expect_err("a bad file").to_string(),
        Err(e) => e.to_string(),
    };
    assert!(said.contains(words), "{said:?} does not say {words:?}");
}

#[test]
fn wrong_files_are_refused_by_name() {
    let numbers = |n: usize| doubles(&vec![1.0; n]);
    let x = array("<f8", "(2, 3, 1)", &numbers(6));
    let y = array("<f8", "(2,)", &numbers(2));
    refused(archive(&[("x.npy", x.clone())]), "has no tensor y");
    refused(archive(&[("y.npy", y.clone())]), "has no tensor x");
    refused(archive(&[("x.npy", array("<f8", "(2, 1, 1)", &numbers(2))), ("y.npy", y.clone())]), "no place for a key");
    refused(archive(&[("x.npy", x.clone()), ("y.npy", array("<f8", "(3,)", &numbers(3)))]), "y has 3 rows");
    refused(archive(&[("x.npy", x.clone()), ("y.npy", array("<f8", "(2, 1, 1)", &numbers(2)))]), "of rank 3");
    refused(with("length.npy", array("|u1", "(2,)", &[1, 3])), "length, example 1: is 3; give a whole number from 1 to 2");
    refused(with("length.npy", array("|u1", "(2,)", &[0, 1])), "length, example 0: is 0");
    refused(with("length.npy", array("<f8", "(2,)", &doubles(&[1.5, 1.0]))), "is 1.5");
    refused(with("length.npy", array("|u1", "(3,)", &[1, 1, 1])), "length has 3 rows");
    refused(with("mask.npy", array("|b1", "(2, 2)", &[0, 0, 1, 1])), "mask, example 0: leaves no key");
    refused(with("mask.npy", array("|u1", "(2, 2)", &[1, 2, 1, 1])), "holds 2");
    refused(with("mask.npy", array("|b1", "(2, 3)", &[1; 6])), "mask has 3 columns");
    refused(with("weight.npy", array("<f8", "(2,)", &doubles(&[1.0, -1.0]))), "weight, example 1: is -1");
    refused(
        archive(&[("x.npy", array("<f8", "(2, 3, 1)", &doubles(&[1.0, f64::NAN, 1.0, 1.0, 1.0, 1.0]))), ("y.npy", y)]),
        "NaN",
    );
    refused(safetensors("{\"x\":{\"dtype\":\"F64\",\"shape\":[0,3,1],\"data_offsets\":[0,0]}}", &[]), "at least 1");
}
