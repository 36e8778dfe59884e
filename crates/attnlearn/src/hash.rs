//! Checksums of what is kept in files, and fingerprints of what it belongs to. They find accidents, not attacks.

use std::io::{Read, Write};

/// FNV-1a: over bytes, or for the many numbers of a file over words, each of which is mixed once more.
#[derive(Clone, Copy)]
pub(crate) struct Hash(u64);

impl Hash {
    const PRIME: u64 = 0x0100_0000_01b3;

    /// Of nothing.
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }

    /// Adds a word.
    pub fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(Self::PRIME);
        self.0 ^= self.0 >> 32;
    }

    /// What has come out.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Passes bytes on and hashes them.
pub(crate) struct Summed<S> {
    pub inner: S,
    pub sum: Hash,
}

impl<S: Write> Write for Summed<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.sum.bytes(&bytes[..n]);
        Ok(n)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl<S: Read> Read for Summed<S> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(bytes)?;
        self.sum.bytes(&bytes[..n]);
        Ok(n)
    }
}
