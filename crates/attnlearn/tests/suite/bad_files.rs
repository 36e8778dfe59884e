//! Every kind of bad file has its own message, on one line, that says what is wrong, where, and what to do.

use crate::common::*;
use attnlearn::data::{Block, Columns, ExampleFile, ExampleSource, ExampleWriter, InputFile, Shape};
use attnlearn::files::Dtype;
use attnlearn::inspect::inspect;
use attnlearn::layer::AttentionLayer;
use std::fmt::Debug;
use std::path::Path;

/// The message of a refusal, which has one line and names the place.
#[track_caller]
fn message<T: Debug>(result: attnlearn::Result<T>, place: &str) -> String {
    let message = result.expect_err("bad input must be refused").to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with(place), "{message}");
    message
}

#[track_caller]
fn refused(bytes: Vec<u8>, what: &str) {
    let message = message(ExampleFile::from_bytes(bytes, "file"), "file");
    assert!(message.contains(what), "{message}");
}

#[track_caller]
fn refused_golden(name: &str, what: &str) {
    let path = golden(name);
    let message = message(ExampleFile::open(&path), &path.display().to_string());
    assert!(message.contains(what), "{message}");
}

/// A safetensors file of F64 zeros with the given shapes.
fn zeros(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let mut header = Vec::new();
    let mut offset = 0;
    for (name, shape) in tensors {
        let end = offset + 8 * shape.iter().product::<usize>();
        header.push(format!(r#""{name}":{{"dtype":"F64","shape":{shape:?},"data_offsets":[{offset},{end}]}}"#));
        offset = end;
    }
    safetensors(&format!("{{{}}}", header.join(",")), &vec![0; offset])
}

/// An archive with good `y` and the given header for `x`, followed by as many zero bytes.
fn npz_with_x(header: &str, bytes: usize) -> Vec<u8> {
    let y = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, 4)}", &[0; 192]);
    archive(&[("x.npy", npy(header, &vec![0; bytes])), ("y.npy", y)])
}

// Not a file.

#[test]
fn missing_file() {
    let message = message(ExampleFile::open(Path::new("no/such/file.npz")), "no/such/file.npz");
    assert!(message.contains("does not exist"), "{message}");
}

#[test]
fn directory() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let message = message(ExampleFile::open(folder.path()), &folder.path().display().to_string());
    assert!(message.contains("is a directory"), "{message}");
}

#[cfg(unix)]
#[test]
fn device() {
    let message = message(InputFile::open(Path::new("/dev/null")), "/dev/null");
    assert!(message.contains("not a regular file"), "{message}");
}

#[test]
fn empty_file() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let message = message(inspect(file.path()), &file.path().display().to_string());
    assert!(message.contains("is empty"), "{message}");
    refused(Vec::new(), "is empty");
}

#[test]
fn some_other_file() {
    refused(b"n,k,d\n1,2,3\n".to_vec(), "neither a safetensors nor an npz file");
    refused(b"abc".to_vec(), "neither a safetensors nor an npz file");
    refused_golden("bad_single_array.npy", "single .npy array");
}

// Not the right tensors.

#[test]
fn missing_tensor() {
    refused(zeros(&[("x", &[2, 3, 4]), ("z", &[1])]), "has no tensor y (found: x, z); give y the shape [n, k, d_out]");
    refused(zeros(&[]), "has no tensor x (found: none); give x the shape [n, k, d]");
    refused(archive(&[("readme.txt", b"hello".to_vec())]), "has no tensor x (found: none)");
    let names: Vec<String> = (0..20).map(|i| format!("t{i:02}")).collect();
    let many: Vec<(&str, &[usize])> = names.iter().map(|n| (n.as_str(), [1].as_slice())).collect();
    refused(zeros(&many), "t06, t07, …)");
}

#[test]
fn tensor_names_cannot_break_the_line() {
    let header = "{\"a\\nb\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}";
    refused(safetensors(header, &[0; 8]), "(found: a\\nb)");
}

#[test]
fn wrong_rank() {
    refused(zeros(&[("x", &[6, 4]), ("y", &[2, 3, 4])]), "file, x: has shape [6, 4] of rank 2; give it the shape [n, k, d]");
    refused(zeros(&[("x", &[2, 3, 4]), ("y", &[1, 2, 3, 4])]), "file, y: has shape [1, 2, 3, 4] of rank 4");
    refused(npz_with_x("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", 16), "has shape [2] of rank 1");
}

#[test]
fn different_number_of_examples() {
    refused(zeros(&[("x", &[2, 3, 4]), ("y", &[3, 3, 4])]), "they differ in n");
}

#[test]
fn different_number_of_tokens() {
    refused(zeros(&[("x", &[2, 3, 4]), ("y", &[2, 5, 4])]), "they differ in k");
}

#[test]
fn no_examples() {
    refused(zeros(&[("x", &[0, 3, 4]), ("y", &[0, 3, 4])]), "file, x: has shape [0, 3, 4]; every one of [n, k, d]");
}

#[test]
fn zero_sizes() {
    refused(zeros(&[("x", &[2, 0, 4]), ("y", &[2, 0, 4])]), "must be at least 1");
    refused(zeros(&[("x", &[2, 3, 4]), ("y", &[2, 3, 0])]), "file, y: has shape [2, 3, 0]");
    refused(npz_with_x("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, 0)}", 0), "has shape [2, 3, 0]");
}

#[test]
fn one_token_is_left_to_the_learner() {
    assert!(ExampleFile::from_bytes(zeros(&[("x", &[2, 1, 4]), ("y", &[2, 1, 4])]), "file").is_ok());
}

// Not the right numbers.

#[test]
fn unsupported_number_format() {
    let header = r#"{"x":{"dtype":"BF16","shape":[1,1,1],"data_offsets":[0,2]}}"#;
    refused(safetensors(header, &[0; 2]), "file, x: has number format BF16; convert it to F32 or F64");
    refused_golden("bad_int64.npz", "has number format I64; store it as I8 or F32 or F64");
    refused(npz_with_x("{'descr': '<c16', 'fortran_order': False, 'shape': (2, 3, 1)}", 96), "has number format <c16");
}

#[test]
fn outputs_as_bytes() {
    let header =
        r#"{"x":{"dtype":"I8","shape":[1,1,1],"data_offsets":[0,1]},"y":{"dtype":"I8","shape":[1,1,1],"data_offsets":[1,2]}}"#;
    refused(safetensors(header, &[1; 2]), "file, y: has number format I8; store it as F32 or F64");
}

#[test]
fn big_endian() {
    refused_golden("bad_big_endian.npz", "x: is big-endian (>f8)");
}

#[test]
fn fortran_order() {
    refused_golden("bad_fortran.npz", "x: is in Fortran order; save numpy.ascontiguousarray(x)");
}

#[test]
fn compressed() {
    refused_golden("bad_compressed.npz", "x: is compressed, so it cannot be mapped into memory; save it with numpy.savez");
}

#[test]
fn structured_array() {
    let header = "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2, 3, 4)}";
    refused(npz_with_x(header, 192), "not that of a plain array");
}

/// Two blocks of examples with one offending number in `y` of example 600.
fn with_offender(value: f64) -> ExampleFile {
    let shape = [700, 1, 2];
    let mut bytes = zeros(&[("x", &shape), ("y", &shape)]);
    let at = bytes.len() - 8 * (2 * 100 - 1);
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    ExampleFile::from_bytes(bytes, "file").expect("the numbers are not read yet")
}

#[test]
fn numbers_that_are_not_finite() {
    for (value, what) in [(f64::NAN, "holds NaN"), (f64::INFINITY, "infinite"), (f64::NEG_INFINITY, "infinite")] {
        let file = with_offender(value);
        let mut block = Block::new(file.shape());
        file.fill_f64(0, &mut block).expect("the offender is in the second block");
        let message = message(file.fill_f64(1, &mut block), "file, y, example 600: holds");
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn numbers_beyond_single_precision() {
    let file = with_offender(1e300);
    assert!(file.fill_f64(1, &mut Block::new(file.shape())).is_ok());
    let message = message(file.fill_f32(1, &mut Block::new(file.shape())), "file, y, example 600");
    assert!(message.contains("cannot represent"), "{message}");
}

#[test]
fn a_block_of_another_shape() {
    let file = with_offender(0.0);
    let message = message(file.fill_f64(0, &mut Block::new(SHAPE)), "file, x");
    assert!(message.contains("of the same sizes"), "{message}");
}

// Damaged files.

#[test]
fn truncated_safetensors() {
    let bytes = valid_examples("safetensors");
    refused(bytes[..bytes.len() - 1].to_vec(), "is truncated or corrupt");
    refused(bytes[..40].to_vec(), "is truncated: 32 bytes are left of a header of");
    refused(bytes[..8].to_vec(), "neither a safetensors nor an npz file");
}

#[test]
fn truncated_npz() {
    let bytes = valid_examples("npz");
    for len in [10, 100, bytes.len() / 2, bytes.len() - 1] {
        refused(bytes[..len].to_vec(), "is truncated or corrupt");
    }
}

#[test]
fn bytes_left_over() {
    let bytes = [valid_examples("safetensors"), vec![0; 3]].concat();
    refused(bytes, "3 bytes at its end belong to no tensor");
    refused(npz_with_x("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3, 4)}", 193), "193 bytes of numbers for shape");
}

#[test]
fn corrupt_header() {
    refused(safetensors("{\"x\":{\"dtype\":\"F64\"", &[]), "has a corrupt header");
    refused(safetensors("{\"x\":3}", &[]), "has a corrupt header");
    refused(safetensors("{\"\u{0}\":}", &[]), "has a corrupt header");
    refused(npz_with_x("{'descr': '<f8'", 0), "not that of a plain array");
    refused(archive(&[("x.npy", b"\x93NUMPY\x09\x00abc".to_vec())]), "is not an .npy array, or is truncated");
    refused(archive(&[("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec())]), "is not an .npy array, or is truncated");
}

#[test]
fn giant_header() {
    let mut bytes = valid_examples("safetensors");
    bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(bytes.clone(), "it declares a header of 18446744073709551615 bytes");
    bytes[..8].copy_from_slice(&99_999_999u64.to_le_bytes());
    refused(bytes, "of a header of 99999999");
}

#[test]
fn sizes_beyond_the_file() {
    let header = r#"{"x":{"dtype":"F64","shape":[1000000000,1000,10],"data_offsets":[0,80000000000000]}}"#;
    refused(safetensors(header, &[0; 80]), "80 bytes of tensors of a declared 80000000000000");
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000, 10)}";
    refused(npz_with_x(header, 80), "80 bytes of numbers for shape [1000000000, 1000, 10]");
}

#[test]
fn sizes_that_overflow() {
    let header = r#"{"x":{"dtype":"F64","shape":[4294967296,4294967296,1],"data_offsets":[0,0]}}"#;
    refused(safetensors(header, &[]), "overflow");
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 1)}";
    refused(npz_with_x(header, 0), "is truncated or corrupt");
}

/// Nine tensors whose sizes, each of them possible, add up to just under 2^64: with the header the sum wraps around.
#[test]
fn sizes_that_add_up_to_an_overflow() {
    let size = (1u64 << 61) - 1;
    let mut tensors: Vec<String> = (0..8u64)
        .map(|i| {
            let (from, to) = (i * size, (i + 1) * size);
            format!(r#""t{i}":{{"dtype":"I8","shape":[{size}],"data_offsets":[{from},{to}]}}"#)
        })
        .collect();
    tensors.push(format!(r#""x":{{"dtype":"I8","shape":[1,1,7],"data_offsets":[{},{}]}}"#, 8 * size, u64::MAX));
    refused(
        safetensors(&format!("{{{}}}", tensors.join(",")), &[0; 64]),
        "64 bytes of tensors of a declared 18446744073709551615",
    );
}

#[test]
fn offsets_that_do_not_fit_the_shape() {
    let header = r#"{"x":{"dtype":"F64","shape":[1,1,2],"data_offsets":[0,8]}}"#;
    refused(safetensors(header, &[0; 8]), "has a corrupt header");
    let header = r#"{"x":{"dtype":"F64","shape":[1,1,1],"data_offsets":[8,0]}}"#;
    refused(safetensors(header, &[0; 8]), "has a corrupt header");
}

// Layers.

#[track_caller]
fn layer_refused(bytes: &[u8], what: &str) {
    let message = message(AttentionLayer::from_bytes(bytes, "layer"), "layer");
    assert!(message.contains(what), "{message}");
}

/// A layer file of F64 zeros.
fn zero_layer(metadata: &str, tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let plain = zeros(tensors);
    let len = u64::from_le_bytes(*plain.first_chunk().expect("eight bytes")) as usize;
    let header = std::str::from_utf8(&plain[9..8 + len]).expect("text");
    safetensors(&format!("{{\"__metadata__\":{metadata},{header}"), &plain[8 + len..])
}

const GOOD: &str = r#"{"format":"attnlearn.layer","version":"1","mask":"none"}"#;

#[test]
fn not_a_layer() {
    layer_refused(&valid_examples("safetensors"), "is not a layer; give a safetensors file with metadata format");
    layer_refused(&valid_examples("npz"), "is not a layer");
    layer_refused(b"", "is empty");
    assert!(AttentionLayer::from_bytes(&zero_layer(GOOD, &[("theta", &[1, 2, 2]), ("w", &[1, 2, 3])]), "layer").is_ok());
}

#[test]
fn layer_of_another_version() {
    let metadata = r#"{"format":"attnlearn.layer","version":"3","mask":"none"}"#;
    layer_refused(&zero_layer(metadata, &[("theta", &[1, 2, 2]), ("w", &[1, 2, 2])]), "is a layer of version 3");
    let metadata = r#"{"format":"attnlearn.layer","mask":"none"}"#;
    layer_refused(&zero_layer(metadata, &[("theta", &[1, 2, 2]), ("w", &[1, 2, 2])]), "without a version");
}

#[test]
fn layer_with_an_unknown_mask() {
    let metadata = r#"{"format":"attnlearn.layer","version":"1","mask":"sliding"}"#;
    layer_refused(&zero_layer(metadata, &[("theta", &[1, 2, 2]), ("w", &[1, 2, 2])]), "has the unknown mask sliding");
    let metadata = r#"{"format":"attnlearn.layer","version":"1"}"#;
    layer_refused(&zero_layer(metadata, &[("theta", &[1, 2, 2]), ("w", &[1, 2, 2])]), "without a mask");
}

#[test]
fn layer_without_its_tensors() {
    layer_refused(&zero_layer(GOOD, &[("w", &[1, 2, 2])]), "has no tensor theta (found: w)");
    layer_refused(&zero_layer(GOOD, &[("theta", &[1, 2, 2])]), "has no tensor w (found: theta)");
}

#[test]
fn layer_whose_shapes_disagree() {
    layer_refused(&zero_layer(GOOD, &[("theta", &[1, 2, 3]), ("w", &[1, 2, 2])]), "theta: has shape [1, 2, 3]");
    layer_refused(&zero_layer(GOOD, &[("theta", &[2, 2, 2]), ("w", &[1, 2, 2])]), "it must be [1, 2, 2]");
    layer_refused(&zero_layer(GOOD, &[("theta", &[0, 2, 2]), ("w", &[0, 2, 2])]), "must be at least 1");
    let tensors: &[(&str, &[usize])] = &[("theta", &[1, 2, 2]), ("w", &[1, 2, 3]), ("bias", &[2])];
    layer_refused(&zero_layer(GOOD, tensors), "bias: has shape [2]");
    let tensors: &[(&str, &[usize])] = &[("theta", &[1, 2, 2]), ("w", &[1, 2, 3]), ("theta_bias", &[1, 3])];
    layer_refused(&zero_layer(GOOD, tensors), "theta_bias: has shape [1, 3]");
}

#[test]
fn layer_with_a_number_that_is_not_finite() {
    let mut bytes = zero_layer(GOOD, &[("theta", &[1, 2, 2]), ("w", &[1, 2, 2])]);
    let at = bytes.len() - 8;
    bytes[at..].copy_from_slice(&f64::NAN.to_le_bytes());
    layer_refused(&bytes, "layer, w: holds NaN");
}

#[test]
fn layer_whose_norm_overflows() {
    let mut bytes = zero_layer(GOOD, &[("theta", &[1, 2, 2]), ("w", &[1, 2, 2])]);
    let at = bytes.len() - 16;
    bytes[at..].copy_from_slice(&[f64::MAX.to_le_bytes(), f64::MAX.to_le_bytes()].concat());
    layer_refused(&bytes, "layer: W of head 0 is not a finite 2×2 matrix");
}

#[test]
fn layer_notes_with_a_reserved_key() {
    let message = message(small_layer().to_bytes(&notes(&[("mask", "none")])), "layer notes");
    assert!(message.contains("the key mask is taken"), "{message}");
}

// Files that cannot be written.

const BOTH: Columns = Columns { x: Some(Dtype::F64), y: Some(Dtype::F64) };

#[track_caller]
fn not_created(path: &Path, shape: Shape, n: u64, columns: Columns, what: &str) {
    let refusal = ExampleWriter::create(path, shape, n, columns).map(|_| ());
    let message = message(refusal, &path.display().to_string());
    assert!(message.contains(what), "{message}");
}

#[test]
fn unknown_extension() {
    for name in ["examples.csv", "examples", ".npz"] {
        not_created(Path::new(name), SHAPE, 1, BOTH, "let it end in .safetensors or .npz");
    }
}

#[test]
fn directory_that_does_not_exist() {
    not_created(Path::new("no/such/examples.npz"), SHAPE, 1, BOTH, "its directory no/such does not exist");
}

#[test]
fn a_directory_in_the_place_of_a_file() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("examples.npz");
    std::fs::create_dir(&path).expect("writable");
    not_created(&path, SHAPE, 1, BOTH, "is a directory");
    let message = message(small_layer().save(&path, &notes(&[])), &path.display().to_string());
    assert!(message.contains("is a directory"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn unwritable_place() {
    not_created(Path::new("/proc/examples.npz"), SHAPE, 1, BOTH, "/proc");
}

#[test]
fn nothing_or_too_much_to_write() {
    let path = Path::new("never-written.npz");
    not_created(path, SHAPE, 0, BOTH, "every size must be at least 1");
    not_created(path, Shape { k: 0, ..SHAPE }, 1, BOTH, "every size must be at least 1");
    not_created(path, SHAPE, u64::MAX, BOTH, "do not fit in any file");
    not_created(path, SHAPE, 1 << 60, BOTH, "do not fit in any file");
    not_created(path, SHAPE, 1, Columns { x: None, y: None }, "neither inputs nor outputs");
    not_created(path, SHAPE, 1, Columns { x: None, y: Some(Dtype::I8) }, "outputs were to be written as I8");
}

fn one_example(x: f64) -> Block<f64> {
    let mut block = Block::new(SHAPE);
    block.set_inputs(&[x; 6]);
    block.set_outputs(&[0.0; 12]);
    block
}

#[test]
fn numbers_that_cannot_be_written() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("examples.safetensors");
    let cases = [(Dtype::I8, 0.5), (Dtype::I8, 128.0), (Dtype::F32, 1e39), (Dtype::F64, f64::NAN), (Dtype::I8, f64::NAN)];
    for (dtype, value) in cases {
        let mut writer = ExampleWriter::create(&path, SHAPE, 2, Columns { x: Some(dtype), ..BOTH }).expect("writable");
        writer.append(&one_example(1.0)).expect("written");
        let message = message(writer.append(&one_example(value)), &format!("{}, x, example 1: holds", path.display()));
        assert!(message.contains(dtype.name()), "{message}");
    }
}

#[test]
fn a_refused_block_leaves_no_trace() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for name in ["examples.safetensors", "examples.npz"] {
        let path = folder.path().join(name);
        let mut writer = ExampleWriter::create(&path, SHAPE, 1, BOTH).expect("writable");
        let mut bad = one_example(1.0);
        bad.set_outputs(&[f64::NAN; 12]);
        let message = message(writer.append(&bad), &format!("{}, y, example 0", path.display()));
        assert!(message.contains("holds NaN"), "{message}");
        writer.append(&one_example(2.0)).expect("written");
        writer.finish().expect("complete");
        let (x, y) = read_examples(&ExampleFile::open(&path).expect("readable")).expect("finite");
        assert_eq!((x, y), (vec![2.0; 6], vec![0.0; 12]));
    }
}

#[test]
fn more_examples_than_announced() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("examples.npz");
    let mut writer = ExampleWriter::create(&path, SHAPE, 1, BOTH).expect("writable");
    writer.append(&one_example(1.0)).expect("written");
    let message = message(writer.append(&one_example(1.0)), &path.display().to_string());
    assert!(message.contains("1 examples were to follow the first 1 of 1"), "{message}");
}

#[test]
fn examples_of_another_shape() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("examples.npz");
    let mut writer = ExampleWriter::create(&path, Shape { k: 9, ..SHAPE }, 1, BOTH).expect("writable");
    let message = message(writer.append(&one_example(1.0)), &path.display().to_string());
    assert!(message.contains("examples of one shape"), "{message}");
}
