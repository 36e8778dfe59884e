//! What every phase leaves behind, and how a run ends.

use crate::certify::Certificate;
use crate::layer::AttentionLayer;
use serde::Serialize;

/// The phases, in the paper's order, and the polish after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// 1. Crude sum of projections.
    Crude,
    /// 2. Sculpt a convex body of attention matrices.
    Sculpt,
    /// 3. Minimum-norm proxy and refined sum.
    Proxy,
    /// 4. Re-sculpt.
    Resculpt,
    /// 5. Span of the attention matrices.
    Span,
    /// 6. Search in the span, regress the projections.
    Search,
    /// Variable projection over all parameters.
    Polish,
    /// Held-out guarantee.
    Certify,
}

impl Phase {
    /// What the phase does, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Crude => "crude sum of projections",
            Self::Sculpt => "sculpt the convex body",
            Self::Proxy => "minimum-norm proxy, refined sum",
            Self::Resculpt => "re-sculpt",
            Self::Span => "span of the attention matrices",
            Self::Search => "search in the span, regress",
            Self::Polish => "polish",
            Self::Certify => "certificate",
        }
    }

    /// `1` … `6` for the paper's phases, `+` and `=` for what comes after.
    pub fn label(self) -> &'static str {
        match self {
            Self::Crude => "1",
            Self::Sculpt => "2",
            Self::Proxy => "3",
            Self::Resculpt => "4",
            Self::Span => "5",
            Self::Search => "6",
            Self::Polish => "+",
            Self::Certify => "=",
        }
    }
}

/// Smallest, quartiles and largest of a set of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Smallest.
    pub min: f64,
    /// A quarter lies below.
    pub lower: f64,
    /// Half lies below.
    pub median: f64,
    /// Three quarters lie below.
    pub upper: f64,
    /// Largest.
    pub max: f64,
}

impl Quantiles {
    /// Of these numbers; all 0 if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut v: Vec<f64> = values.into_iter().collect();
        if v.is_empty() {
            return Self::default();
        }
        v.sort_by(f64::total_cmp);
        let at = |q: f64| v[((v.len() - 1) as f64 * q).round() as usize];
        Self { min: v[0], lower: at(0.25), median: at(0.5), upper: at(0.75), max: v[v.len() - 1] }
    }
}

/// One round of sharpening, for the record.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Scale of the soft cut.
    pub sigma: f64,
    /// Total weight of the rows.
    pub weight: f64,
    /// Weighted root mean square of `‖Y_a − x_bᵀŜ‖`, before the refit.
    pub residual: f64,
    /// Smallest over largest eigenvalue of `Σ w x_b x_bᵀ`: near 0, the tokens no longer span `R^d`.
    pub conditioning: f64,
    /// `‖Ŝ_new − Ŝ‖_F / ‖Ŝ‖_F`.
    pub change: f64,
}

/// Widths of the body of the best rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Widths {
    /// How many of them.
    pub rows: u64,
    /// Along every direction of the hull.
    pub hull: Vec<f64>,
    /// Along its centre.
    pub centre: f64,
    /// Along some directions across both.
    pub others: Vec<f64>,
}

/// One phase of one run. Fields that a phase has nothing to say about are empty.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Which phase.
    pub phase: Phase,
    /// Seconds it took.
    pub seconds: f64,
    /// (Example, query) rows looked at.
    pub rows_seen: u64,
    /// Rows accepted: certified to be attended alike by all heads (phase 3: total weight of the rows attended at one token).
    pub rows_accepted: u64,
    /// Half-widths of the slabs of the accepted rows, relative to ‖v‖ (phases 2, 4).
    pub residuals: Quantiles,
    /// Smallest eigenvalues of the slab normals (phase 5), increasing.
    pub spectrum: Vec<f64>,
    /// Widths of the body along the directions of the hull and, last, along its centre, where it should be narrow (phase 5).
    pub widths: Vec<f64>,
    /// Widths of the body of ever more rows (phase 5, if asked for).
    pub sculpture: Vec<Widths>,
    /// Rounds of sharpening (phase 3).
    pub rounds: Vec<Round>,
    /// NMSE on the validation examples (phases 6 and polish).
    pub nmse: Option<f64>,
    /// NMSE after every iteration (phase 6: of the best start; polish).
    pub history: Vec<f64>,
    /// One line for people.
    pub note: String,
}

impl Record {
    /// An empty record.
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            seconds: 0.0,
            rows_seen: 0,
            rows_accepted: 0,
            residuals: Quantiles::default(),
            spectrum: Vec::new(),
            widths: Vec::new(),
            sculpture: Vec::new(),
            rounds: Vec::new(),
            nmse: None,
            history: Vec::new(),
            note: String::new(),
        }
    }
}

/// How a run ended. An error is for bad input; these are answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// The layer reproduces held-out examples to the precision asked for.
    Recovered,
    /// The layer explains held-out examples as far as the six phases go without the polish: to [`super::Settings::goal`], not exactly.
    Approximated {
        /// Held-out NMSE.
        nmse: f64,
    },
    /// The layer explains part of the held-out variance only.
    PartlyRecovered {
        /// Held-out NMSE.
        nmse: f64,
    },
    /// Too few agreeing rows were found in the examples there were.
    NotEnoughExamples {
        /// Agreeing rows accepted.
        accepted: u64,
        /// Rows that the span needs.
        needed: u64,
    },
    /// A non-degeneracy condition fails.
    Degenerate {
        /// Which condition, and how it shows.
        condition: String,
    },
    /// A layer was found, but held-out examples do not confirm it.
    NotCertified {
        /// Held-out NMSE.
        nmse: f64,
    },
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Recovered => write!(f, "recovered"),
            Self::Approximated { nmse } => write!(f, "approximated, not polished: held-out NMSE {nmse:.1e}"),
            Self::PartlyRecovered { nmse } => write!(f, "partly recovered: held-out NMSE {nmse:.1e}"),
            Self::NotEnoughExamples { accepted, needed } => {
                write!(f, "not enough examples: {accepted} agreeing rows accepted, {needed} needed")
            }
            Self::Degenerate { condition } => write!(f, "degenerate: {condition}"),
            Self::NotCertified { nmse } => write!(f, "not certified: held-out NMSE {nmse:.1e}"),
        }
    }
}

/// A layer and its error on held-out examples.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The layer.
    pub layer: AttentionLayer,
    /// Held-out NMSE.
    pub nmse: f64,
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Learned {
    /// How it ended.
    pub outcome: Outcome,
    /// The six phases' own answer.
    pub before_polish: Option<Stage>,
    /// The answer after the polish.
    pub after_polish: Option<Stage>,
    /// What is guaranteed of the best layer.
    pub certificate: Option<Certificate>,
    /// One record per phase, in order; phases that ran again appear again.
    pub records: Vec<Record>,
    /// Distinct examples that served to learn: without those of validation and certificate.
    pub examples: u64,
    /// Whether the answer before the polish rests on rows certified with separated projections, because too few rows could be certified
    /// by agreement alone.
    pub separated: bool,
}

impl Learned {
    /// The best layer found, polished if there is one.
    pub fn layer(&self) -> Option<&AttentionLayer> {
        self.after_polish.as_ref().or(self.before_polish.as_ref()).map(|stage| &stage.layer)
    }
}

/// Who watches a run: is told what goes on, and may stop it.
pub trait Watch: Sync {
    /// A phase begins.
    fn begin(&self, _phase: Phase) {}
    /// `done` of `total` examples of the phase's pass have been read.
    fn advance(&self, _done: u64, _total: u64) {}
    /// A phase has ended.
    fn end(&self, _record: &Record) {}
    /// Whether to stop now; the run then ends with [`crate::Error::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// Watches nothing.
pub struct Unwatched;
impl Watch for Unwatched {}
