//! scratch
use attnlearn::data::*;
use rand::SeedableRng;
fn main() {
    for (d, k, m) in [(8, 4, 2), (12, 4, 3), (12, 6, 2), (16, 3, 4), (6, 3, 3)] {
        let t = TeacherSpec::dense(d, m, 8.0).draw(&mut rand_chacha::ChaCha8Rng::seed_from_u64(1)).unwrap();
        let s = TeacherStream::new(&t, k, InputDistribution::Boolean, 1, None);
        let mut b = Block::<f32>::new(s.shape());
        let t0 = std::time::Instant::now();
        let nb = 400;
        for i in 0..nb {
            s.fill_f32(i, &mut b).unwrap();
        }
        let dt = t0.elapsed().as_secs_f64();
        let n = nb as f64 * Block::<f32>::CAPACITY as f64;
        let fl = (m * k * (2 * d * d + 2 * k * d)) as f64 * 2.0 * n;
        println!("{d} {k} {m}: {:.2} M seq/s, {:.1} GF/s f32 per thread", n / dt / 1e6, fl / dt / 1e9);
        let mut b = Block::<f64>::new(s.shape());
        let t0 = std::time::Instant::now();
        for i in 0..nb {
            s.fill_f64(i, &mut b).unwrap();
        }
        let dt = t0.elapsed().as_secs_f64();
        println!("   f64 {:.2} M seq/s, {:.1} GF/s", n / dt / 1e6, fl / dt / 1e9);
    }
}
