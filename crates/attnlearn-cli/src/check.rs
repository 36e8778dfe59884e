//! `attnlearn check`: how well a layer, or every layer of a model, meets the conditions of the theory.

use crate::cli::Ending;
use crate::console::{Console, error};
use crate::import::UNCONFIRMED;
use crate::output::Files;
use crate::session::Session;
use crate::values;
use attnlearn::degeneracy::{Condition, Conditions, Verdict};
use attnlearn::layer::AttentionLayer;
use attnlearn::transformer::{ModelFile, Request};
use attnlearn::words::quoted;
use attnlearn::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Measure the non-degeneracy conditions of a layer, or of all layers of a model.
///
/// Shows how each condition is met (met, weak, fails) and what that means for learning the layer from examples. For a transformer's
/// checkpoint there is a row for every layer; layers that `attnlearn import` would refuse are named with the reason, and if there are any the
/// exit code is 1.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn check layer.safetensors
  attnlearn check layer.safetensors --k 8 --json conditions.json
  attnlearn check model.safetensors --heads 12
  attnlearn check clip.safetensors --heads 8 --prefix transformer. --causal true")]
pub struct Args {
    /// A layer, or a model as for `attnlearn import`.
    file: PathBuf,
    /// Tokens of a sequence: more of them ask for sharper heads.
    #[arg(long, value_name = "K", default_value_t = 8)]
    k: usize,
    /// Number of heads of a model [default: what its config.json says].
    #[arg(long, value_name = "M")]
    heads: Option<usize>,
    /// Only the layers of a model whose tensors' names begin like this.
    #[arg(long)]
    prefix: Option<String>,
    /// Whether a token attends to itself and those before it only, in all layers that are measured [default: as usual for the model].
    #[arg(long, value_name = "BOOL")]
    causal: Option<bool>,
}

/// What has been checked.
pub struct Plan {
    layers: Vec<(String, AttentionLayer)>,
    /// Those that are not held, and why.
    refused: Vec<Refused>,
    /// Whether a configuration names a type that is held for all of them; nothing of a file that has one layer and no model.
    confirmed: Option<bool>,
    k: usize,
}

/// A layer that was not measured, as it stands in the JSON.
#[derive(Serialize)]
struct Refused {
    layer: String,
    why: String,
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
    /// Layers of the model that were not measured.
    refused: &'a [Refused],
    /// Whether a configuration names a type of model whose attention is of this form; null for a layer's own file.
    confirmed: Option<bool>,
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
        match layer {
            Some(Ok(layer)) => {
                let of_models =
                    [("--heads", self.heads.is_some()), ("--prefix", self.prefix.is_some()), ("--causal", self.causal.is_some())];
                if let Some((flag, _)) = of_models.iter().find(|(_, given)| *given) {
                    return Err(Error::input(*flag, "belongs to models, and this file has a layer that says it", "leave it out"));
                }
                let layers = vec![(self.file.display().to_string(), layer)];
                Ok(Plan { layers, refused: Vec::new(), confirmed: None, k: self.k })
            }
            refused => {
                let model = ModelFile::open(&self.file)?;
                match refused {
                    Some(Err(e)) if !model.is_foreign() && model.layers().is_empty() => Err(e),
                    _ => self.check_model(&model),
                }
            }
        }
    }

    /// Reads the layers of a model, those that can be.
    fn check_model(self, model: &ModelFile) -> Result<Plan> {
        let judged = model.judge()?;
        if judged.layers().is_empty() {
            // Says what was found and what was expected.
            model.attention(&Request::default())?;
        }
        let begins = self.prefix.unwrap_or_default();
        let mut found = judged.layers().iter().filter(|found| found.prefix.starts_with(&begins)).peekable();
        if found.peek().is_none() {
            let some: Vec<String> = judged.layers().iter().take(8).map(|found| format!("'{}'", quoted(&found.prefix))).collect();
            let problem = format!("no layer's names begin with '{}'", quoted(&begins));
            return Err(Error::input("--prefix", problem, format!("there are {}", some.join(", "))));
        }
        let request = Request { heads: self.heads, causal: self.causal, ..Request::default() };
        let (mut layers, mut refused, mut confirmed) = (Vec::new(), Vec::new(), true);
        let mut first = None;
        for found in found {
            let name = found.prefix.trim_end_matches('.').to_owned();
            match judged.import(found, &request) {
                Ok(imported) => {
                    confirmed &= imported.confirmed;
                    layers.push((name, imported.layer));
                }
                Err(e @ Error::Input { .. }) => {
                    refused.push(Refused { layer: name, why: e.told(&values::flag) });
                    first.get_or_insert(e);
                }
                Err(e) => return Err(e),
            }
        }
        match first {
            // One reason is as good as another where there is nothing to show.
            Some(e) if layers.is_empty() => Err(e),
            _ => Ok(Plan { layers, refused, confirmed: Some(confirmed), k: self.k }),
        }
    }
}

impl Plan {
    /// Measures.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let measured: Vec<Conditions> =
            self.layers.iter().map(|(_, layer)| Conditions::of(layer, self.k)).collect::<Result<_>>()?;
        let console = &session.console;
        if let ([(_, layer)], [conditions], []) = (&self.layers[..], &measured[..], &self.refused[..]) {
            one(console, layer, conditions);
        } else {
            all(console, &self.layers, &measured);
        }
        if self.confirmed == Some(false) {
            console.say(UNCONFIRMED);
        }
        self.say_refused(console);
        let layers = self.layers.iter().zip(&measured);
        let layers = layers.map(|((name, _), conditions)| LayerReport { layer: name, verdict: conditions.verdict(), conditions });
        let report = CheckReport { k: self.k, layers: layers.collect(), refused: &self.refused, confirmed: self.confirmed };
        session.publish("check", &report)?;
        Ok(if self.refused.is_empty() { Ending::Done } else { Ending::NotRecovered })
    }

    /// The first of the layers that were not measured, with the reasons.
    fn say_refused(&self, console: &Console) {
        const SHOWN: usize = 8;
        let all = self.layers.len() + self.refused.len();
        if !self.refused.is_empty() {
            console.say(format!("{} of {all} layers are not measured:", self.refused.len()));
        }
        for refused in self.refused.iter().take(SHOWN) {
            console.say(format!("{}: {}", quoted(&refused.layer), refused.why));
        }
        if self.refused.len() > SHOWN {
            console.say(format!("… and {} more", self.refused.len() - SHOWN));
        }
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
                quoted(name),
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
