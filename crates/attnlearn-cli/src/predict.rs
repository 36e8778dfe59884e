//! `attnlearn predict`: what a fitted model makes of sets.

use crate::cli::Ending;
use crate::console::grouped;
use crate::output;
use crate::output::Files;
use crate::session::Session;
use crate::sets::each_block;
use crate::values::Float;
use attnlearn::Result;
use attnlearn::features::{FittedModel, SetBlock, SetColumns, SetShape, SetSource, SetWriter, Targets, open_sets};
use attnlearn::files::FileFormat;
use serde::Serialize;
use std::path::PathBuf;

/// Predict the targets of sets with a fitted model.
///
/// The file gets y [n], or [n, t] if the model has several targets, in the order of the sets.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn predict model.safetensors new.npz -o predictions.npz
  attnlearn predict model.safetensors new.parquet -o predictions.safetensors --dtype f32")]
pub struct Args {
    /// Model, from `attnlearn fit` (.safetensors).
    model: PathBuf,
    /// Sets (.safetensors, .npz or .parquet); targets are not looked at.
    data: PathBuf,
    /// Where to write the predictions (.safetensors or .npz).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Number format of the predictions.
    #[arg(long, value_enum, default_value_t)]
    dtype: Float,
}

/// What has been checked.
pub struct Plan {
    model: FittedModel,
    data: Box<dyn SetSource>,
    output: PathBuf,
    dtype: Float,
}

#[derive(Serialize)]
struct PredictReport {
    examples: u64,
    targets: usize,
    output: String,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.model, &self.data]).write([&self.output])
    }

    /// Opens both files.
    pub fn check(self) -> Result<Plan> {
        let model = FittedModel::load(&self.model)?;
        let data = open_sets(&self.data, Targets::Ignored)?;
        model.check_sets(data.shape(), &self.data.display().to_string())?;
        FileFormat::of_name(&self.output)?;
        output::writable(&self.output)?;
        Ok(Plan { model, data, output: self.output, dtype: self.dtype })
    }
}

impl Plan {
    /// Predicts.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let (n, targets) = (self.data.len(), self.model.intercept.len());
        let shape = SetShape { targets, ..self.data.shape() };
        let columns = SetColumns { x: None, y: Some(self.dtype.into()), length: false, weight: false };
        let mut writer = SetWriter::create(&self.output, shape, n, columns)?;
        let prediction = self.model.prepare()?;
        {
            let bar = session.bar(n, "sets");
            each_block(self.data.as_ref(), &bar, |block| {
                let y = prediction.predict(block)?;
                // Nothing else of it is written.
                writer.append(&SetBlock { shape, x: Vec::new(), lengths: block.lengths.clone(), y, weights: Vec::new() })
            })?;
        }
        writer.finish()?;
        session.console.say(format!("wrote {}: {} predictions", self.output.display(), grouped(n)));
        session.publish("predict", &PredictReport { examples: n, targets, output: self.output.display().to_string() })?;
        Ok(Ending::Done)
    }
}
