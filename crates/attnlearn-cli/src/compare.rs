//! `attnlearn compare`: how far a layer is from a reference.

use crate::cli::Ending;
use crate::console::{Console, error, grouped, number, plural};
use crate::errors::{Comparison, SAME_HEAD};
use crate::output::Files;
use crate::report::describe;
use crate::session::Session;
use crate::values::{self, Inputs};
use attnlearn::data::{InputDistribution, Shape, check_size};
use attnlearn::layer::{AttentionLayer, Canonical, LayerDistance};
use attnlearn::teacher::FunctionalError;
use attnlearn::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Compare a layer with a reference, head by head and as functions.
///
/// Both are brought into canonical form (heads that attend alike merged, dead heads dropped, a fixed order), then heads
/// are matched at least cost. Errors are relative to the reference.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn compare teacher.safetensors layer.safetensors
  attnlearn compare teacher.safetensors layer.safetensors --inputs gaussian --k 6 --examples 1e6
  attnlearn compare teacher.safetensors layer.safetensors --quiet --json - | jq .distance.heads")]
pub struct Args {
    /// Reference layer (.safetensors).
    reference: PathBuf,
    /// The layer to measure (.safetensors).
    layer: PathBuf,
    /// Heads closer than this, relatively, count as one head, and weaker ones as none.
    #[arg(long, default_value_t = SAME_HEAD, value_parser = values::magnitude)]
    tolerance: f64,
    /// Distribution of the inputs on which the functions are compared.
    #[arg(long, value_enum, default_value_t, help_heading = "Functional error")]
    inputs: Inputs,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 4, help_heading = "Functional error")]
    k: usize,
    /// How many sequences.
    #[arg(long, short = 'n', value_name = "N", default_value = "1e5", value_parser = values::count)]
    #[arg(help_heading = "Functional error")]
    examples: u64,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 0, help_heading = "Functional error")]
    seed: u64,
}

/// Heads up to which every pair is looked at in reasonable time and memory.
const MOST_HEADS: usize = 2048;

/// What has been checked.
pub struct Plan {
    reference: AttentionLayer,
    layer: AttentionLayer,
    settings: CompareSettings,
}

#[derive(Serialize)]
struct CompareSettings {
    tolerance: f64,
    inputs: InputDistribution,
    k: usize,
    examples: u64,
    seed: u64,
}

/// What was found, as it stands in the JSON.
#[derive(Serialize)]
struct CompareReport<'a> {
    seed: u64,
    settings: &'a CompareSettings,
    reference: CanonicalReport,
    layer: CanonicalReport,
    distance: &'a LayerDistance,
    worst_theta: Option<f64>,
    worst_w: Option<f64>,
    functional_error: FunctionalError,
}

/// How a layer was brought into canonical form; heads are counted from 0.
#[derive(Serialize)]
struct CanonicalReport {
    heads: usize,
    heads_in_file: usize,
    merged: Vec<Vec<usize>>,
    dropped: Vec<usize>,
}

impl CanonicalReport {
    fn of(canonical: &Canonical, original: &AttentionLayer) -> Self {
        Self {
            heads: canonical.layer.heads().len(),
            heads_in_file: original.heads().len(),
            merged: canonical.merged.clone(),
            dropped: canonical.dropped.clone(),
        }
    }
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.reference, &self.layer])
    }

    /// Reads both layers.
    pub fn check(self) -> Result<Plan> {
        let (reference, layer) = (AttentionLayer::load(&self.reference)?, AttentionLayer::load(&self.layer)?);
        for (layer, path) in [(&reference, &self.reference), (&layer, &self.layer)] {
            let heads = layer.heads().len();
            if heads > MOST_HEADS {
                let place = path.display().to_string();
                return Err(Error::input(
                    place,
                    format!("{heads} heads"),
                    format!("layers of up to {MOST_HEADS} can be compared"),
                ));
            }
        }
        check_size(Shape { k: self.k, d: reference.d(), d_out: reference.d_out() }, Some(self.examples), "--k")?;
        let settings = CompareSettings {
            tolerance: self.tolerance,
            inputs: self.inputs.into(),
            k: self.k,
            examples: self.examples,
            seed: self.seed,
        };
        Ok(Plan { reference, layer, settings })
    }
}

impl Plan {
    /// Compares.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let (console, settings) = (&session.console, &self.settings);
        let comparison = Comparison::new(&self.reference, &self.layer, settings.tolerance, settings.k)?;
        let functional = {
            let bar = session.bar(settings.examples, "sequences");
            let (k, inputs, n, seed) = (settings.k, settings.inputs, settings.examples, settings.seed);
            self.reference.functional_error(&self.layer, k, inputs, n, seed, &bar)?
        };

        say_canonical(console, "reference", &self.reference, &comparison.reference);
        say_canonical(console, "layer", &self.layer, &comparison.other);
        console.heading("Relative error of every head");
        // Heads are called by their place in the file, merged ones by all of theirs.
        let name = |origin: &[usize]| origin.iter().map(|i| (i + 1).to_string()).collect::<Vec<_>>().join("+");
        let (ours, theirs) = (&comparison.reference.merged, &comparison.other.merged);
        let heads = |i: usize, j: usize| format!("{} ↔ {}", name(&ours[i]), name(&theirs[j]));
        let rows: Vec<[String; 5]> = comparison
            .distance
            .heads
            .iter()
            .map(|h| [heads(h.reference, h.other), error(h.theta), error(h.key_bias), error(h.w), number(h.cost)])
            .collect();
        console.table(["heads", "Θ", "c", "W", "cost"], &rows);
        comparison.say_unmatched(console);
        console.say(format!("  output bias {}", error(comparison.distance.bias)));
        console.heading("As functions");
        console.say(format!(
            "  NMSE {}   MSE {}   largest error {}   ({} sequences, k = {}, {} inputs)",
            error(functional.nmse),
            error(functional.mse),
            error(functional.max_error),
            grouped(functional.n),
            settings.k,
            format!("{:?}", settings.inputs).to_lowercase(),
        ));
        let finite = |v: f64| v.is_finite().then_some(v);
        session.publish(
            "compare",
            &CompareReport {
                seed: settings.seed,
                settings,
                reference: CanonicalReport::of(&comparison.reference, &self.reference),
                layer: CanonicalReport::of(&comparison.other, &self.layer),
                distance: &comparison.distance,
                worst_theta: finite(comparison.distance.worst_theta()),
                worst_w: finite(comparison.distance.worst_w()),
                functional_error: functional,
            },
        )?;
        Ok(Ending::Done)
    }
}

fn say_canonical(console: &Console, what: &str, original: &AttentionLayer, canonical: &Canonical) {
    let merged = canonical.merged.iter().filter(|origin| origin.len() > 1).map(|origin| origin.len()).sum::<usize>();
    let mut changes = Vec::new();
    if merged > 0 {
        changes.push(format!("{} merged", plural(merged, "head")));
    }
    if !canonical.dropped.is_empty() {
        changes.push(format!("{} dropped", plural(canonical.dropped.len(), "head")));
    }
    let changes = if changes.is_empty() { String::new() } else { format!(" ({} in canonical form)", changes.join(", ")) };
    console.say(format!("{what:<10} {}{changes}", describe(original)));
}
