//! Any bytes as the state of a search: refused, or continued for a few steps, but never a panic. Bytes that begin with a zero byte are changes,
//! (place, value) by (place, value), to a state that is sound.
#![no_main]

use attnlearn::data::Shape;
use attnlearn::descend::{Choice, HeadCount, Learner, Prepared, Wanted};
use attnlearn::engine::Batch;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

fn wanted() -> Wanted {
    Wanted { heads: HeadCount::Given(2), biases: Choice::Yes, ..Wanted::default() }
}

static EXAMPLES: LazyLock<(Prepared, Vec<u8>)> = LazyLock::new(|| {
    let value = |i: usize| ((i * 2_654_435_761) % 1000) as f64 / 500.0 - 1.0;
    let batch = Batch {
        shape: Shape { k: 2, d: 2, d_out: 1 },
        x: (0..160).map(value).collect(),
        y: (160..240).map(value).collect(),
    };
    let (learn, choose) = batch.split_at(35);
    let prepared = Prepared::new(learn, choose).expect("sound examples");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("search");
    let mut learner = Learner::new(&prepared, wanted()).expect("a sound wish");
    learner.advance(&|| false).expect("a step");
    learner.save(&path).expect("room");
    let bytes = std::fs::read(&path).expect("a file");
    let state = bytes[24..bytes.len() - 8].to_vec();
    (prepared, state)
});

fuzz_target!(|bytes: &[u8]| {
    let (prepared, sound) = &*EXAMPLES;
    let state = match bytes {
        [0, changes @ ..] => {
            let mut state = sound.clone();
            for change in changes.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % state.len();
                state[at] = change[2];
            }
            state
        }
        other => other.to_vec(),
    };
    if let Ok(mut learner) = Learner::from_state(prepared, wanted(), &state, "fuzz") {
        for _ in 0..3 {
            if learner.advance(&|| false).unwrap_or(true) {
                break;
            }
        }
    }
});
