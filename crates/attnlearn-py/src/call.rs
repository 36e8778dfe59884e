//! Long calls: on a thread of their own, without the GIL, while the caller's thread answers Ctrl-C and passes progress on.
//!
//! Python runs its signal handlers only on its main thread, and only when that asks. So the work goes elsewhere, and the calling thread
//! asks every [`TICK`]. An exception, from a signal or from a callback, stops the work at its next step and is raised when it has stopped.

use crate::errors::{fault, raise};
use attnlearn::Result;
use pyo3::prelude::*;
use pyo3::types::PyAny;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// How often signals are looked for and progress is passed on.
const TICK: Duration = Duration::from_millis(50);
/// Stack of the thread that works: that of a main thread.
const STACK: usize = 8 << 20;

/// What the work has to say.
#[derive(Default)]
pub struct Line {
    stop: AtomicBool,
    news: Mutex<News>,
}

#[derive(Default)]
struct News {
    /// What goes on: text, done and total, where there is a total.
    live: Option<(String, u64, u64)>,
    /// What is to be told once.
    said: Vec<String>,
}

impl Line {
    /// Whether to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Tells once.
    pub fn say(&self, text: String) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).said.push(text);
    }

    /// Says what goes on: `done` of `total`, 0 if nobody knows.
    pub fn live(&self, text: impl Into<String>, done: u64, total: u64) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).live = Some((text.into(), done, total));
    }

    /// So much more of it is done.
    pub fn advance(&self, by: u64) {
        if let Some((_, done, _)) = &mut self.news.lock().unwrap_or_else(PoisonError::into_inner).live {
            *done += by;
        }
    }

    /// So much of it is done.
    pub fn set(&self, so_far: u64, of: u64) {
        if let Some((_, done, total)) = &mut self.news.lock().unwrap_or_else(PoisonError::into_inner).live {
            (*done, *total) = (so_far, of);
        }
    }

    /// Passes on what is new: `progress("line" | "live", text, done, total)`.
    fn deliver(&self, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        let News { live, said } = {
            let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
            News { live: news.live.clone(), said: std::mem::take(&mut news.said) }
        };
        for text in said {
            progress.call1(("line", text, 0, 0))?;
        }
        if let Some((text, done, total)) = live {
            progress.call1(("live", text, done, total))?;
        }
        Ok(())
    }
}

/// Does `work`, which has to look at [`Line::stopped`] now and then.
pub fn run<R: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Line) -> Result<R> + Send,
) -> PyResult<R> {
    let line = Line::default();
    let callback = progress.map(|p| p.clone().unbind());
    let (mut failure, worked) = py.detach(|| {
        thread::scope(|scope| {
            let (done, over) = mpsc::channel::<()>();
            let line = &line;
            let worker = thread::Builder::new().name("attnlearn".into()).stack_size(STACK).spawn_scoped(scope, move || {
                let worked = catch_unwind(AssertUnwindSafe(|| work(line)));
                // The receiver is there until this thread has ended.
                let _ = done.send(());
                worked
            });
            let worker = match worker {
                Ok(worker) => worker,
                Err(e) => return (None, Ok(Err(attnlearn::Error::Io { place: "thread".into(), source: e }))),
            };
            let mut failure: Option<PyErr> = None;
            while let Err(mpsc::RecvTimeoutError::Timeout) = over.recv_timeout(TICK) {
                if failure.is_some() {
                    continue;
                }
                failure = Python::attach(|py| {
                    py.check_signals()?;
                    line.deliver(callback.as_ref().map(|p| p.bind(py)))
                })
                .err();
                if failure.is_some() {
                    line.stop.store(true, Ordering::Relaxed);
                }
            }
            (failure, worker.join().unwrap_or_else(Err))
        })
    });
    if failure.is_none() {
        failure = line.deliver(progress).err();
    }
    match (failure, worked) {
        (Some(failure), _) => Err(failure),
        (None, Ok(result)) => result.map_err(raise),
        (None, Err(panic)) => Err(fault(panic.as_ref())),
    }
}

/// Does short work without the GIL, on this thread.
pub fn quick<R: Send>(py: Python<'_>, work: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(result) => result.map_err(raise),
        Err(panic) => Err(fault(panic.as_ref())),
    }
}
