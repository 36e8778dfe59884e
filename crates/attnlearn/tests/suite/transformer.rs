//! Layers of transformers: read under every family's names, checked against a forward pass written here from the raw tensors, and written back.

use crate::common::safetensors;
use attnlearn::layer::{AttentionLayer, Head, Mask, Theta};
use attnlearn::linalg::Mat;
use attnlearn::transformer::{Lost, ModelFile, Projections, ROUNDING, Request, Style};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) const D: usize = 12;
pub(crate) const HEADS: usize = 3;

/// A tensor of `f64`.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub shape: Vec<usize>,
    pub numbers: Vec<f64>,
}

pub(crate) type Tensors = BTreeMap<String, Tensor>;

pub(crate) fn random(shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    let numbers = (0..shape.iter().product()).map(|_| 0.4 * rng.sample::<f64, _>(StandardNormal)).collect();
    Tensor { shape: shape.to_vec(), numbers }
}

/// The file with these tensors, each number written by `encode`.
pub(crate) fn file(tensors: &Tensors, dtype: &str, encode: impl Fn(f64) -> Vec<u8>) -> Vec<u8> {
    let (mut entries, mut data) = (Vec::new(), Vec::new());
    for (name, tensor) in tensors {
        let from = data.len();
        tensor.numbers.iter().for_each(|&v| data.extend(encode(v)));
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{:?},"data_offsets":[{from},{}]}}"#,
            tensor.shape,
            data.len()
        ));
    }
    safetensors(&format!("{{{}}}", entries.join(",")), &data)
}

pub(crate) fn doubles(tensors: &Tensors) -> Vec<u8> {
    file(tensors, "F64", |v| v.to_le_bytes().to_vec())
}

/// A folder with `model.safetensors` and a configuration.
pub(crate) fn model(tensors: &Tensors, config: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, doubles(tensors)).expect("a file");
    if !config.is_empty() {
        std::fs::write(folder.path().join("config.json"), config).expect("a file");
    }
    (folder, path)
}

/// Weights `[out, in]` with biases, as `torch.nn.Linear` has them, for queries, keys, values and outputs.
pub(crate) struct Raw {
    pub weights: [Tensor; 4],
    pub biases: [Tensor; 4],
}

impl Raw {
    pub fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        Self {
            weights: std::array::from_fn(|_| random(&[D, D], &mut rng)),
            biases: std::array::from_fn(|_| random(&[D], &mut rng)),
        }
    }

    /// `x Wᵀ + b`.
    fn linear(&self, which: usize, x: &[f64]) -> Vec<f64> {
        let (w, b) = (&self.weights[which].numbers, &self.biases[which].numbers);
        (0..D).map(|o| b[o] + (0..D).map(|i| x[i] * w[o * D + i]).sum::<f64>()).collect()
    }

    /// What a transformer's layer gives, token by token.
    pub fn forward(&self, x: &[Vec<f64>], causal: bool, scale: f64) -> Vec<Vec<f64>> {
        let all = |which: usize| x.iter().map(|x| self.linear(which, x)).collect::<Vec<_>>();
        let (q, k, v) = (all(0), all(1), all(2));
        let r = D / HEADS;
        (0..x.len())
            .map(|a| {
                let mut pooled = vec![0.0; D];
                for h in 0..HEADS {
                    let part = h * r..(h + 1) * r;
                    let seen = if causal { a + 1 } else { x.len() };
                    let weight = |b: usize| (scale * part.clone().map(|j| q[a][j] * k[b][j]).sum::<f64>()).exp();
                    let total: f64 = (0..seen).map(weight).sum();
                    for b in 0..seen {
                        part.clone().for_each(|j| pooled[j] += weight(b) / total * v[b][j]);
                    }
                }
                self.linear(3, &pooled)
            })
            .collect()
    }

    /// Under a family's names.
    pub fn named(&self, family: &str, prefix: &str) -> Tensors {
        let fused = |tensors: &[Tensor]| tensors.iter().flat_map(|t| t.numbers.clone()).collect::<Vec<f64>>();
        let transposed = |t: &Tensor| {
            let (rows, cols) = (t.shape[0], t.shape[1]);
            let numbers = (0..rows * cols).map(|at| t.numbers[at % rows * cols + at / rows]).collect();
            Tensor { shape: vec![cols, rows], numbers }
        };
        let mut tensors = Tensors::new();
        let mut put = |name: &str, tensor: Tensor| tensors.insert(format!("{prefix}{name}"), tensor);
        let three = Tensor { shape: vec![3 * D, D], numbers: fused(&self.weights[..3]) };
        let biases = Tensor { shape: vec![3 * D], numbers: fused(&self.biases[..3]) };
        let names: [&str; 4] = match family {
            "bert" => ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"],
            "vit" => {
                ["attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense"]
            }
            "distilbert" => ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"],
            "timm" => ["attn.qkv", "", "", "attn.proj"],
            "gpt2" => ["attn.c_attn", "", "", "attn.c_proj"],
            _ => ["in_proj", "", "", "out_proj"],
        };
        let turn = |t: Tensor| if family == "gpt2" { transposed(&t) } else { t };
        if names[1].is_empty() {
            let join = if family == "mha" { "_" } else { "." };
            put(&format!("{}{join}weight", names[0]), turn(three));
            put(&format!("{}{join}bias", names[0]), biases);
        } else {
            for i in 0..3 {
                put(&format!("{}.weight", names[i]), self.weights[i].clone());
                put(&format!("{}.bias", names[i]), self.biases[i].clone());
            }
        }
        put(&format!("{}.weight", names[3]), turn(self.weights[3].clone()));
        put(&format!("{}.bias", names[3]), self.biases[3].clone());
        tensors
    }
}

pub(crate) fn tokens(n: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| (0..D).map(|_| rng.sample(StandardNormal)).collect()).collect()
}

pub(crate) fn apply(layer: &AttentionLayer, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let out = layer.forward_one(Mat::from_fn(x.len(), D, |a, e| x[a][e]).as_ref());
    (0..x.len()).map(|a| (0..out.ncols()).map(|e| out[(a, e)]).collect()).collect()
}

#[track_caller]
pub(crate) fn same(a: &[Vec<f64>], b: &[Vec<f64>], tolerance: f64) {
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        assert!((a - b).abs() < tolerance, "{a} {b}");
    }
}

pub(crate) fn request(layer: usize) -> Request {
    Request { layer, ..Request::default() }
}

#[track_caller]
pub(crate) fn refusal(path: &Path, request: &Request) -> String {
    let opened = ModelFile::open(path);
    opened.and_then(|model| model.attention(request)).map(|(_, found)| found).expect_err("a refusal").to_string()
}

#[test]
fn every_family_is_read() {
    let plain = 1.0 / (D as f64 / HEADS as f64).sqrt();
    for (family, prefix, config) in [
        ("bert", "bert.encoder.layer.4.", r#"{"num_attention_heads": 3, "position_embedding_type": "absolute"}"#),
        ("bert", "encoder.layer.4.", r#"{"num_attention_heads": 3, "is_decoder": true}"#),
        ("vit", "vit.encoder.layer.4.", r#"{"num_attention_heads": 3}"#),
        ("distilbert", "distilbert.transformer.layer.4.", r#"{"n_heads": 3}"#),
        ("timm", "blocks.4.", r#"{"num_heads": 3}"#),
        ("gpt2", "transformer.h.4.", r#"{"n_head": 3}"#),
        ("gpt2", "h.4.", r#"{"n_head": 3, "scale_attn_weights": false}"#),
        ("gpt2", "h.4.", r#"{"n_head": 3, "scale_attn_by_inverse_layer_idx": true}"#),
        ("mha", "layers.4.self_attn.", r#"{"num_heads": 3}"#),
    ] {
        let raw = Raw::new(7);
        let mut tensors = raw.named(family, prefix);
        // Other layers and other tensors are left alone.
        tensors.extend(Raw::new(8).named(family, &prefix.replace('4', "3")));
        tensors.insert("embeddings.weight".into(), random(&[5, D], &mut ChaCha8Rng::seed_from_u64(0)));
        let (_folder, path) = model(&tensors, config);
        let opened = ModelFile::open(&path).expect("a model");
        assert_eq!(opened.layers().iter().map(|l| l.layer).collect::<Vec<_>>(), [3, 4]);
        let imported = opened.import(&request(4)).expect("a layer");
        let (layer, projections, found) = (&imported.layer, &imported.projections, &imported.found);
        assert_eq!((found.family, found.prefix.as_str()), (family, prefix));
        assert!(imported.gap < 1e-12 && !imported.confirmed);
        // The check counts every tensor of the layer.
        assert_eq!(imported.tensors.len(), tensors.keys().filter(|name| name.starts_with(prefix)).count());
        assert_eq!((layer.heads().len(), projections.head_dim()), (HEADS, D / HEADS));
        let causal = family == "gpt2" || config.contains("is_decoder");
        assert_eq!(layer.mask() == Mask::Causal, causal);
        let scale = if config.contains("weights") { 1.0 } else { plain / if config.contains("inverse") { 5.0 } else { 1.0 } };
        for n in [1, 2, 6] {
            let x = tokens(n, n as u64);
            same(&apply(layer, &x), &raw.forward(&x, causal, scale), 1e-12);
        }
        assert!(projections.gap(layer) < 1e-13);
    }
}

/// The check that `import` makes is one that can fail.
#[test]
fn a_wrong_layer_is_seen() {
    let (_folder, path) = model(&Raw::new(1).named("mha", ""), "");
    let asked = Request { heads: Some(HEADS), ..Request::default() };
    let (projections, _) = ModelFile::open(&path).and_then(|model| model.attention(&asked)).expect("a layer");
    let mut wrong = projections.clone();
    wrong.q_bias[0] += 1e-3;
    assert!(projections.gap(&wrong.fold().expect("finite")) > 1e-6);
    let causal = Projections { mask: Mask::Causal, ..projections.clone() };
    assert!(projections.gap(&causal.fold().expect("finite")) > 1e-3);
}

#[test]
fn models_in_several_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let all = Raw::new(2).named("bert", "encoder.layer.0.");
    let (first, second): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(i, _)| i % 2 == 0);
    let mut map = Vec::new();
    for (part, file) in [(first, "model-00001-of-00002.safetensors"), (second, "model-00002-of-00002.safetensors")] {
        let tensors: Tensors = part.into_iter().map(|(_, (name, tensor))| (name.clone(), tensor.clone())).collect();
        map.extend(tensors.keys().map(|name| format!(r#""{name}": "{file}""#)));
        std::fs::write(at(file), doubles(&tensors)).expect("a file");
    }
    let index = at("model.safetensors.index.json");
    std::fs::write(&index, format!(r#"{{"weight_map": {{{}}}}}"#, map.join(","))).expect("a file");
    std::fs::write(at("config.json"), r#"{"num_attention_heads": 3}"#).expect("a file");
    let (_whole, whole) = model(&all, r#"{"num_attention_heads": 3}"#);
    let read = |path: &Path| ModelFile::open(path).and_then(|model| model.attention(&request(0))).expect("a layer").0;
    assert_eq!(read(&index), read(&whole));
    assert_eq!(read(folder.path()), read(&whole));
    // One shard alone says what is missing; an index that points elsewhere is not followed.
    assert!(refusal(&at("model-00001-of-00002.safetensors"), &request(0)).contains("has no"));
    for (text, said) in [
        (r#"{"weight_map": {"a": "../model.safetensors"}}"#, "other folders"),
        (r#"{"weight_map": {}}"#, "names no files"),
        (r"{}", "weight_map"),
        ("{", "no JSON"),
        (r#"{"weight_map": {"a": "absent.safetensors"}}"#, "does not exist"),
    ] {
        std::fs::write(&index, text).expect("a file");
        let message = refusal(&index, &request(0));
        assert!(message.contains(said), "{message}");
    }
    // A tensor that stands in two files: which of them is read would be chance.
    let (one, other) = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    std::fs::write(at(other), doubles(&all)).expect("a file");
    std::fs::write(&index, format!(r#"{{"weight_map": {{"a": "{one}", "b": "{other}"}}}}"#)).expect("a file");
    let message = refusal(&index, &request(0));
    assert!(message.contains(one) && message.contains(other) && message.contains("stands in"), "{message}");
    let empty = tempfile::tempdir().expect("a folder");
    assert!(refusal(empty.path(), &request(0)).contains("neither"));
}

#[test]
fn numbers_of_half_precision() {
    let mut tensors = Raw::new(3).named("mha", "");
    // Exact in both formats: a sign, few bits, moderate exponents.
    let exact = [1.0, -1.5, 0.25, -0.0078125, 3.5, 0.0, -2.0];
    for tensor in tensors.values_mut() {
        tensor.numbers.iter_mut().enumerate().for_each(|(i, v)| *v = exact[i % exact.len()]);
    }
    let asked = Request { heads: Some(HEADS), ..Request::default() };
    let folder = tempfile::tempdir().expect("a folder");
    let read = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        ModelFile::open(&path).and_then(|model| model.attention(&asked)).map(|(projections, _)| projections)
    };
    let half = |v: f64| {
        let bits = (v as f32).to_bits();
        let (sign, exponent, fraction) = (bits >> 31, bits >> 23 & 255, bits >> 13 & 1023);
        let exponent = if exponent == 0 { 0 } else { exponent - 112 };
        ((sign << 15 | exponent << 10 | fraction) as u16).to_le_bytes().to_vec()
    };
    let wide = read("f64", doubles(&tensors)).expect("a layer");
    let bf16 = file(&tensors, "BF16", |v| (((v as f32).to_bits() >> 16) as u16).to_le_bytes().to_vec());
    assert_eq!(read("bf16", bf16).expect("a layer"), wide);
    assert_eq!(read("f16", file(&tensors, "F16", half)).expect("a layer"), wide);
    assert_eq!(read("f32", file(&tensors, "F32", |v| (v as f32).to_le_bytes().to_vec())).expect("a layer"), wide);
    // The smallest number below the normal ones, the largest, and what is not finite.
    for (bits, value) in [(0x0001_u16, Some(2f64.powi(-24))), (0x7bff, Some(65504.0)), (0x7c00, None), (0x7e00, None)] {
        let found = read("f16", file(&tensors, "F16", |_| bits.to_le_bytes().to_vec()));
        match value {
            Some(value) => assert!((found.expect("a layer").q[(0, 0)] - value).abs() <= 0.0),
            None => assert!(found.expect_err("not finite").to_string().contains("holds")),
        }
    }
    let whole = read("i64", file(&tensors, "I64", |v| (v as i64).to_le_bytes().to_vec())).expect_err("whole numbers");
    assert!(whole.to_string().contains("I64"), "{whole}");
}

/// A layer with heads of rank 3, key biases and an output bias.
pub(crate) fn layer(mask: Mask, seed: u64) -> AttentionLayer {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut matrix = |rows, cols| Mat::from_fn(rows, cols, |_, _| 0.5 * rng.sample::<f64, _>(StandardNormal));
    let heads = (0..2).map(|_| Head {
        theta: Theta::LowRank { a: matrix(D, 3), b: matrix(D, 3) },
        key_bias: Some(matrix(D, 1).col_as_slice(0).to_vec()),
        w: matrix(D, 3) * matrix(3, D),
        terms: attnlearn::layer::Terms::default(),
    });
    let heads = heads.collect();
    let bias = matrix(D, 1).col_as_slice(0).to_vec();
    AttentionLayer::new(heads, Some(bias), mask).expect("a layer")
}

/// Written and read back, the layer is the same function; a dimension above the rank makes room for any key bias.
#[test]
fn what_is_written_is_read_back() {
    for (style, mask) in [
        (Style::Bert, Mask::None),
        (Style::Vit, Mask::None),
        (Style::DistilBert, Mask::None),
        (Style::Gpt2, Mask::Causal),
        (Style::Mha, Mask::None),
    ] {
        let layer = layer(mask, 5);
        let (projections, lost) = Projections::unfold(&layer, 4).expect("factors");
        assert!(lost.iter().all(|lost| lost.worst() < 1e-12), "{lost:?}");
        assert!(projections.gap(&layer) < 1e-12);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.safetensors");
        std::fs::write(&path, projections.to_bytes(style, 6).expect("weights")).expect("a file");
        // Four dimensions a head, twelve in all: one head is silent.
        let asked = Request { layer: if style == Style::Mha { 0 } else { 6 }, heads: Some(3), ..Request::default() };
        let (read, _) = ModelFile::open(&path).and_then(|model| model.attention(&asked)).expect("a layer");
        let x = tokens(5, 1);
        same(&apply(&read.fold().expect("finite"), &x), &apply(&layer, &x), 1e-11);
    }
}

/// Who reads a file divides scores by `√r`: what was imported with another scale is the same function all the same.
#[test]
fn other_scales_are_written_too() {
    for config in [r#"{"n_head": 3, "scale_attn_weights": false}"#, r#"{"n_head": 3, "scale_attn_by_inverse_layer_idx": true}"#] {
        let raw = Raw::new(7);
        let (_folder, path) = model(&raw.named("gpt2", "h.4."), config);
        let (projections, _) = ModelFile::open(&path).and_then(|model| model.attention(&request(4))).expect("a layer");
        let wanted = apply(&projections.fold().expect("finite"), &tokens(5, 1));
        std::fs::write(&path, projections.to_bytes(Style::Gpt2, 4).expect("weights")).expect("a file");
        std::fs::write(path.with_file_name("config.json"), "{}").expect("a file");
        let (read, _) = ModelFile::open(&path).and_then(|model| model.attention(&request(4))).expect("a layer");
        same(&apply(&read.fold().expect("finite"), &tokens(5, 1)), &wanted, 1e-12);
    }
}

/// Losses are measured at any size: squares of enormous and of tiny numbers are none.
#[test]
fn losses_are_seen_at_any_size() {
    let usual = layer(Mask::None, 5);
    for by in [1.0, 1e160, 1e200, 1e-170, 1e-300] {
        let grown = |theta: bool| {
            let heads = usual.heads().iter().map(|head| Head {
                theta: Theta::Dense(head.theta.to_dense() * faer::Scale(if theta { by } else { 1.0 })),
                key_bias: head.key_bias.as_ref().map(|c| c.iter().map(|c| by * c).collect()),
                w: &head.w * faer::Scale(by),
                terms: attnlearn::layer::Terms::default(),
            });
            AttentionLayer::new(heads.collect(), None, Mask::None).expect("finite")
        };
        for layer in [grown(true), grown(false)] {
            // No room for c, and no room for Θ and W.
            for r in [3, 2] {
                let (lost, wanted) =
                    (Projections::unfold(&layer, r).expect("factors").1, Projections::unfold(&usual, r).expect("factors").1);
                for (lost, wanted) in lost.iter().zip(&wanted) {
                    let pairs = [(lost.theta, wanted.theta), (lost.w, wanted.w), (lost.key_bias, wanted.key_bias)];
                    for (lost, wanted) in pairs {
                        assert!((lost - wanted).abs() < 1e-9, "{by:e}: {lost} {wanted}");
                    }
                    assert!(wanted.worst() > 1e-3 && lost.what() == wanted.what());
                }
            }
            // A free column takes what is left, and the dimension that is named has room.
            assert_eq!(Projections::head_dim_for(&layer, Style::Factors).expect("finite"), Some(4), "{by:e}");
            let (projections, lost) = Projections::unfold(&layer, 4).expect("factors");
            assert!(lost.iter().all(|lost| lost.worst() < 1e-12), "{by:e}: {lost:?}");
            assert!(projections.to_bytes(Style::Factors, 0).is_ok());
        }
    }
    // What is not a number is a loss.
    let lost = Lost { theta: 0.0, key_bias: f64::NAN, w: 0.5 };
    assert!(lost.worst().is_infinite() && lost.what() == "c");
}

/// The head dimension that is named has room for the layer, and one less has not; a family's own divisors count.
#[test]
fn the_least_head_dimension_is_found() {
    let kinds = [
        (layer(Mask::None, 3), 4),
        (
            AttentionLayer::new(
                layer(Mask::None, 3).heads().iter().map(|h| Head { key_bias: None, ..h.clone() }).collect(),
                None,
                Mask::None,
            )
            .expect("a layer"),
            3,
        ),
    ];
    for (layer, least) in kinds {
        assert_eq!(Projections::head_dim_for(&layer, Style::Factors).expect("finite"), Some(least));
        let worst = |r: usize| {
            let lost = Projections::unfold(&layer, r).expect("factors").1;
            lost.iter().map(|lost| lost.worst()).fold(0.0, f64::max)
        };
        assert!(worst(least) < ROUNDING && worst(least - 1) > 1e-3);
    }
    // Two heads in twelve dimensions: 4 is a divisor, and with full rank none is small enough.
    assert_eq!(Projections::head_dim_for(&layer(Mask::None, 3), Style::Bert).expect("finite"), Some(4));
    let full = Mat::from_fn(D, D, |i, j| if i == j { 1.0 } else { 0.1 });
    let full =
        AttentionLayer::new(vec![Head::dense(full.clone(), full.clone()), Head::dense(full.clone(), full)], None, Mask::None);
    let full = full.expect("a layer");
    assert_eq!(Projections::head_dim_for(&full, Style::Bert).expect("finite"), None);
    assert_eq!(Projections::head_dim_for(&full, Style::Factors).expect("finite"), Some(D));
}

/// Sizes are refused before memory is taken, and so are numbers that a family's programs cannot hold.
#[test]
fn impossible_exports_are_refused() {
    let message = |r: usize| Projections::unfold(&layer(Mask::None, 1), r).expect_err("a refusal").to_string();
    for r in [0, D + 1, 99_999_999_999, usize::MAX] {
        assert!(message(r).starts_with("head dimension: "), "{}", message(r));
    }
    let scaled = |by: f64| {
        let heads = layer(Mask::None, 1)
            .heads()
            .iter()
            .map(|h| Head { w: Mat::from_fn(D, D, |i, j| by * h.w[(i, j)]), ..h.clone() })
            .collect();
        AttentionLayer::new(heads, None, Mask::None).expect("finite")
    };
    let huge = Projections::unfold(&scaled(1e100), 4).expect("factors").0;
    let said = huge.to_bytes(Style::Bert, 0).expect_err("beyond single precision").to_string();
    assert!(said.contains("encoder.layer.0.attention.self.value.weight") && said.contains("3.4e38"), "{said}");
    assert!(huge.to_bytes(Style::Factors, 0).is_ok());
    // A product of factors that is not finite.
    let theta = Theta::LowRank { a: Mat::from_fn(D, 1, |_, _| 1e200), b: Mat::from_fn(D, 1, |_, _| 1e200) };
    let w = Mat::from_fn(D, D, |_, _| 1.0);
    let layer =
        AttentionLayer::new(vec![Head { theta, key_bias: None, w, terms: attnlearn::layer::Terms::default() }], None, Mask::None)
            .expect("finite factors");
    let said = Projections::unfold(&layer, 2).expect_err("a refusal").to_string();
    assert!(said.contains("head 1") && said.contains('Θ'), "{said}");
}

/// The best approximation of lower rank: what is lost is the tail of the singular values.
#[test]
fn what_is_lost_is_said() {
    let layer = layer(Mask::None, 9);
    let (_, lost) = Projections::unfold(&layer, 2).expect("factors");
    for (head, lost) in layer.heads().iter().zip(&lost) {
        for (matrix, said) in [(head.theta.to_dense(), lost.theta), (head.w.clone(), lost.w)] {
            let values = matrix.singular_values().expect("finite");
            let (tail, all) = (values[2..].iter().map(|s| s * s).sum::<f64>(), values.iter().map(|s| s * s).sum::<f64>());
            assert!((said - (tail / all).sqrt()).abs() < 1e-10, "{said}");
            assert!(said > 1e-3);
        }
        assert!(lost.key_bias > 1e-3 && lost.key_bias < 1.0);
    }
}

#[test]
fn what_a_family_cannot_hold_is_refused() {
    let plain = layer(Mask::None, 1);
    let with = |r: usize| Projections::unfold(&plain, r).expect("factors").0;
    for (projections, style, said) in [
        (with(5), Style::Bert, "do not make up 12"),
        (with(12), Style::Mha, "do not make up 12"),
        (with(4), Style::Gpt2, "causal"),
        (Projections::unfold(&layer(Mask::Causal, 1), 4).expect("factors").0, Style::Bert, "causal"),
    ] {
        let message = projections.to_bytes(style, 0).expect_err("a refusal").to_string();
        assert!(message.contains(said), "{message}");
    }
    assert!(with(5).to_bytes(Style::Factors, 0).is_ok());
    assert!(Projections::unfold(&plain, 0).is_err());
}

#[test]
fn other_layers_are_refused_with_the_reason() {
    let bert = || Raw::new(4).named("bert", "encoder.layer.0.");
    let config = r#"{"num_attention_heads": 3}"#;
    let with = |name: &str, shape: &[usize]| {
        let mut tensors = bert();
        tensors.insert(name.into(), random(shape, &mut ChaCha8Rng::seed_from_u64(0)));
        tensors
    };
    let key = "encoder.layer.0.attention.self.key.weight";
    let without = |name: &str| {
        let mut tensors = bert();
        tensors.remove(name);
        tensors
    };
    let only = |name: &str| Tensors::from([(name.to_owned(), random(&[D, D], &mut ChaCha8Rng::seed_from_u64(0)))]);
    let twice: Tensors = bert().into_iter().chain(Raw::new(5).named("bert", "decoder.layer.0.")).collect();
    for (tensors, config, said) in [
        (only("model.layers.0.self_attn.o_proj.weight"), config, "RoPE"),
        (only("h.0.rotary_emb.inv_freq"), config, "RoPE"),
        (only("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"), config, "positions"),
        (with("encoder.layer.0.attention.self.distance_embedding.weight", &[3, 4]), config, "distances"),
        (bert(), r#"{"num_attention_heads": 3, "position_embedding_type": "relative_key"}"#, "relative_key"),
        (only("conv.weight"), config, "found: conv.weight"),
        (only("conv.weight"), config, "in_proj_weight (mha)"),
        (without(key), config, "has no tensor encoder.layer.0.attention.self.key.weight"),
        (with(key, &[D / 3, D]), config, "grouped keys"),
        (with(key, &[D, D + 1]), config, "other tokens"),
        (with(key, &[D]), config, "two dimensions"),
        (with("encoder.layer.0.attention.self.query.bias", &[D - 1]), config, "bias does not fit"),
        (bert(), "", "give their number with heads"),
        (bert(), r#"{"num_attention_heads": 5}"#, "5 heads cannot share"),
        (bert(), "[", "no JSON"),
        (twice, config, "'decoder.layer.0.', 'encoder.layer.0.'"),
    ] {
        let (_folder, path) = model(&tensors, config);
        let message = refusal(&path, &request(0));
        assert!(message.contains(said) && !message.contains('\n'), "no {said:?} in {message}");
    }
    let (_folder, path) = model(&bert(), config);
    assert!(refusal(&path, &request(7)).contains("its layers are 0 to 0"));
    let asked = Request { prefix: Some("encoder.layer.9".into()), ..Request::default() };
    assert!(refusal(&path, &asked).contains("'encoder.layer.0.'"));
    let asked = Request { prefix: Some("encoder.layer.0".into()), ..Request::default() };
    assert!(ModelFile::open(&path).and_then(|model| model.attention(&asked)).is_ok());
}
