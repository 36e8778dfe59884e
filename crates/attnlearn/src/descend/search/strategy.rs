//! From examples to a student, without choices.
//!
//! ```text
//! start:    random heads
//! descend:  Adam in single precision; small students by the evidence, which few examples suffice for, large ones on small batches
//! relax:    rotary students: Gauss–Newton with scores that are free in the distance, and the rotation behind them (`pairs`)
//! refine:   Gauss–Newton in double precision
//! judge:    exact: done.  Stalled: another start; of a large student the head whose removal costs least is drawn anew, and on.
//! end:      what is left unexplained is refined on all examples
//! ```
//!
//! With examples in plenty what goes wrong is nearly always the same: two heads of the student share one of the teacher, and another of the teacher's
//! has none. The refit of the outputs shows which head is in the way without trying. With few examples what goes wrong is that all heads are wrong, and
//! what helps are priors (`evidence`): the norm of attention matrices that starts believe in differs from one to the next, and so do the units in which
//! all their entries are believed to be alike.
//!
//! Independent starts that end at one and the same error are taken for its floor: noise, or a student that is too small. (Of a large student there is
//! one start: heads drawn anew that lead back to the same error are taken for it.)
//!
//! Small students are searched by a crowd of [`Chain`](crate::descend::search::state::Chain)s, one at first and twice as many after every round in which none succeeded: threads share
//! them. Large students have one chain, whose every product is shared instead; until the search is over their outputs are balanced (`balance`).
//!
//! A [`Run`] goes on in small steps, and between two of them its [`State`] is all there is to know: to be kept, and continued bit for bit. What never
//! changes is its [`Task`]; steps are functions of both, those of a chain in [`chain`], those between rounds in [`round`].

use crate::descend::search::plan::StrategySettings;
use crate::descend::search::state::{End, Stage, State};
use crate::descend::search::task::Task;
use crate::descend::search::{chain, round};
use crate::descend::units::whitening::Whitening;
use crate::engine::batch::Batch;
use crate::engine::student::{Form, Student};
use crate::{Error, Result};

/// Heads whose removal costs less than this share of what that of the dearest costs do nothing.
const IDLE: f64 = 1e-3;

/// A search for the student of one form.
pub struct Run<'a> {
    task: Task<'a>,
    /// Where it stands.
    pub state: State,
}

impl<'a> Run<'a> {
    /// At the beginning; `examples` are in the units of a [`Whitening`], `plain` leads to its principal ones.
    pub fn new(examples: &'a Batch<f64>, plain: Option<Whitening>, form: Form, settings: StrategySettings) -> Result<Self> {
        let task = Task::new(examples, plain, form, settings)?;
        let state = State::new(chain::begin(&task, 0)?);
        Ok(Self { task, state })
    }

    /// From where another left off; `None` if the state is not one of this form and these examples.
    pub fn resume(
        examples: &'a Batch<f64>,
        plain: Option<Whitening>,
        form: Form,
        settings: StrategySettings,
        state: State,
    ) -> Result<Option<Self>> {
        let mut task = Task::new(examples, plain, form, settings)?;
        let fits = state.fits(&task.form, (task.descended_on().len(), task.examples.shape.k), task.plan.crowd());
        if fits && state.end.is_some() {
            task.release();
        }
        Ok(fits.then_some(Self { task, state }))
    }

    /// Goes on for a while: some steps of Adam, some of Gauss–Newton. How it ended, if it has. `stop` is asked often; what it stops is an
    /// [`Error::Interrupted`] and leaves the state as it was before the call.
    pub fn advance(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<End>> {
        let Self { task, state } = self;
        if state.end.is_some() {
            round::finish_up(task, state, stop)?;
        } else {
            round::advance(task, state, stop)?;
            if state.round_is_over() {
                match round::judge(task, state) {
                    Some(end) => {
                        round::end(task, state, end)?;
                        task.release();
                    }
                    None => round::next(task, state)?,
                }
            }
        }
        Ok(state.end.as_ref().filter(|_| state.done).map(|(end, _)| *end))
    }

    /// Goes on to the end.
    pub fn finish(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<End> {
        loop {
            if let Some(end) = self.advance(stop)? {
                return Ok(end);
            }
        }
    }

    /// Share of the variance that the best student so far leaves unexplained, of balanced outputs until the search is over.
    pub fn best_nmse(&self) -> Option<f64> {
        self.state.best().map(|(nmse, _)| nmse)
    }

    /// The best student, or that of the first descent as it stands.
    pub fn student(&self) -> Result<Student<f64>> {
        let Self { task, state } = self;
        if let Some((_, student)) = state.best() {
            let student = student.clone();
            return Ok(if state.end.is_some() { student } else { task.leave(student) });
        }
        let chain = state.chains.first().ok_or_else(|| Error::input("run", "it has not begun", "begin it"))?;
        let mut student = chain.student.clone();
        if let Stage::Descend(descent) = &chain.stage {
            student = task.descended(&descent.1, chain.start);
        }
        task.refine().refit(&task.form, &mut student.values)?;
        Ok(task.leave(student))
    }

    /// Heads whose removal would cost more than a thousandth of what the dearest costs: a head that shadows another is worth next to nothing.
    pub fn heads_in_use(&self) -> Result<usize> {
        let (mut student, form) = (self.student()?, &self.task.form);
        let elimination = self.task.refine().refit(form, &mut student.values)?;
        let costs = elimination.removal_costs(form, &student.values);
        let dearest = costs.iter().copied().fold(0.0, f64::max);
        Ok(costs.iter().filter(|cost| **cost > IDLE * dearest).count())
    }

    /// Share of unexplained variance of what goes on: the best chain's.
    pub fn nmse(&self) -> f64 {
        self.state.nmse()
    }

    /// Steps of the descent that goes on, or would.
    pub fn descent_steps(&self) -> usize {
        let plan = &self.task.plan;
        self.state.chains.first().map_or(0, |chain| plan.descent(chain.start, chain.redraws, chain.descents).steps)
    }

    /// Refinements allowed.
    pub fn most(&self) -> usize {
        self.task.plan.most
    }

    /// Share of unexplained variance of a student on all examples.
    pub fn nmse_of(&self, student: &Student<f64>) -> Result<f64> {
        self.task.nmse_of(student)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::descend::optimise::newton::{Newton, NewtonSettings};
    use crate::descend::search::state::Found;
    use crate::descend::testing::{mixed_form, sharp_problem};

    /// What a refinement has reached counts as soon as it is better than all before it.
    #[test]
    fn the_best_may_still_be_refined() {
        let form = mixed_form(1);
        let (teacher, examples, mut rng) = sharp_problem(form.clone(), 50, 1);
        let other: Student<f64> = Student::random(form.clone(), 2.0, &mut rng).unwrap();
        let mut run = Run::new(&examples, None, form.clone(), StrategySettings::default()).unwrap();
        assert_eq!(run.best_nmse(), None);
        for (reached, best) in [(1e-3, &teacher), (1e-1, &other)] {
            let mut newton = Newton::new(&NewtonSettings::default());
            newton.history.extend([0.5, reached]);
            let chain = &mut run.state.chains[0];
            chain.base = Some(Found { nmse: 1e-2, student: other.clone() });
            chain.student = teacher.clone();
            chain.stage = Stage::Refine(newton);
            assert_eq!(run.best_nmse(), Some(reached.min(1e-2)));
            assert_eq!(&run.student().unwrap(), best);
        }
    }
}
