//! Checksums of what is kept in files, fingerprints of what it belongs to, and keys by which examples are drawn. They find accidents, not attacks.

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

/// A key of numbers in their order that looks drawn at random: every one goes through the finaliser of SplitMix64, which is one to one. So numbers that
/// differ in one place never have the same key, others with probability 2⁻⁶⁴, if nobody has chosen them to.
#[derive(Clone, Copy)]
pub(crate) struct Key(u64);

impl Key {
    /// Of nothing. Keys of different seeds have nothing to do with one another.
    pub fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    /// With more numbers behind. −0 is 0.
    pub fn with(self, numbers: &[f64]) -> Self {
        Self(numbers.iter().fold(self.0, |key, v| mixed(key ^ (v + 0.0).to_bits())))
    }

    /// With more of them behind, `each` at a time, in whatever order those stand.
    pub fn with_unordered(self, numbers: &[f64], each: usize) -> Self {
        let mut keys: Vec<u64> = numbers.chunks(each).map(|numbers| self.with(numbers).0).collect();
        keys.sort_unstable();
        Self(keys.into_iter().fold(self.0, |key, other| mixed(key ^ other)))
    }

    /// What has come out.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// SplitMix64: a step of its generator and the finaliser.
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// All 2¹⁶ sign patterns have keys of their own, half of whose bits are set, each in half of them; and the order of numbers matters.
    #[test]
    fn keys_look_drawn_at_random() {
        for seed in [0, 1, u64::MAX] {
            let signs = |i: u32| (0..16).map(|bit| if i >> bit & 1 == 1 { 1.0 } else { -1.0 }).collect::<Vec<f64>>();
            let keys: Vec<u64> = (0..1 << 16).map(|i| Key::new(seed).with(&signs(i)).value()).collect();
            assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 1 << 16);
            for bit in 0..64 {
                let set = keys.iter().filter(|key| *key >> bit & 1 == 1).count() as f64;
                // Five standard deviations of 2¹⁶ tosses.
                assert!((set - 32768.0).abs() < 5.0 * 128.0, "seed {seed}, bit {bit}: {set}");
            }
            assert_ne!(Key::new(seed).with(&[1.0, 2.0]).value(), Key::new(seed).with(&[2.0, 1.0]).value());
            assert_ne!(Key::new(seed).with(&[1.0]).value(), Key::new(seed ^ 2).with(&[1.0]).value());
        }
    }

    #[test]
    fn tokens_may_stand_in_any_order_and_numbers_of_one_may_not() {
        let of = |numbers: &[f64]| Key::new(5).with_unordered(numbers, 2).value();
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), of(&[5.0, 6.0, 1.0, 2.0, 3.0, 4.0]));
        let others = [[2.0, 1.0, 3.0, 4.0], [1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 3.0, 5.0], [1.0, 4.0, 3.0, 2.0]];
        assert_eq!(others.map(|x| of(&x)).iter().chain([&of(&[1.0, 2.0, 3.0, 4.0])]).collect::<HashSet<_>>().len(), 5);
        assert_ne!(of(&[1.0, 2.0]), of(&[1.0, 2.0, 1.0, 2.0]));
        assert_ne!(of(&[1.0, 2.0]), Key::new(6).with_unordered(&[1.0, 2.0], 2).value());
    }

    #[test]
    fn both_zeros_are_one_number() {
        assert_eq!(Key::new(3).with(&[0.0, -0.0]).value(), Key::new(3).with(&[-0.0, 0.0]).value());
        assert_eq!(Key::new(3).with(&[1.0]).with(&[2.0]).value(), Key::new(3).with(&[1.0, 2.0]).value());
    }
}
