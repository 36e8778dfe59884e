//! What the sizes of a student and its examples decide: how it descends, on how many examples it is refined, and how often.

use crate::descend::optimise::adam::{AdamSettings, Scaling};
use crate::descend::optimise::newton::NewtonSettings;
use crate::engine::batch::Batch;
use crate::engine::evidence::Prior;
use crate::engine::student::{Form, Part};
use serde::{Deserialize, Serialize};

/// How much to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrategySettings {
    /// Seed of starts and batches.
    pub seed: u64,
    /// Heads of large students drawn anew after a start, for each head there is (default 2).
    pub redraws: usize,
    /// Share of unexplained variance that counts as none (default 10⁻²²).
    pub goal: f64,
    /// How hard to try: 1 is the least number of starts, 10 that of a minute or two for small students (default 10).
    pub effort: f64,
    /// Numbers that the passes of a refinement may keep; there are no more examples in it (default 2²⁸, 2 GiB).
    pub pass_numbers: usize,
}

impl Default for StrategySettings {
    fn default() -> Self {
        Self { seed: 0, redraws: 2, goal: 1e-22, effort: 10.0, pass_numbers: 1 << 28 }
    }
}

/// Students with at most so many parameters beside `O` are small.
const SMALL: usize = 8192;

/// Norms of attention matrices that starts have, in turn: most teachers are near the first, some are sharp, some hardly attend.
pub(crate) const NORMS: [f64; 8] = [Form::NORM, Form::NORM, 0.5, 6.0, Form::NORM, 0.15, Form::NORM, 12.0];

/// Whether the heads of a start are alike in the examples' own units, as initialisers and weight decay leave them, or in those of white tokens.
pub(crate) fn is_plain(start: usize) -> bool {
    (start / 2).is_multiple_of(2)
}

/// Chains of a crowd of small students, at most.
const CROWD: usize = 16;

/// η of the first descent of a large student, and what it is multiplied by for one that follows.
const RATE: f64 = 0.08;
const FINER: f64 = 0.25;

/// Descents that may follow the first, and errors after which they do: correlated tokens make descents slow.
const MORE_DESCENTS: usize = 2;
const BETWEEN: (f64, f64) = (1e-4, 3e-2);

/// Share of unexplained variance at which free scores say what they can of a rotation: what is left is for the rotary student itself.
const RELAXED: f64 = 1e-17;

/// What sizes decide.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Whether one chain has all threads, and descends on small batches.
    pub(crate) large: bool,
    /// Of a large student.
    batch: usize,
    pub(crate) newton: NewtonSettings,
    /// While scores are free in the distance.
    pub(crate) relaxed: NewtonSettings,
    /// Sequences for Gauss–Newton.
    pub(crate) refine: usize,
    /// Refinements in all.
    pub(crate) most: usize,
}

impl Plan {
    pub(crate) fn new(form: &Form, examples: &Batch<f64>, settings: &StrategySettings) -> Self {
        let k = examples.shape.k;
        let pooled = form.heads * form.s();
        let batch = ((10 * pooled).clamp(256, 4096) / k).max(1);
        let large = form.range(Part::O).start > SMALL;
        // So many times as many numbers as unknowns, and enough rows for the refit. A head shows a query only as many directions as there are keys: few
        // rows make products cheap, and a condition that takes many of them.
        let rows = (if large { 30 } else { 5 } * form.len() / form.d_out).max(5 * pooled).max(2000);
        let refine = rows.div_ceil(k).min(most_sequences(form, k, settings.pass_numbers)).min(examples.len());
        // A start with its redraws, at least; for small students as many as a given number of operations allows.
        let least = 1 + if large { settings.redraws * form.heads } else { 2 };
        let operations = (refine * k * form.len()) as f64;
        let most = (settings.effort * 8e6 / operations.max(1.0)).min(4000.0).max(settings.effort * least as f64);
        Self {
            large,
            batch,
            newton: NewtonSettings { goal: settings.goal, steps: if large { 25 } else { 80 }, ..NewtonSettings::default() },
            relaxed: NewtonSettings { goal: settings.goal.max(RELAXED), steps: 25, ..NewtonSettings::default() },
            refine,
            most: most as usize,
        }
    }

    /// Chains of a crowd, at most.
    pub(crate) fn crowd(&self) -> usize {
        if self.large { 1 } else { CROWD }
    }

    /// Whether a descent that ended at such an error should be followed by another: far from the end, and yet too near for a floor.
    pub(crate) fn goes_on(&self, nmse: f64, descents: usize) -> bool {
        self.large && descents < MORE_DESCENTS && (BETWEEN.0..BETWEEN.1).contains(&nmse)
    }

    /// The descent of a start, or after so many of its heads were drawn anew, and the one after so many others.
    pub(crate) fn descent(&self, start: usize, redraws: usize, descents: usize) -> AdamSettings {
        if self.large {
            let steps = if redraws == 0 { 1500 } else { 600 };
            let rate = RATE * FINER.powi(i32::try_from(descents).unwrap_or(i32::MAX));
            return AdamSettings { steps, rate, batch: self.batch, goal: 1e-9, ..AdamSettings::default() };
        }
        // Slower after every few failures.
        let steps = 300 << (start / 4).min(4);
        let prior = Prior { noise: 3.0, norm: NORMS[start % NORMS.len()], evidence: start.is_multiple_of(2) };
        AdamSettings {
            steps,
            rate: 0.4,
            scaling: Scaling::Entries,
            batch: usize::MAX,
            goal: 1e-9,
            prior: Some((prior, 3e-3)),
            ..AdamSettings::default()
        }
    }
}

/// Sequences whose passes keep so many numbers.
pub(crate) fn most_sequences(form: &Form, k: usize, numbers: usize) -> usize {
    // A key for every function of the distance, while scores are free in it: at most as many as a head has dimensions.
    let relaxed = if form.scores.rotation.is_some() { 2 * form.key_groups() * form.r() * (form.r() + 1).min(2 * k) } else { 0 };
    let of_row = 4 * form.heads * (form.r() + form.s()) + 2 * form.d_out + form.heads * k + relaxed;
    (numbers / (k * of_row).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Shape;
    use crate::layer::Mask;
    use crate::scores::Scores;

    fn plan(d: usize) -> Plan {
        let form = Form {
            d,
            d_out: d,
            heads: 4,
            rank: None,
            value_rank: None,
            key_bias: false,
            bias: false,
            scores: Scores::of(Mask::None),
            groups: None,
            relative: None,
        };
        let examples = Batch { shape: Shape { k: 4, d, d_out: d }, x: vec![0.0; 40 * d], y: vec![0.0; 40 * d] };
        Plan::new(&form, &examples, &StrategySettings::default())
    }

    /// Both units are tried with and without the determinant of the evidence.
    #[test]
    fn starts_differ_in_units_and_priors() {
        let plan = plan(8);
        let kinds = (0..4).map(|start| (is_plain(start), plan.descent(start, 0, 0).prior.map(|(prior, _)| prior.evidence)));
        let kinds: std::collections::HashSet<_> = kinds.collect();
        assert_eq!(kinds.len(), 4);
        assert!(is_plain(0));
    }

    /// Large students go on where they are neither near the end nor at a floor, twice, by ever smaller steps; small ones start again instead.
    #[test]
    fn descents_go_on_in_between() {
        let (small, large) = (plan(8), plan(64));
        assert!(!small.large && large.large);
        assert!(large.goes_on(1e-3, 0) && large.goes_on(1e-3, 1) && !large.goes_on(1e-3, 2));
        assert!(!large.goes_on(1e-6, 0) && !large.goes_on(0.5, 0) && !large.goes_on(f64::NAN, 0) && !small.goes_on(1e-3, 0));
        let rates: Vec<f64> = (0..3).map(|descents| large.descent(0, 0, descents).rate).collect();
        assert!(rates[0] > 2.0 * rates[1] && rates[1] > 2.0 * rates[2], "{rates:?}");
        assert!(large.descent(0, 1, 0).steps < large.descent(0, 0, 0).steps);
    }
}
