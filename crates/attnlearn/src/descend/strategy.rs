//! From examples to a student, without choices.
//!
//! ```text
//! start:    random heads
//! descend:  large students only: Adam in single precision on small batches
//! refine:   Gauss–Newton in double precision
//! judge:    exact: done.  Stalled: the head whose removal costs least is drawn anew, and on; then another start; then the best so far.
//! ```
//!
//! What goes wrong is nearly always the same: two heads of the student share one of the teacher, and another of the teacher's has none. The refit of
//! the outputs shows which head is in the way without trying. Ends of different starts at one and the same error are taken for its floor: noise, or a
//! student that is too small.
//!
//! A [`Run`] goes on in small steps, and between two of them its [`State`] is all there is to know: to be kept, and continued bit for bit.

use super::adam::{Adam, AdamSettings};
use super::batch::Batch;
use super::newton::{Newton, NewtonSettings};
use super::student::{Form, Part, Student};
use super::varpro::Stop;
use crate::{Error, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How much to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrategySettings {
    /// Seed of starts and batches.
    pub seed: u64,
    /// Random starts at most (default 12).
    pub starts: usize,
    /// Heads drawn anew after a start, for each head there is (default 2).
    pub redraws: usize,
    /// Share of unexplained variance that counts as none (default 10⁻²²).
    pub goal: f64,
}

impl Default for StrategySettings {
    fn default() -> Self {
        Self { seed: 0, starts: 12, redraws: 2, goal: 1e-22 }
    }
}

/// Students with at most so many parameters beside `O` go to Gauss–Newton at once.
const SMALL: usize = 8192;

/// Starts that must end at the same error for it to be the floor.
const AGREEING: usize = 3;

/// What sizes decide.
#[derive(Clone, Debug)]
struct Plan {
    /// After a start and after a head was drawn anew.
    descents: Option<[AdamSettings; 2]>,
    newton: NewtonSettings,
    /// Sequences for Gauss–Newton.
    refine: usize,
}

impl Plan {
    fn new(form: &Form, examples: &Batch<f64>, settings: &StrategySettings) -> Self {
        let k = examples.shape.k;
        let pooled = form.heads * form.s();
        let batch = ((10 * pooled).clamp(256, 4096) / k).max(1);
        let adam = |steps: usize| AdamSettings { steps, batch, goal: 1e-9, ..AdamSettings::default() };
        let large = form.range(Part::O).start > SMALL;
        // Five times as many numbers as unknowns, and enough rows for the refit.
        let rows = (5 * form.len() / form.d_out).max(5 * pooled).max(2000);
        Self {
            descents: large.then(|| [adam(1500), adam(600)]),
            newton: NewtonSettings { goal: settings.goal, steps: if large { 25 } else { 80 }, ..NewtonSettings::default() },
            refine: rows.div_ceil(k).min(examples.len()),
        }
    }
}

/// What goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// Adam.
    Descend(Box<(Adam<f32>, Student<f32>)>),
    /// Gauss–Newton.
    Refine(Newton),
    /// Nothing more.
    Done(End),
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
}

/// A student and its share of unexplained variance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// On the examples of Gauss–Newton.
    pub nmse: f64,
    /// The student.
    pub student: Student<f64>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// What goes on.
    pub stage: Stage,
    /// Starts so far, this one included.
    pub starts: usize,
    /// Heads drawn anew since the start.
    pub redraws: usize,
    /// The best of this start.
    pub base: Option<Found>,
    /// The best of the starts before.
    pub best: Option<Found>,
    /// Where each start before ended.
    pub ends: Vec<f64>,
    student: Student<f64>,
    rng: ChaCha8Rng,
}

/// A search for the student of one form.
pub struct Run<'a> {
    form: Form,
    examples: &'a Batch<f64>,
    single: Option<Batch<f32>>,
    refine: Batch<f64>,
    variance: f64,
    plan: Plan,
    settings: StrategySettings,
    /// Where it stands.
    pub state: State,
}

impl<'a> Run<'a> {
    /// At the beginning; `examples` are in the units of a [`Frame`](super::Frame).
    pub fn new(examples: &'a Batch<f64>, form: Form, settings: StrategySettings) -> Result<Self> {
        examples.check(&form)?;
        examples.variance()?;
        let plan = Plan::new(&form, examples, &settings);
        let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
        let student = Student::random(form, Form::NORM, &mut rng)?;
        let refine = examples.select(&(0..plan.refine).collect::<Vec<_>>());
        let variance = refine.variance()?;
        let state = State {
            stage: Stage::Done(End::Tried),
            starts: 1,
            redraws: 0,
            base: None,
            best: None,
            ends: Vec::new(),
            student,
            rng,
        };
        let single = plan.descents.is_some().then(|| examples.cast());
        let mut run = Self { form, examples, single, refine, variance, plan, settings, state };
        run.state.stage = run.first_stage();
        Ok(run)
    }

    /// From where another left off; `None` if the state is not one of this form and these examples.
    pub fn resume(examples: &'a Batch<f64>, form: Form, settings: StrategySettings, state: State) -> Result<Option<Self>> {
        let mut run = Self::new(examples, form, settings)?;
        let whole = |student: &Student<f64>| student.form == form && student.values.len() == form.len();
        let stage = match &state.stage {
            Stage::Descend(descent) => {
                let (adam, student) = descent.as_ref();
                let right = student.form == form && student.values.len() == form.len();
                run.plan.descents.is_some() && right && adam.fits(&form, examples.len())
            }
            Stage::Refine(_) | Stage::Done(_) => true,
        };
        let found = [&state.base, &state.best];
        if !(stage && whole(&state.student) && found.into_iter().flatten().all(|found| whole(&found.student))) {
            return Ok(None);
        }
        run.state = state;
        Ok(Some(run))
    }

    /// Adam for large students, Gauss–Newton for small ones.
    fn first_stage(&self) -> Stage {
        if self.plan.descents.is_none() {
            return Stage::Refine(Newton::new(&self.plan.newton));
        }
        let seed = self.settings.seed.wrapping_add((self.state.starts * 1000 + self.state.redraws) as u64);
        let values = self.state.student.values.iter().map(|v| *v as f32).collect();
        Stage::Descend(Box::new((Adam::new(self.form.len(), seed), Student { form: self.form, values })))
    }

    /// The best student so far.
    pub fn best(&self) -> Option<&Found> {
        [&self.state.base, &self.state.best].into_iter().flatten().min_by(|a, b| a.nmse.total_cmp(&b.nmse))
    }

    /// Share of unexplained variance of what goes on.
    pub fn nmse(&self) -> f64 {
        match &self.state.stage {
            Stage::Descend(descent) => descent.0.nmse,
            Stage::Refine(newton) => newton.history.last().copied().unwrap_or(f64::INFINITY),
            Stage::Done(_) => self.best().map_or(f64::INFINITY, |found| found.nmse),
        }
    }

    /// Goes on for a while: some steps of Adam, one of Gauss–Newton. How it ended, if it has. `stop` is asked often; what it stops is an
    /// [`Error::Interrupted`] and leaves the state as it was at the last step.
    pub fn advance(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<End>> {
        match &mut self.state.stage {
            Stage::Done(end) => return Ok(Some(*end)),
            Stage::Descend(descent) => {
                let (adam, student) = descent.as_mut();
                let (Some(settings), Some(examples)) = (&self.plan.descents, &self.single) else {
                    return Err(Error::input("run", "it descends without a plan", "begin a new one"));
                };
                let settings = &settings[usize::from(self.state.redraws > 0)];
                let until = adam.step + STEPS;
                let mut stopped = false;
                let over = adam.run(student, examples, settings, &mut |adam| {
                    stopped = stop();
                    stopped || adam.step >= until
                })?;
                if stopped {
                    return Err(Error::Interrupted);
                }
                if over {
                    self.state.student.values = student.values.iter().map(|v| f64::from(*v)).collect();
                    self.state.stage = Stage::Refine(Newton::new(&self.plan.newton));
                }
            }
            Stage::Refine(newton) => {
                let student = &mut self.state.student;
                let why = newton.step(student, &self.refine, self.variance, &self.plan.newton, &|_| stop())?;
                if let Some(why) = why {
                    let nmse = newton.history.last().copied().unwrap_or(f64::INFINITY);
                    self.judge(why, nmse)?;
                }
            }
        }
        Ok(match self.state.stage {
            Stage::Done(end) => Some(end),
            _ => None,
        })
    }

    /// What to do after Gauss–Newton has ended.
    fn judge(&mut self, why: Stop, nmse: f64) -> Result<()> {
        let state = &mut self.state;
        if state.base.as_ref().is_none_or(|base| nmse < base.nmse) {
            state.base = Some(Found { nmse, student: state.student.clone() });
        }
        if why == Stop::Goal {
            state.stage = Stage::Done(End::Exact);
            return Ok(());
        }
        if let Some(base) = state.base.as_ref().filter(|_| state.redraws < self.settings.redraws * self.form.heads) {
            state.student = base.student.clone();
            let elimination = self.refine.refit(&self.form, &mut state.student.values)?;
            let costs = elimination.removal_costs(&self.form, &state.student.values);
            let least = (0..costs.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0);
            state.student.draw_head(least, Form::NORM, &mut state.rng);
            state.redraws += 1;
            self.state.stage = self.first_stage();
            return Ok(());
        }
        if let Some(base) = state.base.take() {
            state.ends.push(base.nmse);
            if state.best.as_ref().is_none_or(|best| base.nmse < best.nmse) {
                state.best = Some(base);
            }
        }
        let least = state.ends.iter().copied().fold(f64::INFINITY, f64::min);
        if state.ends.iter().filter(|end| **end <= least * 1.001).count() >= AGREEING {
            state.stage = Stage::Done(End::Floor);
        } else if state.starts >= self.settings.starts {
            state.stage = Stage::Done(End::Tried);
        } else {
            state.student = Student::random(self.form, Form::NORM, &mut state.rng)?;
            (state.starts, state.redraws) = (state.starts + 1, 0);
            self.state.stage = self.first_stage();
        }
        Ok(())
    }

    /// Goes on to the end.
    pub fn finish(&mut self, stop: &dyn Fn() -> bool) -> Result<End> {
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

/// Steps of Adam between two looks.
const STEPS: usize = 20;
