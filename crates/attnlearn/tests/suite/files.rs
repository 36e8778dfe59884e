//! Files are read back as they were written, by this crate and by others.

use crate::common::*;
use attnlearn::data::{Block, Columns, ExampleFile, ExampleSource, ExampleWriter, InputFile, Shape};
use attnlearn::files::{AtomicFile, Dtype, FileFormat, write_atomically};
use attnlearn::inspect::{FileKind, inspect};
use attnlearn::layer::{AttentionLayer, Head, Mask, Theta};
use attnlearn::linalg::{Mat, row_major};
use proptest::prelude::*;
use std::fs;
use std::io::Read;
use std::path::Path;

const BOTH: Columns = Columns { x: Some(Dtype::F64), y: Some(Dtype::F64) };

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a directory");
    entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|v| v.to_bits()).collect()
}

/// `n` numbers that the format holds exactly, of every size and sign.
fn numbers(dtype: Dtype, n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let draw = |bits: u64| match dtype {
        Dtype::I8 => f64::from(bits as i8),
        Dtype::F32 => f64::from(f32::from_bits(bits as u32)),
        Dtype::F64 => f64::from_bits(bits),
        other => unreachable!("examples are not stored as {other:?}"),
    };
    std::iter::repeat_with(|| draw(next())).filter(|v| v.is_finite()).take(n).collect()
}

fn check_golden(name: &str, x_is_signs: bool) {
    let file = ExampleFile::open(&golden(name)).expect("a valid file");
    assert_eq!(file.shape(), SHAPE);
    assert_eq!(file.len(), Some(5));
    let (x, y) = read_examples(&file).expect("finite numbers");
    let want_x: Vec<f64> =
        (0..30).map(|i| if x_is_signs { f64::from(2 * (i % 3 % 2) - 1) } else { f64::from(i) / 8.0 - 1.0 }).collect();
    let want_y: Vec<f64> = (0..60).map(|i| 5.0 - f64::from(i) / 8.0).collect();
    assert_eq!(bits(&x), bits(&want_x), "{name}");
    assert_eq!(bits(&y), bits(&want_y), "{name}");
}

#[test]
fn files_of_numpy_and_of_safetensors_for_python_are_read() {
    check_golden("examples.npz", false);
    check_golden("single.npz", false);
    check_golden("signs.npz", true);
    check_golden("signs.safetensors", true);
    check_golden("mixed.safetensors", false);
}

#[test]
fn a_layer_of_safetensors_for_python_is_read() {
    let layer = AttentionLayer::load(&golden("layer.safetensors")).expect("a valid layer");
    let matrix =
        |rows: usize, cols: usize, first: usize, unit: f64| Mat::from_fn(rows, cols, |i, j| (first + i * cols + j) as f64 * unit);
    let heads = (0..2).map(|h| Head::dense(matrix(2, 2, 4 * h, 0.25), matrix(2, 4, 8 * h, 0.125))).collect();
    let want = AttentionLayer::new(heads, Some(vec![0.5, 1.0, 1.5, 2.0]), Mask::Causal).expect("a valid layer");
    assert_eq!(layer, want);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn examples_round_trip(
        n in prop_oneof![1usize..40, 500usize..530, 1020usize..1030],
        (k, d, d_out) in (1usize..4, 1usize..5, 1usize..4),
        (x_type, y_type) in (0usize..3, 1usize..3),
        npz: bool,
        seed: u64,
    ) {
        let dtypes = [Dtype::I8, Dtype::F32, Dtype::F64];
        let shape = Shape { k, d, d_out };
        let (x, y) = (numbers(dtypes[x_type], n * k * d, seed), numbers(dtypes[y_type], n * k * d_out, !seed));
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join(if npz { "e.npz" } else { "e.safetensors" });
        write_examples(&path, shape, Columns { x: Some(dtypes[x_type]), y: Some(dtypes[y_type]) }, &x, &y).expect("written");
        let file = ExampleFile::open(&path).expect("readable");
        prop_assert_eq!(file.shape(), shape);
        prop_assert_eq!(file.len(), Some(n as u64));
        let (x_back, y_back) = read_examples(&file).expect("finite");
        prop_assert_eq!(bits(&x_back), bits(&x));
        prop_assert_eq!(bits(&y_back), bits(&y));
        let content = inspect(&path).expect("readable").content;
        prop_assert_eq!(content, FileKind::Examples { n, k, d, d_out });

        let inputs = InputFile::open(&path).expect("readable");
        prop_assert_eq!((inputs.n(), inputs.k(), inputs.d()), (n, k, d));
        let mut block = Block::<f64>::new(Shape { d_out: 7, ..shape });
        inputs.fill((n as u64 - 1) / 512, &mut block).expect("finite");
        let mut last = vec![0.0; block.len() * k * d];
        block.copy_inputs(&mut last);
        prop_assert_eq!(bits(&last), bits(&x[x.len() - last.len()..]));
    }

    #[test]
    fn layers_round_trip_bit_for_bit(
        (m, d, d_out) in (1usize..4, 1usize..5, 1usize..5),
        (with_key_bias, with_bias, causal) in any::<(bool, bool, bool)>(),
        seed: u64,
    ) {
        // Entries whose squares do not overflow: a layer must have finite norms.
        let sized = |n: usize, seed: u64| numbers(Dtype::F32, n, seed);
        let matrix = |rows: usize, cols: usize, seed: u64| {
            let values = sized(rows * cols, seed);
            Mat::from_fn(rows, cols, |i, j| values[i * cols + j] / 3.0)
        };
        let heads = (0..m as u64).map(|i| Head {
            theta: Theta::Dense(matrix(d, d, seed ^ i)),
            key_bias: (with_key_bias && i != 1).then(|| sized(d, seed ^ (i << 8))),
            w: matrix(d, d_out, seed ^ (i << 16)), terms: attnlearn::layer::Terms::default() });
        let bias = with_bias.then(|| sized(d_out, !seed));
        let mask = if causal { Mask::Causal } else { Mask::None };
        let layer = AttentionLayer::new(heads.collect(), bias, mask).expect("a valid layer");
        let bytes = layer.to_bytes(&notes(&[("who", "me")])).expect("no reserved key");
        let back = AttentionLayer::from_bytes(&bytes, "layer").expect("readable");
        prop_assert_eq!(back.mask(), mask);
        for (a, b) in layer.heads().iter().zip(back.heads()) {
            prop_assert_eq!(bits(&row_major(a.theta.to_dense().as_ref())), bits(&row_major(b.theta.to_dense().as_ref())));
            prop_assert_eq!(bits(&row_major(a.w.as_ref())), bits(&row_major(b.w.as_ref())));
            prop_assert_eq!(a.key_bias.as_deref().map(bits), b.key_bias.as_deref().map(bits));
        }
        prop_assert_eq!(layer.bias().map(bits), back.bias().map(bits));
        prop_assert_eq!(back.to_bytes(&notes(&[("who", "me")])).expect("no reserved key"), bytes);
    }
}

#[test]
fn single_precision_is_read_as_such() {
    let file = ExampleFile::open(&golden("mixed.safetensors")).expect("a valid file");
    let mut block = Block::<f32>::new(SHAPE);
    file.fill_f32(0, &mut block).expect("finite numbers");
    let (x, _) = block.panels().next().expect("one panel");
    // Entry [0][1] of example 4, and a lane without an example.
    assert_eq!(x[16 + 4].to_bits(), (25.0f32 / 8.0 - 1.0).to_bits());
    assert_eq!(x[16 + 5].to_bits(), 0);
}

#[test]
fn past_the_end_blocks_are_empty() {
    let file = ExampleFile::open(&golden("examples.npz")).expect("a valid file");
    let mut block = Block::new(SHAPE);
    for index in [1, 2, u64::MAX / 512, u64::MAX] {
        file.fill_f64(index, &mut block).expect("an empty block");
        assert!(block.is_empty());
    }
}

#[test]
fn other_libraries_read_what_is_written() {
    let st = valid_examples("safetensors");
    let parsed = ::safetensors::SafeTensors::deserialize(&st).expect("valid to its own crate");
    assert_eq!(parsed.tensor("y").expect("there").shape(), [18, 3, 4]);
    // The archive crate verifies checksums while it reads.
    let mut npz = zip::ZipArchive::new(std::io::Cursor::new(valid_examples("npz"))).expect("a valid archive");
    for (name, len) in [("x.npy", 18 * 6), ("y.npy", 18 * 12 * 4)] {
        let mut contents = Vec::new();
        npz.by_name(name).expect("there").read_to_end(&mut contents).expect("the right checksum");
        assert!(contents.starts_with(b"\x93NUMPY"));
        assert_eq!(contents.len() % 64, len % 64);
    }
}

#[test]
fn inputs_or_outputs_alone_can_be_written() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (x, y) = (numbers(Dtype::F64, 12, 1), numbers(Dtype::F64, 24, 2));
    for extension in ["npz", "safetensors"] {
        let (px, py) = (folder.path().join("x").with_extension(extension), folder.path().join("y").with_extension(extension));
        write_examples(&px, SHAPE, Columns { y: None, ..BOTH }, &x, &y).expect("written");
        write_examples(&py, SHAPE, Columns { x: None, ..BOTH }, &x, &y).expect("written");
        assert_eq!(inspect(&px).expect("readable").content, FileKind::Inputs { n: 2, k: 3, d: 2 });
        assert_eq!(inspect(&py).expect("readable").content, FileKind::Outputs { n: 2, k: 3, d_out: 4 });
        assert!(InputFile::open(&px).is_ok());
        assert!(ExampleFile::open(&px).is_err());
    }
}

#[test]
fn a_file_appears_only_when_it_is_finished() {
    for name in ["e.npz", "e.safetensors"] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join(name);
        let mut block = Block::<f64>::new(SHAPE);
        block.set_inputs(&[1.0; 6]);
        block.set_outputs(&[2.0; 12]);

        let mut writer = ExampleWriter::create(&path, SHAPE, 1, BOTH).expect("writable");
        writer.append(&block).expect("written");
        assert!(!path.exists());
        drop(writer);
        assert_eq!(names_in(folder.path()), Vec::<String>::new());

        fs::write(&path, "what was there").expect("writable");
        let mut writer = ExampleWriter::create(&path, SHAPE, 2, BOTH).expect("writable");
        writer.append(&block).expect("written");
        let unfinished = writer.finish().expect_err("an example is missing").to_string();
        assert!(unfinished.contains("1 examples of 2 were written"), "{unfinished}");
        assert_eq!(names_in(folder.path()), [name]);
        assert_eq!(fs::read(&path).expect("still there"), b"what was there");

        let mut writer = ExampleWriter::create(&path, SHAPE, 1, BOTH).expect("writable");
        writer.append(&block).expect("written");
        writer.finish().expect("complete");
        assert_eq!(names_in(folder.path()), [name]);
        assert!(ExampleFile::open(&path).is_ok());
    }
}

#[cfg(unix)]
#[test]
fn files_get_ordinary_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (plain, atomic) = (folder.path().join("plain"), folder.path().join("atomic"));
    fs::write(&plain, "a").expect("writable");
    write_atomically(&atomic, b"b").expect("writable");
    let mode = |path| fs::metadata(path).expect("there").permissions().mode();
    assert_eq!(mode(&plain), mode(&atomic));
}

/// What replaces a file has its permissions.
#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_permissions() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("file");
    for mode in [0o640, 0o600, 0o666, 0o755, 0o604] {
        fs::write(&path, "before").expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
        let before = fs::metadata(&path).expect("there");
        write_atomically(&path, b"after").expect("writable");
        let after = fs::metadata(&path).expect("there");
        assert_eq!((after.mode() & 0o7777, after.uid(), after.gid()), (mode, before.uid(), before.gid()));
        assert_eq!(fs::read(&path).expect("there"), b"after");
    }
}

/// A file of another owner, as far as the system lets us have one.
#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_owner() {
    use std::os::unix::fs::{MetadataExt, chown};
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("file");
    fs::write(&path, "before").expect("writable");
    // Who may not give files away has nothing to keep here.
    let given = chown(&path, Some(1234), Some(1235)).is_ok();
    let owner = |path| fs::metadata(path).map(|about| (about.uid(), about.gid())).expect("there");
    let before = owner(&path);
    write_atomically(&path, b"after").expect("writable");
    assert_eq!(owner(&path), before);
    assert!(!given || before == (1234, 1235));
}

#[cfg(unix)]
#[test]
fn a_file_that_is_write_protected_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (path, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&path, "dear").expect("writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("ours");
    std::os::unix::fs::symlink("file", &link).expect("links");
    for name in [&path, &link] {
        let said = write_atomically(name, b"other").expect_err("protected").to_string();
        assert!(said.contains("is write-protected; give another name"), "{said}");
    }
    assert_eq!(fs::read(&path).expect("there"), b"dear");
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2);
}

/// A link stays one, also one that leads to nothing yet, and what it leads to is written beside its place.
#[cfg(unix)]
#[test]
fn links_stay_links() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("sub")).expect("writable");
    fs::write(path("sub/there"), "before").expect("writable");
    symlink("sub/there", path("relative")).expect("links");
    symlink(path("relative"), path("absolute")).expect("links");
    symlink("sub/new", path("dangling")).expect("links");
    for (link, target) in [("relative", "sub/there"), ("absolute", "sub/there"), ("dangling", "sub/new")] {
        let file = AtomicFile::create(&path(link)).expect("writable");
        assert_eq!(fs::read_dir(path("sub")).expect("there").filter(is_part).count(), 1, "{link}");
        std::io::Write::write_all(&mut file.handle().expect("a handle"), link.as_bytes()).expect("writable");
        file.commit().expect("moved");
        assert!(fs::symlink_metadata(path(link)).expect("there").is_symlink(), "{link}");
        assert_eq!(fs::read(path(target)).expect("there"), link.as_bytes());
    }
    // Other names of a file keep what was there.
    fs::hard_link(path("sub/there"), path("other")).expect("links");
    write_atomically(&path("sub/there"), b"new").expect("writable");
    assert_eq!(fs::read(path("other")).expect("there"), b"absolute");
    // Links in a ring lead nowhere.
    symlink("ring", path("ring")).expect("links");
    let said = write_atomically(&path("ring"), b"").expect_err("nowhere").to_string();
    assert!(said.contains("leads nowhere"), "{said}");
}

#[cfg(unix)]
fn is_part(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().ends_with(".part"))
}

/// Of several files that are written to one place at once none takes another for left over, and the last one stays.
#[cfg(unix)]
#[test]
fn files_that_are_being_written_are_not_taken_for_left_over() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("file");
    fs::write(folder.path().join(".file.abc123.part"), "left over").expect("writable");
    // Not ours, by their names.
    for name in [".file.abc.part", ".file.npz.abc123.part", "file.abc123.part"] {
        fs::write(folder.path().join(name), "somebody's").expect("writable");
    }
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let path = &path;
            scope.spawn(move || (0..100).for_each(|_| write_atomically(path, &[number; 1000]).expect("writable")));
        }
    });
    let bytes = fs::read(&path).expect("there");
    assert!(bytes.len() == 1000 && bytes.iter().all(|byte| *byte == bytes[0]));
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 4);
}

/// Should the place have become one that no file can be moved to, the contents are kept, and the error says where.
#[test]
fn what_cannot_be_moved_to_its_place_is_kept() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("file.npz");
    let file = AtomicFile::create(&path).expect("writable");
    std::io::Write::write_all(&mut file.handle().expect("a handle"), b"the work of days").expect("writable");
    fs::create_dir_all(path.join("in the way")).expect("writable");
    let said = file.commit().expect_err("a folder").to_string();
    let names = names_in(folder.path());
    let kept = names.iter().find(|name| *name != "file.npz").expect("kept");
    assert!(kept.starts_with("file.npz.") && !kept.ends_with(".part"), "{kept}");
    assert!(said.contains("file.npz: cannot be replaced (") && said.contains(&format!("{kept} has it all: move it")), "{said}");
    assert_eq!(fs::read(folder.path().join(kept)).expect("there"), b"the work of days");
    // And it is left alone by those who come after.
    fs::remove_dir_all(&path).expect("there");
    write_atomically(&path, b"other").expect("writable");
    assert_eq!(names_in(folder.path()).len(), 2);
}

/// A name may be as long as the system lets it be; one that is longer is said once.
#[test]
fn long_names_are_names() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for name in ["n".repeat(255), "é".repeat(127)] {
        let path = folder.path().join(&name);
        write_atomically(&path, b"a").expect("writable");
        drop(attnlearn::files::Claim::take(&path).expect("free"));
        assert_eq!(fs::read(&path).expect("there"), b"a");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2);
    let name = "n".repeat(256);
    let said = write_atomically(&folder.path().join(&name), b"a").expect_err("too long").to_string();
    assert_eq!(said.matches(&name).count(), 1, "{said}");
}

#[test]
fn inspection_tells_what_a_file_is() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("layer.safetensors");
    small_layer().save(&path, &notes(&[("seed", "7")])).expect("writable");
    let summary = inspect(&path).expect("readable");
    let want = FileKind::Layer { m: 2, d: 2, d_out: 3, mask: Mask::Causal, key_bias: true, bias: true };
    assert_eq!(summary.content, want);
    assert_eq!(summary.format, FileFormat::Safetensors);
    assert_eq!(summary.metadata["seed"], "7");
    assert_eq!(summary.bytes, fs::metadata(&path).expect("there").len());
    let json = serde_json::to_value(&summary).expect("plain data");
    assert_eq!(json["content"]["kind"], "layer");
    assert_eq!(json["tensors"][0]["name"], "bias");
    assert_eq!(json["tensors"][0]["shape"][0], 3);

    let compressed = inspect(&golden("bad_compressed.npz")).expect("readable");
    assert!(matches!(compressed.content, FileKind::Unknown { .. }));
    assert!(compressed.tensors[0].problem.as_ref().is_some_and(|p| p.contains("compressed")));

    let other = folder.path().join("other.safetensors");
    let header = r#"{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#;
    fs::write(&other, safetensors(header, &[0; 4])).expect("writable");
    let summary = inspect(&other).expect("readable");
    assert!(matches!(summary.content, FileKind::Unknown { .. }));
    assert_eq!((summary.tensors[0].dtype.as_str(), summary.tensors[0].shape.as_slice()), ("BF16", [2].as_slice()));
}

#[test]
fn factors_are_kept() {
    let factor = |first: f64| Mat::from_fn(3, 1, |i, _| first + i as f64);
    let theta = Theta::LowRank { a: factor(1.0), b: factor(-2.0) };
    let head = Head::factored(factor(1.0), factor(-2.0), Mat::from_fn(3, 3, |i, j| (i + j) as f64));
    let layer = AttentionLayer::new(vec![head], None, Mask::None).expect("a valid layer");
    let back = AttentionLayer::from_bytes(&layer.to_bytes(&notes(&[])).expect("bytes"), "layer").expect("readable");
    assert_eq!(back.heads()[0].theta, theta);
}
