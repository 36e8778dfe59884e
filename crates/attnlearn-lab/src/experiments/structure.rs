//! Are structured attention matrices learned as well as dense ones, and how long does it take?
//!
//! ```text
//! dense           Gaussian entries
//! diagonal        Gaussian diagonal: every coordinate of the query is compared with the same one of the key
//! block           Gaussian blocks of a quarter of d along the diagonal
//! low rank        A Bᵀ, A and B Gaussian with a quarter of d columns
//! permutation     Θ = P ‖Θ‖_F/√d: every coordinate is compared with one other; all singular values are equal
//! ```
//!
//! All have the same `‖Θ_i‖_F` (2 for descent; 6 for the six phases, which need margins), and for one seed the same projections. No learner is told the structure: students have all d² entries. Diagonal
//! matrices of few heads are independent, but share their zeros; permutations break the condition that singular values be distinct; logits of permutations for signs are multiples
//! of one number, so that heads agree exactly on many rows.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::joined;
use crate::recovery::{Answered, Attempt, Criterion, Inputs, Learner, Rate, Stage, Task, counting_bound};
use crate::stats::{Estimate, geometric, short};
use attnlearn::Result;
use attnlearn::layer::{AttentionLayer, Head, Mask, Theta};
use attnlearn::linalg::{Mat, from_row_major, row_major};
use attnlearn::teacher::{Family, TeacherSpec};
use attnlearn_page::plot::{Axis, Chart, Figure, Heat, Panel, Series};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// The shape of attention matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Structure {
    /// Gaussian entries.
    Dense,
    /// Gaussian diagonal.
    Diagonal,
    /// Gaussian blocks.
    Block,
    /// Products of thin Gaussian factors.
    LowRank,
    /// Multiples of permutations.
    Permutation,
}

impl Structure {
    const ALL: [Self; 5] = [Self::Dense, Self::Diagonal, Self::Block, Self::LowRank, Self::Permutation];

    fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Diagonal => "diagonal",
            Self::Block => "block",
            Self::LowRank => "low rank",
            Self::Permutation => "permutation",
        }
    }

    /// A teacher; its projections are those of the dense one of this seed.
    fn teacher(self, d: usize, m: usize, norm: f64, seed: u64) -> Result<AttentionLayer> {
        let spec = |family| TeacherSpec { family, ..TeacherSpec::dense(d, m, norm) };
        let quarter = (d / 4).max(1);
        let dense = spec(Family::Dense).draw(&mut ChaCha8Rng::seed_from_u64(seed))?;
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        let family = match self {
            Self::Dense => return Ok(dense),
            Self::Diagonal => Family::Diagonal,
            Self::Block => Family::Block { size: quarter },
            Self::LowRank => Family::LowRank { rank: quarter },
            Self::Permutation => {
                let thetas = permutations(d, m, &mut rng).into_iter().map(|places| {
                    let size = norm / (d as f64).sqrt();
                    Theta::Dense(Mat::from_fn(d, d, |i, j| if places[i] == j { size } else { 0.0 }))
                });
                return with_attention(&dense, thetas);
            }
        };
        let structured = spec(family).draw(&mut rng)?;
        with_attention(&dense, structured.heads().iter().map(|head| head.theta.clone()))
    }
}

fn with_attention(layer: &AttentionLayer, thetas: impl Iterator<Item = Theta>) -> Result<AttentionLayer> {
    let heads = layer.heads().iter().zip(thetas).map(|(head, theta)| Head { theta, ..head.clone() }).collect();
    AttentionLayer::new(heads, None, Mask::None)
}

/// Random permutations, no two equal as long as there are others.
fn permutations(d: usize, m: usize, rng: &mut impl Rng) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut tries = 0;
    while found.len() < m {
        let mut places: Vec<usize> = (0..d).collect();
        for i in (1..d).rev() {
            places.swap(i, rng.random_range(0..=i));
        }
        tries += 1;
        if !found.contains(&places) || tries > 100 * m {
            found.push(places);
        }
    }
    found
}

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Teachers of each kind.
    pub seeds: u64,
    /// `‖Θ_i‖_F` for descent.
    pub norm: f64,
    /// Token dimensions for descent.
    pub dims: Vec<usize>,
    /// Heads for descent.
    pub heads: usize,
    /// Tokens of a sequence for descent.
    pub k: usize,
    /// Examples for descent, in multiples of the counting bound of dense layers.
    pub multiples: Vec<f64>,
    /// How hard descent tries.
    pub effort: f64,
    /// `‖Θ_i‖_F` for the six phases.
    pub sculpt_norm: f64,
    /// Token dimensions for the six phases.
    pub sculpt_dims: Vec<usize>,
    /// Heads for the six phases.
    pub sculpt_heads: usize,
    /// Tokens of a sequence for the six phases.
    pub sculpt_k: usize,
    /// Examples for the six phases, at most.
    pub sculpt_examples: usize,
}

/// One learner, one teacher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Who learns.
    pub learner: Learner,
    /// What.
    pub structure: Structure,
    /// Token dimension.
    pub d: usize,
    /// Heads.
    pub m: usize,
    /// Tokens of a sequence.
    pub k: usize,
    /// `‖Θ_i‖_F`.
    pub norm: f64,
    /// Examples, in multiples of the counting bound.
    pub multiple: f64,
    /// How hard descent tries.
    pub effort: f64,
    /// Seed.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The answer.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// The first attention matrix of the teacher, row by row; for the six phases' own answer only.
    pub theta_true: String,
    /// The one that was found for it; empty if there is none.
    pub theta_found: String,
}

/// Numbers as text, to four digits.
fn text(theta: &Mat<f64>) -> String {
    row_major(theta.as_ref()).iter().map(|v| format!("{v:.3e}")).collect::<Vec<_>>().join(" ")
}

/// The square matrix of a text.
fn matrix(text: &str) -> Option<Mat<f64>> {
    let values: Vec<f64> = text.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let d = values.len().isqrt();
    (d > 0 && d * d == values.len()).then(|| from_row_major(d, d, &values))
}

/// The first head of a teacher, and the one that was found for it.
fn first_head(teacher: &AttentionLayer, layer: Option<&AttentionLayer>) -> (String, String) {
    let dense =
        |layer: &AttentionLayer, i: usize| layer.heads().get(i).map(|head| text(&head.theta.to_dense())).unwrap_or_default();
    let found = layer.and_then(|layer| {
        let distance = teacher.distance(layer).ok()?;
        let head = distance.heads.iter().find(|head| head.reference == 0)?;
        Some(dense(layer, head.other))
    });
    (dense(teacher, 0), found.unwrap_or_default())
}

/// The experiment.
pub struct StructuredTeachers;

impl Experiment for StructuredTeachers {
    const NAME: &'static str = "structure";
    const TITLE: &'static str = "Structured attention matrices";
    const QUESTION: &'static str = "Are diagonal, block-diagonal, low-rank and permutation-like attention matrices learned as often and as fast as dense ones?";
    const CLAIM: &'static str = "The theorem asks for large effective rank and distinct singular values, which some of these do not have; what becomes of them is left open.";
    const TOGETHER: bool = false;
    type Config = Config;
    type Point = Point;
    type Row = Row;

    fn config(scale: Scale) -> Config {
        Config {
            seeds: scale.pick(5, 10),
            norm: 2.0,
            dims: scale.pick(vec![8], vec![8, 16]),
            heads: 3,
            k: 4,
            multiples: vec![1.5, 4.0],
            effort: scale.pick(0.1, 0.3),
            sculpt_norm: 6.0,
            sculpt_dims: scale.pick(vec![8], vec![8, 10]),
            sculpt_heads: 2,
            sculpt_k: 3,
            sculpt_examples: scale.pick(1 << 17, 1 << 19),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.dims);
        ascending(&mut config.multiples);
        ascending(&mut config.sculpt_dims);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let mut points = Vec::new();
        for seed in seeds(seed, config.seeds) {
            for structure in Structure::ALL {
                for &d in &config.dims {
                    let (m, k, norm, effort) = (config.heads, config.k, config.norm, config.effort);
                    let of =
                        |&multiple: &f64| Point { learner: Learner::Descend, structure, d, m, k, norm, multiple, effort, seed };
                    points.extend(config.multiples.iter().map(of));
                }
                for &d in &config.sculpt_dims {
                    let (m, k, norm) = (config.sculpt_heads, config.sculpt_k, config.sculpt_norm);
                    let multiple = config.sculpt_examples as f64 / counting_bound(d, d, m, k);
                    points.push(Point { learner: Learner::Sculpt, structure, d, m, k, norm, multiple, effort: 0.0, seed });
                }
            }
        }
        points
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Row>> {
        let Point { d, m, k, .. } = *point;
        let teacher = point.structure.teacher(d, m, point.norm, point.seed)?;
        let examples = (point.multiple * counting_bound(d, d, m, k)).round() as usize;
        let task = Task { teacher: &teacher, k, inputs: Inputs::Boolean, examples, seed: point.seed };
        let row = |(attempt, layer): Answered| {
            let (theta_true, theta_found) = match attempt.stage {
                Stage::SixPhases => first_head(&teacher, layer.as_ref()),
                _ => Default::default(),
            };
            Row { attempt, theta_true, theta_found }
        };
        Ok(task.answers(point.learner, point.effort, stop)?.into_iter().map(row).collect())
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let data = Data { config, rows };
        let mut findings = Vec::new();
        for criterion in Criterion::ALL {
            findings.extend(data.finding(criterion)?.map(Finding::open));
        }
        let mut figures = vec![data.successes()?, data.times()?];
        figures.extend(Structure::ALL.into_iter().filter_map(|structure| data.heads(structure)));
        Ok(Summary { findings, figures, tables: vec![data.table()?] })
    }
}

/// `a is`, `a and b are`.
fn are(names: &[String]) -> String {
    format!("{} {}", joined(names), if names.len() == 1 { "is" } else { "are" })
}

/// Rows and what is asked of them.
struct Data<'a> {
    config: &'a Config,
    rows: &'a Measurements<StructuredTeachers>,
}

type One = Measured<Point, Row>;

impl Data<'_> {
    fn of(&self, structure: Structure) -> impl Iterator<Item = &One> {
        self.rows.iter().filter(move |m| m.point.structure == structure)
    }

    fn rate(&self, structure: Structure, criterion: Criterion, within: impl Fn(&Point) -> bool) -> Result<Option<Rate>> {
        Rate::of(self.of(structure).filter(|m| within(&m.point)).map(|m| &m.row.attempt), criterion)
    }

    /// Time over that of the dense teacher of the same sizes and seed.
    fn slowness(&self, structure: Structure, criterion: Criterion) -> Option<Estimate> {
        let ratios: Vec<f64> = self
            .of(structure)
            .filter(|m| criterion.met(&m.row.attempt).is_some())
            .filter_map(|m| {
                let same = Point { structure: Structure::Dense, ..m.point.clone() };
                Some(m.seconds / self.rows.iter().find(|dense| dense.point == same)?.seconds)
            })
            .collect();
        (ratios.len() > 1).then(|| geometric(&ratios))
    }

    /// `3 of 10 at d = 8, 6 of 10 at d = 10`, in brackets; nothing where there is one d.
    fn by_dimension(&self, structure: Structure, criterion: Criterion) -> Result<String> {
        let tried = self.of(structure).filter(|m| criterion.met(&m.row.attempt).is_some());
        let mut dims: Vec<usize> = tried.map(|m| m.point.d).collect();
        ascending(&mut dims);
        let mut parts = Vec::new();
        for d in dims {
            parts.extend(self.rate(structure, criterion, |point| point.d == d)?.map(|rate| format!("{rate} at d = {d}")));
        }
        Ok(if parts.len() < 2 { String::new() } else { format!(" ({})", parts.join(", ")) })
    }

    fn finding(&self, criterion: Criterion) -> Result<Option<String>> {
        let anywhere = |_: &Point| true;
        let Some(dense) = self.rate(Structure::Dense, criterion, anywhere)? else { return Ok(None) };
        let mut parts = vec![format!("dense {dense}{}", self.by_dimension(Structure::Dense, criterion)?)];
        let (mut harder, mut easier, mut perhaps_harder, mut perhaps_easier) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for structure in Structure::ALL.into_iter().skip(1) {
            let Some(rate) = self.rate(structure, criterion, anywhere)? else { continue };
            // All answers of the six phases come from one run.
            let time =
                self.slowness(structure, criterion).filter(|_| matches!(criterion, Criterion::Descent | Criterion::SixPhases));
            let time = time.map_or(String::new(), |ratio| format!(", in {ratio} times the time"));
            parts.push(format!("{} {rate}{}{time}", structure.name(), self.by_dimension(structure, criterion)?));
            let more = (rate.successes * dense.of).cmp(&(dense.successes * rate.of));
            let list = match (more, rate.differs(&dense)) {
                (Ordering::Less, true) => &mut harder,
                (Ordering::Less, false) => &mut perhaps_harder,
                (Ordering::Greater, true) => &mut easier,
                (Ordering::Greater, false) => &mut perhaps_easier,
                (Ordering::Equal, _) => continue,
            };
            list.push(format!("{} ({rate})", structure.name()));
        }
        let lists = [
            (harder, "less often", ""),
            (easier, "more often", ""),
            (perhaps_harder, "less often", ", but within chance"),
            (perhaps_easier, "more often", ", but within chance"),
        ];
        let said = lists.iter().filter(|(list, ..)| !list.is_empty());
        let verdicts: Vec<String> =
            said.map(|(list, often, sure)| format!("{} recovered {often} than dense ({dense}){sure}", are(list))).collect();
        let verdict = if verdicts.is_empty() {
            "no structure is recovered more or less often than dense".into()
        } else {
            verdicts.join("; ")
        };
        let who = match criterion {
            Criterion::Descent => format!("By descent, {} heads", self.config.heads),
            Criterion::Agreement => format!("By agreement alone in the six phases, {} heads", self.config.sculpt_heads),
            Criterion::SixPhases => {
                format!("By the six phases themselves, whatever rows are certified by, {} heads", self.config.sculpt_heads)
            }
            Criterion::Polished | Criterion::PolishedRoughly => {
                format!("By the six phases and the polish, {} heads", self.config.sculpt_heads)
            }
        };
        Ok(Some(format!("{who} ({}), {verdict}: {}.", criterion.terms(self.config.effort), parts.join("; "))))
    }

    /// A point of every learner, size and number of examples.
    fn settings(&self) -> Vec<&Point> {
        let mut found: Vec<&Point> = Vec::new();
        for point in self.rows.iter().map(|m| &m.point) {
            if !found.iter().any(|other| alike(other, point)) {
                found.push(point);
            }
        }
        found.sort_by(|a, b| (a.learner, a.d).cmp(&(b.learner, b.d)).then(a.multiple.total_cmp(&b.multiple)));
        found
    }

    /// One panel a learner and size; in it the lines of its settings over the structures.
    fn panels(&self, y: &Axis, lines: impl Fn(&Point) -> Result<Vec<Series>>) -> Result<Vec<Panel>> {
        let names: Vec<&str> = Structure::ALL.into_iter().map(Structure::name).collect();
        let mut charts: Vec<Chart> = Vec::new();
        for setting in self.settings() {
            let who = if setting.learner == Learner::Descend { "descent" } else { "six phases" };
            let title = format!("{who}, d = {}, m = {}", setting.d, setting.m);
            let series = lines(setting)?;
            match charts.iter_mut().find(|chart| chart.title == title) {
                Some(chart) => chart.series.extend(series),
                None => charts.push(Chart { title, x: Axis::names("attention matrices", &names), y: y.clone(), series }),
            }
        }
        Ok(charts.into_iter().map(Panel::Chart).collect())
    }

    fn successes(&self) -> Result<Figure> {
        let lines = |setting: &Point| -> Result<Vec<Series>> {
            let mut series = Vec::new();
            for criterion in Criterion::ALL {
                let mut points = Vec::new();
                for (x, structure) in Structure::ALL.into_iter().enumerate() {
                    let rate = self.rate(structure, criterion, |point| alike(point, setting))?;
                    points.extend(rate.map(|rate| (x as f64, rate.estimate)));
                }
                if !points.is_empty() {
                    series.push(Series::new(label(setting, criterion.name()), points));
                }
            }
            Ok(series)
        };
        Ok(Figure {
            name: "success".into(),
            title: "Success by structure".into(),
            caption: format!(
                "Share of teachers recovered, with exact 95 % intervals. Bars differ: descent ({}) and the polished answer ({}) are held to a higher one than the six phases' own answer ({}), \
                 be it that which rests on agreement of the heads alone or any. Structures that are harder lie below dense, on the left.",
                Criterion::Descent.terms(self.config.effort),
                Criterion::Polished.bar(),
                Criterion::SixPhases.bar()
            ),
            panels: self.panels(&Axis::linear("share of teachers recovered"), lines)?,
        })
    }

    fn times(&self) -> Result<Figure> {
        let lines = |setting: &Point| -> Result<Vec<Series>> {
            let points = Structure::ALL.into_iter().enumerate().filter_map(|(x, structure)| {
                let rows = self.of(structure).filter(|m| alike(&m.point, setting) && m.row.attempt.stage != Stage::Polished);
                let seconds: Vec<f64> = rows.map(|m| m.seconds).collect();
                (!seconds.is_empty()).then(|| (x as f64, geometric(&seconds)))
            });
            Ok(vec![Series::new(label(setting, "six phases and polish"), points)])
        };
        Ok(Figure {
            name: "time".into(),
            title: "Time by structure".into(),
            caption: "Seconds of a run, successful or not: geometric means over teachers with 95 % intervals. What lies above dense, on the left, takes longer.".into(),
            panels: self.panels(&Axis::log("time (s)"), lines)?,
        })
    }

    /// The first head of the first teacher of a structure, true and as the six phases found it.
    fn heads(&self, structure: Structure) -> Option<Figure> {
        let shown = self.of(structure).find(|m| m.row.attempt.stage == Stage::SixPhases && m.point.d == 8);
        let shown = shown.or_else(|| self.of(structure).find(|m| m.row.attempt.stage == Stage::SixPhases))?;
        let (truth, found) = (matrix(&shown.row.theta_true)?, matrix(&shown.row.theta_found)?);
        let full = truth.norm_max();
        let error = (&truth - &found).norm_l2() / truth.norm_l2();
        let heat = |title: &str, values| {
            Panel::Heat(Heat {
                title: title.into(),
                values,
                rows: "query coordinate".into(),
                columns: "key coordinate".into(),
                full,
            })
        };
        Some(Figure {
            name: format!("head-{}", structure.name().replace(' ', "-")),
            title: format!("A {} attention matrix, true and found", structure.name()),
            caption: format!(
                "The first head of one teacher (d = {}, seed {}), and what the six phases found before any polish: they differ by {} of its norm.",
                shown.point.d,
                shown.point.seed,
                short(error)
            ),
            panels: vec![heat("true", truth), heat("found by the six phases", found)],
        })
    }

    fn table(&self) -> Result<Table> {
        let mut rows = Vec::new();
        for structure in Structure::ALL {
            let mut row = vec![structure.name().to_owned()];
            for criterion in Criterion::ALL {
                row.push(self.rate(structure, criterion, |_| true)?.map_or("–".into(), |rate| rate.to_string()));
            }
            for criterion in [Criterion::Descent, Criterion::SixPhases] {
                row.push(self.slowness(structure, criterion).map_or("–".into(), |ratio| ratio.to_string()));
            }
            rows.push(row);
        }
        let columns = [
            "attention matrices",
            "descent",
            "agreement alone",
            "six phases",
            "polished",
            "time of descent / dense",
            "time of six phases / dense",
        ];
        Ok(Table {
            caption: format!(
                "Teachers recovered, over all sizes, and time relative to the dense teacher of the same seed. Descent and polished: {}; agreement alone and six phases: {}.",
                Criterion::Descent.bar(),
                Criterion::SixPhases.bar()
            ),
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        })
    }
}

/// Whether two points differ in teacher and structure alone.
fn alike(a: &Point, b: &Point) -> bool {
    a.learner == b.learner && a.d == b.d && a.multiple.total_cmp(&b.multiple).is_eq()
}

/// Descent's lines differ in the number of examples, those of the six phases in what counts.
fn label(point: &Point, otherwise: &str) -> String {
    match point.learner {
        Learner::Descend => format!("{}× counting bound", point.multiple),
        Learner::Sculpt => otherwise.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::recovery::Judged;

    #[test]
    fn teachers_have_their_structure() {
        for structure in Structure::ALL {
            let teacher = structure.teacher(8, 3, 6.0, 5).unwrap();
            let dense = Structure::Dense.teacher(8, 3, 6.0, 5).unwrap();
            for (head, other) in teacher.heads().iter().zip(dense.heads()) {
                let theta = head.theta.to_dense();
                assert!((theta.norm_l2() - 6.0).abs() < 1e-12 && head.w == other.w);
                let zeros = row_major(theta.as_ref()).iter().filter(|v| v.abs() < 1e-12).count();
                let expected = match structure {
                    Structure::Dense | Structure::LowRank => 0,
                    Structure::Diagonal | Structure::Permutation => 56,
                    Structure::Block => 48,
                };
                assert_eq!(zeros, expected, "{structure:?}");
            }
            assert!(teacher.canonical(1e-6).layer.heads().len() == 3, "heads differ");
        }
    }

    #[test]
    fn a_small_point_is_measured_twice_alike() {
        let config =
            Config { seeds: 1, dims: vec![4], heads: 2, sculpt_dims: vec![], ..StructuredTeachers::config(Scale::Quick) };
        let points = StructuredTeachers::points(&config, 1);
        assert_eq!(points.len(), 10);
        let point = points.iter().find(|p| p.structure == Structure::Permutation && p.multiple > 2.0).unwrap();
        let rows = StructuredTeachers::measure(point, &|| false).unwrap();
        assert_eq!(rows, StructuredTeachers::measure(point, &|| false).unwrap());
        assert!(rows.len() == 1 && rows[0].attempt.nmse.is_finite() && rows[0].theta_true.is_empty());
    }

    fn made_up(config: &Config, succeeds: impl Fn(&Point) -> bool, seconds: impl Fn(&Point) -> f64) -> Vec<One> {
        let stages = |point: &Point| match point.learner {
            Learner::Descend => vec![Stage::Descent],
            Learner::Sculpt => vec![Stage::SixPhases, Stage::Polished],
        };
        let rows = StructuredTeachers::points(config, 1).into_iter().flat_map(|point| {
            let (success, seconds) = (succeeds(&point), seconds(&point));
            stages(&point).into_iter().map(move |stage| {
                let (outcome, theta_true, theta_found) = (String::new(), "1 2 3 4".into(), "1 2 3 5".into());
                let judged = Judged { theta_error: 0.0, w_error: 0.0, heads_found: 2 };
                let attempt =
                    Attempt { stage, success, judged, nmse: 0.0, examples_read: 1, starts: 1, by_agreement: false, outcome };
                Measured { point: point.clone(), row: Row { attempt, theta_true, theta_found }, seconds }
            })
        });
        rows.collect()
    }

    /// The sentence says which structure is harder, and which is slower.
    #[test]
    fn findings_follow_the_data() {
        let config = StructuredTeachers::config(Scale::Full);
        let said = |bad: Structure| {
            let rows = made_up(&config, |p| p.structure != bad, |p| if p.structure == Structure::Block { 3.0 } else { 1.5 });
            StructuredTeachers::summarise(&config, &rows).unwrap()
        };
        let summary = said(Structure::Diagonal);
        assert!(
            summary.findings.len() == 4
                && summary.findings[0].text.contains(
                    "effort), diagonal (0 of 40) is recovered less often than dense (40 of 40): dense 40 of 40 (20 of 20 at d = 8, 20 of 20 at d = 16);"
                ),
            "{:?}",
            summary.findings
        );
        assert!(
            summary.findings[0]
                .text
                .contains("block 40 of 40 (20 of 20 at d = 8, 20 of 20 at d = 16), in 2.00 (2.00 to 2.00) times"),
            "{}",
            summary.findings[0].text
        );
        assert!(
            said(Structure::Dense).findings[2]
                .text
                .contains("low rank (20 of 20) and permutation (20 of 20) are recovered more often than dense (0 of 20): ")
        );
        // What is said of bars is said in every headline.
        assert!(summary.findings[0].headline().contains("(every matrix within 10⁻⁶, at 3.00 % of its default effort)"));
        assert!(summary.findings[2].headline().contains("(every Θ within 15 %"), "{}", summary.findings[2].text);
        // Three of twenty are within chance, in either direction; what fails at one d shows.
        let few = |worse: bool| {
            let fails = move |p: &Point| {
                let rare = p.learner == Learner::Sculpt && p.d == 8 && p.seed % 10 < 3;
                rare && (p.structure == Structure::Block) == worse
            };
            StructuredTeachers::summarise(&config, &made_up(&config, |p| !fails(p), |_| 1.0)).unwrap().findings[3].text.clone()
        };
        let (worse, better) = (few(true), few(false));
        assert!(
            worse.contains("block (17 of 20) is recovered less often than dense (20 of 20), but within chance: ")
                && worse.contains("block 17 of 20 (7 of 10 at d = 8, 10 of 10 at d = 10)"),
            "{worse}"
        );
        assert!(
            better.contains("block (20 of 20) is recovered more often than dense (17 of 20), but within chance: "),
            "{better}"
        );
        let head = summary.figures.iter().find(|figure| figure.name == "head-low-rank").unwrap();
        assert!(head.caption.contains("differ by 0.183 of its norm"), "{}", head.caption);
    }
}
