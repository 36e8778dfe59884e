//! A ridge for conjugate gradients, by generalised cross-validation.
//!
//! Leave-one-out errors need the diagonal of an inverse, which nobody has here. GCV needs its trace, and that can be had from
//! random signs: with `ω` independent `±1`, centred and scaled as targets are,
//!
//! ```text
//! GCV = (1/W) ‖ỹ − Hỹ‖² / (tr(I − H)/n)²        tr(I − H) = E ωᵀ(I − H)ω        ωᵀ(I − H)ω = min_v ‖ω − Φ̃v‖² + μ‖v‖²
//! ```
//!
//! that is, signs are fitted beside the targets, as more columns of the same passes. (Probing `tr (G + μ)⁻¹` would do as well
//! while `tr H ≪ n`, but subtracts large numbers where the fit nearly interpolates; here every term is positive.)
//!
//! **How many.** The variance of `q` probes is at most `2 (‖I − H‖² − Σ(1 − h_i)²)/q ≤ 2 s f/(n q)`, `f = tr H`, `s = n − f`, so
//! `s` is known to a share of `√(2f/(n s q))`. Four probes give 1 % at `s = f` from `n = 5000` on; for fewer examples there are
//! `2·10⁴/n`, at most sixteen. All ridges have the same probes, so that their errors go the same way and mostly leave the place
//! of the minimum alone.
//!
//! **How exact.** With the residual `r` of a solution, and `ρ = ‖r‖` in the dual form, `‖r‖/√μ` in the primal, the residual of a fit
//! is known to `ρ` and `ωᵀ(I − H)ω` to `ρ²`, from
//!
//! | | dual, `x = α` | primal, `x = v`, `b = Φ̃ᵀc` |
//! |---|---|---|
//! | fit of `c` misses by | `‖r + μx‖²` | `‖c‖² − xᵀ(b + r) − μ‖x‖²` |
//! | `cᵀ(I − H)c` | `μ xᵀ(c + r)` | `‖c‖² − xᵀ(b + r)` |
//!
//! because the second row is stationary at the solution. A ridge is done when `ρ ≤ τ ‖ỹ − Hỹ‖` and the mean of `ρ²` over probes
//! is at most `τ s`: then GCV is within `4τ`, at [`LOOSE`] 2 %, where the bounds are met, and in practice far closer. That is as
//! much as the probes can tell.
//!
//! Ridges are walked from large to small, each from the solution of the last, over one sketch that grows. The walk ends
//! [`RISING`] ridges after the least, or when iterations run out.

use super::cg::{State, System, inner};
use super::nystrom::Nystrom;
use super::operator::Operator;
use super::path::{PathPoint, best, grid};
use super::targets::Targets;
use super::{Options, Stage, Watch, given};
use crate::linalg::Mat;
use crate::linalg::symmetric::Field;
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// `τ`.
const LOOSE: f64 = 0.005;
/// How many ridges may be worse than the best before the walk ends.
const RISING: usize = 3;
/// The stream of the probes; the sketch has stream 0.
const STREAM: u64 = 1;

/// How many probes `n` examples need.
pub(super) fn probes(n: usize) -> usize {
    20_000_usize.div_ceil(n.max(1)).clamp(4, 16)
}

/// `ỹ` and beside it random signs, centred and scaled like targets of weight 1 or 0.
pub(super) fn with_probes(targets: &Targets, seed: u64) -> Mat<f64> {
    let (n, t) = (targets.len(), targets.y.ncols());
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(STREAM);
    let mut columns = Mat::zeros(n, t + probes(n));
    columns.as_mut().subcols_mut(0, t).copy_from(&targets.y);
    for j in t..columns.ncols() {
        let column = columns.col_as_slice_mut(j);
        for (c, root) in column.iter_mut().zip(&targets.roots) {
            let sign = if rng.random::<bool>() { 1.0 } else { -1.0 };
            *c = if *root > 0.0 { sign } else { 0.0 };
        }
        if targets.intercept {
            // ω ← ω − u uᵀω, u = √w/√W: the intercept takes one degree of freedom.
            let along = column.iter().zip(&targets.roots).map(|(c, root)| c * root).sum::<f64>() / targets.total;
            column.iter_mut().zip(&targets.roots).for_each(|(c, root)| *c -= along * root);
        }
    }
    columns
}

/// The best ridge and where the walk stood there.
pub(super) struct Walk {
    pub path: Vec<PathPoint>,
    pub lambda: f64,
    /// Of the targets alone.
    pub state: State,
    pub iterations: usize,
}

/// Walks the ridges; `columns` are those that `a` was made with.
pub(super) fn walk<T: Field>(
    a: &Operator<'_, T>,
    targets: &Targets,
    columns: &Mat<f64>,
    sketch: &mut Nystrom<T>,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Walk> {
    let t = targets.y.ncols();
    let mut lambdas = match given(options) {
        Some(lambdas) => lambdas.to_vec(),
        None => grid::<f64>(a.trace(watch)? / targets.total, options.path),
    };
    lambdas.sort_by(|a, b| b.total_cmp(a));
    let gauge = Gauge {
        dual: a.dual,
        rhs: &a.rhs,
        squares: (0..columns.ncols()).map(|j| inner(columns, columns, j)).collect(),
        t,
        total: targets.total,
        seen: targets.roots.iter().filter(|root| **root > 0.0).count() as f64,
    };
    let mut state = State::new(&a.rhs);
    let (mut path, mut iterations, mut before) = (Vec::<PathPoint>::new(), 0, None);
    let mut least: Option<(usize, State)> = None;
    for (done, &lambda) in lambdas.iter().enumerate() {
        let mu = lambda * targets.total;
        state.reshift(before.unwrap_or(mu), mu);
        before = Some(mu);
        let preconditioner = sketch.precondition(a, mu, LOOSE, watch)?;
        watch.begin(Stage::Walk);
        watch.advance(done as u64, lambdas.len() as u64);
        let system = System { a, mu, preconditioner };
        let error = |state: &State, _: &[f64]| gauge.read(state, mu).1;
        iterations += system.iterate(&mut state, LOOSE, options.iterations - iterations, &error, watch)?;
        let (point, error) = gauge.read(&state, mu);
        if error > LOOSE && !path.is_empty() {
            // Out of iterations: what they say of this ridge is not to be trusted.
            break;
        }
        path.push(PathPoint { lambda, ..point });
        let better = least.as_ref().is_none_or(|(at, _)| point.gcv < path[*at].gcv);
        if better {
            least = Some((path.len() - 1, state.columns(t)));
        } else if least.as_ref().is_some_and(|(at, _)| path.len() - 1 - at >= RISING) {
            break;
        }
    }
    let chosen = best(&path)?;
    let state = least.filter(|(at, _)| *at == chosen).map(|(_, state)| state).ok_or_else(|| {
        Error::input(
            "ridge",
            "no ridge of the path has a finite error",
            "give others, or compute the features in double precision",
        )
    })?;
    Ok(Walk { lambda: path[chosen].lambda, path, state, iterations })
}

/// Reads errors off a state.
struct Gauge<'a> {
    dual: bool,
    rhs: &'a Mat<f64>,
    /// `‖c_j‖²`.
    squares: Vec<f64>,
    /// How many columns are targets.
    t: usize,
    total: f64,
    /// How many examples have a weight.
    seen: f64,
}

impl Gauge<'_> {
    /// The errors of a ridge, and to what share of themselves they are known (`τ` above); `λ` is left to the caller.
    fn read(&self, State { x, r }: &State, mu: f64) -> (PathPoint, f64) {
        let probes = (x.ncols() - self.t) as f64;
        let (mut miss, mut blur, mut slack, mut slip) = (0.0, 0.0, 0.0, 0.0);
        for j in 0..x.ncols() {
            let (size, rest) = (inner(x, x, j), inner(r, r, j));
            let product = inner(x, self.rhs, j) + inner(x, r, j);
            let (value, fitted, rho) = if self.dual {
                (mu * product, rest + 2.0 * mu * inner(x, r, j) + mu * mu * size, rest)
            } else {
                (self.squares[j] - product, self.squares[j] - product - mu * size, rest / mu)
            };
            if j < self.t {
                (miss, blur) = (miss + fitted.max(0.0), blur + rho);
            } else {
                (slack, slip) = (slack + value / probes, slip + rho / probes);
            }
        }
        let (training, share) = (miss / self.total, slack / self.seen);
        let gcv = if share > 0.0 { training / (share * share) } else { f64::INFINITY };
        let error = f64::max((blur / miss).sqrt(), slip / slack);
        let point = PathPoint { lambda: 0.0, loo: None, gcv, training, freedom: self.seen - slack };
        (point, if error.is_nan() { f64::INFINITY } else { error })
    }
}
