//! The batched forward pass against its definition, and the invariances that the definition has.

use attnlearn::layer::{AttentionLayer, Head, Mask, Theta};
use attnlearn::linalg::{Mat, from_row_major};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Sizes and options of a random layer.
#[derive(Clone, Copy, Debug)]
struct Case {
    k: usize,
    d: usize,
    d_out: usize,
    m: usize,
    /// Rank of every `Θ`; dense when `None`.
    rank: Option<usize>,
    key_bias: bool,
    bias: bool,
    mask: Mask,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1usize..8, 1usize..12, 1usize..10, 1usize..4);
    let rank = prop_oneof![Just(None), (0usize..5).prop_map(Some)];
    let mask = prop_oneof![Just(Mask::None), Just(Mask::Causal)];
    (sizes, rank, any::<bool>(), any::<bool>(), mask, any::<u64>()).prop_map(
        |((k, d, d_out, m), rank, key_bias, bias, mask, seed)| Case { k, d, d_out, m, rank, key_bias, bias, mask, seed },
    )
}

impl Case {
    fn rng(&self, stream: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(stream);
        rng
    }

    fn layer(&self) -> AttentionLayer {
        let rng = &mut self.rng(0);
        let scale = 1.0 / (self.d as f64).sqrt();
        let heads = (0..self.m)
            .map(|_| Head {
                theta: match self.rank {
                    None => Theta::Dense(gaussian(rng, self.d, self.d) * faer::Scale(scale)),
                    Some(r) => Theta::LowRank { a: gaussian(rng, self.d, r) * faer::Scale(scale), b: gaussian(rng, self.d, r) },
                },
                key_bias: self.key_bias.then(|| numbers(rng, self.d)),
                w: gaussian(rng, self.d, self.d_out) * faer::Scale(scale),
                terms: attnlearn::layer::Terms::default(),
            })
            .collect();
        let bias = self.bias.then(|| numbers(rng, self.d_out));
        AttentionLayer::new(heads, bias, self.mask).expect("a valid layer")
    }

    /// `n` sequences, `[n][k][d]`.
    fn inputs(&self, n: usize) -> Vec<f64> {
        numbers(&mut self.rng(1), n * self.k * self.d)
    }
}

fn numbers(rng: &mut ChaCha8Rng, n: usize) -> Vec<f64> {
    (0..n).map(|_| rng.sample(StandardNormal)).collect()
}

fn gaussian(rng: &mut ChaCha8Rng, rows: usize, cols: usize) -> Mat<f64> {
    Mat::from_fn(rows, cols, |_, _| rng.sample(StandardNormal))
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn batched_is_the_definition(case in cases(), n in 1usize..40) {
        let (layer, x) = (case.layer(), case.inputs(n));
        let x32: Vec<f32> = x.iter().map(|&v| v as f32).collect();
        let (y, y32) = (layer.forward(case.k, &x), layer.forward(case.k, &x32));
        prop_assert_eq!(y.len(), n * case.k * case.d_out);
        let per = case.k * case.d_out;
        for (i, x) in x.chunks(case.k * case.d).enumerate() {
            let plain = layer.forward_one(from_row_major(case.k, case.d, x).as_ref());
            for a in 0..case.k {
                for o in 0..case.d_out {
                    let at = i * per + a * case.d_out + o;
                    prop_assert!((y[at] - plain[(a, o)]).abs() < 1e-11, "f64 {} against {}", y[at], plain[(a, o)]);
                    prop_assert!((f64::from(y32[at]) - plain[(a, o)]).abs() < 2e-4, "f32 {} against {}", y32[at], plain[(a, o)]);
                }
            }
        }
    }

    #[test]
    fn patterns_sum_to_one(case in cases()) {
        // A constant last coordinate that alone is read out: F = Σ_i Σ_b p_ab = m.
        let heads = case.layer().heads().iter().map(|head| {
            Head { w: Mat::from_fn(case.d, 1, |e, _| f64::from(u8::from(e + 1 == case.d))), ..head.clone() }
        }).collect();
        let layer = AttentionLayer::new(heads, None, case.mask).expect("valid");
        let mut x = case.inputs(20);
        x.chunks_mut(case.d).for_each(|token| token[case.d - 1] = 1.0);
        for y in layer.forward(case.k, &x) {
            prop_assert!((y - case.m as f64).abs() < 1e-14 * case.m as f64);
        }
    }

    #[test]
    fn a_term_constant_over_keys_changes_nothing(case in cases()) {
        // With x_b[d−1] = 1: x_aᵀ (Θ + u e_{d−1}ᵀ) x_b = x_aᵀ Θ x_b + x_aᵀ u, and the key bias t e_{d−1} adds t.
        let (layer, rng) = (case.layer(), &mut case.rng(2));
        let shifted = layer.heads().iter().map(|head| {
            let (theta, u, t) = (head.theta.to_dense(), numbers(rng, case.d), rng.random_range(-3.0..3.0));
            let last = |e: usize, v: f64| if e + 1 == case.d { v } else { 0.0 };
            let c = (0..case.d).map(|e| head.key_bias.as_ref().map_or(0.0, |c| c[e]) + last(e, t)).collect();
            Head {
                theta: Theta::Dense(Mat::from_fn(case.d, case.d, |i, j| theta[(i, j)] + last(j, u[i]))),
                key_bias: Some(c),
                w: head.w.clone(), terms: attnlearn::layer::Terms::default() }
        }).collect();
        let shifted = AttentionLayer::new(shifted, layer.bias().map(<[f64]>::to_vec), case.mask).expect("valid");
        let mut x = case.inputs(20);
        x.chunks_mut(case.d).for_each(|token| token[case.d - 1] = 1.0);
        prop_assert!(distance(&layer.forward(case.k, &x), &shifted.forward(case.k, &x)) < 1e-11);
    }

    #[test]
    fn tokens_permuted_outputs_permuted(case in cases(), rotation in 0usize..8, reverse: bool) {
        let case = Case { mask: Mask::None, ..case };
        let (layer, x) = (case.layer(), case.inputs(5));
        let image = |a: usize| { let a = (a + rotation) % case.k; if reverse { case.k - 1 - a } else { a } };
        let permuted = |v: &[f64], width: usize| -> Vec<f64> {
            v.chunks(case.k * width).flat_map(|v| (0..case.k).flat_map(move |a| &v[image(a) * width..][..width])).copied().collect()
        };
        let expected = permuted(&layer.forward(case.k, &x), case.d_out);
        prop_assert!(distance(&layer.forward(case.k, &permuted(&x, case.d)), &expected) < 1e-11);
    }

    #[test]
    fn later_tokens_do_not_matter_under_the_causal_mask(case in cases(), from in 1usize..8) {
        let case = Case { mask: Mask::Causal, ..case };
        let (layer, x, from) = (case.layer(), case.inputs(5), from.min(case.k));
        let mut other = x.clone();
        for x in other.chunks_mut(case.k * case.d) {
            x[from * case.d..].iter_mut().for_each(|v| *v = -3.0 * *v + 1.0);
        }
        let (y, y_other) = (layer.forward(case.k, &x), layer.forward(case.k, &other));
        for (y, y_other) in y.chunks(case.k * case.d_out).zip(y_other.chunks(case.k * case.d_out)) {
            let bits = |y: &[f64]| y[..from * case.d_out].iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(y), bits(y_other), "to the last bit");
        }
    }

    #[test]
    fn low_rank_is_dense(case in cases(), rank in 0usize..6) {
        let case = Case { rank: Some(rank), ..case };
        let layer = case.layer();
        let heads = layer.heads().iter().map(|h| Head { theta: Theta::Dense(h.theta.to_dense()), ..h.clone() }).collect();
        let dense = AttentionLayer::new(heads, layer.bias().map(<[f64]>::to_vec), case.mask).expect("valid");
        let x = case.inputs(17);
        prop_assert!(distance(&layer.forward(case.k, &x), &dense.forward(case.k, &x)) < 1e-11);
    }
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let case = Case { k: 5, d: 9, d_out: 4, m: 3, rank: None, key_bias: true, bias: true, mask: Mask::Causal, seed: 7 };
    let (layer, x) = (case.layer(), case.inputs(3000)); // six blocks, the last one not full
    let x32: Vec<f32> = x.iter().map(|&v| v as f32).collect();
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        pool.install(|| {
            let double: Vec<u64> = layer.forward(5, &x).iter().map(|v| v.to_bits()).collect();
            let single: Vec<u32> = layer.forward(5, &x32).iter().map(|v| v.to_bits()).collect();
            (double, single)
        })
    };
    assert!(on(1) == on(2), "outputs depend on the number of threads");
}
