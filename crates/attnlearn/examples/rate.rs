//! scratch
use attnlearn::data::*;
use attnlearn::sculpt::*;
use rand::SeedableRng;
struct W;
impl Watch for W { fn end(&self, r: &Record) { if std::env::var("V").is_ok() { println!("   {} {:?} {:.2}s seen {} acc {} | {} {:?}", r.phase.label(), r.phase, r.seconds, r.rows_seen, r.rows_accepted, r.note, r.widths); } } }
fn main() {
    let only: Option<usize> = std::env::args().nth(1).map(|s| s.parse().unwrap());
    let seeds: u64 = std::env::args().nth(2).map_or(2, |s| s.parse().unwrap());
    for (i, (d, k, m, f)) in [(6,3,1,4.0),(12,4,1,4.0),(8, 4, 2,4.0),(8,4,2,8.0),(6,3,2,6.0),(10,4,2,6.0),(12,6,2,6.0), (12, 3,3,8.0),(10,3,3,8.0),(12,4,3,8.0), (8,3,3,8.0),(6, 3, 3,6.0),(8,4,3,8.0),(16,3,4,8.0)].into_iter().enumerate() {
        if only.is_some_and(|o| o != i) { continue; }
        println!("== {d} {k} {m} {f}");
        for seed in 0..seeds {
        let t = TeacherSpec::dense(d, m, f).draw(&mut rand_chacha::ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let s = TeacherStream::new(&t, k, InputDistribution::Boolean, seed+1000, None);
        let set = Settings { heads: Heads::Given(m), most_examples: if m < 3 { 5_000_000 } else { 100_000_000 }, ..Default::default() }.check(&s).unwrap();
        let t0 = std::time::Instant::now();
        let l = learn(&s, &set, &W).unwrap();
        let e = |st: &Option<Stage>| st.as_ref().map_or("-".to_string(), |st| format!("nmse {:.1e} th {:.1e}", st.nmse, t.canonical(1e-9).layer.distance(&st.layer).unwrap().worst_theta()));
        println!("seed {seed}: {} before {} after {} ex {:.1e} {:.1}s", l.outcome, e(&l.before_polish), e(&l.after_polish), l.examples as f64, t0.elapsed().as_secs_f64());
        }
    }
}
