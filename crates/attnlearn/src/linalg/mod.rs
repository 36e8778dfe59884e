//! The thin layer between the mathematics and the linear-algebra crate, and the vector-lane arithmetic of the hot loops.

mod dense;
pub mod lanes;

pub use dense::*;
