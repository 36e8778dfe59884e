//! What both example targets do with a file.

use attnlearn::data::{Block, ExampleFile, ExampleSource, InputFile, Shape};
use attnlearn::inspect::FileSummary;

/// Shows a file to every reader of examples.
pub fn read(bytes: Vec<u8>) {
    let _ = FileSummary::of_bytes(&bytes, "fuzz");
    if let Ok(file) = InputFile::from_bytes(bytes.clone(), "fuzz") {
        let _ = file.fill(0, &mut Block::<f64>::new(Shape { k: file.k(), d: file.d(), d_out: 1 }));
    }
    if let Ok(file) = ExampleFile::from_bytes(bytes, "fuzz") {
        let blocks = file.len().expect("files end").div_ceil(512);
        let mut block = Block::<f32>::new(file.shape());
        for index in [0, blocks - 1, blocks, u64::MAX] {
            let ok = file.fill_f32(index, &mut block).is_ok();
            assert!(!ok || block.is_empty() == (index >= blocks));
        }
    }
}
