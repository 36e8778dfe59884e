//! Targets that are learnt from the same sets.
//!
//! A seed gives everything: the parameters of all targets, the sets to learn from, fresh sets to be judged on and the frozen heads. Targets of one seed share
//! their sets, so a fit of all of them costs one factorisation; each has its own ridge, that of least leave-one-out error. Learners that share a seed share
//! targets and sets: their errors are compared in pairs.

use attnlearn::features::ridge::{self, Options, Ridge, Watch};
use attnlearn::features::{
    FittedModel, Learner, Precision, Predictor, Scores, SetBlock, SetInputs, SetSource, SetStream, Sets, Target, TargetSpec,
};
use attnlearn::linalg::row_major;
use attnlearn::{Error, Result};
use serde::{Deserialize, Serialize};

/// What is to be learnt: a target, and the noise on its values in the sets to learn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The family; its parameters are drawn from the seed of the task.
    pub target: TargetSpec,
    /// Standard deviation of the noise; targets have 1.
    pub noise: f64,
}

/// Targets and how many sets to learn them from.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Dimension of query and keys, which are uniform on the unit sphere.
    pub d: usize,
    /// Keys of a set.
    pub keys: usize,
    /// Sets to learn from.
    pub n: u64,
    /// Fresh sets, without noise.
    pub n_test: u64,
    /// Targets.
    pub columns: Vec<Column>,
    /// Seed of everything.
    pub seed: u64,
}

/// The sets of a task.
pub struct Drawn {
    /// To learn from.
    pub train: Sets,
    /// To be judged on.
    pub test: Sets,
}

/// What a learner has learnt.
pub struct Fitted {
    /// All targets at once.
    pub model: FittedModel,
    /// The ridge of every target.
    pub ridges: Vec<f64>,
}

/// A row of most experiments: a target and how well it was learnt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// The target.
    pub target: String,
    /// Mean squared error on fresh sets over the variance of the target there.
    pub error: f64,
    /// The ridge λ.
    pub ridge: f64,
}

/// Targets without noise from their texts, `; ` between them.
pub fn parse_targets(texts: &str) -> Result<Vec<Column>> {
    texts.split("; ").map(|text| Ok(Column { target: text.parse()?, noise: 0.0 })).collect()
}

/// The other way.
pub fn column_texts(targets: &[String]) -> String {
    targets.join("; ")
}

/// A ridge of least leave-one-out error for every target.
pub fn best_ridges() -> Options {
    Options { ridge: Ridge::Auto, apart: true, ..Options::default() }
}

impl Task {
    /// Inputs of its sets.
    pub fn inputs(&self) -> SetInputs {
        SetInputs::new(self.keys, self.d)
    }

    /// Seed of sets to learn from, of targets and of heads; the next one is that of fresh sets.
    pub fn stream(&self) -> u64 {
        self.seed.wrapping_mul(2)
    }

    /// Draws the sets, with all targets.
    pub fn draw(&self, stop: &dyn Fn() -> bool) -> Result<Drawn> {
        let train = self.sets(self.stream(), self.n, true, stop)?;
        Ok(Drawn { train, test: self.sets(self.stream().wrapping_add(1), self.n_test, false, stop)? })
    }

    fn sets(&self, seed: u64, len: u64, noisy: bool, stop: &dyn Fn() -> bool) -> Result<Sets> {
        let mut all: Option<SetBlock> = None;
        let mut values = Vec::new();
        for column in &self.columns {
            let target = Target::new(&column.target, self.inputs(), self.stream())?;
            let stream = SetStream::new(target, seed, len).with_noise(if noisy { column.noise } else { 0.0 })?;
            let sets = Sets::read_until(&stream, stop)?;
            values.push(sets.block().y.clone());
            all.get_or_insert_with(|| sets.block().clone());
        }
        let mut all = all.ok_or_else(|| Error::input("targets", "there are none", "name at least one"))?;
        all.shape.targets = values.len();
        all.y = (0..all.len()).flat_map(|i| values.iter().map(move |y| y[i])).collect();
        Ok(Sets::new(all))
    }

    /// Fits all targets, each with its best ridge, and judges them on fresh sets.
    pub fn score(&self, learner: &Learner, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Scored>> {
        let drawn = self.draw(&stop)?;
        let fitted = fit(learner, &drawn.train, &best_ridges(), stop)?;
        let errors = errors_of(&predict(&fitted.model, &drawn.test, stop)?, &drawn.test)?;
        let scored = |((column, error), ridge): ((&Column, f64), f64)| Scored { target: column.target.to_string(), error, ridge };
        Ok(self.columns.iter().zip(errors).zip(fitted.ridges).map(scored).collect())
    }
}

/// Nobody watches, but it can be stopped.
struct Stopped<'a>(&'a (dyn Fn() -> bool + Sync));

impl Watch for Stopped<'_> {
    fn interrupted(&self) -> bool {
        self.0()
    }
}

/// Fits a learner to all targets of `train`.
pub fn fit(learner: &Learner, train: &Sets, options: &Options, stop: &(dyn Fn() -> bool + Sync)) -> Result<Fitted> {
    let watch = Stopped(stop);
    let (predictor, intercept, ridges) = match learner {
        Learner::Frozen { map, precision } => {
            let fit = match precision {
                Precision::F32 => ridge::fit::<f32>(map.build()?.as_ref(), train, options, &watch)?,
                Precision::F64 => ridge::fit::<f64>(map.build()?.as_ref(), train, options, &watch)?,
            };
            let predictor = Predictor::Frozen { map: map.clone(), v: row_major(fit.v.as_ref()), precision: *precision };
            (predictor, fit.intercept, fit.lambdas)
        }
        Learner::Kernel(kernel) => {
            let fit = ridge::fit_kernel(kernel, train, options, &watch)?;
            let (sets, alpha) = (fit.sets.block().clone(), row_major(fit.a.as_ref()));
            (Predictor::Kernel { kernel: kernel.clone(), sets, alpha }, fit.intercept, fit.lambdas)
        }
    };
    let ridge = ridges.first().copied().unwrap_or(0.0);
    Ok(Fitted { model: FittedModel { predictor, intercept, ridge, shape: train.shape() }, ridges })
}

/// Predictions of all targets for all sets, `[len][targets]`; `stop` is asked before every block.
pub fn predict(model: &FittedModel, sets: &Sets, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<f64>> {
    let ready = model.prepare()?;
    let mut block = SetBlock::new(sets.shape());
    let mut out = Vec::with_capacity(sets.block().y.len());
    for index in 0..sets.blocks() {
        if stop() {
            return Err(Error::Interrupted);
        }
        sets.fill(index, &mut block)?;
        out.extend(ready.predict(&block)?);
    }
    Ok(out)
}

/// Mean squared error over the variance, target by target.
pub fn errors_of(predictions: &[f64], sets: &Sets) -> Result<Vec<f64>> {
    let block = sets.block();
    let mut scores = Scores::new(block.shape.targets);
    scores.add(&block.y, predictions, &block.weights);
    Ok(scores.finish()?.iter().map(|score| score.nmse).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::features::Named;
    use attnlearn::features::Experiment;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn task(targets: &str, seed: u64) -> Task {
        Task { d: 4, keys: 3, n: 120, n_test: 200, columns: parse_targets(targets).unwrap(), seed }
    }

    /// Targets that are learnt together are learnt as if each were alone, and as `features::Experiment` has it.
    #[test]
    fn targets_do_not_disturb_one_another() {
        let texts = ["average:p=2", "correlation:p=1,q=1", "softmax:scale=4"];
        for name in [Named::Rfa, Named::Rfmlp, Named::KernelBrfa] {
            let together = task(&texts.join("; "), 7);
            let learner = name.learner(4, 3, 10, Precision::F64, together.stream());
            let scored = together.score(&learner, &|| false).unwrap();
            assert_eq!(scored, together.score(&learner, &|| false).unwrap());
            for (text, scored) in texts.iter().zip(&scored) {
                let experiment = Experiment::new(text.parse().unwrap(), together.inputs(), 120, 200);
                let alone = experiment.held_out(&learner, 7).unwrap().nmse;
                assert!((scored.error / alone - 1.0).abs() < 1e-6 && scored.target == *text, "{name:?} {scored:?} {alone}");
            }
        }
        let of = |seed| {
            let task = task("average:p=2", seed);
            task.score(&Named::Rfa.learner(4, 3, 10, Precision::F64, task.stream()), &|| false).unwrap()
        };
        assert!(of(1) != of(2) && of(1)[0].error < 1.2);
    }

    /// Noise is on the sets to learn from alone.
    #[test]
    fn noise_is_not_judged() {
        let quiet = task("average:p=2; average:p=2", 3);
        let mut noisy = quiet.clone();
        noisy.columns[1].noise = 0.5;
        let (a, b) = (quiet.draw(&|| false).unwrap(), noisy.draw(&|| false).unwrap());
        assert_eq!(a.test.block().y, b.test.block().y);
        let gap = |j: usize| {
            let pairs = a.train.block().y.iter().zip(&b.train.block().y).skip(j).step_by(2);
            pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>() / 120.0
        };
        assert!(gap(0) < 1e-30 && (gap(1) / 0.25 - 1.0).abs() < 0.5, "{}", gap(1));
    }

    /// Whenever it is stopped it ends.
    #[test]
    fn a_task_can_be_stopped_anywhere() {
        let task = task("average:p=2", 1);
        for name in [Named::Rfa, Named::KernelRfa] {
            let learner = name.learner(4, 3, 10, Precision::F64, 0);
            let asked = AtomicUsize::new(0);
            task.score(&learner, &|| asked.fetch_add(1, Ordering::Relaxed) == usize::MAX).unwrap();
            for limit in 0..asked.into_inner() {
                let asked = AtomicUsize::new(0);
                let stopped = task.score(&learner, &|| asked.fetch_add(1, Ordering::Relaxed) >= limit);
                assert!(matches!(stopped, Err(Error::Interrupted)), "{name:?} {limit}");
            }
        }
    }

    #[test]
    fn bad_targets_are_refused() {
        assert!(parse_targets("average:p=2; nothing").is_err() && parse_targets("").is_err());
    }
}
