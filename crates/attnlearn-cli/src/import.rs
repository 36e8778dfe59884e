//! `attnlearn import`: a layer of a real transformer, in canonical form.

use crate::cli::Ending;
use crate::output;
use crate::output::Files;
use crate::session::Session;
use attnlearn::Result;
use attnlearn::layer::{AttentionLayer, Mask};
use attnlearn::transformer::{Found, ModelFile, Projections, Request};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Read an attention layer out of a transformer's checkpoint.
///
/// Knows the names of BERT, RoBERTa, MiniLM, ViT, DistilBERT, GPT-2 and torch.nn.MultiheadAttention. Scale and biases are folded into the
/// canonical form F(X) = Σ_i softmax(X Θ_i Xᵀ + 1 (X c_i)ᵀ) X W_i + bias, which is checked against a forward pass computed from the
/// original tensors. The number of heads is read from the config.json beside the file, unless it is given.
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
    projections: Projections,
    found: Found,
    layer: AttentionLayer,
    gap: f64,
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
    /// Largest difference from a forward pass by the original tensors, over the largest output.
    gap: f64,
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
        let (layer, projections, found) = model.import(&request)?;
        let (gap, place) = (projections.gap(&layer), self.model.display().to_string());
        Ok(Plan { projections, found, layer, gap, model: place, output: self.output })
    }
}

impl Plan {
    /// Writes the layer.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let (layer, found, r) = (&self.layer, &self.found, self.projections.head_dim());
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
            gap: self.gap,
            output: self.output.display().to_string(),
        };
        let console = &session.console;
        let with = [(report.causal, "causal"), (report.key_biases, "key biases"), (report.bias, "output bias")];
        let with: Vec<&str> = with.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
        let extras = if with.is_empty() { String::new() } else { format!(" ({})", with.join(", ")) };
        console.say(format!("found {} with the names of {}", found.prefix.trim_end_matches('.'), found.family));
        console.say(format!("{} heads of dimension {r}, d = {}, d_out = {}{extras}", report.heads, report.d, report.d_out));
        console.say(format!("checked against the original tensors: largest difference {:.1e} of the largest output", self.gap));
        console.say(format!("wrote {}", self.output.display()));
        session.publish("import", &report)?;
        Ok(Ending::Done)
    }
}
