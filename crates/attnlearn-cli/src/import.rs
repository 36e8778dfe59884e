//! `attnlearn import`: a layer of a real transformer, in canonical form.

use crate::cli::Ending;
use crate::output;
use crate::output::Files;
use crate::session::Session;
use attnlearn::Result;
use attnlearn::layer::Mask;
use attnlearn::transformer::{Found, Imported, ModelFile, Request};
use attnlearn::words::quoted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is said of layers that no type confirms.
pub const UNCONFIRMED: &str =
    "no configuration names the type of model: of scores that are changed without a tensor there would be no sign";

/// Read an attention layer out of a transformer's checkpoint.
///
/// Knows the names of BERT, RoBERTa, MiniLM, ViT, DistilBERT, GPT-2 and torch.nn.MultiheadAttention. Scale and biases are folded into the
/// canonical form F(X) = Σ_i softmax(X Θ_i Xᵀ + 1 (X c_i)ᵀ) X W_i + bias, which is checked against a forward pass by all tensors of the
/// attention module. A layer whose scores have another form (rotated, biased by positions, windowed, normalised) is refused with the tensor
/// or setting that says so, and so are one with a tensor that is not used, one that may hide later tokens while nothing says whether it does, and a
/// model with code of its own. Such a tensor or setting speaks against every layer of a model, in whichever of its parts it stands. The number
/// of heads, the type of model and its settings are read from the config.json beside the file; without one the number of heads must be given.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn import model.safetensors --layer 1 -o layer.safetensors
  attnlearn import model.safetensors.index.json --layer 11 -o layer.safetensors
  attnlearn import mha.safetensors --heads 8 -o layer.safetensors")]
pub struct Args {
    /// The model: a .safetensors file, the .index.json of several, or their folder.
    model: PathBuf,
    /// Which layer, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer: usize,
    /// Where to write the layer (.safetensors).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Number of heads [default: what config.json says].
    #[arg(long, value_name = "M")]
    heads: Option<usize>,
    /// What stands before the names of the layer's tensors, where --layer is not enough.
    #[arg(long)]
    prefix: Option<String>,
    /// Whether a token attends to itself and those before it only [default: as usual for the model].
    #[arg(long, value_name = "BOOL")]
    causal: Option<bool>,
}

/// What has been checked.
pub struct Plan {
    imported: Imported,
    model: String,
    output: PathBuf,
}

/// What was read, as it stands in the JSON.
#[derive(Serialize)]
struct ImportReport<'a> {
    found: &'a Found,
    heads: usize,
    d: usize,
    d_out: usize,
    head_dim: usize,
    causal: bool,
    key_biases: bool,
    bias: bool,
    /// The tensors of the attention module; all of them were used.
    tensors: &'a [String],
    /// Largest difference from a forward pass by those tensors, over the largest output.
    gap: f64,
    /// Whether a configuration names a type of model whose attention is of this form.
    confirmed: bool,
    output: String,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read(ModelFile::files(&self.model)).write([&self.output])
    }

    /// Reads the layer and checks it against its tensors.
    pub fn check(self) -> Result<Plan> {
        let model = ModelFile::open(&self.model)?;
        output::writable_layer(&self.output)?;
        let request = Request { layer: self.layer, heads: self.heads, prefix: self.prefix, causal: self.causal };
        let imported = model.import(&request)?;
        Ok(Plan { imported, model: self.model.display().to_string(), output: self.output })
    }
}

impl Plan {
    /// Writes the layer.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let Imported { layer, projections, found, tensors, gap, confirmed } = &self.imported;
        let r = projections.head_dim();
        let notes = [("source", self.model.clone()), ("tensors", found.prefix.clone()), ("head_dim", r.to_string())];
        layer.save(&self.output, &BTreeMap::from(notes.map(|(key, value)| (key.to_owned(), value))))?;
        let report = ImportReport {
            found,
            heads: layer.heads().len(),
            d: layer.d(),
            d_out: layer.d_out(),
            head_dim: r,
            causal: layer.mask() == Mask::Causal,
            key_biases: layer.heads().iter().any(|head| head.key_bias.is_some()),
            bias: layer.bias().is_some(),
            tensors,
            gap: *gap,
            confirmed: *confirmed,
            output: self.output.display().to_string(),
        };
        let console = &session.console;
        let with = [(report.causal, "causal"), (report.key_biases, "key biases"), (report.bias, "output bias")];
        let with: Vec<&str> = with.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
        let extras = if with.is_empty() { String::new() } else { format!(" ({})", with.join(", ")) };
        console.say(format!("found {} with the names of {}", quoted(found.prefix.trim_end_matches('.')), found.family));
        console.say(format!("{} heads of dimension {r}, d = {}, d_out = {}{extras}", report.heads, report.d, report.d_out));
        let all = tensors.len();
        console.say(format!(
            "checked against a forward pass by all {all} tensors of it: largest difference {gap:.1e} of the largest output"
        ));
        if !confirmed {
            console.say(UNCONFIRMED);
        }
        console.say(format!("wrote {}", self.output.display()));
        session.publish("import", &report)?;
        Ok(Ending::Done)
    }
}
