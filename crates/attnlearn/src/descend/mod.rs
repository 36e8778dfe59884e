//! Practical learners.
//!
//! `varpro` is variable projection on small samples with dense normal equations: what the six-phase learner uses for its search in the span and
//! for the final polish. `student` and `pass` are the layer as descent sees it, of any rank, with biases and mask, with its derivative and
//! adjoint; `batch` shares them out over threads, `adam` and `newton` descend with them, `evidence` says by what where examples are few, and `sharp` sees
//! to heads that hide their logits.

mod adam;
mod attend;
mod balance;
mod batch;
mod checkpoint;
mod conjugate;
mod eliminate;
mod evidence;
mod fewer;
mod frame;
mod free;
mod idle;
mod jacobian;
mod learner;
mod linear;
mod logits;
mod metric;
mod moments;
mod newton;
mod normal;
mod pass;
mod plan;
mod project;
mod readout;
mod regression;
mod sample;
mod sharp;
mod strategy;
mod student;
#[cfg(test)]
mod testing;
mod varpro;

pub use adam::{Adam, AdamSettings, Scaling};
pub use batch::Batch;
pub use eliminate::Elimination;
pub use evidence::Belief;
pub use frame::Frame;
pub use jacobian::Parametrisation;
pub use learner::{Choice, HeadCount, Learner, Outcome, Prepared, Rank, Try, Wanted};
pub use linear::Linear;
pub use newton::{Newton, NewtonSettings};
pub use pass::Pass;
pub use plan::StrategySettings;
pub use project::{Projected, nmse, pooled_moments, project};
pub use sample::Sample;
pub use strategy::{Chain, End, Found, Run, Stage, State};
pub use student::{Form, PARTS, Part, Student};
pub use varpro::{Fit, Settings, Stop, fit};
