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
use crate::memory::{Size, ask, clamp, numbers};
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
            let vectors = cg::bytes(size, columns).saturating_add(clamp(numbers::<f64>(&[2, n, columns + 1])));
            let work = Operator::work_bytes(data, n, columns, keep);
            // Products are over before the sketch is decomposed, but not before it is made.
            let sketch = Nystrom::<T>::bytes(size, rank, Operator::depth(data, n, keep));
            Self { keep, rank, bytes: [features, vectors, work, sketch].into_iter().fold(0, u64::saturating_add) }
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
        let gram = Gram::bytes::<T>(p).saturating_add(if ridges > 0 { path::bytes(p, ridges) } else { 0 });
        let dual = Dual::<T>::bytes(n, data.widest()).saturating_add(if ridges > 0 { path::bytes(n, 1) } else { 0 });
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
        let least = costs.iter().filter(|(solver, ..)| able(*solver)).min_by_key(|cost| cost.1);
        // Whatever is allowed has to suffice: for what was asked for, or for the solver that makes do with least.
        let short = |bytes: u64| {
            let name = |solver: Solver| format!("{solver:?}").to_lowercase();
            let others: Vec<String> =
                costs.iter().filter(|(solver, bytes, _)| fits(solver, *bytes)).map(|(solver, ..)| name(*solver)).collect();
            let size = |bytes: u64| Size(bytes.into());
            let remedy = match least {
                _ if !others.is_empty() => format!("allow more or use {}", others.join(" or ")),
                Some((solver, least, _)) if *least < bytes => {
                    format!("allow more, or {} and use {}, or use fewer features", size(*least), name(*solver))
                }
                _ => "allow more, or use fewer features".to_owned(),
            };
            Error::input("memory", format!("{} are needed and {} allowed", size(bytes), size(options.memory)), remedy)
        };
        let mut otherwise = None;
        let solver = match options.solver {
            Solver::Auto => {
                let direct =
                    costs[..2].iter().filter(|(solver, bytes, _)| fits(solver, *bytes)).min_by(|a, b| a.2.total_cmp(&b.2));
                let iterative = Some(&costs[2]).filter(|(solver, bytes, _)| fits(solver, *bytes));
                match (direct, iterative) {
                    (None, None) => return Err(short(least.map_or(0, |cost| cost.1))),
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
        // What is allowed need not be there. The plan does not follow what happens to be free: the same command gives the same bits.
        let bytes =
            costs.iter().filter(|(s, ..)| *s == solver || otherwise.is_some_and(|(o, _)| *s == o)).map(|cost| cost.1).max();
        let remedy = match solver {
            Solver::Cg => "allow less than there is: conjugate gradients then make do with that",
            _ => "use fewer features, or allow less than there is and let the solver be chosen",
        };
        ask(bytes.unwrap_or(0).into(), "memory", remedy)?;
        Ok(Self { solver, keep: cg.keep, rank: cg.rank, otherwise })
    }
}
