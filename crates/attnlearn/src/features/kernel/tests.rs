//! The kernels against finite heads, and what makes them kernels.

use super::*;
use crate::features::SetShape;
use crate::linalg::symmetric_eigen;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const SHAPE: SetShape = SetShape { keys: 5, d: 3, targets: 1 };

/// Gaussian sets of lengths 1 to `SHAPE.keys`.
fn sets(n: usize, seed: u64) -> SetBlock {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut block = SetBlock::new(SHAPE);
    for i in 0..n {
        let tokens: Vec<f64> = (0..SHAPE.d * (2 + i % SHAPE.keys)).map(|_| 0.7 * normal(&mut rng)).collect();
        block.push(&tokens, &[0.0], 1.0);
    }
    block
}

fn normal(rng: &mut impl Rng) -> f64 {
    rng.sample(StandardNormal)
}

fn specs() -> Vec<KernelSpec> {
    let matrix = (0..16).map(|e| f64::from(e % 5) * 0.3 - 0.4).collect();
    vec![
        KernelSpec::Rfa,
        KernelSpec::Brfa { mean: Mean::Identity { scale: 1.0 } },
        KernelSpec::Brfa { mean: Mean::Matrix(matrix) },
        KernelSpec::Rfmlp,
    ]
}

fn gap(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    (a - b).norm_max()
}

/// Inner products of the features of `heads` finite heads, written as plainly as can be.
fn finite(spec: &KernelSpec, block: &SetBlock, heads: usize, rng: &mut impl Rng) -> Mat<f64> {
    let (n, d) = (block.len(), SHAPE.d);
    let tilde = |x: &[f64]| -> Vec<f64> { x.iter().copied().chain([1.0]).collect() };
    let mut gram = Mat::<f64>::zeros(n, n);
    for _ in 0..heads {
        let features: Vec<Vec<f64>> = match spec {
            KernelSpec::Rfmlp => {
                let size = (SHAPE.keys + 1) * d;
                let scale = 1.0 / ((SHAPE.keys + 2) as f64).sqrt();
                let w: Vec<f64> = (0..=size).map(|_| scale * normal(rng)).collect();
                let z = |i: usize| tilde(&block.x[i * size..(i + 1) * size]);
                (0..n).map(|i| vec![z(i).iter().zip(&w).map(|(z, w)| z * w).sum::<f64>().max(0.0)]).collect()
            }
            _ => {
                let mean =
                    if let KernelSpec::Brfa { mean } = spec { mean.entries(d).unwrap() } else { vec![0.0; (d + 1) * (d + 1)] };
                let w: Vec<f64> = mean.iter().map(|m| m + 0.5 * normal(rng)).collect();
                (0..n)
                    .map(|i| {
                        let (query, mut sum) = (tilde(block.query(i)), vec![0.0; d + 1]);
                        for key in block.keys(i).chunks_exact(d).map(tilde) {
                            let mut pre = 0.0;
                            for r in 0..=d {
                                for c in 0..=d {
                                    pre += w[r * (d + 1) + c] * query[r] * key[c];
                                }
                            }
                            for c in 0..=d {
                                sum[c] += pre.max(0.0) * key[c] / block.lengths[i] as f64;
                            }
                        }
                        sum
                    })
                    .collect()
            }
        };
        for i in 0..n {
            for j in 0..n {
                gram[(i, j)] += features[i].iter().zip(&features[j]).map(|(a, b)| a * b).sum::<f64>() / heads as f64;
            }
        }
    }
    gram
}

#[test]
fn finite_heads_converge_at_the_rate_of_monte_carlo() {
    let block = sets(6, 1);
    for spec in specs() {
        let exact = spec.matrix(&block).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let counts = [64usize, 256, 1024, 4096];
        let logs: Vec<(f64, f64)> = counts
            .iter()
            .map(|&heads| {
                let seeds = 12;
                let square: f64 = (0..seeds).map(|_| (finite(&spec, &block, heads, &mut rng) - &exact).squared_norm_l2()).sum();
                ((heads as f64).ln(), (square / f64::from(seeds) / exact.squared_norm_l2()).ln() / 2.0)
            })
            .collect();
        let (mx, my) = (logs.iter().map(|l| l.0).sum::<f64>() / 4.0, logs.iter().map(|l| l.1).sum::<f64>() / 4.0);
        let slope =
            logs.iter().map(|l| (l.0 - mx) * (l.1 - my)).sum::<f64>() / logs.iter().map(|l| (l.0 - mx).powi(2)).sum::<f64>();
        assert!((-0.65..-0.35).contains(&slope), "{spec:?}: slope {slope}, errors {logs:?}");
        assert!(logs[3].1.exp() < 0.1, "{spec:?}: {logs:?}");
    }
}

#[test]
fn a_mean_of_zero_is_no_mean() {
    let block = sets(40, 3);
    let (plain, biased) = (
        KernelSpec::Rfa.matrix(&block).unwrap(),
        KernelSpec::Brfa { mean: Mean::Identity { scale: 0.0 } }.matrix(&block).unwrap(),
    );
    assert!(gap(&plain, &biased) < 1e-10 * plain.norm_max(), "{}", gap(&plain, &biased));
}

/// Unit vectors: the formulas as they are usually written.
#[test]
fn on_the_sphere_the_usual_formulas_hold() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut block = SetBlock::new(SHAPE);
    for _ in 0..20 {
        let mut tokens: Vec<f64> = (0..SHAPE.d * (SHAPE.keys + 1)).map(|_| normal(&mut rng)).collect();
        for x in tokens.chunks_exact_mut(SHAPE.d) {
            let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
            x.iter_mut().for_each(|v| *v /= norm);
        }
        block.push(&tokens, &[0.0], 1.0);
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (n, d) = (SHAPE.keys as f64, SHAPE.d);
    let (attention, perceptron) = (KernelSpec::Rfa.matrix(&block).unwrap(), KernelSpec::Rfmlp.matrix(&block).unwrap());
    for i in 0..20 {
        for j in 0..20 {
            let (s_0, mut sum, mut all) = (dot(block.query(i), block.query(j)), 0.0, 1.0);
            all += s_0;
            for (a, x) in block.keys(i).chunks_exact(d).enumerate() {
                for (b, y) in block.keys(j).chunks_exact(d).enumerate() {
                    let s = dot(x, y);
                    sum += (1.0 + s) * arc::kappa((1.0 + s_0) * (1.0 + s) / 4.0) / (n * n);
                    all += if a == b { s } else { 0.0 };
                }
            }
            assert!((attention[(i, j)] - sum).abs() < 1e-14);
            assert!((perceptron[(i, j)] - arc::kappa(all / (n + 2.0))).abs() < 1e-14);
        }
    }
}

#[test]
fn matrices_are_symmetric_and_positive_semidefinite() {
    // Doubled sets make the matrix singular: rounding would show.
    let mut block = sets(35, 5);
    let again = block.clone();
    block.x.extend(&again.x);
    block.lengths.extend(&again.lengths);
    block.y.extend(&again.y);
    block.weights.extend(&again.weights);
    for spec in specs() {
        let k = spec.matrix(&block).unwrap();
        assert!(gap(&k, &k.transpose().to_owned()) < 1e-300);
        let (values, _) = symmetric_eigen(k.as_ref()).unwrap();
        assert!(values[0] >= -1e-10 * values[values.len() - 1], "{spec:?}: {} of {}", values[0], values[values.len() - 1]);
    }
}

#[test]
fn the_matrix_is_the_cross_matrix_with_itself() {
    let (block, other) = (sets(300, 6), sets(21, 7));
    for spec in specs() {
        let k = spec.matrix(&block).unwrap();
        assert!(gap(&k, &spec.cross(&block, &block).unwrap()) < 1e-12 * k.norm_max());
        let (there, back) = (spec.cross(&block, &other).unwrap(), spec.cross(&other, &block).unwrap());
        assert_eq!((there.nrows(), there.ncols()), (300, 21));
        assert!(gap(&there, &back.transpose().to_owned()) < 1e-12 * there.norm_max());
    }
}

#[test]
fn attention_does_not_see_the_order_of_keys() {
    let (block, mut turned) = (sets(30, 8), SetBlock::new(SHAPE));
    for i in 0..block.len() {
        let keys = block.keys(i).chunks_exact(SHAPE.d).rev().flatten();
        turned.push(&block.query(i).iter().chain(keys).copied().collect::<Vec<_>>(), &[0.0], 1.0);
    }
    for spec in &specs()[..3] {
        let k = spec.matrix(&block).unwrap();
        assert!(gap(&k, &spec.matrix(&turned).unwrap()) < 1e-13 * k.norm_max());
    }
    let k = KernelSpec::Rfmlp.matrix(&block).unwrap();
    assert!(gap(&k, &KernelSpec::Rfmlp.matrix(&turned).unwrap()) > 1e-3);
}

#[test]
fn bad_input_is_refused() {
    let block = sets(3, 9);
    assert!(KernelSpec::Brfa { mean: Mean::Matrix(vec![0.0; 9]) }.matrix(&block).is_err());
    let mut broken = block.clone();
    broken.x[0] = f64::NAN;
    assert!(KernelSpec::Rfa.matrix(&broken).is_err());
    let mut other = SetBlock::new(SetShape { keys: 4, d: 3, targets: 1 });
    other.push(&[0.5; 6], &[0.0], 1.0);
    assert!(KernelSpec::Rfa.cross(&block, &other).is_ok() && KernelSpec::Rfmlp.cross(&block, &other).is_err());
    let mut wider = SetBlock::new(SetShape { keys: 4, d: 4, targets: 1 });
    wider.push(&[0.5; 8], &[0.0], 1.0);
    assert!(KernelSpec::Rfa.cross(&block, &wider).is_err());
    assert_eq!(KernelSpec::Rfa.matrix(&SetBlock::new(SHAPE)).unwrap().nrows(), 0);
}
