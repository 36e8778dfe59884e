//! Maps against their definitions, their promises about bits, and their limits.

use super::*;
use crate::linalg::lanes::Real;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const MODELS: [Model; 5] = [Model::Rfa, Model::Brfa, Model::Rfmlp, Model::Softmax, Model::RowRelu];

/// Sets on the unit sphere whose numbers of keys are given.
fn sphere(d: usize, keys: usize, lengths: &[usize], seed: u64) -> SetBlock {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut block = SetBlock::new(SetShape { keys, d, targets: 1 });
    for &n in lengths {
        let mut tokens: Vec<f64> = (0..(n + 1) * d).map(|_| rng.sample(StandardNormal)).collect();
        for x in tokens.chunks_exact_mut(d) {
            let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
            x.iter_mut().for_each(|v| *v /= norm);
        }
        block.push(&tokens, &[0.0], 1.0);
    }
    block
}

fn extended(x: &[f64]) -> Vec<f64> {
    x.iter().copied().chain([1.0]).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Features of set `i` by their definition, and the same sums with absolute values of the summands: what rounding scales with.
fn plain(spec: &MapSpec, weights: &[f64], sets: &SetBlock, i: usize) -> (Vec<f64>, Vec<f64>) {
    let (d, p) = (spec.d, spec.features());
    let (mut features, mut sizes) = (vec![0.0; p], vec![0.0; p]);
    if spec.model == Model::Rfmlp {
        let mut x = vec![0.0; (spec.keys + 1) * d + 1];
        x[..d].copy_from_slice(sets.query(i));
        x[d..][..sets.keys(i).len()].copy_from_slice(sets.keys(i));
        x[(spec.keys + 1) * d] = 1.0;
        for (j, w) in weights.chunks_exact(x.len()).enumerate() {
            features[j] = dot(w, &x).max(0.0);
            sizes[j] = w.iter().zip(&x).map(|(w, x)| (w * x).abs()).sum();
        }
        return (features, sizes);
    }
    let (side, n) = (d + 1, sets.lengths[i] as f64);
    let query = extended(sets.query(i));
    let keys: Vec<Vec<f64>> = sets.keys(i).chunks_exact(d).map(extended).collect();
    for (m, w) in weights.chunks_exact(side * side).enumerate() {
        let logit = |key: &Vec<f64>| (0..side).map(|c| query[c] * dot(&w[c * side..][..side], key)).sum::<f64>();
        let logits: Vec<f64> = keys.iter().map(logit).collect();
        let a: Vec<f64> = match spec.model {
            Model::Softmax => logits.iter().map(|l| (spec.inverse_temperature * l).exp()).collect(),
            _ => logits.iter().map(|l| l.max(0.0)).collect(),
        };
        let total = if matches!(spec.model, Model::Rfa | Model::Brfa) { n } else { a.iter().sum() };
        for e in 0..side {
            let index = feature_index(spec.heads, d, m, e);
            for (a, key) in a.iter().zip(&keys).filter(|(a, _)| **a > 0.0) {
                features[index] += a / total * key[e];
                sizes[index] += a / total * key[e].abs();
            }
        }
    }
    (features, sizes)
}

fn spec(model: Model, d: usize, keys: usize, heads: usize, seed: u64) -> MapSpec {
    let mut spec = MapSpec::new(model, d, keys, heads, seed);
    if model == Model::Softmax {
        spec.inverse_temperature = 1.5;
        spec.mean = Mean::Matrix((0..(d + 1) * (d + 1)).map(|i| 0.1 * (i % 7) as f64 - 0.3).collect());
    }
    if model == Model::Rfmlp && seed % 2 == 1 {
        spec.width = Some(heads);
    }
    spec
}

/// Largest differences of double and of single precision from the definition.
fn differences(spec: &MapSpec, sets: &SetBlock) -> (f64, f64) {
    let weights = spec.weights().unwrap();
    let double = features_of(spec.build::<f64>().unwrap().as_ref(), sets);
    let single = features_of(spec.build::<f32>().unwrap().as_ref(), sets);
    let p = spec.features();
    assert_eq!((double.len(), single.len()), (sets.len() * p, sets.len() * p));
    let mut worst = (0.0f64, 0.0f64);
    for i in 0..sets.len() {
        let (plain, _) = plain(spec, &weights, sets, i);
        for j in 0..p {
            worst.0 = worst.0.max((double[i * p + j] - plain[j]).abs());
            worst.1 = worst.1.max((f64::from(single[i * p + j]) - plain[j]).abs());
        }
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn features_are_their_definition(
        model in prop::sample::select(&MODELS[..]),
        (d, keys, heads, seed) in (1usize..9, 1usize..10, 1usize..150, 0u64..1000),
        draws in prop::collection::vec(0usize..1000, 1..11),
    ) {
        let lengths: Vec<usize> = draws.iter().map(|n| 1 + n % keys).collect();
        let (double, single) = differences(&spec(model, d, keys, heads, seed), &sphere(d, keys, &lengths, seed));
        prop_assert!(double < if model == Model::RowRelu { 1e-7 } else { 1e-13 }, "{double:e}");
        // Row-normalised weights magnify rounding where all logits of a head are near zero, which random heads sometimes are.
        prop_assert!(model == Model::RowRelu || single < 2e-5, "{single:e}");
    }
}

#[test]
fn the_smallest_and_the_raggedest_sizes() {
    for model in MODELS {
        for (d, keys, heads) in [(1, 1, 1), (1, 5, 17), (3, 1, 15), (16, 16, 129), (2, 3, 128), (2, 3, 143), (2, 3, 272)] {
            let lengths: Vec<usize> = (0..9).map(|i| 1 + i * 5 % keys).collect();
            let (double, _) = differences(&spec(model, d, keys, heads, 3), &sphere(d, keys, &lengths, 8));
            assert!(double < 1e-10, "{model:?} d = {d}, N = {keys}, M = {heads}: {double:e}");
        }
    }
}

#[test]
fn indices_are_a_permutation() {
    for (heads, d) in [(1, 1), (16, 3), (17, 2), (50, 4)] {
        let mut seen: Vec<usize> =
            (0..heads).flat_map(|m| (0..=d).map(move |e| feature_index(heads, d, m, e))).collect::<Vec<_>>();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..heads * (d + 1)));
    }
}

#[test]
fn brfa_of_mean_zero_is_rfa() {
    let sets = sphere(5, 6, &[6, 3, 1, 6, 2], 1);
    let rfa = MapSpec::new(Model::Rfa, 5, 6, 40, 9);
    let brfa = MapSpec { model: Model::Brfa, ..rfa.clone() };
    let features = |spec: &MapSpec| features_of(spec.build::<f32>().unwrap().as_ref(), &sets);
    assert!(features(&rfa) == features(&brfa));
    // And its usual mean is diag(I_d, 0).
    let usual = MapSpec::new(Model::Brfa, 5, 6, 40, 9).weights().unwrap();
    for (i, (b, a)) in usual.iter().zip(rfa.weights().unwrap()).enumerate() {
        let (c, e) = (i % 36 / 6, i % 6);
        assert!((b - a - if c == e && c < 5 { 1.0 } else { 0.0 }).abs() < 1e-15);
    }
}

fn bits<T: Real>(values: &[T]) -> Vec<u64> {
    values.iter().map(|v| v.to_f64().to_bits()).collect()
}

fn same_bits<T: Real>(model: Model) {
    let (d, keys, heads) = (3, 7, 150);
    let lengths: Vec<usize> = (0..45).map(|i| 1 + i * 3 % keys).collect();
    let sets = sphere(d, keys, &lengths, 4);
    let spec = spec(model, d, keys, heads, 6);
    let p = spec.features();
    let whole = features_of(spec.build::<T>().unwrap().as_ref(), &sets);
    for threads in 1..=3 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let again = pool.install(|| features_of(spec.build::<T>().unwrap().as_ref(), &sets));
        assert!(bits(&again) == bits(&whole), "{threads} threads");
    }
    let map = spec.build::<T>().unwrap();
    let all = Sets::new(sets);
    for size in [1, 2, 3, 5, 16, 44] {
        for first in (0..45).step_by(size) {
            let part = all.slice(first..(first + size).min(45));
            for strip in 0..map.strips() {
                // A stride of its own, with room that must stay untouched.
                let (range, stride) = (map.strip(strip), map.strip(strip).len() + 3);
                let mut out = vec![T::from_f64(7.0); part.block().len() * stride];
                map.fill(part.block(), strip, stride, &mut out);
                for (i, row) in out.chunks_exact(stride).enumerate() {
                    let wanted = &whole[(first + i) * p..][range.clone()];
                    assert!(bits(&row[..range.len()]) == bits(wanted), "{model:?}, {size} sets to a block");
                    assert!(row[range.len()..].iter().all(|v| v.to_f64() > 6.0));
                }
            }
        }
    }
}

#[test]
fn bits_depend_on_map_and_set_alone() {
    for model in MODELS {
        same_bits::<f32>(model);
        same_bits::<f64>(model);
    }
}

#[test]
fn permuted_keys_change_rounding_only() {
    let (d, n) = (6, 13);
    let sets = sphere(d, n, &[n; 5], 2);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut permuted = SetBlock::new(sets.shape);
    for i in 0..sets.len() {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|j| order.swap(j, rng.random_range(0..=j)));
        let keys = order.iter().flat_map(|&j| sets.keys(i)[j * d..(j + 1) * d].to_vec());
        permuted.push(&sets.query(i).iter().copied().chain(keys).collect::<Vec<_>>(), &[0.0], 1.0);
    }
    fn check<T: Real>(spec: &MapSpec, sets: &SetBlock, permuted: &SetBlock, unit: f64) {
        let map = spec.build::<T>().unwrap();
        let (a, b) = (features_of(map.as_ref(), sets), features_of(map.as_ref(), permuted));
        let weights = spec.weights().unwrap();
        for i in 0..sets.len() {
            let (_, sizes) = plain(spec, &weights, sets, i);
            for (j, size) in sizes.iter().enumerate() {
                let change = (a[i * sizes.len() + j].to_f64() - b[i * sizes.len() + j].to_f64()).abs();
                // The tolerance of the module's documentation; the logits themselves are rounded alike on both sides, but not as `size`.
                let tolerance = 4.0 * (sets.lengths[i] as f64 + 1.0) * unit * size;
                assert!(change <= 1.001 * tolerance + 64.0 * unit * unit, "{:?}: {change:e} > {tolerance:e}", spec.model);
            }
        }
    }
    for model in [Model::Rfa, Model::Brfa, Model::Softmax, Model::RowRelu] {
        let spec = spec(model, d, n, 90, 5);
        check::<f32>(&spec, &sets, &permuted, f64::from(f32::EPSILON) / 2.0);
        check::<f64>(&spec, &sets, &permuted, f64::EPSILON / 2.0);
    }
}

#[test]
fn heads_are_addressed_by_seed_and_number() {
    let few = MapSpec::new(Model::Rfa, 2, 3, 5, 11).weights().unwrap();
    let many = MapSpec::new(Model::Rfa, 2, 3, 40, 11).weights().unwrap();
    assert!(few == many[..few.len()]);
    assert!(few != MapSpec::new(Model::Rfa, 2, 3, 5, 12).weights().unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    rng.set_stream((1 << 62) + 4);
    let last: Vec<f64> = (0..9).map(|_| 0.5 * rng.sample::<f64, _>(StandardNormal)).collect();
    assert!(last == few[36..]);
    let neuron = MapSpec::new(Model::Rfmlp, 2, 2, 5, 11).weights().unwrap();
    assert_eq!(neuron.len(), 15 * 7);
    assert!((neuron[4 * 7] - last[0]).abs() < 1e-15); // N + 2 = 4: the same scale
}

#[test]
fn preactivations_are_standard_normal() {
    let (d, heads) = (5, 40_000);
    let sets = sphere(d, 1, &[1; 3], 7);
    let attention = MapSpec::new(Model::Rfa, d, 1, heads, 1);
    let neurons = MapSpec { width: Some(heads), ..MapSpec::new(Model::Rfmlp, d, 1, heads, 2) };
    for i in 0..sets.len() {
        let (query, key) = (extended(sets.query(i)), extended(sets.keys(i)));
        let outer: Vec<f64> = query.iter().flat_map(|q| key.iter().map(move |k| q * k)).collect();
        let all: Vec<f64> = sets.query(i).iter().chain(&key).copied().collect();
        for (spec, x) in [(&attention, outer), (&neurons, all)] {
            let values: Vec<f64> = spec.weights().unwrap().chunks_exact(x.len()).map(|w| dot(w, &x)).collect();
            let mean = values.iter().sum::<f64>() / heads as f64;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / heads as f64;
            // Four standard errors: 1/√M of the mean, √(2/M) of the variance.
            assert!(mean.abs() < 4.0 / (heads as f64).sqrt(), "mean {mean}");
            assert!((variance - 1.0).abs() < 4.0 * (2.0 / heads as f64).sqrt(), "variance {variance}");
        }
    }
}

/// `E[relu(u) relu(u')]` of unit normals of correlation ρ.
fn kappa(rho: f64) -> f64 {
    let rho = rho.clamp(-1.0, 1.0);
    ((1.0 - rho * rho).sqrt() + rho * (std::f64::consts::PI - rho.acos())) / (2.0 * std::f64::consts::PI)
}

/// The limits of `⟨φ(x), φ(x')⟩ / M` and, for neurons, `⟨φ(x), φ(x')⟩ / K`.
fn kernel(model: Model, sets: &SetBlock, x: usize, y: usize) -> f64 {
    let d = sets.shape.d;
    let query = dot(sets.query(x), sets.query(y));
    let (n, n_y) = (sets.lengths[x] as f64, sets.lengths[y] as f64);
    if model == Model::Rfmlp {
        return kappa((1.0 + query + dot(sets.keys(x), sets.keys(y))) / (n + 2.0));
    }
    let mut sum = 0.0;
    for a in sets.keys(x).chunks_exact(d) {
        for b in sets.keys(y).chunks_exact(d) {
            let s = 1.0 + dot(a, b);
            sum += s * kappa((1.0 + query) * s / 4.0);
        }
    }
    sum / (n * n_y)
}

#[test]
fn grams_converge_to_the_kernels_as_one_over_the_root_of_heads() {
    let (d, n) = (4, 3);
    let sets = sphere(d, n, &[n; 6], 12);
    for model in [Model::Rfa, Model::Rfmlp] {
        let errors: Vec<(f64, f64)> = [64usize, 256, 1024, 4096]
            .into_iter()
            .map(|units| {
                let (mut square, mut count) = (0.0, 0.0);
                for seed in 0..16 {
                    let mut spec = MapSpec::new(model, d, n, units, 100 * units as u64 + seed);
                    spec.width = (model == Model::Rfmlp).then_some(units);
                    let (phi, p) = (features_of(spec.build::<f64>().unwrap().as_ref(), &sets), spec.features());
                    for x in 0..sets.len() {
                        for y in 0..=x {
                            let gram = dot(&phi[x * p..][..p], &phi[y * p..][..p]) / units as f64;
                            square += (gram - kernel(model, &sets, x, y)).powi(2);
                            count += 1.0;
                        }
                    }
                }
                ((units as f64).ln(), (square / count).sqrt().ln())
            })
            .collect();
        let centre = |f: fn(&(f64, f64)) -> f64| errors.iter().map(f).sum::<f64>() / errors.len() as f64;
        let (u, v) = (centre(|e| e.0), centre(|e| e.1));
        let slope =
            errors.iter().map(|e| (e.0 - u) * (e.1 - v)).sum::<f64>() / errors.iter().map(|e| (e.0 - u).powi(2)).sum::<f64>();
        assert!((-0.65..=-0.35).contains(&slope), "{model:?}: slope {slope}, log errors {errors:?}");
    }
}

#[test]
fn impossible_maps_are_refused() {
    let good = MapSpec::new(Model::Brfa, 3, 4, 5, 0);
    assert!(good.check().is_ok());
    let bad = [
        MapSpec { d: 0, ..good.clone() },
        MapSpec { keys: 0, ..good.clone() },
        MapSpec { heads: 0, ..good.clone() },
        MapSpec { d: usize::MAX, ..good.clone() },
        MapSpec { keys: usize::MAX, ..good.clone() },
        MapSpec { heads: usize::MAX / 4, ..good.clone() },
        MapSpec { heads: 1 << 56, ..good.clone() },
        MapSpec { model: Model::Rfmlp, mean: Mean::Zero, heads: 1 << 57, ..good.clone() },
        MapSpec { model: Model::Rfmlp, mean: Mean::Zero, width: Some(0), ..good.clone() },
        MapSpec { width: Some(3), ..good.clone() },
        MapSpec { model: Model::Rfa, ..good.clone() },
        MapSpec { mean: Mean::Identity { scale: f64::NAN }, ..good.clone() },
        MapSpec { mean: Mean::Matrix(vec![0.0; 9]), ..good.clone() },
        MapSpec { mean: Mean::Matrix(vec![f64::INFINITY; 16]), ..good.clone() },
        MapSpec { model: Model::Softmax, inverse_temperature: f64::NAN, ..good.clone() },
    ];
    for spec in bad {
        assert!(spec.build::<f32>().is_err() && spec.weights().is_err(), "{spec:?}");
    }
    assert!(good.check_sets(SetShape { keys: 9, d: 3, targets: 1 }).is_ok());
    assert!(good.check_sets(SetShape { keys: 4, d: 2, targets: 1 }).is_err());
    assert!(MapSpec::new(Model::Rfmlp, 3, 4, 5, 0).check_sets(SetShape { keys: 5, d: 3, targets: 1 }).is_err());
}

#[test]
fn a_few_numbers_describe_a_map() {
    let spec = MapSpec { mean: Mean::Matrix(vec![0.5; 9]), ..MapSpec::new(Model::Brfa, 2, 3, 4, 5) };
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<MapSpec>(&text).unwrap(), spec);
    let short = r#"{"model":"rowrelu","d":2,"keys":3,"heads":4,"seed":5}"#;
    assert_eq!(serde_json::from_str::<MapSpec>(short).unwrap(), MapSpec::new(Model::RowRelu, 2, 3, 4, 5));
}
