//! Memory that fits really take, counted by the allocator, against what they are allowed.
#![allow(clippy::unwrap_used)] // a test that cannot go on should stop
#![allow(unsafe_code)] // an allocator is unsafe to implement

use attnlearn::features::ridge::{Options, Ridge, Solver, Unwatched, fit};
use attnlearn::features::{MapSpec, Model, SetInputs, SetStream, Sets, Target, TargetSpec};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: hands everything on to the system's allocator and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Threads, small vectors and the packed tiles of products: what no plan counts.
const SLACK: usize = 2 << 20;

#[test]
fn conjugate_gradients_keep_to_the_memory_allowed() {
    let target = Target::new(&TargetSpec::Average { p: 3 }, SetInputs::new(3, 4), 5).unwrap();
    let mut ran = 0;
    for (n, heads) in [(4000, 200), (800, 400)] {
        let sets = Sets::read(&SetStream::new(target.clone(), 3, n).with_noise(0.1).unwrap()).unwrap();
        let map = MapSpec::new(Model::Rfa, 4, 3, heads, 0).build::<f32>().unwrap();
        for (ridge, keep, megabytes) in [
            (Ridge::Given(1e-7), true, 64),
            (Ridge::Given(1e-7), true, 32),
            (Ridge::Given(1e-7), false, 40),
            (Ridge::Given(1e-7), false, 24),
            (Ridge::Auto, true, 64),
            (Ridge::Auto, false, 48),
        ] {
            let options = Options { solver: Solver::Cg, ridge, keep, memory: megabytes << 20, path: 8, ..Options::default() };
            let before = LIVE.load(Relaxed);
            PEAK.store(before, Relaxed);
            let outcome = fit::<f32>(map.as_ref(), &sets, &options, &Unwatched);
            let peak = PEAK.load(Relaxed) - before;
            match outcome {
                Ok(_) => ran += 1,
                Err(error) => assert!(error.to_string().contains("memory"), "{error}"),
            }
            let allowed = (megabytes << 20) as usize;
            assert!(peak <= allowed + SLACK, "n={n} {ridge:?} keep={keep}: {} of {megabytes} MiB", peak >> 20);
            println!("n={n} {ridge:?} keep={keep}: {} of {megabytes} MiB", peak >> 20);
        }
    }
    assert!(ran >= 8, "{ran}");
}
