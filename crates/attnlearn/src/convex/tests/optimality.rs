//! The conditions of optimality, checked from the outside with plain loops.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// `θ = Vᵀλ + β`, `λ` of the right sign and zero off the bounds, and `θ ∈ K`.
    #[test]
    fn minimum_norm_satisfies_the_kkt_conditions(seed in 0u64..30_000) {
        let body = degenerate_body(seed);
        let MinimumNorm { point, multipliers, box_multipliers, status, residuals, .. } =
            minimum_norm(&body, &Settings::default()).unwrap();
        prop_assert_eq!(status, Status::Solved);
        prop_assert!(residuals.worst() <= 1e-9);
        let size = norm(&point).max(1e-3);

        let mut slope = point.clone();
        for j in 0..body.dimension() {
            slope[j] -= box_multipliers[j];
            for r in 0..body.count() {
                slope[j] -= multipliers[r] * body.row(r)[j];
            }
        }
        prop_assert!(norm(&slope) <= 1e-7 * size, "θ − Vᵀλ − β = {:e}", norm(&slope));

        let mut slackness = 0.0;
        for r in 0..body.count() {
            let (value, length) = (dot(body.row(r), &point), body.norms()[r]);
            let (above, below) = (value - body.lower()[r], body.upper()[r] - value);
            prop_assert!(above.min(below) >= -1e-7 * size * length - 1e-12, "row {} violated by {:e}", r, above.min(below));
            // A positive multiplier holds the lower bound, a negative one the upper.
            let slack = if multipliers[r] > 0.0 { above } else { below };
            if multipliers[r].abs() > 0.0 {
                slackness += multipliers[r] * slack;
            }
        }
        for (theta, beta) in point.iter().zip(&box_multipliers) {
            prop_assert!(theta.abs() <= body.radius() * (1.0 + 1e-8));
            slackness += (body.radius() + theta * beta.signum()) * beta.abs();
        }
        prop_assert!(slackness.abs() <= 1e-6 * size * size, "complementary slackness {slackness:e}");
    }

    /// No point of the body does better than `low` and `high`, which points of the body attain.
    #[test]
    fn extent_bounds_the_body(seed in 0u64..30_000) {
        let body = degenerate_body(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let u: Vec<f64> = (0..body.dimension()).map(|_| normal(&mut rng)).collect();
        let e = extent(&body, &u, &Settings::default()).unwrap();
        prop_assert_eq!(e.status, Status::Solved);
        let nearest = minimum_norm(&body, &Settings::default()).unwrap();
        let (scale, inside) = (norm(&u) * body.radius(), dot(&u, &nearest.point));
        prop_assert!(e.low - 1e-7 * scale <= inside && inside <= e.high + 1e-7 * scale);
        prop_assert!(e.width() >= -1e-8 * scale);
        for (value, point) in [(e.low, &e.argmin), (e.high, &e.argmax)] {
            prop_assert!((dot(&u, point) - value).abs() <= 1e-9 * scale);
            for r in 0..body.count() {
                let (z, room) = (dot(body.row(r), point), 1e-7 * body.norms()[r] * norm(point).max(1.0) + 1e-12);
                prop_assert!(body.lower()[r] - room <= z && z <= body.upper()[r] + room);
            }
        }
    }
}
