//! Phase 5: the span of the attention matrices.

use super::agreement::AgreeingRow;
use crate::linalg::{Mat, symmetric_eigen};
use faer::Accum;

pub struct Hull {
    pub spectrum: Vec<f64>,
    /// (p+1) × m
    pub kernel: Mat<f64>,
    pub scale: f64,
    pub score: f64,
    pub inliers: usize,
}

/// N × (p+1), unit rows
pub(crate) fn extended(rows: &[AgreeingRow], scale: f64) -> Mat<f64> {
    let p = rows[0].x_a.len() * rows[0].gap.len();
    let mut v = Mat::zeros(rows.len(), p + 1);
    for (r, row) in rows.iter().enumerate() {
        let last = -row.log_odds / (row.norm() * scale);
        let n = (1.0 + last * last).sqrt();
        for (j, x) in row.direction().into_iter().enumerate() {
            v[(r, j)] = x / n;
        }
        v[(r, p)] = last / n;
    }
    v
}

fn kernel(v: &Mat<f64>, w: &[f64], m: usize) -> Option<(Vec<f64>, Mat<f64>)> {
    let total: f64 = w.iter().sum();
    let n = w.iter().filter(|w| **w > 0.0).count();
    let p = v.ncols();
    let mut a = Mat::zeros(n, p);
    let mut i = 0;
    for r in 0..v.nrows() {
        if w[r] > 0.0 {
            let s = (w[r] / total).sqrt();
            for j in 0..p { a[(i, j)] = s * v[(r, j)]; }
            i += 1;
        }
    }
    let mut g = Mat::zeros(p, p);
    faer::linalg::matmul::matmul(g.as_mut(), Accum::Replace, a.transpose(), a.as_ref(), 1.0, faer::Par::Seq);
    let (spectrum, vectors) = symmetric_eigen(g.as_ref())?;
    Some((spectrum, vectors.subcols(0, m).to_owned()))
}

pub(crate) fn hull(rows: &[AgreeingRow], m: usize, scale: f64, sigma_end: f64) -> Option<Hull> {
    let v = extended(rows, scale);
    let p = v.ncols();
    let mut best: Option<Hull> = None;
    for mult in [1.2, 2.0, 4.0, 8.0] {
        let n = ((mult * p as f64) as usize).min(rows.len());
        if n < p { return None; }
        let e0 = rows[n / 2].eta;
        let prior: Vec<f64> = rows.iter().map(|r| 1.0 / (r.eta * r.eta + e0 * e0)).collect();
        let w: Vec<f64> = (0..rows.len()).map(|r| if r < n { prior[r] } else { 0.0 }).collect();
        let (mut spectrum, mut k) = kernel(&v, &w, m)?;
        let dist = |k: &Mat<f64>| -> Vec<f64> { let t = &v * k; (0..v.nrows()).map(|r| (0..m).map(|j| t[(r, j)].powi(2)).sum::<f64>()).collect() };
        let mut t = dist(&k);
        let mut sorted = t[..n].to_vec(); sorted.sort_by(f64::total_cmp);
        let mut sigma = sorted[n / 2].sqrt().max(sigma_end);
        loop {
            for _ in 0..3 {
                let w: Vec<f64> = t.iter().zip(&prior).map(|(t, p)| { let g = (sigma * sigma / (sigma * sigma + t)).powi(2); if g < 0.01 { 0.0 } else { g * p } }).collect();
                if w.iter().filter(|w| **w > 0.0).count() < p { break; }
                let (s2, k2) = kernel(&v, &w, m)?;
                spectrum = s2; k = k2;
                t = dist(&k);
            }
            if sigma <= sigma_end { break; }
            sigma = (sigma * 0.75).max(sigma_end);
        }
        let s2 = sigma_end * sigma_end;
        let score: f64 = t.iter().map(|t| (s2 / (s2 + t)).powi(2)).sum();
        let inliers = t.iter().filter(|t| **t < s2).count();
        if best.as_ref().is_none_or(|b| score > b.score) {
            best = Some(Hull { spectrum, kernel: k, scale, score, inliers });
        }
    }
    best
}

impl Hull {
    /// vectors spanning {Θ_i}: first p coordinates of the kernel
    pub fn basis(&self) -> Vec<Vec<f64>> {
        (0..self.kernel.ncols()).map(|j| (0..self.kernel.nrows() - 1).map(|i| self.kernel[(i, j)]).collect()).collect()
    }
}

pub(crate) fn plain(rows: &[AgreeingRow], n: usize, s: usize, irls: usize, scale: f64) -> Option<(Vec<f64>, Vec<Vec<f64>>)> {
    let n = n.min(rows.len());
    let rows = &rows[..n];
    let v = extended(rows, scale);
    let e0 = rows[n / 2].eta;
    let prior: Vec<f64> = rows.iter().map(|r| 1.0 / (r.eta * r.eta + e0 * e0)).collect();
    let (mut sp, mut k) = kernel(&v, &prior, s)?;
    for _ in 0..irls {
        let t = &v * &k;
        let t: Vec<f64> = (0..n).map(|r| (0..s).map(|j| t[(r, j)].powi(2)).sum::<f64>()).collect();
        let mut so = t.clone(); so.sort_by(f64::total_cmp);
        let med = so[n / 2].max(1e-6);
        let w: Vec<f64> = t.iter().zip(&prior).map(|(t, p)| p / (1.0 + t / med)).collect();
        let x = kernel(&v, &w, s)?; sp = x.0; k = x.1;
    }
    Some((sp, (0..s).map(|j| (0..k.nrows() - 1).map(|i| k[(i, j)]).collect()).collect()))
}
