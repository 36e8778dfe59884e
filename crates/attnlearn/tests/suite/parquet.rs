//! Sets from Parquet files that pyarrow wrote (`golden/make_parquet.py`).
#![cfg(feature = "parquet")]

use crate::common::{damage, golden};
use attnlearn::features::{SetBlock, Sets, Targets, open_sets};
use attnlearn::inspect::inspect;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn read(name: &str, targets: Targets) -> attnlearn::Result<Sets> {
    Sets::read(open_sets(&golden(name), targets)?.as_ref())
}

#[test]
fn lists_of_lists_are_sets_of_different_lengths() {
    let sets = read("sets.parquet", Targets::Required).expect("valid");
    let block = sets.block();
    assert_eq!((block.shape.keys, block.shape.d, block.shape.targets), (3, 2, 1));
    assert_eq!(block.lengths, [2, 1, 3]);
    assert_eq!((block.query(1), block.keys(1)), ([-1.0, 0.5].as_slice(), [7.0, 8.0].as_slice()));
    assert_eq!(block.keys(2), [9.0, 1.0, 2.0, 2.0, 4.0, -4.0]);
    assert_eq!((block.y.as_slice(), block.weights.as_slice()), ([0.5, -1.5, 2.5].as_slice(), [1.0, 2.0, 0.0].as_slice()));
    assert_eq!(read("sets.parquet", Targets::Ignored).expect("valid").block().shape.targets, 0);
}

#[test]
fn masks_and_several_targets_in_single_precision() {
    let sets = read("sets_mask.parquet", Targets::Required).expect("valid");
    let block = sets.block();
    assert_eq!((block.lengths.as_slice(), block.y.as_slice()), ([1, 2].as_slice(), [1.0, 2.0, 3.0, 4.0].as_slice()));
    assert_eq!((block.keys(0), block.keys(1)), ([2.0].as_slice(), [5.0, 6.0].as_slice()));
}

#[test]
fn bad_files_are_refused_by_row() {
    let said = |name: &str| read(name, Targets::Required).map(drop).expect_err("a bad file").to_string();
    for (name, words) in [
        ("bad_null.parquet", "x, row 1: holds an empty list or a missing value"),
        ("bad_flat.parquet", "is not a list of lists of numbers"),
        ("bad_ragged.parquet", "x, row 0: its lists are not all of 2 numbers"),
    ] {
        assert!(said(name).contains(words), "{name}: {}", said(name));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(golden("sets.parquet")).expect("a file");
    for length in [4, 40, whole.len() / 2, whole.len() - 1] {
        let path = folder.path().join("cut.parquet");
        std::fs::write(&path, &whole[..length]).expect("written");
        let said = open_sets(&path, Targets::Required).map(drop).expect_err("cut short").to_string();
        assert!(said.contains("cannot be read as Parquet"), "{length}: {said}");
    }
}

/// What is wrong with a number is said of the file that holds it, not of the copy that is read.
#[test]
fn the_file_is_named_and_not_its_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("negative.parquet");
    let mut bytes = std::fs::read(golden("sets.parquet")).expect("a file");
    let weights: Vec<u8> = [1.0_f64, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let at = (0..bytes.len() - 16).find(|&i| bytes[i..].starts_with(&weights)).expect("the weights");
    bytes[at + 8..at + 16].copy_from_slice(&(-2.0_f64).to_le_bytes());
    std::fs::write(&path, &bytes).expect("written");
    let said =
        Sets::read(open_sets(&path, Targets::Required).expect("sound").as_ref()).map(drop).expect_err("negative").to_string();
    assert!(said.starts_with(&format!("{}, weight", path.display())) && said.contains("is -2"), "{said}");
}

/// The codec of a column stands after the last part of its name: 2 is snappy there, 4 gzip, 8 brotli.
#[test]
fn what_is_compressed_otherwise_is_named_with_what_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sets.parquet");
    for (codec, name) in [(4, "gzip"), (6, "lzo"), (8, "brotli"), (10, "lz4")] {
        for (column, end) in [("x", b"element\x15\x02\x16".as_slice()), ("y", b"\x01y\x15\x02\x16")] {
            let mut bytes = std::fs::read(golden("sets.parquet")).expect("a file");
            let places: Vec<usize> = (0..bytes.len() - end.len()).filter(|&i| bytes[i..].starts_with(end)).collect();
            assert!(!places.is_empty(), "{column}");
            for place in places {
                bytes[place + end.len() - 2] = codec;
            }
            std::fs::write(&path, &bytes).expect("written");
            let said = open_sets(&path, Targets::Required).map(drop).expect_err("not read").to_string();
            let end =
                format!("{column}: is compressed with {name}; write it with snappy, zstd or no compression: those are read");
            assert!(said.ends_with(&end), "{said}");
        }
    }
}

/// The Parquet crate panics on some of these; its panics must not be ours. (A page declares its size in 31 bits, and memory of up to 2 GiB is asked
/// for, and not touched, before that is found to be wrong.)
#[test]
fn damaged_files_are_read_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sets.parquet");
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for name in ["sets.parquet", "sets_mask.parquet"] {
        let whole = std::fs::read(golden(name)).expect("golden");
        for _ in 0..1500 {
            let mut bytes = whole.clone();
            for _ in 0..rng.random_range(1..4) {
                damage(&mut rng, &mut bytes, &whole);
            }
            // Without its first bytes it would not be taken for Parquet.
            bytes.splice(..bytes.len().min(4), *b"PAR1");
            std::fs::write(&path, &bytes).expect("written");
            let _ = inspect(&path);
            if let Ok(sets) = open_sets(&path, Targets::Required) {
                let _ = sets.fill(0, &mut SetBlock::new(sets.shape()));
            }
        }
    }
}
