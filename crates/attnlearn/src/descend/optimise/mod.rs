//! The optimisers: Adam in single precision, Gauss–Newton by variable projection in double; Levenberg–Marquardt, and solvers for its steps.

pub(crate) mod adam;
pub(crate) mod conjugate;
pub(crate) mod dense;
pub(crate) mod levenberg;
pub(crate) mod newton;
pub(crate) mod products;
