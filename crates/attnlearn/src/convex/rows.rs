//! The three products with the rows `v_1 … v_N` that an interior-point step needs, at the speed of the machine:
//!
//! ```text
//! V x = (⟨v_r, x⟩)_r        Vᵀ h = Σ_r h_r v_r        Vᵀ D V = Σ_r d_r v_r v_rᵀ,  d_r ≥ 0
//! ```
//!
//! The rows are cut into *panels* whose sizes depend on `N` alone. Threads share the panels, each panel keeps its own
//! sums, and the sums are added in the order of the panels: the same bits come on any number of threads.
//! Within a panel the rows go by in *chunks* that stay in the cache while several products are taken of them.

use crate::linalg::lanes::vectorised;
use crate::parallel;
use pulp::{Simd, WithSimd};

/// Rows per chunk: 64 rows of 256 numbers are 128 KiB, well inside the second-level cache.
pub(super) const CHUNK: usize = 64;

/// At most this many panels, so that the panels' sums stay small beside the rows.
const PANELS: usize = 32;

/// Rows per panel, a whole number of chunks.
fn panel_rows(n: usize) -> usize {
    n.div_ceil(PANELS).next_multiple_of(4 * CHUNK).max(4 * CHUNK)
}

/// One `T` for every panel of `n` rows: the panels' sums.
pub(super) fn panels<T>(n: usize, new: impl Fn() -> T) -> Vec<T> {
    (0..n.div_ceil(panel_rows(n))).map(|_| new()).collect()
}

/// Calls `chunk(v, states, sums)` for every chunk of rows: `v` its entries, `states` what belongs to each of its rows,
/// `sums` those of its panel (made by [`panels`], to be added up in order by the caller).
pub(super) fn sweep<C: Send, T: Send>(
    rows: &[f64],
    p: usize,
    states: &mut [C],
    sums: &mut [T],
    chunk: impl Fn(&[f64], &mut [C], &mut T) + Sync,
) {
    let n = panel_rows(states.len());
    parallel::each(rows.chunks(n * p).zip(states.chunks_mut(n)).zip(sums), |((v, states), sums)| {
        for (v, states) in v.chunks(CHUNK * p).zip(states.chunks_mut(CHUNK)) {
            chunk(v, states, sums);
        }
    });
}

/// `out_r = ⟨v_r, x⟩` for the rows of a chunk.
pub(super) fn products(v: &[f64], x: &[f64], out: &mut [f64]) {
    struct Products<'a>(&'a [f64], &'a [f64], &'a mut [f64]);
    impl WithSimd for Products<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let Self(v, x, out) = self;
            let p = x.len();
            let mut out4 = out.chunks_exact_mut(4);
            let mut v4 = v.chunks_exact(4 * p);
            for (out, v) in out4.by_ref().zip(v4.by_ref()) {
                let dots = dots::<S, 4>(simd, std::array::from_fn(|i| &v[i * p..(i + 1) * p]), x);
                out.copy_from_slice(&dots);
            }
            for (out, v) in out4.into_remainder().iter_mut().zip(v4.remainder().chunks_exact(p)) {
                [*out] = dots::<S, 1>(simd, [v], x);
            }
        }
    }
    vectorised(Products(v, x, out));
}

#[inline(always)]
fn dots<S: Simd, const R: usize>(simd: S, v: [&[f64]; R], x: &[f64]) -> [f64; R] {
    let (x, x_tail) = S::as_simd_f64s(x);
    let mut sum = [simd.splat_f64s(0.0); R];
    for i in 0..R {
        // The tail first: a masked load, which reads zeros beyond the end.
        sum[i] = simd.mul_f64s(simd.partial_load_f64s(S::as_simd_f64s(v[i]).1), simd.partial_load_f64s(x_tail));
    }
    let v = v.map(|v| S::as_simd_f64s(v).0);
    for e in 0..x.len() {
        for i in 0..R {
            sum[i] = simd.mul_add_f64s(v[i][e], x[e], sum[i]);
        }
    }
    let mut out = [0.0; R];
    for i in 0..R {
        out[i] = simd.reduce_sum_f64s(sum[i]);
    }
    out
}

/// `g_m += Σ_r h_{m,r} v_r` over the rows of a chunk, for `M` right-hand sides at once.
pub(super) fn add_combinations<const M: usize>(v: &[f64], h: [&[f64]; M], g: [&mut [f64]; M]) {
    struct Combinations<'a, const M: usize>(&'a [f64], [&'a [f64]; M], [&'a mut [f64]; M]);
    impl<const M: usize> WithSimd for Combinations<'_, M> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let Self(v, h, mut g) = self;
            let (n, p) = (h[0].len(), g[0].len());
            let mut r = 0;
            while r + 4 <= n {
                combine::<S, M, 4>(simd, v, h, r, &mut g);
                r += 4;
            }
            while r < n {
                combine::<S, M, 1>(simd, v, h, r, &mut g);
                r += 1;
            }
            debug_assert_eq!(v.len(), n * p);
        }
    }
    vectorised(Combinations(v, h, g));
}

/// The part of the rows `r … r + R − 1`.
#[inline(always)]
fn combine<S: Simd, const M: usize, const R: usize>(simd: S, v: &[f64], h: [&[f64]; M], r: usize, g: &mut [&mut [f64]; M]) {
    let p = g[0].len();
    let v: [&[f64]; R] = std::array::from_fn(|i| &v[(r + i) * p..(r + i + 1) * p]);
    let mut factors = [[simd.splat_f64s(0.0); R]; M];
    for m in 0..M {
        for i in 0..R {
            factors[m][i] = simd.splat_f64s(h[m][r + i]);
        }
    }
    // The tails first: masked loads, which read zeros beyond the end.
    let (v, v_tails) = (v.map(|v| S::as_simd_f64s(v).0), v.map(|v| S::as_simd_f64s(v).1));
    let g = g.each_mut().map(|g| S::as_mut_simd_f64s(g));
    for m in 0..M {
        let mut sum = simd.partial_load_f64s(g[m].1);
        for i in 0..R {
            sum = simd.mul_add_f64s(factors[m][i], simd.partial_load_f64s(v_tails[i]), sum);
        }
        simd.partial_store_f64s(g[m].1, sum);
    }
    for e in 0..g[0].0.len() {
        let mut column = [simd.splat_f64s(0.0); R];
        for i in 0..R {
            column[i] = v[i][e];
        }
        for m in 0..M {
            let mut sum = g[m].0[e];
            for i in 0..R {
                sum = simd.mul_add_f64s(factors[m][i], column[i], sum);
            }
            g[m].0[e] = sum;
        }
    }
}

/// Columns per strip of the packed chunk: two AVX-512 vectors.
const STRIP: usize = 16;

/// The sum `Vᵀ D V` over the rows of one panel: a symmetric rank-k update in tiles that fit the registers.
pub(super) struct Gram {
    p: usize,
    /// `p` rounded up to whole strips.
    width: usize,
    /// `width × width`, row by row; only the tiles that meet the lower triangle are kept.
    sums: Vec<f64>,
    /// The rows `√d_r v_r` of a chunk, strip by strip: entry `[strip][r][c]`.
    packed: Vec<f64>,
}

impl Gram {
    /// Zero.
    pub fn new(p: usize) -> Self {
        let width = p.next_multiple_of(STRIP);
        Self { p, width, sums: vec![0.0; width * width], packed: vec![0.0; CHUNK * width] }
    }

    /// Back to zero.
    pub fn clear(&mut self) {
        self.sums.fill(0.0);
    }

    /// Adds `Σ_r d_r v_r v_rᵀ` over the rows of a chunk, given the roots `√d_r`.
    pub fn add(&mut self, v: &[f64], roots: &[f64]) {
        struct Add<'a>(&'a mut Gram, &'a [f64], &'a [f64]);
        impl WithSimd for Add<'_> {
            type Output = ();
            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Self(gram, v, roots) = self;
                gram.pack(v, roots);
                // As many sums as the registers hold beside the factors.
                if S::REGISTER_COUNT >= 32 {
                    gram.add_packed::<S, 8>(simd, roots.len())
                } else {
                    gram.add_packed::<S, 4>(simd, roots.len())
                }
            }
        }
        vectorised(Add(self, v, roots));
    }

    #[inline(always)]
    fn pack(&mut self, v: &[f64], roots: &[f64]) {
        for (r, (v, root)) in v.chunks_exact(self.p).zip(roots).enumerate() {
            for (strip, v) in v.chunks(STRIP).enumerate() {
                let at = (strip * CHUNK + r) * STRIP;
                for (packed, v) in self.packed[at..at + STRIP].iter_mut().zip(v) {
                    *packed = root * v; // beyond the last column it stays zero
                }
            }
        }
    }

    #[inline(always)]
    fn add_packed<S: Simd, const H: usize>(&mut self, simd: S, rows: usize) {
        let strip = |i: usize| &self.packed[i * CHUNK * STRIP..(i * CHUNK + rows) * STRIP];
        let strips = self.width / STRIP;
        // Three strips at a time fit the first-level cache: two of `j` that stay while those of `i` go by.
        for pair in (0..strips).step_by(2) {
            for i in 0..strips.min(pair + 2) {
                for j in pair.max(i)..strips.min(pair + 2) {
                    for y in (0..STRIP).step_by(H) {
                        let sums = &mut self.sums[(j * STRIP + y) * self.width + i * STRIP..];
                        for x in (0..STRIP).step_by(2 * S::F64_LANES) {
                            tile::<S, H>(simd, strip(i), x, strip(j), y, &mut sums[x..], self.width);
                        }
                    }
                }
            }
        }
    }

    /// `out ← Σ` of the panels' sums in order: the lower triangle, in the upper left corner of a matrix of `n ≥ p` columns.
    pub fn total<'a>(panels: impl Iterator<Item = &'a Gram>, out: &mut [f64], n: usize) {
        let panels: Vec<&Gram> = panels.collect();
        parallel::each(out.chunks_mut(n).enumerate(), |(j, out)| {
            out.fill(0.0);
            for panel in &panels {
                if j < panel.p {
                    for (out, sum) in out[..=j].iter_mut().zip(&panel.sums[j * panel.width..]) {
                        *out += sum;
                    }
                }
            }
        });
    }
}

/// `sums[h][·] += Σ_r b[r][y + h] · a[r][x + ·]` for `h < H` and two vectors of columns, the sums held in registers.
#[inline(always)]
fn tile<S: Simd, const H: usize>(simd: S, a: &[f64], x: usize, b: &[f64], y: usize, sums: &mut [f64], stride: usize) {
    let mut sum = [[simd.splat_f64s(0.0); 2]; H];
    let (a, b) = (a.as_chunks::<STRIP>().0, b.as_chunks::<STRIP>().0);
    for (a, b) in a.iter().zip(b) {
        let a = S::as_simd_f64s(&a[x..x + 2 * S::F64_LANES]).0;
        let a = [a[0], a[1]];
        let b = &b[y..y + H];
        for h in 0..H {
            let b = simd.splat_f64s(b[h]);
            sum[h] = [simd.mul_add_f64s(b, a[0], sum[h][0]), simd.mul_add_f64s(b, a[1], sum[h][1])];
        }
    }
    for h in 0..H {
        let out = S::as_mut_simd_f64s(&mut sums[h * stride..h * stride + 2 * S::F64_LANES]).0;
        for (out, sum) in out.iter_mut().zip(sum[h]) {
            *out = simd.add_f64s(*out, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn products_are_the_plain_sums(p in 1usize..40, n in 1usize..CHUNK + 1, seed in 0u64..1000) {
            let value = |i: usize| (((i as u64 * 2_654_435_761 + seed * 97) % 1000) as f64) / 500.0 - 1.0;
            let v: Vec<f64> = (0..n * p).map(value).collect();
            let x: Vec<f64> = (0..p).map(|i| value(i + 7)).collect();
            let d: Vec<f64> = (0..n).map(|i| value(i + 13).abs()).collect();

            let mut z = vec![f64::NAN; n];
            products(&v, &x, &mut z);
            for r in 0..n {
                let plain: f64 = (0..p).map(|j| v[r * p + j] * x[j]).sum();
                prop_assert!((z[r] - plain).abs() < 1e-12);
            }

            let mut g = x.clone();
            add_combinations(&v, [&d], [&mut g]);
            for j in 0..p {
                let plain: f64 = x[j] + (0..n).map(|r| d[r] * v[r * p + j]).sum::<f64>();
                prop_assert!((g[j] - plain).abs() < 1e-12);
            }

            let mut panels = [Gram::new(p), Gram::new(p)];
            let half = n / 2;
            let roots: Vec<f64> = d.iter().map(|d| d.sqrt()).collect();
            panels[0].add(&v[..half * p], &roots[..half]);
            panels[1].add(&v[half * p..], &roots[half..]);
            let mut m = vec![f64::NAN; p * p];
            Gram::total(panels.iter(), &mut m, p);
            for i in 0..p {
                for j in 0..=i {
                    let plain: f64 = (0..n).map(|r| d[r] * v[r * p + i] * v[r * p + j]).sum();
                    prop_assert!((m[i * p + j] - plain).abs() < 1e-12);
                }
            }
        }
    }
}
