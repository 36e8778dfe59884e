//! One run of the learner: which examples serve which purpose, and the phases as steps that leave records.

use super::agreement::{AgreeingRow, PairTest};
use super::body::{Quarry, quality};
use super::conditions::Conditions;
use super::crude::Moments;
use super::proxy::Proxy;
use super::search::{self, Effort};
use super::sharpen::sharpen;
use super::span::{Hull, norm};
use super::{Heads, Learned, Outcome, Phase, Record, Stage, ValidSettings, Watch};
use crate::certify::{CertifySettings, certify};
use crate::convex;
use crate::data::{Block, ExampleSource};
use crate::descend::{self, Fit, Parametrisation, Sample};
use crate::linalg::{Mat, frobenius};
use crate::{Error, Result};
use std::ops::Range;
use std::time::Instant;

/// Blocks of phase 3; phases 1 and 2 use an eighth of them.
const EARLY: u64 = 1024;
/// Blocks of the first round of phase 4.
const FIRST_ROUND: u64 = 256;
/// Growth of the number of examples from round to round.
const GROWTH: u64 = 4;
/// Widest slab admitted, in logits.
const WIDEST: f64 = 1.0;
/// Rows kept, per dimension of the attention matrices.
const ROWS_KEPT: usize = 32;
/// Fractions of them, per dimension, from which the span is tried.
const ROWS_TRIED: [f64; 6] = [1.5, 2.0, 3.0, 4.0, 8.0, 16.0];
/// Blocks of validation examples, at most.
const VALIDATION: u64 = 2;
/// Rows, per dimension, for the convex body.
const ROWS_OF_BODY: usize = 4;

/// Which blocks serve which purpose. Held-out blocks are read by the certificate alone.
#[derive(Clone, Debug)]
struct Split {
    train: Range<u64>,
    validation: Range<u64>,
    held_out: Range<u64>,
}

impl Split {
    fn of(source: &dyn ExampleSource, settings: &ValidSettings) -> Self {
        let size = Block::<f32>::CAPACITY as u64;
        let held = settings.held_out.div_ceil(size);
        match source.len() {
            None => {
                // An endless source has room to keep the purposes far apart.
                let far = 1 << 40;
                Self {
                    train: 0..settings.most_examples / size,
                    validation: far..far + VALIDATION,
                    held_out: 2 * far..2 * far + held,
                }
            }
            Some(n) => {
                let blocks = n.div_ceil(size);
                // A last block that is not full does not make a held-out set by itself.
                let partial = u64::from(!n.is_multiple_of(size));
                let held = held.min(blocks / 5).max(1) + partial;
                let validation = (blocks / 10).clamp(1, VALIDATION);
                let train = blocks.saturating_sub(held + validation);
                Self { train: 0..train, validation: train..blocks - held, held_out: blocks - held..blocks }
            }
        }
    }
}

/// What phases 4–6 came up with.
pub(super) struct Answer {
    fit: Option<Fit>,
    /// NMSE on the validation examples.
    nmse: f64,
    /// Rows that the hull was fitted to.
    rows: usize,
    /// Heads found without a span, if it came to that.
    open: Option<Fit>,
    /// Whether the rows were certified with separated projections.
    separated: bool,
}

impl Answer {
    fn none() -> Self {
        Self { fit: None, nmse: f64::INFINITY, rows: 0, open: None, separated: false }
    }
}

/// A run in progress.
pub(super) struct Run<'a> {
    source: &'a dyn ExampleSource,
    settings: &'a ValidSettings,
    watch: &'a dyn Watch,
    split: Split,
    records: Vec<Record>,
    started: Instant,
    /// Blocks of the training range read so far.
    read: u64,
    conditions: Conditions,
    validation: Option<Sample>,
}

impl<'a> Run<'a> {
    pub fn new(source: &'a dyn ExampleSource, settings: &'a ValidSettings, watch: &'a dyn Watch) -> Self {
        Self {
            source,
            settings,
            watch,
            split: Split::of(source, settings),
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

    /// Numbers of heads to try, most promising first.
    fn candidates(&self, hull: Option<&Hull>) -> Vec<usize> {
        match self.settings.heads {
            Heads::Given(m) => vec![m],
            Heads::Auto { most } => {
                let first = hull.map_or(1, |h| h.suggested_heads(most));
                std::iter::once(first).chain((1..=most).filter(|m| *m != first)).collect()
            }
        }
    }

    /// Whether the search explains the validation examples.
    pub fn good(&self, answer: &Answer) -> bool {
        answer.fit.is_some() && answer.nmse <= self.settings.goal
    }

    pub fn agreement_rounds(&mut self, sum: &Mat<f64>) -> Result<Answer> {
        let mut quarry = Quarry::new(PairTest::new(sum, WIDEST, f64::INFINITY), ROWS_KEPT * self.dimensions());
        let (mut dug, mut blocks) = (0, FIRST_ROUND);
        let mut answer = Answer::none();
        let mut sharpness = f64::INFINITY;
        loop {
            let range = self.train(blocks);
            let rows = self.resculpt(&mut quarry, range.start + dug..range.end)?;
            dug = range.end - range.start;
            let found = self.span_and_search(&rows, &answer, &[1])?;
            // Agreement of m heads sharpens as n^(−1/(m−1)). Rows that hardly do are accidents, or all that there are.
            let now = quality(&rows[..rows.len().min(2 * self.dimensions())]).median;
            let stale = now > 0.75 * sharpness && found.nmse > 0.8 * answer.nmse;
            sharpness = now;
            if found.nmse < answer.nmse || answer.fit.is_none() {
                answer = found;
            }
            if self.good(&answer) || range.end == self.split.train.end || stale {
                return Ok(answer);
            }
            blocks *= GROWTH;
        }
    }

    fn resculpt(&mut self, quarry: &mut Quarry, range: Range<u64>) -> Result<Vec<AgreeingRow>> {
        let mut record = self.begin(Phase::Resculpt)?;
        let (seen, accepted) = (quarry.seen, quarry.accepted);
        quarry.dig(self.source, range, self.watch)?;
        let rows = quarry.best();
        record.rows_seen = quarry.seen - seen;
        record.rows_accepted = quarry.accepted - accepted;
        record.residuals = quality(&rows);
        record.note = format!("{} distinct slabs, half of them within {:.1e}", rows.len(), record.residuals.median);
        self.end(record);
        Ok(rows)
    }

    /// Phases 5 and 6 on the rows there are. `dimensions`: of the hull, in multiples of the number of heads.
    fn span_and_search(&mut self, rows: &[AgreeingRow], before: &Answer, dimensions: &[usize]) -> Result<Answer> {
        let p = self.dimensions();
        let mut record = self.begin(Phase::Span)?;
        let tries: Vec<usize> = ROWS_TRIED.iter().map(|r| (r * p as f64) as usize).filter(|n| *n <= rows.len()).collect();
        let probe = tries.get(1).or(tries.first()).and_then(|n| Hull::fit(rows, *n, 1));
        let candidates = self.candidates(probe.as_ref());
        let mut hulls: Vec<(usize, Hull)> = Vec::new();
        for &m in &candidates {
            if self.settings.linear_programs {
                let count = rows.len().min(ROWS_OF_BODY * p);
                hulls.extend(
                    Hull::by_linear_programs(&rows[..count], m, self.radius(), self.settings.seed)?.map(|hull| (m, hull)),
                );
                continue;
            }
            for dimension in dimensions.iter().map(|f| f * m).filter(|s| *s < p) {
                hulls.extend(tries.iter().filter_map(|n| Hull::fit(rows, *n, dimension)).map(|hull| (m, hull)));
            }
        }
        if let Some((_, hull)) = hulls.first() {
            record.spectrum = hull.spectrum.iter().take(12).copied().collect();
            record.widths = self.widths(rows, hull)?;
        }
        record.rows_accepted = rows.len() as u64;
        record.note = match hulls.first() {
            Some((m, hull)) => format!(
                "{} hulls tried; spectrum {:.0e} | {:.0e} after {m}",
                hulls.len(),
                hull.spectrum[m - 1],
                hull.spectrum[*m]
            ),
            None => format!("{} rows for {p} directions: no span yet", rows.len()),
        };
        self.end(record);

        let mut record = self.begin(Phase::Search)?;
        let (sample, validation) = self.samples(candidates.iter().copied().max().unwrap_or(1))?;
        let mut answer = Answer { rows: rows.len(), ..Answer::none() };
        let mut given: Vec<Vec<Mat<f64>>> = before.fit.iter().map(|f| f.thetas.clone()).collect();
        let mut tried = 0;
        for (m, hull) in &hulls {
            if self.watch.interrupted() {
                return Err(Error::Interrupted);
            }
            tried += 1;
            let mut starts: Vec<Vec<Mat<f64>>> = given.iter().filter(|heads| heads.len() == *m).cloned().collect();
            if self.settings.net && *m <= 2 && hull.directions.len() < 2 {
                starts.push(search::net(&sample, hull));
            }
            let effort = Effort { starts: if starts.is_empty() { 6 } else { 1 }, enough: self.settings.goal };
            let Some(fit) = search::in_span(&sample, hull, *m, &starts, effort, self.settings.seed)? else { continue };
            let nmse = validate(&validation, &fit);
            if nmse < answer.nmse {
                given = vec![fit.thetas.clone()];
                record.history.clone_from(&fit.history);
                answer = Answer { fit: Some(fit), nmse, rows: hull.rows, ..Answer::none() };
            }
            if nmse < 0.5 * self.settings.goal {
                break;
            }
            // The first number of heads that explains the examples is the answer.
            if answer.nmse <= self.settings.goal && *m != answer.fit.as_ref().map_or(*m, |f| f.thetas.len()) {
                break;
            }
        }
        record.nmse = answer.fit.as_ref().map(|_| answer.nmse);
        record.rows_seen = (sample.rows() + validation.rows()) as u64;
        record.note = match &answer.fit {
            Some(fit) => format!("{} heads, {tried} hulls searched, validation NMSE {:.1e}", fit.thetas.len(), answer.nmse),
            None => "no span to search in".into(),
        };
        self.validation = Some(validation);
        self.end(record);
        Ok(answer)
    }

    /// Widths of the body along the hull's directions and along its centre, by linear programs.
    fn widths(&self, rows: &[AgreeingRow], hull: &Hull) -> Result<Vec<f64>> {
        let count = rows.len().min(ROWS_OF_BODY * self.dimensions());
        let Some(proxy) = Proxy::of(&rows[..count], self.radius(), 0.05)? else { return Ok(Vec::new()) };
        let size = norm(&hull.centre);
        let across: Vec<f64> = hull.centre.iter().map(|x| x / size).collect();
        let settings = convex::Settings { tolerance: 1e-6, ..Default::default() };
        let mut widths = Vec::new();
        for direction in hull.directions.iter().chain([&across]) {
            let extent = convex::extent(&proxy.body, direction, &settings)?;
            widths.push(extent.high - extent.low);
        }
        Ok(widths)
    }

    /// Examples to fit to and examples to choose by, for up to `m` heads.
    fn samples(&mut self, m: usize) -> Result<(Sample, Sample)> {
        let shape = self.settings.shape();
        // Unknowns over outputs, six times over.
        let count = 6 * m * (shape.d * shape.d + shape.d * shape.d_out) / (shape.k * shape.d_out);
        let sample = Sample::read(self.source, self.split.train.clone(), count.max(256))?;
        let validation = match self.validation.take() {
            Some(validation) => validation,
            None => Sample::read(self.source, self.split.validation.clone(), VALIDATION as usize * Block::<f64>::CAPACITY)?,
        };
        Ok((sample, validation))
    }

    pub fn separated_round(&mut self, before: Answer) -> Result<Answer> {
        let mut record = self.begin(Phase::Search)?;
        let mut open: Option<(Fit, f64)> = None;
        for m in self.candidates(None) {
            let (sample, validation) = self.samples(m)?;
            let effort = Effort { starts: 6, enough: 0.1 * self.settings.goal };
            if let Some(fit) = search::open(&sample, m, 3.0, effort, self.settings.seed)? {
                let nmse = validate(&validation, &fit);
                if open.as_ref().is_none_or(|(_, best)| nmse < 0.5 * best) {
                    open = Some((fit, nmse));
                }
            }
            self.validation = Some(validation);
            if open.as_ref().is_some_and(|(_, nmse)| *nmse <= self.settings.goal) {
                break;
            }
        }
        let Some((open, nmse)) = open else { return Ok(before) };
        record.nmse = Some(nmse);
        record.history.clone_from(&open.history);
        record.note = format!(
            "without a span: {} heads, validation NMSE {nmse:.1e}; their projections now certify rows",
            open.thetas.len()
        );
        self.end(record);
        if nmse > 0.1 {
            return Ok(Answer { open: Some(open), ..before });
        }
        let test = PairTest::separated(&open.ws, 2.0 * WIDEST);
        let mut quarry = Quarry::new(test, ROWS_KEPT * self.dimensions());
        let (mut dug, mut blocks) = (0, FIRST_ROUND);
        let mut answer = Answer::none();
        while blocks <= FIRST_ROUND * GROWTH {
            let range = self.train(blocks);
            let rows = self.resculpt(&mut quarry, range.start + dug..range.end)?;
            dug = range.end - range.start;
            let found = self.span_and_search(&rows, &answer, &[1, 2, 3, 4])?;
            if found.nmse < answer.nmse {
                answer = found;
            }
            if self.good(&answer) || range.end == self.split.train.end {
                break;
            }
            blocks *= GROWTH;
        }
        if answer.fit.is_none() || answer.nmse > before.nmse {
            return Ok(Answer { open: Some(open), ..before });
        }
        Ok(Answer { open: Some(open), separated: true, ..answer })
    }

    pub fn polish(&mut self, answer: &Answer) -> Result<Option<Fit>> {
        if !self.settings.polish {
            return Ok(None);
        }
        let mut record = self.begin(Phase::Polish)?;
        let mut best: Option<(Fit, f64)> = None;
        let starts = answer.fit.iter().map(|f| f.thetas.clone()).chain(answer.open.iter().map(|f| f.thetas.clone()));
        for start in starts {
            if self.watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let (sample, validation) = self.samples(start.len())?;
            let fit = descend::fit(&sample, &start, &Parametrisation::Full, &Default::default())?;
            let nmse = validate(&validation, &fit);
            self.validation = Some(validation);
            if best.as_ref().is_none_or(|(_, b)| nmse < *b) {
                best = Some((fit, nmse));
            }
            if best.as_ref().is_some_and(|(_, nmse)| *nmse <= self.settings.recovered) {
                break;
            }
        }
        if let Some((fit, nmse)) = &best {
            record.nmse = Some(*nmse);
            record.history.clone_from(&fit.history);
            record.note = format!("{} iterations, validation NMSE {nmse:.1e}", fit.history.len() - 1);
        }
        self.end(record);
        Ok(best.map(|(fit, _)| fit))
    }

    pub fn finish(mut self, answer: Answer, polished: Option<Fit>) -> Result<Learned> {
        let mut record = self.begin(Phase::Certify)?;
        let settings = CertifySettings { delta: self.settings.delta, ..Default::default() };
        let held_out = self.split.held_out.clone();
        let certified = |fit: &Fit| -> Result<_> {
            let layer = fit.layer()?.canonical(1e-9).layer;
            let certificate = certify(&layer, self.source, held_out.clone(), &settings)?;
            let nmse = certificate.nmse.unwrap_or(f64::INFINITY);
            Ok((Stage { layer, nmse }, certificate))
        };
        let before = answer.fit.as_ref().map(certified).transpose()?;
        let after = polished.as_ref().map(certified).transpose()?;
        let fitted = polished.as_ref().or(answer.fit.as_ref()).map_or(f64::INFINITY, |f| f.nmse);
        let nmse = after.as_ref().or(before.as_ref()).map_or(f64::INFINITY, |(stage, _)| stage.nmse);
        let needed = (ROWS_TRIED[0] * self.dimensions() as f64) as u64;
        // Without the polish, what the search promises is all that can be asked.
        let asked = if self.settings.polish { self.settings.recovered } else { self.settings.goal };
        let rows = answer.rows as u64;
        let outcome = if nmse <= asked {
            Outcome::Recovered
        } else if fitted <= asked {
            Outcome::NotCertified { nmse }
        } else if let Some(condition) = self.conditions.hopeless() {
            Outcome::Degenerate { condition }
        } else if rows < needed {
            Outcome::NotEnoughExamples { accepted: rows, needed }
        } else if let Some(condition) = self.conditions.doubtful() {
            Outcome::Degenerate { condition }
        } else {
            Outcome::PartlyRecovered { nmse }
        };
        let (before_polish, before_certificate) = before.unzip();
        let (after_polish, after_certificate) = after.unzip();
        let certificate = after_certificate.or(before_certificate);
        record.rows_seen = certificate.as_ref().map_or(0, |c| c.n * self.settings.shape().k as u64);
        record.note = certificate.as_ref().map_or_else(|| "nothing to certify".into(), |c| c.statement());
        self.end(record);
        let examples = self.read * Block::<f32>::CAPACITY as u64;
        let examples = self.source.len().map_or(examples, |n| n.min(examples));
        let separated = answer.separated;
        Ok(Learned { outcome, before_polish, after_polish, certificate, records: self.records, examples, separated })
    }
}

/// NMSE of a fit on examples that it has not seen.
fn validate(validation: &Sample, fit: &Fit) -> f64 {
    descend::nmse(validation, &fit.thetas, &fit.ws)
}
