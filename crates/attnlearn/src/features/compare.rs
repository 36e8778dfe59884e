//! Learners compared on the same examples.
//!
//! A seed gives everything: the target's parameters, the sets to learn from, fresh sets to be judged on, and the frozen heads. Two learners
//! that share their seeds share targets and sets, so their errors are compared in pairs. With `ℓ_s = log(e_s/e_s')` for seeds `s ≤ S`,
//!
//! ```text
//! log ratio  ∈  mean(ℓ) ± t_{S−1} sd(ℓ)/√S        at 95 %
//! ```
//!
//! by Student's quantile `t`. The interval speaks of the spread over targets, sets and heads together.

use super::ridge::{self, Options, Unwatched};
use super::{FittedModel, KernelSpec, MapSpec, Precision, Predictor, Score, Scores, SetInputs, SetSource, SetStream, Sets};
use super::{Target, TargetSpec};
use crate::linalg::row_major;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// What is fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Learner {
    /// Frozen features.
    Frozen {
        /// The map; an [`Experiment`] replaces its seed.
        map: MapSpec,
        /// Precision of the features.
        precision: Precision,
    },
    /// Infinitely many heads.
    Kernel(KernelSpec),
}

impl Learner {
    /// Fits the learner to the targets of `source`.
    pub fn fit(&self, source: &dyn SetSource, options: &Options) -> Result<FittedModel> {
        let shape = source.shape();
        let (predictor, intercept, ridge) = match self {
            Self::Frozen { map, precision } => {
                let fit = match precision {
                    Precision::F32 => ridge::fit::<f32>(map.build()?.as_ref(), source, options, &Unwatched)?,
                    Precision::F64 => ridge::fit::<f64>(map.build()?.as_ref(), source, options, &Unwatched)?,
                };
                let predictor = Predictor::Frozen { map: map.clone(), v: row_major(fit.v.as_ref()), precision: *precision };
                (predictor, fit.intercept, fit.lambda)
            }
            Self::Kernel(kernel) => {
                let fit = ridge::fit_kernel(kernel, source, options, &Unwatched)?;
                let (sets, alpha) = (fit.sets.block().clone(), row_major(fit.a.as_ref()));
                (Predictor::Kernel { kernel: kernel.clone(), sets, alpha }, fit.intercept, fit.lambda)
            }
        };
        Ok(FittedModel { predictor, intercept, ridge, shape })
    }

    /// The same with heads of another seed.
    fn reseeded(&self, seed: u64) -> Self {
        match self {
            Self::Frozen { map, precision } => Self::Frozen { map: MapSpec { seed, ..map.clone() }, precision: *precision },
            Self::Kernel(_) => self.clone(),
        }
    }
}

/// What is to be learnt, and from how much.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The family of targets; its parameters are drawn anew for every seed.
    pub target: TargetSpec,
    /// How sets are drawn.
    pub inputs: SetInputs,
    /// Sets to learn from.
    pub n: u64,
    /// Fresh sets to be judged on.
    pub n_test: u64,
    /// Standard deviation of the noise on the targets to learn from (these have 1); the fresh ones have none.
    pub noise: f64,
    /// How to fit.
    pub options: Options,
}

impl Experiment {
    /// Without noise, the ridge chosen by leave-one-out errors.
    pub fn new(target: TargetSpec, inputs: SetInputs, n: u64, n_test: u64) -> Self {
        Self { target, inputs, n, n_test, noise: 0.0, options: Options::default() }
    }

    /// Sets to learn from and fresh sets, of seed `seed`.
    pub fn draw(&self, seed: u64) -> Result<(SetStream, SetStream)> {
        // Two streams a seed, so that no two seeds share any.
        let [train, test] = [0, 1].map(|part| seed.wrapping_mul(2).wrapping_add(part));
        let target = Target::new(&self.target, self.inputs, train)?;
        Ok((SetStream::new(target.clone(), train, self.n).with_noise(self.noise)?, SetStream::new(target, test, self.n_test)))
    }

    /// Error of `learner` on fresh sets; everything is drawn from `seed`.
    pub fn held_out(&self, learner: &Learner, seed: u64) -> Result<Score> {
        let (train, test) = self.draw(seed)?;
        let model = learner.reseeded(seed.wrapping_mul(2)).fit(&train, &self.options)?;
        let fresh = Sets::read(&test)?;
        let mut scores = Scores::new(1);
        scores.add(&fresh.block().y, &model.prepare()?.predict(fresh.block())?, &fresh.block().weights);
        scores.finish()?.pop().ok_or_else(|| Error::input("score", "no target", "give one"))
    }
}

/// How much larger one error is than another, seed by seed: the mean of the log ratio and its interval of confidence 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Mean of the log ratio.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Seeds.
    pub pairs: usize,
}

impl Paired {
    /// `log(a_s/b_s)` over seeds `s`: below 0 where `a` is better.
    pub fn log_ratio(a: &[f64], b: &[f64]) -> Result<Self> {
        let bad = |problem: String, remedy: &str| Err(Error::input("paired errors", problem, remedy));
        if a.len() != b.len() || a.len() < 2 {
            return bad(format!("{} beside {}", a.len(), b.len()), "give as many of each, and at least two");
        }
        if let Some(error) = a.iter().chain(b).find(|e| !(e.is_finite() && **e > 0.0)) {
            return bad(format!("an error of {error}"), "give errors that are positive and finite");
        }
        let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (count - 1.0);
        // Seeds are few: here the quantile of this crate is good to many digits.
        let student = StudentsT::new(0.0, 1.0, count - 1.0)
            .map_err(|e| Error::input("paired errors", e.to_string(), "give at least two pairs"))?;
        let half = student.inverse_cdf(0.975) * (variance / count).sqrt();
        Ok(Self { mean, low: mean - half, high: mean + half, pairs: logs.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Model;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// Ratios e, e², e³: mean 2, standard deviation 1, and 4.302653 is the tabled quantile of two degrees of freedom.
    #[test]
    fn the_interval_is_the_textbook_one() {
        let a: Vec<f64> = [1.0f64, 2.0, 3.0].iter().map(|l| l.exp()).collect();
        let paired = Paired::log_ratio(&a, &[1.0; 3]).unwrap();
        let half = 4.302_653 / 3f64.sqrt();
        assert!((paired.mean - 2.0).abs() < 1e-12 && (paired.high - 2.0 - half).abs() < 1e-5, "{paired:?}");
        assert!((paired.mean - paired.low - half).abs() < 1e-5 && paired.pairs == 3);
    }

    /// The truth is missed in 5 % of draws: 100 of 2000, give or take four standard deviations of the count (9.7).
    #[test]
    fn intervals_cover_as_they_should() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let missed = (0..2000).filter(|_| {
            let a: Vec<f64> = (0..5).map(|_| (0.3 + rng.sample::<f64, _>(StandardNormal)).exp()).collect();
            let paired = Paired::log_ratio(&a, &[1.0; 5]).unwrap();
            !(paired.low..=paired.high).contains(&0.3)
        });
        let missed = missed.count();
        assert!((61..=139).contains(&missed), "{missed}");
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        for (a, b) in [
            (vec![1.0], vec![1.0]),
            (vec![1.0, 2.0], vec![1.0]),
            (vec![1.0, 0.0], vec![1.0; 2]),
            (vec![1.0; 2], vec![1.0, f64::NAN]),
        ] {
            assert!(Paired::log_ratio(&a, &b).is_err(), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_seed_gives_everything_and_seeds_share_nothing() {
        let experiment = Experiment::new("average:p=2".parse().unwrap(), SetInputs::new(3, 3), 60, 50);
        let learner = Learner::Frozen { map: MapSpec::new(Model::Rfa, 3, 3, 8, 99), precision: Precision::F64 };
        let error = |seed| experiment.held_out(&learner, seed).unwrap();
        assert_eq!(error(3), error(3));
        assert_ne!(error(3).nmse.to_bits(), error(4).nmse.to_bits());
        let x = |source: &SetStream| Sets::read(source).unwrap().block().x[..9].to_vec();
        let drawn: Vec<_> = (0..3).flat_map(|s| experiment.draw(s).map(|(a, b)| [x(&a), x(&b)]).unwrap()).collect();
        assert!((0..6).all(|i| (0..i).all(|j| drawn[i] != drawn[j])));
        // A map of its own dimension is refused rather than fitted.
        let wide = Learner::Frozen { map: MapSpec::new(Model::Rfa, 4, 3, 8, 0), precision: Precision::F64 };
        assert!(experiment.held_out(&wide, 0).is_err());
    }
}
