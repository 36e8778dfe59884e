//! `attnlearn demo`: the main job, from a teacher to a certificate, in one command.

use crate::cli::Ending;
use crate::console::Console;
use crate::errors::{self, Comparison, SAME_HEAD};
use crate::heatmap::{self, Panel};
use crate::output::Files;
use crate::progress::{Bar, PhaseWatch};
use crate::report;
use crate::session::Session;
use crate::{interrupt, output, page};
use attnlearn::Result;
use attnlearn::data::{InputDistribution, Watched};
use attnlearn::layer::AttentionLayer;
use attnlearn::learn::{SculptReport, StageErrors, sculpt_notes};
use attnlearn::linalg::Mat;
use attnlearn::sculpt::{self, Heads, Learned, Outcome, Settings, Stage, ValidSettings};
use attnlearn::teacher::{TeacherSpec, TeacherStream};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Tokens per sequence of the demonstration.
const K: usize = 4;
/// How they are drawn.
const INPUTS: InputDistribution = InputDistribution::Boolean;

/// Learn a random layer with two heads and compare it with the truth.
///
/// Draws a teacher with two heads (d = 8, ‖Θ‖_F = 6), streams examples of it (k = 4, inputs of ±1) to the learner, which
/// sees nothing else, and shows what it found: errors before and after the polish, a certificate on examples that the
/// learner has not seen, and the true and recovered attention matrices side by side.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  attnlearn demo
  attnlearn demo --seed 7 -o found.safetensors
  attnlearn demo --report demo.html
  attnlearn demo --quiet --json - | jq .after_polish.worst_theta")]
pub struct Args {
    /// Where to write the layer (.safetensors) [default: nowhere].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Where to write a page with pictures of the run (.html).
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Seed of the teacher, of the examples and of the learner.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// What has been checked.
pub struct Plan {
    spec: TeacherSpec,
    teacher: AttentionLayer,
    examples: TeacherStream,
    settings: ValidSettings,
    output: Option<PathBuf>,
    page: Option<PathBuf>,
}

/// The demonstration, as it stands in the JSON.
#[derive(Serialize)]
struct DemoReport<'a> {
    teacher: &'a TeacherSpec,
    inputs: InputDistribution,
    #[serde(flatten)]
    learning: SculptReport<'a>,
}

impl Args {
    /// What it reads and writes.
    pub fn files(&self) -> Files {
        Files::default().write(&self.output).write(&self.report)
    }

    /// Draws the teacher.
    pub fn check(self) -> Result<Plan> {
        self.output.as_deref().map_or(Ok(()), output::writable_layer)?;
        self.report.as_deref().map_or(Ok(()), output::writable)?;
        let spec = TeacherSpec::dense(8, 2, 6.0);
        let teacher = spec.draw_from(self.seed)?;
        let examples = TeacherStream::new(&teacher, K, INPUTS, self.seed, None);
        let settings =
            Settings { heads: Heads::Given(spec.m), seed: self.seed, sculpture: self.report.is_some(), ..Settings::default() }
                .check(&examples)?;
        Ok(Plan { spec, teacher, examples, settings, output: self.output, page: self.report })
    }
}

impl Plan {
    /// Learns and compares.
    pub fn run(self, session: &Session) -> Result<Ending> {
        interrupt::listen();
        let (console, begun) = (&session.console, Instant::now());
        console.say(format!(
            "{}  ‖Θ‖_F = {}, k = {K}, inputs ±1",
            console.bold(&format!("Teacher: {}", report::describe(&self.teacher))),
            self.spec.norm
        ));
        console.gap();
        report::phase_header(console);
        let learned = {
            let bar = Bar::hidden();
            let source = Watched::new(&self.examples, &bar);
            sculpt::learn(&source, &self.settings, &PhaseWatch::new(console, session.spinner()))?
        };
        let seconds = begun.elapsed().as_secs_f64();

        let compare = |stage: &Option<Stage>| {
            stage.as_ref().map(|stage| Comparison::new(&self.teacher, &stage.layer, SAME_HEAD)).transpose()
        };
        let (before, after) = (compare(&learned.before_polish)?, compare(&learned.after_polish)?);
        report::say_outcome(console, &learned, seconds);
        if before.is_some() || after.is_some() {
            console.heading("Relative error of every head");
            errors::say_heads(console, before.as_ref(), after.as_ref());
            console.heading("Attention matrices Θ");
            say_maps(console, before.as_ref(), after.as_ref());
        }
        report::say_certificate(console, learned.certificate.as_ref());
        let best = learned.after_polish.as_ref().or(learned.before_polish.as_ref());
        if let Some(path) = &self.output {
            console.gap();
            if let Some(stage) = best {
                let notes = sculpt_notes(&learned, stage, learned.after_polish.is_some(), self.settings.seed);
                stage.layer.save(path, &notes)?;
                console.say(format!("wrote {}", path.display()));
            } else {
                console.say("no layer was found, none is written");
            }
        }
        if let Some(path) = &self.page {
            let layer = best.and(self.output.as_deref()).map(|path| ("layer", path));
            let files = layer.into_iter().chain(session.json_file().map(|file| ("result", file))).collect();
            let run = page::Run {
                title: "A layer of two heads, learned",
                shape: self.settings.shape(),
                examples: learned.examples,
                seed: self.settings.seed,
                seconds,
                truth: Some(&self.teacher),
                page: path,
                files,
                settings: serde_json::json!({ "teacher": self.spec, "inputs": INPUTS, "learner": *self.settings }),
            };
            page::write(&run.sculpted(&learned), path)?;
            console.say(format!("wrote {}", path.display()));
        }
        session.publish("demo", &self.report(&learned, before.as_ref(), after.as_ref(), seconds))?;
        if learned.outcome == Outcome::Recovered {
            return Ok(Ending::Done);
        }
        session.insist(&learned.outcome.to_string());
        Ok(Ending::NotRecovered)
    }

    fn report<'a>(
        &'a self,
        learned: &'a Learned,
        before: Option<&Comparison>,
        after: Option<&Comparison>,
        seconds: f64,
    ) -> DemoReport<'a> {
        let stage = |stage: &Option<Stage>, comparison: Option<&Comparison>| {
            stage.as_ref().map(|stage| StageErrors {
                distance: comparison.map(|c| c.distance.clone()),
                worst_theta: comparison.map(|c| c.distance.worst_theta()),
                worst_w: comparison.map(|c| c.distance.worst_w()),
                ..StageErrors::of(stage)
            })
        };
        DemoReport {
            teacher: &self.spec,
            inputs: INPUTS,
            learning: SculptReport::new(
                learned,
                &self.settings,
                self.settings.shape(),
                seconds,
                learned.layer().and(self.output.as_ref()).map(|path| path.display().to_string()),
            )
            .with_errors(stage(&learned.before_polish, before), stage(&learned.after_polish, after)),
        }
    }
}

/// The true attention matrices beside the recovered ones, before and after the polish.
fn say_maps(console: &Console, before: Option<&Comparison>, after: Option<&Comparison>) {
    let Some(reference) = before.or(after).map(|c| &c.reference.layer) else { return };
    let truths: Vec<Mat<f64>> = reference.heads().iter().map(|head| head.theta.to_dense()).collect();
    let scale = heatmap::scale(&truths);
    let found = |comparison: Option<&Comparison>, i: usize| {
        comparison.and_then(|c| c.partner(i).map(|j| c.other.layer.heads()[j].theta.to_dense()))
    };
    for (i, truth) in truths.iter().enumerate() {
        let (before, after) = (found(before, i), found(after, i));
        let mut panels = vec![Panel { title: "true", matrix: truth }];
        panels.extend(before.as_ref().map(|matrix| Panel { title: "before polish", matrix }));
        panels.extend(after.as_ref().map(|matrix| Panel { title: "after polish", matrix }));
        console.say(console.dim(&format!("  head {}", i + 1)));
        for line in heatmap::side_by_side(&panels, scale, console.colour()) {
            console.say(format!("  {line}"));
        }
    }
    console.say(format!("  {}", heatmap::legend(scale, console.colour())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Stream;
    use attnlearn::layer::{Head, Mask};
    use attnlearn::sculpt::{Phase, Record};

    /// A stage whose attention matrices are off by a known factor, heads in reverse order, perhaps one too few.
    fn stage(teacher: &AttentionLayer, factor: f64, heads: usize) -> Option<Stage> {
        let scaled = |head: &Head| {
            let theta = head.theta.to_dense();
            Head::dense(Mat::from_fn(8, 8, |i, j| factor * theta[(i, j)]), head.w.clone())
        };
        let heads = teacher.heads().iter().rev().take(heads).map(scaled).collect();
        Some(Stage { layer: AttentionLayer::new(heads, None, Mask::None).expect("valid"), nmse: factor - 1.0 })
    }

    #[test]
    fn errors_before_and_after_the_polish_are_told_apart() {
        let spec = TeacherSpec::dense(8, 2, 6.0);
        let teacher = spec.draw_from(0).expect("valid");
        let examples = TeacherStream::new(&teacher, K, INPUTS, 0, None);
        let settings = Settings::default().check(&examples).expect("valid");
        for heads in [1, 2] {
            let learned = Learned {
                outcome: Outcome::Recovered,
                before_polish: stage(&teacher, 1.125, heads),
                after_polish: stage(&teacher, 1.0 + f64::EPSILON, heads),
                certificate: None,
                records: vec![Record { note: "a note".into(), rows_seen: 12_345, ..Record::new(Phase::Crude) }],
                examples: 1,
                separated: false,
            };
            let compare = |stage: &Option<Stage>| {
                Comparison::new(&teacher, &stage.as_ref().expect("given").layer, SAME_HEAD).expect("one shape")
            };
            let (before, after) = (compare(&learned.before_polish), compare(&learned.after_polish));
            let console = Console::new(Stream::Nowhere, false);
            report::say_outcome(&console, &learned, 1.0);
            errors::say_heads(&console, Some(&before), Some(&after));
            say_maps(&console, Some(&before), None);
            let plan = Plan {
                spec: spec.clone(),
                teacher: teacher.clone(),
                examples: TeacherStream::new(&teacher, K, INPUTS, 0, None),
                settings: settings.clone(),
                output: Some("l.safetensors".into()),
                page: None,
            };
            let json = serde_json::to_value(plan.report(&learned, Some(&before), Some(&after), 1.0)).expect("JSON");
            assert_eq!(json["teacher"]["m"], 2);
            if heads == 2 {
                let worst = |when: &str| json[when]["worst_theta"].as_f64().expect("every head is there");
                assert!((worst("before_polish") - 0.125).abs() < 1e-12 && worst("after_polish") < 1e-15, "{json}");
            } else {
                assert!(json["after_polish"]["worst_theta"].is_null() && json["after_polish"]["heads"] == 1, "{json}");
            }
        }
    }
}
