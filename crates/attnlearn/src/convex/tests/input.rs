//! Input that cannot be used, one fault each.

use super::*;

#[test]
fn bodies() {
    assert!(Body::new(0, 1.0).is_err());
    for radius in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        assert!(Body::new(2, radius).is_err());
    }
}

#[test]
fn rows() {
    let mut body = Body::new(2, 1.0).unwrap();
    assert!(body.push_lower(&[1.0], 0.0).is_err());
    assert!(body.push_lower(&[1.0, f64::NAN], 0.0).is_err());
    assert!(body.push_lower(&[f64::INFINITY, 0.0], 0.0).is_err());
    assert!(body.push_lower(&[1.0, 0.0], f64::NAN).is_err());
    assert!(body.push_lower(&[1.0, 0.0], f64::INFINITY).is_err());
    assert!(body.push(&[1.0, 0.0], 1.0, 0.0).is_err());
    assert!(body.push(&[1.0, 0.0], f64::NEG_INFINITY, f64::NEG_INFINITY).is_err());
    assert!(body.push_slab(&[1.0, 0.0], 0.0, -1.0).is_err());
    assert!(body.push_slab(&[1.0, 0.0], f64::NAN, 1.0).is_err());
    assert_eq!(body.count(), 0);
    assert!(body.push(&[1.0, 0.0], f64::NEG_INFINITY, f64::INFINITY).is_ok());
}

#[test]
fn points_directions_and_weights() {
    let (mut body, settings) = (Body::new(2, 1.0).unwrap(), Settings::default());
    body.push_lower(&[1.0, 0.0], 0.5).unwrap();
    assert!(body.violation(&[0.0]).is_err());
    assert!(body.violation(&[0.0, f64::NAN]).is_err());
    assert!(extent(&body, &[1.0], &settings).is_err());
    assert!(extent(&body, &[0.0, 0.0], &settings).is_err());
    assert!(extent(&body, &[f64::NAN, 0.0], &settings).is_err());
    assert!(least_inflation(&body, &[], &settings).is_err());
    assert!(least_inflation(&body, &[0.0], &settings).is_err());
    assert!(least_widening(&body, &[f64::INFINITY], &settings).is_err());
    assert!(wide_directions(&body, 3, 0, &WideSettings::default(), &settings).is_err());
    assert!(wide_directions(&body, 1, 0, &WideSettings { starts: 0, ..Default::default() }, &settings).is_err());
}

#[test]
fn settings() {
    let body = Body::new(1, 1.0).unwrap();
    for bad in [
        Settings { tolerance: 0.0, ..Settings::default() },
        Settings { tolerance: f64::NAN, ..Settings::default() },
        Settings { max_iterations: 0, ..Settings::default() },
        Settings { step_fraction: 1.0, ..Settings::default() },
    ] {
        assert!(minimum_norm(&body, &bad).is_err());
        assert!(extent(&body, &[1.0], &bad).is_err());
        assert!(least_inflation(&body, &[], &bad).is_err());
    }
}
