//! Any bytes as a fitted model. A model that is read must be written and read back the same, and predict for small sizes.
#![no_main]

use attnlearn::features::{FittedModel, Predictor, SetBlock};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = FittedModel::from_bytes(bytes, "fuzz") else { return };
    let written = model.to_bytes(&BTreeMap::new(), false).expect("what was read can be written");
    let again = FittedModel::from_bytes(&written, "fuzz").expect("just written");
    assert_eq!(again.to_bytes(&BTreeMap::new(), false).expect("as before"), written);
    let keys = match &model.predictor {
        Predictor::Frozen { map, .. } => map.keys,
        Predictor::Kernel { sets, .. } => sets.shape.keys,
    };
    if model.shape.d < 32 && keys < 32 {
        let mut sets = SetBlock::new(model.shape);
        let y = vec![0.0; model.shape.targets];
        sets.push(&vec![0.5; 2 * model.shape.d], &y, 1.0);
        let _ = model.prepare().and_then(|prediction| prediction.predict(&sets));
    }
});
