//! The optimisers: Adam in single precision, Gauss–Newton by variable projection in double.

pub(crate) mod adam;
pub(crate) mod conjugate;
pub(crate) mod newton;
