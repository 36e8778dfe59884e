//! The practical learner, from examples that have been shared out to a layer and its certificate; and how much of what is left unexplained is noise.

use super::keeping::Keeping;
use super::split::Parts;
use super::watch::{Event, Watch};
use crate::certify::{Certificate, CertifySettings, certify};
use crate::data::{Block, Shape};
use crate::descend::{Batch, End, Learner, Outcome, Prepared, Try, Wanted};
use crate::layer::AttentionLayer;
use crate::layer::residual::residuals;
use crate::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Held-out NMSE at which a layer counts as recovered.
const RECOVERED: f64 = 1e-12;
/// What has been checked.
pub(super) struct Descent {
    pub wanted: Wanted,
    pub keeping: Keeping,
    /// Whether outputs are noisy.
    pub noise: bool,
    pub delta: f64,
}

/// What a search came to, before its certificate.
pub(super) struct Searched {
    pub outcome: Outcome,
    /// Share of the variance that the chosen form leaves unexplained on the examples to choose by.
    pub chosen_by: f64,
    /// Examples learned from.
    pub examples: usize,
    pub notes: BTreeMap<String, String>,
}

impl Searched {
    /// Whether the examples to choose by are explained.
    pub fn explains(&self) -> bool {
        self.chosen_by <= RECOVERED
    }

    /// What is left of them, in words.
    pub fn text(&self) -> String {
        format!("NMSE {:.1e} on the examples to choose by", self.chosen_by)
    }
}

/// What outputs hold that no layer explains.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Noise {
    /// Its standard deviation over that of the outputs: `‖F(X) − Y‖²/(numbers − unknowns)`.
    pub relative: f64,
    /// Its share of the variance, which is the least NMSE that can be reached.
    pub floor: f64,
    /// Whether the held-out error is that floor, up to chance and the unknowns' own share.
    pub reached: bool,
}

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Descended {
    /// The layer, and all that was tried.
    pub outcome: Outcome,
    /// What is guaranteed of it.
    pub certificate: Certificate,
    /// The noise, if outputs were said to be noisy.
    pub noise: Option<Noise>,
    /// Examples learned from.
    pub examples: usize,
    /// How they were shared out.
    pub parts: Parts,
    /// Sizes of an example.
    pub shape: Shape,
    /// Held-out NMSE.
    pub nmse: f64,
    /// Whether the layer was recovered.
    pub recovered: bool,
    /// How it ended, in words.
    pub text: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// What was looked for.
    pub wanted: Wanted,
}

impl Descended {
    /// Where the layer comes from, for the notes in its file.
    pub fn notes(&self) -> BTreeMap<String, String> {
        notes(&self.wanted, &self.text, self.nmse, self.examples)
    }
}

impl Descent {
    /// Learns from some examples and chooses by others, which come back.
    pub fn learn(&self, learn: Batch<f64>, choose: Batch<f64>, watch: &dyn Watch) -> Result<(Searched, Batch<f64>)> {
        let prepared = Prepared::new(learn, choose)?;
        let outcome = self.search(&prepared, watch)?;
        let (examples, chosen_by) = (prepared.examples(), outcome.tries[outcome.chosen].held_out);
        let notes = notes(&self.wanted, "not certified yet", chosen_by, examples);
        Ok((Searched { outcome, chosen_by, examples, notes }, prepared.into_test()))
    }

    /// The end: what can be guaranteed of the layer, and how it is called. Nothing is decided after this.
    pub fn certified(&self, found: Searched, certified: &Batch<f64>, parts: Parts, begun: Instant) -> Result<Descended> {
        let Searched { outcome, examples, .. } = found;
        let shape = certified.shape;
        let settings = CertifySettings { delta: self.delta, ..CertifySettings::default() };
        let certificate = certify(&outcome.layer, certified, 0..blocks(certified), &settings)?;
        let nmse = certificate.nmse.unwrap_or(f64::INFINITY);
        let chosen = &outcome.tries[outcome.chosen];
        let numbers = shape.k * shape.d_out;
        let noise = self.noise.then(|| noise(chosen, nmse, examples * numbers, certified.len() * numbers));
        let recovered = nmse <= RECOVERED || noise.is_some_and(|noise| noise.reached);
        let text = match (recovered, noise, chosen.end) {
            (true, Some(noise), _) if nmse > RECOVERED => {
                format!("recovered up to noise of {:.2} % of the outputs' size", 100.0 * noise.relative)
            }
            (true, ..) => "recovered".to_owned(),
            (false, _, End::Floor) => {
                let hint = if self.noise { "" } else { " (--noise if outputs are noisy)" };
                format!("not recovered: several starts end at NMSE {nmse:.1e}, noise or a layer of another form{hint}")
            }
            (false, ..) => format!("not recovered: held-out NMSE {nmse:.1e}"),
        };
        let (wanted, seconds) = (self.wanted.clone(), begun.elapsed().as_secs_f64());
        Ok(Descended { outcome, certificate, noise, examples, parts, shape, nmse, recovered, text, seconds, wanted })
    }

    /// Searches to the end, and keeps the search every minute and when it is stopped.
    fn search(&self, prepared: &Prepared, watch: &dyn Watch) -> Result<Outcome> {
        let mut learner = match &self.keeping.checkpoint {
            Some(path) if self.keeping.resume => {
                let bytes = fs::read(path).map_err(|e| Error::io(path, e))?;
                Learner::resume(prepared, self.wanted.clone(), &bytes, &path.display().to_string())?
            }
            _ => Learner::new(prepared, self.wanted.clone())?,
        };
        let (mut saved, mut tried) = (Instant::now(), learner.tries.len());
        watch.tell(Event::Step(&learner));
        loop {
            match learner.advance(&|| watch.interrupted()) {
                Ok(true) => break,
                Ok(false) => {}
                Err(Error::Interrupted) => {
                    self.stopped(&learner, watch)?;
                    return Err(Error::Interrupted);
                }
                Err(other) => return Err(other),
            }
            if learner.tries.len() > tried {
                tried = learner.tries.len();
                watch.tell(Event::Tried(&learner.tries[tried - 1]));
            }
            watch.tell(Event::Step(&learner));
            if let (Some(path), true) = (&self.keeping.checkpoint, saved.elapsed() >= self.keeping.interval()) {
                learner.save(path)?;
                saved = Instant::now();
            }
        }
        // What follows may be stopped too, and then goes on from here.
        if let Some(path) = &self.keeping.checkpoint {
            learner.save(path)?;
        }
        learner.outcome()
    }

    /// Keeps the search and the best layer so far.
    fn stopped(&self, learner: &Learner<'_>, watch: &dyn Watch) -> Result<()> {
        let Some(checkpoint) = &self.keeping.checkpoint else { return Ok(()) };
        learner.save(checkpoint)?;
        let (layer, nmse) = learner.best_so_far()?;
        let path = self.keeping.layer.as_deref();
        if let Some(path) = path {
            layer.save(path, &notes(&self.wanted, "interrupted", nmse, learner.examples()))?;
        }
        watch.tell(Event::Kept { checkpoint, layer: path, nmse });
        Ok(())
    }
}

fn notes(wanted: &Wanted, text: &str, nmse: f64, examples: usize) -> BTreeMap<String, String> {
    let notes = [
        ("producer", format!("attnlearn {}", env!("CARGO_PKG_VERSION"))),
        ("method", "descend".into()),
        ("outcome", text.into()),
        ("held_out_nmse", format!("{nmse:e}")),
        ("examples", examples.to_string()),
        ("seed", wanted.strategy.seed.to_string()),
    ];
    notes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn blocks(batch: &Batch<f64>) -> u64 {
    (batch.len() as u64).div_ceil(Block::<f64>::CAPACITY as u64)
}

/// Mean square of what a layer misses.
pub(super) fn mean_square(layer: &AttentionLayer, batch: &Batch<f64>) -> Result<f64> {
    Ok(residuals(layer, batch, 0..blocks(batch), |_| ())?.mse())
}

/// What is left of `numbers` outputs after as many were fitted as there are unknowns; and whether the error on others is about that. A student that is
/// too small looks the same as noise, so noise of more than half the variance is not believed, nor what twice as many numbers as unknowns say.
fn noise(chosen: &Try, held_out_nmse: f64, numbers: usize, held_out_numbers: usize) -> Noise {
    let unknowns = Learner::unknowns(&chosen.form) as f64;
    let (numbers, held_out_numbers) = (numbers as f64, held_out_numbers as f64);
    let floor = chosen.nmse * numbers / (numbers - unknowns).max(1.0);
    // Both are means of squares; and estimated unknowns add their share.
    let chance = 4.0 * (2.0 / held_out_numbers + 2.0 / numbers).sqrt();
    let at_it = held_out_nmse <= floor * (1.0 + unknowns / numbers) * (1.0 + chance);
    Noise { relative: floor.sqrt(), floor, reached: chosen.end != End::Tried && numbers > 2.0 * unknowns && floor < 0.5 && at_it }
}
