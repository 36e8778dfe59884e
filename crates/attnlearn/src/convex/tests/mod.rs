//! Random bodies, a reference solver, and the identities that the answers must satisfy.

mod agreement;
mod emptiness;
mod input;
mod known;
mod optimality;
mod threads;
mod wide;

use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    rng.sample(StandardNormal)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// A body around a planted point, degenerate in every way we know: few rows or many, duplicate and zero rows, rows of
/// very different lengths, equations, slabs of half-width 1e-12 and of any width down to 1e-13 of their size, one-sided
/// rows, rows that only touch the body, equations in the disguise of two one-sided rows.
fn degenerate_body(seed: u64) -> Body {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let p = rng.random_range(1..12usize);
    let radius = 10f64.powf(rng.random_range(0.0..3.0));
    let size = radius.min(10f64.powf(rng.random_range(-1.0..1.0)));
    let theta: Vec<f64> = (0..p).map(|_| size * rng.random_range(-0.99..0.99)).collect();
    let thin = 10f64.powf(rng.random_range(-13.0..0.0));
    let small_integers = rng.random::<bool>();
    let mut body = Body::new(p, radius).unwrap();
    for _ in 0..rng.random_range(0..60usize) {
        let mut v: Vec<f64> = (0..p).map(|_| normal(&mut rng)).collect();
        if small_integers {
            v.iter_mut().for_each(|v| *v = f64::from(rng.random_range(-1..2i32)));
        } else {
            let length = 10f64.powf(rng.random_range(-2.0..2.0));
            v.iter_mut().for_each(|v| *v *= length);
        }
        match rng.random_range(0..12) {
            0 if body.count() > 0 => {
                v = body.row(rng.random_range(0..body.count())).to_vec();
                let factor = f64::from(rng.random_range(-2..3i32));
                v.iter_mut().for_each(|v| *v *= factor);
            }
            1 if rng.random_range(0..4) == 0 => v.fill(0.0),
            2 => v.iter_mut().for_each(|v| *v *= f64::from(u8::from(rng.random_range(0..3) == 0))),
            _ => {}
        }
        let (z, length) = (dot(&v, &theta), norm(&v));
        let width = length * rng.random_range(0.01..1.0);
        match rng.random_range(0..10) {
            0 => body.push_slab(&v, z, 0.0),
            1 => body.push_slab(&v, z, 1e-12),
            2 => body.push_slab(&v, z, thin * length),
            3 => body.push_lower(&v, z),
            4 => body.push_lower(&v, z - width),
            5 => body.push(&v, f64::NEG_INFINITY, z + width),
            6 => body.push(&v, z, z + width),
            7 => {
                body.push_lower(&v, z).unwrap();
                v.iter_mut().for_each(|v| *v = -*v);
                body.push_lower(&v, -z)
            }
            _ => body.push_slab(&v, z + width * rng.random_range(-1.0..1.0), width),
        }
        .unwrap();
    }
    body
}

/// A body of `n` slabs of half-width `xi` around a planted point, with sign rows as the learner has them.
fn slabs(n: usize, p: usize, xi: f64, seed: u64) -> Body {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let theta: Vec<f64> = (0..p).map(|_| normal(&mut rng)).collect();
    let mut body = Body::new(p, 10.0).unwrap();
    for _ in 0..n {
        let v: Vec<f64> = (0..p).map(|_| if rng.random() { 1.0 } else { -1.0 }).collect();
        let centre = dot(&v, &theta) + 0.9 * xi * rng.random_range(-1.0..1.0);
        body.push_slab(&v, centre, xi).unwrap();
    }
    body
}
