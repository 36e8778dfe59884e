//! Boolean tokens, which theory is about, against Gaussian, spherical and correlated ones: how many examples and how much accuracy are lost?
//!
//! The same teachers see tokens of five kinds. Descent is given so many times as many sequences as have as many outputs as there are unknowns (the counting bound),
//! and for every teacher the least multiple is sought from which on it is recovered. Teachers that the most sequences do not give have no such multiple, and are left out and named.
//! The six phases are given so many sequences, and asked for the error of their own answer and of the polished one. An own answer rests on agreement of the heads, or, where
//! too few rows agree, on rows certified head by head: that is another algorithm, and errors of the two are not compared.
//!
//! Correlated tokens have variances `j^−2` and `j^−4`: at d = 8 directions differ by a factor of 64 and 4096. Attention matrices are compared in the tokens' own units, where
//! what shows least is known least.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table, ascending, seeds};
use crate::features::{Errors, Ratio, Verdict, joined};
use crate::recovery::{Attempt, Criterion, Inputs, Learner, Rate, Stage, Task, counting_bound};
use crate::stats::{geometric, median, short};
use attnlearn::Result;
use attnlearn::teacher::TeacherSpec;
use attnlearn::words::plural;
use attnlearn_page::plot::{Axis, Chart, Figure, Panel, Series};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Kinds of tokens, the one that theory is about first.
const KINDS: [Inputs; 5] = [Inputs::Boolean, Inputs::Gaussian, Inputs::Sphere, Inputs::Correlated2, Inputs::Correlated4];

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Teachers for descent.
    pub seeds: u64,
    /// `‖Θ_i‖_F` for descent.
    pub norm: f64,
    /// Token dimension for descent.
    pub d: usize,
    /// Heads for descent.
    pub heads: usize,
    /// Tokens of a sequence for descent.
    pub k: usize,
    /// Examples for descent, in multiples of the counting bound.
    pub multiples: Vec<f64>,
    /// How hard descent tries.
    pub effort: f64,
    /// Teachers for the six phases.
    pub sculpt_seeds: u64,
    /// `‖Θ_i‖_F` for the six phases.
    pub sculpt_norm: f64,
    /// Token dimension for the six phases.
    pub sculpt_d: usize,
    /// Heads for the six phases.
    pub sculpt_heads: usize,
    /// Tokens of a sequence for the six phases.
    pub sculpt_k: usize,
    /// Examples for the six phases, at most.
    pub sculpt_examples: Vec<usize>,
}

/// One learner, one teacher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Who learns.
    pub learner: Learner,
    /// From what.
    pub inputs: Inputs,
    /// Token dimension.
    pub d: usize,
    /// Heads.
    pub m: usize,
    /// Tokens of a sequence.
    pub k: usize,
    /// `‖Θ_i‖_F`.
    pub norm: f64,
    /// Examples, at most.
    pub examples: usize,
    /// How hard descent tries.
    pub effort: f64,
    /// Seed.
    pub seed: u64,
}

/// The experiment.
pub struct KindsOfInputs;

impl Experiment for KindsOfInputs {
    const NAME: &'static str = "inputs";
    const TITLE: &'static str = "Boolean, Gaussian, spherical and correlated tokens";
    const QUESTION: &'static str = "How many examples, and how much accuracy, do tokens cost that are no random signs? Independent Gaussian and spherical tokens have the moments that the \
        six phases use; of correlated tokens some directions hardly show.";
    const CLAIM: &'static str = "The theorem is about uniformly random signs; what other tokens cost is left open.";
    const TOGETHER: bool = true;
    type Config = Config;
    type Point = Point;
    type Row = Attempt;

    fn config(scale: Scale) -> Config {
        Config {
            seeds: scale.pick(6, 12),
            norm: 2.0,
            d: 8,
            heads: 3,
            k: 4,
            multiples: scale.pick(vec![1.1, 1.2, 1.5, 2.0], vec![1.0, 1.1, 1.2, 1.35, 1.5, 2.0, 4.0]),
            effort: scale.pick(0.05, 0.2),
            sculpt_seeds: scale.pick(4, 8),
            sculpt_norm: 6.0,
            sculpt_d: 8,
            sculpt_heads: 2,
            sculpt_k: 3,
            sculpt_examples: scale.pick(vec![1 << 12, 1 << 15], (11..20).step_by(2).map(|power| 1 << power).collect()),
        }
    }

    fn tidy(config: &mut Config) {
        ascending(&mut config.multiples);
        ascending(&mut config.sculpt_examples);
    }

    fn points(config: &Config, seed: u64) -> Vec<Point> {
        let (d, m, k) = (config.d, config.heads, config.k);
        let mut points = Vec::new();
        for inputs in KINDS {
            for multiple in &config.multiples {
                let examples = (multiple * counting_bound(d, d, m, k)).round() as usize;
                let (norm, effort) = (config.norm, config.effort);
                let of = |seed| Point { learner: Learner::Descend, inputs, d, m, k, norm, examples, effort, seed };
                points.extend(seeds(seed, config.seeds).map(of));
            }
            for &examples in &config.sculpt_examples {
                let (d, m, k, norm) = (config.sculpt_d, config.sculpt_heads, config.sculpt_k, config.sculpt_norm);
                let of = |seed| Point { learner: Learner::Sculpt, inputs, d, m, k, norm, examples, effort: 0.0, seed };
                points.extend(seeds(seed, config.sculpt_seeds).map(of));
            }
        }
        points
    }

    fn measure(point: &Point, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Attempt>> {
        let spec = TeacherSpec::dense(point.d, point.m, point.norm);
        let teacher = spec.draw(&mut ChaCha8Rng::seed_from_u64(point.seed))?;
        let task = Task { teacher: &teacher, k: point.k, inputs: point.inputs, examples: point.examples, seed: point.seed };
        task.attempt(point.learner, point.effort, stop)
    }

    fn summarise(config: &Config, rows: &Measurements<Self>) -> Result<Summary> {
        let data = Data { config, rows };
        let findings = std::iter::once(data.examples_lost()).chain(data.agreement()?).chain(data.accuracy());
        let findings = findings.map(Finding::open).collect();
        Ok(Summary { findings, figures: vec![data.descent()?, data.six_phases()?, data.errors()], tables: vec![data.table()?] })
    }
}

/// What descent made of a teacher.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// Recovered from so many examples on.
    From(usize),
    /// Recovered from these numbers of examples, but not from the most.
    Lost(Vec<usize>),
    /// Not recovered.
    Never,
}

/// Rows and what is asked of them.
struct Data<'a> {
    config: &'a Config,
    rows: &'a Measurements<KindsOfInputs>,
}

type One = Measured<Point, Attempt>;

/// Answers of the six phases that can be compared with one another.
#[derive(Clone, Copy)]
enum Sort {
    /// Their own, from rows on which the heads agree, as in the paper.
    Agreement,
    /// Their own, from rows certified head by head.
    Separated,
    /// After the polish, whatever it began with.
    Polished,
}

impl Sort {
    const ALL: [Self; 3] = [Self::Agreement, Self::Separated, Self::Polished];

    fn name(self) -> &'static str {
        match self {
            Self::Agreement => "by agreement",
            Self::Separated => "head by head",
            Self::Polished => "after the polish",
        }
    }

    fn stage(self) -> Stage {
        match self {
            Self::Agreement | Self::Separated => Stage::SixPhases,
            Self::Polished => Stage::Polished,
        }
    }

    /// As rows have it: polished answers never rest on agreement alone.
    fn by_agreement(self) -> bool {
        matches!(self, Self::Agreement)
    }
}

impl Data<'_> {
    fn of(&self, inputs: Inputs, stage: Stage) -> impl Iterator<Item = &One> {
        self.rows.iter().filter(move |m| m.point.inputs == inputs && m.row.stage == stage)
    }

    /// Numbers of examples of a learner, increasing.
    fn sizes(&self, learner: Learner) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.rows.iter().filter(|m| m.point.learner == learner).map(|m| m.point.examples).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn rate(&self, inputs: Inputs, examples: usize, criterion: Criterion) -> Result<Option<Rate>> {
        let here = |m: &&One| m.point.inputs == inputs && m.point.examples == examples;
        Rate::of(self.rows.iter().filter(here).map(|m| &m.row), criterion)
    }

    fn multiple(&self, examples: usize) -> f64 {
        let Config { d, heads, k, .. } = *self.config;
        examples as f64 / counting_bound(d, d, heads, k)
    }

    /// What became of the teacher of a seed; none if it was not tried.
    fn fate(&self, inputs: Inputs, seed: u64) -> Option<Fate> {
        let mut tried: Vec<(usize, bool)> =
            self.of(inputs, Stage::Descent).filter(|m| m.point.seed == seed).map(|m| (m.point.examples, m.row.success)).collect();
        tried.sort_unstable();
        let good: Vec<usize> = tried.iter().filter(|(_, success)| *success).map(|(examples, _)| *examples).collect();
        let from = tried.iter().rev().take_while(|(_, success)| *success).last();
        (!tried.is_empty()).then_some(match from {
            Some((examples, _)) => Fate::From(*examples),
            None if good.is_empty() => Fate::Never,
            None => Fate::Lost(good),
        })
    }

    fn seeds(&self, learner: Learner) -> Vec<u64> {
        let mut seeds: Vec<u64> = self.rows.iter().filter(|m| m.point.learner == learner).map(|m| m.point.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds
    }

    /// Examples from which on teachers are recovered, those that are not left out.
    fn needs(&self) -> Errors<Inputs> {
        let seeds = self.seeds(Learner::Descend);
        let of = |inputs: Inputs| {
            seeds.iter().filter_map(move |seed| match self.fate(inputs, *seed)? {
                Fate::From(examples) => Some((inputs, *seed, examples as f64)),
                Fate::Lost(_) | Fate::Never => None,
            })
        };
        Errors::new(KINDS.into_iter().flat_map(of))
    }

    /// Teachers that are left out, and why.
    fn left_out(&self, inputs: Inputs) -> Vec<String> {
        let most = self.sizes(Learner::Descend).last().copied().unwrap_or(0);
        let fates = self.seeds(Learner::Descend).into_iter().filter_map(|seed| Some((seed, self.fate(inputs, seed)?)));
        let fates: Vec<(u64, Fate)> = fates.collect();
        let mut parts = Vec::new();
        let never = fates.iter().filter(|(_, fate)| *fate == Fate::Never).count();
        if never > 0 {
            parts.push(format!("{} of {} never recovered", plural(never, "teacher"), fates.len()));
        }
        for (seed, fate) in &fates {
            if let Fate::Lost(good) = fate {
                let good: Vec<String> = good.iter().map(usize::to_string).collect();
                parts.push(format!("seed {seed} recovered from {} sequences but not from {most}", joined(&good)));
            }
        }
        parts
    }

    fn examples_lost(&self) -> String {
        let needs = self.needs();
        let boolean: Vec<f64> = needs
            .of(&Inputs::Boolean)
            .map(|of| of.values().map(|examples| self.multiple(*examples as usize)).collect())
            .unwrap_or_default();
        let (mut parts, mut lists, mut out) = (Vec::new(), [const { Vec::new() }; 5], Vec::new());
        for inputs in KINDS {
            let (name, left) = (inputs.name(), self.left_out(inputs));
            let left_out = if left.is_empty() { String::new() } else { format!(" (left out: {})", left.join("; ")) };
            if !left.is_empty() {
                out.push(name);
            }
            let ratio = needs.ratio(&inputs, &Inputs::Boolean);
            let (list, said) = match ratio.map(|ratio| (ratio.verdict(), ratio.times)) {
                _ if inputs == Inputs::Boolean => {
                    parts.extend((!left.is_empty()).then(|| format!("{name} is what others are compared with{left_out}")));
                    continue;
                }
                Some((Verdict::Second, times)) => (0, format!("{name} needs {times} times as many")),
                Some((Verdict::First, times)) => (1, format!("{name} does with {times} times as many")),
                Some((Verdict::Alike, times)) => (2, format!("{name} needs as many, within a quarter ({times} times)")),
                Some((Verdict::Unclear, times)) => (3, format!("{name} is not told apart ({times} times)")),
                Some((Verdict::TooFew, _)) | None => (4, format!("{name} has too few teachers to compare")),
            };
            lists[list].push(name);
            parts.push(said + &left_out);
        }
        if boolean.len() < 2 {
            return "Too few teachers to compare what kinds of tokens need.".into();
        }
        let words = [
            "more are needed by",
            "fewer are needed by",
            "as many are needed, within a quarter, by",
            "whether more or fewer are needed is not told of",
            "too few teachers to compare are there of",
        ];
        let said = words.iter().zip(&lists).filter(|(_, list)| !list.is_empty());
        let mut verdict: Vec<String> = said.map(|(words, list)| format!("{words} {}", joined(list))).collect();
        if !out.is_empty() {
            verdict.push(format!("not every teacher of {} is recovered from the most examples", joined(&out)));
        }
        let Config { d, heads, seeds, effort, .. } = *self.config;
        format!(
            "Descent (d = {d}, {heads} heads, {seeds} teachers; {}) recovers teachers of Boolean tokens from {} times the counting bound on; {}: {}.",
            Criterion::Descent.terms(effort),
            geometric(&boolean),
            verdict.join("; "),
            parts.join("; ")
        )
    }

    /// How often agreement of the heads is enough, with the most examples.
    fn agreement(&self) -> Result<Option<String>> {
        let Some(&most) = self.sizes(Learner::Sculpt).last() else { return Ok(None) };
        let Some(boolean) = self.rate(Inputs::Boolean, most, Criterion::Agreement)? else { return Ok(None) };
        let (mut parts, mut fewer) = (Vec::new(), Vec::new());
        for inputs in KINDS.into_iter().skip(1) {
            let Some(rate) = self.rate(inputs, most, Criterion::Agreement)? else { continue };
            let verdict = match rate.differs(&boolean) {
                true if rate.estimate.value < boolean.estimate.value => {
                    fewer.push(inputs.name());
                    "fewer"
                }
                true => "more",
                false if rate.successes * boolean.of == boolean.successes * rate.of => "as many",
                false => "within chance",
            };
            parts.push(format!("{} {rate} ({verdict})", inputs.name()));
        }
        let verdict = if fewer.is_empty() { "clearly fewer of no others".into() } else { format!("fewer of {}", joined(&fewer)) };
        Ok(Some(format!(
            "From at most {most} examples the six phases (d = {}, {} heads; {}) recover {boolean} teachers of Boolean tokens by agreement of the heads alone, and {verdict}: {}.",
            self.config.sculpt_d,
            self.config.sculpt_heads,
            Criterion::Agreement.bar(),
            parts.join("; ")
        )))
    }

    /// Errors of attention matrices with so many examples, of answers that rest on agreement or do not.
    fn errors_of(&self, inputs: Inputs, examples: usize, sort: Sort) -> impl Iterator<Item = (u64, f64)> {
        let mine = move |m: &&One| m.point.examples == examples && m.row.by_agreement == sort.by_agreement();
        self.of(inputs, sort.stage()).filter(mine).map(|m| (m.point.seed, m.row.judged.theta_error))
    }

    /// Medians of one sort of answers, and ratios to Boolean tokens among the same sort; and the least and the largest median.
    fn accuracy_of(&self, examples: usize, sort: Sort) -> (String, Option<(f64, f64)>) {
        let all =
            KINDS.into_iter().flat_map(|inputs| self.errors_of(inputs, examples, sort).map(move |(seed, e)| (inputs, seed, e)));
        let finite = Errors::new(all.filter(|(_, _, error)| error.is_finite()));
        let (mut parts, mut medians) = (Vec::new(), Vec::new());
        for inputs in KINDS {
            let errors: Vec<f64> = self.errors_of(inputs, examples, sort).map(|(_, error)| error).collect();
            if errors.is_empty() {
                parts.push(format!("{} none", inputs.name()));
                continue;
            }
            let against = finite.ratio(&inputs, &Inputs::Boolean).filter(|ratio| inputs != Inputs::Boolean && ratio.pairs > 1);
            let against = against.map_or(String::new(), |ratio: Ratio| match (ratio.verdict(), ratio.times) {
                (Verdict::Second, times) => format!(", {times} times that of Boolean tokens"),
                (Verdict::First, times) => format!(", only {times} times that of Boolean tokens"),
                (Verdict::Alike, times) => format!(", that of Boolean tokens within a quarter ({times} times)"),
                (_, times) => format!(", not told from that of Boolean tokens ({times} times)"),
            });
            let middle = median(&errors).value;
            medians.push(middle);
            parts.push(format!("{} {} ({}{against})", inputs.name(), short(middle), plural(errors.len(), "teacher")));
        }
        let ends = medians.iter().fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), m| (low.min(*m), high.max(*m)));
        (format!("{} {}", sort.name(), joined(&parts)), (!medians.is_empty()).then_some(ends))
    }

    /// Errors of the six phases with the most examples, among answers of the same sort.
    fn accuracy(&self) -> Option<String> {
        let most = *self.sizes(Learner::Sculpt).last()?;
        let (parts, ranges): (Vec<String>, Vec<String>) = Sort::ALL
            .map(|sort| {
                let (part, ends) = self.accuracy_of(most, sort);
                let range = ends.map_or("none".into(), |(low, high)| format!("{} to {}", short(low), short(high)));
                (part, format!("{} {range}", sort.name()))
            })
            .into_iter()
            .unzip();
        Some(format!(
            "With at most {most} examples the worst relative error of an attention matrix is, in the median of teachers and depending on the tokens, {}: {}.",
            joined(&ranges),
            parts.join("; ")
        ))
    }

    fn descent(&self) -> Result<Figure> {
        let mut series = Vec::new();
        for inputs in KINDS {
            let mut points = Vec::new();
            for examples in self.sizes(Learner::Descend) {
                points.extend(
                    self.rate(inputs, examples, Criterion::Descent)?.map(|rate| (self.multiple(examples), rate.estimate)),
                );
            }
            series.push(Series::new(inputs.name(), points));
        }
        Ok(Figure {
            name: "descent".into(),
            title: "Descent: success against examples".into(),
            caption: format!(
                "Share of teachers recovered ({}), with exact 95 % intervals, against examples in multiples of the counting bound (at 1, as many outputs as unknowns). The further right a \
                 line rises, the more examples such tokens cost.",
                Criterion::Descent.terms(self.config.effort)
            ),
            panels: vec![Panel::Chart(Chart {
                title: String::new(),
                x: Axis::log("examples (multiples of the counting bound)"),
                y: Axis::linear("share of teachers recovered"),
                series,
            })],
        })
    }

    fn six_phases(&self) -> Result<Figure> {
        let mut panels = Vec::new();
        for criterion in [Criterion::Agreement, Criterion::SixPhases, Criterion::Polished] {
            let mut series = Vec::new();
            for inputs in KINDS {
                let mut points = Vec::new();
                for examples in self.sizes(Learner::Sculpt) {
                    points.extend(self.rate(inputs, examples, criterion)?.map(|rate| (examples as f64, rate.estimate)));
                }
                series.push(Series::new(inputs.name(), points));
            }
            let (x, y) = (Axis::log("examples allowed"), Axis::linear("share of teachers recovered"));
            panels.push(Panel::Chart(Chart { title: criterion.name().into(), x, y, series }));
        }
        Ok(Figure {
            name: "six-phases".into(),
            title: "Six phases: success against examples".into(),
            caption: format!(
                "Share of teachers recovered, with exact 95 % intervals: by the six phases' own answer as far as it rests on agreement of the heads alone; by it, whatever it rests on; and after \
                 the polish. Bars differ: of an own answer {}, of the polished one {}.",
                Criterion::SixPhases.bar(),
                Criterion::Polished.bar()
            ),
            panels,
        })
    }

    fn errors(&self) -> Figure {
        let panel = |sort: Sort| {
            let line = |inputs: Inputs| {
                let points = self.sizes(Learner::Sculpt).into_iter().filter_map(|examples| {
                    let errors: Vec<f64> = self.errors_of(inputs, examples, sort).map(|(_, error)| error).collect();
                    let middle = median(&errors);
                    middle.value.is_finite().then_some((examples as f64, middle))
                });
                Series::new(inputs.name(), points)
            };
            let (x, y) = (Axis::log("examples allowed"), Axis::log("largest relative error of an attention matrix"));
            let series = KINDS.into_iter().map(line).filter(|series| !series.points.is_empty()).collect();
            Panel::Chart(Chart { title: sort.name().into(), x, y, series })
        };
        Figure {
            name: "errors".into(),
            title: "Six phases: error before and after the polish".into(),
            caption: "Median over teachers of the worst relative error of an attention matrix, with the order statistics around it; medians that are infinite, as half of the teachers have no \
                      answer with all heads, are left out. Left, own answers that rest on agreement of the heads, as the paper's algorithm has it, of those teachers where enough rows agree; middle, \
                      own answers from rows certified head by head, of the others; right, what descent makes of either. Tokens without such answers have no line. Lines of different panels are those \
                      of different algorithms."
                .into(),
            panels: Sort::ALL.into_iter().map(panel).collect(),
        }
    }

    fn table(&self) -> Result<Table> {
        let sizes: Vec<(Criterion, usize)> = [(Criterion::Descent, Learner::Descend), (Criterion::Agreement, Learner::Sculpt)]
            .into_iter()
            .flat_map(|(criterion, learner)| self.sizes(learner).into_iter().map(move |examples| (criterion, examples)))
            .collect();
        let head = |(criterion, examples): &(Criterion, usize)| match criterion {
            Criterion::Descent => format!("descent, {}×", short(self.multiple(*examples))),
            other => format!("{}, {examples}", other.name()),
        };
        let mut rows = Vec::new();
        for inputs in KINDS {
            let mut row = vec![inputs.name().to_owned()];
            for (criterion, examples) in &sizes {
                row.push(self.rate(inputs, *examples, *criterion)?.map_or("–".into(), |rate| rate.to_string()));
            }
            rows.push(row);
        }
        Ok(Table {
            caption: format!(
                "Teachers recovered. Bars differ: of descent {}, of agreement alone {}.",
                Criterion::Descent.terms(self.config.effort),
                Criterion::Agreement.bar()
            ),
            columns: std::iter::once("tokens".to_owned()).chain(sizes.iter().map(head)).collect(),
            rows,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;
    use crate::recovery::Judged;

    #[test]
    fn a_small_point_is_measured_twice_alike() {
        let config = Config {
            d: 4,
            heads: 2,
            seeds: 1,
            multiples: vec![3.0],
            sculpt_examples: vec![],
            ..KindsOfInputs::config(Scale::Quick)
        };
        let points = KindsOfInputs::points(&config, 2);
        assert_eq!(points.len(), 5);
        for point in points {
            let rows = KindsOfInputs::measure(&point, &|| false).unwrap();
            assert_eq!(rows, KindsOfInputs::measure(&point, &|| false).unwrap());
            assert!(rows.len() == 1 && rows[0].nmse.is_finite(), "{rows:?}");
        }
    }

    /// Answers succeed and rest on agreement as told; the six phases err by `error(inputs)`.
    fn summary(success: impl Fn(&Point) -> bool, error: impl Fn(Inputs) -> f64, agrees: impl Fn(Inputs) -> bool) -> Summary {
        let config = KindsOfInputs::config(Scale::Quick);
        let rows: Vec<One> = KindsOfInputs::points(&config, 1)
            .into_iter()
            .flat_map(|point| {
                let stages = if point.learner == Learner::Descend {
                    vec![Stage::Descent]
                } else {
                    vec![Stage::SixPhases, Stage::Polished]
                };
                let (success, agrees) = (success(&point), agrees(point.inputs));
                let theta_error = error(point.inputs) * (1.0 + 0.01 * (point.seed % 7) as f64);
                let judged = Judged { theta_error, w_error: 0.0, heads_found: 0 };
                stages.into_iter().map(move |stage| Measured {
                    point: point.clone(),
                    row: Attempt {
                        stage,
                        success,
                        judged,
                        nmse: 1.0,
                        examples_read: 1,
                        starts: 1,
                        by_agreement: agrees && stage == Stage::SixPhases,
                        outcome: String::new(),
                    },
                    seconds: 1.0,
                })
            })
            .collect();
        KindsOfInputs::summarise(&config, &rows).unwrap()
    }

    /// Teachers are recovered from `least(inputs)` sequences on.
    fn findings(least: impl Fn(Inputs) -> usize, error: impl Fn(Inputs) -> f64) -> Vec<Finding> {
        summary(|point| point.examples >= least(point.inputs), error, |_| true).findings
    }

    #[test]
    fn findings_follow_the_data() {
        // The counting bound is 12 sequences: 13, 14, 18 and 24 are tried.
        let said = findings(
            |inputs| if inputs == Inputs::Gaussian { 18 } else { 14 },
            |inputs| if inputs == Inputs::Sphere { 0.2 } else { 0.1 },
        );
        assert!(
            said[0]
                .headline()
                .contains("more are needed by Gaussian; as many are needed, within a quarter, by sphere, correlated (j⁻²)"),
            "{said:?}"
        );
        assert!(said[0].text.contains("Gaussian needs 1.29 (1.29 to 1.29) times as many;"), "{said:?}");
        assert!(said[0].text.contains("sphere needs as many, within a quarter (1.00"), "{said:?}");
        assert!(said[2].text.contains("sphere 0.203 (4 teachers, 2.00 (2.00 to 2.00) times that of Boolean"), "{said:?}");
        let turned = findings(
            |inputs| if inputs == Inputs::Gaussian { 14 } else { 18 },
            |inputs| if inputs == Inputs::Sphere { 0.1 } else { 0.2 },
        );
        assert!(turned[0].text.contains("Gaussian does with 0.778") && turned[2].text.contains("only 0.500"), "{turned:?}");
        assert!(
            said[1].text.contains(
                "recover 4 of 4 teachers of Boolean tokens by agreement of the heads alone, and clearly fewer of no others: Gaussian 4 of 4 (as many)"
            ),
            "{said:?}"
        );
        let hidden = findings(|inputs| if inputs == Inputs::Sphere { 1 << 20 } else { 14 }, |_| 0.1);
        assert!(hidden[1].text.contains("sphere 0 of 4 (fewer)"), "{hidden:?}");
    }

    /// Teachers that are never recovered, and one that only the most examples do not give, are named and left out; what spreads widely is not told apart.
    #[test]
    fn teachers_left_out_are_named() {
        let never = findings(|inputs| if inputs == Inputs::Correlated4 { 1 << 10 } else { 14 }, |_| 0.1);
        assert!(
            never[0]
                .text
                .contains("correlated (j⁻⁴) has too few teachers to compare (left out: 6 teachers of 6 never recovered)")
                && never[0].headline().contains("not every teacher of correlated (j⁻⁴) is recovered from the most examples")
                && never[2].text.contains("within a quarter"),
            "{never:?}"
        );
        let lost = |point: &Point| {
            let odd = point.inputs == Inputs::Correlated4 && point.seed == 1003 && point.examples == 24;
            point.examples >= 14 && !odd
        };
        let lost = summary(lost, |_| 0.1, |_| true).findings;
        assert!(
            lost[0].text.contains(
                "correlated (j⁻⁴) needs as many, within a quarter (1.00 (1.00 to 1.00) times) (left out: seed 1003 recovered from 14 and 18 sequences but not from 24)"
            ) && !lost[0].text.contains("never"),
            "{lost:?}"
        );
        let wide = |point: &Point| point.inputs != Inputs::Sphere || point.examples >= if point.seed < 1003 { 13 } else { 24 };
        let wide = summary(|point| point.examples >= 14 && wide(point), |_| 0.1, |_| true).findings;
        assert!(
            wide[0].headline().contains("whether more or fewer are needed is not told of sphere")
                && wide[0].text.contains("sphere is not told apart (1.31"),
            "{wide:?}"
        );
    }

    /// Answers that rest on agreement and answers that do not come from two algorithms: they are not compared.
    #[test]
    fn errors_of_two_algorithms_are_not_compared() {
        let summary = summary(
            |_| true,
            |inputs| if inputs == Inputs::Correlated2 { 0.01 } else { 0.1 },
            |inputs| inputs != Inputs::Correlated2,
        );
        let said = &summary.findings[2];
        assert!(
            said.headline()
                .ends_with("by agreement 0.102 to 0.102, head by head 0.0101 to 0.0101 and after the polish 0.0101 to 0.102"),
            "{said:?}"
        );
        assert!(
            said.text.contains("correlated (j⁻²) none and correlated (j⁻⁴) 0.102 (4 teachers, that of Boolean tokens within a quarter (1.00")
                && said.text.contains("head by head Boolean none, Gaussian none, sphere none, correlated (j⁻²) 0.0101 (4 teachers) and correlated (j⁻⁴) none;"),
            "{said:?}"
        );
        let lines: Vec<usize> = summary.figures[2]
            .panels
            .iter()
            .map(|panel| if let Panel::Chart(chart) = panel { chart.series.len() } else { 0 })
            .collect();
        assert_eq!(lines, [4, 1, 5]);
    }
}
