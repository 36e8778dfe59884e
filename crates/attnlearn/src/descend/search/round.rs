//! How a search goes on between rounds: every chain a few steps, and when a round is over what to make of it; in the end all examples.

use crate::descend::optimise::levenberg::Stop;
use crate::descend::optimise::newton::{Newton, NewtonSettings, Seen};
use crate::descend::search::chain;
use crate::descend::search::plan::most_sequences;
use crate::descend::search::state::{End, Found, Stage, State};
use crate::descend::search::task::Task;
use crate::{Error, Result};
use rayon::prelude::*;
use std::sync::OnceLock;

/// Independent ends at the same error for it to be the floor.
const AGREEING: usize = 3;
/// Errors above this are no floor: nothing was learned.
const NOTHING_LEARNED: f64 = 0.98;
/// The same error, up to this share: refinements stop when they gain little, before they are quite at the end.
const SAME: f64 = 1e-2;
/// The same of more ends than a [`FEW`], some of which are near one another by chance.
const SAME_OF_MANY: f64 = 1e-3;
const FEW: usize = 12;

/// Steps on all examples.
const FINAL_STEPS: usize = 12;

/// Gain of a step on all examples below which there is no other.
const SETTLED: f64 = 1e-6;

/// Share of unexplained variance on all examples up to which a student that is exact on some is exact.
const ELSEWHERE: f64 = 1e-18;

/// λ of the refinement on all examples: it begins near its end.
const FINAL_DAMPING: f64 = 1e-6;

/// Every chain some steps further: whole or not at all, so that what is interrupted does not show.
pub(crate) fn advance(task: &Task<'_>, state: &mut State, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
    let mut chains = state.chains.clone();
    let advanced: Vec<Result<()>> = match chains.as_mut_slice() {
        [only] => vec![chain::advance(task, only, stop)],
        many => many.par_iter_mut().map(|chain| chain::advance(task, chain, stop)).collect(),
    };
    for (chain, advanced) in chains.iter_mut().zip(advanced) {
        match advanced {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            // Numbers that are not finite any more: this chain has come to nothing.
            Err(_) => chain.stage = Stage::Over(Stop::Stalled, f64::INFINITY),
            Ok(()) => {}
        }
    }
    state.chains = chains;
    Ok(())
}

/// What a round has come to, and how the search ends, if it does.
pub(crate) fn judge(task: &Task<'_>, state: &mut State) -> Option<End> {
    let mut exact = false;
    for chain in &mut state.chains {
        let Stage::Over(why, nmse) = chain.stage else { continue };
        state.refined += 1;
        exact |= why == Stop::Goal;
        if task.plan.large && chain.base.as_ref().is_some_and(|base| (nmse / base.nmse - 1.0).abs() <= SAME) {
            // Large students have no time for independent starts: a head drawn anew that changes nothing counts as one.
            state.ends.push(nmse);
        }
        chain.keep(nmse);
    }
    if exact {
        return Some(End::Exact);
    }
    let bases = state.chains.iter().filter_map(|chain| chain.base.as_ref().map(|base| base.nmse));
    if is_floor(&state.ends.iter().copied().chain(bases).collect::<Vec<f64>>()) {
        return Some(End::Floor);
    }
    (state.refined >= task.plan.most).then_some(End::Tried)
}

/// Whether enough ends are the same, and the least.
fn is_floor(ends: &[f64]) -> bool {
    let least = ends.iter().copied().fold(f64::INFINITY, f64::min);
    let same = if ends.len() <= FEW { SAME } else { SAME_OF_MANY };
    let agreeing = ends.iter().filter(|end| **end <= least * (1.0 + same)).count();
    agreeing >= AGREEING && least < NOTHING_LEARNED
}

/// Another head, or another start, for every chain; and more chains.
pub(crate) fn next(task: &Task<'_>, state: &mut State) -> Result<()> {
    let start = |state: &mut State| {
        state.starts += 1;
        chain::begin(task, state.starts - 1)
    };
    let mut chains = std::mem::take(&mut state.chains);
    for chain in &mut chains {
        if chain.base.is_some() && task.plan.large && chain.redraws < task.settings.redraws * task.form.heads {
            chain::redraw(task, chain)?;
            continue;
        }
        if let Some(base) = chain.base.take() {
            state.ends.push(base.nmse);
            if state.best.as_ref().is_none_or(|best| base.nmse < best.nmse) {
                state.best = Some(base);
            }
        }
        *chain = start(state)?;
    }
    for _ in chains.len()..(2 * chains.len()).min(task.plan.crowd()) {
        chains.push(start(state)?);
    }
    state.chains = chains;
    Ok(())
}

/// The end of the search: its best student, and what refines it on all examples.
pub(crate) fn end(task: &Task<'_>, state: &mut State, end: End) -> Result<()> {
    state.best = state.best().map(|(nmse, student)| Found { nmse, student: task.leave(student.clone()) });
    state.end = Some((end, Newton::new(&NewtonSettings { damping: FINAL_DAMPING, ..task.plan.newton.clone() })));
    // What is exact on some of the examples is nearly always exact on all.
    let elsewhere = state.best.as_ref().map_or(Ok(0.0), |best| task.nmse_of(&best.student))?;
    state.done = end == End::Exact && elsewhere <= ELSEWHERE;
    Ok(())
}

/// A step of Gauss–Newton on all examples, or as many as memory has passes for.
pub(crate) fn finish_up(task: &Task<'_>, state: &mut State, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
    let (Some((end, newton)), Some(best)) = (&state.end, &state.best) else { return Ok(()) };
    if state.done {
        return Ok(());
    }
    let all = task.examples;
    let n = most_sequences(&task.form, all.shape.k, task.settings.pass_numbers).min(all.len());
    let some = (n < all.len()).then(|| all.select(&(0..n).collect::<Vec<_>>()));
    let (double, single) = (some.as_ref().unwrap_or(all), OnceLock::new());
    let seen = Seen { double, single: &single, variance: double.variance()? };
    let (end, mut newton, mut student) = (*end, newton.clone(), best.student.clone());
    let settings = NewtonSettings { steps: FINAL_STEPS, ..task.plan.newton.clone() };
    let why = newton.step(&mut student, seen, &settings, &[], &|_| stop())?;
    let settled = matches!(newton.history.as_slice(), [.., before, now] if *now > (1.0 - SETTLED) * before);
    state.done = why.is_some() || settled;
    state.best = Some(Found { nmse: newton.history.last().copied().unwrap_or(best.nmse), student });
    state.end = Some((end, newton));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three ends at the least error are a floor, nearer ones where there are many; three at that of nothing learned are none.
    #[test]
    fn ends_that_agree_are_a_floor() {
        assert!(is_floor(&[0.5, 0.1, 0.1005, 0.1009]));
        assert!(!is_floor(&[0.5, 0.1, 0.1005, 0.102]) && !is_floor(&[0.99, 0.99, 0.99]) && !is_floor(&[]));
        let many: Vec<f64> = [0.1, 0.1005, 0.1009].into_iter().chain((0..10).map(|i| 0.2 + 0.05 * f64::from(i))).collect();
        assert!(!is_floor(&many) && is_floor(&[many.as_slice(), &[0.10005, 0.10006]].concat()));
    }
}
