//! Ctrl-C, and what else asks a program to end (SIGTERM, SIGHUP, SIGQUIT, SIGXCPU).
//!
//! A run that [listens](listen) is asked to stop at its next step, cleanly, and ended by the second Ctrl-C; one that has nothing to keep is ended
//! by the first. Neither leaves a partial file. What was to be ignored when the program started, as under `nohup`, stays ignored.

use attnlearn::files::remove_partial_files;
use attnlearn::{Error, Result};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a program ended by Ctrl-C returns.
pub const EXIT_CODE: u8 = 130;

static LISTENING: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C ends the program at once, without a partial file.
pub fn begin() -> Result<()> {
    crate::signals::watch(interrupted).map_err(|source| Error::Io { place: "signal handler".into(), source })
}

/// From now on Ctrl-C sets a flag that the run [looks at](requested): for commands that keep what they have come to.
pub fn listen() {
    LISTENING.store(true, Ordering::Relaxed);
}

fn interrupted() {
    if REQUESTED.swap(true, Ordering::Relaxed) || !LISTENING.load(Ordering::Relaxed) {
        end("interrupted", EXIT_CODE);
    }
}

/// Ends the program with a line, wherever it is, without a partial file.
pub fn end(why: &str, code: u8) {
    remove_partial_files(|| {
        let mut out = std::io::stderr();
        if out.is_terminal() {
            // There may be a progress bar; if not, nothing is lost.
            let _ = out.write_all(b"\r\x1b[2K");
        }
        crate::console::complain(why);
        std::process::exit(code.into());
    });
}

/// Whether Ctrl-C has been pressed.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
