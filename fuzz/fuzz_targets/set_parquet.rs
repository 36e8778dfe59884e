//! Any bytes as a Parquet file of sets. On its own thread the Parquet crate may panic, which is an error of the file; nothing else may.
#![no_main]

mod read_sets;

use attnlearn::features::{PARQUET_THREAD, Targets, open_sets};
use attnlearn::inspect::inspect;
use libfuzzer_sys::fuzz_target;
use std::sync::Once;

/// The fuzzer ends at every panic: but for those that are caught.
fn expect_panics_of_parquet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let end = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |about| {
            if std::thread::current().name() != Some(PARQUET_THREAD) {
                end(about);
            }
        }));
    });
}

fuzz_target!(|bytes: &[u8]| {
    expect_panics_of_parquet();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("sets.parquet");
    std::fs::write(&path, [b"PAR1", bytes.get(4..).unwrap_or_default()].concat()).expect("room");
    let _ = inspect(&path);
    for targets in [Targets::Required, Targets::Ignored] {
        if let Ok(sets) = open_sets(&path, targets) {
            read_sets::check(sets.as_ref());
        }
    }
});
