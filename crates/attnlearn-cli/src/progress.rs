//! Progress on standard error, for those who watch.

use crate::console::Console;
use crate::interrupt;
use crate::report;
use attnlearn::sculpt::{Phase, Record, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// A progress bar that cleans up after itself.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Over `total` units, with an estimate of the time left.
    pub fn new(total: u64, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8));
        bar.set_style(style("{wide_bar:.cyan/dim} {human_pos}/{human_len} {msg}  {eta} left"));
        bar.set_message(what);
        Self(bar)
    }

    /// That nobody sees.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// A spinner for work of unknown length.
    fn spinner() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        bar.enable_steady_tick(Duration::from_millis(125));
        Self(bar)
    }

    /// Another `by` units are done.
    pub fn advance(&self, by: u64) {
        self.0.inc(by);
    }

    /// Prints while the bar is out of the way.
    pub fn aside(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Shows the phases of the learner as they go, and stops it at Ctrl-C.
pub struct PhaseWatch<'a> {
    console: &'a Console,
    bar: Bar,
}

impl<'a> PhaseWatch<'a> {
    /// Prints a line a phase, with a bar below them if there is somebody to watch it.
    pub fn new(console: &'a Console, shows_progress: bool) -> Self {
        Self { console, bar: if shows_progress { Bar::spinner() } else { Bar::hidden() } }
    }
}

impl Watch for PhaseWatch<'_> {
    fn begin(&self, phase: Phase) {
        let bar = &self.bar.0;
        bar.set_style(style("{spinner:.cyan} {msg}  {elapsed}"));
        bar.unset_length();
        bar.reset();
        bar.set_message(format!("{}  {}", phase.label(), phase.title()));
    }

    fn advance(&self, done: u64, total: u64) {
        let bar = &self.bar.0;
        if total > 0 && bar.length() != Some(total) {
            bar.set_style(style("{spinner:.cyan} {msg}  {wide_bar:.cyan/dim} {human_pos}/{human_len} examples  {eta} left"));
            bar.set_length(total);
        }
        bar.set_position(done);
    }

    fn end(&self, record: &Record) {
        self.bar.aside(|| self.console.say(report::phase_line(record)));
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}
