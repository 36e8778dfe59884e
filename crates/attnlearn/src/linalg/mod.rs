//! The thin layer between the mathematics and the linear-algebra crate, and the vector-lane arithmetic of the hot loops.

mod aligned;
mod assignment;
pub mod band;
pub mod cholesky;
mod dense;
pub mod lanes;
mod moments;
pub mod product;
pub mod symmetric;

pub(crate) use aligned::Aligned;
pub(crate) use assignment::assign;
pub use dense::{
    Mat, MatRef, frobenius, from_row_major, full_rank_least_squares, inner, inverse, least_squares, row_major, solve_spd, spread,
    staggered, symmetric_eigen,
};
pub use moments::Moments;
