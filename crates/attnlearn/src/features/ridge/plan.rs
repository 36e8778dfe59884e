//! Which solver, by its operations and its memory.
//!
//! In multiply-adds: `n²p/2 + n³/6` for the dual, `np²/2 + p³/6` for the Gram, and `2np` for every column of a sketch, an iteration counting
//! as several columns. How many of these conjugate gradients will take nobody knows beforehand: where they may win they begin, with the
//! direct solver as the way out ([`Plan::otherwise`]) as soon as the sketch shows a spectrum that would make them the slower ones.

use super::dual::Dual;
use super::gram::Gram;
use super::nystrom::{FIRST, MOST, Nystrom};
use super::operator::{Operator, iteration_columns};
use super::panel::Data;
use super::{Options, Ridge, Solver, cg, path, walk};
use crate::linalg::symmetric::Field;
use crate::{Error, Result};

/// Iterations below which conjugate gradients hardly ever stop.
const FEWEST: f64 = 20.0;
/// Features are kept only if a sketch of this rank fits beside them.
const RANK: usize = 256;

/// Which solver; for conjugate gradients, whether features are kept and how large a sketch may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub solver: Solver,
    pub keep: bool,
    pub rank: usize,
    /// The direct solver to fall back on, and its cost in columns of a sketch.
    pub otherwise: Option<(Solver, f64)>,
}

/// What conjugate gradients need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Iterative {
    pub keep: bool,
    pub rank: usize,
    pub bytes: u64,
}

impl Iterative {
    /// With all features in memory if that is allowed, and the largest sketch that fits.
    pub fn new<T: Field>(data: &Data<'_, T>, n: usize, t: usize, options: &Options) -> Self {
        let p = data.features();
        let columns = t + if let Ridge::Auto = options.ridge { walk::probes(n) } else { 0 };
        let make = |keep: bool, rank: usize| {
            let size = if !keep && n <= p { n } else { p };
            let features = if keep { Operator::<T>::cache_bytes(n, p) } else { Operator::panel_bytes(data, n) };
            // The columns that are fitted stand beside their right-hand sides.
            let vectors = cg::bytes(size, columns) + 2 * 8 * (n * (columns + 1)) as u64;
            let work = Operator::work_bytes(data, n, columns, keep);
            // Products are over before the sketch is decomposed, but not before it is made.
            let sketch = Nystrom::<T>::bytes(size, rank, Operator::depth(data, n, keep));
            Self { keep, rank, bytes: features + vectors + work + sketch }
        };
        // Where a rank is given it has to fit; otherwise the sketch takes what there is.
        let least = options.rank.unwrap_or(0);
        let keep = options.keep && make(true, options.rank.unwrap_or(RANK)).bytes <= options.memory;
        let mut ranks = (least..=options.rank.unwrap_or(MOST)).rev().step_by(64);
        ranks.find(|&rank| make(keep, rank).bytes <= options.memory).map_or_else(|| make(keep, least), |rank| make(keep, rank))
    }
}

impl Plan {
    pub fn new<T: Field>(data: &Data<'_, T>, n: usize, t: usize, options: &Options) -> Result<Self> {
        let p = data.features();
        // The dual path has one factor in memory at a time, the Gram's all of them.
        let ridges = if let Ridge::Auto = options.ridge { options.lambdas.len().max(options.path) } else { 0 };
        let gram = Gram::bytes::<T>(p) + if ridges > 0 { path::bytes(p, ridges) } else { 0 };
        let dual = Dual::<T>::bytes(n, data.widest()) + if ridges > 0 { path::bytes(n, 1) } else { 0 };
        let cg = Iterative::new(data, n, t, options);
        let (nf, pf) = (n as f64, p as f64);
        let column = 2.0 * nf * pf;
        let costs = [
            (Solver::Gram, gram, nf * pf * pf / 2.0 + pf.powi(3) / 6.0),
            (Solver::Dual, dual, nf * nf * pf / 2.0 + nf.powi(3) / 6.0),
            (Solver::Cg, cg.bytes, column * (FIRST as f64 + FEWEST * iteration_columns(cg.keep))),
        ];
        // The larger of the two matrices is singular: without a ridge rounding would fill its null space.
        let singular = if n > p { Solver::Dual } else { Solver::Gram };
        let able = |solver: Solver| match options.ridge {
            Ridge::Given(_) | Ridge::Auto => true,
            Ridge::Ridgeless => solver != Solver::Cg && solver != singular,
        };
        if !able(options.solver) {
            let problem = if options.solver == Solver::Cg {
                "conjugate gradients never reach the ridgeless limit".to_owned()
            } else {
                format!("the ridgeless limit is not stable in this form with {n} examples and {p} features")
            };
            return Err(Error::input("solver", problem, if n > p { "use gram" } else { "use dual" }));
        }
        let fits = |solver: &Solver, bytes: u64| bytes <= options.memory && able(*solver);
        let least = costs.iter().filter(|(solver, ..)| able(*solver)).map(|cost| cost.1).min().unwrap_or(0);
        let short = |bytes: u64| {
            let (need, have) = (bytes.div_ceil(1 << 20), options.memory >> 20);
            let others: Vec<String> = costs
                .iter()
                .filter(|(solver, bytes, _)| fits(solver, *bytes))
                .map(|(solver, ..)| format!("{solver:?}").to_lowercase())
                .collect();
            let remedy = if others.is_empty() {
                format!("allow at least {} MiB, or use fewer features", least.div_ceil(1 << 20))
            } else {
                format!("allow more or use {}", others.join(" or "))
            };
            Error::input("memory", format!("{need} MiB are needed and {have} MiB allowed"), remedy)
        };
        let mut otherwise = None;
        let solver = match options.solver {
            Solver::Auto => {
                let direct =
                    costs[..2].iter().filter(|(solver, bytes, _)| fits(solver, *bytes)).min_by(|a, b| a.2.total_cmp(&b.2));
                let iterative = Some(&costs[2]).filter(|(solver, bytes, _)| fits(solver, *bytes));
                match (direct, iterative) {
                    (None, None) => return Err(short(least)),
                    (None, Some(_)) => Solver::Cg,
                    // Only the direct solvers have exact leave-one-out errors: where the ridge is to be chosen they come first.
                    (Some(direct), Some(iterative)) if options.ridge != Ridge::Auto && 1.5 * iterative.2 < direct.2 => {
                        otherwise = Some((direct.0, direct.2 / column));
                        Solver::Cg
                    }
                    (Some(direct), _) => direct.0,
                }
            }
            asked => {
                let bytes = costs.iter().find(|(solver, ..)| *solver == asked).map_or(0, |cost| cost.1);
                if bytes > options.memory {
                    return Err(short(bytes));
                }
                asked
            }
        };
        Ok(Self { solver, keep: cg.keep, rank: cg.rank, otherwise })
    }
}
