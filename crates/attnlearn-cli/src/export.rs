//! `attnlearn export`: a layer as the weights of a transformer.

use crate::cli::Ending;
use crate::console::error;
use crate::output;
use crate::output::Files;
use crate::session::Session;
use attnlearn::files::write_atomically;
use attnlearn::layer::AttentionLayer;
use attnlearn::transformer::{Lost, Projections, ROUNDING, Style};
use attnlearn::{Error, Result};
use clap::ValueEnum;
use serde::Serialize;
use std::path::PathBuf;

/// Write a layer as query, key, value and output weights.
///
/// Attention matrices and projections are factored by their singular values. A head dimension that has no room for all of a head is refused,
/// with the least one that has; with --lossy the best approximation is written, and what every head lost is shown. Families other than
/// `factors` want heads that make up d: missing ones are added, silent.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn export layer.safetensors --head-dim 32 --to bert --layer 1 -o weights.safetensors
  attnlearn export layer.safetensors --head-dim 8 --to mha -o mha.safetensors
  attnlearn export layer.safetensors --head-dim 4 --lossy -o factors.safetensors")]
pub struct Args {
    /// Layer (.safetensors).
    layer: PathBuf,
    /// Dimension of a head.
    #[arg(long, value_name = "R")]
    head_dim: usize,
    /// Whose names and layout to write.
    #[arg(long, value_enum, default_value_t)]
    to: Family,
    /// The number of the layer in the names of its tensors.
    #[arg(long = "layer", value_name = "N", default_value_t = 0)]
    number: usize,
    /// Write even if the head dimension has no room for all of a head.
    #[arg(long)]
    lossy: bool,
    /// Where to write the weights (.safetensors).
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

/// Families by name.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Family {
    /// Plain factors q, k, v [m, d, r], o [m, r, d_out], q_bias [m, r], bias [d_out].
    #[default]
    Factors,
    /// BERT, RoBERTa, MiniLM.
    Bert,
    /// ViT.
    Vit,
    /// DistilBERT.
    Distilbert,
    /// GPT-2.
    Gpt2,
    /// The state of a torch.nn.MultiheadAttention.
    Mha,
}

impl From<Family> for Style {
    fn from(family: Family) -> Self {
        match family {
            Family::Factors => Self::Factors,
            Family::Bert => Self::Bert,
            Family::Vit => Self::Vit,
            Family::Distilbert => Self::DistilBert,
            Family::Gpt2 => Self::Gpt2,
            Family::Mha => Self::Mha,
        }
    }
}

/// What has been checked.
pub struct Plan {
    bytes: Vec<u8>,
    lost: Vec<Lost>,
    style: Style,
    head_dim: usize,
    output: PathBuf,
}

/// What was written, as it stands in the JSON.
#[derive(Serialize)]
struct ExportReport<'a> {
    style: Style,
    head_dim: usize,
    /// What every head lost for want of dimensions: relative errors in the Frobenius norm.
    lost: &'a [Lost],
    /// The largest of them.
    worst: f64,
    /// Whether that is more than rounding.
    lossy: bool,
    output: String,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.layer]).write([&self.output])
    }

    /// Factors the layer.
    pub fn check(self) -> Result<Plan> {
        let layer = AttentionLayer::load(&self.layer)?;
        output::writable_layer(&self.output)?;
        let (projections, lost) = Projections::unfold(&layer, self.head_dim)?;
        let style = self.to.into();
        let bytes = projections.to_bytes(style, self.number)?;
        if !self.lossy {
            refuse_loss(&layer, &lost, style, self.head_dim)?;
        }
        Ok(Plan { bytes, lost, style, head_dim: self.head_dim, output: self.output })
    }
}

/// Refuses a head dimension at which more is lost than rounding.
fn refuse_loss(layer: &AttentionLayer, lost: &[Lost], style: Style, head_dim: usize) -> Result<()> {
    let worst = lost.iter().enumerate().max_by(|(_, a), (_, b)| a.worst().total_cmp(&b.worst()));
    let Some((h, lost)) = worst.filter(|(_, lost)| lost.worst() > ROUNDING) else { return Ok(()) };
    if !lost.worst().is_finite() {
        let problem = format!("what is lost of {} of head {} cannot be measured", lost.what(), h + 1);
        return Err(Error::input("--head-dim", problem, "scale the layer down: its numbers are near the largest there are"));
    }
    let share = match 100.0 * lost.worst() {
        share if share >= 0.1 => format!("{share:.1} %"),
        share => format!("{share:.0e} %"),
    };
    let problem = format!("{head_dim} has no room for {share} of {} of head {}", lost.what(), h + 1);
    let remedy = match Projections::head_dim_for(layer, style)? {
        Some(r) => format!("give --head-dim {r}, or --lossy to write what there is room for"),
        None => "no head dimension of that family has room for this layer: export plain factors, or give --lossy".into(),
    };
    Err(Error::input("--head-dim", problem, remedy))
}

impl Plan {
    /// Writes the weights.
    pub fn run(self, session: &Session) -> Result<Ending> {
        write_atomically(&self.output, &self.bytes)?;
        let rows: Vec<[String; 4]> = self
            .lost
            .iter()
            .enumerate()
            .map(|(i, lost)| [format!("head {}", i + 1), error(lost.theta), error(lost.key_bias), error(lost.w)])
            .collect();
        let worst = self.lost.iter().map(Lost::worst).fold(0.0, f64::max);
        session.console.say(format!("largest relative error of a head: {worst:.1e}"));
        if worst > ROUNDING {
            session.console.say("this is not the layer but an approximation of it, as --lossy asks for:");
            session.console.table(["", "Θ lost", "c lost", "W lost"], &rows);
        }
        session.console.say(format!("wrote {}", self.output.display()));
        let report = ExportReport {
            style: self.style,
            head_dim: self.head_dim,
            lost: &self.lost,
            worst,
            lossy: worst > ROUNDING,
            output: self.output.display().to_string(),
        };
        session.publish("export", &report)?;
        Ok(Ending::Done)
    }
}
