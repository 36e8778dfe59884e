//! Phases 4–6, in rounds of ever more examples; and once more with separated projections, where too few rows agree.

use super::{Run, WIDEST};
use crate::linalg::Mat;
use crate::sculpt::agreement::{AgreeingRow, PairTest};
use crate::sculpt::body::{Quarry, quality};
use crate::sculpt::fit::Fit;
use crate::sculpt::search::{self, Effort};
use crate::sculpt::span::{Hull, norm};
use crate::sculpt::{Heads, Phase};
use crate::{Error, Result};
use std::ops::Range;

/// Blocks of the first round of phase 4.
const FIRST_ROUND: u64 = 256;
/// Growth of the number of examples from round to round.
const GROWTH: u64 = 4;
/// Rows kept, per dimension of the attention matrices.
const ROWS_KEPT: usize = 32;
/// Fractions of them, per dimension, from which the span is tried.
const ROWS_TRIED: [f64; 6] = [1.5, 2.0, 3.0, 4.0, 8.0, 16.0];
/// Rows, per dimension, for the convex body.
const ROWS_OF_BODY: usize = 4;

/// Rows that the smallest hull is fitted to, for attention matrices of `p` entries.
pub(super) fn fewest_rows(p: usize) -> usize {
    (ROWS_TRIED[0] * p as f64) as usize
}

/// What phases 4–6 came up with.
pub(in crate::sculpt) struct Answer {
    pub fit: Option<Fit>,
    /// NMSE on the validation examples.
    pub nmse: f64,
    /// Rows that the hull was fitted to, or those at hand if they were too few for one.
    pub rows: usize,
    /// Heads found without a span, if it came to that.
    pub open: Option<Fit>,
    /// Whether the rows were certified with separated projections.
    pub separated: bool,
}

impl Answer {
    fn none() -> Self {
        Self { fit: None, nmse: f64::INFINITY, rows: 0, open: None, separated: false }
    }
}

impl Run<'_> {
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
            if self.settings.sculpture {
                record.sculpture = self.sculpture(rows, hull)?;
            }
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
        let mut given: Vec<Vec<Mat<f64>>> = before.fit.iter().map(Fit::thetas).collect();
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
            let nmse = fit.nmse_on(&validation)?;
            if nmse < answer.nmse {
                given = vec![fit.thetas()];
                record.history.clone_from(&fit.history);
                answer = Answer { fit: Some(fit), nmse, rows: hull.rows, ..Answer::none() };
            }
            if nmse < 0.5 * self.settings.goal {
                break;
            }
            // The first number of heads that explains the examples is the answer.
            if answer.nmse <= self.settings.goal && *m != answer.fit.as_ref().map_or(*m, Fit::heads) {
                break;
            }
        }
        record.nmse = answer.fit.as_ref().map(|_| answer.nmse);
        record.rows_seen = ((sample.len() + validation.len()) * sample.shape.k) as u64;
        record.note = match &answer.fit {
            Some(fit) => format!("{} heads, {tried} hulls searched, validation NMSE {:.1e}", fit.heads(), answer.nmse),
            None => "no span to search in".into(),
        };
        self.validation = Some(validation);
        self.end(record);
        Ok(answer)
    }

    /// Widths of the body along the hull's directions and along its centre, by linear programs.
    fn widths(&self, rows: &[AgreeingRow], hull: &Hull) -> Result<Vec<f64>> {
        let size = norm(&hull.centre);
        let centre: Vec<f64> = hull.centre.iter().map(|x| x / size).collect();
        let directions = hull.directions.iter().chain([&centre]);
        Ok(self.widths_along(rows, ROWS_OF_BODY * self.dimensions(), directions)?.unwrap_or_default())
    }

    pub fn separated_round(&mut self, before: Answer) -> Result<Answer> {
        let mut record = self.begin(Phase::Search)?;
        let mut open: Option<(Fit, f64)> = None;
        for m in self.candidates(None) {
            let (sample, validation) = self.samples(m)?;
            let effort = Effort { starts: 6, enough: 0.1 * self.settings.goal };
            if let Some(fit) = search::open(&sample, m, 3.0, effort, self.settings.seed)? {
                let nmse = fit.nmse_on(&validation)?;
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
        record.note =
            format!("without a span: {} heads, validation NMSE {nmse:.1e}; their projections now certify rows", open.heads());
        self.end(record);
        if nmse > 0.1 {
            return Ok(Answer { open: Some(open), ..before });
        }
        let test = PairTest::separated(&open.ws(), 2.0 * WIDEST);
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
}
