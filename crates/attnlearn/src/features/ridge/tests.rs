//! Every solver against every other, against its definition, and against bad input.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use super::*;
use crate::features::{FittedModel, MapSpec, Model, Precision, Predictor, SetBlock, SetInputs, SetShape, SetStream};
use crate::features::{Sets, Target, TargetSpec};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Features `decay^j cos(⟨ω_j, x⟩ + j) + shift` of the mean of all tokens.
pub(super) struct Waves {
    pub p: usize,
    pub decay: f64,
}

impl<T: Field> FeatureMap<T> for Waves {
    fn features(&self) -> usize {
        self.p
    }
    fn strips(&self) -> usize {
        self.p.div_ceil(7)
    }
    fn strip(&self, strip: usize) -> Range<usize> {
        7 * strip..(7 * strip + 7).min(self.p)
    }
    fn fill(&self, sets: &SetBlock, strip: usize, stride: usize, out: &mut [T]) {
        let columns = <Self as FeatureMap<T>>::strip(self, strip);
        for i in 0..sets.len() {
            for (place, j) in columns.clone().enumerate() {
                let angle: f64 = sets
                    .keys(i)
                    .iter()
                    .chain(sets.query(i))
                    .enumerate()
                    .map(|(e, x)| x * (((e + 1) * (j + 3) * 7919) % 101) as f64 / 50.0)
                    .sum();
                out[i * stride + place] = T::from_f64(self.decay.powi(j as i32) * ((angle + j as f64).cos() + 0.3));
            }
        }
    }
}

pub(super) fn examples(n: usize, targets: usize, weighted: bool) -> Sets {
    let mut block = SetBlock::new(SetShape { keys: 2, d: 2, targets });
    let mut state = 12345u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64 - 0.5
    };
    for i in 0..n {
        let tokens: Vec<f64> = (0..6).map(|_| 2.0 * random()).collect();
        let y: Vec<f64> = (0..targets).map(|t| 3.0 + tokens[t] + tokens[1] * tokens[3] + 0.1 * random()).collect();
        let weight = if weighted { [1.0, 0.5, 2.0, 0.0, 3.0][i % 5] } else { 1.0 };
        block.push(&tokens, &y, weight);
    }
    Sets::new(block)
}

/// The whole grid of single precision, on frozen heads at their most difficult, p ≈ n: its leave-one-out errors are those of double
/// precision to two per cent.
#[test]
fn single_precision_keeps_the_errors_of_its_path() {
    for (n, heads) in [(700u64, 40), (500, 40)] {
        let target = Target::new(&TargetSpec::Average { p: 3 }, SetInputs::new(16, 16), 1).unwrap();
        let sets = Sets::read(&SetStream::new(target, 2, n).with_noise(0.1).unwrap()).unwrap();
        let spec = MapSpec::new(Model::Rfa, 16, 16, heads, 3);
        let single = fit::<f32>(spec.build().unwrap().as_ref(), &sets, &Options::default(), &Unwatched).unwrap();
        let lambdas = single.path.iter().map(|point| point.lambda).collect();
        let options = Options { lambdas, ..Options::default() };
        let double = fit::<f64>(spec.build().unwrap().as_ref(), &sets, &options, &Unwatched).unwrap();
        assert!(single.path.len() == 20 && double.path.len() == 20);
        for (a, b) in single.path.iter().zip(&double.path) {
            let ratio = a.loo.unwrap() / b.loo.unwrap();
            println!("{n} {:.2e}: {:.4} {ratio:.5}", a.lambda, b.loo.unwrap());
            assert!((ratio - 1.0).abs() < 0.02, "{n}, {}: {ratio}", a.lambda);
        }
    }
}

/// Every solver refuses sets that the map cannot read, and so does a model that is asked to predict them.
#[test]
fn sets_of_another_shape_are_refused() {
    let sets = examples(40, 1, false); // two keys in dimension two
    for (spec, words) in [
        (MapSpec::new(Model::Rfa, 3, 2, 4, 0), "dimension 2 for a map of dimension 3"),
        (MapSpec::new(Model::Rfmlp, 2, 1, 4, 0), "2 keys for a map of 1"),
    ] {
        let map: Box<dyn FeatureMap<f64>> = spec.build().unwrap();
        for solver in [Solver::Gram, Solver::Dual, Solver::Cg] {
            let options = Options { solver, ridge: Ridge::Given(1e-3), ..Options::default() };
            let said = fit::<f64>(map.as_ref(), &sets, &options, &Unwatched).unwrap_err().to_string();
            assert!(said.contains(words), "{solver:?}: {said}");
        }
        let shape = SetShape { keys: spec.keys, d: spec.d, targets: 1 };
        let predictor = Predictor::Frozen { v: vec![0.0; spec.features()], map: spec, precision: Precision::F64 };
        let model = FittedModel { predictor, intercept: vec![0.0], ridge: 1.0, shape };
        assert!(model.prepare().unwrap().predict(sets.block()).is_err());
    }
}

pub(super) fn features(map: &Waves, sets: &Sets) -> Mat<f64> {
    let mut out = vec![0.0; sets.block().len() * map.p];
    for strip in 0..FeatureMap::<f64>::strips(map) {
        FeatureMap::<f64>::fill(map, sets.block(), strip, map.p, &mut out[7 * strip..]);
    }
    crate::linalg::from_row_major(sets.block().len(), map.p, &out)
}

fn predictions(map: &Waves, sets: &Sets, fit: &Fit) -> Mat<f64> {
    let mut f = features(map, sets) * &fit.v;
    for j in 0..f.ncols() {
        f.col_as_slice_mut(j).iter_mut().for_each(|f| *f += fit.intercept[j]);
    }
    f
}

fn options(solver: Solver, lambda: f64) -> Options {
    Options { solver, ridge: Ridge::Given(lambda), accuracy: Accuracy::Residual(1e-6), ..Options::default() }
}

fn gap(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    (a - b).norm_max()
}

#[test]
fn solvers_agree() {
    for (n, p) in [(40, 90), (700, 60), (1100, 600)] {
        for (weighted, intercept) in [(false, true), (true, true), (true, false)] {
            let (map, sets) = (Waves { p, decay: 0.99 }, examples(n, 2, weighted));
            let mut fits = Vec::new();
            for solver in [Solver::Gram, Solver::Dual] {
                let given = Options { intercept, ..options(solver, 1e-4) };
                fits.push(fit::<f64>(&map, &sets, &given, &Unwatched).unwrap());
                let path = Options { ridge: Ridge::Auto, lambdas: vec![1e-4], ..given };
                fits.push(fit::<f64>(&map, &sets, &path, &Unwatched).unwrap());
            }
            for keep in [true, false] {
                let cg = Options { intercept, keep, accuracy: Accuracy::Residual(1e-12), ..options(Solver::Cg, 1e-4) };
                fits.push(fit::<f64>(&map, &sets, &cg, &Unwatched).unwrap());
            }
            let first = predictions(&map, &sets, &fits[0]);
            for other in &fits[1..] {
                assert!(gap(&first, &predictions(&map, &sets, other)) < 1e-8, "{:?} n={n} p={p}", other.solver);
            }
            // Normal equations: Σ w_i φ_i e_i = W λ v, Σ w_i e_i = 0.
            let phi = features(&map, &sets);
            let (w, total) = (&sets.block().weights, sets.block().weights.iter().sum::<f64>());
            for fit in &fits {
                let f = predictions(&map, &sets, fit);
                let e = Mat::from_fn(n, 2, |i, j| w[i] * (sets.block().targets(i)[j] - f[(i, j)]));
                let gradient = phi.transpose() * &e - &fit.v * faer::Scale(total * fit.lambda);
                assert!(gradient.norm_max() < 1e-7 * total, "{:?} {}", fit.solver, gradient.norm_max());
                if intercept {
                    assert!(e.col_as_slice(0).iter().sum::<f64>().abs() < 1e-8 * total);
                }
            }
        }
    }
}

#[test]
fn leave_one_out_is_exact() {
    for (n, p) in [(30, 50), (45, 20)] {
        for (weighted, intercept) in [(false, false), (false, true), (true, true), (true, false)] {
            let (map, sets) = (Waves { p, decay: 0.9 }, examples(n, 2, weighted));
            let (w, total) = (&sets.block().weights, sets.block().weights.iter().sum::<f64>());
            let lambdas = vec![1e-2, 1e-4, 1e-6];
            let brute: Vec<f64> = lambdas
                .iter()
                .map(|&lambda| {
                    let mut sum = 0.0;
                    for i in (0..n).filter(|&i| w[i] > 0.0) {
                        let mut rest = SetBlock::new(sets.shape());
                        for e in (0..n).filter(|&e| e != i) {
                            let tokens: Vec<f64> = sets.block().query(e).iter().chain(sets.block().keys(e)).copied().collect();
                            rest.push(&tokens, sets.block().targets(e), w[e]);
                        }
                        // The same Wλ with one weight fewer.
                        let given = Options { intercept, ..options(Solver::Gram, lambda * total / (total - w[i])) };
                        let fitted = fit::<f64>(&map, &Sets::new(rest), &given, &Unwatched).unwrap();
                        let f = predictions(&map, &sets.slice(i..i + 1), &fitted);
                        sum += (0..2).map(|j| w[i] * (sets.block().targets(i)[j] - f[(0, j)]).powi(2)).sum::<f64>();
                    }
                    sum / total
                })
                .collect();
            for solver in [Solver::Gram, Solver::Dual] {
                let given = Options { solver, intercept, lambdas: lambdas.clone(), ..Options::default() };
                let fitted = fit::<f64>(&map, &sets, &given, &Unwatched).unwrap();
                for (point, brute) in fitted.path.iter().zip(&brute) {
                    assert!((point.loo.unwrap() / brute - 1.0).abs() < 1e-6, "{solver:?} n={n}: {point:?} {brute}");
                    assert!(point.gcv > point.training && point.freedom > 0.0 && point.freedom < n as f64);
                }
                let least = brute.iter().copied().fold(f64::INFINITY, f64::min);
                let chosen = fitted.path.iter().find(|point| point.lambda.total_cmp(&fitted.lambda).is_eq()).unwrap();
                assert!((chosen.loo.unwrap() / least - 1.0).abs() < 1e-6);
            }
        }
    }
}

/// Targets that are fitted together, each with its own ridge, are fitted as if each were alone.
#[test]
fn ridges_apart_are_those_of_targets_alone() {
    for (n, p) in [(30, 50), (70, 20)] {
        let map = Waves { p, decay: 0.8 };
        let mut block = examples(n, 2, true).block().clone();
        // Hardly anything but noise: it asks for another ridge.
        block.y.iter_mut().skip(1).step_by(2).enumerate().for_each(|(i, y)| *y = 0.01 * *y + ((i * 7919 + 13) % 101) as f64);
        let sets = Sets::new(block);
        let alone = |j: usize| {
            let mut block = sets.block().clone();
            block.shape.targets = 1;
            block.y = sets.block().y.iter().copied().skip(j).step_by(2).collect();
            Sets::new(block)
        };
        for solver in [Solver::Gram, Solver::Dual] {
            let given = Options { solver, apart: true, ..Options::default() };
            let both = fit::<f64>(&map, &sets, &given, &Unwatched).unwrap();
            for j in 0..2 {
                let one = fit::<f64>(&map, &alone(j), &given, &Unwatched).unwrap();
                assert!((both.lambdas[j] / one.lambda - 1.0).abs() < 1e-9 && one.lambdas.len() == 1);
                let gap = (both.v.col(j) - one.v.col(0)).norm_l2() / one.v.norm_l2();
                assert!(gap < 1e-8 && (both.intercept[j] - one.intercept[0]).abs() < 1e-8, "{solver:?} {n} {j}: {gap}");
            }
            assert!(both.lambdas[1] > 2.0 * both.lambdas[0], "{:?}", both.lambdas);
        }
        let given = Options { solver: Solver::Cg, apart: true, ..Options::default() };
        assert!(fit::<f64>(&map, &sets, &given, &Unwatched).is_err());
    }
}

#[test]
fn band_and_eigenvalues_give_the_same_path() {
    // 700 examples or features take the band, whichever side is smaller is diagonalised in the other form.
    let (map, sets) = (Waves { p: 640, decay: 0.995 }, examples(700, 1, true));
    let run = |solver| {
        let given = Options { solver, lambdas: vec![1e-1, 1e-3, 1e-5], ..Options::default() };
        fit::<f64>(&map, &sets, &given, &Unwatched).unwrap()
    };
    let (gram, dual) = (run(Solver::Gram), run(Solver::Dual));
    for (a, b) in gram.path.iter().zip(&dual.path) {
        for (a, b) in [(a.loo.unwrap(), b.loo.unwrap()), (a.gcv, b.gcv), (a.training, b.training), (a.freedom, b.freedom)] {
            assert!((a / b - 1.0).abs() < 1e-6, "{a} {b}");
        }
    }
    assert!(gap(&predictions(&map, &sets, &gram), &predictions(&map, &sets, &dual)) < 1e-6);
}

#[test]
fn grams_merge_and_resume() {
    let (map, sets) = (Waves { p: 33, decay: 0.9 }, examples(2600, 1, true));
    let gather = |blocks: Range<u64>| {
        let mut gram = Gram::new(33, 1);
        gram.add::<f64>(&map, &sets, blocks, &Unwatched).unwrap();
        gram
    };
    let whole = gather(0..6);
    let (mut half, other) = (gather(0..2), gather(2..6));
    let mut bytes = Vec::new();
    half.write(&mut bytes).unwrap();
    let mut resumed = Gram::read(&mut bytes.as_slice(), "test").unwrap();
    resumed.add::<f64>(&map, &sets, 2..6, &Unwatched).unwrap();
    let lower = |gram: &Gram| (0..33).flat_map(|j| gram.gram.col_as_slice(j)[j..].to_vec()).collect::<Vec<f64>>();
    assert_eq!(lower(&resumed), lower(&whole));
    assert_eq!((&resumed.cross, resumed.examples, resumed.weight), (&whole.cross, 2600, whole.weight));
    half.merge(&other).unwrap();
    assert!((&half.gram - &whole.gram).norm_max() < 1e-12 * whole.gram.norm_max());
    assert!(half.merge(&Gram::new(3, 1)).is_err());
    assert!(Gram::read(&mut &bytes[..100], "test").is_err() && Gram::read(&mut &b"what is this"[..], "test").is_err());
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(Gram::read(&mut bytes.as_slice(), "test").is_err());
}

#[test]
fn bits_do_not_depend_on_threads() {
    let map = Waves { p: 700, decay: 0.99 };
    // More examples than features and fewer: the primal and the dual form of conjugate gradients.
    for (n, solver, ridge, keep) in [
        (1300, Solver::Gram, Ridge::Given(1e-3), true),
        (1300, Solver::Dual, Ridge::Given(1e-3), true),
        (1300, Solver::Gram, Ridge::Auto, true),
        (600, Solver::Dual, Ridge::Auto, true),
        (1300, Solver::Cg, Ridge::Given(1e-3), true),
        (1300, Solver::Cg, Ridge::Given(1e-3), false),
        (600, Solver::Cg, Ridge::Given(1e-3), false),
        (1300, Solver::Cg, Ridge::Auto, true),
        (1300, Solver::Cg, Ridge::Auto, false),
        (600, Solver::Cg, Ridge::Auto, false),
    ] {
        let sets = examples(n, 1, true);
        // Few iterations: bits have to agree whether they have converged or not.
        let given = Options { solver, ridge, keep, path: 3, iterations: 12, ..Options::default() };
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let fit = pool.install(|| fit::<f32>(&map, &sets, &given, &Unwatched).unwrap());
            (fit.v, fit.path)
        };
        let one = run(1);
        assert!([2, 3].into_iter().all(|threads| run(threads) == one), "{n} {solver:?} {ridge:?} {keep}");
    }
}

#[test]
fn the_preconditioner_saves_iterations() {
    let (map, sets) = (Waves { p: 300, decay: 0.96 }, examples(500, 1, false));
    let run = |rank, keep| {
        let given = Options { rank, keep, ..options(Solver::Cg, 1e-9) };
        fit::<f64>(&map, &sets, &given, &Unwatched).unwrap()
    };
    let (plain, nystrom, adaptive) = (run(Some(0), true), run(Some(128), true), run(None, false));
    assert!(nystrom.residual <= 1e-6 && adaptive.residual <= 1e-6);
    assert!(
        6 * nystrom.iterations < plain.iterations && 3 * adaptive.iterations < plain.iterations,
        "{} {} {}",
        plain.iterations,
        nystrom.iterations,
        adaptive.iterations
    );
}

#[test]
fn ridgeless_is_the_solution_of_least_norm() {
    let map = Waves { p: 80, decay: 1.0 };
    for n in [40, 300] {
        // High frequencies: features far from dependent, so that the limit is well conditioned.
        let mut block = examples(n, 1, true).block().clone();
        block.x.iter_mut().for_each(|x| *x *= 20.0);
        let sets = Sets::new(block);
        let run =
            |solver| fit::<f64>(&map, &sets, &Options { solver, ridge: Ridge::Ridgeless, ..Options::default() }, &Unwatched);
        let fitted = run(Solver::Auto).unwrap();
        assert_eq!(fitted.solver, if n < 80 { Solver::Dual } else { Solver::Gram });
        assert!(run(if n < 80 { Solver::Gram } else { Solver::Dual }).is_err());
        let (phi, w) = (features(&map, &sets), &sets.block().weights);
        let total: f64 = w.iter().sum();
        let mean: Vec<f64> = (0..80).map(|j| (0..n).map(|i| w[i] * phi[(i, j)]).sum::<f64>() / total).collect();
        let centre = (0..n).map(|i| w[i] * sets.block().targets(i)[0]).sum::<f64>() / total;
        let scaled = Mat::from_fn(n, 80, |i, j| w[i].sqrt() * (phi[(i, j)] - mean[j]));
        let y = Mat::from_fn(n, 1, |i, _| w[i].sqrt() * (sets.block().targets(i)[0] - centre));
        // Rows of weight zero and the intercept leave singular values at rounding: cut them.
        let svd = scaled.thin_svd().unwrap();
        let (u, s, v) = (svd.U(), svd.S().column_vector(), svd.V());
        let c = u.transpose() * &y;
        let c = Mat::from_fn(c.nrows(), 1, |i, _| if s[i] > 1e-9 * s[0] { c[(i, 0)] / s[i] } else { 0.0 });
        let gap = gap(&fitted.v, &(v * c)) / fitted.v.norm_max();
        assert!(gap < 1e-6, "n={n}: {gap}, singular values down to {} of {}", s[s.nrows() - 1], s[0]);
    }
}

#[test]
fn bad_input_is_refused() {
    let (map, sets) = (Waves { p: 10, decay: 0.9 }, examples(20, 1, false));
    let message = |options: &Options, sets: &Sets| fit::<f64>(&map, sets, options, &Unwatched).unwrap_err().to_string();
    for lambda in [0.0, -1.0, f64::NAN] {
        assert!(message(&options(Solver::Auto, lambda), &sets).contains("positive"));
    }
    let good = options(Solver::Auto, 1e-3);
    assert!(message(&good, &Sets::new(SetBlock::new(sets.shape()))).contains("none"));
    let changed = |change: &dyn Fn(&mut SetBlock)| {
        let mut block = sets.block().clone();
        change(&mut block);
        Sets::new(block)
    };
    assert!(message(&good, &changed(&|block| block.y.fill(2.5))).contains("same for all"));
    assert!(message(&good, &changed(&|block| block.y[3] = f64::NAN)).contains("example 3"));
    assert!(message(&good, &changed(&|block| block.weights[4] = -1.0)).contains("weight"));
    assert!(message(&good, &changed(&|block| block.weights.fill(0.0))).contains("all zero"));
    assert!(message(&good, &changed(&|block| block.x[0] = f64::INFINITY)).contains("not finite"));
    let tight = Options { memory: 100, ..good.clone() };
    assert!(message(&tight, &sets).contains("memory"));
    let wide = Waves { p: 4000, decay: 1.0 };
    let one = Options { solver: Solver::Gram, memory: 10 << 20, ..good };
    let text = fit::<f64>(&wide, &sets, &one, &Unwatched).unwrap_err().to_string();
    assert!(text.contains("use dual"), "{text}");
    let ridgeless = Options { ridge: Ridge::Ridgeless, ..Options::default() };
    assert!(message(&Options { solver: Solver::Cg, ..ridgeless.clone() }, &sets).contains("never reach"));
    assert!(fit::<f32>(&map, &sets, &ridgeless, &Unwatched).is_err());
}

#[test]
fn single_precision_is_close() {
    let (map, sets) = (Waves { p: 150, decay: 0.97 }, examples(400, 1, true));
    let exact = predictions(&map, &sets, &fit::<f64>(&map, &sets, &options(Solver::Gram, 1e-3), &Unwatched).unwrap());
    for solver in [Solver::Gram, Solver::Dual, Solver::Cg] {
        let fitted = fit::<f32>(&map, &sets, &options(solver, 1e-3), &Unwatched).unwrap();
        assert!(gap(&exact, &predictions(&map, &sets, &fitted)) < 1e-3, "{solver:?}");
    }
}

/// Interrupts at the n-th poll, and notes at which stages it was polled.
struct After {
    polls: AtomicUsize,
    limit: usize,
    stage: Mutex<Stage>,
    polled: Mutex<Vec<Stage>>,
}

impl After {
    fn new(limit: usize) -> Self {
        Self { polls: AtomicUsize::new(0), limit, stage: Mutex::new(Stage::Read), polled: Mutex::new(Vec::new()) }
    }
}

impl Watch for After {
    fn begin(&self, stage: Stage) {
        *self.stage.lock().unwrap() = stage;
    }
    fn interrupted(&self) -> bool {
        let (stage, mut polled) = (*self.stage.lock().unwrap(), self.polled.lock().unwrap());
        if !polled.contains(&stage) {
            polled.push(stage);
        }
        self.polls.fetch_add(1, Ordering::Relaxed) >= self.limit
    }
}

/// Stopped at any poll the fit ends with an interruption, and every stage that takes long is polled.
#[test]
fn an_interruption_ends_the_fit() {
    use Stage::{Band, Factor, Gram, Iterate, Path, Sketch, Values, Walk};
    let map = Waves { p: 560, decay: 0.97 };
    let sets = examples(570, 1, false);
    for (solver, ridge, stages) in [
        (Solver::Gram, Ridge::Given(1e-3), vec![Gram, Factor]),
        (Solver::Gram, Ridge::Auto, vec![Gram, Band, Path]),
        (Solver::Dual, Ridge::Given(1e-3), vec![Gram, Factor, Values]),
        (Solver::Dual, Ridge::Auto, vec![Gram, Band, Path, Values]),
        (Solver::Cg, Ridge::Given(1e-3), vec![Gram, Sketch, Iterate]),
        (Solver::Cg, Ridge::Auto, vec![Gram, Sketch, Walk, Iterate]),
    ] {
        let given = Options { solver, ridge, path: 2, ..Options::default() };
        let run = |watch: &After| fit::<f64>(&map, &sets, &given, watch);
        let whole = After::new(usize::MAX);
        run(&whole).unwrap();
        let polls = whole.polls.load(Ordering::Relaxed);
        let polled = whole.polled.lock().unwrap().clone();
        assert!(stages.iter().all(|stage| polled.contains(stage)), "{solver:?} {ridge:?}: {polled:?}");
        // Some of them: a fit stopped late costs as much as a whole one.
        for limit in (0..polls).step_by((polls / 6).max(1)).chain([polls - 1]) {
            assert!(matches!(run(&After::new(limit)), Err(Error::Interrupted)), "{solver:?} {ridge:?} {limit} of {polls}");
        }
    }
}
