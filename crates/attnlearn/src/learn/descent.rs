//! The practical learner, from examples that have been shared out to a layer and its certificate; and how much of what is left unexplained is noise.

use super::answer::{Answer, Details, Search, notes};
use super::checkpointing::Checkpointing;
use super::ending::Ending;
use super::lack_of_fit::Look;
use super::limit::Limited;
use super::noise::Noise;
use super::parts::Parts;
use super::watch::{Event, Watch};
use crate::certify::{CertifySettings, certify};
use crate::data::Block;
use crate::descend::{End, Learner, Outcome, Prepared, Wanted};
use crate::engine::Batch;
use crate::layer::AttentionLayer;
use crate::layer::residual::residuals;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Held-out NMSE at which a layer counts as recovered.
const RECOVERED: f64 = 1e-12;

/// What has been checked.
pub(super) struct Descent {
    pub wanted: Wanted,
    pub checkpointing: Checkpointing,
    /// Whether outputs are noisy.
    pub noise: bool,
    pub delta: f64,
}

/// What a search came to, before its certificate.
pub(super) struct Searched {
    pub outcome: Outcome,
    /// Share of the variance that the chosen form leaves unexplained on the examples to choose by.
    pub chosen_by: f64,
    /// Whether the limit of time ended the search, or what followed.
    pub out_of_time: bool,
    /// Examples learned from.
    pub examples: usize,
    /// The variance of an output among them.
    variance: f64,
    /// Some of them, and those to choose by, to look at what is left.
    look: Look,
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

impl Descent {
    /// Learns from some examples and chooses by others, which come back.
    pub fn learn(&self, learn: Batch<f64>, choose: Batch<f64>, watch: &Limited<'_>) -> Result<(Searched, Batch<f64>)> {
        // What is left in the end is looked at on some of them, those that choose included.
        let look = Look::at(&learn, &choose);
        let prepared = Prepared::new(learn, choose)?;
        let (outcome, out_of_time) = self.search(&prepared, watch)?;
        let (examples, chosen_by) = (prepared.examples(), outcome.tries[outcome.chosen].held_out);
        let notes = self.notes("not certified yet", chosen_by, examples);
        let variance = prepared.variance();
        Ok((Searched { outcome, out_of_time, chosen_by, examples, variance, look, notes }, prepared.into_test()))
    }

    /// The end: what can be guaranteed of the layer, and how it is called. Nothing is decided after this.
    pub fn certified(
        &self,
        found: Searched,
        certified: &Batch<f64>,
        parts: Parts,
        begun: Instant,
        watch: &dyn Watch,
    ) -> Result<Answer> {
        let Searched { ref outcome, out_of_time, chosen_by, examples, variance, ref look, .. } = found;
        let shape = certified.shape;
        let settings = CertifySettings { delta: self.delta, ..CertifySettings::default() };
        let certificate = certify(&outcome.layer, certified, 0..blocks(certified), &settings)?;
        // Errors themselves: the variances of outputs that they are shares of differ from one part of the examples to another.
        let held_out = certificate.mse / variance;
        // A few held-out outputs may have no variance.
        let nmse = certificate.nmse.unwrap_or(held_out);
        let chosen = &outcome.tries[outcome.chosen];
        let (exact, floor) = (nmse <= RECOVERED, chosen.end == End::Floor);
        let (mut noise, mut lack_of_fit) = (None, None);
        if !exact && (self.noise || floor) {
            let fitted = look.of(&outcome.layer);
            let chance = 4.0 * fitted.spread() * (1.0 / certified.len() as f64 + 1.0 / examples as f64).sqrt();
            noise = Some(Noise::of(chosen, held_out, examples * shape.k * shape.d_out, chance));
            lack_of_fit = Some(fitted.lack_of_fit(self.wanted.strategy.seed, &|| watch.interrupted())?);
        }
        let ending = Ending { nmse, exact, out_of_time, floor, noisy: self.noise, noise, lack_of_fit };
        let (recovered, unfinished, strategy) = (ending.recovered(), out_of_time && !found.explains(), &self.wanted.strategy);
        let Outcome { layer, chosen, tries } = found.outcome;
        let search = Search {
            wanted: self.wanted.clone(),
            tries,
            chosen,
            chosen_by,
            out_of_time,
            noise: noise.filter(|_| self.noise),
            lack_of_fit,
        };
        Ok(Answer {
            layer: Some(layer),
            nmse: Some(nmse),
            before_polish: None,
            recovered,
            outcome: ending.text(),
            unfinished,
            certificate: Some(certificate),
            examples: examples as u64,
            parts: Some(parts),
            shape,
            seed: strategy.seed,
            seconds: begun.elapsed().as_secs_f64(),
            details: Details::Search(Box::new(search)),
        })
    }

    /// Where a layer comes from that has no certificate.
    fn notes(&self, outcome: &str, chosen_by: f64, examples: usize) -> BTreeMap<String, String> {
        notes("descend", outcome, ("choosing_nmse", chosen_by), examples as u64, self.wanted.strategy.seed)
    }

    /// Searches to the end or until time is up, whether it is; and keeps the search every minute and when it is stopped.
    fn search(&self, prepared: &Prepared, watch: &Limited<'_>) -> Result<(Outcome, bool)> {
        let mut learner = match &self.checkpointing.file {
            Some(path) if self.checkpointing.resume => {
                let bytes = fs::read(path).map_err(|e| Error::io(path, e))?;
                Learner::resume(prepared, self.wanted.clone(), &bytes, &path.display().to_string())?
            }
            _ => Learner::new(prepared, self.wanted.clone())?,
        };
        let (mut saved, mut tried) = (Instant::now(), learner.tries.len());
        watch.tell(Event::Step(&learner));
        loop {
            match learner.advance(&|| watch.interrupted()) {
                Ok(true) => {
                    learner.tries.last().into_iter().for_each(|one| watch.tell(Event::Tried(one)));
                    break;
                }
                Ok(false) => {}
                Err(Error::Interrupted) if watch.passed() => {
                    let checkpoint = self.checkpointing.file.as_deref();
                    checkpoint.map_or(Ok(()), |path| learner.save(path))?;
                    watch.tell(Event::OutOfTime { checkpoint });
                    return Ok((learner.stop()?, true));
                }
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
            if let (Some(path), true) = (&self.checkpointing.file, saved.elapsed() >= self.checkpointing.interval()) {
                learner.save(path)?;
                saved = Instant::now();
            }
        }
        // What follows may be stopped too, and then goes on from here.
        if let Some(path) = &self.checkpointing.file {
            learner.save(path)?;
        }
        Ok((learner.outcome()?, false))
    }

    /// Keeps the search and the best layer so far.
    fn stopped(&self, learner: &Learner<'_>, watch: &dyn Watch) -> Result<()> {
        let Some(checkpoint) = &self.checkpointing.file else { return Ok(()) };
        learner.save(checkpoint)?;
        let (layer, nmse) = learner.best_so_far()?;
        let path = self.checkpointing.layer.as_deref();
        if let Some(path) = path {
            layer.save(path, &self.notes("interrupted", nmse, learner.examples()))?;
        }
        watch.tell(Event::Checkpointed { checkpoint, layer: path, nmse });
        Ok(())
    }
}

fn blocks(batch: &Batch<f64>) -> u64 {
    (batch.len() as u64).div_ceil(Block::<f64>::CAPACITY as u64)
}

/// Mean square of what a layer misses.
pub(super) fn mean_square(layer: &AttentionLayer, batch: &Batch<f64>) -> Result<f64> {
    Ok(residuals(layer, batch, 0..blocks(batch), |_| ())?.mse())
}
