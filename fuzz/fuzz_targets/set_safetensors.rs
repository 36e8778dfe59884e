//! Any bytes as a safetensors file of sets, as they are and with the length of the header put right.
#![no_main]

mod read_sets;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read_sets::read(bytes);
    if let Some((_, rest)) = bytes.split_first_chunk::<8>()
        && let Some(end) = rest.windows(2).rposition(|pair| pair == b"}}")
    {
        read_sets::read(&[&(end as u64 + 2).to_le_bytes(), rest].concat());
    }
});
