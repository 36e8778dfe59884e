//! What experiments on recovery share: examples of a teacher, learners that stop after so much work, and a judge.

mod attempt;
mod examples;
mod judge;
mod learners;
mod teachers;

pub use attempt::{Answered, Attempt, Criterion, Learner, Rate, Stage, Task};
pub use examples::{Inputs, add_noise, counting_bound, draw_examples, part};
pub use judge::{Judged, SAME_HEAD, judge, statistical_limit, unexplained};
pub use learners::{Effort, Found, agreement, descend, descend_starts, sculpt};
pub use teachers::nondegenerate;
