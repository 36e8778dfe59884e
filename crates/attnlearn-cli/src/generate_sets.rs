//! `attnlearn generate --target`: sets with the values of a target function, for `attnlearn fit`.

use crate::cli::Ending;
use crate::console::grouped;
use crate::session::Session;
use crate::sets::each_block;
use crate::values::{self, Inputs};
use attnlearn::features::{
    SetColumns, SetInputs, SetShape, SetSource, SetStream, SetWriter, Target, TargetSpec, Tokens, check_sets_size,
};
use attnlearn::files::{Dtype, FileFormat};
use attnlearn::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

/// The flags that `--target` brings with it.
#[derive(clap::Args, Debug)]
pub struct SetFlags {
    /// Draw sets with this target instead of examples of a layer: query:p=, average:p=, correlation:p=,q=[,s=rotation],
    /// softmax:scale= or mixed:gamma=,simple=…,hard=….
    #[arg(long, value_name = "TARGET", help_heading = "Sets")]
    #[arg(conflicts_with_all = ["k", "layer", "layer_out", "d_out", "heads", "norm", "family", "cosine", "singular_values", "causal"])]
    pub target: Option<TargetSpec>,
    /// Keys of a set.
    #[arg(long, default_value_t = 16, requires = "target", help_heading = "Sets")]
    keys: usize,
    /// The fewest keys of a set; lengths are then uniform, and stored [default: all have --keys].
    #[arg(long, requires = "target", help_heading = "Sets")]
    min_keys: Option<usize>,
    /// Standard deviation of the noise; targets have standard deviation 1.
    #[arg(long, default_value_t = 0.0, value_parser = values::magnitude, requires = "target", help_heading = "Sets")]
    noise: f64,
    /// Seed of the target, so that files of different --seed share it.
    #[arg(long, default_value_t = 0, requires = "target", help_heading = "Sets")]
    target_seed: u64,
}

/// What has been checked.
pub struct Plan {
    output: PathBuf,
    stream: SetStream,
    columns: SetColumns,
    settings: Settings,
}

#[derive(Serialize)]
struct Settings {
    examples: u64,
    target: String,
    inputs: SetInputs,
    noise: f64,
    seed: u64,
    target_seed: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    settings: &'a Settings,
    /// Variance of the target before it was scaled to 1.
    variance: f64,
    output: String,
}

/// What the flags of `generate` say of the inputs and the file.
pub struct Common {
    pub output: PathBuf,
    pub examples: u64,
    pub inputs: Option<Inputs>,
    pub seed: u64,
    pub x_dtype: Dtype,
    pub y_dtype: Dtype,
    pub d: usize,
}

impl SetFlags {
    /// Draws the target, and checks the rest.
    pub fn check(&self, spec: &TargetSpec, common: Common) -> Result<Plan> {
        let tokens = match common.inputs {
            None | Some(Inputs::Sphere) => Tokens::Sphere,
            Some(Inputs::Gaussian) => Tokens::Gaussian,
            Some(Inputs::Boolean) => {
                return Err(Error::input("--inputs", "sets are not drawn as boolean", "use sphere or gaussian"));
            }
        };
        if common.x_dtype == Dtype::I8 {
            return Err(Error::input("--x-dtype", "i8 holds nothing but inputs of ±1", "use f32 or f64 for sets"));
        }
        let inputs = SetInputs { tokens, d: common.d, keys: self.keys, min_keys: self.min_keys.unwrap_or(self.keys) };
        inputs.check()?;
        check_sets_size(SetShape { keys: inputs.keys, d: inputs.d, targets: 1 }, common.examples, "--keys, --d")?;
        let target = Target::new(spec, inputs, self.target_seed)?;
        FileFormat::of_name(&common.output)?;
        let stream = SetStream::new(target, common.seed, common.examples).with_noise(self.noise)?;
        let columns =
            SetColumns { x: Some(common.x_dtype), y: Some(common.y_dtype), length: inputs.min_keys < inputs.keys, weight: false };
        let settings = Settings {
            examples: common.examples,
            target: spec.to_string(),
            inputs,
            noise: self.noise,
            seed: common.seed,
            target_seed: self.target_seed,
        };
        Ok(Plan { output: common.output, stream, columns, settings })
    }
}

impl Plan {
    /// Draws and writes.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let mut writer = SetWriter::create(&self.output, self.stream.shape(), self.settings.examples, self.columns)?;
        {
            let bar = session.bar(self.settings.examples, "sets");
            each_block(&self.stream, &bar, |block| writer.append(block))?;
        }
        writer.finish()?;
        let console = &session.console;
        let variance = self.stream.target().variance();
        console.say(format!("target: {} (variance {variance:.3e}, scaled to 1)", self.settings.target));
        console.say(format!("wrote {}: {} sets", self.output.display(), grouped(self.settings.examples)));
        session.publish("generate", &Report { settings: &self.settings, variance, output: self.output.display().to_string() })?;
        Ok(Ending::Done)
    }
}
