//! When memory runs out although it was asked for: one line and exit code 2, not an abort.
//!
//! The library asks before it takes what follows from input ([`attnlearn::memory`]). What an estimate missed, or what another program took
//! in the meantime, ends here. A little is kept in reserve, so that there is room to remove partial files and to say what happened; should
//! that fail too, the usual abort follows.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The system's allocator, and an end with dignity.
pub struct LastResort;

/// What is kept in reserve.
const RESERVE: Layout = match Layout::from_size_align(1 << 20, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("a size and a power of two"),
};
static KEPT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// Whether this thread is already saying so. Needs no allocation and no destructor.
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

impl LastResort {
    /// Sets the reserve aside.
    #[allow(unsafe_code)]
    pub fn prepare() {
        // SAFETY: the size is not zero.
        KEPT.store(unsafe { System.alloc(RESERVE) }, Ordering::Relaxed);
    }

    /// Ends the program; returns only if this thread already tries to.
    #[cold]
    #[allow(unsafe_code)]
    fn end(layout: Layout) {
        if ENDING.replace(true) {
            return;
        }
        let kept = KEPT.swap(std::ptr::null_mut(), Ordering::Relaxed);
        if !kept.is_null() {
            // SAFETY: `prepare` allocated it with this layout, and nobody else has it any more.
            unsafe { System.dealloc(kept, RESERVE) };
        }
        attnlearn::data::remove_partial_files(|| {
            let size = attnlearn::memory::Size(layout.size() as u128);
            let there = attnlearn::memory::available();
            let there = format!("{} are {}", attnlearn::memory::Size(there.bytes.into()), there.limit);
            crate::console::complain(&format!("memory: {size} more are needed and {there}; give less, or allow more"));
            std::process::exit(2);
        });
    }
}

// SAFETY: every call is passed on to the system's allocator, with what it was given; what that returns is returned.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for LastResort {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the promises.
        let place = unsafe { System.alloc(layout) };
        if place.is_null() {
            Self::end(layout);
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
            Self::end(layout);
        }
        place
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { System.realloc(place, layout, size) };
        if moved.is_null() {
            Self::end(Layout::from_size_align(size, layout.align()).unwrap_or(layout));
        }
        moved
    }
}
