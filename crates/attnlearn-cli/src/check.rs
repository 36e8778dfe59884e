//! `attnlearn check`: how well a layer, or every layer of a model, meets the conditions of the theory.

use crate::cli::Ending;
use crate::console::{Console, error};
use crate::output::Files;
use crate::session::Session;
use attnlearn::degeneracy::{Condition, Conditions, Verdict};
use attnlearn::layer::AttentionLayer;
use attnlearn::transformer::{ModelFile, Request};
use attnlearn::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Measure the non-degeneracy conditions of a layer, or of all layers of a model.
///
/// Shows how each condition is met (met, weak, fails) and what that means for learning the layer from examples. For a transformer's
/// checkpoint there is a row for every layer.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn check layer.safetensors
  attnlearn check layer.safetensors --k 8 --json conditions.json
  attnlearn check model.safetensors --heads 12")]
pub struct Args {
    /// A layer, or a model as for `attnlearn import`.
    file: PathBuf,
    /// Tokens of a sequence: more of them ask for sharper heads.
    #[arg(long, value_name = "K", default_value_t = 8)]
    k: usize,
    /// Number of heads of a model [default: what its config.json says].
    #[arg(long, value_name = "M")]
    heads: Option<usize>,
}

/// What has been checked.
pub struct Plan {
    layers: Vec<(String, AttentionLayer)>,
    k: usize,
}

/// One layer, as it stands in the JSON.
#[derive(Serialize)]
struct LayerReport<'a> {
    layer: &'a str,
    verdict: Verdict,
    #[serde(flatten)]
    conditions: &'a Conditions,
}

#[derive(Serialize)]
struct CheckReport<'a> {
    k: usize,
    layers: Vec<LayerReport<'a>>,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read(ModelFile::files(&self.file))
    }

    /// Reads the layers.
    pub fn check(self) -> Result<Plan> {
        if self.k == 0 {
            return Err(Error::input("--k", "sequences of no tokens", "give at least 1"));
        }
        let layer = if self.file.is_dir() { None } else { Some(AttentionLayer::load(&self.file)) };
        let layers = match layer {
            Some(Ok(layer)) => vec![(self.file.display().to_string(), layer)],
            refused => {
                let model = ModelFile::open(&self.file)?;
                let found = model.layers();
                if let (true, Some(Err(e))) = (found.is_empty() && !model.is_foreign(), refused) {
                    return Err(e);
                }
                let mut layers = Vec::new();
                for prefix in found.iter().map(|found| &found.prefix) {
                    let request = Request { heads: self.heads, prefix: Some(prefix.clone()), ..Request::default() };
                    layers.push((prefix.trim_end_matches('.').to_owned(), model.import(&request)?.layer));
                }
                if layers.is_empty() {
                    // Says what was found and what was expected.
                    model.attention(&Request::default())?;
                }
                layers
            }
        };
        Ok(Plan { layers, k: self.k })
    }
}

impl Plan {
    /// Measures.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let measured: Vec<Conditions> =
            self.layers.iter().map(|(_, layer)| Conditions::of(layer, self.k)).collect::<Result<_>>()?;
        let console = &session.console;
        if let ([(_, layer)], [conditions]) = (&self.layers[..], &measured[..]) {
            one(console, layer, conditions);
        } else {
            all(console, &self.layers, &measured);
        }
        let layers = self.layers.iter().zip(&measured);
        let layers = layers.map(|((name, _), conditions)| LayerReport { layer: name, verdict: conditions.verdict(), conditions });
        session.publish("check", &CheckReport { k: self.k, layers: layers.collect() })?;
        Ok(Ending::Done)
    }
}

fn word(console: &Console, verdict: Verdict) -> String {
    match verdict {
        Verdict::Met => console.good("met"),
        Verdict::Weak => "weak".into(),
        Verdict::Fails => console.bad("fails"),
    }
}

fn value(condition: &Condition) -> String {
    match condition.value {
        Some(v) if (0.01..1000.0).contains(&v) => format!("{v:.3}"),
        v => error(v),
    }
}

fn one(console: &Console, layer: &AttentionLayer, conditions: &Conditions) {
    console.say(format!("{} heads, d = {}, d_out = {}", layer.heads().len(), layer.d(), layer.d_out()));
    let rows: Vec<[String; 6]> = conditions
        .heads
        .iter()
        .enumerate()
        .map(|(i, head)| {
            [
                format!("head {}", i + 1),
                format!("{:.3}", head.theta_norm),
                head.theta_rank.to_string(),
                format!("{:.2}", head.effective_rank),
                format!("{:.3}", head.w_norm),
                head.w_rank.to_string(),
            ]
        })
        .collect();
    console.table(["", "‖Θ‖_F", "rank", "effective rank", "‖W‖_F", "rank of W"], &rows);
    let all = &conditions.conditions;
    let rows: Vec<[String; 3]> = all.iter().map(|c| [c.name.into(), value(c), word(console, c.verdict)]).collect();
    console.table(["condition", "value", ""], &rows);
    for condition in all.iter().filter(|c| c.verdict != Verdict::Met) {
        console.say(format!("{}: {}", condition.name, condition.meaning));
    }
    if conditions.verdict() == Verdict::Met {
        console.say("every condition is met: nothing stands in the way of learning this layer from random examples");
    }
}

fn all(console: &Console, layers: &[(String, AttentionLayer)], measured: &[Conditions]) {
    let rows: Vec<[String; 9]> = layers
        .iter()
        .zip(measured)
        .map(|((name, layer), conditions)| {
            let of = |name: &str| conditions.conditions.iter().find(|c| c.name == name).map_or("–".into(), value);
            let norms = conditions.heads.iter().map(|head| head.theta_norm);
            let (low, high) = norms.fold((f64::MAX, 0.0_f64), |(low, high), norm| (low.min(norm), high.max(norm)));
            let wanting: Vec<&str> = conditions.conditions.iter().filter(|c| c.verdict != Verdict::Met).map(|c| c.name).collect();
            [
                name.clone(),
                layer.heads().len().to_string(),
                format!("{low:.2} to {high:.2}"),
                of("effective rank"),
                of("separation"),
                of("independence"),
                of("sum of projections"),
                of("incoherence"),
                if wanting.is_empty() { "met".into() } else { wanting.join(", ") },
            ]
        })
        .collect();
    let header =
        ["layer", "heads", "‖Θ‖_F", "effective rank", "separation", "independence", "Σ W", "incoherence", "weak or failing"];
    console.table(header, &rows);
}
