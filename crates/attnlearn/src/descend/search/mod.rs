//! The search: starts, redrawn heads and floors for one form (`strategy`), and which forms to try (`learner`).

pub(crate) mod checkpoint;
pub(crate) mod fewer;
pub(crate) mod learner;
pub(crate) mod plan;
pub(crate) mod redundant;
pub(crate) mod strategy;
