//! Gauss–Newton by variable projection: `O` and the bias are the best for the rest at every step.
//!
//! ```text
//! (JᵀP⊥J + λM) δ = −Jᵀ(F(X) − Y)
//! ```
//!
//! `λ` is Levenberg's and Marquardt's ([`levenberg`](crate::descend::optimise::levenberg)). There are three ways of solving:
//!
//! - [`Dense`]: for small students the matrix is written out (`normal`), and `M` is the mean of its diagonal in every block.
//! - [`Products`]: for others it is never formed: `δ` comes from conjugate gradients in the [`metric`](crate::engine::metric) `M`, more exactly the
//!   nearer the end: to `√NMSE` of the right-hand side, so that the error is about squared by every step; far from the end a step is bent, and few
//!   products have to do. They are in single precision as long as that does: the right-hand side is always in double.
//! - The same in double precision.
//!
//! Where products come to no end, and the matrix is not too large, it is written out after all. Factors `A Bᵀ` can be turned into one another without any
//! change to the layer, so `JᵀJ` is singular; conjugate gradients never leave `M⁻¹` times its range.

use crate::descend::optimise::conjugate::Limits;
use crate::descend::optimise::dense::Dense;
use crate::descend::optimise::levenberg::{Crawl, Fall, Levenberg, LevenbergSettings, Stop, Taken};
use crate::descend::optimise::products::Products;
use crate::engine::batch::Batch;
use crate::engine::eliminate::Elimination;
use crate::engine::linearised::Linearised;
use crate::engine::metric::Metric;
use crate::engine::normal::{fits_memory, is_small, normal_matrix};
use crate::engine::student::{Form, PARTS, Part, Student};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// When to stop, and how to step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewtonSettings {
    /// Most steps (default 40).
    pub steps: usize,
    /// Most products with `JᵀP⊥J` for one step (default 300).
    pub products: usize,
    /// Stop when the share of unexplained variance is below this (default 10⁻²⁶).
    pub goal: f64,
    /// Share of the goal below which there is no step beyond it (default 10⁻³): just below the goal one more step, where the matrix is written out, makes
    /// up for an ill condition.
    pub fine: f64,
    /// Stop when it falls by less than this share in three steps running (default 10⁻²).
    pub progress: f64,
    /// First λ (default 10⁻²).
    pub damping: f64,
    /// Largest λ (default 10⁶).
    pub most_damped: f64,
    /// Share of unexplained variance below which steps should be large (default 10⁻⁵).
    pub near: f64,
    /// What a step should leave of the error there; others crawl, and the next is solved for in another way (default 0.1).
    pub quadratic: f64,
    /// Crawling steps in a row after which a small student had better start again (default 8: those that come to an end have at most six).
    pub crawls: usize,
    /// Least and largest relative residual of a step (defaults 10⁻⁹ and 0.1).
    pub finest: f64,
    /// See [`Self::finest`].
    pub coarsest: f64,
    /// Relative residual below which products in single precision lead nowhere (default 10⁻⁴).
    pub single: f64,
    /// Failures of a step after which single precision is to blame (default 3).
    pub single_failures: usize,
    /// Share of unexplained variance above which steps are bent more than a few products show (default 10⁻⁷). So few have to do where there is no other way.
    pub far: f64,
    /// These products (default 100).
    pub few: usize,
}

impl Default for NewtonSettings {
    fn default() -> Self {
        Self {
            steps: 40,
            products: 300,
            goal: 1e-26,
            fine: 1e-3,
            progress: 1e-2,
            damping: 1e-2,
            most_damped: 1e6,
            near: 1e-5,
            quadratic: 0.1,
            crawls: 8,
            finest: 1e-9,
            coarsest: 0.1,
            single: 1e-4,
            single_failures: 3,
            far: 1e-7,
            few: 100,
        }
    }
}

/// How a step is solved for, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// Conjugate gradients, products in single precision.
    Single,
    /// The same in double precision.
    Double,
    /// The matrix.
    Dense,
}

impl Way {
    /// The cheapest that does.
    fn first(form: &Form) -> Self {
        if is_small(form) && fits_memory(form) { Self::Dense } else { Self::Single }
    }

    /// The next one, if there is one; `finer` if more digits may help.
    fn next(self, form: &Form, finer: bool) -> Option<Self> {
        match self {
            Self::Single if finer => Some(Self::Double),
            Self::Single | Self::Double if fits_memory(form) => Some(Self::Dense),
            _ => None,
        }
    }
}

/// The examples of a refinement.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// In double precision.
    pub double: &'a Batch<f64>,
    /// The same in single precision: made by the first step that needs it, and read by all others.
    pub single: &'a OnceLock<Batch<f32>>,
    /// `Σ ‖Y − mean‖²`.
    pub variance: f64,
}

/// Where a refinement stands: with the student, everything that the next step depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Newton {
    /// Share of unexplained variance before the first step and after every step.
    pub history: Vec<f64>,
    /// Products with `JᵀP⊥J` in all.
    pub products: usize,
    levenberg: Levenberg,
    way: Option<Way>,
    /// Whether the goal was reached, and a step taken beyond.
    beyond: bool,
}

impl Newton {
    /// At the beginning.
    pub fn new(settings: &NewtonSettings) -> Self {
        Self { history: Vec::new(), products: 0, levenberg: Levenberg::new(settings.damping), way: None, beyond: false }
    }

    /// Steps to the end; `stop` is asked at every product, with the share of unexplained variance.
    pub fn run(
        &mut self,
        student: &mut Student<f64>,
        examples: &Batch<f64>,
        settings: &NewtonSettings,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Stop> {
        examples.check(&student.form)?;
        let seen = Seen { double: examples, single: &OnceLock::new(), variance: examples.variance()? };
        loop {
            if let Some(why) = self.step(student, seen, settings, &[], stop)? {
                return Ok(why);
            }
        }
    }

    /// One step, which leaves the numbers at `fixed` as they are, or why there is none.
    pub fn step(
        &mut self,
        student: &mut Student<f64>,
        seen: Seen<'_>,
        settings: &NewtonSettings,
        fixed: &[usize],
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Stop>> {
        // The outputs are eliminated.
        let form = student.form.clone();
        let Seen { double: examples, variance, .. } = seen;
        let elimination = examples.refit(&form, &mut student.values)?;
        let mut linear = Linearised::new(examples, form.clone(), &student.values);
        let (error, gradient) = linear.gradient();
        let nmse = error / variance;
        if self.history.is_empty() {
            self.history.push(nmse);
        }
        if !nmse.is_finite() {
            return Err(Error::input("descent", "the error is not finite any more", "look for huge inputs or outputs"));
        }
        // Is there a step to take?
        let damping = self.damping(&form, nmse, variance, settings);
        let end = self.levenberg.end(error, self.history.len() - 1, &damping);
        if end != Some(Stop::Goal) {
            self.beyond = nmse <= settings.goal;
        }
        if end.is_some() {
            return Ok(end);
        }
        // It is solved for in one of three ways, and damped until it leads downhill.
        let way = *self.way.get_or_insert(Way::first(&form));
        let stopped = || stop(nmse);
        let limits = limits(way, &form, nmse, settings, &stopped);
        let at = At { student, seen, elimination, linear, error, right: downhill(&form, &gradient, fixed), fixed, limits };
        let Some(taken) = self.take(way, at, &damping)? else {
            // The next way begins where this one failed.
            let goes_on = self.change(way, &form, way == Way::Single);
            return Ok(match self.beyond {
                true => Some(Stop::Goal),
                false => (!goes_on).then_some(Stop::Stalled),
            });
        };
        student.values = taken.point;
        self.history.push(taken.error / variance);
        if self.crawling() > 0 || !taken.exact && !few_products_do(&form, nmse, settings) {
            self.change(way, &form, taken.exact);
        }
        Ok(None)
    }

    /// A step that leads downhill, if there is one.
    fn take(&mut self, way: Way, at: At<'_>, damping: &LevenbergSettings) -> Result<Option<Taken<Vec<f64>>>> {
        let At { student, seen, elimination, mut linear, error, right, fixed, limits } = at;
        let (form, elimination, products) = (&student.form, &elimination, &mut self.products);
        let examples = seen.double;
        let moved = |step: &[f64]| moved(student, examples, step);
        match way {
            Way::Dense => {
                let matrix = normal_matrix(examples, form, &linear, elimination, limits.stop)?;
                let scale = block_means(form, |i| matrix[(i, i)]);
                let mut solver = Dense { right: right[..scale.len()].to_vec(), matrix, scale, stop: limits.stop };
                solver.fix(fixed);
                self.levenberg.step(error, &mut solver, moved, damping)
            }
            Way::Double => {
                let metric = Metric::at(examples, form, &mut linear, elimination);
                let mut solver = Products { linear, elimination, metric, right, fixed, limits, products };
                self.levenberg.step(error, &mut solver, moved, damping)
            }
            Way::Single => {
                drop(linear);
                let single = seen.single.get_or_init(|| examples.cast());
                let values: Vec<f32> = student.values.iter().map(|v| *v as f32).collect();
                let mut linear = Linearised::new(single, form.clone(), &values);
                let metric = Metric::at(single, form, &mut linear, elimination);
                let mut solver = Products { linear, elimination, metric, right, fixed, limits, products };
                self.levenberg.step(error, &mut solver, moved, damping)
            }
        }
    }

    /// How the next step is damped, from a point of this error, and when there is none.
    fn damping(&self, form: &Form, nmse: f64, variance: f64, settings: &NewtonSettings) -> LevenbergSettings {
        // Without another way steps must not be too cautious.
        let only_way = !fits_memory(form);
        // One step beyond the goal.
        let goal = if self.way == Some(Way::Dense) && !self.beyond { settings.goal * settings.fine } else { settings.goal };
        let patience = if self.way == Some(Way::Dense) { settings.crawls } else { usize::MAX };
        let single = self.way.unwrap_or(Way::first(form)) == Way::Single;
        LevenbergSettings {
            steps: settings.steps,
            goal: goal * variance,
            progress: settings.progress,
            crawl: Some(Crawl { below: settings.near * variance, leaves: settings.quadratic, patience }),
            // The distance says how much to damp; later steps have learnt it from one another.
            begin: if only_way || self.history.len() == 1 { nmse.sqrt() } else { f64::INFINITY },
            least_risen: 1e-12,
            largest: settings.most_damped,
            fall: if only_way { Fall::Left(1e-3, 0.5) } else { Fall::RootOfLeft(1e-3, 0.2) },
            failures: if single { settings.single_failures } else { usize::MAX },
            ..LevenbergSettings::default()
        }
    }

    /// Whether it can be one of a student of this form.
    pub(crate) fn fits(&self, form: &Form) -> bool {
        let numbers = self.history.iter().all(|v| v.is_finite() && *v >= 0.0);
        let counts = [self.products, self.history.len()].iter().all(|count| *count < 1 << 32);
        numbers && counts && self.levenberg.is_sound() && (self.way != Some(Way::Dense) || fits_memory(form))
    }

    /// Steps in a row near the end that gained as little as they do where heads coincide.
    pub(crate) fn crawling(&self) -> usize {
        self.levenberg.crawling
    }

    /// To the next way of solving, if there is one: whether there is.
    fn change(&mut self, way: Way, form: &Form, finer: bool) -> bool {
        let next = way.next(form, finer);
        self.way = next.or(self.way);
        next.is_some()
    }
}

/// Where a step begins, and what it is solved for by.
struct At<'a> {
    student: &'a Student<f64>,
    seen: Seen<'a>,
    elimination: Elimination,
    linear: Linearised<'a, f64>,
    /// `‖r‖²`.
    error: f64,
    /// `−Jᵀr`.
    right: Vec<f64>,
    fixed: &'a [usize],
    limits: Limits<'a>,
}

/// Whether steps from here have to do with what few products show: there is no other way, and they are bent.
fn few_products_do(form: &Form, nmse: f64, settings: &NewtonSettings) -> bool {
    !fits_memory(form) && nmse > settings.far && settings.products > settings.few
}

/// How far conjugate gradients go.
fn limits<'a>(way: Way, form: &Form, nmse: f64, settings: &NewtonSettings, stop: &'a dyn Fn() -> bool) -> Limits<'a> {
    let finest = if way == Way::Single { settings.single } else { settings.finest };
    let products = if few_products_do(form, nmse, settings) { settings.few } else { settings.products };
    Limits { accuracy: nmse.sqrt().clamp(finest, settings.coarsest), products, stop }
}

/// The student's numbers after a step, with the best outputs, and the error there.
fn moved(student: &Student<f64>, examples: &Batch<f64>, step: &[f64]) -> Option<(Vec<f64>, f64)> {
    let mut moved = student.values.clone();
    moved.iter_mut().zip(step).for_each(|(v, s)| *v += s);
    examples.refit(&student.form, &mut moved).ok()?;
    let error = examples.error(&student.form, &moved);
    Some((moved, error))
}

/// `−Jᵀr`, without what is fixed, and without `O` and the bias: they are where they are best, and what their gradient still says is rounding.
fn downhill(form: &Form, gradient: &[f64], fixed: &[usize]) -> Vec<f64> {
    let mut right: Vec<f64> = gradient.iter().map(|g| -g).collect();
    right[form.range(Part::O).start..].fill(0.0);
    fixed.iter().for_each(|i| right[*i] = 0.0);
    right
}

/// The mean of a diagonal in every block, for every parameter but `O` and the bias; 1 where there is nothing.
fn block_means(form: &Form, diagonal: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut means = vec![1.0; form.range(Part::O).start];
    for part in PARTS.into_iter().filter(|part| !matches!(part, Part::O | Part::Bias)) {
        let range = form.range(part);
        let mean = range.clone().map(&diagonal).sum::<f64>() / range.len().max(1) as f64;
        if mean > 0.0 {
            means[range].fill(mean);
        }
    }
    means
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::descend::optimise::adam::{Adam, AdamSettings};
    use crate::layer::{AttentionLayer, Mask};
    use crate::scores::Scores;
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn problem(form: Form, n: usize, seed: u64) -> (AttentionLayer, Batch<f64>) {
        let teacher: Student<f64> = Student::random(form.clone(), 3.0, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let layer = teacher.layer().unwrap();
        let source = TeacherStream::new(&layer, 4, InputDistribution::Boolean, seed + 1, None);
        (layer, Batch::read(&source, 0..64, n).unwrap())
    }

    const LOW: Form = Form {
        d: 10,
        d_out: 6,
        heads: 2,
        rank: Some(3),
        value_rank: Some(4),
        key_bias: true,
        bias: true,
        scores: Scores::of(Mask::None),
        groups: None,
        relative: None,
    };

    fn newton(student: &mut Student<f64>, examples: &Batch<f64>, stop: bool) -> Result<Stop> {
        let settings = NewtonSettings::default();
        Newton::new(&settings).run(student, examples, &settings, &|_| stop)
    }

    /// What is fixed stays bit for bit, however steps are solved for, and what is not comes back.
    #[test]
    fn what_is_fixed_stays() {
        for (seed, way) in [(0, Way::Single), (1, Way::Double), (2, Way::Dense)] {
            let teacher: Student<f64> = Student::random(LOW, 3.0, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
            let (_, examples) = problem(LOW, 400, seed);
            let fixed = teacher.places(0, &[Part::A, Part::C]);
            let mut student = teacher.clone();
            let mut rng = ChaCha8Rng::seed_from_u64(seed + 50);
            for i in (0..LOW.range(Part::O).start).filter(|i| !fixed.contains(i)) {
                student.values[i] *= 1.0 + 0.03 * rng.sample::<f64, _>(StandardNormal);
            }
            let settings = NewtonSettings { goal: 1e-18, ..NewtonSettings::default() };
            let mut newton = Newton { way: Some(way), ..Newton::new(&settings) };
            let seen = Seen { double: &examples, single: &OnceLock::new(), variance: examples.variance().unwrap() };
            while newton.step(&mut student, seen, &settings, &fixed, &|_| false).unwrap().is_none() {}
            assert!(*newton.history.last().unwrap() < 1e-18, "{way:?}: {:?}", newton.history);
            assert!(fixed.iter().all(|i| student.values[*i].to_bits() == teacher.values[*i].to_bits()), "{way:?}");
        }
    }

    /// From a teacher moved by a twentieth of its size: ten of ten come back to machine precision.
    #[test]
    fn it_converges_from_nearby() {
        for seed in 0..10 {
            let form = Form { scores: Scores::of(if seed % 2 == 0 { Mask::None } else { Mask::Causal }), ..LOW };
            let (layer, examples) = problem(form.clone(), 400, seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut student: Student<f64> = Student::random(form.clone(), 3.0, &mut rng).unwrap();
            student.values.iter_mut().for_each(|v| *v += 0.05 * v.abs() * rng.sample::<f64, _>(StandardNormal));
            let settings = NewtonSettings::default();
            let mut newton = Newton::new(&settings);
            let stop = newton.run(&mut student, &examples, &settings, &|_| false).unwrap();
            let distance = layer.distance(&student.layer().unwrap()).unwrap();
            assert!(stop == Stop::Goal && distance.worst_theta() < 1e-9, "seed {seed}: {newton:?}");
            assert!(newton.history.len() < 15, "seed {seed}: {:?}", newton.history);
        }
    }

    /// Just below the goal a small student takes one step more, and one only: ten of ten end far below it, or had been there.
    #[test]
    fn a_step_is_taken_beyond_the_goal() {
        for seed in 0..10 {
            let (_, examples) = problem(LOW, 400, seed);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut student: Student<f64> = Student::random(LOW, 3.0, &mut rng).unwrap();
            student.values.iter_mut().for_each(|v| *v *= 1.0 + 1e-3 * rng.sample::<f64, _>(StandardNormal));
            let settings = NewtonSettings { goal: 1e-9, ..NewtonSettings::default() };
            let mut newton = Newton { way: Some(Way::Dense), ..Newton::new(&settings) };
            assert_eq!(newton.run(&mut student, &examples, &settings, &|_| false).unwrap(), Stop::Goal);
            let below = newton.history.iter().filter(|nmse| **nmse <= settings.goal).count();
            let last = *newton.history.last().unwrap();
            assert!(last <= settings.goal * settings.fine && below <= 2, "seed {seed}: {:?}", newton.history);
        }
    }

    /// A small student that has crawled long enough stalls; others, and those without their matrix, go on.
    #[test]
    fn crawling_ends() {
        let (_, examples) = problem(LOW, 200, 3);
        let settings = NewtonSettings::default();
        let seen = Seen { double: &examples, single: &OnceLock::new(), variance: examples.variance().unwrap() };
        let step = |way: Way, crawling: usize| {
            let mut student: Student<f64> = Student::random(LOW, 3.0, &mut ChaCha8Rng::seed_from_u64(8)).unwrap();
            let mut newton = Newton { way: Some(way), ..Newton::new(&settings) };
            newton.levenberg.crawling = crawling;
            newton.step(&mut student, seen, &settings, &[], &|_| false).unwrap()
        };
        assert_eq!(step(Way::Dense, settings.crawls), Some(Stop::Stalled));
        assert_eq!((step(Way::Dense, settings.crawls - 1), step(Way::Double, settings.crawls)), (None, None));
    }

    /// From a random start, by Adam in single precision and then this: at least eight of ten find every head.
    #[test]
    fn descent_then_newton_finds_the_heads() {
        let form = Form { rank: None, value_rank: None, key_bias: false, bias: false, d: 6, d_out: 6, ..LOW };
        let mut found = 0;
        for seed in 0..10 {
            let layer = TeacherSpec::dense(6, 2, 3.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
            let source = TeacherStream::new(&layer, 4, InputDistribution::Boolean, seed + 1, None);
            let examples = Batch::<f64>::read(&source, 0..64, 400).unwrap();
            let mut student = Student::<f32>::random(form.clone(), 2.0, &mut ChaCha8Rng::seed_from_u64(seed + 77)).unwrap();
            let settings = AdamSettings { steps: 600, batch: 100, goal: 1e-6, ..AdamSettings::default() };
            let mut adam = Adam::new(form.len(), seed);
            assert!(adam.run(&mut student, &examples.cast(), &settings, &mut |_| false).unwrap());
            let values = student.values.iter().map(|v| f64::from(*v)).collect();
            let mut student = Student { form: form.clone(), values };
            newton(&mut student, &examples, false).unwrap();
            let distance = layer.distance(&student.layer().unwrap()).unwrap();
            found += usize::from(distance.worst_theta() < 1e-8 && distance.worst_w() < 1e-8);
        }
        assert!(found >= 8, "{found} of 10");
    }

    /// A descent that is stopped and goes on has the bits of one that was not.
    #[test]
    fn a_descent_can_be_stopped_and_continued() {
        let (_, examples) = problem(LOW, 200, 1);
        let settings = AdamSettings { steps: 60, batch: 50, ..AdamSettings::default() };
        let start = || Student::<f64>::random(LOW, 2.0, &mut ChaCha8Rng::seed_from_u64(9)).unwrap();
        let (mut whole, mut state) = (start(), Adam::new(LOW.len(), 4));
        assert!(state.run(&mut whole, &examples, &settings, &mut |_| false).unwrap());
        let (mut parts, mut state) = (start(), Adam::new(LOW.len(), 4));
        assert!(!state.run(&mut parts, &examples, &settings, &mut |adam| adam.step == 23).unwrap());
        let mut state = state.clone();
        assert!(state.run(&mut parts, &examples, &settings, &mut |_| false).unwrap());
        assert_eq!(whole, parts);
        let stopped = newton(&mut whole, &examples, true);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }

    #[test]
    fn bad_input_is_refused() {
        let (_, examples) = problem(LOW, 20, 1);
        let mut other = Student::<f64>::random(Form { d: 9, ..LOW }, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let said = newton(&mut other, &examples, false).unwrap_err().to_string();
        assert!(said.contains("the student 9 to 6"), "{said}");
        let mut student = Student::<f64>::random(LOW, 2.0, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let constant = Batch { y: vec![1.0; examples.y.len()], ..examples.clone() };
        assert!(newton(&mut student, &constant, false).is_err());
        assert!(Adam::new(LOW.len(), 0).run(&mut student, &constant, &AdamSettings::default(), &mut |_| false).is_err());
        let empty = Batch { x: Vec::new(), y: Vec::new(), ..examples };
        assert!(newton(&mut student, &empty, false).is_err());
        for form in [Form { heads: 0, ..LOW }, Form { rank: Some(0), ..LOW }, Form { d: 0, ..LOW }] {
            assert!(Student::<f64>::random(form.clone(), 2.0, &mut ChaCha8Rng::seed_from_u64(0)).is_err());
        }
    }
}
