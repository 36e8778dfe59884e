//! The widest directions of a body around an affine hull span the hull's differences.

use super::*;

/// The slabs that `m` random matrices satisfy at once: rows (almost) orthogonal to all `Θ_i − Θ_1`, of half-width `xi`,
/// with noise below it. Also an orthonormal basis of `span{Θ_i − Θ_1}`.
fn around_affine_hull(d: usize, m: usize, n: usize, xi: f64, seed: u64) -> (Body, Vec<Vec<f64>>) {
    let (p, mut rng) = (d * d, ChaCha8Rng::seed_from_u64(seed));
    let theta: Vec<Vec<f64>> = (0..m).map(|_| (0..p).map(|_| normal(&mut rng)).collect()).collect();
    let mut basis: Vec<Vec<f64>> = vec![];
    for other in &theta[1..] {
        let mut w: Vec<f64> = other.iter().zip(&theta[0]).map(|(a, b)| a - b).collect();
        for u in &basis {
            let along = dot(&w, u);
            w.iter_mut().zip(u).for_each(|(w, u)| *w -= along * u);
        }
        let length = norm(&w);
        basis.push(w.iter().map(|w| w / length).collect());
    }
    let mut body = Body::new(p, 20.0).unwrap();
    for _ in 0..n {
        let mut v: Vec<f64> = (0..p).map(|_| if rng.random() { 1.0 } else { -1.0 }).collect();
        for u in &basis {
            let along = dot(&v, u) * (1.0 - 1e-3 * xi * normal(&mut rng));
            v.iter_mut().zip(u).for_each(|(v, u)| *v -= along * u);
        }
        let noise = 0.5 * xi * rng.random_range(-1.0..1.0);
        body.push_slab(&v, dot(&v, &theta[0]) + noise, xi).unwrap();
    }
    (body, basis)
}

/// The sine of the largest angle between the columns found and the span.
fn largest_sine(found: &WideDirections, basis: &[Vec<f64>]) -> f64 {
    let mut worst = 0.0f64;
    for j in 0..found.directions.ncols() {
        let u: Vec<f64> = (0..found.directions.nrows()).map(|i| found.directions[(i, j)]).collect();
        let inside: f64 = basis.iter().map(|b| dot(&u, b).powi(2)).sum();
        worst = worst.max((1.0 - inside).max(0.0).sqrt());
    }
    worst
}

#[test]
fn the_span_of_the_differences_is_found() {
    let settings = Settings::default();
    for (d, m, xi, seed) in [(3, 2, 1e-2, 1), (4, 3, 1e-3, 2), (5, 4, 1e-2, 3)] {
        let (body, basis) = around_affine_hull(d, m, 12 * d * d, xi, seed);
        let found = wide_directions(&body, m, 9, &WideSettings::default(), &settings).unwrap();
        assert_eq!(found.status, Status::Solved);
        // One direction more than there are: its width tells them apart.
        assert!(found.widths[m - 1] < 0.05 * found.widths[m - 2], "{:?}", found.widths);
        let first = WideDirections { directions: found.directions.subcols(0, m - 1).to_owned(), ..found.clone() };
        assert!(largest_sine(&first, &basis) < 5.0 * xi, "m = {m}: {}", largest_sine(&first, &basis));
        for a in 0..m {
            for b in 0..=a {
                let product = dot(
                    found.directions.col(a).try_as_col_major().unwrap().as_slice(),
                    found.directions.col(b).try_as_col_major().unwrap().as_slice(),
                );
                assert!((product - f64::from(u8::from(a == b))).abs() < 1e-12);
            }
        }
        // The widths are those of the directions.
        let u: Vec<f64> = (0..d * d).map(|i| found.directions[(i, 0)]).collect();
        let width = extent(&body, &u, &settings).unwrap().width();
        assert!((width - found.widths[0]).abs() < 1e-7 * width);
    }
}

#[test]
fn an_empty_body_has_no_directions() {
    let mut body = Body::new(2, 1.0).unwrap();
    body.push_lower(&[1.0, 0.0], 0.5).unwrap();
    body.push_lower(&[-1.0, 0.0], -0.4).unwrap();
    let found = wide_directions(&body, 1, 0, &WideSettings::default(), &Settings::default()).unwrap();
    assert!(matches!(found.status, Status::Empty { .. }) && found.widths.is_empty());
}
