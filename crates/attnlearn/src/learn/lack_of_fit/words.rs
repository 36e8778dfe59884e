//! What is said of a layer that leaves something unexplained.

use super::super::descent::Noise;
use super::{DOUBT, Dependence, LackOfFit, Verdict};

/// How a search ended.
pub(in super::super) struct Found {
    /// Held-out NMSE.
    pub nmse: f64,
    /// Whether that is none.
    pub exact: bool,
    /// Whether the limit of time ended it.
    pub out_of_time: bool,
    /// Whether several starts ended at the same error.
    pub floor: bool,
    /// The noise, if outputs were said to be noisy.
    pub noise: Option<Noise>,
    /// What residuals say, if they were asked.
    pub lack_of_fit: Option<LackOfFit>,
}

impl Found {
    /// Whether the layer is recovered: exactly, or up to what was said to be noise and looks like it.
    pub(in super::super) fn recovered(&self) -> bool {
        self.exact || (self.noise.is_some_and(|noise| noise.reached) && self.verdict() == Some(Verdict::Noise))
    }

    fn verdict(&self) -> Option<Verdict> {
        self.lack_of_fit.map(|found| found.verdict)
    }

    /// How it ended, in words.
    pub(in super::super) fn text(&self) -> String {
        let nmse = self.nmse;
        let size = |share: f64| format!("{:.2} % of the outputs' size", 100.0 * share.sqrt());
        match (self.recovered(), self.noise, self.lack_of_fit) {
            (true, Some(noise), _) if !self.exact => format!("recovered up to noise of {}", size(noise.floor)),
            (true, ..) => "recovered".to_owned(),
            (false, _, Some(found)) if found.verdict == Verdict::AnotherFunction => {
                format!("explained up to {}, another function: {}", size(nmse), found.reason())
            }
            (false, Some(noise), Some(found)) if noise.reached || self.floor => {
                format!("explained up to {}, noise or another function: {}", size(nmse), found.reason())
            }
            (false, None, Some(found)) if found.verdict == Verdict::Noise => {
                let hint = "what is left looks like noise, and --noise would accept it";
                format!("not recovered: several starts end at NMSE {nmse:.1e}; {hint}")
            }
            (false, None, Some(found)) => {
                format!("not recovered: several starts end at NMSE {nmse:.1e}, noise or another function: {}", found.reason())
            }
            (false, ..) if self.out_of_time => format!("stopped by the limit of time: held-out NMSE {nmse:.1e}"),
            (false, ..) => format!("not recovered: held-out NMSE {nmse:.1e}"),
        }
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
            (Verdict::AnotherFunction, Some(Dependence::WiderStudent)) => {
                format!("more heads explain {percent:.0} % of what is left")
            }
            (Verdict::AnotherFunction, _) => format!("inputs explain {percent:.0} % of what is left"),
            (Verdict::Noise, _) => "what is left looks like noise, but the error on other examples is above it".into(),
            (Verdict::CannotTell, Some(_)) if self.z >= DOUBT => {
                format!("inputs may explain {percent:.0} % of what is left, but {} sequences are too few to tell", self.sequences)
            }
            (Verdict::CannotTell, _) => format!("{} sequences are too few to tell", self.sequences),
        }
    }
}
