#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
use super::*;
use crate::layer::{Head, Mask};
use crate::teacher::TeacherSpec;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn teacher(d: usize, m: usize, norm: f64, seed: u64) -> AttentionLayer {
    TeacherSpec::dense(d, m, norm).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

fn verdict(layer: &AttentionLayer, name: &str) -> Verdict {
    let all = Conditions::of(layer, 4).unwrap();
    all.conditions.iter().find(|condition| condition.name == name).unwrap().verdict
}

fn changed(layer: &AttentionLayer, change: impl FnOnce(&mut Vec<Head>)) -> AttentionLayer {
    let mut heads = layer.heads().to_vec();
    change(&mut heads);
    AttentionLayer::new(heads, None, Mask::None).unwrap()
}

/// No condition fails in nineteen of twenty random layers.
#[test]
fn random_layers_fail_none() {
    let met = (0..20).filter(|&seed| Conditions::of(&teacher(10, 3, 6.0, seed), 4).unwrap().verdict() < Verdict::Fails).count();
    assert!(met >= 19, "{met} of 20");
    let one = Conditions::of(&teacher(10, 1, 6.0, 0), 4).unwrap();
    assert!(one.separation.is_none() && one.verdict() < Verdict::Fails);
}

/// Every condition is broken alone, by a layer that is otherwise random.
#[test]
fn each_condition_is_told_from_the_others() {
    let layer = teacher(8, 3, 6.0, 1);
    let dense = |i: usize| layer.heads()[i].theta.to_dense();
    let with_theta = |i: usize, theta: Mat<f64>| changed(&layer, |heads| heads[i].theta = Theta::Dense(theta));
    let with_w = |i: usize, w: Mat<f64>| changed(&layer, |heads| heads[i].w = w);
    let zero = || Mat::<f64>::zeros(8, 8);
    let column = Mat::from_fn(8, 1, |i, _| 1.0 + i as f64);
    let identity = Mat::<f64>::identity(8, 8);
    for (name, broken, expected) in [
        ("sharpness", with_theta(0, dense(0) * faer::Scale(1e-3)), Verdict::Fails),
        ("saturation", with_theta(0, dense(0) * faer::Scale(3.0)), Verdict::Weak),
        ("effective rank", with_theta(0, &column * column.transpose() * faer::Scale(0.03)), Verdict::Weak),
        ("separation", with_theta(0, dense(1)), Verdict::Fails),
        ("independence", with_theta(0, dense(1) - dense(2)), Verdict::Fails),
        ("distinct singular values", with_theta(0, identity * faer::Scale(2.0)), Verdict::Fails),
        ("sum of projections", with_w(0, (&layer.heads()[1].w + &layer.heads()[2].w) * faer::Scale(-1.0)), Verdict::Fails),
        ("incoherence", with_w(0, &layer.heads()[1].w * faer::Scale(-2.0)), Verdict::Fails),
        ("silent heads", with_w(0, zero()), Verdict::Fails),
        (
            "conditioning of projections",
            with_w(0, Mat::from_fn(8, 8, |i, j| if i == j { 10f64.powi(-(i as i32)) } else { 0.0 })),
            Verdict::Weak,
        ),
    ] {
        assert!(verdict(&layer, name) < expected, "{name}: met before");
        assert_eq!(verdict(&broken, name), expected, "{name}");
    }
}

/// Against matrices whose measures are known.
#[test]
fn measures_are_those_of_the_definitions() {
    let theta = Mat::from_fn(5, 5, |i, j| if i == j { [4.0, 2.0, 1.0, 0.0, 0.0][i] } else { 0.0 });
    let w = Mat::from_fn(5, 3, |i, j| if i == j { [3.0, 2.0, 0.0][i] } else { 0.0 });
    let low_rank = Theta::LowRank { a: Mat::from_fn(5, 1, |i, _| i as f64), b: Mat::from_fn(5, 1, |_, _| 2.0) };
    let head = HeadMeasures::of(&Theta::Dense(theta.clone()), &w).unwrap();
    assert!((head.theta_norm - 21f64.sqrt()).abs() < 1e-12 && (head.effective_rank - 21.0 / 16.0).abs() < 1e-12);
    assert_eq!((head.theta_rank, head.w_rank), (3, 2));
    assert!((head.gap.unwrap() - 0.25).abs() < 1e-12 && (head.w_conditioning - 2.0 / 3.0).abs() < 1e-12);
    // The short way for low rank is the long way.
    let (short, long) =
        (HeadMeasures::of(&low_rank, &w).unwrap(), HeadMeasures::of(&Theta::Dense(low_rank.to_dense()), &w).unwrap());
    assert_eq!((short.theta_rank, short.gap), (1, None));
    assert!((short.theta_norm - long.theta_norm).abs() < 1e-10 && (short.effective_rank - 1.0).abs() < 1e-10);
    let turned = Mat::from_fn(5, 5, |i, j| theta[(4 - i, j)]);
    let heads = vec![Head::dense(theta.clone(), w.clone()), Head::dense(turned, &w * faer::Scale(-1.0))];
    let layer = AttentionLayer::new(heads, None, Mask::None).unwrap();
    let all = Conditions::of(&layer, 4).unwrap();
    // Only the middle entry is shared: 1 of a squared norm of 21.
    assert!((all.theta_cosines[0][1] - 1.0 / 21.0).abs() < 1e-12 && (all.w_cosines[1][0] + 1.0).abs() < 1e-12);
    assert!((all.separation.unwrap() - (2.0 - 2.0 / 21.0f64).sqrt()).abs() < 1e-12);
}
