//! Any bytes as a Parquet file of sets.
#![no_main]

mod read_sets;

use attnlearn::data::{Targets, inspect, open_sets};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
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
