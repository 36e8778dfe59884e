//! Phase 6 scratch
use super::*;
use crate::descend::*;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;

/// orthonormal basis
pub fn orthonormal(b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut q: Vec<Vec<f64>> = vec![];
    for v in b {
        let mut v = v.clone();
        for _ in 0..2 { for u in &q { let c: f64 = u.iter().zip(&v).map(|(a, b)| a * b).sum(); for (x, y) in v.iter_mut().zip(u) { *x -= c * y; } } }
        let n = v.iter().map(|x| x * x).sum::<f64>().sqrt();
        if n < 1e-9 { continue; }
        for x in &mut v { *x /= n; }
        q.push(v);
    }
    q
}

pub fn search(sample: &Sample, basis: &[Vec<f64>], m: usize, norm: f64, starts: usize, seed: u64) -> Option<Fit> {
    let d = sample.shape().d;
    let q = orthonormal(basis);
    let mats: Vec<Mat<f64>> = q.iter().map(|v| from_row_major(d, d, v)).collect();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut best: Option<Fit> = None;
    let free = Parametrisation::Span(mats.clone());
    for _ in 0..starts {
        // near-orthogonal random directions in the span
        let g: Vec<Vec<f64>> = (0..m).map(|_| (0..mats.len()).map(|_| rng.sample(StandardNormal)).collect()).collect();
        let g = if mats.len() >= m { orthonormal(&g) } else { g };
        let start: Vec<Mat<f64>> = g.iter().map(|c| { let mut t = Mat::zeros(d, d); for (b, c) in mats.iter().zip(c) { t += b * faer::Scale(c * norm); } t }).collect();
        let fit = fit(sample, &start, &free, &crate::descend::Settings { iterations: 25, goal: 1e-10, progress: 1e-2, ..Default::default() }).ok()?;
        if best.as_ref().is_none_or(|b| fit.nmse < b.nmse) { best = Some(fit); }
        if best.as_ref().is_some_and(|b| b.nmse < 1e-3) { break; }
    }
    best
}
