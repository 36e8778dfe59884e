//! When memory runs out although it was asked for: one line and exit code 2, not an abort.
//!
//! The library asks before it takes what follows from input ([`attnlearn::memory`]). What an estimate missed, or what another program took
//! in the meantime, ends here: within the allocator, on whatever thread, whatever that holds. So the end waits for nobody, hands no work to
//! other threads, and needs no memory itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The system's allocator, and an end with dignity.
pub struct LastResort;

/// Whether a thread ends the program.
static ENDED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether it is this one. Needs no allocation and no destructor.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Ends the program; returns only if this thread already tries to, and then the usual abort follows. Out of an allocator nothing may unwind:
/// out of a function of this kind nothing does, a panic aborts.
#[cold]
extern "C" fn end(size: usize) {
    if ENDING.replace(true) {
        return;
    }
    while ENDED.swap(true, Ordering::Relaxed) {
        // Another thread was first. Without memory there is nothing to go on with, and no abort is to come before its line.
        std::thread::sleep(Duration::from_secs(3600));
    }
    attnlearn::files::try_remove_partial_files(|| {
        let size = attnlearn::memory::Size(size as u128);
        // If standard error is gone there is nowhere left to say so.
        let _ = writeln!(std::io::stderr(), "attnlearn: memory: {size} more are needed than there are; give less, or allow more");
        std::process::exit(2);
    });
}

// SAFETY: every call is passed on to the system's allocator, with what it was given; what that returns is returned.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for LastResort {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the promises.
        let place = unsafe { System.alloc(layout) };
        if place.is_null() {
            end(layout.size());
        }
        place
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let place = unsafe { System.alloc_zeroed(layout) };
        if place.is_null() {
            end(layout.size());
        }
        place
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { System.realloc(place, layout, size) };
        if moved.is_null() {
            end(size);
        }
        moved
    }
}
