//! One run of the learner: the phases as steps that leave records. Phases 1–3 here, 4–6 in `rounds`, what follows them in `finish`.

mod finish;
mod rounds;
mod sculpture;
mod split;

use super::agreement::{AgreeingRow, PairTest};
use super::body::{Quarry, quality};
use super::conditions::Conditions;
use super::crude::Moments;
use super::proxy::Proxy;
use super::sharpen::sharpen;
use super::{Phase, Purposes, Record, ValidSettings, Watch};
use crate::data::{Block, ExampleSource};
use crate::engine::Batch;
use crate::linalg::{Mat, frobenius};
use crate::{Error, Result};
use split::{Split, VALIDATION};
use std::ops::Range;
use std::time::Instant;

/// Blocks of phase 3; phases 1 and 2 use an eighth of them.
const EARLY: u64 = 1024;
/// Widest slab admitted, in logits.
const WIDEST: f64 = 1.0;

/// A run in progress.
pub(super) struct Run<'a> {
    /// What is learned from; with the others, if they have no sources of their own.
    source: &'a dyn ExampleSource,
    choosing: &'a dyn ExampleSource,
    certifying: &'a dyn ExampleSource,
    settings: &'a ValidSettings,
    watch: &'a dyn Watch,
    split: Split,
    records: Vec<Record>,
    started: Instant,
    /// Blocks of the training range read so far.
    read: u64,
    conditions: Conditions,
    validation: Option<Batch<f64>>,
}

impl<'a> Run<'a> {
    pub fn new(source: &'a dyn ExampleSource, settings: &'a ValidSettings, watch: &'a dyn Watch) -> Self {
        let examples = Purposes { learn: source, choose: source, certify: source };
        Self::with(examples, Split::of(source, settings), settings, watch)
    }

    /// On examples that have been shared out.
    pub fn apart(examples: Purposes<'a>, settings: &'a ValidSettings, watch: &'a dyn Watch) -> Self {
        Self::with(examples, Split::apart(&examples), settings, watch)
    }

    fn with(examples: Purposes<'a>, split: Split, settings: &'a ValidSettings, watch: &'a dyn Watch) -> Self {
        Self {
            source: examples.learn,
            choosing: examples.choose,
            certifying: examples.certify,
            settings,
            watch,
            split,
            records: Vec::new(),
            started: Instant::now(),
            read: 0,
            conditions: Conditions::default(),
            validation: None,
        }
    }

    fn begin(&mut self, phase: Phase) -> Result<Record> {
        if self.watch.interrupted() {
            return Err(Error::Interrupted);
        }
        self.watch.begin(phase);
        self.started = Instant::now();
        Ok(Record::new(phase))
    }

    fn end(&mut self, mut record: Record) {
        record.seconds = self.started.elapsed().as_secs_f64();
        self.watch.end(&record);
        self.records.push(record);
    }

    /// The first `blocks` blocks of the training range, or all of it.
    fn train(&mut self, blocks: u64) -> Range<u64> {
        let range = self.split.train.start..self.split.train.end.min(self.split.train.start + blocks);
        self.read = self.read.max(range.end - range.start);
        range
    }

    fn dimensions(&self) -> usize {
        self.settings.shape().d.pow(2)
    }

    pub fn crude_sum(&mut self) -> Result<(Moments, Mat<f64>)> {
        let mut record = self.begin(Phase::Crude)?;
        let range = self.train(EARLY / 8);
        let moments = Moments::gather(self.source, range)?;
        let variance = moments.y_variance();
        let square = moments.y_square / moments.rows as f64;
        if !(variance.is_finite() && square.is_finite()) {
            return Err(Error::input("examples", "have outputs whose squares overflow", "scale the outputs down"));
        }
        if variance <= 1e-12 * square || square < f64::MIN_POSITIVE {
            return Err(Error::input(
                "examples",
                "all outputs are the same: y has zero variance",
                "give outputs of a layer that does something",
            ));
        }
        let s = moments.crude_sum(self.settings.shape().k);
        record.rows_seen = moments.rows;
        record.note = format!("‖Ŝ‖ = {:.3} from {} examples", frobenius(s.as_ref()), moments.examples);
        self.end(record);
        Ok((moments, s))
    }

    pub fn sculpt(&mut self, crude: &Mat<f64>) -> Result<Vec<AgreeingRow>> {
        let mut record = self.begin(Phase::Sculpt)?;
        let range = self.train(EARLY / 8);
        let mut quarry = Quarry::new(PairTest::new(crude, WIDEST, f64::INFINITY), 2 * self.dimensions());
        quarry.dig(self.source, range, self.watch)?;
        let rows = quarry.best();
        record.rows_seen = quarry.seen;
        record.rows_accepted = quarry.accepted;
        record.residuals = quality(&rows);
        record.note = format!("{} distinct slabs kept of {} accepted", rows.len(), quarry.accepted);
        self.end(record);
        Ok(rows)
    }

    pub fn proxy_and_sharpen(&mut self, moments: &Moments, crude: &Mat<f64>, rows: Vec<AgreeingRow>) -> Result<Mat<f64>> {
        let mut record = self.begin(Phase::Proxy)?;
        let range = self.train(EARLY);
        let proxy = Proxy::of(&rows, self.radius(), 0.3)?;
        let by_proxy = match &proxy {
            Some(proxy) => proxy.sum(self.source, range.start..range.end.min(range.start + 128))?,
            None => None,
        };
        // Both starts, one checked against the other: the rows found by certificate and those that the proxy points to.
        let (mut sum, mut rounds) = sharpen(self.source, range.clone(), crude.clone(), self.watch)?;
        let mut agreement = None;
        if let Some(start) = by_proxy {
            let fewer = range.start..range.end.min(range.start + EARLY / 4);
            let (other, other_rounds) = sharpen(self.source, fewer, start, self.watch)?;
            agreement = Some(frobenius((&other - &sum).as_ref()) / frobenius(sum.as_ref()));
            let sharpness = |rounds: &[super::Round]| rounds.last().map_or(f64::INFINITY, |r| r.residual);
            if sharpness(&other_rounds) < sharpness(&rounds) {
                (sum, rounds) = (other, other_rounds);
            }
        }
        self.conditions = Conditions::of(moments, &sum);
        record.rows_seen = self.read * Block::<f32>::CAPACITY as u64 * self.settings.shape().k as u64;
        record.rows_accepted = rounds.last().map_or(0, |r| r.weight as u64);
        record.note = format!(
            "Ŝ to about {:.0e}; the two starts {}",
            rounds.last().map_or(1.0, |r| r.change * 5.0),
            agreement.map_or("could not be compared".into(), |a| format!("agree to {a:.0e}"))
        );
        record.rounds = rounds;
        self.end(record);
        Ok(sum)
    }

    /// No attention matrix has a larger entry: logits beyond this are saturated on every row.
    fn radius(&self) -> f64 {
        40.0
    }

    /// Examples to fit to and examples to choose by, for up to `m` heads.
    fn samples(&mut self, m: usize) -> Result<(Batch<f64>, Batch<f64>)> {
        let shape = self.settings.shape();
        // Unknowns over outputs, six times over.
        let count = 6 * m * (shape.d * shape.d + shape.d * shape.d_out) / (shape.k * shape.d_out);
        let sample = Batch::read(self.source, self.split.train.clone(), count.max(256))?;
        let validation = match self.validation.take() {
            Some(validation) => validation,
            None => Batch::read(self.choosing, self.split.validation.clone(), VALIDATION as usize * Block::<f64>::CAPACITY)?,
        };
        Ok((sample, validation))
    }
}
