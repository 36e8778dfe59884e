//! Damaged files of sets, models and sums are refused, or read as what they now say: every number is that of a second reader (`common::plain`).
//! No reader panics, and none asks for much more memory than the file has bytes. The damage is drawn from fixed seeds; `fuzz/` has the open-ended
//! form of these tests.

#[path = "suite/common/mod.rs"]
mod common;

use attnlearn::features::ridge::{Gram, Options, Ridge, Unwatched};
use attnlearn::features::{
    FittedModel, KernelSpec, Learner, MapSpec, Mean, Model, Precision, Predictor, SetBlock, SetFile, SetInputs, SetSource,
    SetStream, Sets, Target, Targets,
};
use attnlearn::inspect::FileSummary;
use common::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, which remembers the largest request.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)] // hands everything on unchanged
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// The files here have a few kilobytes.
const MODEST: usize = 64 << 20;

#[track_caller]
fn modest(what: &str) {
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest <= MODEST, "{what}: {largest} bytes at once");
}

fn stream(n: u64) -> SetStream {
    let inputs = SetInputs { min_keys: 2, ..SetInputs::new(3, 2) };
    let target = Target::new(&"average:p=2".parse().expect("a target"), inputs, 5).expect("a target");
    SetStream::new(target, 3, n)
}

/// Sets with lengths and weights.
fn valid_sets(extension: &str) -> Vec<u8> {
    use attnlearn::features::{SetColumns, SetWriter};
    use attnlearn::files::Dtype;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("sets").with_extension(extension);
    let sets = Sets::read(&stream(12)).expect("sets");
    let columns = SetColumns { x: Some(Dtype::F32), y: Some(Dtype::F64), length: true, weight: true };
    let mut writer = SetWriter::create(&path, sets.shape(), 12, columns).expect("a writer");
    writer.append(sets.block()).expect("room");
    writer.finish().expect("a file");
    std::fs::read(path).expect("just written")
}

fn models() -> Vec<Vec<u8>> {
    let map = |model| Learner::Frozen { map: MapSpec::new(model, 2, 3, 4, 7), precision: Precision::F64 };
    let biased = KernelSpec::Brfa { mean: Mean::Matrix(vec![0.5; 9]) };
    let options = Options { ridge: Ridge::Given(0.1), ..Default::default() };
    [map(Model::Brfa), map(Model::Rfmlp), Learner::Kernel(biased), Learner::Kernel(KernelSpec::Rfmlp)]
        .iter()
        .map(|learner| learner.fit(&stream(10), &options).expect("a fit").to_bytes(&notes(&[]), false).expect("bytes"))
        .collect()
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|v| v.to_bits()).collect()
}

/// Shows the bytes to every reader but Parquet's: each refuses them or says what the second reader does. How many accept.
fn show(bytes: &[u8]) -> usize {
    let mut accepted = usize::from(FileSummary::of_bytes(bytes, "file").is_ok());
    let tensors = plain::contents(bytes).map(|(tensors, _)| tensors).unwrap_or_default();
    let numbers = |name: &str| tensors.get(name).and_then(plain::Plain::numbers);
    for targets in [Targets::Required, Targets::Ignored] {
        if let Ok(file) = SetFile::from_bytes(bytes.to_vec(), "file", targets) {
            accepted += 1;
            let (shape, n) = (file.shape(), SetSource::len(&file) as usize);
            assert_eq!(tensors["x"].shape, [n, shape.keys + 1, shape.d]);
            let x = numbers("x").expect("numbers");
            let y = if targets == Targets::Required { numbers("y").expect("numbers") } else { Vec::new() };
            assert_eq!(y.len(), n * shape.targets);
            let (length, mask, weight) = (numbers("length"), numbers("mask"), numbers("weight"));
            assert!(length.is_none() || mask.is_none());
            let mut block = SetBlock::new(shape);
            if file.fill(0, &mut block).is_ok() {
                for (i, &keys) in block.lengths.iter().enumerate() {
                    let places = &x[i * (shape.keys + 1) * shape.d..][..(shape.keys + 1) * shape.d];
                    assert_eq!(bits(block.query(i)), bits(&places[..shape.d]));
                    assert_eq!(bits(block.targets(i)), bits(&y[i * shape.targets..(i + 1) * shape.targets]));
                    assert_eq!(block.weights[i].to_bits(), weight.as_ref().map_or(1.0, |weight| weight[i]).to_bits());
                    // The keys that are there, in their order.
                    let here = |place: usize| mask.as_ref().is_none_or(|mask| mask[i * shape.keys + place].abs() > 0.0);
                    let there: Vec<usize> = (0..shape.keys).filter(|place| here(*place)).collect();
                    let there = &there[..length.as_ref().map_or(there.len(), |length| length[i] as usize)];
                    assert_eq!(keys, there.len());
                    let wanted: Vec<f64> =
                        there.iter().flat_map(|p| &places[(1 + p) * shape.d..(2 + p) * shape.d]).copied().collect();
                    assert_eq!(bits(block.keys(i)), bits(&wanted));
                }
            }
            for index in [1, u64::MAX] {
                file.fill(index, &mut block).expect("nothing to read");
                assert!(block.is_empty());
            }
        }
    }
    if let Ok(model) = FittedModel::from_bytes(bytes, "file") {
        accepted += 1;
        assert_eq!(bits(&model.intercept), bits(&numbers("intercept").expect("numbers")));
        let (name, trained) = match &model.predictor {
            Predictor::Frozen { v, .. } => ("v", v),
            Predictor::Kernel { alpha, .. } => ("alpha", alpha),
        };
        assert_eq!(bits(trained), bits(&numbers(name).expect("numbers")));
        let written = model.to_bytes(&notes(&[]), false).expect("what was read can be written");
        let again = FittedModel::from_bytes(&written, "file").expect("just written");
        assert_eq!(again.to_bytes(&notes(&[]), false).expect("what was read can be written"), written);
        // Heads are drawn only for sets of the model's own sizes, which nobody has if they are absurd.
        if model.check_sets(stream(1).shape(), "sets").is_ok() && model.shape.keys <= 64 {
            let sets = Sets::read(&stream(4)).expect("sets");
            if let Ok(predicted) = model.prepare().and_then(|prediction| prediction.predict(sets.block())) {
                assert_eq!(predicted.len(), 4 * model.intercept.len());
            }
        }
    }
    accepted
}

#[test]
fn damaged_sets_and_models_are_refused_or_read_as_what_they_say() {
    let mut valid = vec![valid_sets("safetensors"), valid_sets("npz")];
    valid.extend(models());
    assert!(valid.iter().all(|bytes| show(bytes) > 1));
    let mut accepted = vec![0; valid.len()];
    each_damaged(&valid, |kind, bytes| {
        accepted[kind] += usize::from(show(bytes) > 1);
        modest(&format!("kind {kind}"));
    });
    // Enough damage is not seen, or there would be nothing to compare.
    assert!(accepted.iter().all(|n| *n > 50), "{accepted:?}");
}

#[test]
fn every_truncation_of_sets_and_models_is_refused() {
    let mut valid = vec![valid_sets("safetensors"), valid_sets("npz")];
    valid.extend(models());
    for bytes in valid {
        for len in 0..bytes.len() {
            assert!(SetFile::from_bytes(bytes[..len].to_vec(), "file", Targets::Required).is_err(), "{len}");
            assert!(FittedModel::from_bytes(&bytes[..len], "file").is_err(), "{len}");
        }
    }
}

/// Damage to a header's sizes is refused before memory is asked for; a Gram matrix cut short is refused.
#[test]
fn damaged_sums_are_refused_or_read_as_what_they_say() {
    let map = MapSpec::new(Model::Rfa, 2, 3, 3, 1).build::<f64>().expect("a map");
    let mut gram = Gram::new(9, 1);
    gram.add(map.as_ref(), &stream(20), 0..1, &Unwatched).expect("sums");
    let mut bytes = Vec::new();
    gram.write(&mut bytes).expect("memory");
    let mut again = Vec::new();
    Gram::read(&mut bytes.as_slice(), "sums").expect("just written").write(&mut again).expect("memory");
    assert_eq!(again, bytes);
    for len in 0..bytes.len() {
        assert!(Gram::read(&mut &bytes[..len], "sums").is_err(), "{len}");
    }
    let (mut rng, mut accepted) = (ChaCha8Rng::seed_from_u64(2), 0);
    for _ in 0..5000 {
        let mut damaged = bytes.clone();
        damage(&mut rng, &mut damaged, &bytes);
        if let Ok(sums) = Gram::read(&mut damaged.as_slice(), "sums") {
            let mut written = Vec::new();
            sums.write(&mut written).expect("memory");
            // What follows the sums in a file is not read.
            assert!(damaged.starts_with(&written), "another file is written than was read");
            accepted += 1;
        }
        modest("sums");
    }
    assert!(accepted > 100, "{accepted}");
}
