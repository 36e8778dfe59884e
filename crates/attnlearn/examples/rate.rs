//! scratch
use attnlearn::data::*;
use rand::SeedableRng;
fn main() {
    let only: Option<usize> = std::env::args().nth(1).map(|s| s.parse().unwrap());
    for (i, (d, k, m, f)) in [(6,3,1,4.0),(12,4,1,4.0),(8, 4, 2,4.0),(8,4,2,8.0),(6,3,2,6.0),(10,4,2,6.0),(12,6,2,6.0), (12, 3,3,8.0),(10,3,3,8.0),(12,4,3,8.0), (8,3,3,8.0),(6, 3, 3,6.0),(8,4,3,8.0),(16,3,4,8.0)].into_iter().enumerate() {
        if only.is_some_and(|o| o != i) { continue; }
        println!("== {d} {k} {m} {f}");
        for seed in 0..2 {
        let t = TeacherSpec::dense(d, m, f).draw(&mut rand_chacha::ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let s = TeacherStream::new(&t, k, InputDistribution::Boolean, seed+1000, None);
        let steps: &[u64] = match m { 1 => &[100], 2 => &[1600], _ => &[8000] };
        attnlearn::sculpt::scratch(&s, &t, steps);
        }
    }
}
