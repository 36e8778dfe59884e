//! `attnlearn verify`: a certificate of a layer on examples.

use crate::cli::Ending;
use crate::console::error;
use crate::output::Files;
use crate::report::{self, describe};
use crate::session::Session;
use crate::values;
use attnlearn::certify::{Certificate, CertifySettings, certify};
use attnlearn::data::{Block, ExampleFile, ExampleSource, Shape, Watched, check_size};
use attnlearn::layer::AttentionLayer;
use attnlearn::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Certify a layer on all examples of a file.
///
/// The guarantee holds if the examples are independent draws and none of them was used to learn the layer. The exit code is
/// 0 if the layer's NMSE on them is at most --tolerance, and 1 if it is more.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn verify layer.safetensors fresh.npz
  attnlearn verify layer.safetensors fresh.npz --delta 0.001 --epsilon 1e-6,1e-3 --tolerance 1e-3
  attnlearn verify layer.safetensors fresh.npz --quiet --json certificate.json")]
pub struct Args {
    /// Layer (.safetensors).
    layer: PathBuf,
    /// Examples that no learner has seen (.safetensors or .npz).
    examples: PathBuf,
    /// One minus the confidence of the certificate.
    #[arg(long, default_value_t = CertifySettings::default().delta, value_parser = values::share)]
    delta: f64,
    /// Thresholds ε, with commas [default: 1e-12, 1e-11, …, 1].
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', value_parser = values::magnitude)]
    epsilon: Option<Vec<f64>>,
    /// Largest NMSE with which the layer counts as confirmed.
    #[arg(long, value_name = "NMSE", default_value = "1e-6", value_parser = values::magnitude)]
    tolerance: f64,
}

/// What has been checked.
pub struct Plan {
    layer: AttentionLayer,
    examples: ExampleFile,
    place: String,
    settings: VerifySettings,
}

#[derive(Serialize)]
struct VerifySettings {
    tolerance: f64,
    #[serde(flatten)]
    certify: CertifySettings,
}

/// What was found, as it stands in the JSON.
#[derive(Serialize)]
struct VerifyReport<'a> {
    settings: &'a VerifySettings,
    shape: Shape,
    confirmed: bool,
    nmse: f64,
    certificate: &'a Certificate,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().read([&self.layer, &self.examples])
    }

    /// Opens both files.
    pub fn check(self) -> Result<Plan> {
        let layer = AttentionLayer::load(&self.layer)?;
        let examples = ExampleFile::open(&self.examples)?;
        let (shape, place) = (examples.shape(), self.examples.display().to_string());
        check_size(shape, examples.len(), &place)?;
        values::same_dimension(&layer, shape.d, &place)?;
        if shape.d_out != layer.d_out() {
            let problem = format!("outputs of dimension d_out = {} for a layer with d_out = {}", shape.d_out, layer.d_out());
            return Err(Error::input(place, problem, "give a layer and examples of one shape"));
        }
        let defaults = CertifySettings::default();
        let certify = CertifySettings { delta: self.delta, epsilons: self.epsilon.unwrap_or(defaults.epsilons) };
        Ok(Plan { layer, examples, place, settings: VerifySettings { tolerance: self.tolerance, certify } })
    }
}

impl Plan {
    /// Certifies.
    pub fn run(self, session: &Session) -> Result<Ending> {
        let console = &session.console;
        let n = self.examples.len().unwrap_or(0);
        let certificate = {
            let bar = session.bar(n, "examples");
            let source = Watched::new(&self.examples, &bar);
            certify(&self.layer, &source, 0..n.div_ceil(Block::<f64>::CAPACITY as u64), &self.settings.certify)
        };
        let certificate = certificate.map_err(|e| match e {
            // An example is named by its number alone.
            Error::Input { place, problem, remedy } if place.to_string().starts_with("example ") => {
                Error::input(format!("{}, {place}", self.place), problem, remedy)
            }
            other => other,
        })?;
        let Some(nmse) = certificate.nmse else {
            let (problem, remedy) = if certificate.rms_output > 0.0 {
                ("the outputs y do not vary (zero variance)", "give examples whose outputs vary")
            } else {
                ("the outputs y are 0 or so small that their squares are (zero variance)", "scale them up, or give others")
            };
            return Err(Error::input(self.place, problem, remedy));
        };
        let confirmed = nmse <= self.settings.tolerance;
        console.say(format!("layer: {}", describe(&self.layer)));
        report::say_certificate(console, Some(&certificate));
        console.gap();
        let tolerance = error(self.settings.tolerance);
        let verdict = if confirmed {
            console.good(&format!("confirmed: NMSE {} is at most {tolerance}", error(nmse)))
        } else {
            console.bad(&format!("not confirmed: NMSE {} is more than {tolerance}", error(nmse)))
        };
        console.say(verdict);
        session.publish(
            "verify",
            &VerifyReport { settings: &self.settings, shape: self.examples.shape(), confirmed, nmse, certificate: &certificate },
        )?;
        if confirmed {
            return Ok(Ending::Done);
        }
        session.insist(&format!("not confirmed: NMSE {} is more than {tolerance}", error(nmse)));
        Ok(Ending::NotRecovered)
    }
}
