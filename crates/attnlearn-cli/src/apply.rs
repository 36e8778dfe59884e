//! `attnlearn apply`: the outputs of a layer on inputs in a file.

use crate::blocks;
use crate::cli::Ending;
use crate::console::grouped;
use crate::output::Files;
use crate::session::Session;
use crate::values::{self, Float};
use attnlearn::Result;
use attnlearn::data::{Columns, ExampleWriter, InputFile, Shape, check_size};
use attnlearn::files::{Dtype, FileFormat};
use attnlearn::layer::{AttentionLayer, Evaluator};
use serde::Serialize;
use std::path::PathBuf;

/// Apply a layer to the inputs of a file.
///
/// Reads x [n, k, d] and writes y = F(x) [n, k, d_out]. Other tensors of the input file are left alone.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn apply layer.safetensors inputs.npz -o outputs.npz
  attnlearn apply layer.safetensors inputs.npz -o examples.safetensors --with-inputs
  attnlearn apply layer.safetensors inputs.safetensors -o outputs.npz --dtype f32")]
pub struct Args {
    /// Layer (.safetensors).
    layer: PathBuf,
    /// Inputs (.safetensors or .npz); a file of examples will do.
    inputs: PathBuf,
    /// Where to write the outputs (.safetensors or .npz).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Number format of y.
    #[arg(long, value_enum, default_value_t)]
    dtype: Float,
    /// Write x next to y (as f64): a file of examples.
    #[arg(long)]
    with_inputs: bool,
}

/// What has been checked.
pub struct Plan {
    layer: AttentionLayer,
    inputs: InputFile,
    shape: Shape,
    output: PathBuf,
    settings: ApplySettings,
}

#[derive(Serialize)]
struct ApplySettings {
    y_dtype: Dtype,
    with_inputs: bool,
}

/// What was done, as it stands in the JSON.
#[derive(Serialize)]
struct ApplyReport<'a> {
    settings: &'a ApplySettings,
    shape: Shape,
    n: u64,
    output: String,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.layer, &self.inputs]).write([&self.output])
    }

    /// Opens both files.
    pub fn check(self) -> Result<Plan> {
        let layer = AttentionLayer::load(&self.layer)?;
        let inputs = InputFile::open(&self.inputs)?;
        let place = self.inputs.display().to_string();
        values::same_dimension(&layer, inputs.d(), &place)?;
        let shape = Shape { k: inputs.k(), d: layer.d(), d_out: layer.d_out() };
        check_size(shape, Some(inputs.n() as u64), &place)?;
        FileFormat::of_name(&self.output)?;
        let settings = ApplySettings { y_dtype: self.dtype.into(), with_inputs: self.with_inputs };
        Ok(Plan { layer, inputs, shape, output: self.output, settings })
    }
}

impl Plan {
    /// Applies.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let n = self.inputs.n() as u64;
        let columns = Columns { x: self.settings.with_inputs.then_some(Dtype::F64), y: Some(self.settings.y_dtype) };
        let writer = ExampleWriter::create(&self.output, self.shape, n, columns)?;
        let evaluator = Evaluator::<f64>::new(&self.layer);
        blocks::write(writer, n, self.shape, session.bar(n, "sequences"), |index, block| {
            self.inputs.fill(index, block)?;
            evaluator.outputs(block);
            Ok(())
        })?;
        session.console.say(format!("wrote {}: outputs of {} sequences", self.output.display(), grouped(n)));
        let report = ApplyReport { settings: &self.settings, shape: self.shape, n, output: self.output.display().to_string() };
        session.publish("apply", &report)?;
        Ok(Ending::Done)
    }
}
