//! What a search is for: the form of its students, its examples in all the units that they are seen in, and what is done how often. None of it changes.
//!
//! # Copies of the examples
//!
//! ```text
//! balanced   all of them, in double precision; of large students, and tokens with them
//! some       those of the refinement, in double precision, if they are not all
//! single     those of the descent: all of a large student's, those of the refinement of others
//! refined    those of the refinement, in single precision, if descent has others
//! plain      those of the descent of small students, in principal units
//! ```
//!
//! That is all: each is made once, `single` and `refined` when they are first read, and all go when the search ends.

use crate::Result;
use crate::descend::optimise::newton::Seen;
use crate::descend::search::plan::{Plan, StrategySettings, is_plain};
use crate::descend::units::balance::Balance;
use crate::descend::units::whitening::Whitening;
use crate::engine::batch::Batch;
use crate::engine::student::{Form, Student};
use std::sync::OnceLock;

/// A search for the student of one form.
pub(crate) struct Task<'a> {
    pub(crate) form: Form,
    /// All of them.
    pub(crate) examples: &'a Batch<f64>,
    /// For large students: what the search sees instead.
    balanced: Option<(Balance, Batch<f64>)>,
    /// What is refined by, if not by all.
    some: Option<Batch<f64>>,
    /// What descent sees.
    single: OnceLock<Batch<f32>>,
    /// What is refined by, if descent sees more.
    refined: OnceLock<Batch<f32>>,
    /// The examples' own units, and what descent sees in them.
    plain: Option<(Whitening, Batch<f32>)>,
    /// Of what is refined by.
    pub(crate) variance: f64,
    pub(crate) plan: Plan,
    pub(crate) settings: StrategySettings,
}

impl<'a> Task<'a> {
    /// `examples` are in the units of a [`Whitening`], `plain` leads to its principal ones.
    pub(crate) fn new(
        examples: &'a Batch<f64>,
        plain: Option<Whitening>,
        form: Form,
        settings: StrategySettings,
    ) -> Result<Self> {
        examples.check(&form)?;
        examples.variance()?;
        let plan = Plan::new(&form, examples, &settings);
        let balanced = if plan.large {
            let balance = Balance::of(examples)?;
            let examples = balance.enter(examples);
            Some((balance, examples))
        } else {
            None
        };
        let all = balanced.as_ref().map_or(examples, |(_, balanced)| balanced);
        let some = (plan.refine < all.len()).then(|| all.select(&(0..plan.refine).collect::<Vec<_>>()));
        let refine = some.as_ref().unwrap_or(all);
        let variance = refine.variance()?;
        let plain = plain.filter(|_| !plan.large).map(|whitening| {
            let seen = whitening.enter_single(refine);
            (whitening, seen)
        });
        let (single, refined) = (OnceLock::new(), OnceLock::new());
        Ok(Self { form, examples, balanced, some, single, refined, plain, variance, plan, settings })
    }

    /// All examples as the search sees them.
    pub(crate) fn all(&self) -> &Batch<f64> {
        self.balanced.as_ref().map_or(self.examples, |(_, balanced)| balanced)
    }

    /// What is refined by.
    pub(crate) fn refine(&self) -> &Batch<f64> {
        self.some.as_ref().unwrap_or(self.all())
    }

    /// The same with what goes with it. Where descent sees no others, it shares them.
    pub(crate) fn seen(&self) -> Seen<'_> {
        let others = self.plan.large && self.some.is_some();
        Seen { double: self.refine(), single: if others { &self.refined } else { &self.single }, variance: self.variance }
    }

    /// What descent sees, in double precision.
    pub(crate) fn descended_on(&self) -> &Batch<f64> {
        if self.plan.large { self.all() } else { self.refine() }
    }

    /// Lets go of all copies of the examples: nothing is searched any more.
    pub(crate) fn release(&mut self) {
        (self.balanced, self.some, self.plain) = (None, None, None);
        (self.single, self.refined) = (OnceLock::new(), OnceLock::new());
    }

    /// The units in which a start descends, if they are the examples' own, and what it sees.
    fn plain_of(&self, start: usize) -> Option<&(Whitening, Batch<f32>)> {
        self.plain.as_ref().filter(|_| is_plain(start))
    }

    /// What the descent of a start sees.
    pub(crate) fn seen_by(&self, start: usize) -> &Batch<f32> {
        match self.plain_of(start) {
            Some((_, seen)) => seen,
            None => self.single.get_or_init(|| self.descended_on().cast()),
        }
    }

    /// What the descent of a start has come to.
    pub(crate) fn descended(&self, student: &Student<f32>, start: usize) -> Student<f64> {
        let student = Student { form: self.form.clone(), values: student.values.iter().map(|v| f64::from(*v)).collect() };
        match self.plain_of(start) {
            Some((whitening, _)) => whitening.leave(&student),
            None => student,
        }
    }

    /// A student of the search as one of the examples.
    pub(crate) fn leave(&self, student: Student<f64>) -> Student<f64> {
        match &self.balanced {
            Some((balance, _)) => balance.leave(student),
            None => student,
        }
    }

    /// Share of unexplained variance of a student on all examples.
    pub(crate) fn nmse_of(&self, student: &Student<f64>) -> Result<f64> {
        Ok(self.examples.error(&self.form, &student.values) / self.examples.variance()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::descend::testing::{mixed_form, sharp_problem};

    /// A refinement sees in single precision what it sees in double, with descent's copy where that is the same; released, all copies are gone.
    #[test]
    fn copies_are_shared_and_go() {
        let form = mixed_form(1);
        let (teacher, examples, _) = sharp_problem(form.clone(), 50, 1);
        let mut task = Task::new(&examples, None, form, StrategySettings::default()).unwrap();
        assert_eq!(task.seen_by(0), &task.refine().cast());
        assert!(std::ptr::eq(task.seen().single, &task.single));
        task.release();
        assert!(task.balanced.is_none() && task.some.is_none() && task.plain.is_none());
        assert!(task.single.get().is_none() && task.refined.get().is_none());
        assert!(task.nmse_of(&teacher).unwrap() < 1e-20);
    }
}
