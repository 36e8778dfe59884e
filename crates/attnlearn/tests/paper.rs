//! The paper's comparison at its own sizes d = N = 16, on fewer heads and sets: attention beats the perceptron on averages over keys, and
//! biased heads beat centred ones on correlations with the query.
//!
//! Inputs, target and heads are drawn from the seed; errors are compared in pairs (`features::compare`).

use attnlearn::features::{Experiment, Learner, MapSpec, Model, Paired, Precision, SetInputs};

const D: usize = 16;
const N: usize = 16;
const HEADS: usize = 100;
const SEEDS: u64 = 6;

fn learner(model: Model) -> Learner {
    Learner::Frozen { map: MapSpec::new(model, D, N, HEADS, 0), precision: Precision::F32 }
}

/// Held-out MSE/Var of every model, seed by seed.
fn errors<const L: usize>(target: &str, n: u64, models: [Model; L]) -> [Vec<f64>; L] {
    let experiment = Experiment::new(target.parse().expect("a target"), SetInputs::new(N, D), n, 2000);
    models.map(|model| {
        let errors: Vec<f64> = (0..SEEDS).map(|seed| experiment.held_out(&learner(model), seed).expect("a fit").nmse).collect();
        println!("{target}, n = {n}, {model:?}: {errors:.4?}");
        errors
    })
}

#[track_caller]
fn better(what: &str, a: &[f64], b: &[f64]) {
    let paired = Paired::log_ratio(a, b).expect("errors");
    println!("{what}: {paired:.3?}");
    assert!(paired.high < 0.0, "{what}: {paired:?}");
}

#[test]
fn explore() {
    for (target, n) in [
        ("average:p=2", 1000),
        ("average:p=3", 1000),
        ("average:p=5", 1000),
        ("correlation:p=1,q=1", 1000),
        ("correlation:p=2,q=1", 1000),
        ("correlation:p=4,q=2", 1000),
    ] {
        let start = std::time::Instant::now();
        let [rfa, brfa, rfmlp] = errors(target, n, [Model::Rfa, Model::Brfa, Model::Rfmlp]);
        let said = |a: &[f64], b: &[f64]| println!("{:.3?}", Paired::log_ratio(a, b));
        said(&rfa, &rfmlp);
        said(&brfa, &rfmlp);
        said(&brfa, &rfa);
        println!("{target} {:.2?}", start.elapsed());
    }
}
