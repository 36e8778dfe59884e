//! Progress on standard error, for those who watch.

use crate::console::{Console, grouped};
use crate::interrupt;
use crate::learn_watch::SignOfLife;
use crate::report;
use attnlearn::data::Reading;
use attnlearn::features::ridge;
use attnlearn::sculpt::{Phase, Record, Watch};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A progress bar that cleans up after itself.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    colour: bool,
    /// Units that were done before: they say nothing about the time left.
    before: u64,
    /// For those who do not see it: a plain line every so often.
    sign: Option<Mutex<SignOfLife>>,
}

/// How often a bar shows that time goes by.
const TICK: Duration = Duration::from_millis(125);
/// Work of known length.
const BAR: &str = "{wide_bar:.cyan/dim} {human_pos}/{human_len} {msg}  {elapsed}, {left}";
/// A phase of unknown length.
const SPINNER: &str = "{spinner:.cyan} {msg}  {elapsed}";
/// A phase that reads a known number of examples.
const PASS: &str = "{spinner:.cyan} {msg}  {wide_bar:.cyan/dim} {human_pos}/{human_len} examples  {elapsed}, {left}";

/// The time left if the rest goes on like what has been done.
fn left(done: u64, to_go: u64, elapsed: Duration) -> String {
    if done == 0 {
        return "estimating".into();
    }
    let seconds = elapsed.as_secs_f64() * to_go as f64 / done as f64;
    format!("{:#} left", HumanDuration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

impl Bar {
    /// Over `total` units, with an estimate of the time left.
    pub fn new(total: u64, what: &'static str, colour: bool) -> Self {
        let bar = Self { bar: ProgressBar::with_draw_target(Some(total), target()), colour, before: 0, sign: None };
        bar.look(BAR);
        bar.bar.set_message(what);
        bar.bar.enable_steady_tick(TICK);
        bar
    }

    /// With so many units done already.
    #[cfg(feature = "lab")]
    pub fn resumed(mut self, before: u64) -> Self {
        self.before = before;
        self.bar.set_position(before);
        self.look(BAR);
        self
    }

    /// That nobody sees.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), colour: false, before: 0, sign: None }
    }

    /// That nobody sees, with plain lines in its stead; the length may be unknown.
    pub fn told(total: Option<u64>, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()).with_message(what);
        Self { bar, sign: Some(Mutex::new(SignOfLife::begin())), ..Self::hidden() }
    }

    /// Says how far the work is, if that is to be said in lines and one is due.
    fn sign(&self, now: Instant) -> Option<String> {
        let due = self.sign.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).is_due(now);
        due.then(|| {
            let of =
                self.bar.length().filter(|total| *total > 0).map_or_else(String::new, |total| format!(" of {}", grouped(total)));
            format!("{}: {}{of}", self.bar.message(), grouped(self.bar.position()))
        })
    }

    fn tell_sign(&self) {
        if let Some(line) = self.sign(Instant::now()) {
            crate::console::complain(&line);
        }
    }

    /// For work of unknown length.
    pub fn spinner(colour: bool) -> Self {
        let bar = Self { bar: ProgressBar::with_draw_target(None, target()), colour, before: 0, sign: None };
        bar.look(SPINNER);
        bar.bar.enable_steady_tick(TICK);
        bar
    }

    fn look(&self, template: &str) {
        let template = if self.colour { template.to_owned() } else { template.replace(":.cyan/dim", "").replace(":.cyan", "") };
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let before = self.before;
        self.bar.set_style(style.with_key("left", move |state: &ProgressState, out: &mut dyn Write| {
            let to_go = state.len().unwrap_or(0).saturating_sub(state.pos());
            // What cannot be shown is not missed.
            let _ = out.write_str(&left(state.pos().saturating_sub(before), to_go, state.elapsed()));
        }));
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
        self.tell_sign();
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
const STEPS: &str = "{spinner:.cyan} {msg}  {wide_bar:.cyan/dim} {human_pos}/{human_len}  {elapsed}, {left}";

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
        self.bar.tell_sign();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_comes_from_what_was_done() {
        let minute = Duration::from_secs(60);
        assert_eq!(left(0, 7, minute), "estimating");
        assert_eq!(left(2, 6, minute), "3m left");
        assert_eq!(left(5, 0, minute), "0s left");
        assert!(left(1, u64::MAX, Duration::MAX).ends_with(" left"));
    }

    /// Into a pipe the bar becomes a line, half a minute after the last one.
    #[test]
    fn work_that_nobody_sees_is_told() {
        let (now, late) = (Instant::now(), Instant::now() + Duration::from_secs(31));
        let bar = Bar::told(Some(12_000), "examples");
        bar.advance(3000);
        assert_eq!(bar.sign(now), None);
        assert_eq!(bar.sign(late).as_deref(), Some("examples: 3 000 of 12 000"));
        assert_eq!(bar.sign(late), None);
        assert_eq!(Bar::told(None, "sums").sign(late).as_deref(), Some("sums: 0"));
        assert_eq!(Bar::hidden().sign(late), None);
    }

    /// Templates name only what there is, whatever the colours.
    #[test]
    fn bars_can_be_shown() {
        for template in [BAR, SPINNER, PASS, STEPS] {
            for template in [template.to_owned(), template.replace(":.cyan/dim", "").replace(":.cyan", "")] {
                assert!(ProgressStyle::with_template(&template).is_ok(), "{template}");
            }
        }
    }
}
