//! Bodies whose answers are known in closed form.

use super::*;

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-8 * (1.0 + b.abs()), "{a} is not {b}");
}

#[test]
fn the_box() {
    let body = Body::new(3, 2.0).unwrap();
    let u = [1.0, -3.0, 0.5];
    let e = extent(&body, &u, &Settings::default()).unwrap();
    assert_eq!(e.status, Status::Solved);
    close(e.low, -9.0); // −R ‖u‖₁
    close(e.high, 9.0);
    for (theta, u) in e.argmax.iter().zip(u) {
        close(*theta, 2.0 * u.signum());
    }
    let nearest = minimum_norm(&body, &Settings::default()).unwrap();
    close(norm(&nearest.point), 0.0);
    close(least_inflation(&body, &[], &Settings::default()).unwrap().t, 0.0);
}

#[test]
fn a_half_space() {
    // The nearest point of ⟨v, θ⟩ ≥ ℓ is ℓ v / ‖v‖², with multiplier ℓ / ‖v‖².
    let (v, bound) = ([3.0, 4.0], 10.0);
    let mut body = Body::new(2, 100.0).unwrap();
    body.push_lower(&v, bound).unwrap();
    let nearest = minimum_norm(&body, &Settings::default()).unwrap();
    assert_eq!(nearest.status, Status::Solved);
    close(nearest.point[0], 1.2);
    close(nearest.point[1], 1.6);
    close(nearest.multipliers[0], 0.4);
    close(extent(&body, &v, &Settings::default()).unwrap().low, 10.0);
}

#[test]
fn a_corner_of_the_box() {
    // ⟨(1, 2), θ⟩ ≥ 4 in the box of radius 1.5: without the box (0.8, 1.6), with it (1, 1.5) = λ (1, 2) + β, λ = 1.
    let mut body = Body::new(2, 1.5).unwrap();
    body.push_lower(&[1.0, 2.0], 4.0).unwrap();
    let nearest = minimum_norm(&body, &Settings::default()).unwrap();
    close(nearest.point[0], 1.0);
    close(nearest.point[1], 1.5);
    close(nearest.multipliers[0], 1.0);
    close(nearest.box_multipliers[0], 0.0);
    close(nearest.box_multipliers[1], -0.5);
}

#[test]
fn two_parallel_rows() {
    // θ = 0 and θ = 2 with weights 1 and 3: the least t has t = 2 − 3 t.
    let mut body = Body::new(1, 10.0).unwrap();
    body.push_slab(&[1.0], 0.0, 0.5).unwrap();
    body.push_slab(&[1.0], 2.0, 0.5).unwrap();
    let inflation = least_inflation(&body, &[1.0, 3.0], &Settings::default()).unwrap();
    close(inflation.t, 0.5);
    close(inflation.point[0], 0.5);
    // From the bounds [−½, ½] and [1.5, 2.5]: ½ + t = 1.5 − 3 t.
    close(least_widening(&body, &[1.0, 3.0], &Settings::default()).unwrap().t, 0.25);
}

#[test]
fn scaling_changes_nothing_but_the_units() {
    let body = slabs(60, 5, 0.3, 11);
    let nearest = minimum_norm(&body, &Settings::default()).unwrap();
    for (row_unit, length_unit) in [(1e-200, 1.0), (1.0, 1e-6), (1e5, 1e9)] {
        let mut scaled = Body::new(5, 10.0 * length_unit).unwrap();
        for r in 0..body.count() {
            let v: Vec<f64> = body.row(r).iter().map(|v| v * row_unit).collect();
            let unit = row_unit * length_unit;
            scaled.push(&v, body.lower()[r] * unit, body.upper()[r] * unit).unwrap();
        }
        let again = minimum_norm(&scaled, &Settings::default()).unwrap();
        assert_eq!(again.status, Status::Solved);
        for (a, b) in again.point.iter().zip(&nearest.point) {
            close(a / length_unit, *b);
        }
    }
}

#[test]
fn violation_is_the_worst_row() {
    let mut body = Body::new(2, 1.0).unwrap();
    body.push_slab(&[2.0, 0.0], 1.0, 0.5).unwrap();
    assert!(body.violation(&[0.5, 0.0]).unwrap().abs() < 1e-15);
    close(body.violation(&[0.0, 0.0]).unwrap(), 0.5);
    close(body.violation(&[1.0, 0.0]).unwrap(), 0.5);
    close(body.violation(&[0.5, -1.75]).unwrap(), 0.75);
}
