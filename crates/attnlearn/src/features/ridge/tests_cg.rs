//! Conjugate gradients: the ridge they choose, the residual they report, the memory they ask for.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use super::plan::Iterative;
use super::tests::{Waves, examples, features};
use super::*;
use crate::features::Sets;

fn run(map: &Waves, sets: &Sets, options: Options) -> Fit {
    fit::<f64>(map, sets, &options, &Unwatched).unwrap()
}

/// Primal and dual, features kept and not: every point of the path against exact GCV, to four standard errors of the probes and
/// the tolerance of the walk; the ridge chosen is as good as the best to the same.
#[test]
fn the_chosen_ridge_has_least_gcv() {
    for (n, p, weighted, keep) in
        [(600, 150, true, true), (600, 150, false, false), (500, 700, false, true), (500, 700, true, false)]
    {
        let (map, sets) = (Waves { p, decay: 0.98 }, examples(n, 2, weighted));
        let path = 12;
        let (scaled, y) = centred(&map, &sets);
        let exact =
            run(&map, &sets, Options { solver: if n > p { Solver::Gram } else { Solver::Dual }, path, ..Options::default() });
        let seen = sets.block().weights.iter().filter(|w| **w > 0.0).count() as f64;
        let tolerance = |point: &PathPoint| {
            let slack = seen - point.freedom;
            8.0 * (2.0 * point.freedom / (seen * slack * walk::probes(n) as f64)).sqrt() + 0.02
        };
        let least = exact.path.iter().min_by(|a, b| a.gcv.total_cmp(&b.gcv)).unwrap();
        for seed in 0..3 {
            let accuracy = Accuracy::Residual(1e-6);
            let found = run(&map, &sets, Options { solver: Solver::Cg, path, keep, seed, accuracy, ..Options::default() });
            assert!(found.path.len() >= 4 && found.residual <= 1e-6, "{}", found.residual);
            assert_eq!(Criterion::of(&found.path), Some(Criterion::Gcv));
            for (point, exact) in found.path.iter().zip(&exact.path) {
                assert!((point.lambda / exact.lambda - 1.0).abs() < 1e-9 && point.loo.is_none());
                assert!((point.training / exact.training - 1.0).abs() < 0.01, "n={n} keep={keep}: {point:?} {exact:?}");
                assert!((point.gcv / exact.gcv - 1.0).abs() < tolerance(exact), "n={n} keep={keep}: {point:?} {exact:?}");
            }
            let chosen = exact.path.iter().find(|point| (point.lambda / found.lambda - 1.0).abs() < 1e-9).unwrap();
            assert!(chosen.gcv < least.gcv * (1.0 + tolerance(chosen) + tolerance(least)), "{chosen:?} {least:?}");
            // The answer is that of the ridge: a residual r leaves ‖Φ̃δ‖ ≤ ‖r‖ in the dual form, ‖r‖/2√μ in the primal.
            let given = |solver| Options { solver, ridge: Ridge::Given(found.lambda), keep, accuracy, ..Options::default() };
            let direct = run(&map, &sets, given(Solver::Dual));
            let mu = found.lambda * sets.block().weights.iter().sum::<f64>();
            let right = if keep || n > p { (scaled.transpose() * &y).norm_l2() / (2.0 * mu.sqrt()) } else { y.norm_l2() };
            for fit in [&found, &run(&map, &sets, given(Solver::Cg))] {
                let gap = (&scaled * (&fit.v - &direct.v)).norm_l2();
                assert!(gap < fit.residual * right + 1e-6 * y.norm_l2(), "n={n} keep={keep}: {gap} {} {right}", fit.residual);
            }
        }
    }
}

/// `Φ̃` and `ỹ`.
fn centred(map: &Waves, sets: &Sets) -> (Mat<f64>, Mat<f64>) {
    let (phi, w, t) = (features(map, sets), &sets.block().weights, sets.shape().targets);
    let total: f64 = w.iter().sum();
    let mean = |of: &dyn Fn(usize) -> f64| (0..w.len()).map(|i| w[i] * of(i)).sum::<f64>() / total;
    let means: Vec<f64> = (0..map.p).map(|j| mean(&|i| phi[(i, j)])).collect();
    let centres: Vec<f64> = (0..t).map(|j| mean(&|i| sets.block().targets(i)[j])).collect();
    let scaled = Mat::from_fn(w.len(), map.p, |i, j| w[i].sqrt() * (phi[(i, j)] - means[j]));
    let y = Mat::from_fn(w.len(), t, |i, j| w[i].sqrt() * (sets.block().targets(i)[j] - centres[j]));
    (scaled, y)
}

/// `J(v)/J* − 1` of the worst target, over problems of different conditions, is never above what was asked for, and most often not far below:
/// the bound costs few iterations. In single precision the features, and so `J*`, are others by their rounding: held at ridges that
/// do not magnify it.
#[test]
#[ignore = "slow: problems of many conditions; cargo xtask test --all"]
fn the_objective_is_as_near_its_least_as_was_asked() {
    let (asked, mut all, mut near) = (1e-4, 0, 0);
    for (n, p, keep) in [(300, 80, true), (250, 350, true), (250, 350, false), (350, 200, false)] {
        for (decay, lambda) in [(0.9, 1e-3), (0.98, 1e-2), (0.98, 1e-4), (0.98, 1e-6), (0.995, 1e-3), (0.995, 1e-5)] {
            let (map, sets) = (Waves { p, decay }, examples(n, 2, keep));
            let (scaled, y) = centred(&map, &sets);
            let mu = lambda * sets.block().weights.iter().sum::<f64>();
            let objectives = |fit: &Fit| -> Vec<f64> {
                let miss = &y - &scaled * &fit.v;
                (0..2).map(|j| miss.col(j).squared_norm_l2() + mu * fit.v.col(j).squared_norm_l2()).collect()
            };
            let with = |solver, rank| Options { solver, ridge: Ridge::Given(lambda), keep, rank, ..Options::default() };
            let least = objectives(&run(&map, &sets, with(Solver::Dual, None)));
            for rank in [Some(0), Some(20), None] {
                let found = run(&map, &sets, with(Solver::Cg, rank));
                let excess = |fit: &Fit| objectives(fit).iter().zip(&least).map(|(j, least)| j / least - 1.0).fold(0.0, f64::max);
                let name = format!("n={n} p={p} keep={keep} {decay} {lambda} {rank:?}");
                assert!(found.reached && excess(&found) <= asked, "{name}: {}", excess(&found));
                (all, near) = (all + 1, near + usize::from(excess(&found) > 1e-2 * asked));
                if lambda >= 1e-3 {
                    let single = fit::<f32>(&map, &sets, &with(Solver::Cg, rank), &Unwatched).unwrap();
                    assert!(single.reached && excess(&single) <= asked, "{name}, single: {}", excess(&single));
                }
            }
        }
    }
    assert!(2 * near > all, "{near} of {all}");
}

#[test]
fn a_seed_gives_one_answer() {
    let (map, sets) = (Waves { p: 90, decay: 0.95 }, examples(300, 1, false));
    let path = |seed| run(&map, &sets, Options { solver: Solver::Cg, seed, ..Options::default() }).path;
    assert_eq!(path(3), path(3));
    assert_ne!(path(3), path(4));
}

#[test]
fn ridges_are_walked_from_large_to_small_whatever_their_order() {
    let (map, sets) = (Waves { p: 60, decay: 0.95 }, examples(300, 1, false));
    let path =
        |lambdas: &[f64]| run(&map, &sets, Options { solver: Solver::Cg, lambdas: lambdas.to_vec(), ..Options::default() }).path;
    assert_eq!(path(&[1e-6, 1e-2, 1e-4]), path(&[1e-2, 1e-4, 1e-6]));
}

/// Iterations that run out end the walk, not the fit.
#[test]
fn a_walk_may_run_out_of_iterations() {
    let (map, sets) = (Waves { p: 300, decay: 0.97 }, examples(400, 1, false));
    let found = run(&map, &sets, Options { solver: Solver::Cg, iterations: 12, rank: Some(0), ..Options::default() });
    assert!((1..20).contains(&found.path.len()) && found.iterations <= 24, "{} {}", found.path.len(), found.iterations);
}

#[test]
fn conjugate_gradients_choose_only_where_the_others_do_not_fit() {
    let (map, sets) = (Waves { p: 700, decay: 0.97 }, examples(600, 1, false));
    let solver = |memory| run(&map, &sets, Options { memory, path: 4, ..Options::default() }).solver;
    assert_eq!(solver(1 << 30), Solver::Dual);
    assert_eq!(solver(12 << 20), Solver::Cg);
}

/// The residual against one computed from dense features: converged, out of iterations, and where rounding is all that is left.
#[test]
fn the_residual_is_the_true_one() {
    let (n, p) = (500, 120);
    let (map, sets) = (Waves { p, decay: 0.9 }, examples(n, 1, true));
    let (scaled, y) = centred(&map, &sets);
    let total: f64 = sets.block().weights.iter().sum();
    let rhs = scaled.transpose() * &y;
    let measured = |fit: &Fit| {
        let product = scaled.transpose() * (&scaled * &fit.v) + &fit.v * faer::Scale(total * fit.lambda);
        (&rhs - &product).norm_l2() / rhs.norm_l2()
    };
    let with = |rank, tolerance, iterations| {
        let given = Options {
            solver: Solver::Cg,
            ridge: Ridge::Given(1e-13),
            rank,
            accuracy: Accuracy::Residual(tolerance),
            iterations,
            ..Options::default()
        };
        run(&map, &sets, given)
    };
    for (rank, tolerance, iterations) in [(Some(0), 1e-9, 30), (Some(60), 1e-9, 1000), (None, 1e-6, 1000)] {
        let found = with(rank, tolerance, iterations);
        assert!((found.residual / measured(&found) - 1.0).abs() < 1e-4, "{} {}", found.residual, measured(&found));
        assert_eq!(found.residual <= tolerance, iterations == 1000, "{}", found.residual);
    }
    // No iteration can reach this, whatever its recurrence believes.
    let found = with(Some(60), 1e-18, 1000);
    let (said, measured) = (found.residual, measured(&found));
    assert!(said > 1e-18 && said < 1e-12 && (0.1..10.0).contains(&(said / measured)), "{said} {measured}");
    assert!(found.iterations < 1000, "it gives up where nothing is gained");
}

/// The sketch is as large as memory allows and no larger, and what is planned grows with what is made.
#[test]
fn memory_decides_the_rank() {
    let (map, n) = (Waves { p: 3000, decay: 0.99 }, 5000);
    let sets = examples(1, 1, false);
    let data = Data::<f64> { map: &map, source: &sets };
    let plan = |memory, ridge| Iterative::new(&data, n, 1, &Options { memory, ridge, ..Options::default() });
    let (mut last, given) = (0, Ridge::Given(1e-3));
    for memory in [104 << 20, 120 << 20, 200 << 20, 300 << 20, 1 << 30] {
        let cg = plan(memory, given);
        assert!(cg.bytes <= memory, "{cg:?}");
        assert!(cg.keep || cg.rank >= last, "{cg:?}");
        assert_eq!(cg.keep, memory >= 200 << 20, "{cg:?}");
        // What it holds at least: four matrices of the sketch, and the features where they are kept.
        let least = 32 * 3000 * cg.rank as u64 + if cg.keep { 8 * 5000 * 3000 } else { 8 * 3000 * 4096 };
        assert!(cg.bytes > least, "{cg:?} {least}");
        assert!(plan(memory, Ridge::Auto).bytes <= memory);
        last = if cg.keep { 0 } else { cg.rank };
    }
    assert_eq!(plan(1 << 30, given).rank, nystrom::MOST);
    let asked = Options { rank: Some(500), memory: 1 << 20, ..Options::default() };
    assert!(Iterative::new(&data, n, 1, &asked).bytes > 1 << 20, "a rank that is asked for is not cut");
}
