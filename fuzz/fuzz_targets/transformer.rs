//! Any bytes as a model's folder: the configuration up to the first zero byte, then the safetensors file with the length of its header
//! put right, and once more the configuration as an index. A layer that is taken out computes what its tensors do.
#![no_main]

use attnlearn::transformer::{ModelFile, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let cut = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (config, rest) = (&bytes[..cut], bytes.get(cut + 1..).unwrap_or_default());
    let end = rest.windows(2).rposition(|pair| pair == b"}}").map_or(0, |end| end + 2);
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("room");
    write("config.json", config);
    write("model.safetensors.index.json", config);
    write("model.safetensors", &[&(end as u64).to_le_bytes(), rest].concat());
    let _ = ModelFile::open(&folder.path().join("model.safetensors.index.json"));
    let Ok(model) = ModelFile::open(folder.path()) else { return };
    for found in model.layers() {
        let request = Request { layer: found.layer, prefix: Some(found.prefix), ..Request::default() };
        let Ok((projections, _)) = model.attention(&request) else { continue };
        if let Ok(layer) = projections.fold() {
            let gap = projections.gap(&layer);
            assert!(!gap.is_finite() || gap < 1e-3, "{gap}");
        }
    }
});
