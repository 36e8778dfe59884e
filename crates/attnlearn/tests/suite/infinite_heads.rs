//! Infinitely many heads against finitely many, end to end: what is predicted after a fit.
//!
//! The features' inner products are `U` times those of the kernel, `U = M` heads or `K` neurons, so heads with ridge `λU` solve
//! `(U K̃ + W λU) α = ỹ`: as `U → ∞` they predict what the kernel predicts with ridge `λ`. The gap is that of Monte Carlo, `U^{−1/2}`.

use attnlearn::features::ridge::{Options, Ridge};
use attnlearn::features::{Experiment, FittedModel, KernelSpec, Learner, MapSpec, Mean, Model, Precision, SetInputs, Sets};

const INPUTS: (usize, usize) = (3, 4); // N, d
const LAMBDA: f64 = 1e-3;

fn predictions(learner: &Learner, lambda: f64, train: &Sets, test: &Sets) -> Vec<f64> {
    let options = Options { ridge: Ridge::Given(lambda), ..Default::default() };
    let model: FittedModel = learner.fit(train, &options).expect("a fit");
    model.prepare().expect("a map").predict(test.block()).expect("predictions")
}

#[test]
fn many_heads_predict_what_infinitely_many_do() {
    let (keys, d) = INPUTS;
    let inputs = SetInputs { min_keys: 2, ..SetInputs::new(keys, d) };
    let experiment = Experiment::new("correlation:p=1,q=1".parse().expect("a target"), inputs, 120, 80);
    let (train, test) = experiment.draw(1).expect("sets");
    let (train, test) = (Sets::read(&train).expect("sets"), Sets::read(&test).expect("sets"));
    for (model, kernel) in [
        (Model::Rfa, KernelSpec::Rfa),
        (Model::Brfa, KernelSpec::Brfa { mean: Mean::Identity { scale: 1.0 } }),
        (Model::Rfmlp, KernelSpec::Rfmlp),
    ] {
        let exact = predictions(&Learner::Kernel(kernel), LAMBDA, &train, &test);
        let size = exact.iter().map(|f| f * f).sum::<f64>();
        let logs: Vec<(f64, f64)> = [128usize, 512, 2048, 8192]
            .into_iter()
            .map(|units| {
                const SEEDS: u64 = 6;
                let square: f64 = (0..SEEDS)
                    .map(|seed| {
                        let mut map = MapSpec::new(model, d, keys, units, 1000 * units as u64 + seed);
                        map.width = (model == Model::Rfmlp).then_some(units);
                        let learner = Learner::Frozen { map, precision: Precision::F64 };
                        let found = predictions(&learner, LAMBDA * units as f64, &train, &test);
                        found.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>()
                    })
                    .sum();
                ((units as f64).ln(), (square / SEEDS as f64 / size).sqrt().ln())
            })
            .collect();
        let centre = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / logs.len() as f64;
        let (u, v) = (centre(|l| l.0), centre(|l| l.1));
        let slope = logs.iter().map(|l| (l.0 - u) * (l.1 - v)).sum::<f64>() / logs.iter().map(|l| (l.0 - u).powi(2)).sum::<f64>();
        println!("{model:?}: slope {slope:.3}, relative gaps {:.4?}", logs.iter().map(|l| l.1.exp()).collect::<Vec<_>>());
        // Six seeds scatter an error by some 15 %, hence a slope over a factor of 64 by some 0.04.
        assert!((slope + 0.5).abs() < 0.1, "{model:?}: slope {slope}, {logs:?}");
        assert!(logs.windows(2).all(|pair| pair[1].1 < pair[0].1), "{model:?}: {logs:?}");
        assert!(logs[3].1.exp() < 0.1, "{model:?}: {logs:?}");
    }
}
