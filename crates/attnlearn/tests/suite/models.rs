//! Files of fitted models: read back they predict the same bits, and whatever is wrong with them is said.

use crate::common::{notes, safetensors, small_layer};
use attnlearn::features::ridge::{Options, Ridge};
use attnlearn::features::{
    FittedModel, KernelSpec, Learner, MapSpec, Mean, Model, Precision, Predictor, SetInputs, SetStream, Sets, Target,
};
use serde_json::{Value, json};

const D: usize = 3;
const KEYS: usize = 4;

/// Sets of two to four keys, with two targets if asked for.
fn sets(n: u64, seed: u64, targets: usize) -> Sets {
    let inputs = SetInputs { min_keys: 2, ..SetInputs::new(KEYS, D) };
    let target = Target::new(&"average:p=2".parse().expect("a target"), inputs, 5).expect("a target");
    let mut block = Sets::read(&SetStream::new(target, seed, n)).expect("sets").block().clone();
    if targets == 2 {
        block.y = block.y.iter().flat_map(|y| [*y, 1.0 - y * y]).collect();
        block.shape.targets = 2;
    }
    Sets::new(block)
}

/// Every kind of predictor.
fn learners() -> Vec<Learner> {
    let matrix = Mean::Matrix((0..16).map(|e| f64::from(e % 5) * 0.2 - 0.3).collect());
    let mut learners = vec![
        Learner::Kernel(KernelSpec::Rfa),
        Learner::Kernel(KernelSpec::Brfa { mean: Mean::Identity { scale: 1.0 } }),
        Learner::Kernel(KernelSpec::Brfa { mean: matrix.clone() }),
        Learner::Kernel(KernelSpec::Rfmlp),
    ];
    for precision in [Precision::F32, Precision::F64] {
        for model in [Model::Rfa, Model::Brfa, Model::Rfmlp, Model::Softmax, Model::RowRelu] {
            learners.push(Learner::Frozen { map: MapSpec::new(model, D, KEYS, 20, 7), precision });
        }
        let softmax = MapSpec { mean: matrix.clone(), inverse_temperature: 1.7, ..MapSpec::new(Model::Softmax, D, KEYS, 9, 8) };
        let narrow = MapSpec { width: Some(33), ..MapSpec::new(Model::Rfmlp, D, KEYS, 9, u64::MAX) };
        learners.extend([softmax, narrow].map(|map| Learner::Frozen { map, precision }));
    }
    learners
}

fn fit(learner: &Learner, targets: usize) -> FittedModel {
    let options = Options { ridge: Ridge::Given(1e-2), ..Default::default() };
    learner.fit(&sets(50, 1, targets), &options).expect("a fit")
}

fn bits(model: &FittedModel, on: &Sets) -> Vec<u64> {
    let prediction = model.prepare().expect("a map");
    prediction.predict(on.block()).expect("predictions").into_iter().map(f64::to_bits).collect()
}

#[test]
fn a_model_read_back_predicts_the_same_bits_on_any_number_of_threads() {
    let fresh = sets(70, 2, 1);
    for (i, learner) in learners().iter().enumerate() {
        let model = fit(learner, 1 + i % 2);
        let wanted = bits(&model, &fresh);
        assert_eq!(wanted.len(), 70 * (1 + i % 2));
        for weights in [false, true] {
            let bytes = model.to_bytes(&notes(&[("note", "a")]), weights).expect("bytes");
            let again = FittedModel::from_bytes(&bytes, "model").expect("just written");
            assert_eq!(again.to_bytes(&notes(&[("note", "a")]), weights).expect("bytes"), bytes, "{learner:?}");
            assert_eq!((again.ridge.to_bits(), again.shape), (model.ridge.to_bits(), model.shape));
            for threads in 1..=3 {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                assert!(pool.install(|| bits(&again, &fresh)) == wanted, "{learner:?}, weights {weights}, {threads} threads");
            }
        }
    }
}

/// What a model predicts is `b + Σ_j φ_j v_j`, and a changed value changes it: the test above compares something.
#[test]
fn values_and_intercepts_matter() {
    let fresh = sets(5, 2, 1);
    for learner in learners() {
        let model = fit(&learner, 1);
        let mut moved = model.clone();
        moved.intercept[0] += 1.0;
        assert_ne!(bits(&model, &fresh), bits(&moved, &fresh));
        let mut moved = model.clone();
        match &mut moved.predictor {
            Predictor::Frozen { v, .. } => v.iter_mut().for_each(|v| *v *= 1.5),
            Predictor::Kernel { alpha, .. } => alpha[0] += 1.0,
        }
        assert_ne!(bits(&model, &fresh), bits(&moved, &fresh), "{learner:?}");
    }
}

/// Header and data of a file.
fn parts(bytes: &[u8]) -> (Value, Vec<u8>) {
    let (len, rest) = bytes.split_first_chunk::<8>().expect("a header");
    let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
    (serde_json::from_slice(header).expect("JSON"), data.to_vec())
}

/// The file with its description, or the whole header, changed.
fn changed(bytes: &[u8], change: impl Fn(&mut Value, &mut Value)) -> Vec<u8> {
    let (mut header, data) = parts(bytes);
    let mut described: Value =
        serde_json::from_str(header["__metadata__"]["model"].as_str().expect("a description")).expect("JSON");
    change(&mut header, &mut described);
    if header["__metadata__"]["model"].is_string() {
        header["__metadata__"]["model"] = described.to_string().into();
    }
    safetensors(&header.to_string(), &data)
}

#[track_caller]
fn refused(bytes: &[u8], words: &str) {
    let said = FittedModel::from_bytes(bytes, "model").map(drop).expect_err("a bad model").to_string();
    assert!(said.starts_with("model") && said.contains(words) && said.lines().count() == 1, "{words}: {said}");
}

fn model_bytes(learner: &Learner) -> Vec<u8> {
    fit(learner, 1).to_bytes(&notes(&[]), false).expect("bytes")
}

#[test]
fn everything_that_can_be_wrong_with_a_model_is_said() {
    let frozen = model_bytes(&Learner::Frozen { map: MapSpec::new(Model::Brfa, D, KEYS, 6, 1), precision: Precision::F64 });
    let perceptron = model_bytes(&Learner::Frozen { map: MapSpec::new(Model::Rfmlp, D, KEYS, 6, 1), precision: Precision::F64 });
    let kernel = model_bytes(&Learner::Kernel(KernelSpec::Brfa { mean: Mean::Matrix(vec![0.0; 16]) }));

    refused(&[], "is empty");
    refused(b"not a model at all", "neither a safetensors nor an npz file");
    refused(&small_layer().to_bytes(&notes(&[])).expect("bytes"), "is not a model of attnlearn fit");
    refused(&changed(&frozen, |h, _| h["__metadata__"]["format"] = "other".into()), "is not a model of attnlearn fit");
    refused(&changed(&frozen, |h, _| drop(h["__metadata__"].as_object_mut().map(|m| m.remove("format")))), "is not a model");
    refused(&changed(&frozen, |h, _| h["__metadata__"]["version"] = "2".into()), "is a model of version 2; use an attnlearn");
    refused(&changed(&frozen, |h, _| h["__metadata__"]["version"] = "\u{1b}[31m".into()), "version \\u{1b}[31m");
    refused(&changed(&frozen, |h, _| drop(h["__metadata__"].as_object_mut().map(|m| m.remove("version")))), "without a version");
    refused(&changed(&frozen, |h, _| drop(h["__metadata__"].as_object_mut().map(|m| m.remove("model")))), "does not describe");
    refused(&changed(&frozen, |_, m| *m = json!("rfa")), "does not describe its model");
    refused(
        &changed(&frozen, |_, m| *m = json!({"ridge": 1.0, "shape": {"keys": 4, "d": 3, "targets": 1}})),
        "one map or one kernel",
    );
    refused(&changed(&frozen, |_, m| m["kernel"] = "rfa".into()), "one map or one kernel");
    refused(&changed(&frozen, |_, m| m["map"]["model"] = "mamba".into()), "mamba");
    refused(&changed(&frozen, |_, m| m["shape"]["targets"] = 2.into()), "2 targets");
    refused(&changed(&frozen, |_, m| m["ridge"] = (-1.0).into()), "ridge -1");
    refused(&changed(&frozen, |_, m| m["map"]["heads"] = 7.into()), "v has shape [24, 1], its model wants [28, 1]");
    refused(&changed(&frozen, |_, m| m["map"]["heads"] = 0.into()), "heads = 0");
    refused(&changed(&frozen, |_, m| m["map"]["d"] = 5.into()), "dimension 3 for a map of dimension 5");
    refused(&changed(&frozen, |_, m| m["map"]["mean"] = json!({"matrix": [1.0]})), "not a finite 4×4 matrix");
    refused(&changed(&perceptron, |_, m| m["map"]["keys"] = 3.into()), "sets of up to 4 keys for a map of 3");
    refused(&changed(&frozen, |h, _| h["v"]["shape"] = json!([1, 24])), "v has shape [1, 24]");
    refused(&changed(&frozen, |h, _| h["intercept"]["shape"] = json!([1, 1])), "intercept");
    refused(&changed(&frozen, |h, _| drop(h.as_object_mut().and_then(|m| m.remove("v")))), "");

    refused(&changed(&kernel, |h, _| h["x"]["shape"] = json!([50, 3, 5])), "do not fit together");
    refused(&changed(&kernel, |_, m| m["shape"]["keys"] = 3.into()), "do not fit together");
    refused(&changed(&kernel, |_, m| m["shape"]["keys"] = u64::MAX.into()), "do not fit together");
    refused(&changed(&kernel, |_, m| m["kernel"]["brfa"]["mean"] = json!({"matrix": [1.0, 2.0]})), "not a finite 4×4 matrix");
    refused(&changed(&kernel, |_, m| m["kernel"] = "mamba".into()), "mamba");

    // Numbers that are none, in every tensor; lengths out of range.
    for bytes in [&frozen, &kernel] {
        let (header, data) = parts(bytes);
        for (name, tensor) in header.as_object().expect("a header").iter().filter(|(name, _)| *name != "__metadata__") {
            let at = tensor["data_offsets"][0].as_u64().expect("an offset") as usize;
            let mut data = data.clone();
            if name == "length" {
                for length in [0i64, 5, -1, i64::MAX] {
                    data[at..at + 8].copy_from_slice(&length.to_le_bytes());
                    refused(&safetensors(&header.to_string(), &data), "length is not between 1 and N");
                }
            } else {
                data[at..at + 8].copy_from_slice(&f64::NAN.to_le_bytes());
                refused(&safetensors(&header.to_string(), &data), &format!("{name}: holds NaN"));
            }
        }
    }
    for bytes in [&frozen, &kernel] {
        for len in (0..bytes.len()).step_by(7) {
            refused(&bytes[..len], "");
        }
    }
}

/// Sizes that no machine has: refused when read, or else when the heads are to be drawn; never by running out of memory.
#[test]
fn absurd_sizes_are_refused() {
    let frozen = model_bytes(&Learner::Frozen { map: MapSpec::new(Model::Rfa, D, KEYS, 6, 1), precision: Precision::F64 });
    for heads in [1u64 << 40, 1 << 61, u64::MAX] {
        refused(&changed(&frozen, |_, m| m["map"]["heads"] = heads.into()), "");
    }
    for (map_d, shape_d) in [(1u64 << 40, 3), (u64::MAX, 3), (u64::MAX, u64::MAX)] {
        refused(
            &changed(&frozen, |_, m| {
                m["map"]["d"] = map_d.into();
                m["shape"]["d"] = shape_d.into();
            }),
            "",
        );
    }
    // As many neurons as the file has values for, each of them with 10¹⁵ weights.
    let perceptron = model_bytes(&Learner::Frozen { map: MapSpec::new(Model::Rfmlp, D, KEYS, 6, 1), precision: Precision::F64 });
    for keys in [1u64 << 48, 1 << 60, u64::MAX] {
        let bytes = changed(&perceptron, |_, m| m["map"]["keys"] = keys.into());
        let said = match FittedModel::from_bytes(&bytes, "model") {
            Ok(model) => model.prepare().map(drop).expect_err("no such memory").to_string(),
            Err(e) => e.to_string(),
        };
        assert!(said.contains("ask for fewer") || said.contains("more weights than memory"), "{said}");
    }
}
