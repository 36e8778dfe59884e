//! The search: starts, redrawn heads and floors for one form (`strategy`: where it stands in `state`, what it is for in `task`, its steps in `chain` and
//! `round`), and which forms to try (`learner`).

pub(crate) mod chain;
pub(crate) mod checkpoint;
pub(crate) mod fewer;
pub(crate) mod learner;
pub(crate) mod plan;
pub(crate) mod redundant;
pub(crate) mod round;
pub(crate) mod state;
pub(crate) mod strategy;
pub(crate) mod task;
