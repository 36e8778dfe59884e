//! What experiments on recovery share: examples of a teacher, learners that stop after so much work, and a judge.

mod examples;
mod judge;
mod learners;

pub use examples::{Inputs, add_noise, counting_bound, draw_examples};
pub use judge::{Judged, SAME_HEAD, judge, statistical_limit};
pub use learners::{Answer, Effort, descend, sculpt};
