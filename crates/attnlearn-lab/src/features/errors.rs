//! Errors seed by seed, what they are on the whole, and who errs less.
//!
//! With `e_s` and `e_s'` the errors of two learners on the same sets of seed `s`, the ratio is `exp mean_s log(e_s/e_s')` with Student's interval of confidence 95 %.

use crate::stats::{self, Estimate, short};
use attnlearn::features::TargetSpec;
use attnlearn_page::plot::Series;
use std::collections::BTreeMap;

/// Errors above this are called nothing learnt: that much a constant nearly reaches.
pub const NOTHING: f64 = 0.95;

/// A kind of targets: its name, and whether a target is of it.
pub type Kind = (&'static str, fn(&str) -> bool);

/// Errors by what they belong to and by seed.
#[derive(Clone, Debug)]
pub struct Errors<K>(BTreeMap<K, BTreeMap<u64, f64>>);

impl<K: Ord> Errors<K> {
    /// From what they belong to, seeds and errors.
    pub fn new(all: impl IntoIterator<Item = (K, u64, f64)>) -> Self {
        let mut errors: BTreeMap<K, BTreeMap<u64, f64>> = BTreeMap::new();
        for (key, seed, error) in all {
            errors.entry(key).or_default().insert(seed, error);
        }
        Self(errors)
    }

    /// What there are errors of, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// Those of one, by seed.
    pub fn of(&self, key: &K) -> Option<&BTreeMap<u64, f64>> {
        self.0.get(key)
    }

    /// Their geometric mean.
    pub fn mean(&self, key: &K) -> Option<Estimate> {
        let values: Vec<f64> = self.of(key)?.values().copied().collect();
        Some(stats::geometric(&values))
    }

    /// How many times as large the first is as the second, over the seeds that both have.
    pub fn ratio(&self, a: &K, b: &K) -> Option<Ratio> {
        let (a, b) = (self.of(a)?, self.of(b)?);
        let ratios: Vec<f64> = a.iter().filter_map(|(seed, a)| Some(a / b.get(seed)?)).collect();
        (!ratios.is_empty()).then(|| Ratio { times: stats::geometric(&ratios), pairs: ratios.len() })
    }

    /// The exponent `b` of `error ∝ x^b`, fitted for every seed and averaged over seeds; every seed must have three points or more.
    pub fn exponent(&self, keys: &[(f64, K)]) -> Option<Estimate> {
        let mut by_seed: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        for (x, key) in keys {
            for (seed, error) in self.of(key)? {
                by_seed.entry(*seed).or_default().push((*x, *error));
            }
        }
        let slopes: Option<Vec<f64>> = by_seed.values().map(|points| Some(stats::exponent(points)?.value)).collect();
        slopes.filter(|slopes| !slopes.is_empty()).map(|slopes| stats::mean(&slopes))
    }
}

/// A line of a chart: what has errors, from left to right.
pub fn points<K: Ord>(label: impl Into<String>, errors: &Errors<K>, keys: impl IntoIterator<Item = (f64, K)>) -> Series {
    Series::new(label, keys.into_iter().filter_map(|(x, key)| Some((x, errors.mean(&key)?))))
}

/// How many times as large one error is as another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub times: Estimate,
    /// Seeds that it is computed from.
    pub pairs: usize,
}

/// Who errs less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first.
    First,
    /// The second.
    Second,
    /// The interval contains 1 and is within a quarter of it.
    Alike,
    /// The interval contains 1 and is wide.
    Unclear,
    /// A single seed has no interval.
    TooFew,
}

impl Ratio {
    /// Whether the interval is within a quarter of 1, though it need not contain it.
    pub fn close(&self) -> bool {
        self.times.above(0.8) && self.times.below(1.25)
    }

    /// Who errs less.
    pub fn verdict(&self) -> Verdict {
        let Estimate { low, high, .. } = self.times;
        match () {
            () if self.pairs < 2 => Verdict::TooFew,
            () if high < 1.0 => Verdict::First,
            () if low > 1.0 => Verdict::Second,
            () if self.close() => Verdict::Alike,
            () => Verdict::Unclear,
        }
    }

    /// The other way round.
    fn inverse(&self) -> Estimate {
        Estimate { value: 1.0 / self.times.value, low: 1.0 / self.times.high, high: 1.0 / self.times.low }
    }
}

/// Who beats whom on what: `A beats B on x (ratio of errors 0.5, 0.4 to 0.6) and y (0.2, 0.1 to 0.3); A and B err alike on z (…)`.
pub fn compare(a: &str, b: &str, on: &[(String, Ratio)]) -> String {
    let said = |verdict: Verdict| {
        let those: Vec<&(String, Ratio)> = on.iter().filter(|(_, ratio)| ratio.verdict() == verdict).collect();
        let part = |(i, (what, ratio)): (usize, &&(String, Ratio))| {
            let Estimate { value, low, high } = if verdict == Verdict::Second { ratio.inverse() } else { ratio.times };
            let of_errors = if i == 0 { "ratio of errors " } else { "" };
            format!("{what} ({of_errors}{}, {} to {})", short(value), short(low), short(high))
        };
        let what = joined(&those.iter().enumerate().map(part).collect::<Vec<_>>());
        (!those.is_empty()).then(|| match verdict {
            Verdict::First => format!("{a} beats {b} on {what}"),
            Verdict::Second => format!("{b} beats {a} on {what}"),
            Verdict::Alike => format!("{a} and {b} err alike on {what}"),
            Verdict::Unclear => format!("no difference between {a} and {b} is seen on {what}"),
            Verdict::TooFew => format!("one seed cannot tell {a} from {b} on {what}"),
        })
    };
    let all = [Verdict::First, Verdict::Second, Verdict::Alike, Verdict::Unclear, Verdict::TooFew];
    all.into_iter().filter_map(said).collect::<Vec<_>>().join("; ")
}

/// `a`, `a and b`, `a, b and c`.
pub fn joined<S: AsRef<str>>(parts: &[S]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts[..] {
        [] => String::new(),
        [one] => one.into(),
        [ref most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// With a capital letter.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

/// A target's name for people, from its text.
pub fn title(text: &str) -> String {
    match text.parse::<TargetSpec>() {
        Ok(TargetSpec::Query { p }) => format!("query p={p}"),
        Ok(TargetSpec::Average { p }) => format!("average p={p}"),
        Ok(TargetSpec::Correlation { p, q, rotated }) => {
            format!("{}correlation ({p},{q})", if rotated { "rotated " } else { "" })
        }
        Ok(TargetSpec::Mixed { gamma, simple, hard }) => {
            format!("mixed γ={gamma} ({} + {})", title(&simple.to_string()), title(&hard.to_string()))
        }
        Ok(TargetSpec::Softmax { scale }) => format!("softmax head (scale {scale})"),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;

    fn errors(factor: f64, spread: f64) -> Errors<char> {
        let all = (0..5u64).flat_map(|s| {
            let base = 0.1 * (s + 1) as f64;
            [('a', s, base * factor * (spread * (s as f64 - 2.0)).exp()), ('b', s, base)]
        });
        Errors::new(all)
    }

    /// Pairs that differ alike in all seeds are told apart though the seeds differ much more, and in the right direction.
    #[test]
    fn pairs_are_told_apart() {
        let ratio = |factor, spread| errors(factor, spread).ratio(&'a', &'b').unwrap();
        assert_eq!(ratio(0.5, 0.05).verdict(), Verdict::First);
        assert_eq!(ratio(2.0, 0.05).verdict(), Verdict::Second);
        assert_eq!(ratio(1.0, 0.05).verdict(), Verdict::Alike);
        assert_eq!(ratio(1.2, 1.0).verdict(), Verdict::Unclear);
        let said = |ratio| compare("A", "B", &[("x".into(), ratio)]);
        assert!(said(ratio(0.5, 0.05)).starts_with("A beats B on x (ratio of errors 0.500, "));
        assert!(said(ratio(2.0, 0.05)).starts_with("B beats A on x (ratio of errors 0.500, "));
        assert!(said(ratio(1.0, 0.05)).starts_with("A and B err alike on x (ratio of errors 1.00, "));
        assert!(said(ratio(1.2, 1.0)).starts_with("no difference between A and B is seen on x"));
        let both =
            compare("A", "B", &[("x".into(), ratio(0.5, 0.05)), ("y".into(), ratio(0.2, 0.05)), ("z".into(), ratio(3.0, 0.05))]);
        assert!(
            both.starts_with("A beats B on x (ratio of errors 0.500, ")
                && both.contains(") and y (0.200, ")
                && both.contains("; B beats A on z"),
            "{both}"
        );
        let single = Errors::new([('a', 1, 0.1), ('b', 1, 0.2), ('b', 2, 0.2)]);
        assert_eq!(single.ratio(&'a', &'b').unwrap().verdict(), Verdict::TooFew);
        assert!(single.ratio(&'a', &'c').is_none());
    }

    #[test]
    fn exponents_are_averaged_over_seeds() {
        let of = |n: u64, s: u64| (1.0 + s as f64) * (n as f64).powf(-0.5 - 0.01 * s as f64);
        let errors = Errors::new([1u64, 2, 4, 8].into_iter().flat_map(|n| (0..3).map(move |s| (n, s, of(n, s)))));
        let keys: Vec<(f64, u64)> = [1u64, 2, 4, 8].map(|n| (n as f64, n)).to_vec();
        let exponent = errors.exponent(&keys).unwrap();
        assert!((exponent.value + 0.51).abs() < 1e-12 && exponent.below(-0.4) && exponent.above(-0.6), "{exponent:?}");
        assert!(errors.exponent(&keys[..2]).is_none());
    }

    #[test]
    fn names_for_people() {
        assert_eq!(title("correlation:p=1,q=2,s=rotation"), "rotated correlation (1,2)");
        assert_eq!(title("mixed:gamma=0.5,simple=average:p=1,hard=query:p=2"), "mixed γ=0.5 (average p=1 + query p=2)");
        assert_eq!(joined(&["a", "b", "c"]), "a, b and c");
    }
}
