//! Any bytes as a safetensors file of examples, as they are and with the length of the header put right: the header ends
//! with two braces, and its length need not be guessed by the fuzzer.
#![no_main]

mod read;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read::read(bytes.to_vec());
    if let Some((_, rest)) = bytes.split_first_chunk::<8>()
        && let Some(end) = rest.windows(2).rposition(|pair| pair == b"}}")
    {
        read::read([&(end as u64 + 2).to_le_bytes(), rest].concat());
    }
});
