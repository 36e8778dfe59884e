//! How a search by descent ended, in words.

use super::lack_of_fit::{Dependence, LackOfFit, Verdict};
use super::noise::{Noise, Short};
use crate::words::{Setting, Wording};

/// What is known at the end.
pub(super) struct Ending {
    /// Held-out NMSE.
    pub nmse: f64,
    /// Whether that is none.
    pub exact: bool,
    /// Whether the limit of time ended the search.
    pub out_of_time: bool,
    /// Whether several starts ended at the same error.
    pub floor: bool,
    /// Whether outputs were said to be noisy.
    pub noisy: bool,
    /// What is left, as if it were noise; none if nothing is.
    pub noise: Option<Noise>,
    /// What residuals say, if they were asked.
    pub lack_of_fit: Option<LackOfFit>,
}

impl Ending {
    /// Whether the layer is recovered: exactly, or up to what was said to be noise and looks like it.
    pub fn recovered(&self) -> bool {
        self.exact || (self.noisy && self.would_be_accepted())
    }

    /// Whether what is left is noise for all that can be told.
    fn would_be_accepted(&self) -> bool {
        let noise = self.lack_of_fit.is_some_and(|found| found.verdict == Verdict::Noise);
        noise && self.noise.is_some_and(|noise| noise.reached())
    }

    /// How it ended.
    pub fn text(&self) -> Wording {
        let nmse = self.nmse;
        let size = |share: f64| format!("{:.2} % of the outputs' size", 100.0 * share.sqrt());
        if self.exact {
            return "recovered".into();
        }
        if self.recovered() {
            return format!("recovered up to noise of {}", size(self.noise.map_or(nmse, |noise| noise.floor))).into();
        }
        if self.out_of_time {
            return format!("stopped by the limit of time: held-out NMSE {nmse:.1e}").into();
        }
        let Some(found) = self.lack_of_fit else { return format!("not recovered: held-out NMSE {nmse:.1e}").into() };
        let explained = if nmse < 1.0 { format!("explained up to {}", size(nmse)) } else { "nothing is explained".into() };
        let ended = if self.noisy { explained.clone() } else { format!("not recovered: several starts end at NMSE {nmse:.1e}") };
        let text = match found.verdict {
            Verdict::AnotherFunction if self.floor => format!("{explained}, another function: {}", found.reason()),
            Verdict::AnotherFunction => {
                format!("{explained}, the search ended too early, or another function: {}", found.reason())
            }
            Verdict::Noise if self.would_be_accepted() => {
                let text = Wording::from(format!("{ended}; what is left looks like noise, and "));
                return text.then(Setting::switch("noise", true)).then(" would accept it");
            }
            Verdict::Noise => {
                let short = self.noise.and_then(|noise| noise.short).map_or("", Short::text);
                format!("{ended}, noise or another function: what is left looks like noise, but {short}")
            }
            Verdict::CannotTell => format!("{ended}, noise or another function: {}", found.reason()),
        };
        text.into()
    }
}

impl LackOfFit {
    /// What was found, or why nothing could be.
    fn reason(&self) -> String {
        let percent = 100.0 * self.explained;
        match (self.verdict, self.by) {
            (Verdict::AnotherFunction, Some(Dependence::Copies)) => {
                format!("{percent:.0} % of what is left is the same for copies of one input")
            }
            (Verdict::AnotherFunction, Some(Dependence::AnotherHead)) => {
                format!("another head explains {percent:.0} % of what is left")
            }
            (Verdict::CannotTell, Some(Dependence::Doubt)) => {
                "what is left is larger where attention is unsure: of hard attention, perhaps".into()
            }
            (Verdict::AnotherFunction, _) => format!("inputs explain {percent:.0} % of what is left"),
            (_, Some(_)) if self.doubtful => {
                format!("inputs may explain {percent:.0} % of what is left, but {} sequences are too few to tell", self.sequences)
            }
            _ => format!("{} sequences are too few to tell", self.sequences),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lack(verdict: Verdict) -> LackOfFit {
        LackOfFit {
            verdict,
            sequences: 20,
            by: Some(Dependence::Query),
            explained: 0.85,
            z: 9.0,
            threshold: 4.1,
            doubtful: false,
            power: None,
            copies: 0,
        }
    }

    fn noise(short: Option<Short>) -> Noise {
        Noise { relative: 0.1, floor: 0.01, short }
    }

    /// What is said, and whether it is a recovery, of every way to end that leaves a hundredth of the variance.
    #[test]
    fn only_what_looks_like_noise_and_was_said_to_be_is_recovered() {
        let verdicts = [None, Some(Verdict::Noise), Some(Verdict::AnotherFunction), Some(Verdict::CannotTell)];
        let shorts = [None, Some(Short::Search), Some(Short::Numbers), Some(Short::Explained), Some(Short::Others)];
        for (verdict, short) in verdicts.into_iter().flat_map(|verdict| shorts.map(|short| (verdict, short))) {
            for [noisy, floor, out_of_time] in [[false, false], [false, true], [true, false], [true, true]]
                .into_iter()
                .flat_map(|[noisy, floor]| [[noisy, floor, false], [noisy, floor, true]])
            {
                let ending = Ending {
                    nmse: 0.01,
                    exact: false,
                    out_of_time,
                    floor,
                    noisy,
                    noise: verdict.map(|_| noise(short)),
                    lack_of_fit: verdict.map(lack),
                };
                let text = ending.text().to_string();
                let recovered = noisy && verdict == Some(Verdict::Noise) && short.is_none();
                assert_eq!(ending.recovered(), recovered, "{text}");
                assert_eq!(text.starts_with("recovered"), recovered, "{text}");
                // Noise is suggested only where it would be a recovery.
                let accepted = verdict == Some(Verdict::Noise) && short.is_none() && !noisy && !out_of_time;
                assert_eq!(text.contains("noise = true would accept it"), accepted, "{text}");
                assert_eq!(text.contains("limit of time"), out_of_time && !recovered, "{text}");
                if let (Some(Verdict::Noise), Some(short), false) = (verdict, short, out_of_time) {
                    assert!(text.ends_with(short.text()), "{text}");
                }
                if let (Some(Verdict::AnotherFunction), false) = (verdict, out_of_time) {
                    assert!(text.contains("another function: inputs explain 85 % of what is left"), "{text}");
                    assert_eq!(text.contains("ended too early"), !floor, "{text}");
                }
            }
        }
        let uneven = LackOfFit { by: Some(Dependence::Doubt), ..lack(Verdict::CannotTell) };
        assert!(uneven.reason().contains("larger where attention is unsure"), "{}", uneven.reason());
        let exact =
            Ending { nmse: 1e-25, exact: true, out_of_time: true, floor: false, noisy: false, noise: None, lack_of_fit: None };
        assert!(exact.recovered() && exact.text() == *"recovered");
    }
}
