//! (in work)
#![allow(missing_docs, dead_code)]
pub mod agreement;
pub mod crude;
pub mod sharpen;
mod record;
mod settings;
pub use record::{Learned, Outcome, Phase, Quantiles, Record, Stage, Unwatched, Watch};
pub use settings::{FEWEST_EXAMPLES, Heads, Settings, ValidSettings};
pub mod span;
/// Runs the six phases, the polish and the certificate.
pub fn learn(_source: &dyn ExampleSource, _settings: &ValidSettings, _watch: &dyn Watch) -> crate::Result<Learned> { Err(crate::Error::Interrupted) }

pub mod search;
use crate::data::*;
use crate::layer::*;
use crate::linalg::*;
use std::collections::HashMap;
pub fn scratch(source: &dyn ExampleSource, teacher: &AttentionLayer, steps: &[u64]) {
    let mut truth = teacher.heads()[0].w.clone();
    for h in &teacher.heads()[1..] { truth += &h.w; }
    let t0 = std::time::Instant::now();
    let m = crude::Moments::gather(source, 0..100).unwrap();
    let s = m.crude_sum(source.shape().k);
    let e = |s: &Mat<f64>| frobenius((s - &truth).as_ref()) / frobenius(truth.as_ref());
    let t1 = t0.elapsed().as_secs_f64();
    let fr: Vec<f64> = (0..30).map(|i| 0.8f64.powi(i)).collect();
    let (s2, r) = sharpen::sharpen(source, 0..1000, s.clone(), &fr).unwrap();
    println!("crude {:.3} ({t1:.2}s) sharp {:.2e} ({:.2}s) rounds {} res {:.1e} cond {:.2} change {:.1e}", e(&s), e(&s2), t0.elapsed().as_secs_f64(), r.len(), r.last().unwrap().residual, r.last().unwrap().conditioning, r.last().unwrap().change);
    let d = source.shape().d;
    let heads = teacher.heads().len();
    let mut lo = 0;
    let mut best: HashMap<u64, agreement::AgreeingRow> = HashMap::new();
    let mut test = agreement::PairTest::new(&s2, 1.0, 1.0);
    for &hi in steps {
        let mut cand = 0;
        while lo < hi {
        let end = hi.min(lo + 1024);
        scan::<f32, _>(source, lo..end, |b| test.rows(b), |rows| for row in rows {
            cand += 1;
            let key = row.key();
            match best.get(&key) { Some(old) if old.eta <= row.eta => {}, _ => { best.insert(key, row); } }
        }).unwrap();
        lo = end;
        let keep = 32 * d * d;
        if best.len() > keep { 
            let mut etas: Vec<f64> = best.values().map(|r| r.eta).collect();
            etas.sort_by(f64::total_cmp);
            let cut = etas[keep];
            test.eta = cut; test.delta = (cut * 2.0 * d as f64).min(1.0);
            best.retain(|_, r| r.eta <= cut);
        }
        }
        let mut rows: Vec<_> = best.values().cloned().collect();
        rows.sort_by(|a, b| a.eta.total_cmp(&b.eta));
        print!("  {:.0e} seqs, {} cand, {} rows ({:.1}s)", hi as f64 * 512.0, cand, rows.len(), t0.elapsed().as_secs_f64());
        if std::env::var("DIAG").is_ok() {
            println!();
            let n = rows.len().min(40);
            for r in rows[..n].iter() {
                let v = r.direction(); let nv = r.norm();
                let ls: Vec<f64> = teacher.heads().iter().map(|h| { let t = row_major(h.theta.to_dense().as_ref()); t.iter().zip(&v).map(|(a,b)| a*b).sum::<f64>()*nv }).collect();
                println!("    δ {:.3} η {:.4} |v| {:.1} ℓ̂ {:.2} true {:.2?}", r.delta, r.eta, nv, r.log_odds, ls);
            }
        }
        println!();
        if heads > 1 && std::env::var("FULL").is_ok() {
            let n = 48 * heads * d / source.shape().k;
            let sample = crate::descend::Sample::read(source, 1 << 40, n).unwrap();
            for seed in 0..3 {
                let t1 = std::time::Instant::now();
                let basis: Vec<Vec<f64>> = (0..d*d).map(|i| (0..d*d).map(|j| if i==j {1.0} else {0.0}).collect()).collect();
                let mats = search::orthonormal(&basis);
                let _ = mats;
                use rand::{RngExt, SeedableRng};
                let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
                let start: Vec<Mat<f64>> = (0..heads).map(|_| Mat::from_fn(d, d, |_, _| { let g: f64 = rng.sample(rand_distr::StandardNormal); g * 3.0 / d as f64})).collect();
                let f = crate::descend::fit(&sample, &start, &crate::descend::Parametrisation::Full, &Default::default()).unwrap();
                println!("    full varpro n {n} it {} nmse {:.1e} err {:.9?} {:.2}s", f.history.len(), f.nmse, errors(teacher, &f.thetas), t1.elapsed().as_secs_f64());
            }
        }
        let n = 48 * heads * d / source.shape().k;
        let sample = crate::descend::Sample::read(source, 1 << 40, n.max(400)).unwrap();
        for (mult, irls) in [(1.2, 5), (2.0, 5), (4.0, 5), (8.0, 5), (16.0, 5)] {
            for sd in [heads, 2 * heads, 4 * heads, 8 * heads] { if sd >= d*d || heads == 1 && sd > 1 { continue; }
            let t1 = std::time::Instant::now();
            let n = (mult * (d * d) as f64) as usize;
            let Some((_, b)) = span::plain(&rows, n, sd, irls, 4.0) else { continue };
            let Some(f) = search::search(&sample, &b, heads, 6.0, 4, 7) else { continue };
            println!("     n{mult}p s{sd} nmse {:.1e} err {:.3?} it {} {:.2}s", f.nmse, errors(teacher, &f.thetas), f.history.len(), t1.elapsed().as_secs_f64());
        }}
    }
}
fn errors(teacher: &AttentionLayer, thetas: &[Mat<f64>]) -> Vec<f64> {
    teacher.heads().iter().map(|h| { let t = h.theta.to_dense(); thetas.iter().map(|s| frobenius((&t - s).as_ref()) / frobenius(t.as_ref())).fold(f64::MAX, f64::min) }).collect()
}
