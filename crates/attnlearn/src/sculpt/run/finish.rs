//! After the six phases: the polish, the certificate, and how it all ended.

use super::Run;
use super::rounds::{Answer, fewest_rows};
use crate::certify::{CertifySettings, certify};
use crate::data::Block;
use crate::sculpt::fit::{Fit, FitSettings, Parametrisation, fit};
use crate::sculpt::{Learned, Outcome, Phase, Stage};
use crate::{Error, Result};

impl Run<'_> {
    pub fn polish(&mut self, answer: &Answer) -> Result<Option<Fit>> {
        if !self.settings.polish {
            return Ok(None);
        }
        let mut record = self.begin(Phase::Polish)?;
        let mut best: Option<(Fit, f64)> = None;
        let starts = answer.fit.iter().chain(&answer.open).map(Fit::thetas);
        for start in starts {
            if self.watch.interrupted() {
                return Err(Error::Interrupted);
            }
            let (sample, validation) = self.samples(start.len())?;
            let found = fit(&sample, &start, &Parametrisation::Full, &FitSettings::default())?;
            let nmse = found.nmse_on(&validation)?;
            self.validation = Some(validation);
            if best.as_ref().is_none_or(|(_, b)| nmse < *b) {
                best = Some((found, nmse));
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
            let layer = fit.student.layer()?.canonical(1e-9).layer;
            let certificate = certify(&layer, self.certifying, held_out.clone(), &settings)?;
            let nmse = certificate.nmse.unwrap_or(f64::INFINITY);
            Ok((Stage { layer, nmse }, certificate))
        };
        let before = answer.fit.as_ref().map(certified).transpose()?;
        let after = polished.as_ref().map(certified).transpose()?;
        let fitted = polished.as_ref().or(answer.fit.as_ref()).map_or(f64::INFINITY, |f| f.nmse);
        let nmse = after.as_ref().or(before.as_ref()).map_or(f64::INFINITY, |(stage, _)| stage.nmse);
        let needed = fewest_rows(self.dimensions()) as u64;
        // Without the polish, what the search promises is all that can be asked; that is no recovery.
        let asked = if self.settings.polish { self.settings.recovered } else { self.settings.goal };
        let rows = answer.rows as u64;
        let outcome = if nmse <= self.settings.recovered {
            Outcome::Recovered
        } else if nmse <= asked {
            Outcome::Approximated { nmse }
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
