//! `attnlearn score`: the error of a fitted model on sets with targets.

use crate::cli::Ending;
use crate::output::Files;
use crate::session::Session;
use crate::sets::each_block;
use attnlearn::features::{FittedModel, Score, Scores, SetSource, Targets, open_sets};
use attnlearn::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Score a fitted model on sets with targets: MSE, MSE/Var and R², with standard errors.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn score model.safetensors test.npz
  attnlearn score model.safetensors test.npz --quiet --json -")]
pub struct Args {
    /// Model, from `attnlearn fit` (.safetensors).
    model: PathBuf,
    /// Sets with targets (.safetensors, .npz or .parquet).
    data: PathBuf,
}

/// What has been checked.
pub struct Plan {
    model: FittedModel,
    data: Box<dyn SetSource>,
}

#[derive(Serialize)]
struct ScoreReport<'a> {
    examples: u64,
    targets: &'a [Score],
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.model, &self.data])
    }

    /// Opens both files.
    pub fn check(self) -> Result<Plan> {
        let model = FittedModel::load(&self.model)?;
        let data = open_sets(&self.data, Targets::Required)?;
        let place = self.data.display().to_string();
        model.check_sets(data.shape(), &place)?;
        let (found, wanted) = (data.shape().targets, model.intercept.len());
        if found != wanted {
            let problem = format!("has {found} targets a set, the model predicts {wanted}");
            return Err(Error::input(place, problem, "give the targets that the model was fitted on"));
        }
        Ok(Plan { model, data })
    }
}

impl Plan {
    /// Scores.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let prediction = self.model.prepare()?;
        let mut scores = Scores::new(self.model.intercept.len());
        {
            let bar = session.bar(self.data.len(), "sets");
            each_block(self.data.as_ref(), &bar, |block| {
                scores.add(&block.y, &prediction.predict(block)?, &block.weights);
                Ok(())
            })?;
        }
        let targets = scores.finish()?;
        let with_error = |value: f64, error: f64| format!("{value:.4e} ± {error:.1e}");
        let rows = targets.iter().enumerate().map(|(t, s)| {
            [
                format!("y{t}"),
                s.n.to_string(),
                with_error(s.mse, s.mse_se),
                with_error(s.nmse, s.nmse_se),
                format!("{:.6} ± {:.1e}", s.r2, s.nmse_se),
            ]
        });
        session.console.table(["target", "sets", "MSE", "MSE/Var", "R²"], &rows.collect::<Vec<_>>());
        session.publish("score", &ScoreReport { examples: self.data.len(), targets: &targets })?;
        Ok(Ending::Done)
    }
}
