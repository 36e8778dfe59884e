//! Empty bodies are recognised, and the proof is no larger than the truth.

use super::*;

/// A body made empty by a combination: `⟨v_i, θ⟩ ≤ u_i` for some rows, and `⟨Σ c_i v_i, θ⟩ ≥ Σ c_i u_i + gap`.
fn emptied(seed: u64, gap: f64) -> Body {
    let mut rng = ChaCha8Rng::seed_from_u64(seed + 77);
    let mut body = degenerate_body(seed);
    let p = body.dimension();
    let (mut w, mut bound) = (vec![0.0; p], 0.0);
    for _ in 0..rng.random_range(1..=p + 1) {
        let v: Vec<f64> = (0..p).map(|_| normal(&mut rng)).collect();
        let (c, u) = (rng.random_range(0.1..1.0), normal(&mut rng));
        body.push(&v, f64::NEG_INFINITY, u).unwrap();
        w.iter_mut().zip(&v).for_each(|(w, v)| *w += c * v);
        bound += c * u;
    }
    body.push_lower(&w, bound + gap * norm(&w)).unwrap();
    body
}

#[test]
fn contradictions_are_found_and_proven() {
    let settings = Settings::default();
    for seed in 0..300 {
        let gap = 10f64.powi(-((seed % 7) as i32));
        let body = emptied(seed, gap);
        let nearest = minimum_norm(&body, &settings).unwrap();
        let along = extent(&body, &vec![1.0; body.dimension()], &settings).unwrap();
        let longest = body.norms().iter().copied().fold(0.0, f64::max);
        let lengths: Vec<f64> = body.norms().iter().map(|n| if *n > 0.0 { *n } else { longest }).collect();
        let widening = least_widening(&body, &lengths, &settings).unwrap();
        for status in [nearest.status, along.status] {
            let Status::Empty { by } = status else { panic!("body {seed}, gap {gap:e}: {status:?}") };
            assert!(by > 0.0 && by <= widening.t + 1e-8, "body {seed}: {by} is proven, {} is needed", widening.t);
        }
    }
}

#[test]
fn bodies_that_touch_are_not_empty() {
    // θ ≥ 1 and θ ≤ 1; then with a gap above and one below the tolerance.
    for (gap, empty) in [(0.0, false), (1e-12, false), (1e-6, true)] {
        let mut body = Body::new(1, 10.0).unwrap();
        body.push_lower(&[1.0], 1.0 + gap).unwrap();
        body.push(&[1.0], f64::NEG_INFINITY, 1.0).unwrap();
        let nearest = minimum_norm(&body, &Settings::default()).unwrap();
        assert_eq!(matches!(nearest.status, Status::Empty { .. }), empty, "gap {gap:e}: {:?}", nearest.status);
        if !empty {
            assert_eq!(nearest.status, Status::Solved);
            assert!((nearest.point[0] - 1.0).abs() < 1e-8);
        }
    }
}

#[test]
fn single_rows_can_be_impossible() {
    let empty = |v: &[f64], lower: f64, upper: f64| {
        let mut body = Body::new(2, 1.0).unwrap();
        body.push(v, lower, upper).unwrap();
        let status = minimum_norm(&body, &Settings::default()).unwrap().status;
        assert_eq!(
            matches!(extent(&body, &[1.0, 0.0], &Settings::default()).unwrap().status, Status::Empty { .. }),
            matches!(status, Status::Empty { .. })
        );
        matches!(status, Status::Empty { .. })
    };
    assert!(empty(&[1.0, 1.0], 2.1, 3.0)); // beyond the corner of the box
    assert!(!empty(&[1.0, 1.0], 2.0, 3.0)); // at the corner
    assert!(empty(&[0.0, 0.0], 0.1, 0.2)); // a row of zeros
    assert!(!empty(&[0.0, 0.0], -0.1, 0.2));
}

#[test]
fn noisy_slabs_are_empty_exactly_when_narrower_than_the_noise() {
    let body = slabs(400, 8, 0.1, 3);
    let t = least_inflation(&body, &vec![1.0; body.count()], &Settings::default()).unwrap().t;
    let with_half_width = |xi: f64| {
        let mut narrow = Body::new(8, 10.0).unwrap();
        for r in 0..body.count() {
            narrow.push_slab(body.row(r), 0.5 * (body.lower()[r] + body.upper()[r]), xi).unwrap();
        }
        minimum_norm(&narrow, &Settings::default()).unwrap().status
    };
    assert!(matches!(with_half_width(t * (1.0 - 1e-4)), Status::Empty { .. }));
    assert_eq!(with_half_width(t * (1.0 + 1e-4)), Status::Solved);
}
