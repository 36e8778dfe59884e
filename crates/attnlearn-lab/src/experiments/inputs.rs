//! Boolean tokens, which theory is about, against Gaussian, spherical and correlated ones: how many examples and how much accuracy are lost?
//!
//! The same teachers see tokens of five kinds. Descent is given so many times as many sequences as have as many outputs as there are unknowns (the counting bound),
//! and for every teacher the least multiple is sought from which on it is recovered. The six phases are given so many sequences, and asked for the error
//! of their own answer and of the polished one.
//!
//! Correlated tokens have variances `j^−2` and `j^−4`: at d = 8 directions differ by a factor of 64 and 4096. Attention matrices are compared in the tokens' own units, where
//! what shows least is known least.

use crate::experiment::{Experiment, Finding, Measured, Measurements, Scale, Summary, Table};
use crate::features::joined;
use crate::plot::{Axis, Chart, Figure, Panel, Series};
use crate::recovery::{Attempt, Criterion, Inputs, Learner, Rate, Stage, Task, counting_bound, seeds};
use crate::stats::{Estimate, geometric, median, short};
use attnlearn::Result;
use attnlearn::data::TeacherSpec;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Kinds of tokens, the one that theory is about first.
const KINDS: [Inputs; 5] = [Inputs::Boolean, Inputs::Gaussian, Inputs::Sphere, Inputs::Correlated2, Inputs::Correlated4];

/// What can be chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Teachers for descent.
    pub seeds: usize,
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
    pub sculpt_seeds: usize,
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
        let findings = std::iter::once(data.examples_lost()).chain(data.agreement()?).chain(data.accuracy_lost());
        let findings = findings.map(Finding::open).collect();
        Ok(Summary { findings, figures: vec![data.descent()?, data.six_phases()?, data.errors()], tables: vec![data.table()?] })
    }
}

/// Rows and what is asked of them.
struct Data<'a> {
    config: &'a Config,
    rows: &'a Measurements<KindsOfInputs>,
}

type One = Measured<Point, Attempt>;

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

    /// Examples from which on descent recovers the teacher of a seed; none if not even the most do.
    fn needed(&self, inputs: Inputs, seed: u64) -> Option<usize> {
        let mut tried: Vec<(usize, bool)> =
            self.of(inputs, Stage::Descent).filter(|m| m.point.seed == seed).map(|m| (m.point.examples, m.row.success)).collect();
        tried.sort_unstable();
        tried.iter().rev().take_while(|(_, success)| *success).last().map(|(examples, _)| *examples)
    }

    fn seeds(&self, learner: Learner) -> Vec<u64> {
        let mut seeds: Vec<u64> = self.rows.iter().filter(|m| m.point.learner == learner).map(|m| m.point.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds
    }

    /// Ratios of what each kind of tokens needs to what Boolean ones need, teacher by teacher. Teachers that even the most examples do not give count as if
    /// twice as many would; how many there are of these.
    fn ratio(&self, inputs: Inputs) -> Option<(Estimate, usize)> {
        let most = 2 * self.sizes(Learner::Descend).last()?;
        let seeds = self.seeds(Learner::Descend);
        let of = |inputs| seeds.iter().map(move |seed| self.needed(inputs, *seed));
        let ratios: Vec<f64> =
            of(inputs).zip(of(Inputs::Boolean)).map(|(a, b)| a.unwrap_or(most) as f64 / b.unwrap_or(most) as f64).collect();
        (ratios.len() > 1).then(|| (geometric(&ratios), of(inputs).filter(Option::is_none).count()))
    }

    fn examples_lost(&self) -> String {
        let (mut parts, mut dearer) = (Vec::new(), Vec::new());
        for inputs in KINDS.into_iter().skip(1) {
            let Some((ratio, never)) = self.ratio(inputs) else { continue };
            let verdict = if ratio.above(1.0) {
                dearer.push(inputs.name().to_owned());
                format!("{} needs {ratio} times as many", inputs.name())
            } else if ratio.below(1.0) {
                format!("{} does with {ratio} times as many", inputs.name())
            } else {
                format!("{} shows no difference ({ratio} times)", inputs.name())
            };
            let never = if never == 0 { String::new() } else { format!(", {never} teachers not recovered at all") };
            parts.push(verdict + &never);
        }
        let boolean: Vec<f64> = self
            .seeds(Learner::Descend)
            .iter()
            .filter_map(|seed| self.needed(Inputs::Boolean, *seed))
            .map(|examples| self.multiple(examples))
            .collect();
        if parts.is_empty() || boolean.is_empty() {
            return "Too few teachers to compare what kinds of tokens need.".into();
        }
        let Config { d, heads, seeds, .. } = *self.config;
        let verdict = if dearer.is_empty() {
            "no other tokens need more".into()
        } else {
            format!("more are needed by {}", joined(&dearer))
        };
        format!(
            "Descent (d = {d}, {heads} heads, {seeds} teachers) recovers teachers of Boolean tokens from {} times the counting bound on, and {verdict}: {}.",
            geometric(&boolean),
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
                    fewer.push(inputs.name().to_owned());
                    "fewer"
                }
                true => "more",
                false => "no difference seen",
            };
            parts.push(format!("{} {rate} ({verdict})", inputs.name()));
        }
        let verdict = if fewer.is_empty() { "clearly fewer of no others".into() } else { format!("fewer of {}", joined(&fewer)) };
        Ok(Some(format!(
            "From at most {most} examples the six phases (d = {}, {} heads) recover {boolean} teachers of Boolean tokens by agreement of the heads alone, and {verdict}: {}.",
            self.config.sculpt_d,
            self.config.sculpt_heads,
            parts.join("; ")
        )))
    }

    /// Errors of the six phases' own answer with the most examples, relative to Boolean tokens.
    fn accuracy_lost(&self) -> Option<String> {
        let most = *self.sizes(Learner::Sculpt).last()?;
        let errors = |inputs: Inputs, stage: Stage| -> Vec<f64> {
            self.of(inputs, stage).filter(|m| m.point.examples == most).map(|m| m.row.judged.theta_error).collect()
        };
        let (mut parts, mut medians) = (Vec::new(), Vec::new());
        for inputs in KINDS {
            let (own, polished) = (errors(inputs, Stage::SixPhases), errors(inputs, Stage::Polished));
            let ratios = own.iter().zip(errors(Inputs::Boolean, Stage::SixPhases)).map(|(a, b)| a / b);
            let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
            let against = match geometric(&ratios) {
                _ if inputs == Inputs::Boolean || ratios.len() < 2 => String::new(),
                ratio if ratio.above(1.0) => format!(", {ratio} times that of Boolean tokens"),
                ratio if ratio.below(1.0) => format!(", only {ratio} times that of Boolean tokens"),
                ratio => format!(", no clear difference from Boolean tokens ({ratio} times)"),
            };
            medians.push([median(&own).value, median(&polished).value]);
            let (own, polished) = (short(median(&own).value), short(median(&polished).value));
            parts.push(format!("{} {own} before the polish{against}, {polished} after it", inputs.name()));
        }
        let range = |stage: usize| {
            let values = || medians.iter().map(|pair| pair[stage]);
            format!("{} to {}", short(values().fold(f64::INFINITY, f64::min)), short(values().fold(0.0, f64::max)))
        };
        Some(format!(
            "With {most} examples the worst relative error of an attention matrix is, in the median of teachers and whatever rows are certified by, {} before the polish and {} after it, \
             depending on the tokens: {}.",
            range(0),
            range(1),
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
            caption: "Share of teachers recovered to 10⁻⁶, with exact 95 % intervals, against examples in multiples of the counting bound (at 1, as many outputs as unknowns). The further right a \
                      line rises, the more examples such tokens cost."
                .into(),
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
            caption: "Share of teachers recovered, with exact 95 % intervals: by the six phases' own answer as far as it rests on agreement of the heads alone; by it, whatever it rests on (every \
                      Θ within 15 %, held-out NMSE at most 10⁻²); and to 10⁻⁶ after the polish."
                .into(),
            panels,
        })
    }

    fn errors(&self) -> Figure {
        let panel = |stage: Stage, title: &str| {
            let line = |inputs: Inputs| {
                let points = self.sizes(Learner::Sculpt).into_iter().filter_map(|examples| {
                    let errors: Vec<f64> = self
                        .of(inputs, stage)
                        .filter(|m| m.point.examples == examples)
                        .map(|m| m.row.judged.theta_error)
                        .collect();
                    let middle = median(&errors);
                    middle.value.is_finite().then_some((examples as f64, middle))
                });
                Series::new(inputs.name(), points)
            };
            let (x, y) = (Axis::log("examples allowed"), Axis::log("largest relative error of an attention matrix"));
            Panel::Chart(Chart { title: title.into(), x, y, series: KINDS.into_iter().map(line).collect() })
        };
        Figure {
            name: "errors".into(),
            title: "Six phases: error before and after the polish".into(),
            caption: "Median over teachers of the worst relative error of an attention matrix, with the order statistics around it; medians that are infinite, as half of the teachers have no \
                      answer with all heads, are left out. Left, what the paper's algorithm itself reaches; right, what descent makes of it."
                .into(),
            panels: vec![panel(Stage::SixPhases, "before the polish"), panel(Stage::Polished, "after the polish")],
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
            caption: "Teachers recovered.".into(),
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

    /// Descent needs `descent(inputs)` sequences; the six phases err by `error(inputs)`.
    fn findings(descent: impl Fn(Inputs) -> usize, error: impl Fn(Inputs) -> f64) -> Vec<Finding> {
        let config = KindsOfInputs::config(Scale::Quick);
        let rows: Vec<One> = KindsOfInputs::points(&config, 1)
            .into_iter()
            .flat_map(|point| {
                let stages = if point.learner == Learner::Descend {
                    vec![Stage::Descent]
                } else {
                    vec![Stage::SixPhases, Stage::Polished]
                };
                let success = point.examples >= descent(point.inputs);
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
                        by_agreement: true,
                        outcome: String::new(),
                    },
                    seconds: 1.0,
                })
            })
            .collect();
        KindsOfInputs::summarise(&config, &rows).unwrap().findings
    }

    #[test]
    fn findings_follow_the_data() {
        // The counting bound is 12 sequences: 13, 14, 18 and 24 are tried.
        let said = findings(
            |inputs| if inputs == Inputs::Gaussian { 18 } else { 14 },
            |inputs| if inputs == Inputs::Sphere { 0.2 } else { 0.1 },
        );
        assert!(said[0].text.contains("Gaussian needs 1.29 (1.29 to 1.29) times as many"), "{said:?}");
        assert!(said[0].text.contains("sphere shows no difference"), "{said:?}");
        assert!(said[2].text.contains("sphere 0.203 before the polish, 2.00 (2.00 to 2.00) times that of Boolean"), "{said:?}");
        let turned = findings(
            |inputs| if inputs == Inputs::Gaussian { 14 } else { 18 },
            |inputs| if inputs == Inputs::Sphere { 0.1 } else { 0.2 },
        );
        assert!(turned[0].text.contains("Gaussian does with 0.778") && turned[2].text.contains("only 0.500"), "{turned:?}");
        let never = findings(|inputs| if inputs == Inputs::Correlated4 { 1 << 10 } else { 14 }, |_| 0.1);
        assert!(
            said[1].text.contains(
                "recover 4 of 4 teachers of Boolean tokens by agreement of the heads alone, and clearly fewer of no others: Gaussian 4 of 4 (no difference seen)"
            ),
            "{said:?}"
        );
        let hidden = findings(|inputs| if inputs == Inputs::Sphere { 1 << 20 } else { 14 }, |_| 0.1);
        assert!(hidden[1].text.contains("sphere 0 of 4 (fewer)"), "{hidden:?}");
        assert!(
            never[0].text.contains("6 teachers not recovered at all") && never[2].text.contains("no clear difference"),
            "{never:?}"
        );
    }
}
