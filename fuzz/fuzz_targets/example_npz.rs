//! Any bytes as an npz file of examples, and as the `x.npy` and `y.npy` in a sound archive.
#![no_main]

mod read;

use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

fuzz_target!(|bytes: &[u8]| {
    read::read(bytes.to_vec());
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for name in ["x.npy", "y.npy"] {
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        archive.start_file(name, options).expect("a new member");
        archive.write_all(bytes).expect("memory suffices");
    }
    read::read(archive.finish().expect("memory suffices").into_inner());
});
