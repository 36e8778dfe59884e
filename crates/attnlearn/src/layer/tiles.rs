//! Long sequences, attended in tiles: memory for `k (d + d_out)` numbers instead of `k²`.
//!
//! A tile of queries passes the keys once, a tile at a time, and keeps for every query the largest logit so far and the sums relative to it:
//!
//! ```text
//! μ' = max(μ, max_b ℓ_b),     s' = e^{μ−μ'} s + Σ_b e^{ℓ_b−μ'},     v' = e^{μ−μ'} v + Σ_b e^{ℓ_b−μ'} u_b,     F += v/s in the end
//! ```
//!
//! No tile of queries knows of another: they are shared out to all threads, with the same bits on any number of them.

use super::forward::{Evaluator, HeadWeights, Shared};
use crate::linalg::Aligned;
use crate::linalg::lanes::{LANES, Real, chunks, vectorised};
use crate::linalg::product::{Finish, Panel, Place, Start, apply_matrix, product};
use crate::scores::Inner;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Queries of a tile.
const QUERIES: usize = 16;
/// Keys of a tile.
const KEYS: usize = 64;

/// Working memory of one thread.
#[derive(Default)]
struct Scratch<T: Real> {
    room: Aligned<T>,
    /// `[QUERIES][width]`.
    queries: Aligned<T>,
    /// `[QUERIES][KEYS]`: logits, then weights.
    p: Aligned<T>,
    /// `[QUERIES]`: μ, s, and what both are scaled by.
    top: Aligned<T>,
    total: Aligned<T>,
    scale: Aligned<T>,
    /// `[QUERIES][d_out]`: v.
    sums: Aligned<T>,
}

impl<T: Real> Evaluator<T> {
    /// As [`Evaluator::panel`], on all threads; `shared` is working memory. When `stop` says so it ends early, and `false` is returned.
    pub(super) fn long_panel(&self, x: &[T], y: &mut [T], shared: &mut Shared<T>, stop: &(dyn Fn() -> bool + Sync)) -> bool {
        let (d, d_out) = (self.d, self.d_out);
        let k = x.len() / (d * LANES);
        let Shared { keys, values } = shared;
        values.fit(k * d_out * LANES);
        self.begin(y);
        let stopped = AtomicBool::new(false);
        for head in &self.heads {
            let (width, inner) = (head.width(d), head.inner(&self.scores, k));
            let inner = inner.as_ref();
            let tokens = values.par_chunks_mut(KEYS * d_out * LANES).zip(x.par_chunks(KEYS * d * LANES));
            tokens.for_each(|(values, x)| vectorised(Values { head, d, d_out, x, values }));
            if !head.keys_are_tokens() {
                keys.fit(k * width * LANES);
                let tokens = keys.par_chunks_mut(KEYS * width * LANES).zip(x.par_chunks(KEYS * d * LANES)).enumerate();
                tokens.for_each(|(tile, (keys, x))| vectorised(Keys { head, inner, d, position: tile * KEYS, x, keys }));
            }
            let (keys, values) = (if head.keys_are_tokens() { x } else { &**keys }, &**values);
            let tiles = y.par_chunks_mut(QUERIES * d_out * LANES).enumerate();
            tiles.for_each_init(Scratch::default, |scratch, (tile, y)| {
                if stopped.load(Ordering::Relaxed) || stop() {
                    stopped.store(true, Ordering::Relaxed);
                } else {
                    vectorised(Tile { layer: self, head, inner, first: tile * QUERIES, k, x, keys, values, y, scratch });
                }
            });
        }
        !stopped.into_inner()
    }
}

/// `u_b = Wᵀ x_b` of some tokens.
struct Values<'a, T> {
    head: &'a HeadWeights<T>,
    d: usize,
    d_out: usize,
    x: &'a [T],
    values: &'a mut [T],
}

impl<T: Real> WithSimd for Values<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let tokens = self.x.len() / (self.d * LANES);
        apply_matrix(simd, &self.head.w_t, self.d_out, self.d, None, tokens, self.x, self.values);
    }
}

/// Keys of some tokens, the first of which stands at `position`.
struct Keys<'a, T> {
    head: &'a HeadWeights<T>,
    inner: Option<&'a Inner<T>>,
    d: usize,
    position: usize,
    x: &'a [T],
    keys: &'a mut [T],
}

impl<T: Real> WithSimd for Keys<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.head.keys(simd, self.inner, (self.d, self.position), self.x, &mut Aligned::default(), self.keys);
    }
}

/// One head's part in the outputs of some queries, from number `first` on.
struct Tile<'a, T: Real> {
    layer: &'a Evaluator<T>,
    head: &'a HeadWeights<T>,
    inner: Option<&'a Inner<T>>,
    first: usize,
    k: usize,
    /// `[k][d]`.
    x: &'a [T],
    /// `[k][width]`.
    keys: &'a [T],
    /// `[k][d_out]`.
    values: &'a [T],
    /// Outputs of the queries: what the head says is added.
    y: &'a mut [T],
    scratch: &'a mut Scratch<T>,
}

impl<T: Real> WithSimd for Tile<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { layer, head, inner, first, k, x, keys: all_keys, values, y, scratch } = self;
        let (d, d_out, entries, width) = (layer.d, layer.d_out, head.width(layer.d), chunks::<T, S>());
        let rows = y.len() / (d_out * LANES);
        let Scratch { room, queries, p, top, total, scale, sums } = scratch;
        queries.fit(rows * entries * LANES);
        head.queries(simd, inner, (d, first), &x[first * d * LANES..(first + rows) * d * LANES], room, queries);
        for buffer in [&mut *top, &mut *total, &mut *scale] {
            buffer.fit(rows * LANES);
        }
        sums.fit(rows * d_out * LANES);
        // Not −∞: a logit of −∞ less −∞ would be no number.
        top.fill(T::LOWEST);
        total.fill(T::ZERO);
        sums.fill(T::ZERO);
        let mask = layer.scores.mask;
        let (start, end) = (mask.seen(first, k).start / KEYS * KEYS, mask.seen(first + rows - 1, k).end);
        for begin in (start..end).step_by(KEYS) {
            let keys = KEYS.min(end - begin);
            // Of this tile; none where a window begins after it, or a query stands before it.
            let visible = |a: usize| {
                let seen = mask.seen(first + a, k);
                seen.start.saturating_sub(begin).min(keys)..seen.end.saturating_sub(begin).min(keys)
            };
            p.fit(rows * keys * LANES);
            let q = Panel { entries: T::vectors::<S>(queries), outer: entries, inner: 1 };
            let of_keys = &all_keys[begin * entries * LANES..(begin + keys) * entries * LANES];
            let of_keys = Panel { entries: T::vectors::<S>(of_keys), outer: entries, inner: 1 };
            let logits = Place { entries: T::vectors_mut::<S>(p), outer: keys, inner: 1 };
            product(simd, (rows, keys, entries), q, of_keys, (Start::<T>::Zero, Finish::Sum), logits);
            head.add_relative(first, begin, keys, p);

            let (tops, scales) = (T::vectors_mut::<S>(top), T::vectors_mut::<S>(scale));
            for (a, row) in T::vectors_mut::<S>(p).chunks_exact_mut(keys * width).enumerate() {
                for chunk in 0..width {
                    let before = tops[a * width + chunk];
                    let mut now = before;
                    for b in visible(a) {
                        now = T::larger(simd, now, row[b * width + chunk]);
                    }
                    for b in 0..keys {
                        row[b * width + chunk] = T::minus(simd, row[b * width + chunk], now);
                    }
                    tops[a * width + chunk] = now;
                    scales[a * width + chunk] = T::minus(simd, before, now);
                }
            }
            // Two long loops over all exponentials: the loop vectoriser takes them whole.
            for v in p.iter_mut() {
                *v = v.exp();
            }
            for v in scale.iter_mut() {
                *v = v.exp();
            }
            let (totals, scales) = (T::vectors_mut::<S>(total), T::vectors::<S>(scale));
            for (a, row) in T::vectors_mut::<S>(p).chunks_exact_mut(keys * width).enumerate() {
                for chunk in 0..width {
                    let mut sum = T::times(simd, totals[a * width + chunk], scales[a * width + chunk]);
                    for b in visible(a) {
                        sum = T::plus(simd, sum, row[b * width + chunk]);
                    }
                    for b in (0..visible(a).start).chain(visible(a).end..keys) {
                        row[b * width + chunk] = T::splat(simd, T::ZERO);
                    }
                    totals[a * width + chunk] = sum;
                }
            }
            for (a, row) in T::vectors_mut::<S>(sums).chunks_exact_mut(d_out * width).enumerate() {
                for (i, v) in row.iter_mut().enumerate() {
                    *v = T::times(simd, *v, scales[a * width + i % width]);
                }
            }
            let weights = Panel { entries: T::vectors::<S>(p), outer: keys, inner: 1 };
            let of_keys = &values[begin * d_out * LANES..(begin + keys) * d_out * LANES];
            let of_keys = Panel { entries: T::vectors::<S>(of_keys), outer: 1, inner: d_out };
            let sums = Place { entries: T::vectors_mut::<S>(sums), outer: d_out, inner: 1 };
            product(simd, (rows, d_out, keys), weights, of_keys, (Start::<T>::Out, Finish::Sum), sums);
        }
        let (totals, sums) = (T::vectors::<S>(total), T::vectors::<S>(sums));
        for (a, row) in T::vectors_mut::<S>(y).chunks_exact_mut(d_out * width).enumerate() {
            for (i, y) in row.iter_mut().enumerate() {
                *y = T::plus(simd, *y, T::over(simd, sums[a * d_out * width + i], totals[a * width + i % width]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward::LONG;
    use super::*;
    use crate::data::{Block, Shape};
    use crate::layer::{AttentionLayer, Head, Mask, Terms, Theta};
    use crate::linalg::Mat;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn normals(rng: &mut ChaCha8Rng, n: usize) -> Vec<f64> {
        (0..n).map(|_| rng.sample(StandardNormal)).collect()
    }

    fn matrix(rng: &mut ChaCha8Rng, rows: usize, cols: usize, scale: f64) -> Mat<f64> {
        Mat::from_fn(rows, cols, |_, _| scale * rng.sample::<f64, _>(StandardNormal))
    }

    /// A layer with a dense head and one of low rank, both with key biases; logits are about `size` large.
    fn layer(rng: &mut ChaCha8Rng, d: usize, d_out: usize, size: f64, mask: Mask) -> AttentionLayer {
        let scale = size / d as f64;
        let dense = Theta::Dense(matrix(rng, d, d, scale));
        let thin = Theta::LowRank { a: matrix(rng, d, 1, scale), b: matrix(rng, d, 1, 1.0) };
        let heads = [dense, thin].map(|theta| Head {
            theta,
            key_bias: Some(normals(rng, d)),
            w: matrix(rng, d, d_out, 1.0),
            terms: Terms::default(),
        });
        AttentionLayer::new(heads.into(), Some(normals(rng, d_out)), mask).unwrap()
    }

    /// The definition, with the largest logit subtracted, sums in order: `(F_ao, Σ |terms|)`.
    fn plain(layer: &AttentionLayer, k: usize, x: &[f64]) -> Vec<(f64, f64)> {
        let (d, d_out) = (layer.d(), layer.d_out());
        let bias = |o: usize| layer.bias().map_or(0.0, |b| b[o]);
        let mut out: Vec<(f64, f64)> = (0..k * d_out).map(|i| (bias(i % d_out), bias(i % d_out).abs())).collect();
        for head in layer.heads() {
            let (theta, c) = (head.theta.to_dense(), head.key_bias.clone().unwrap_or(vec![0.0; d]));
            for a in 0..k {
                let t: Vec<f64> = (0..d).map(|f| c[f] + (0..d).map(|e| x[a * d + e] * theta[(e, f)]).sum::<f64>()).collect();
                let seen = if layer.mask() == Mask::Causal { a + 1 } else { k };
                let logits: Vec<f64> = (0..seen).map(|b| (0..d).map(|f| t[f] * x[b * d + f]).sum()).collect();
                let top = logits.iter().copied().fold(f64::MIN, f64::max);
                let weights: Vec<f64> = logits.iter().map(|l| (l - top).exp()).collect();
                let total: f64 = weights.iter().sum();
                for o in 0..d_out {
                    let said = |b: usize| (0..d).map(|e| x[b * d + e] * head.w[(e, o)]).sum::<f64>();
                    let (sum, size) = weights.iter().enumerate().fold((0.0, 0.0), |(sum, size), (b, p)| {
                        let term = p / total * said(b);
                        (sum + term, size + term.abs())
                    });
                    out[a * d_out + o].0 += sum;
                    out[a * d_out + o].1 += size;
                }
            }
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// In tiles, both precisions: the definition, at the edges of tiles, under both masks, with large logits and with small ones. A logit of
        /// size L carries a rounding error of about L ε, and so do weights.
        #[test]
        fn tiles_are_the_definition(
            edge in prop::sample::select(vec![LONG + 1, LONG + QUERIES, LONG + KEYS - 1, LONG + KEYS, LONG + KEYS + 1]),
            (d, d_out) in (1usize..6, 1usize..6),
            size in prop::sample::select(vec![0.0, 1.0, 30.0, 1e3]),
            causal in any::<bool>(),
            seed in 0u64..1000,
        ) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mask = if causal { Mask::Causal } else { Mask::None };
            let layer = layer(&mut rng, d, d_out, size, mask);
            let x = normals(&mut rng, edge * d);
            let x32: Vec<f32> = x.iter().map(|v| *v as f32).collect();
            let rounded: Vec<f64> = x32.iter().map(|v| f64::from(*v)).collect();
            let loss = 1.0 + 10.0 * size;
            for ((y, (exact, scale)), i) in layer.forward(edge, &x).iter().zip(plain(&layer, edge, &x)).zip(0..) {
                prop_assert!((y - exact).abs() <= 1e-12_f64.max(1e-15 * loss * d as f64) * scale, "{i}: {y} and {exact}");
            }
            for ((y, (exact, scale)), i) in layer.forward(edge, &x32).iter().zip(plain(&layer, edge, &rounded)).zip(0..) {
                prop_assert!((f64::from(*y) - exact).abs() <= 2e-6 * loss * d as f64 * scale, "{i}: {y} and {exact}");
            }
        }
    }

    /// Just below the limit and in tiles: the same to rounding; and the same bits on one thread and on three.
    #[test]
    fn neither_the_way_nor_threads_matter() {
        for mask in [Mask::None, Mask::Causal] {
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let layer = layer(&mut rng, 4, 3, 3.0, mask);
            let evaluator = Evaluator::<f64>::new(&layer);
            let k = LONG - 3;
            let x = normals(&mut rng, k * 4 * LANES);
            let (mut whole, mut tiled) = (vec![0.0; k * 3 * LANES], vec![0.0; k * 3 * LANES]);
            evaluator.short_panel(&x, &mut whole);
            assert!(evaluator.long_panel(&x, &mut tiled, &mut Shared::default(), &|| false));
            for (a, b) in whole.iter().zip(&tiled) {
                assert!((a - b).abs() < 1e-13 * (1.0 + a.abs()), "{a} and {b}");
            }
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut again = vec![0.0; tiled.len()];
                assert!(pool.install(|| evaluator.long_panel(&x, &mut again, &mut Shared::default(), &|| false)));
                assert!(again.iter().zip(&tiled).all(|(a, b)| a.to_bits() == b.to_bits()), "{threads} threads");
            }
        }
    }

    /// Logits that overflow to −∞ count as nothing, in the first tile and in the last; what is not finite in X is seen in Y.
    #[test]
    fn infinite_logits_do_no_harm() {
        // ℓ_ab = 10²⁰⁰ x_a0 x_b1, and a key says x_b0.
        let theta = Mat::from_fn(2, 2, |i, j| if (i, j) == (0, 1) { 1e200 } else { 0.0 });
        let w = Mat::from_fn(2, 1, |i, _| if i == 0 { 1.0 } else { 0.0 });
        let layer = AttentionLayer::new(vec![Head::dense(theta, w)], None, Mask::None).unwrap();
        let k = LONG + 50;
        for far in [0..KEYS + 3, k - 70..k] {
            let token = |b: usize| if far.contains(&b) { [2.0, -1e200] } else { [1.0, 0.0] };
            let y = layer.forward(k, &(0..k).flat_map(token).collect::<Vec<f64>>());
            assert!(y.iter().all(|y| (y - 1.0).abs() < 1e-12), "{far:?}: {:?}", &y[..3]);
        }
        for bad in [f64::NAN, f64::INFINITY] {
            let mut x = vec![0.5; 2 * k];
            x[k] = bad;
            assert!(layer.forward(k, &x).iter().all(|y| !y.is_finite()));
        }
    }

    /// Asked to stop, it stops: no tile begins after that.
    #[test]
    fn tiles_can_be_stopped() {
        use std::sync::atomic::AtomicUsize;
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let layer = layer(&mut rng, 2, 1, 1.0, Mask::None);
        let k = 2 * LONG;
        let mut block = Block::<f64>::new(Shape { k, d: 2, d_out: 1 });
        block.set_inputs(&normals(&mut rng, 40 * k * 2));
        let evaluator = Evaluator::<f64>::new(&layer);
        let (all, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        evaluator.outputs_until(&mut block, &|| (all.fetch_add(1, Ordering::Relaxed), false).1).expect("nobody stops it");
        assert_eq!(all.into_inner(), 3 * 2 * k / QUERIES);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let stop = || asked.fetch_add(1, Ordering::Relaxed) >= 10;
        let stopped = pool.install(|| evaluator.outputs_until(&mut block, &stop));
        assert!(matches!(stopped, Err(crate::Error::Interrupted)));
        assert_eq!(asked.into_inner(), 11);
    }
}
