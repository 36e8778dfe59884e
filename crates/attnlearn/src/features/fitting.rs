//! From a description of what to fit to a model that predicts, whatever is fitted.

use super::ridge::{self, Checkpoint, Criterion, Fit, Options, PathPoint, Solver, Stage, Watch};
use super::{FittedModel, KernelSpec, MapSpec, Precision, Predictor, SetShape, SetSource};
use crate::Result;
use crate::linalg::row_major;
use serde::Serialize;
use std::collections::BTreeMap;

/// What to fit.
#[derive(Clone, Debug, PartialEq)]
pub enum FitSpec {
    /// Frozen features in some precision.
    Frozen(MapSpec, Precision),
    /// A kernel.
    Kernel(KernelSpec),
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
    "conjugate gradients stopped short of their accuracy: give a larger ridge, or use --solver dual or gram";

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
