//! Variable projection on small samples with dense normal equations: what the six-phase learner uses for its search in the span and for the final polish.

pub(crate) mod jacobian;
pub(crate) mod project;
pub(crate) mod sample;
pub(crate) mod varpro;
