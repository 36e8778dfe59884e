//! Any bytes as a saved Gram matrix. One that is read must be written and read back the same.
#![no_main]

use attnlearn::features::ridge::Gram;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(gram) = Gram::read(&mut &bytes[..], "fuzz") {
        let mut written = Vec::new();
        gram.write(&mut written).expect("memory suffices");
        assert!(Gram::read(&mut written.as_slice(), "fuzz").expect("just written") == gram);
    }
});
