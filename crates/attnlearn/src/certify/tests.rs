//! Certificates of layers whose errors have a known distribution.

use super::*;
use crate::data::{Block, InputDistribution};
use crate::layer::{Head, Mask};
use crate::linalg::Mat;
use crate::teacher::{TeacherSpec, TeacherStream};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const D: usize = 8;

fn linear(w: f64) -> AttentionLayer {
    // With one token the pattern is 1 and F(x) = Wᵀ x.
    let head = Head::dense(Mat::zeros(D, D), Mat::from_fn(D, 1, |_, _| w));
    AttentionLayer::new(vec![head], None, Mask::None).expect("valid")
}

/// `P[|x₁ + … + x₈| > ε]` for random signs.
fn exceedance(epsilon: f64) -> f64 {
    let (mut choose, mut share) = (1.0, 0.0);
    for j in 0..=D {
        if (D as f64 - 2.0 * j as f64).abs() > epsilon {
            share += choose / 256.0;
        }
        choose = choose * (D - j) as f64 / (j + 1) as f64;
    }
    share
}

/// Over 400 certificates of a layer that is off by `|x₁ + … + x₈|`, each on 300 fresh examples, at δ = 0.1: each of the three kinds of
/// statement is false in at most 400 δ of them, plus four standard deviations, `40 + 4 √(400 · 0.1 · 0.9) = 64`.
#[test]
fn statements_fail_no_more_often_than_delta() {
    let (teacher, learned) = (linear(2.0), linear(1.0));
    let settings = CertifySettings { delta: 0.1, epsilons: vec![7.0, 1.0, 3.0, 5.0, 1.0] };
    let (mut alone, mut together, mut largest) = ([0; 4], 0, 0);
    for seed in 0..400 {
        let source = TeacherStream::new(&teacher, 1, InputDistribution::Boolean, seed, Some(300));
        let certificate = certify(&learned, &source, 0..1, &settings).expect("valid");
        assert_eq!((certificate.n, certificate.bounds.len()), (300, 4), "thresholds count once");
        for (bound, misses) in certificate.bounds.iter().zip(&mut alone) {
            *misses += u32::from(exceedance(bound.epsilon) > bound.alone);
            assert!(bound.alone < bound.together);
        }
        together += u32::from(certificate.bounds.iter().any(|b| exceedance(b.epsilon) > b.together));
        largest += u32::from(exceedance(certificate.max_error) > certificate.max_error_bound);
    }
    assert!(alone.iter().all(|&misses| misses <= 64) && together <= 64 && largest <= 64, "{alone:?} {together} {largest}");
    assert!(alone.iter().any(|&misses| misses >= 10), "the bounds are not vacuous: {alone:?}");
}

/// Student's interval for the mean squared error, which is 8 here; nominal 10 % misses, of 400: four standard deviations of slack
/// and a little for the skewness of `e²`.
#[test]
fn the_interval_of_the_mean_squared_error_covers_as_it_should() {
    let (teacher, learned) = (linear(2.0), linear(1.0));
    let settings = CertifySettings { delta: 0.1, ..Default::default() };
    let misses = (0..400).filter(|&seed| {
        let source = TeacherStream::new(&teacher, 1, InputDistribution::Boolean, 1000 + seed, Some(300));
        let certificate = certify(&learned, &source, 0..1, &settings).expect("valid");
        certificate.mse_interval.is_none_or(|(low, high)| !(low..=high).contains(&8.0))
    });
    let misses = misses.count();
    assert!((16..=70).contains(&misses), "{misses} of 400");
}

#[test]
fn counts_moments_and_quantiles_are_those_of_the_examples() {
    let (teacher, learned, n) = (linear(2.0), linear(1.0), 1300);
    let source = TeacherStream::new(&teacher, 1, InputDistribution::Boolean, 5, Some(n));
    let settings = CertifySettings { epsilons: vec![0.0, 2.0, 4.0, 6.0, 8.0], ..Default::default() };
    let certificate = certify(&learned, &source, 0..10, &settings).expect("valid");

    let mut errors = vec![];
    for index in 0..3 {
        let mut block = Block::<f64>::new(source.shape());
        source.fill_f64(index, &mut block).expect("a stream does not fail");
        let mut y = vec![0.0; block.len()];
        block.copy_outputs(&mut y);
        errors.extend(y.iter().map(|y| y.abs() / 2.0)); // the layer answers half of it
    }
    assert_eq!((certificate.n, errors.len()), (n, n as usize));
    for bound in &certificate.bounds {
        assert_eq!(bound.exceedances, errors.iter().filter(|&&e| e > bound.epsilon).count() as u64, "e > ε, strictly");
    }
    let mse = errors.iter().map(|e| e * e).sum::<f64>() / n as f64;
    assert!((certificate.mse / mse - 1.0).abs() < 1e-12);
    assert!((certificate.rms_output / (2.0 * mse.sqrt()) - 1.0).abs() < 1e-12);
    assert!((certificate.relative_rmse.expect("not 0") - 0.5).abs() < 1e-12);
    assert!((certificate.nmse.expect("not constant") * certificate.output_variance / mse - 1.0).abs() < 1e-12);
    errors.sort_by(f64::total_cmp);
    assert!((certificate.max_error - errors[errors.len() - 1]).abs() < 1e-15);
    for quantile in &certificate.quantiles {
        let exact = errors[(quantile.level * n as f64).ceil() as usize - 1];
        assert!(exact <= quantile.error && quantile.error <= exact * (1.0 + 1.0 / 64.0));
    }
    // A part of the blocks, and what epsilon_at may choose from.
    assert_eq!(certify(&learned, &source, 1..2, &settings).expect("valid").n, 512);
    let q = certificate.bounds[2].together;
    assert_eq!(certificate.epsilon_at(q), Some(4.0));
    assert_eq!((certificate.epsilon_at(1.0), certificate.epsilon_at(1e-9)), (Some(0.0), None));
}

#[test]
fn an_exact_layer_has_the_closed_form_bound_and_prints_well() {
    let teacher = TeacherSpec::dense(5, 2, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(1)).expect("valid");
    let source = TeacherStream::new(&teacher, 4, InputDistribution::Gaussian, 2, Some(10_000));
    let heads = teacher.heads().iter().map(|h| Head { w: &h.w * faer::Scale(1.0 + 1e-10), ..h.clone() }).collect();
    let near = AttentionLayer::new(heads, None, Mask::None).expect("valid");
    let certificate = certify(&near, &source, 0..100, &CertifySettings::default()).expect("valid");
    let closed = |delta: f64| 1.0 - delta.powf(1e-4);
    assert!((certificate.max_error_bound / closed(0.01) - 1.0).abs() < 1e-12);
    assert!((certificate.bounds[12].together / closed(0.01 / 13.0) - 1.0).abs() < 1e-12);
    assert!((1e-10..1e-9).contains(&certificate.max_error), "{}", certificate.max_error);
    assert_eq!(certificate.epsilon_at(1e-3), Some(1e-9));

    let text = certificate.to_string();
    assert!(
        text.starts_with("with confidence 99 %, P[‖F−F̂‖∞ > ") && text.contains("] ≤ 4.61e-4 (10 000 held-out examples)"),
        "{text}"
    );
    assert!(text.contains("asymptotic") && text.lines().count() == 22, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    println!("{text}");
    let json = serde_json::to_value(&certificate).expect("finite");
    assert_eq!(json["n"], 10_000);
    let back: Certificate = serde_json::from_value(json).expect("the same");
    assert_eq!(back.bounds.len(), certificate.bounds.len());
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let teacher = TeacherSpec::dense(6, 2, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(3)).expect("valid");
    let learned = TeacherSpec::dense(6, 3, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(4)).expect("valid");
    let source = TeacherStream::new(&teacher, 3, InputDistribution::Sphere, 2, None);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        let certificate = pool.install(|| certify(&learned, &source, 3..400, &CertifySettings::default())).expect("valid");
        assert_eq!(certificate.n, 397 * 512);
        format!("{certificate:?}")
    };
    assert_eq!(on(1), on(2));
}

/// Two examples, of which the second is as told, from a source that does not know its length.
struct Spoilt {
    x: f64,
    y: f64,
}

impl ExampleSource for Spoilt {
    fn shape(&self) -> Shape {
        Shape { k: 2, d: D, d_out: 1 }
    }
    fn len(&self) -> Option<u64> {
        None
    }
    fn fill_f32(&self, _: u64, _: &mut Block<f32>) -> Result<()> {
        Err(Error::Interrupted)
    }
    fn fill_f64(&self, index: u64, block: &mut Block<f64>) -> Result<()> {
        let (mut x, mut y) = (vec![1.0; 4 * D], vec![1.0; 4]);
        (x[3 * D + 2], y[3]) = (self.x, self.y);
        let there = index == 0;
        block.set_inputs(if there { &x } else { &[] });
        block.set_outputs(if there { &y } else { &[] });
        Ok(())
    }
}

#[test]
fn bad_input_is_refused() {
    let layer = linear(1.0);
    let settings = CertifySettings::default();
    let message = |source: &dyn ExampleSource, blocks: Range<u64>, settings: &CertifySettings| match certify(
        &layer, source, blocks, settings,
    ) {
        Err(error @ Error::Input { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let good = Spoilt { x: 1.0, y: 1.0 };
    let certificate = certify(&layer, &good, 0..1_000_000_000, &settings).expect("ends where the source does");
    assert_eq!(certificate.n, 2);
    assert!(message(&good, 1..5, &settings).contains("no examples"));
    assert!(message(&good, 0..0, &settings).contains("no examples"));
    assert!(message(&Spoilt { x: f64::NAN, y: 1.0 }, 0..2, &settings).contains("example 1: a number in X"));
    assert!(message(&Spoilt { x: f64::NEG_INFINITY, y: 1.0 }, 0..2, &settings).contains("example 1: a number in X"));
    assert!(message(&Spoilt { x: 1.0, y: f64::NAN }, 0..2, &settings).contains("example 1: a number in Y"));
    let beyond = message(&Spoilt { x: 1.0, y: 1e200 }, 0..2, &settings);
    assert!(beyond.contains("its square is no number; scale the outputs down"), "{beyond}");
    let teacher = TeacherSpec::dense(D + 1, 1, 1.0).draw(&mut ChaCha8Rng::seed_from_u64(1)).expect("valid");
    let stream = TeacherStream::new(&teacher, 2, InputDistribution::Boolean, 1, None);
    assert!(message(&stream, 0..1, &settings).contains("d = 9"));
    let empty = TeacherStream::new(&layer, 2, InputDistribution::Boolean, 1, Some(0));
    assert!(message(&empty, 0..1, &settings).contains("no examples"));
    for delta in [0.0, 1.0, f64::NAN] {
        assert!(message(&good, 0..1, &CertifySettings { delta, ..settings.clone() }).contains("delta"));
    }
    for epsilons in [vec![], vec![f64::NAN], vec![-1.0]] {
        assert!(message(&good, 0..1, &CertifySettings { epsilons, ..settings.clone() }).contains("epsilons"));
    }
}
