//! `attnlearn demo`: the main job, from a teacher to a certificate, in one command.

use crate::cli::Ending;
use crate::console::Console;
use crate::errors::{self, Comparison, SAME_HEAD};
use crate::heatmap::{self, Panel};
use crate::learn_watch::LearnWatch;
use crate::output::Files;
use crate::report;
use crate::session::Session;
use crate::{interrupt, output, page, values};
use attnlearn::Result;
use attnlearn::data::InputDistribution;
use attnlearn::layer::{AttentionLayer, DISTANCES};
use attnlearn::learn::{self, Answer, Checkpointing, Heads, Method, Report, Settings};
use attnlearn::linalg::Mat;
use attnlearn::teacher::{TeacherSpec, TeacherStream};
use serde::Serialize;
use std::path::PathBuf;

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
    learning: learn::Plan,
    output: Option<PathBuf>,
    page: Option<PathBuf>,
}

/// The demonstration, as it stands in the JSON.
#[derive(Serialize)]
struct DemoReport<'a> {
    teacher: &'a TeacherSpec,
    inputs: InputDistribution,
    #[serde(flatten)]
    learning: Report<'a>,
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
        let settings = Settings {
            method: Method::Sculpt,
            heads: Heads::Given(spec.m),
            seed: self.seed,
            sculpture: self.report.is_some(),
            ..Settings::default()
        };
        let learning = settings.check(&examples, "examples", &Checkpointing::default())?;
        Ok(Plan { spec, teacher, examples, learning, output: self.output, page: self.report })
    }
}

impl Plan {
    /// Learns and compares.
    pub fn run(self, session: &Session) -> Result<Ending> {
        interrupt::listen();
        let console = &session.console;
        console.say(format!(
            "{}  ‖Θ‖_F = {}, k = {K}, inputs ±1",
            console.bold(&format!("Teacher: {}", report::describe(&self.teacher))),
            self.spec.norm
        ));
        let answer = self.learning.run(&self.examples, &LearnWatch::new(session))?;

        let compare = |layer: Option<&AttentionLayer>| {
            layer.map(|layer| Comparison::new(&self.teacher, layer, SAME_HEAD, DISTANCES)).transpose()
        };
        let before = compare(answer.before_polish.as_ref().map(|own| &own.layer))?;
        let after = compare(answer.after_polish().map(|(layer, _)| layer))?;
        report::say_outcome(console, &answer);
        if before.is_some() || after.is_some() {
            console.heading("Relative error of every head");
            errors::say_heads(console, before.as_ref(), after.as_ref());
            console.heading("Attention matrices Θ");
            say_maps(console, before.as_ref(), after.as_ref());
        }
        report::say_certificate(console, answer.certificate.as_ref());
        let mut layer = None;
        if let Some(path) = &self.output {
            console.gap();
            if answer.save(path)? {
                console.say(format!("wrote {}", path.display()));
                layer = Some(path.as_path());
            } else {
                console.say("no layer was found, none is written");
            }
        }
        if let Some(path) = &self.page {
            let files = layer.map(|path| ("layer", path)).into_iter();
            let run = page::Run {
                title: "A layer of two heads, learned",
                truth: Some(&self.teacher),
                page: path,
                files: files.chain(session.json_file().map(|file| ("result", file))).collect(),
                settings: serde_json::json!({ "teacher": self.spec, "inputs": INPUTS, "learner": answer.settings() }),
            };
            page::write(&run.page(&answer), path)?;
            console.say(format!("wrote {}", path.display()));
        }
        session.publish("demo", &self.report(&answer, before.as_ref(), after.as_ref()))?;
        if answer.recovered {
            return Ok(Ending::Done);
        }
        session.insist(&answer.outcome.told(&values::flag));
        Ok(Ending::NotRecovered)
    }

    fn report<'a>(&'a self, answer: &'a Answer, before: Option<&Comparison>, after: Option<&Comparison>) -> DemoReport<'a> {
        let layer = answer.layer.as_ref().and(self.output.as_ref()).map(|path| path.display().to_string());
        DemoReport {
            teacher: &self.spec,
            inputs: INPUTS,
            learning: answer.report(layer).beside(before.map(|c| &c.distance), after.map(|c| &c.distance)),
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
    use attnlearn::data::ExampleSource;
    use attnlearn::layer::{Head, Mask};
    use attnlearn::learn::{Details, Phases};
    use attnlearn::sculpt::{self, Outcome, Phase, Record, Stage};

    /// A stage whose attention matrices are off by a known factor, heads in reverse order, perhaps one too few.
    fn stage(teacher: &AttentionLayer, factor: f64, heads: usize) -> Stage {
        let scaled = |head: &Head| {
            let theta = head.theta.to_dense();
            Head::dense(Mat::from_fn(8, 8, |i, j| factor * theta[(i, j)]), head.w.clone())
        };
        let heads = teacher.heads().iter().rev().take(heads).map(scaled).collect();
        Stage { layer: AttentionLayer::new(heads, None, Mask::None).expect("valid"), nmse: factor - 1.0 }
    }

    #[test]
    fn errors_before_and_after_the_polish_are_told_apart() {
        let spec = TeacherSpec::dense(8, 2, 6.0);
        let teacher = spec.draw_from(0).expect("valid");
        let examples = TeacherStream::new(&teacher, K, INPUTS, 0, None);
        let phases = Phases {
            settings: sculpt::Settings::default().check(&examples).expect("valid"),
            outcome: Outcome::Recovered,
            polished: true,
            separated: false,
            records: vec![Record { note: "a note".into(), rows_seen: 12_345, ..Record::new(Phase::Crude) }],
        };
        for heads in [1, 2] {
            let after = stage(&teacher, 1.0 + f64::EPSILON, heads);
            let answer = Answer {
                layer: Some(after.layer),
                nmse: Some(after.nmse),
                before_polish: Some(stage(&teacher, 1.125, heads)),
                recovered: true,
                outcome: "recovered".into(),
                unfinished: false,
                certificate: None,
                examples: 1,
                parts: None,
                shape: examples.shape(),
                seed: 0,
                seconds: 1.0,
                details: Details::Phases(Box::new(phases.clone())),
            };
            let compare = |layer: &AttentionLayer| Comparison::new(&teacher, layer, SAME_HEAD, DISTANCES).expect("one shape");
            let before = compare(&answer.before_polish.as_ref().expect("given").layer);
            let after = compare(answer.layer.as_ref().expect("given"));
            let console = Console::new(Stream::Nowhere, false);
            report::say_outcome(&console, &answer);
            errors::say_heads(&console, Some(&before), Some(&after));
            say_maps(&console, Some(&before), None);
            let plan = Plan {
                spec: spec.clone(),
                teacher: teacher.clone(),
                examples: TeacherStream::new(&teacher, K, INPUTS, 0, None),
                learning: Settings::default().check(&examples, "examples", &Checkpointing::default()).expect("valid"),
                output: Some("l.safetensors".into()),
                page: None,
            };
            let json = serde_json::to_value(plan.report(&answer, Some(&before), Some(&after))).expect("JSON");
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
