//! Where a search stands: data and questions to it. What changes it stands in `chain` and `round`, what it is a search for in `task`.

use crate::descend::optimise::adam::Adam;
use crate::descend::optimise::levenberg::Stop;
use crate::descend::optimise::newton::Newton;
use crate::descend::pairs::relax::relax;
use crate::descend::search::redundant::Redundant;
use crate::descend::sharp::Readings;
use crate::engine::student::{Form, Student};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// What a chain does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// Adam.
    Descend(Box<(Adam<f32>, Student<f32>)>),
    /// Gauss–Newton for scores that are free in the distance, which a rotation is found in afterwards.
    Relax(Box<(Newton, Student<f64>)>),
    /// Gauss–Newton.
    Refine(Newton),
    /// Waiting for the others, having ended like this.
    Over(Stop, f64),
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Nothing is left unexplained.
    Exact,
    /// Several starts ended at one error: noise, or the least that a student of this shape can do.
    Floor,
    /// All starts are used up.
    Tried,
    /// Somebody, or a limit of time, ended it.
    Stopped,
}

/// A student and its share of unexplained variance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// On the examples of Gauss–Newton.
    pub nmse: f64,
    /// The student.
    pub student: Student<f64>,
}

impl Found {
    fn with_error(&self) -> (f64, &Student<f64>) {
        (self.nmse, &self.student)
    }
}

/// One start after another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// What it does.
    pub stage: Stage,
    /// Number of its start.
    pub start: usize,
    /// Heads drawn anew since.
    pub redraws: usize,
    /// Descents since, one after the other.
    pub(crate) descents: usize,
    /// The best since.
    pub base: Option<Found>,
    pub(crate) idle: Redundant,
    pub(crate) readings: Readings,
    pub(crate) student: Student<f64>,
    pub(crate) rng: ChaCha8Rng,
}

impl Chain {
    /// Share of unexplained variance of what it does.
    fn nmse(&self) -> f64 {
        match &self.stage {
            Stage::Descend(descent) => descent.0.nmse,
            Stage::Relax(relaxed) => last(&relaxed.0),
            Stage::Refine(newton) => last(newton),
            Stage::Over(_, nmse) => *nmse,
        }
    }

    /// The student as it stands counts, if it is the best since the start.
    pub(crate) fn keep(&mut self, nmse: f64) {
        if self.base.as_ref().is_none_or(|base| nmse < base.nmse) {
            self.base = Some(Found { nmse, student: self.student.clone() });
        }
    }

    /// Whether it can be one of students of this form, and so many examples of so many tokens that descent sees.
    fn fits(&self, form: &Form, (examples, k): (usize, usize)) -> bool {
        let stage = match &self.stage {
            Stage::Descend(descent) => {
                let (adam, student) = descent.as_ref();
                student.form == *form && student.values.len() == form.len() && adam.fits(form, examples)
            }
            Stage::Relax(relaxed) => {
                let (newton, student) = relaxed.as_ref();
                let expected = is_whole(&self.student, form).then(|| relax(&self.student, k)).flatten();
                expected.is_some_and(|expected| is_whole(student, &expected.form)) && newton.fits(&student.form)
            }
            Stage::Refine(newton) => newton.fits(form),
            Stage::Over(_, nmse) => !nmse.is_nan(),
        };
        let students = is_whole(&self.student, form) && self.base.as_ref().is_none_or(|base| is_whole(&base.student, form));
        stage && students && self.idle.fits(form) && self.readings.fits(form)
    }
}

/// Share of unexplained variance that a refinement has come to.
pub(crate) fn last(newton: &Newton) -> f64 {
    newton.history.last().copied().unwrap_or(f64::INFINITY)
}

fn is_whole(student: &Student<f64>, form: &Form) -> bool {
    student.form == *form && student.values.len() == form.len()
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// All that are being searched.
    pub chains: Vec<Chain>,
    /// Starts so far.
    pub starts: usize,
    /// Refinements that are over.
    pub refined: usize,
    /// The best of the starts that are over.
    pub best: Option<Found>,
    /// Where those ended.
    pub ends: Vec<f64>,
    /// The end of the search, and what refines its result on all examples.
    pub end: Option<(End, Newton)>,
    /// Whether that is over too.
    pub done: bool,
}

impl State {
    /// With one chain, at its beginning.
    pub(crate) fn new(first: Chain) -> Self {
        Self { chains: vec![first], starts: 1, refined: 0, best: None, ends: Vec::new(), end: None, done: false }
    }

    /// Whether it can be one of a search for students of this form, with so many examples of so many tokens that descent sees and at most so many chains.
    pub(crate) fn fits(&self, form: &Form, examples: (usize, usize), crowd: usize) -> bool {
        let chains = !self.chains.is_empty() && self.chains.len() <= crowd && self.chains.iter().all(|c| c.fits(form, examples));
        let best = self.best.as_ref().is_none_or(|best| is_whole(&best.student, form));
        let ended = self.end.as_ref().is_none_or(|(_, newton)| newton.fits(form) && self.best.is_some());
        let of_chains = self.chains.iter().flat_map(|c| [c.start, c.redraws, c.descents]);
        let counts = [self.starts, self.refined].into_iter().chain(of_chains).all(|count| count < 1 << 32);
        chains && best && ended && counts
    }

    /// The best student so far, and the share of the variance that it leaves unexplained.
    pub(crate) fn best(&self) -> Option<(f64, &Student<f64>)> {
        if self.end.is_some() {
            return self.best.as_ref().map(Found::with_error);
        }
        let refined = self.chains.iter().filter_map(|chain| match &chain.stage {
            Stage::Refine(newton) => newton.history.last().map(|nmse| (*nmse, &chain.student)),
            Stage::Descend(_) | Stage::Relax(_) | Stage::Over(..) => None,
        });
        let bases = self.chains.iter().filter_map(|chain| chain.base.as_ref());
        bases.chain(&self.best).map(Found::with_error).chain(refined).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Share of unexplained variance of what goes on: the best chain's.
    pub(crate) fn nmse(&self) -> f64 {
        match &self.end {
            Some((_, newton)) => last(newton),
            None => self.chains.iter().map(Chain::nmse).fold(f64::INFINITY, f64::min),
        }
    }

    /// Whether a round is over: a chain has found what nothing is left of, or all have ended.
    pub(crate) fn round_is_over(&self) -> bool {
        let exact = |chain: &Chain| matches!(chain.stage, Stage::Over(Stop::Goal, _));
        self.chains.iter().any(exact) || self.chains.iter().all(|chain| matches!(chain.stage, Stage::Over(..)))
    }
}
