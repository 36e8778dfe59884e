//! Any bytes as a layer file. A layer that is read must be written and read back the same.
#![no_main]

use attnlearn::layer::AttentionLayer;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(layer) = AttentionLayer::from_bytes(bytes, "fuzz") {
        let written = layer.to_bytes(&BTreeMap::new()).expect("no notes, so no reserved key");
        assert_eq!(AttentionLayer::from_bytes(&written, "fuzz").expect("just written"), layer);
    }
});
