//! From a description of what to fit to a model that predicts, whatever is fitted.

use super::ridge::{self, Checkpoint, Criterion, Fit, Options, PathPoint, Solver, Stage, Watch};
use super::{FittedModel, KernelSpec, MapSpec, Mean, Model, Precision, Predictor, SetShape, SetSource};
use crate::linalg::row_major;
use crate::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::str::FromStr;

/// What to fit.
#[derive(Clone, Debug, PartialEq)]
pub enum FitSpec {
    /// Frozen features in some precision.
    Frozen(MapSpec, Precision),
    /// A kernel.
    Kernel(KernelSpec),
}

/// What can be fitted, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `rfa`, `brfa`, `rfmlp`, `softmax`, `row-relu`: frozen features.
    Frozen(Model),
    /// `kernel-rfa`, `kernel-brfa`, `kernel-rfmlp`: those of a model with infinitely many heads.
    Kernel(Model),
}

impl Kind {
    /// All that there are.
    pub const ALL: [Self; 8] = [
        Self::Frozen(Model::Rfa),
        Self::Frozen(Model::Brfa),
        Self::Frozen(Model::Rfmlp),
        Self::Frozen(Model::Softmax),
        Self::Frozen(Model::RowRelu),
        Self::Kernel(Model::Rfa),
        Self::Kernel(Model::Brfa),
        Self::Kernel(Model::Rfmlp),
    ];

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Frozen(model) => model.name().to_owned(),
            Self::Kernel(model) => format!("kernel-{}", model.name()),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("give {}", Self::ALL.map(Self::name).join(", "));
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(unknown)
    }
}

/// A description of what to fit, unchecked.
#[derive(Clone, Debug)]
pub struct FitDescription {
    /// What.
    pub kind: Kind,
    /// Heads of frozen features.
    pub heads: usize,
    /// Seed of their weights.
    pub seed: u64,
    /// Mean of the weights (default: that of the model).
    pub mean: Option<Mean>,
    /// The β of softmax attention.
    pub inverse_temperature: f64,
    /// Neurons of `rfmlp` (default: as many trained numbers as the heads have).
    pub width: Option<usize>,
    /// Precision of frozen features.
    pub precision: Precision,
}

impl FitDescription {
    /// For sets of a shape, checked.
    pub fn check(self, shape: SetShape) -> Result<FitSpec> {
        let kernel = match (self.kind, self.mean) {
            (Kind::Frozen(model), mean) => {
                let mut map = MapSpec::new(model, shape.d, shape.keys, self.heads, self.seed);
                map.mean = mean.unwrap_or(map.mean);
                map.inverse_temperature = self.inverse_temperature;
                map.width = self.width;
                map.check()?;
                return Ok(FitSpec::Frozen(map, self.precision));
            }
            (Kind::Kernel(Model::Brfa), mean) => KernelSpec::Brfa { mean: mean.unwrap_or(Mean::Identity { scale: 1.0 }) },
            (Kind::Kernel(_), Some(_)) => {
                return Err(Error::input("mean", "this model's weights have none", "leave it out, or use kernel-brfa"));
            }
            (Kind::Kernel(Model::Rfa), None) => KernelSpec::Rfa,
            (Kind::Kernel(Model::Rfmlp), None) => KernelSpec::Rfmlp,
            (Kind::Kernel(model), None) => {
                return Err(Error::input("model", format!("{} has no kernel", model.name()), "use one that has"));
            }
        };
        Ok(FitSpec::Kernel(kernel))
    }
}

/// What a fit found.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The model.
    pub model: FittedModel,
    /// How it was solved.
    pub how: How,
}

/// How a fit was solved.
#[derive(Clone, Debug, Serialize)]
pub struct How {
    /// By which solver.
    pub solver: Solver,
    /// The ridge.
    pub lambda: f64,
    /// What chose it, if it was chosen.
    pub chosen_by: Option<Criterion>,
    /// Errors of all ridges tried.
    pub path: Vec<PathPoint>,
    /// Iterations of conjugate gradients.
    pub iterations: usize,
    /// Their relative residual in the end.
    pub residual: f64,
    /// Whether the accuracy asked for was reached.
    pub reached: bool,
    /// Seconds of every stage, in order.
    pub stages: Vec<(Stage, f64)>,
}

/// What is said where it was not.
pub const NOT_REACHED: &str =
    "conjugate gradients stopped short of their accuracy: give a larger ridge, or use the solver dual or gram";

impl FitSpec {
    /// Fits it to the targets of `data`.
    pub fn fit(
        &self,
        data: &dyn SetSource,
        options: &Options,
        checkpoint: Option<&Checkpoint>,
        watch: &dyn Watch,
    ) -> Result<Fitted> {
        match self {
            Self::Frozen(map, precision) => {
                let fit = match precision {
                    Precision::F32 => ridge::fit_with_checkpoint::<f32>(map.build()?.as_ref(), data, options, checkpoint, watch)?,
                    Precision::F64 => ridge::fit_with_checkpoint::<f64>(map.build()?.as_ref(), data, options, checkpoint, watch)?,
                };
                Ok(Fitted::frozen(fit, map, *precision, data.shape()))
            }
            Self::Kernel(kernel) => {
                let fit = ridge::fit_kernel(kernel, data, options, watch)?;
                let alpha = row_major(fit.a.as_ref());
                let predictor = Predictor::Kernel { kernel: kernel.clone(), sets: fit.sets.block().clone(), alpha };
                let model = FittedModel { predictor, intercept: fit.intercept, ridge: fit.lambda, shape: data.shape() };
                let how = How {
                    solver: Solver::Dual,
                    lambda: fit.lambda,
                    chosen_by: Criterion::of(&fit.path),
                    path: fit.path,
                    iterations: 0,
                    residual: 0.0,
                    reached: true,
                    stages: fit.seconds,
                };
                Ok(Fitted { model, how })
            }
        }
    }
}

impl Fitted {
    /// The model of frozen features.
    pub fn frozen(fit: Fit, map: &MapSpec, precision: Precision, shape: SetShape) -> Self {
        let predictor = Predictor::Frozen { map: map.clone(), v: row_major(fit.v.as_ref()), precision };
        let model = FittedModel { predictor, intercept: fit.intercept, ridge: fit.lambda, shape };
        let how = How {
            solver: fit.solver,
            lambda: fit.lambda,
            chosen_by: Criterion::of(&fit.path),
            path: fit.path,
            iterations: fit.iterations,
            residual: fit.residual,
            reached: fit.reached,
            stages: fit.seconds,
        };
        Self { model, how }
    }

    /// Where a model comes from, for the notes in its file.
    pub fn notes() -> BTreeMap<String, String> {
        BTreeMap::from([("producer".to_owned(), format!("attnlearn {}", env!("CARGO_PKG_VERSION")))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        assert!(Kind::ALL.into_iter().all(|kind| kind.name().parse() == Ok(kind)));
        assert!(["", "RFA", "kernel", "kernel-softmax"].iter().all(|bad| bad.parse::<Kind>().is_err()));
    }
}
