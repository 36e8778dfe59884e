//! Practical learners. For now one: variable projection, which the six-phase learner uses for its search in the span and
//! for the final polish.

mod jacobian;
mod project;
mod sample;
#[cfg(test)]
mod testing;
mod varpro;

pub use jacobian::Parametrisation;
pub use project::{Projected, nmse, pooled_moments, project};
pub use sample::Sample;
pub use varpro::{Fit, Settings, Stop, fit};
