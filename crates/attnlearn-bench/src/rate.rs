//! How close sampling, forward pass and certification come to the machine's multiply-add rate.
//!
//! Per example, with `z = XŜ` and all squared distances:
//! forward `m k (d² + k d + d d_out + k d_out)`, certification `k d d_out + k²(d + d_out) + k² d_out` multiply-adds.
//! The three parts are timed apart: sampling and sampling with the forward pass by themselves, certification as what is left.
//! The yardstick is the same small product, `M x` for 16×16 matrices in the first-level cache, on as many threads.

use attnlearn::data::{Block, ExampleSource, InputDistribution, Shape};
use attnlearn::linalg::lanes::{LANES, vectorised};
use attnlearn::linalg::product::apply_matrix;
use attnlearn::sculpt::{Heads, Phase, Settings, Unwatched, learn};
use attnlearn::teacher::{TeacherSpec, TeacherStream};
use pulp::{Simd, WithSimd};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::time::Instant;

/// Prints the rates.
pub fn run() -> Result<(), String> {
    let peak = multiply_add_rate();
    println!("multiply-adds of 16×16 matrices in cache, f32, {} threads: {peak:.1} G/s", rayon::current_num_threads());
    println!(
        "| d, k, m, ‖Θ‖_F | sampling | forward | certification | examples/s, phase 4 | multiply-adds/example | G/s | share |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (d, k, m, norm) in [(8, 4, 2, 8.0), (12, 4, 3, 8.0), (12, 6, 2, 6.0), (16, 3, 4, 8.0)] {
        let teacher = TeacherSpec::dense(d, m, norm).draw(&mut ChaCha8Rng::seed_from_u64(1)).map_err(|e| e.to_string())?;
        let source = TeacherStream::new(&teacher, k, InputDistribution::Boolean, 2, None);
        // An unreachable goal keeps phase 4 going.
        let settings =
            Settings { heads: Heads::Given(m), most_examples: 2_200_000, goal: 1e-9, polish: false, ..Default::default() };
        let settings = settings.check(&source).map_err(|e| e.to_string())?;
        let learned = learn(&source, &settings, &Unwatched).map_err(|e| e.to_string())?;
        let longest = learned.records.iter().filter(|r| r.phase == Phase::Resculpt).max_by_key(|r| r.rows_seen);
        let Some(record) = longest else { continue };
        let rate = record.rows_seen as f64 / k as f64 / record.seconds;
        let forward = m * k * (d * d + k * d + d * d + k * d);
        let certification = k * d * d + k * k * 2 * d + k * k * d;
        let work = (forward + certification) as f64;
        let sampling = nanoseconds(source.shape(), |block, index| {
            InputDistribution::Boolean.fill(&mut ChaCha8Rng::seed_from_u64(index), block);
        });
        let drawing = nanoseconds(source.shape(), |block, index| source.fill_f32(index, block).unwrap_or_default());
        println!(
            "| {d}, {k}, {m}, {norm} | {sampling:.0} ns | {:.0} ns | {:.0} ns | {rate:.2e} | {work} | {:.1} | {:.0} % |",
            drawing - sampling,
            1e9 / rate - drawing,
            rate * work / 1e9,
            100.0 * rate * work / 1e9 / peak
        );
    }
    Ok(())
}

/// Nanoseconds per example of filling blocks on all threads.
fn nanoseconds(shape: Shape, fill: impl Fn(&mut Block<f32>, u64) + Sync) -> f64 {
    const BLOCKS: u64 = 2000;
    let start = Instant::now();
    (0..BLOCKS).into_par_iter().for_each_init(|| Block::new(shape), |block, index| fill(block, index));
    start.elapsed().as_secs_f64() * 1e9 / (BLOCKS * Block::<f32>::CAPACITY as u64) as f64
}

/// Multiply-adds per nanosecond of the forward pass's own inner loop on data that stay in cache.
pub fn multiply_add_rate() -> f64 {
    const SIZE: usize = 16;
    const TOKENS: usize = 8;
    const REPEATS: usize = 200_000;
    struct Loop;
    impl WithSimd for Loop {
        type Output = f32;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f32 {
            let matrix = vec![0.01f32; SIZE * SIZE];
            const LEN: usize = TOKENS * SIZE * LANES;
            // Both begin at a cache line, as the panels of the forward pass do.
            let (mut x, mut y) = (vec![1.0f32; LEN + LANES], vec![0.0f32; LEN + LANES]);
            let (skip_x, skip_y) = (x.as_ptr().align_offset(64), y.as_ptr().align_offset(64));
            let (x, y) = (&mut x[skip_x..skip_x + LEN], &mut y[skip_y..skip_y + LEN]);
            for _ in 0..REPEATS / 2 {
                apply_matrix(simd, &matrix, SIZE, SIZE, None, TOKENS, x, y);
                apply_matrix(simd, &matrix, SIZE, SIZE, None, TOKENS, y, x);
            }
            x[0]
        }
    }
    let threads = rayon::current_num_threads();
    let start = Instant::now();
    let sum: f32 = (0..threads).into_par_iter().map(|_| vectorised(Loop)).sum();
    let seconds = start.elapsed().as_secs_f64();
    assert!(sum.is_finite());
    (threads * REPEATS * TOKENS * SIZE * SIZE * LANES) as f64 / seconds / 1e9
}
