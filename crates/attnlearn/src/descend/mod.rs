//! Practical learners. For now one: variable projection, which the six-phase learner uses for its search in the span and
//! for the final polish.

mod sample;
mod varpro;

pub use sample::Sample;
pub use varpro::{Fit, Parametrisation, Projected, Settings, Stop, fit, nmse, pooled_moments, project};
