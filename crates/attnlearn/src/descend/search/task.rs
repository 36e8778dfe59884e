//! What a search is for: the form of its students, its examples in all the units that they are seen in, and what is done how often. None of it changes.

use crate::Result;
use crate::descend::search::plan::{Plan, StrategySettings, is_plain};
use crate::descend::units::balance::Balance;
use crate::descend::units::whitening::Whitening;
use crate::engine::batch::Batch;
use crate::engine::student::{Form, Student};

/// A search for the student of one form.
pub(crate) struct Task<'a> {
    pub(crate) form: Form,
    /// All of them.
    pub(crate) examples: &'a Batch<f64>,
    /// For large students: what the search sees instead.
    balanced: Option<(Balance, Batch<f64>)>,
    /// What descent sees.
    pub(crate) single: Batch<f32>,
    /// The examples' own units, and what descent sees in them.
    plain: Option<(Whitening, Batch<f32>)>,
    /// What is refined by, if not by all.
    some: Option<Batch<f64>>,
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
        let single = if plan.large { all.cast() } else { refine.cast() };
        let plain = plain.filter(|_| !plan.large).map(|whitening| {
            let seen = whitening.enter(refine.clone()).cast();
            (whitening, seen)
        });
        Ok(Self { form, examples, balanced, single, plain, some, variance, plan, settings })
    }

    /// All examples as the search sees them.
    pub(crate) fn all(&self) -> &Batch<f64> {
        self.balanced.as_ref().map_or(self.examples, |(_, balanced)| balanced)
    }

    /// What is refined by.
    pub(crate) fn refine(&self) -> &Batch<f64> {
        self.some.as_ref().unwrap_or(self.all())
    }

    /// The units in which a start descends, if they are the examples' own, and what it sees.
    fn plain_of(&self, start: usize) -> Option<&(Whitening, Batch<f32>)> {
        self.plain.as_ref().filter(|_| is_plain(start))
    }

    /// What the descent of a start sees.
    pub(crate) fn seen_by(&self, start: usize) -> &Batch<f32> {
        self.plain_of(start).map_or(&self.single, |(_, seen)| seen)
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
