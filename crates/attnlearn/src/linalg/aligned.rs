//! Buffers that begin at a cache line: a vector that crosses two lines takes twice as long to load.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest vector.
const LINE: usize = 64;

/// A slice that begins at a cache line.
#[derive(Debug)]
pub(crate) struct Aligned<T> {
    data: Vec<T>,
    skip: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self::place(vec![T::default(); len + Self::spare()], len)
    }

    /// `len` zeros, if there is the memory for them.
    pub fn try_zeros(len: usize) -> Result<Self, TryReserveError> {
        let mut data = Vec::new();
        data.try_reserve_exact(len.saturating_add(Self::spare()))?;
        data.resize(len + Self::spare(), T::default());
        Ok(Self::place(data, len))
    }

    /// Gives the slice this length; what it holds is not kept if the length changes.
    pub fn fit(&mut self, len: usize) {
        if self.len != len {
            *self = Self::zeros(len);
        }
    }

    /// Makes the slice at least this long; what it holds is kept, the rest are zeros.
    pub fn grow(&mut self, len: usize) {
        if self.len < len {
            let mut larger = Self::zeros(len);
            larger[..self.len].copy_from_slice(self);
            *self = larger;
        }
    }

    const fn spare() -> usize {
        LINE / size_of::<T>()
    }

    fn place(data: Vec<T>, len: usize) -> Self {
        let skip = data.as_ptr().align_offset(LINE).min(Self::spare());
        Self { data, skip, len }
    }
}

impl<T: Copy + Default> Default for Aligned<T> {
    fn default() -> Self {
        Self::zeros(0)
    }
}

// Not derived: a copy of the buffer would begin elsewhere in its cache line.
impl<T: Copy + Default> Clone for Aligned<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.data[self.skip..self.skip + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data[self.skip..self.skip + self.len]
    }
}
