//! Any bytes as an npz file of sets; and cut in three, as its `x.npy`, `y.npy` and `length.npy`.
#![no_main]

mod read_sets;

use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;

fuzz_target!(|bytes: &[u8]| {
    read_sets::read(bytes);
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let third = bytes.len() / 3;
    let parts = [("x.npy", &bytes[..third]), ("y.npy", &bytes[third..2 * third]), ("length.npy", &bytes[2 * third..])];
    for (name, part) in parts {
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        archive.start_file(name, options).expect("a new member");
        archive.write_all(part).expect("memory suffices");
    }
    read_sets::read(&archive.finish().expect("memory suffices").into_inner());
});
