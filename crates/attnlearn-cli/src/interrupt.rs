//! Ctrl-C: the first asks the run to stop at its next step, cleanly; the second ends the program at once. Neither leaves a partial file.

use attnlearn::data::remove_partial_files;
use attnlearn::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a program ended by Ctrl-C returns.
pub const EXIT_CODE: u8 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C sets a flag that the run [looks at](requested).
pub fn listen() -> Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            end_at_once();
        }
    })
    .or_else(already)
}

/// From now on Ctrl-C ends the program at once: for commands that write nothing before they are done.
pub fn end_when_asked() -> Result<()> {
    ctrlc::set_handler(end_at_once).or_else(already)
}

fn end_at_once() {
    remove_partial_files(|| {
        crate::console::complain("interrupted");
        std::process::exit(EXIT_CODE.into());
    });
}

fn already(error: ctrlc::Error) -> Result<()> {
    match error {
        ctrlc::Error::MultipleHandlers => Ok(()),
        ctrlc::Error::System(source) => Err(Error::Io { place: "signal handler".into(), source }),
        other => Err(Error::Io { place: "signal handler".into(), source: std::io::Error::other(other.to_string()) }),
    }
}

/// Whether Ctrl-C has been pressed.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails if Ctrl-C has been pressed.
pub fn check() -> Result<()> {
    if requested() { Err(Error::Interrupted) } else { Ok(()) }
}
