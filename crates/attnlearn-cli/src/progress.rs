//! Progress on standard error, for those who watch.

use crate::console::Console;
use crate::interrupt;
use crate::report;
use attnlearn::data::Reading;
use attnlearn::features::ridge;
use attnlearn::sculpt::{Phase, Record, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A progress bar that cleans up after itself.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    colour: bool,
}

/// Work of known length.
const BAR: &str = "{wide_bar:.cyan/dim} {human_pos}/{human_len} {msg}  {eta} left";
/// A phase of unknown length.
const SPINNER: &str = "{spinner:.cyan} {msg}  {elapsed}";
/// A phase that reads a known number of examples.
const PASS: &str = "{spinner:.cyan} {msg}  {wide_bar:.cyan/dim} {human_pos}/{human_len} examples  {eta} left";

impl Bar {
    /// Over `total` units, with an estimate of the time left.
    pub fn new(total: u64, what: &'static str, colour: bool) -> Self {
        let bar = Self { bar: ProgressBar::with_draw_target(Some(total), target()), colour };
        bar.look(BAR);
        bar.bar.set_message(what);
        bar
    }

    /// That nobody sees.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), colour: false }
    }

    /// For work of unknown length.
    pub fn spinner(colour: bool) -> Self {
        let bar = Self { bar: ProgressBar::with_draw_target(None, target()), colour };
        bar.look(SPINNER);
        bar.bar.enable_steady_tick(Duration::from_millis(125));
        bar
    }

    fn look(&self, template: &str) {
        let template = if self.colour { template.to_owned() } else { template.replace(":.cyan/dim", "").replace(":.cyan", "") };
        self.bar.set_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    }

    /// Says what goes on.
    pub fn tell(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Prints without getting in the way of the bar.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Another `by` units are done.
    pub fn advance(&self, by: u64) {
        self.bar.inc(by);
    }
}

impl Reading for Bar {
    fn read(&self, examples: u64) {
        self.advance(examples);
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn target() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz(8)
}

/// Shows the phases of the learner as they go, and stops it at Ctrl-C.
pub struct PhaseWatch<'a> {
    console: &'a Console,
    bar: Bar,
}

impl<'a> PhaseWatch<'a> {
    /// Prints a line a phase, above the bar.
    pub fn new(console: &'a Console, bar: Bar) -> Self {
        Self { console, bar }
    }
}

impl Watch for PhaseWatch<'_> {
    fn begin(&self, phase: Phase) {
        self.bar.look(SPINNER);
        self.bar.bar.unset_length();
        self.bar.bar.reset();
        self.bar.bar.set_message(format!("{}  {}", phase.label(), phase.title()));
    }

    fn advance(&self, done: u64, total: u64) {
        if total > 0 && self.bar.bar.length() != Some(total) {
            self.bar.look(PASS);
            self.bar.bar.set_length(total);
        }
        self.bar.bar.set_position(done);
    }

    fn end(&self, record: &Record) {
        self.bar.bar.suspend(|| self.console.say(report::phase_line(record)));
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}

/// Shows the stages of a fit as they go, and stops it at Ctrl-C.
pub struct FitWatch {
    bar: Bar,
}

/// A stage of a known number of steps.
const STEPS: &str = "{spinner:.cyan} {msg}  {wide_bar:.cyan/dim} {human_pos}/{human_len}  {eta} left";

impl FitWatch {
    /// Shows them on this bar.
    pub fn new(bar: Bar) -> Self {
        Self { bar }
    }
}

impl ridge::Watch for FitWatch {
    fn begin(&self, stage: ridge::Stage) {
        self.bar.look(SPINNER);
        self.bar.bar.unset_length();
        self.bar.bar.reset();
        self.bar.bar.set_message(stage.title());
    }

    fn advance(&self, done: u64, total: u64) {
        if total > 0 && self.bar.bar.length() != Some(total) {
            self.bar.look(STEPS);
            self.bar.bar.set_length(total);
        }
        self.bar.bar.set_position(done);
    }

    fn iteration(&self, iteration: usize, error: f64, remaining: f64) {
        let error = if error.is_finite() { format!(", error {error:.1e}") } else { String::new() };
        let left = if remaining.is_finite() { format!(", about {remaining:.0} to go") } else { String::new() };
        self.bar.bar.set_message(format!("iteration {iteration}{error}{left}"));
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}
