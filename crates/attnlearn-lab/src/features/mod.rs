//! What experiments on frozen heads share: tasks whose targets are learnt from the same sets, learners by their names, and errors compared in pairs.

mod errors;
mod learners;
mod task;

pub use errors::{Errors, Kind, NOTHING, Ratio, Verdict, capital, compare, joined, points, title};
pub use learners::Named;
pub use task::{Column, Drawn, Fitted, Scored, Task, best_ridges, column_texts, errors_of, fit, parse_targets, predict};
