//! Levenberg–Marquardt: least squares by steps that are damped until they lead downhill.
//!
//! ```text
//! at θ:     (H + λM) δ = −Jᵀr          H is JᵀJ, or what is taken for it, M a scale
//! falls:    ‖r(θ + δ)‖² < ‖r(θ)‖²      θ ← θ + δ, and λ falls
//! rises:    anything else              λ rises, and again from θ
//! ```
//!
//! With `λ = 0` a step is Gauss–Newton's; with a large `λ` it is short, and leads downhill as `M` sees it. Who has a problem says how it is linearised and
//! what errors are; who solves for `δ` is a [`Solver`]. A descent can be left after every step, and gone on with: [`Levenberg`] is all there is to know.

use crate::Result;
use serde::{Deserialize, Serialize};

/// How steps are damped, and when there are no more of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LevenbergSettings {
    /// Most steps (default 60).
    pub(crate) steps: usize,
    /// Error at which there is nothing left to gain (default 0).
    pub(crate) goal: f64,
    /// A step that takes away less than this share of the error is slow (default 10⁻³).
    pub(crate) progress: f64,
    /// Slow steps in a row after which there are no more (default 3).
    pub(crate) patience: usize,
    /// What ends descents that crawl where steps should be large (default: nothing).
    pub(crate) crawl: Option<Crawl>,
    /// First λ (default 10⁻²).
    pub(crate) first: f64,
    /// Largest λ that a step begins with (default: any).
    pub(crate) begin: f64,
    /// Least λ after a success (default 10⁻¹⁴).
    pub(crate) least: f64,
    /// Least λ after a failure (default 10⁻¹⁰).
    pub(crate) least_risen: f64,
    /// Largest λ: beyond it no step leads downhill (default 10⁸).
    pub(crate) largest: f64,
    /// What λ is multiplied by after a success (default: 0.2).
    pub(crate) fall: Fall,
    /// What λ is multiplied by after a failure (default 5).
    pub(crate) rise: f64,
    /// Failures after which a step is given up (default: none but λ ends it).
    pub(crate) failures: usize,
}

impl Default for LevenbergSettings {
    fn default() -> Self {
        Self {
            steps: 60,
            goal: 0.0,
            progress: 1e-3,
            patience: 3,
            crawl: None,
            first: 1e-2,
            begin: f64::INFINITY,
            least: 1e-14,
            least_risen: 1e-10,
            largest: 1e8,
            fall: Fall::By(0.2),
            rise: 5.0,
            failures: usize::MAX,
        }
    }
}

/// What λ is multiplied by after a success.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fall {
    /// This.
    By(f64),
    /// What the step left of the error, within bounds.
    Left(f64, f64),
    /// The root of that, within bounds.
    RootOfLeft(f64, f64),
}

impl Fall {
    fn factor(self, left: f64) -> f64 {
        match self {
            Self::By(factor) => factor,
            Self::Left(least, most) => left.clamp(least, most),
            Self::RootOfLeft(least, most) => left.sqrt().clamp(least, most),
        }
    }
}

/// Near its end a descent squares its error, or it has come to the wrong place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crawl {
    /// Error below which steps should be large.
    pub(crate) below: f64,
    /// A step from there that leaves more than this share crawls.
    pub(crate) leaves: f64,
    /// Crawling steps in a row after which there are no more.
    pub(crate) patience: usize,
}

/// Why there are no more steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The goal was reached.
    Goal,
    /// The error stopped falling.
    Stalled,
    /// The limit on steps was reached.
    Limit,
}

/// `(H + λM) δ = −Jᵀr` at a point.
pub(crate) trait Solver {
    /// `δ`; `None` where the matrix is not positive definite, as far as rounding lets one see.
    fn solve(&mut self, lambda: f64) -> Result<Option<Solution>>;
}

/// What a solver found.
pub(crate) struct Solution {
    /// `δ`.
    pub(crate) step: Vec<f64>,
    /// Whether it is as exact as was asked for.
    pub(crate) exact: bool,
}

/// A step that led downhill.
pub(crate) struct Taken<P> {
    /// To here.
    pub(crate) point: P,
    /// `‖r‖²` there.
    pub(crate) error: f64,
    /// Whether it was solved for as exactly as was asked for.
    pub(crate) exact: bool,
    /// Steps with smaller λ that did not.
    pub(crate) failures: usize,
}

/// Where a descent stands: with the point, everything that the next step depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Levenberg {
    lambda: f64,
    /// Steps in a row that gained little.
    slow: usize,
    /// Steps in a row that were near the end and yet far from quadratic.
    pub(crate) crawling: usize,
}

impl Levenberg {
    /// At the beginning.
    pub(crate) fn new(first: f64) -> Self {
        Self { lambda: first, slow: 0, crawling: 0 }
    }

    /// Whether it can be one that somebody has left.
    pub(crate) fn is_sound(&self) -> bool {
        let counts = [self.slow, self.crawling];
        self.lambda.is_finite() && self.lambda >= 0.0 && counts.iter().all(|count| *count < 1 << 32)
    }

    /// Why there is no step from a point of this error, after so many.
    pub(crate) fn end(&self, error: f64, steps: usize, settings: &LevenbergSettings) -> Option<Stop> {
        if error <= settings.goal {
            return Some(Stop::Goal);
        }
        if self.slow >= settings.patience || settings.crawl.is_some_and(|crawl| self.crawling >= crawl.patience) {
            return Some(Stop::Stalled);
        }
        (steps >= settings.steps).then_some(Stop::Limit)
    }

    /// A step from a point of the error `before`; `None` if none leads downhill, and nothing has changed. `moved` is the point moved by a step and its
    /// error, where there is one.
    pub(crate) fn step<P>(
        &mut self,
        before: f64,
        solver: &mut impl Solver,
        moved: impl Fn(&[f64]) -> Option<(P, f64)>,
        settings: &LevenbergSettings,
    ) -> Result<Option<Taken<P>>> {
        let (mut lambda, mut failures) = (self.lambda.min(settings.begin), 0);
        while lambda <= settings.largest && failures < settings.failures {
            if let Some(Solution { step, exact }) = solver.solve(lambda)?
                && let Some((point, error)) = moved(&step).filter(|(_, error)| *error < before)
            {
                self.lambda = lambda;
                self.succeed(before, error, settings);
                return Ok(Some(Taken { point, error, exact, failures }));
            }
            lambda = (lambda * settings.rise).max(settings.least_risen);
            failures += 1;
        }
        Ok(None)
    }

    /// What follows from a step that led downhill.
    fn succeed(&mut self, before: f64, error: f64, settings: &LevenbergSettings) {
        let left = error / before;
        let again = |count: usize, is: bool| if is { count + 1 } else { 0 };
        self.lambda = (self.lambda * settings.fall.factor(left)).max(settings.least);
        self.slow = again(self.slow, 1.0 - left < settings.progress);
        let crawls = |crawl: Crawl| before < crawl.below && error > crawl.leaves * before;
        self.crawling = again(self.crawling, settings.crawl.is_some_and(crawls));
    }
}

/// A least-squares problem.
pub(crate) trait LeastSquares {
    /// A point, and whatever else came of computing its error.
    type Point;

    /// The normal equations at a point.
    fn linearise(&self, at: &Self::Point) -> Result<impl Solver>;

    /// A point moved by a step, and its error; `None` where that is no number.
    fn moved(&self, at: &Self::Point, step: &[f64]) -> Option<(Self::Point, f64)>;
}

/// Where a descent ended.
pub(crate) struct Descent<P> {
    /// The best point.
    pub(crate) point: P,
    /// Its error, after those of all points before it.
    pub(crate) errors: Vec<f64>,
}

impl<P> Descent<P> {
    /// `‖r‖²` at the best point.
    pub(crate) fn error(&self) -> f64 {
        self.errors.last().copied().unwrap_or(f64::INFINITY)
    }
}

/// All steps from a point of some error.
pub(crate) fn descend<P: LeastSquares>(
    problem: &P,
    (mut point, mut error): (P::Point, f64),
    settings: &LevenbergSettings,
) -> Result<Descent<P::Point>> {
    let mut state = Levenberg::new(settings.first);
    let mut errors = vec![error];
    while state.end(error, errors.len() - 1, settings).is_none() {
        let taken = state.step(error, &mut problem.linearise(&point)?, |step| problem.moved(&point, step), settings)?;
        let Some(taken) = taken else { break };
        (point, error) = (taken.point, taken.error);
        errors.push(error);
    }
    Ok(Descent { point, errors })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;

    /// `r = (10 (y − x²), 1 − x)`: Rosenbrock's valley.
    struct Valley;

    fn residuals(at: &[f64; 2]) -> [f64; 2] {
        [10.0 * (at[1] - at[0] * at[0]), 1.0 - at[0]]
    }

    fn error(at: &[f64; 2]) -> f64 {
        residuals(at).iter().map(|r| r * r).sum()
    }

    /// Two equations, by Cramer's rule.
    struct Two {
        h: [[f64; 2]; 2],
        right: [f64; 2],
    }

    impl Solver for Two {
        fn solve(&mut self, lambda: f64) -> Result<Option<Solution>> {
            let ([[a, b], [_, c]], [x, y]) = (self.h, self.right);
            let (a, c) = (a * (1.0 + lambda), c * (1.0 + lambda));
            let det = a * c - b * b;
            let step = vec![(c * x - b * y) / det, (a * y - b * x) / det];
            Ok((det > 0.0).then_some(Solution { step, exact: true }))
        }
    }

    impl LeastSquares for Valley {
        type Point = [f64; 2];

        fn linearise(&self, at: &[f64; 2]) -> Result<impl Solver> {
            let (jacobian, r) = ([[-20.0 * at[0], 10.0], [-1.0, 0.0]], residuals(at));
            let inner = |i: usize, j: usize| jacobian.iter().map(|row| row[i] * row[j]).sum::<f64>();
            let right = [0, 1].map(|i| -jacobian.iter().zip(r).map(|(row, r)| row[i] * r).sum::<f64>());
            Ok(Two { h: [[inner(0, 0), inner(0, 1)], [inner(1, 0), inner(1, 1)]], right })
        }

        fn moved(&self, at: &[f64; 2], step: &[f64]) -> Option<([f64; 2], f64)> {
            let to = [at[0] + step[0], at[1] + step[1]];
            Some((to, error(&to)))
        }
    }

    fn run(settings: &LevenbergSettings) -> Descent<[f64; 2]> {
        let start = [-1.2, 1.0];
        descend(&Valley, (start, error(&start)), settings).unwrap()
    }

    /// Every step leads downhill, along a valley to its end.
    #[test]
    fn a_valley_is_followed_to_its_end() {
        let found = run(&LevenbergSettings { goal: 1e-28, ..LevenbergSettings::default() });
        assert!(found.error() <= 1e-28 && found.errors.windows(2).all(|pair| pair[1] < pair[0]), "{:?}", found.errors);
        assert!(found.point.iter().all(|v| (v - 1.0).abs() < 1e-12) && found.errors.len() < 40, "{:?}", found.errors);
        assert!((error(&found.point) - found.error()).abs() < 1e-30);
    }

    /// λ begins, falls and rises as it was told to; where nothing leads downhill nothing changes.
    #[test]
    fn damping_is_as_settings_say() {
        struct Recorded(Vec<f64>);
        impl Solver for Recorded {
            fn solve(&mut self, lambda: f64) -> Result<Option<Solution>> {
                self.0.push(lambda);
                Ok(Some(Solution { step: vec![lambda], exact: true }))
            }
        }
        let settings = LevenbergSettings { first: 1.0, rise: 10.0, largest: 1e3, ..LevenbergSettings::default() };
        let step = |state: &mut Levenberg, settings: &LevenbergSettings, from: f64| {
            let mut tried = Recorded(Vec::new());
            // Steps with a λ from some size on leave a quarter.
            let taken = state.step(1.0, &mut tried, |step| Some(((), if step[0] >= from { 0.25 } else { f64::NAN })), settings);
            (tried.0, taken.unwrap().is_some())
        };
        let close = |found: &[f64], expected: &[f64]| {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-12)
        };
        let mut state = Levenberg::new(settings.first);
        let (tried, taken) = step(&mut state, &settings, 50.0);
        assert!(close(&tried, &[1.0, 10.0, 100.0]) && taken && close(&[state.lambda], &[20.0]));
        let left = state.clone();
        let (tried, taken) = step(&mut state, &settings, 1e9);
        assert!(close(&tried, &[20.0, 200.0]) && !taken && state == left);
        let few = LevenbergSettings { failures: 1, begin: 5.0, ..settings.clone() };
        assert!(close(&step(&mut state, &few, 1e9).0, &[5.0]) && state == left);
        for (fall, factor) in [(Fall::Left(0.0, 1.0), 0.25), (Fall::RootOfLeft(0.0, 1.0), 0.5), (Fall::Left(0.3, 1.0), 0.3)] {
            let mut state = Levenberg::new(1.0);
            step(&mut state, &LevenbergSettings { fall, ..settings.clone() }, 0.0);
            assert!(close(&[state.lambda], &[factor]), "{fall:?}");
        }
    }

    /// A descent ends at its goal, after its steps, and when it is slow or crawls for long enough.
    #[test]
    fn descents_end() {
        let usual = LevenbergSettings::default();
        assert_eq!(run(&LevenbergSettings { steps: 3, ..usual.clone() }).errors.len(), 4);
        assert_eq!(run(&LevenbergSettings { progress: 1.0, patience: 2, ..usual.clone() }).errors.len(), 3);
        let crawl = Some(Crawl { below: f64::INFINITY, leaves: 0.0, patience: 4 });
        assert_eq!(run(&LevenbergSettings { crawl, ..usual.clone() }).errors.len(), 5);
        assert_eq!(run(&LevenbergSettings { goal: 1e3, ..usual.clone() }).errors.len(), 1);
        let (mut state, limited) = (Levenberg::new(1.0), LevenbergSettings { steps: 7, goal: 0.1, ..usual });
        assert_eq!(
            [(0.1, 7), (0.2, 6), (0.2, 7)].map(|(error, steps)| state.end(error, steps, &limited)),
            [Some(Stop::Goal), None, Some(Stop::Limit)]
        );
        state.slow = limited.patience;
        assert_eq!(state.end(0.2, 7, &limited), Some(Stop::Stalled));
    }

    /// Left after every step and gone on with, a descent comes to the same end.
    #[test]
    fn a_descent_can_be_left_and_gone_on_with() {
        let settings = LevenbergSettings { goal: 1e-28, ..LevenbergSettings::default() };
        let whole = run(&settings);
        let (mut point, mut state, mut steps) = ([-1.2, 1.0], Levenberg::new(settings.first), 0);
        while state.end(error(&point), steps, &settings).is_none() {
            let bytes = postcard::to_allocvec(&state).unwrap();
            state = postcard::from_bytes(&bytes).unwrap();
            let from = point;
            let mut solver = Valley.linearise(&from).unwrap();
            point = state.step(error(&from), &mut solver, |step| Valley.moved(&from, step), &settings).unwrap().unwrap().point;
            steps += 1;
        }
        assert!(steps == whole.errors.len() - 1 && point.map(f64::to_bits) == whole.point.map(f64::to_bits));
        assert!(state.is_sound() && !Levenberg::new(f64::NAN).is_sound());
    }
}
