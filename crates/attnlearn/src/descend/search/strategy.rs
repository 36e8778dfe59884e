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
//! Small students are searched by a crowd of [`Chain`]s, one at first and twice as many after every round in which none succeeded: threads share
//! them. Large students have one chain, whose every product is shared instead; until the search is over their outputs are balanced (`balance`).
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
//!
//! A [`Run`] goes on in small steps, and between two of them its [`State`] is all there is to know: to be kept, and continued bit for bit.

use crate::descend::optimise::adam::Adam;
use crate::descend::optimise::levenberg::Stop;
use crate::descend::optimise::newton::{Newton, NewtonSettings, Seen};
use crate::descend::pairs::extract::extract;
use crate::descend::pairs::relax::relax;
use crate::descend::search::plan::{NORMS, Plan, StrategySettings, is_plain, most_sequences};
use crate::descend::search::redundant::{Redundant, cheapest};
use crate::descend::sharp::{self, Readings};
use crate::descend::units::balance::Balance;
use crate::descend::units::whitening::Whitening;
use crate::engine::batch::Batch;
use crate::engine::normal::is_small;
use crate::engine::student::{Form, Student};
use crate::{Error, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
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

/// Chains of a crowd, at most.
const CROWD: usize = 16;

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
    descents: usize,
    /// The best since.
    pub base: Option<Found>,
    idle: Redundant,
    readings: Readings,
    student: Student<f64>,
    rng: ChaCha8Rng,
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

/// A search for the student of one form.
pub struct Run<'a> {
    form: Form,
    examples: &'a Batch<f64>,
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
    variance: f64,
    plan: Plan,
    settings: StrategySettings,
    /// Where it stands.
    pub state: State,
}

impl<'a> Run<'a> {
    /// At the beginning; `examples` are in the units of a [`Whitening`], `plain` leads to its principal ones.
    pub fn new(examples: &'a Batch<f64>, plain: Option<Whitening>, form: Form, settings: StrategySettings) -> Result<Self> {
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
        let (single, refined) = (OnceLock::new(), OnceLock::new());
        let plain = plain.filter(|_| !plan.large).map(|whitening| {
            let seen = whitening.enter_single(refine);
            (whitening, seen)
        });
        let state = State { chains: Vec::new(), starts: 0, refined: 0, best: None, ends: Vec::new(), end: None, done: false };
        let mut run = Self { form, examples, balanced, some, single, refined, plain, variance, plan, settings, state };
        let first = run.start()?;
        run.state.chains.push(first);
        Ok(run)
    }

    /// From where another left off; `None` if the state is not one of this form and these examples.
    pub fn resume(
        examples: &'a Batch<f64>,
        plain: Option<Whitening>,
        form: Form,
        settings: StrategySettings,
        state: State,
    ) -> Result<Option<Self>> {
        let mut run = Self::new(examples, plain, form.clone(), settings)?;
        let whole = |student: &Student<f64>| student.form == form && student.values.len() == form.len();
        let found = |found: &Option<Found>| found.as_ref().is_none_or(|found| whole(&found.student));
        let chain = |chain: &Chain| {
            let stage = match &chain.stage {
                Stage::Descend(descent) => {
                    let (adam, student) = descent.as_ref();
                    let right = student.form == form && student.values.len() == form.len();
                    right && adam.fits(&form, run.descended_on().len())
                }
                Stage::Relax(relaxed) => {
                    let (newton, student) = relaxed.as_ref();
                    let expected = relax(&chain.student, examples.shape.k).map(|relaxed| relaxed.form);
                    newton.fits(&student.form)
                        && student.values.len() == student.form.len()
                        && expected.as_ref() == Some(&student.form)
                }
                Stage::Refine(newton) => newton.fits(&form),
                Stage::Over(_, nmse) => !nmse.is_nan(),
            };
            stage && chain.idle.fits(&form) && chain.readings.fits(&form) && whole(&chain.student) && found(&chain.base)
        };
        let ended = state.end.as_ref().is_none_or(|(_, newton)| newton.fits(&form) && state.best.is_some());
        let counts =
            [state.starts, state.refined].into_iter().chain(state.chains.iter().flat_map(|c| [c.start, c.redraws, c.descents]));
        let crowd = if run.plan.large { 1 } else { CROWD };
        let counted = counts.max().is_none_or(|count| count < 1 << 32) && state.chains.len() <= crowd;
        if state.chains.is_empty() || !counted || !ended || !found(&state.best) || !state.chains.iter().all(chain) {
            return Ok(None);
        }
        run.state = state;
        if run.state.end.is_some() {
            run.release();
        }
        Ok(Some(run))
    }

    /// All examples, as the search sees them.
    fn all(&self) -> &Batch<f64> {
        self.balanced.as_ref().map_or(self.examples, |(_, balanced)| balanced)
    }

    /// What is refined by.
    fn refine(&self) -> &Batch<f64> {
        self.some.as_ref().unwrap_or(self.all())
    }

    /// The same with what goes with it. Where descent sees no others, it shares them.
    fn seen(&self) -> Seen<'_> {
        let others = self.plan.large && self.some.is_some();
        Seen { double: self.refine(), single: if others { &self.refined } else { &self.single }, variance: self.variance }
    }

    /// What descent sees, in double precision.
    fn descended_on(&self) -> &Batch<f64> {
        if self.plan.large { self.all() } else { self.refine() }
    }

    /// What the descent of a start sees.
    fn seen_by(&self, start: usize) -> &Batch<f32> {
        match self.plain_of(start) {
            Some((_, seen)) => seen,
            None => self.single.get_or_init(|| self.descended_on().cast()),
        }
    }

    /// Lets go of all copies of the examples: nothing is searched any more.
    fn release(&mut self) {
        (self.balanced, self.some, self.plain) = (None, None, None);
        (self.single, self.refined) = (OnceLock::new(), OnceLock::new());
    }

    /// A new start.
    fn start(&mut self) -> Result<Chain> {
        let start = self.state.starts;
        self.state.starts += 1;
        let mut rng = ChaCha8Rng::seed_from_u64(self.settings.seed);
        rng.set_stream(start as u64);
        let student = Student::random(self.form.clone(), NORMS[start % NORMS.len()], &mut rng)?;
        let stage = self.first_stage(&student, (start, 0));
        Ok(Chain {
            stage,
            start,
            redraws: 0,
            descents: 0,
            base: None,
            idle: Redundant::default(),
            readings: Readings::default(),
            student,
            rng,
        })
    }

    /// A descent.
    fn first_stage(&self, student: &Student<f64>, (start, redraws): (usize, usize)) -> Stage {
        let seed = self.settings.seed.wrapping_add((start * 1000 + redraws) as u64);
        let values = student.values.iter().map(|v| *v as f32).collect();
        Stage::Descend(Box::new((Adam::new(self.form.len(), seed), Student { form: self.form.clone(), values })))
    }

    /// The units in which a start descends, if they are the examples' own, and what it sees.
    fn plain_of(&self, start: usize) -> Option<&(Whitening, Batch<f32>)> {
        self.plain.as_ref().filter(|_| is_plain(start))
    }

    /// What a descent has come to.
    fn descended(&self, student: &Student<f32>, start: usize) -> Student<f64> {
        let student = Student { form: self.form.clone(), values: student.values.iter().map(|v| f64::from(*v)).collect() };
        match self.plain_of(start) {
            Some((whitening, _)) => whitening.leave(&student),
            None => student,
        }
    }

    /// The best student so far, and the share of the variance that it leaves unexplained; of balanced outputs until the search is over.
    fn best(&self) -> Option<(f64, &Student<f64>)> {
        if self.state.end.is_some() {
            return self.state.best.as_ref().map(Found::with_error);
        }
        let refined = self.state.chains.iter().filter_map(|chain| match &chain.stage {
            Stage::Refine(newton) => newton.history.last().map(|nmse| (*nmse, &chain.student)),
            Stage::Descend(_) | Stage::Relax(_) | Stage::Over(..) => None,
        });
        let bases = self.state.chains.iter().filter_map(|chain| chain.base.as_ref());
        bases.chain(&self.state.best).map(Found::with_error).chain(refined).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Share of the variance that it leaves unexplained, of balanced outputs until the search is over.
    pub fn best_nmse(&self) -> Option<f64> {
        self.best().map(|(nmse, _)| nmse)
    }

    /// A student of the search as one of the examples.
    fn plain(&self, student: Student<f64>) -> Student<f64> {
        match &self.balanced {
            Some((balance, _)) => balance.leave(student),
            None => student,
        }
    }

    /// The best student, or that of the first descent as it stands.
    pub fn student(&self) -> Result<Student<f64>> {
        if let Some((_, student)) = self.best() {
            let student = student.clone();
            return Ok(if self.state.end.is_some() { student } else { self.plain(student) });
        }
        let chain = self.state.chains.first().ok_or_else(|| Error::input("run", "it has not begun", "begin it"))?;
        let mut student = chain.student.clone();
        if let Stage::Descend(descent) = &chain.stage {
            student = self.descended(&descent.1, chain.start);
        }
        self.refine().refit(&self.form, &mut student.values)?;
        Ok(self.plain(student))
    }

    /// Heads whose removal would cost more than a thousandth of what the dearest costs: a head that shadows another is worth next to nothing.
    pub fn heads_in_use(&self) -> Result<usize> {
        let mut student = self.student()?;
        let elimination = self.refine().refit(&self.form, &mut student.values)?;
        let costs = elimination.removal_costs(&self.form, &student.values);
        let dearest = costs.iter().copied().fold(0.0, f64::max);
        Ok(costs.iter().filter(|cost| **cost > IDLE * dearest).count())
    }

    /// Share of unexplained variance of what goes on: the best chain's.
    pub fn nmse(&self) -> f64 {
        if let Some((_, newton)) = &self.state.end {
            return newton.history.last().copied().unwrap_or(f64::INFINITY);
        }
        let of = |chain: &Chain| match &chain.stage {
            Stage::Descend(descent) => descent.0.nmse,
            Stage::Relax(relaxed) => relaxed.0.history.last().copied().unwrap_or(f64::INFINITY),
            Stage::Refine(newton) => newton.history.last().copied().unwrap_or(f64::INFINITY),
            Stage::Over(_, nmse) => *nmse,
        };
        self.state.chains.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    /// Steps of the descent that goes on, or would.
    pub fn descent_steps(&self) -> usize {
        self.state.chains.first().map_or(0, |chain| self.plan.descent(chain.start, chain.redraws, chain.descents).steps)
    }

    /// Refinements allowed.
    pub fn most(&self) -> usize {
        self.plan.most
    }

    /// Goes on for a while: some steps of Adam, some of Gauss–Newton. How it ended, if it has. `stop` is asked often; what it stops is an
    /// [`Error::Interrupted`] and leaves the state as it was before the call.
    pub fn advance(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<End>> {
        if self.state.end.is_some() {
            return self.finish_up(stop);
        }
        // What is interrupted must not show: a chain is moved on whole or not at all.
        let mut chains = self.state.chains.clone();
        let run: &Self = self;
        let advanced: Vec<Result<()>> = match chains.as_mut_slice() {
            [only] => vec![run.advance_chain(only, stop)],
            many => many.par_iter_mut().map(|chain| run.advance_chain(chain, stop)).collect(),
        };
        for (chain, advanced) in chains.iter_mut().zip(advanced) {
            match advanced {
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                // Numbers that are not finite any more: this chain has come to nothing.
                Err(_) => chain.stage = Stage::Over(Stop::Stalled, f64::INFINITY),
                Ok(()) => {}
            }
        }
        self.state.chains = chains;
        let over = |chain: &Chain| matches!(chain.stage, Stage::Over(..));
        let exact = |chain: &Chain| matches!(chain.stage, Stage::Over(Stop::Goal, _));
        if self.state.chains.iter().any(exact) || self.state.chains.iter().all(over) {
            self.judge()?;
        }
        Ok(self.state.end.as_ref().filter(|_| self.state.done).map(|(end, _)| *end))
    }

    /// Some steps of one chain.
    fn advance_chain(&self, chain: &mut Chain, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
        match &mut chain.stage {
            Stage::Over(..) => {}
            Stage::Descend(descent) => {
                let (adam, student) = descent.as_mut();
                let settings = self.plan.descent(chain.start, chain.redraws, chain.descents);
                let until = adam.step + if self.plan.large { STEPS } else { MANY_STEPS };
                let mut stopped = false;
                let over = adam.run(student, self.seen_by(chain.start), &settings, &mut |adam| {
                    stopped = stop();
                    stopped || adam.step >= until
                })?;
                if stopped {
                    return Err(Error::Interrupted);
                }
                if over {
                    chain.student = self.descended(student, chain.start);
                    chain.stage = if self.plan.goes_on(adam.nmse, chain.descents) {
                        chain.descents += 1;
                        self.first_stage(&chain.student, (chain.start, chain.redraws))
                    } else {
                        match relax(&chain.student, self.examples.shape.k) {
                            Some(relaxed) => Stage::Relax(Box::new((Newton::new(&self.plan.relaxed), relaxed))),
                            None => Stage::Refine(Newton::new(&self.plan.newton)),
                        }
                    };
                }
            }
            Stage::Relax(relaxed) => {
                let (newton, student) = relaxed.as_mut();
                let why = newton.step(student, self.seen(), &self.plan.relaxed, &[], &|_| stop())?;
                if why.is_some() {
                    let rotation = self.form.scores.rotation.as_ref();
                    if let Some(mut found) = rotation.and_then(|rotation| extract(student, rotation)) {
                        self.refine().refit(&self.form, &mut found.values)?;
                        // What free scores have come to nothing with is no reason to lose what descent has found.
                        self.refine().refit(&self.form, &mut chain.student.values)?;
                        let error = |student: &Student<f64>| self.refine().error(&self.form, &student.values);
                        if error(&found) < error(&chain.student) {
                            chain.student = found;
                        }
                    }
                    chain.stage = Stage::Refine(Newton::new(&self.plan.newton));
                }
            }
            Stage::Refine(newton) => {
                if newton.history.is_empty() {
                    sharp::take_apart(&mut chain.student, self.refine(), stop)?;
                }
                for _ in 0..if is_small(&self.form) { STEPS } else { 1 } {
                    let student = &mut chain.student;
                    let mut fixed = chain.idle.places(student);
                    if self.plan.large {
                        // Others move first: together, conjugate gradients would spend their products on what logits show better.
                        fixed.extend(chain.readings.read(student, self.all(), stop)?);
                    }
                    let why = newton.step(student, self.seen(), &self.plan.newton, &fixed, &|_| stop())?;
                    if why.is_none() && newton.crawling() > 0 {
                        let nmse = newton.history.last().copied().unwrap_or(f64::INFINITY);
                        if chain.base.as_ref().is_none_or(|base| nmse < base.nmse) {
                            chain.base = Some(Found { nmse, student: student.clone() });
                        }
                        let drawn = chain.idle.roused();
                        if chain.idle.rouse(student, self.refine(), nmse * self.variance, &mut chain.rng)? {
                            chain.redraws += chain.idle.roused() - drawn;
                            *newton = Newton::new(&self.plan.newton);
                        }
                    }
                    if let Some(why) = why {
                        let nmse = newton.history.last().copied().unwrap_or(f64::INFINITY);
                        chain.stage = Stage::Over(why, nmse);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// What to do after a round.
    fn judge(&mut self) -> Result<()> {
        let mut exact = false;
        for chain in &mut self.state.chains {
            let Stage::Over(why, nmse) = chain.stage else { continue };
            self.state.refined += 1;
            exact |= why == Stop::Goal;
            if self.plan.large && chain.base.as_ref().is_some_and(|base| (nmse / base.nmse - 1.0).abs() <= SAME) {
                // Large students have no time for independent starts: a head drawn anew that changes nothing counts as one.
                self.state.ends.push(nmse);
            }
            if chain.base.as_ref().is_none_or(|base| nmse < base.nmse) {
                chain.base = Some(Found { nmse, student: chain.student.clone() });
            }
        }
        let bases = self.state.chains.iter().filter_map(|chain| chain.base.as_ref().map(|base| base.nmse));
        let ends: Vec<f64> = self.state.ends.iter().copied().chain(bases).collect();
        let least = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let same = if ends.len() <= FEW { SAME } else { SAME_OF_MANY };
        let agreeing = ends.iter().filter(|end| **end <= least * (1.0 + same)).count();
        let end = if exact {
            Some(End::Exact)
        } else if agreeing >= AGREEING && least < NOTHING_LEARNED {
            Some(End::Floor)
        } else if self.state.refined >= self.plan.most {
            Some(End::Tried)
        } else {
            None
        };
        let Some(end) = end else { return self.next_round() };
        self.state.best = self.best().map(|(nmse, student)| Found { nmse, student: self.plain(student.clone()) });
        let settings = &self.plan.newton;
        self.state.end = Some((end, Newton::new(&NewtonSettings { damping: FINAL_DAMPING, ..settings.clone() })));
        // What is exact on some of the examples is nearly always exact on all.
        let elsewhere = self.state.best.as_ref().map_or(Ok(0.0), |best| self.nmse_of(&best.student))?;
        self.state.done = end == End::Exact && elsewhere <= ELSEWHERE;
        self.release();
        Ok(())
    }

    /// Another head, or another start, for every chain; and more chains.
    fn next_round(&mut self) -> Result<()> {
        let mut chains = std::mem::take(&mut self.state.chains);
        for chain in &mut chains {
            match &chain.base {
                Some(base) if self.plan.large && chain.redraws < self.settings.redraws * self.form.heads => {
                    chain.student = base.student.clone();
                    chain.idle = Redundant::default();
                    chain.readings = Readings::default();
                    let elimination = self.refine().refit(&self.form, &mut chain.student.values)?;
                    let costs = elimination.removal_costs(&self.form, &chain.student.values);
                    let least = cheapest(&costs);
                    let norm = chain.student.norm_beside(least);
                    chain.student.draw_head(least, norm, &mut chain.rng);
                    chain.redraws += 1;
                    chain.descents = 0;
                    chain.stage = self.first_stage(&chain.student, (chain.start, chain.redraws));
                }
                _ => {
                    if let Some(base) = chain.base.take() {
                        self.state.ends.push(base.nmse);
                        if self.state.best.as_ref().is_none_or(|best| base.nmse < best.nmse) {
                            self.state.best = Some(base);
                        }
                    }
                    *chain = self.start()?;
                }
            }
        }
        let most = if self.plan.large { 1 } else { CROWD };
        for _ in chains.len()..(2 * chains.len()).min(most) {
            chains.push(self.start()?);
        }
        self.state.chains = chains;
        Ok(())
    }

    /// A step of Gauss–Newton on all examples, or as many as memory has passes for.
    fn finish_up(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<End>> {
        let (Some((end, newton)), Some(best)) = (&self.state.end, &self.state.best) else { return Ok(None) };
        let end = *end;
        if !self.state.done {
            let n = most_sequences(&self.form, self.examples.shape.k, self.settings.pass_numbers).min(self.examples.len());
            let some = (n < self.examples.len()).then(|| self.examples.select(&(0..n).collect::<Vec<_>>()));
            let (double, single) = (some.as_ref().unwrap_or(self.examples), OnceLock::new());
            let seen = Seen { double, single: &single, variance: double.variance()? };
            let (mut newton, mut student) = (newton.clone(), best.student.clone());
            let settings = NewtonSettings { steps: 12, ..self.plan.newton.clone() };
            let why = newton.step(&mut student, seen, &settings, &[], &|_| stop())?;
            let settled = matches!(newton.history.as_slice(), [.., before, now] if *now > (1.0 - SETTLED) * before);
            self.state.done = why.is_some() || settled;
            self.state.best = Some(Found { nmse: newton.history.last().copied().unwrap_or(best.nmse), student });
            self.state.end = Some((end, newton));
        }
        Ok(self.state.done.then_some(end))
    }

    /// Goes on to the end.
    pub fn finish(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<End> {
        loop {
            if let Some(end) = self.advance(stop)? {
                return Ok(end);
            }
        }
    }

    /// Share of unexplained variance of a student on all examples.
    pub fn nmse_of(&self, student: &Student<f64>) -> Result<f64> {
        Ok(self.examples.error(&self.form, &student.values) / self.examples.variance()?)
    }
}

/// Heads whose removal costs less than this share of what that of the dearest costs do nothing.
const IDLE: f64 = 1e-3;

/// Steps between two looks.
const STEPS: usize = 20;

/// Those of the descent of a small student.
const MANY_STEPS: usize = 200;

/// Gain of a step on all examples below which there is no other.
const SETTLED: f64 = 1e-6;

/// Share of unexplained variance on all examples up to which a student that is exact on some is exact.
const ELSEWHERE: f64 = 1e-18;

/// λ of the refinement on all examples: it begins near its end.
const FINAL_DAMPING: f64 = 1e-6;

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
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

    /// A refinement sees in single precision what it sees in double, with descent's copy where that is the same; when the search ends all copies go, and what
    /// it has found stays.
    #[test]
    fn copies_are_shared_and_go_when_the_search_ends() {
        let form = mixed_form(1);
        let (_, examples, _) = sharp_problem(form.clone(), 50, 1);
        let mut run = Run::new(&examples, None, form, StrategySettings { effort: 0.1, ..StrategySettings::default() }).unwrap();
        assert_eq!(run.seen_by(0), &run.refine().cast());
        assert!(std::ptr::eq(run.seen().single, &run.single));
        run.finish(&|| false).unwrap();
        assert!(run.balanced.is_none() && run.some.is_none() && run.plain.is_none());
        assert!(run.single.get().is_none() && run.refined.get().is_none());
        assert!(run.nmse_of(&run.student().unwrap()).unwrap() < 1.0);
    }
}
