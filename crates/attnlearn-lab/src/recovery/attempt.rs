//! One learner, one teacher, so many examples: what came of it.
//!
//! The practical learner has one answer. The six phases have two: their own, and that of the polish, which is no part of the paper's algorithm.
//!
//! | answer | is a success if |
//! |---|---|
//! | descent | both matrices of every head are within 10⁻⁶ |
//! | six phases | every `Θ_i` is within 15 %, and the held-out NMSE is at most 10⁻²; the `W_i` are not judged |
//! | six phases (polished) | both matrices of every head are within 10⁻⁶ |
//!
//! The bars differ: the six phases' own answer is statistical, the others end at rounding. What was polished can be held to the lower bar as well.

use super::judge::or_infinite;
use super::{Effort, Inputs, Judged, descend, draw_examples, judge, sculpt as six_phases};
use crate::stats::{Estimate, rate, short};
use attnlearn::Result;
use attnlearn::descend::StrategySettings;
use attnlearn::layer::AttentionLayer;
use serde::{Deserialize, Serialize};
use statrs::function::factorial::ln_binomial;

/// Who learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learner {
    /// The practical learner.
    Descend,
    /// The six phases.
    Sculpt,
}

/// Whose answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The practical learner's.
    Descent,
    /// The six phases' own.
    SixPhases,
    /// The six phases' after the polish.
    Polished,
}

/// What counts as success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Of descent.
    Descent,
    /// Of the six phases' own answer, as far as it rests on agreement of the heads alone.
    Agreement,
    /// Of their own answer, whatever it rests on.
    SixPhases,
    /// After the polish.
    Polished,
    /// After the polish, by the lower bar of their own answer.
    PolishedRoughly,
}

impl Criterion {
    /// Every answer by its own bar.
    pub const ALL: [Self; 4] = [Self::Descent, Self::Agreement, Self::SixPhases, Self::Polished];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Descent => "descent",
            Self::Agreement => "agreement alone",
            Self::SixPhases => "six phases",
            Self::Polished => "six phases (polished)",
            Self::PolishedRoughly => "six phases (polished, lower bar)",
        }
    }

    /// What it asks of an answer, for people.
    pub fn bar(self) -> &'static str {
        match self {
            Self::Descent | Self::Polished => "every matrix within 10⁻⁶",
            Self::Agreement | Self::SixPhases | Self::PolishedRoughly => {
                "every Θ within 15 % and held-out NMSE at most 10⁻², W not judged"
            }
        }
    }

    /// The bar, and how hard descent tried, for it finds more the longer it tries.
    pub fn terms(self, effort: f64) -> String {
        match self {
            Self::Descent => {
                let share = 100.0 * effort / StrategySettings::default().effort;
                format!("{}, at {} % of its default effort", self.bar(), short(share))
            }
            _ => self.bar().to_owned(),
        }
    }

    /// Whether an attempt meets it; none if it is about another answer.
    pub fn met(self, attempt: &Attempt) -> Option<bool> {
        match (self, attempt.stage) {
            (Self::Descent, Stage::Descent) | (Self::SixPhases, Stage::SixPhases) | (Self::Polished, Stage::Polished) => {
                Some(attempt.success)
            }
            (Self::Agreement, Stage::SixPhases) => Some(attempt.success && attempt.by_agreement),
            (Self::PolishedRoughly, Stage::Polished) => Some(roughly(&attempt.judged, attempt.nmse)),
            _ => None,
        }
    }
}

/// Errors of the six phases' own answer that count as success: of attention matrices, and NMSE.
const OWN: [f64; 2] = [0.15, 1e-2];

fn roughly(judged: &Judged, nmse: f64) -> bool {
    judged.theta_error <= OWN[0] && nmse <= OWN[1]
}

/// Sequences that answers are measured on.
const HELD_OUT: usize = 2048;

/// What is to be learned, from what.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The layer, which the learner does not see.
    pub teacher: &'a AttentionLayer,
    /// Tokens of a sequence.
    pub k: usize,
    /// Their distribution.
    pub inputs: Inputs,
    /// Sequences to learn from, at most.
    pub examples: usize,
    /// Seed of examples and starts.
    pub seed: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Whose.
    pub stage: Stage,
    /// Whether it is one.
    pub success: bool,
    /// Beside the teacher.
    #[serde(flatten)]
    pub judged: Judged,
    /// Share of the outputs' variance that it leaves unexplained on fresh examples; infinite (`null` in JSON) where there is no answer.
    #[serde(deserialize_with = "or_infinite")]
    pub nmse: f64,
    /// Sequences that served to learn it.
    pub examples_read: u64,
    /// Starts of descent; of the six phases none.
    pub starts: usize,
    /// Whether it rests on agreement of the heads alone, as the paper's algorithm does.
    pub by_agreement: bool,
    /// How the learner says that it ended.
    pub outcome: String,
}

/// An answer and its layer, if there is one.
pub type Answered = (Attempt, Option<AttentionLayer>);

impl Task<'_> {
    /// The answers of a learner, told the number of heads. `effort` is that of descent.
    pub fn attempt(&self, learner: Learner, effort: f64, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Attempt>> {
        Ok(self.answers(learner, effort, stop)?.into_iter().map(|(attempt, _)| attempt).collect())
    }

    /// The same with the layers themselves.
    pub fn answers(&self, learner: Learner, effort: f64, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Answered>> {
        match learner {
            Learner::Descend => self.by_descent(effort, stop),
            Learner::Sculpt => self.by_sculpting(stop),
        }
    }

    /// Seeds of examples, of held-out examples and of starts.
    fn seeds(&self) -> [u64; 3] {
        [1, 2, 3].map(|part| self.seed ^ (part << 48))
    }

    fn by_descent(&self, effort: f64, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Answered>> {
        let [examples, _, starts] = self.seeds();
        let examples = draw_examples(self.teacher, self.k, self.inputs, self.examples, examples)?;
        let effort = Effort { descend: effort, seed: starts };
        let answer = descend(&examples, self.teacher.heads().len(), None, self.teacher.mask(), effort, stop)?;
        let judged = judge(self.teacher, &answer.layer);
        let attempt = Attempt {
            stage: Stage::Descent,
            success: judged.recovered(),
            judged,
            nmse: self.held_out(&answer.layer)?,
            examples_read: self.examples as u64,
            starts: answer.starts,
            by_agreement: false,
            outcome: if judged.recovered() { "recovered".into() } else { format!("NMSE {:.1e} where it learned", answer.nmse) },
        };
        Ok(vec![(attempt, Some(answer.layer))])
    }

    fn by_sculpting(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Answered>> {
        let [examples, _, starts] = self.seeds();
        let source = self.inputs.stream(self.teacher, self.k, examples)?;
        let learned = six_phases(source.as_ref(), self.teacher.heads().len(), self.examples as u64, starts, stop)?;
        let separated = learned.phases().is_some_and(|phases| phases.separated);
        let answer = |stage: Stage, layer: Option<&AttentionLayer>| -> Result<Answered> {
            let judged = layer.map_or(Judged::nothing(), |layer| judge(self.teacher, layer));
            let nmse = layer.map_or(Ok(f64::INFINITY), |layer| self.held_out(layer))?;
            let success = match stage {
                Stage::SixPhases => roughly(&judged, nmse),
                _ => judged.recovered(),
            };
            let attempt = Attempt {
                stage,
                success,
                judged,
                nmse,
                examples_read: learned.examples,
                starts: 0,
                by_agreement: stage == Stage::SixPhases && !separated,
                outcome: learned.outcome.to_string(),
            };
            Ok((attempt, layer.cloned()))
        };
        let own = answer(Stage::SixPhases, learned.before_polish.as_ref().map(|own| &own.layer))?;
        Ok(vec![own, answer(Stage::Polished, learned.after_polish().map(|(layer, _)| layer))?])
    }

    /// NMSE on fresh examples of the same kind.
    fn held_out(&self, layer: &AttentionLayer) -> Result<f64> {
        let [_, fresh, _] = self.seeds();
        let fresh = draw_examples(self.teacher, self.k, self.inputs, HELD_OUT, fresh)?;
        let square: f64 = layer.forward(self.k, &fresh.x).iter().zip(&fresh.y).map(|(f, y)| (f - y).powi(2)).sum();
        Ok(square / fresh.variance()?)
    }
}

/// Share of successes, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Successes.
    pub successes: usize,
    /// Attempts.
    pub of: usize,
    /// Their ratio.
    pub estimate: Estimate,
}

impl Rate {
    /// Of those among these attempts that the criterion is about; none if there are none.
    pub fn of<'a>(attempts: impl IntoIterator<Item = &'a Attempt>, criterion: Criterion) -> Result<Option<Self>> {
        Self::among(attempts.into_iter().filter_map(|attempt| criterion.met(attempt)))
    }

    /// Of so many; none if there are none.
    pub fn among(met: impl IntoIterator<Item = bool>) -> Result<Option<Self>> {
        let met: Vec<bool> = met.into_iter().collect();
        let (successes, of) = (met.iter().filter(|met| **met).count(), met.len());
        Ok(if of == 0 { None } else { Some(Self { successes, of, estimate: rate(successes, of)? }) })
    }
}

impl Rate {
    /// Whether two rates differ by more than chance, by Fisher's exact test at 5 %.
    pub fn differs(&self, other: &Self) -> bool {
        let (all, good) = (self.of + other.of, self.successes + other.successes);
        // ln of the number of ways in which x of the successes are on this side.
        let ways = |x: usize| ln_binomial(good as u64, x as u64) + ln_binomial((all - good) as u64, (self.of - x) as u64);
        let (least, most) = ((self.of + good).saturating_sub(all), self.of.min(good));
        let seen = ways(self.successes);
        let sum = |keep: &dyn Fn(f64) -> bool| -> f64 { (least..=most).map(ways).filter(|w| keep(*w)).map(f64::exp).sum() };
        sum(&|w| w <= seen + 1e-9) < 0.05 * sum(&|_| true)
    }
}

/// `5 of 6`.
impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.successes, self.of)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::recovery::nondegenerate;
    use attnlearn::teacher::TeacherSpec;

    /// Descent recovers a small layer from enough examples and none from too few; rows come back from JSON as they were, infinite errors included.
    #[test]
    fn attempts_are_what_they_say() {
        let teacher = nondegenerate(&TeacherSpec::dense(5, 2, 4.0), 4, 1).unwrap();
        let task = Task { teacher: &teacher, k: 4, inputs: Inputs::Gaussian, examples: 60, seed: 1 };
        let good = task.attempt(Learner::Descend, 1.0, &|| false).unwrap();
        assert!(good[0].success && good[0].nmse < 1e-12 && good[0].judged.heads_found == 2, "{good:?}");
        assert_eq!(good, task.attempt(Learner::Descend, 1.0, &|| false).unwrap());
        let bad = Task { examples: 3, ..task }.attempt(Learner::Descend, 1.0, &|| false).unwrap();
        assert!(!bad[0].success && bad[0].nmse > 1e-3, "{bad:?}");
        let nothing = Attempt { judged: Judged::nothing(), nmse: f64::INFINITY, ..bad[0].clone() };
        let back: Attempt = serde_json::from_value(serde_json::to_value(&nothing).unwrap()).unwrap();
        assert_eq!(back, nothing);
        let rate = Rate::of(good.iter().chain(&bad), Criterion::Descent).unwrap().unwrap();
        assert_eq!((rate.successes, rate.of, rate.to_string().as_str()), (1, 2, "1 of 2"));
        assert_eq!(Rate::of(&good, Criterion::Agreement).unwrap(), None);
    }

    /// What was polished is held to either bar, from the same row.
    #[test]
    fn bars_are_two() {
        let judged = Judged { theta_error: 0.1, w_error: 0.5, heads_found: 0 };
        let row = Attempt {
            stage: Stage::Polished,
            success: judged.recovered(),
            judged,
            nmse: 1e-3,
            examples_read: 1,
            starts: 0,
            by_agreement: false,
            outcome: String::new(),
        };
        assert_eq!(Criterion::Polished.met(&row), Some(false));
        assert_eq!(Criterion::PolishedRoughly.met(&row), Some(true));
        assert_eq!(Criterion::PolishedRoughly.met(&Attempt { nmse: 0.02, ..row.clone() }), Some(false));
        let far = Judged { theta_error: 0.16, ..judged };
        assert_eq!(Criterion::PolishedRoughly.met(&Attempt { judged: far, ..row.clone() }), Some(false));
        assert_eq!(Criterion::PolishedRoughly.met(&Attempt { stage: Stage::SixPhases, ..row }), None);
        let different: Vec<bool> = Criterion::ALL.iter().map(|criterion| criterion.bar().contains("10⁻⁶")).collect();
        assert_eq!(different, [true, false, false, true]);
        assert_eq!(Criterion::Descent.terms(0.1), "every matrix within 10⁻⁶, at 1.00 % of its default effort");
        assert_eq!(Criterion::Polished.terms(0.1), "every matrix within 10⁻⁶");
    }

    /// Two-sided p-values by hand: 2/252, 12/252, 42/252, 0.0079, 0.057, 1 and 2/20.
    #[test]
    fn rates_differ_by_more_than_chance_or_not() {
        let rate = |successes, of| Rate { successes, of, estimate: rate(successes, of).unwrap() };
        for (a, b, differ) in [
            ((0, 5), (5, 5), true),
            ((1, 5), (5, 5), true),
            ((2, 5), (5, 5), false),
            ((8, 20), (17, 20), true),
            ((4, 10), (9, 10), false),
            ((5, 5), (5, 5), false),
            ((0, 3), (3, 3), false),
        ] {
            assert_eq!(rate(a.0, a.1).differs(&rate(b.0, b.1)), differ, "{a:?} {b:?}");
            assert_eq!(rate(b.0, b.1).differs(&rate(a.0, a.1)), differ, "{b:?} {a:?}");
        }
    }
}
