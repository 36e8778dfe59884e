//! Ridge regression on frozen features:
//!
//! ```text
//! minimise  (1/W) Σ_i w_i ‖y_i − b − Vᵀφ_i‖² + λ ‖V‖²,    W = Σ_i w_i,    b not penalised
//! ```
//!
//! With `φ̃_i = √w_i (φ_i − φ̄)` and `ỹ_i = √w_i (y_i − ȳ)` (means only with an intercept) all solvers give the same answer:
//!
//! | solver | solves | operations | memory |
//! |---|---|---|---|
//! | [`Solver::Gram`] | `(Φ̃ᵀΦ̃ + Wλ) v = Φ̃ᵀỹ` | `n p² + p³/3` | `8p²` bytes, whatever `n` |
//! | [`Solver::Dual`] | `(Φ̃Φ̃ᵀ + Wλ) α = ỹ`, `v = Φ̃ᵀα` | `n² p + n³/3` | `n²` numbers, whatever `p` |
//! | [`Solver::Cg`] | either, by conjugate gradients with a Nyström preconditioner | `2 n p` for an iteration or a column of the sketch | `n p` numbers if allowed, else little |
//!
//! [`Solver::Auto`] takes the cheaper of the first two by their operations, or conjugate gradients where they may win, which give way
//! to it as soon as their sketch shows that they will not (`plan.rs`). Where the ridge is to be chosen it takes conjugate gradients only
//! if neither of the others fits in memory, because those alone give leave-one-out errors.
//!
//! [`Ridge::Auto`] is the ridge of least error on a path (one for all targets, or one for each, [`Options::apart`]): of the exact leave-one-out error by the direct solvers (`path.rs`), of
//! generalised cross-validation, estimated to about a per cent, by conjugate gradients (`walk.rs`). [`Ridge::Ridgeless`] is the limit
//! `λ → 0`, the solution of least norm, by the smallest shift that is stable: `Wλ = ε √m tr(Φ̃ᵀΦ̃)`, `m = min(n, p)`,
//! in double precision and on the smaller of the two matrices.

mod cg;
mod checkpoint;
mod dual;
mod gram;
mod kernel;
mod nystrom;
mod operator;
mod panel;
mod path;
mod plan;
mod rows;
mod sums;
mod targets;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_cg;
mod walk;

use super::{FeatureMap, SetSource};
use crate::linalg::Mat;
use crate::linalg::cholesky::{self, Halt};
use crate::linalg::symmetric::Field;
use crate::{Error, Result};
use cg::{State, System};
pub use checkpoint::Checkpoint;
use dual::{Dual, cast, pull_back, widen};
pub use gram::{Gram, Normal, PANEL};
pub use kernel::{KernelFit, fit_kernel};
use nystrom::Nystrom;
use operator::Operator;
use panel::Data;
pub use path::{Criterion, PathPoint};
use path::{dual_path, gram_path};
use plan::Plan;
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::Instant;
pub use sums::fit_sums;
use targets::Targets;

/// How the equations are solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Solver {
    /// The cheapest that fits in memory.
    Auto,
    /// Sums over examples, p × p.
    Gram,
    /// Products between examples, n × n.
    Dual,
    /// Conjugate gradients.
    Cg,
}

/// How large the ridge is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ridge {
    /// λ.
    Given(f64),
    /// Of least leave-one-out error; by conjugate gradients, of least generalised cross-validation.
    Auto,
    /// As small as can be.
    Ridgeless,
}

/// When conjugate gradients stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    /// When the objective is within this share of its least, by a bound (`cg.rs`). More would hardly change the fit.
    Objective(f64),
    /// When the residual of the equations is this share of their right-hand side.
    Residual(f64),
}

impl Accuracy {
    /// What the iteration has to gain, as a share of the norm that it began with.
    fn gain(self) -> f64 {
        match self {
            Self::Objective(share) => share.sqrt(),
            Self::Residual(tolerance) => tolerance,
        }
    }
}

/// What to fit and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// How.
    pub solver: Solver,
    /// Ridge.
    pub ridge: Ridge,
    /// Whether to fit `b`.
    pub intercept: bool,
    /// Bytes that may be used.
    pub memory: u64,
    /// Ridges to try for [`Ridge::Auto`]; chosen by scale if there are none.
    pub lambdas: Vec<f64>,
    /// How many to choose.
    pub path: usize,
    /// Whether every target has its own ridge of least leave-one-out error, rather than all of them one. Not by conjugate gradients.
    pub apart: bool,
    /// When conjugate gradients stop.
    pub accuracy: Accuracy,
    /// Iterations after which they stop regardless; as many again may choose the ridge.
    pub iterations: usize,
    /// Rank of the preconditioner; 0 for none, chosen by cost and memory if not given.
    pub rank: Option<usize>,
    /// Whether conjugate gradients may keep all features in memory.
    pub keep: bool,
    /// Seed of the sketch and of the probes that choose a ridge.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            solver: Solver::Auto,
            ridge: Ridge::Auto,
            intercept: true,
            memory: 8 << 30,
            lambdas: Vec::new(),
            path: 20,
            apart: false,
            accuracy: Accuracy::Objective(1e-4),
            iterations: 1000,
            rank: None,
            keep: true,
            seed: 0,
        }
    }
}

/// What a fit is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// Reading targets.
    Read,
    /// Computing features and their products.
    Gram,
    /// Cholesky factorisation and solve.
    Factor,
    /// Reduction to band form.
    Band,
    /// Errors of all ridges.
    Path,
    /// Sketch for the preconditioner.
    Sketch,
    /// Ridges for conjugate gradients.
    Walk,
    /// Conjugate gradients.
    Iterate,
    /// Values from dual coefficients.
    Values,
}

impl Stage {
    /// What people call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Read => "reading targets",
            Self::Gram => "features and their products",
            Self::Factor => "Cholesky factorisation",
            Self::Band => "reduction to band form",
            Self::Path => "leave-one-out errors of all ridges",
            Self::Sketch => "sketch for the preconditioner",
            Self::Walk => "ridges by generalised cross-validation",
            Self::Iterate => "conjugate gradients",
            Self::Values => "values",
        }
    }
}

/// Who watches a fit: is told what goes on, and may stop it.
pub trait Watch: Sync {
    /// A stage begins.
    fn begin(&self, _stage: Stage) {}
    /// `done` of `total` steps of the stage are done.
    fn advance(&self, _done: u64, _total: u64) {}
    /// An iteration of conjugate gradients left this error, in the measure of [`Accuracy`]; about `remaining` more are to come.
    fn iteration(&self, _iteration: usize, _error: f64, _remaining: f64) {}
    /// Whether to stop now; the fit then ends with [`Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// Watches nothing.
pub struct Unwatched;
impl Watch for Unwatched {}

/// A fitted model: `f = b + Vᵀφ`.
#[derive(Clone, Debug)]
pub struct Fit {
    /// `V`, p × t.
    pub v: Mat<f64>,
    /// `b`.
    pub intercept: Vec<f64>,
    /// λ; the first target's where every target has its own.
    pub lambda: f64,
    /// λ of every target: all the same unless [`Options::apart`].
    pub lambdas: Vec<f64>,
    /// Errors of all ridges tried, for [`Ridge::Auto`].
    pub path: Vec<PathPoint>,
    /// How it was solved.
    pub solver: Solver,
    /// Iterations of conjugate gradients, those that chose the ridge too.
    pub iterations: usize,
    /// Their relative residual in the end, computed anew.
    pub residual: f64,
    /// Whether the accuracy asked for was reached; if not, they ran out of iterations or of digits.
    pub reached: bool,
    /// Seconds of every stage, in order.
    pub seconds: Vec<(Stage, f64)>,
}

/// Fits `map`'s features to the targets of `source`.
pub fn fit<T: Field>(map: &dyn FeatureMap<T>, source: &dyn SetSource, options: &Options, watch: &dyn Watch) -> Result<Fit> {
    fit_with_checkpoint(map, source, options, None, watch)
}

/// The same by [`Solver::Gram`], its sums kept in a file while they are gathered; the file is left for the caller to remove.
pub fn fit_with_checkpoint<T: Field>(
    map: &dyn FeatureMap<T>,
    source: &dyn SetSource,
    options: &Options,
    checkpoint: Option<&Checkpoint>,
    watch: &dyn Watch,
) -> Result<Fit> {
    let clock = Clock { watch, began: Mutex::new(Vec::new()) };
    let watch = &clock;
    check::<T>(options)?;
    if checkpoint.is_some() && !matches!(options.solver, Solver::Auto | Solver::Gram) {
        return Err(Error::input(
            "checkpoint",
            "only the sums of the Gram solver are kept",
            "use the solver gram, or no checkpoint",
        ));
    }
    let options = &Options { solver: if checkpoint.is_some() { Solver::Gram } else { options.solver }, ..options.clone() };
    if map.features() == 0 {
        return Err(Error::input("features", "the map has none", "give it at least one head"));
    }
    targets::present(source)?;
    let data = Data { map, source };
    let plan = Plan::new(&data, usize::try_from(source.len()).unwrap_or(usize::MAX), source.shape().targets, options)?;
    let read = || {
        watch.begin(Stage::Read);
        Targets::read(source, options.intercept, watch)
    };
    let direct = |solver: Solver| match solver {
        Solver::Dual => by_dual(&data, &read()?, options, watch),
        // Sums are all that a single ridge needs: nothing of the size of n is in memory.
        _ if options.ridge != Ridge::Auto => by_gram(&data, None, options, checkpoint, watch),
        _ => by_gram(&data, Some(&read()?), options, checkpoint, watch),
    };
    let mut fit = match (plan.solver, plan.otherwise) {
        (Solver::Cg, None) => by_cg(&data, &read()?, options, plan, watch)?,
        (Solver::Cg, Some((otherwise, _))) => {
            let tried = by_cg(&data, &read()?, options, plan, watch)?;
            if tried.reached { tried } else { direct(otherwise)? }
        }
        (solver, _) => direct(solver)?,
    };
    if !fit.v.norm_l2().is_finite() {
        return Err(Error::input("features", "the fit is not finite", "scale them down, or give a larger ridge"));
    }
    fit.seconds = clock.seconds();
    Ok(fit)
}

fn check<T: Field>(options: &Options) -> Result<()> {
    let positive = |name: &str, value: f64| {
        if value.is_finite() && value > 0.0 {
            Ok(())
        } else {
            Err(Error::input(
                name,
                format!("it is {value}"),
                "it must be positive and finite; for no ridge at all ask for ridgeless",
            ))
        }
    };
    match options.ridge {
        Ridge::Given(lambda) => positive("ridge", lambda)?,
        Ridge::Auto => {
            options.lambdas.iter().try_for_each(|&lambda| positive("ridge", lambda))?;
            if options.lambdas.is_empty() && options.path == 0 {
                return Err(Error::input("path", "it has no ridges", "ask for at least one"));
            }
        }
        Ridge::Ridgeless if size_of::<T>() < 8 => {
            return Err(Error::input(
                "ridge",
                "the ridgeless limit is lost in single precision",
                "compute the features in double precision, or give a ridge",
            ));
        }
        Ridge::Ridgeless => {}
    }
    let (Accuracy::Objective(share) | Accuracy::Residual(share)) = options.accuracy;
    if !(share > 0.0 && share < 1.0) {
        return Err(Error::input("tolerance", format!("it is {share}"), "give a number between 0 and 1"));
    }
    Ok(())
}

/// With targets, the ridge of least leave-one-out error; without, the ridge that is given.
fn by_gram<T: Field>(
    data: &Data<'_, T>,
    targets: Option<&Targets>,
    options: &Options,
    checkpoint: Option<&Checkpoint>,
    watch: &dyn Watch,
) -> Result<Fit> {
    let gram = if let Some(checkpoint) = checkpoint {
        checkpoint.gather(data, watch)?
    } else {
        let mut gram = Gram::new(data.features(), data.source.shape().targets);
        gram.add(data.map, data.source, 0..data.source.blocks(), watch)?;
        gram
    };
    let mut normal = gram.normal_equations(options.intercept)?;
    let (v, lambdas, path) = if let Some(targets) = targets {
        let chosen = gram_path(data, &mut normal, targets, given(options), options, watch)?;
        (chosen.answer, chosen.lambdas, chosen.path)
    } else {
        watch.begin(Stage::Factor);
        let trace = (0..normal.g.nrows()).map(|i| normal.g[(i, i)]).sum();
        let lambda = fixed(options, trace, normal.g.nrows(), normal.weight);
        factor(&mut normal.g, lambda * normal.weight, watch)?;
        let mut v = normal.r.clone();
        cholesky::solve(normal.g.as_ref(), v.as_mut());
        (v, vec![lambda; normal.r.ncols()], Vec::new())
    };
    Ok(Fit { intercept: normal.intercepts(&v), v, path, ..Fit::new(Solver::Gram, lambdas) })
}

fn by_dual<T: Field>(data: &Data<'_, T>, targets: &Targets, options: &Options, watch: &dyn Watch) -> Result<Fit> {
    let mut dual = Dual::gather(data, targets, watch)?;
    let (alpha, lambdas, path, means) = if let Ridge::Auto = options.ridge {
        let (chosen, means) = dual_path(dual, targets, given(options), options, watch)?;
        (chosen.answer, chosen.lambdas, chosen.path, means)
    } else {
        watch.begin(Stage::Factor);
        let lambda = fixed(options, dual.trace, targets.len(), targets.total);
        factor(&mut dual.k, lambda * targets.total, watch)?;
        let mut alpha = cast::<T>(&targets.y);
        cholesky::solve(dual.k.as_ref(), alpha.as_mut());
        (widen(&alpha), vec![lambda; targets.y.ncols()], Vec::new(), dual.feature_means)
    };
    let v = pull_back(data, &targets.coefficients(&alpha), watch)?;
    Ok(Fit { intercept: targets.intercepts(&means, &v), v, path, ..Fit::new(Solver::Dual, lambdas) })
}

/// What is returned has not reached its accuracy if iterations ran out, or were not worth beginning.
fn by_cg<T: Field>(data: &Data<'_, T>, targets: &Targets, options: &Options, plan: Plan, watch: &dyn Watch) -> Result<Fit> {
    let (choose, t) = (matches!(options.ridge, Ridge::Auto), targets.y.ncols());
    if choose && options.apart && t > 1 {
        let remedy = "use gram or dual, or fit one target at a time";
        return Err(Error::input("solver", "conjugate gradients choose one ridge for all targets", remedy));
    }
    let columns = if choose { walk::with_probes(targets, options.seed) } else { targets.y.clone() };
    let operator = Operator::new(*data, targets, &columns, plan.keep, watch)?;
    let mut sketch = Nystrom::new(operator.size(), options.rank, plan.rank, options.seed);
    let (lambda, path, state, walked) = if choose {
        let walk = walk::walk(&operator, targets, &columns, &mut sketch, options, watch)?;
        (walk.lambda, walk.path, walk.state, walk.iterations)
    } else {
        (fixed(options, 0.0, 0, targets.total), Vec::new(), State::new(&operator.rhs), 0)
    };
    let mu = lambda * targets.total;
    if let Some((_, direct)) = plan.otherwise
        && !sketch.pays(&operator, mu, options.accuracy.gain(), direct, watch)?
    {
        return Ok(Fit { residual: f64::INFINITY, reached: false, ..Fit::new(Solver::Cg, vec![lambda; t]) });
    }
    let preconditioner = sketch.precondition(&operator, mu, options.accuracy.gain(), watch)?;
    let system = System { a: &operator, mu, preconditioner };
    let rhs = operator.rhs.subcols(0, targets.y.ncols()).to_owned();
    let squares: Vec<f64> = (0..rhs.ncols()).map(|j| cg::inner(&targets.y, &targets.y, j)).collect();
    let solution = system.solve(&rhs, &squares, state, options.accuracy, options.iterations, watch)?;
    let (v, intercept) = operator.values(&solution.x, watch)?;
    let (iterations, residual, reached) = (walked + solution.iterations, solution.residual, solution.reached);
    Ok(Fit { v, intercept, path, iterations, residual, reached, ..Fit::new(Solver::Cg, vec![lambda; t]) })
}

impl Fit {
    fn new(solver: Solver, lambdas: Vec<f64>) -> Self {
        Self {
            v: Mat::new(),
            intercept: Vec::new(),
            lambda: lambdas.first().copied().unwrap_or(0.0),
            lambdas,
            path: Vec::new(),
            solver,
            iterations: 0,
            residual: 0.0,
            reached: true,
            seconds: Vec::new(),
        }
    }
}

/// The ridge, where it is not chosen by its errors.
fn fixed(options: &Options, trace: f64, size: usize, total: f64) -> f64 {
    match options.ridge {
        Ridge::Given(lambda) => lambda,
        Ridge::Auto | Ridge::Ridgeless => f64::EPSILON * (size as f64).sqrt() * trace / total,
    }
}

fn given(options: &Options) -> Option<&[f64]> {
    if options.lambdas.is_empty() { None } else { Some(&options.lambdas) }
}

/// Factors `A + μI` in place.
fn factor<T: Field>(a: &mut Mat<T>, mu: f64, watch: &dyn Watch) -> Result<()> {
    for i in 0..a.nrows() {
        a[(i, i)] += T::from_f64(mu);
    }
    cholesky::cholesky(a.as_mut(), &|| watch.interrupted()).map_err(|halt| match halt {
        Halt::Stopped => Error::Interrupted,
        Halt::Unfit => Error::input(
            "ridge",
            "it is too small for the precision of the features",
            "give a larger one, or use double precision",
        ),
    })
}

/// Passes everything on, and notes when stages began.
struct Clock<'a> {
    watch: &'a dyn Watch,
    began: Mutex<Vec<(Stage, Instant)>>,
}

impl Watch for Clock<'_> {
    fn begin(&self, stage: Stage) {
        if let Ok(mut began) = self.began.lock() {
            began.push((stage, Instant::now()));
        }
        self.watch.begin(stage);
    }
    fn advance(&self, done: u64, total: u64) {
        self.watch.advance(done, total);
    }
    fn iteration(&self, iteration: usize, error: f64, remaining: f64) {
        self.watch.iteration(iteration, error, remaining);
    }
    fn interrupted(&self) -> bool {
        self.watch.interrupted()
    }
}

impl Clock<'_> {
    fn seconds(&self) -> Vec<(Stage, f64)> {
        let end = Instant::now();
        let began = self.began.lock().map(|began| began.clone()).unwrap_or_default();
        let ends = began.iter().skip(1).map(|(_, at)| *at).chain([end]);
        began.iter().zip(ends).map(|((stage, at), end)| (*stage, (end - *at).as_secs_f64())).collect()
    }
}
