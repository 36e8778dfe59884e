//! A layer from examples: which students to try, and which of them to report.
//!
//! - **Heads**: as many as were asked for; or ever more, until the error on held-out examples stops falling, and then fewer again as long as it does
//!   not rise.
//! - **Rank** of attention matrices: as asked for; or full where tokens are small, else `d/m`, what common implementations have, then twice that
//!   and so on. Projections have the same rank, or if that does not suffice are full.
//! - **Biases**: as asked for; or with them where examples abound, else without, and with them only if that leaves something unexplained.
//!
//! Where there is a choice every form gets little effort at first, and the best of them all of it in the end. Of all that were tried the one with the
//! least held-out error is reported, or the smallest of those that are hardly worse, in canonical form: heads that attend alike are merged, heads
//! without effect dropped. Held-out examples choose among a handful of forms and are seen by nothing else; a certificate needs fresh ones.

use crate::data::Shape;
use crate::descend::search::fewer::fewer;
use crate::descend::search::plan::StrategySettings;
use crate::descend::search::state::End;
use crate::descend::search::strategy::Run;
use crate::descend::units::whitening::Whitening;
use crate::engine::batch::Batch;
use crate::engine::student::{Form, Student};
use crate::hash::Hash;
use crate::layer::AttentionLayer;
use crate::scores::{Mask, Scores};
use crate::words::{Setting, Wording};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How many heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadCount {
    /// This many.
    Given(usize),
    /// As many as held-out examples ask for, at most this many.
    Auto(usize),
    /// All from the first number to the second, until nothing is left unexplained: error against size.
    Range(usize, usize),
}

/// Rank of attention matrices and projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// This one.
    Given(usize),
    /// All of d.
    Full,
    /// What the examples ask for: see `learner.rs`.
    Auto,
}

/// `8`, `full`, `auto`.
impl FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "full" => Ok(Self::Full),
            number => number.parse().map(Self::Given).map_err(|_| "give a rank, full or auto".into()),
        }
    }
}

/// Yes, no, or what the examples say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// With them.
    Yes,
    /// Without them.
    No,
    /// What the examples ask for: see `learner.rs`.
    Auto,
}

/// What to look for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Heads (default: automatic, at most 16).
    pub heads: HeadCount,
    /// Rank of attention matrices (default: automatic).
    pub rank: Rank,
    /// Rank of projections (default: automatic).
    pub value_rank: Rank,
    /// Key biases and output bias (default: automatic).
    pub biases: Choice,
    /// How scores are made: mask, rotation, norm (default: all keys are seen, and scores are bilinear).
    pub scores: Scores,
    /// Key groups, which heads share keys and values in (default: every head has its own).
    pub groups: Option<usize>,
    /// Whether heads have relative biases (default: no).
    pub relative: bool,
    /// How much to try.
    pub strategy: StrategySettings,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            heads: HeadCount::Auto(16),
            rank: Rank::Auto,
            value_rank: Rank::Auto,
            biases: Choice::Auto,
            scores: Scores::default(),
            groups: None,
            relative: false,
            strategy: StrategySettings::default(),
        }
    }
}

impl Wanted {
    /// Refuses what cannot be learned from examples of a shape.
    pub fn check(&self, shape: Shape) -> Result<()> {
        let bad = |name, problem: &str, remedy: &str| Err(Error::input(Setting::new(name), problem, remedy));
        if matches!(self.heads, HeadCount::Given(0) | HeadCount::Auto(0) | HeadCount::Range(0, _)) {
            return bad("heads", "0 heads", "ask for at least one");
        }
        if matches!(self.heads, HeadCount::Range(first, last) if first > last) {
            return bad("heads", "the range is empty", "give the smaller number first");
        }
        for (name, rank) in [("rank", self.rank), ("value_rank", self.value_rank)] {
            if matches!(rank, Rank::Given(r) if r == 0 || r > shape.d) {
                return bad(name, "the rank is 0 or above d", "ask for a rank from 1 to d");
            }
        }
        if let Some(groups) = self.groups {
            let counts: Vec<usize> = match self.heads {
                HeadCount::Given(m) => vec![m],
                HeadCount::Auto(_) | HeadCount::Range(..) => {
                    let problem = "the number of heads is not given";
                    let remedy = Wording::from("give ").then(Setting::new("heads")).then(" too");
                    return Err(Error::input(Setting::new("kv_heads"), problem, remedy));
                }
            };
            if groups == 0 || counts.iter().any(|m| !m.is_multiple_of(groups)) {
                let problem = format!("{} heads cannot share {groups} key heads", counts[0]);
                return bad("kv_heads", &problem, "give a divisor of the number of heads");
            }
        }
        let factored = !self.scores.is_bilinear() || self.groups.is_some();
        let rank = match self.rank {
            Rank::Given(rank) => Some(rank),
            Rank::Full | Rank::Auto => None,
        };
        if factored && rank.is_none() {
            return bad("rank", "rotation, norms and key groups need the dimension of a head", "give it");
        }
        if self.scores.mask == Mask::Window(0) {
            return bad("window", "a window of 0 keys", "a query sees itself at least: give 1 or more");
        }
        if let Some(epsilon) = self.scores.norm.filter(|epsilon| !(epsilon.is_finite() && *epsilon >= 0.0)) {
            return bad("norm", &format!("an ε of {epsilon}"), "give a number that is not negative");
        }
        self.scores.check(rank.unwrap_or(usize::MAX), "scores")?;
        if !(self.strategy.effort > 0.0 && self.strategy.effort <= 1e6) {
            return bad("effort", "it is not a number from 0 to 10⁶", "give one");
        }
        if shape.k < 2 {
            let remedy = "attention over one token is no choice at all: give sequences of at least 2 tokens";
            return Err(Error::input("examples", "sequences of one token, k = 1", remedy));
        }
        Ok(())
    }
}

/// Tokens up to this dimension have heads of full rank.
const SMALL_TOKENS: usize = 32;
/// Numbers for every unknown above which biases cost nothing.
const ABUNDANT: usize = 3;
/// A held-out error that is worse by at most this share is as good.
const AS_GOOD: f64 = 0.02;
/// A held-out error below this is rounding.
const EXACT: f64 = 1e-18;
/// Heads attend alike, or have no effect, up to this relative difference.
const ALIKE: f64 = 1e-6;

/// Examples in the units of descent, and those held out in their own.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) whitening: Whitening,
    pub(crate) train: Batch<f64>,
    test: Batch<f64>,
}

impl Prepared {
    /// Examples to learn from, and others to compare forms by; without any of those, forms are compared by the ones that they are learned from.
    pub fn new(train: Batch<f64>, test: Batch<f64>) -> Result<Self> {
        if train.is_empty() {
            return Err(Error::input("examples", "none to learn from", "give more examples, or hold fewer out"));
        }
        if train.shape != test.shape {
            let problem = format!("{:?} to learn from, {:?} to compare by", train.shape, test.shape);
            return Err(Error::input("examples", problem, "give both one shape"));
        }
        let whitening = Whitening::of(&train)?;
        Ok(Self { train: whitening.enter(train), whitening, test })
    }

    /// The examples that forms were compared by.
    pub fn into_test(self) -> Batch<f64> {
        self.test
    }

    /// What a checkpoint knows the examples by.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hash = Hash::new();
        for batch in [&self.train, &self.test] {
            [batch.shape.k, batch.shape.d, batch.shape.d_out, batch.len()].iter().for_each(|size| hash.word(*size as u64));
            batch.x.iter().chain(&batch.y).for_each(|v| hash.word(v.to_bits()));
        }
        hash.value()
    }

    /// Share of the variance that a student, in the examples' own units, leaves unexplained on held-out examples, if there are any. The variance is
    /// that of the examples it was learned from: a few held-out ones may have none.
    fn held_out_nmse(&self, student: &Student<f64>) -> Option<f64> {
        let variance = self.whitening.variance() * self.test.y.len() as f64;
        (!self.test.is_empty()).then(|| self.test.error(&student.form, &student.values) / variance)
    }

    /// Variance of the outputs that serve to learn, per number.
    pub fn variance(&self) -> f64 {
        self.whitening.variance()
    }

    /// Examples that serve to learn.
    pub fn examples(&self) -> usize {
        self.train.len()
    }
}

/// A form that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Try {
    /// Its shape; the student has fewer heads where it needs no more.
    pub form: Form,
    /// Share of the effort that was allowed: see [`StrategySettings::effort`].
    pub effort: f64,
    /// How it ended.
    pub end: End,
    /// Share of unexplained variance on the examples it was learned from.
    pub nmse: f64,
    /// The same on those held out.
    pub held_out: f64,
    /// The student, in the examples' own units.
    pub student: Student<f64>,
}

/// A layer and how it was found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In canonical form.
    pub layer: AttentionLayer,
    /// Number of its try.
    pub chosen: usize,
    /// Everything that was tried.
    pub tries: Vec<Try>,
}

/// A search over forms.
pub struct Learner<'a> {
    pub(crate) examples: &'a Prepared,
    pub(crate) wanted: Wanted,
    /// What is over.
    pub tries: Vec<Try>,
    /// What goes on.
    pub run: Run<'a>,
    pub(crate) form: Form,
    pub(crate) effort: f64,
}

impl<'a> Learner<'a> {
    /// At the beginning.
    pub fn new(examples: &'a Prepared, wanted: Wanted) -> Result<Self> {
        wanted.check(examples.train.shape)?;
        let Some((form, effort)) = next_form(&wanted, &examples.train, &[]) else {
            return Err(Error::input(Setting::new("heads"), "nothing to try", "ask for at least one head"));
        };
        let run = Run::new(
            &examples.train,
            examples.whitening.principal(),
            form.clone(),
            StrategySettings { effort, ..wanted.strategy.clone() },
        )?;
        Ok(Self { examples, wanted, tries: Vec::new(), run, form, effort })
    }

    /// Goes on for a while; whether all is over.
    pub fn advance(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<bool> {
        // A search that was kept at its end is continued there.
        if next_form(&self.wanted, &self.examples.train, &self.tries).is_none() {
            return Ok(true);
        }
        let Some(end) = self.run.advance(stop)? else { return Ok(false) };
        let mut student = self.run.student()?;
        if matches!(end, End::Exact | End::Floor) {
            student = fewer(&student, &self.examples.train, &self.wanted.strategy, end == End::Exact, stop)?;
        }
        let nmse = self.examples.train.error(&student.form, &student.values) / self.examples.train.variance()?;
        let student = self.examples.whitening.leave(&student);
        let held_out = self.examples.held_out_nmse(&student).unwrap_or(nmse);
        self.tries.push(Try { form: self.form.clone(), effort: self.effort, end, nmse, held_out, student });
        let Some((form, effort)) = next_form(&self.wanted, &self.examples.train, &self.tries) else { return Ok(true) };
        (self.form, self.effort) = (form.clone(), effort);
        self.run = Run::new(
            &self.examples.train,
            self.examples.whitening.principal(),
            form,
            StrategySettings { effort, ..self.wanted.strategy.clone() },
        )?;
        Ok(false)
    }

    /// The best there is, in the middle of the search: what goes on counts as a try that was stopped.
    pub fn stop(mut self) -> Result<Outcome> {
        let student = self.run.student()?;
        let nmse = self.run.nmse_of(&student)?;
        let student = self.examples.whitening.leave(&student);
        let held_out = self.examples.held_out_nmse(&student).unwrap_or(nmse);
        self.tries.push(Try { form: self.form.clone(), effort: self.effort, end: End::Stopped, nmse, held_out, student });
        self.outcome()
    }

    /// Goes on to the end.
    pub fn finish(mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<Outcome> {
        while !self.advance(stop)? {}
        self.outcome()
    }

    /// The best of what is over.
    pub fn outcome(self) -> Result<Outcome> {
        let best = best(&self.tries).ok_or_else(|| Error::input("descent", "nothing was found", "let it run longer"))?;
        let layer = self.tries[best].student.layer()?.canonical(ALIKE).layer;
        Ok(Outcome { layer, chosen: best, tries: self.tries })
    }

    /// The best layer there is, in the middle of the search too, and its share of unexplained variance on held-out examples.
    pub fn best_so_far(&self) -> Result<(AttentionLayer, f64)> {
        let current = self.examples.whitening.leave(&self.run.student()?);
        let nmse = match self.examples.held_out_nmse(&current) {
            Some(nmse) => nmse,
            None => self.run.nmse_of(&self.run.student()?)?,
        };
        match best(&self.tries).map(|i| &self.tries[i]).filter(|best| best.held_out < nmse) {
            Some(best) => Ok((best.student.layer()?, best.held_out)),
            None => Ok((current.layer()?, nmse)),
        }
    }

    /// Examples that serve to learn.
    pub fn examples(&self) -> usize {
        self.examples.examples()
    }

    /// What is being tried.
    pub fn form(&self) -> Form {
        self.form.clone()
    }

    /// Numbers that the layer of a form is determined by.
    pub fn unknowns(form: &Form) -> usize {
        form.unknowns()
    }
}

/// The smallest of those that are hardly worse than the best.
fn best(tries: &[Try]) -> Option<usize> {
    let least = tries.iter().map(|t| t.held_out).fold(f64::INFINITY, f64::min);
    // Among those that explain everything, rounding decides nothing.
    let as_good = |t: &Try| t.held_out <= least * (1.0 + AS_GOOD) || (t.end == End::Exact && t.held_out < EXACT);
    let good = (0..tries.len()).filter(|i| as_good(&tries[*i]));
    good.min_by(|a, b| {
        (tries[*a].student.form.unknowns(), tries[*a].held_out)
            .partial_cmp(&(tries[*b].student.form.unknowns(), tries[*b].held_out))
            .unwrap_or(std::cmp::Ordering::Equal)
    })
    .or_else(|| (0..tries.len()).next())
}

/// What to try after what has been tried, and with how much effort.
fn next_form(wanted: &Wanted, train: &Batch<f64>, tries: &[Try]) -> Option<(Form, f64)> {
    // What is exact on held-out examples too is no accident; what is so on its own examples only has too many unknowns for them.
    if tries.last().is_some_and(|last| last.end == End::Exact && last.held_out < EXACT) && !may_be_fewer(wanted, tries) {
        return None;
    }
    let all = wanted.strategy.effort;
    let quick = all.min(QUICK);
    let untried = |m: usize| forms(wanted, train, m).into_iter().find(|form| !tries.iter().any(|other| other.form == *form));
    let least = |m: usize| {
        let of = tries.iter().filter(|other| other.form.heads == m).map(|other| other.held_out);
        of.fold(f64::INFINITY, f64::min)
    };
    match wanted.heads {
        HeadCount::Given(m) => {
            let only = forms(wanted, train, m).len() == 1;
            if let Some(form) = untried(m) {
                return Some((form, if only { all } else { quick }));
            }
        }
        HeadCount::Range(first, last) => return (first..=last).find_map(untried).map(|form| (form, all)),
        HeadCount::Auto(most) => {
            let mut before = f64::INFINITY;
            let exact = tries.iter().any(|other| other.end == End::Exact);
            for m in head_counts(most).take_while(|_| !exact) {
                if let Some(form) = untried(m) {
                    return Some((form, quick));
                }
                if least(m) > 0.9 * before {
                    break;
                }
                before = least(m);
            }
            // Fewer again.
            let mut m = tries[best(tries)?].form.heads;
            while m > 1 {
                if let Some(form) = untried(m - 1) {
                    return Some((form, quick));
                }
                if least(m - 1) > least(m) * (1.0 + AS_GOOD) {
                    break;
                }
                m -= 1;
            }
        }
    }
    // The best with all effort, unless it is at its floor or has had it.
    let chosen = &tries[best(tries)?];
    let again = chosen.end == End::Tried && !tries.iter().any(|other| other.form == chosen.form && other.effort >= all);
    again.then_some((chosen.form.clone(), all))
}

/// Whether the exact one just found was come to by a jump, so that fewer heads might do.
fn may_be_fewer(wanted: &Wanted, tries: &[Try]) -> bool {
    let (HeadCount::Auto(_), Some(last)) = (wanted.heads, tries.last()) else { return false };
    let m = last.form.heads;
    m > 1 && !tries.iter().any(|other| other.form.heads == m - 1)
}

/// The effort for each of several forms.
const QUICK: f64 = 1.0;

/// 1, 2, 3, 4, 6, 8, 12, 16, …, and `most`.
fn head_counts(most: usize) -> impl Iterator<Item = usize> {
    let powers = (1..32).flat_map(|i| [2_usize << i >> 1, 3 << i >> 1]);
    std::iter::once(1).chain(powers).take_while(move |m| *m < most).chain([most])
}

/// The forms of `m` heads, likely ones first.
fn forms(wanted: &Wanted, train: &Batch<f64>, m: usize) -> Vec<Form> {
    let (d, d_out) = (train.shape.d, train.shape.d_out);
    // Rotation, norms and groups act on factors, however wide.
    let factored = !wanted.scores.is_bilinear() || wanted.groups.is_some();
    let ranks: Vec<Option<usize>> = match wanted.rank {
        Rank::Given(r) if r < d || factored => vec![Some(r)],
        Rank::Given(_) | Rank::Full => vec![None],
        Rank::Auto if d <= SMALL_TOKENS => vec![None],
        Rank::Auto => {
            let mut ranks: Vec<_> =
                std::iter::successors(Some(d.div_ceil(m)), |r| Some(2 * r)).take_while(|r| *r < d).map(Some).collect();
            ranks.push(None);
            ranks
        }
    };
    let full = |r: usize| r >= d.min(d_out);
    let pairs = ranks.into_iter().flat_map(|rank| {
        let values = match (wanted.value_rank, rank) {
            (Rank::Given(r), _) if factored => vec![Some(r)],
            (_, Some(r)) if factored => vec![Some(r)],
            (Rank::Given(r), _) if !full(r) => vec![Some(r)],
            (Rank::Auto, Some(r)) if !full(r) => vec![Some(r), None],
            _ => vec![None],
        };
        values.into_iter().map(move |value_rank| (rank, value_rank))
    });
    let mut all = Vec::new();
    for (rank, value_rank) in pairs {
        let plain = Form {
            d,
            d_out,
            heads: m,
            rank,
            value_rank,
            key_bias: false,
            bias: false,
            scores: wanted.scores.clone(),
            groups: wanted.groups.filter(|groups| *groups < m),
            relative: wanted.relative.then_some(train.shape.k),
        };
        let biased = Form { key_bias: true, bias: true, ..plain.clone() };
        let abundant = train.y.len() >= ABUNDANT * biased.unknowns();
        all.extend(match wanted.biases {
            Choice::Yes => vec![biased],
            Choice::No => vec![plain],
            Choice::Auto if abundant => vec![biased],
            Choice::Auto => vec![plain, biased],
        });
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::data::InputDistribution;
    use crate::scores::Rotation;
    use crate::teacher::{TeacherSpec, TeacherStream};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn examples(layer: &AttentionLayer, k: usize, n: usize, seed: u64) -> Batch<f64> {
        let source = TeacherStream::new(layer, k, InputDistribution::Boolean, seed, None);
        Batch::read(&source, 0..64, n).unwrap()
    }

    /// Of `n` examples, the last `test` to compare by.
    fn prepared(layer: &AttentionLayer, k: usize, n: usize, test: usize, seed: u64) -> Prepared {
        let (train, test) = examples(layer, k, n, seed).split_at(n - test);
        Prepared::new(train, test).unwrap()
    }

    #[test]
    fn counts_of_heads_grow() {
        assert_eq!(head_counts(20).collect::<Vec<_>>(), [1, 2, 3, 4, 6, 8, 12, 16, 20]);
        assert_eq!(head_counts(4).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(head_counts(1).collect::<Vec<_>>(), [1]);
    }

    /// At four times the counting bound ten of ten random teachers come back to machine precision, and the certificate's examples were not needed.
    #[test]
    fn random_teachers_are_recovered() {
        let mut found = 0;
        for seed in 0..10 {
            let teacher = TeacherSpec::dense(8, 3, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
            let prepared = prepared(&teacher, 4, 68, 20, seed + 1);
            let wanted = Wanted { heads: HeadCount::Given(3), biases: Choice::No, ..Wanted::default() };
            let outcome = Learner::new(&prepared, wanted).unwrap().finish(&|| false).unwrap();
            let distance = teacher.distance(&outcome.layer);
            found += usize::from(distance.is_ok_and(|d| d.worst_theta() < 1e-8 && d.worst_w() < 1e-8));
        }
        assert_eq!(found, 10);
    }

    /// Two heads with biases and a causal mask, found without being told how many or that there are biases.
    #[test]
    fn heads_and_biases_are_found() {
        let spec = TeacherSpec { mask: Mask::Causal, ..TeacherSpec::dense(6, 2, 3.0) };
        let plain = spec.draw(&mut ChaCha8Rng::seed_from_u64(4)).unwrap();
        let mut heads = plain.heads().to_vec();
        heads[0].key_bias = Some(vec![0.5, -0.2, 0.1, 0.7, 0.0, -0.4]);
        let teacher = AttentionLayer::new(heads, Some(vec![0.3; 6]), Mask::Causal).unwrap();
        let prepared = prepared(&teacher, 4, 400, 80, 5);
        let wanted = Wanted { scores: Scores::of(Mask::Causal), ..Wanted::default() };
        let outcome = Learner::new(&prepared, wanted).unwrap().finish(&|| false).unwrap();
        let distance = teacher.distance(&outcome.layer).unwrap();
        assert_eq!(outcome.layer.heads().len(), 2);
        assert!(distance.worst_theta() < 1e-8 && distance.worst_w() < 1e-8, "{distance:?}");
        assert!(outcome.tries[outcome.chosen].held_out < 1e-18);
    }

    /// Rotary heads in groups come back with all their distances: slow pairs, partial rotation, windows, biases; large students and small ones.
    #[test]
    fn rotary_heads_are_recovered() {
        let rotary =
            |base: f64, turned: usize, mask: Mask| Scores { rotation: Some(Rotation::of_base(base, turned)), ..Scores::of(mask) };
        let base = Form {
            d: 16,
            d_out: 16,
            heads: 4,
            rank: Some(4),
            value_rank: Some(4),
            groups: Some(2),
            key_bias: false,
            relative: None,
            bias: false,
            scores: rotary(1e4, 4, Mask::Causal),
        };
        let forms = [
            base.clone(),
            Form { scores: rotary(1e4, 4, Mask::Window(6)), groups: Some(1), heads: 2, ..base.clone() },
            Form { scores: rotary(100.0, 2, Mask::Causal), ..base.clone() },
            Form { d: 48, d_out: 48, rank: Some(8), value_rank: Some(8), heads: 4, scores: rotary(1e4, 8, Mask::Causal), ..base },
        ];
        for (seed, form) in forms.into_iter().enumerate() {
            let teacher = Student::<f64>::random(form.clone(), 2.0, &mut ChaCha8Rng::seed_from_u64(seed as u64)).unwrap();
            let layer = teacher.layer().unwrap();
            let n = 30 * form.unknowns() / (12 * form.d_out);
            let (train, none) = examples(&layer, 12, n, seed as u64 + 1).split_at(n);
            let prepared = Prepared::new(train, none).unwrap();
            let wanted = Wanted {
                heads: HeadCount::Given(form.heads),
                rank: Rank::Given(form.r()),
                value_rank: Rank::Given(form.s()),
                biases: Choice::No,
                groups: form.groups,
                scores: form.scores.clone(),
                ..Wanted::default()
            };
            let outcome = Learner::new(&prepared, wanted).unwrap().finish(&|| false).unwrap();
            let distance = layer.distance_within(&outcome.layer, 12).unwrap();
            let nmse = outcome.tries[outcome.chosen].nmse;
            assert!(distance.worst_theta() < 1e-6 && distance.worst_w() < 1e-6, "{form:?}: NMSE {nmse:.1e}, {distance:?}");
        }
    }

    #[test]
    fn bad_input_is_refused() {
        let teacher = TeacherSpec::dense(4, 1, 2.0).draw(&mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let (batch, none) = examples(&teacher, 3, 50, 1).split_at(50);
        assert!(Prepared::new(none, batch).is_err());
        assert!(Prepared::new(examples(&teacher, 3, 50, 1), examples(&teacher, 4, 50, 1)).is_err());
        let short = prepared(&teacher, 1, 50, 10, 1);
        let prepared = prepared(&teacher, 3, 50, 10, 1);
        let refused = |wanted: Wanted| Learner::new(&prepared, wanted).is_err();
        assert!(refused(Wanted { heads: HeadCount::Given(0), ..Wanted::default() }));
        assert!(refused(Wanted { rank: Rank::Given(5), ..Wanted::default() }));
        assert!(Learner::new(&short, Wanted::default()).is_err());
    }
}
