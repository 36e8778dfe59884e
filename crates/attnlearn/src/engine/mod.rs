//! The learner's arithmetic: a student, its forward pass, derivative and adjoint, and what is summed over many sequences on all threads.
//!
//! `student` is the layer as descent sees it, all numbers in one vector; `pass` goes through a few sequences, `attend` through a sequence and a
//! head; `batch` shares sequences out over threads: error, gradient, refit of the outputs (`eliminate`). `evidence` is the gradient where examples
//! are few. `linearised` is a student at a point: products with `JᵀJ` and `JᵀP⊥J`, written out in `normal`, approximated by blocks in `metric`.

pub(crate) mod attend;
pub(crate) mod batch;
pub(crate) mod eliminate;
pub(crate) mod evidence;
pub(crate) mod linearised;
pub(crate) mod metric;
pub(crate) mod moments;
pub(crate) mod normal;
pub(crate) mod pass;
pub(crate) mod student;
#[cfg(test)]
pub(crate) mod testing;

pub use batch::Batch;
pub use eliminate::Elimination;
pub use evidence::Prior;
pub use linearised::Linearised;
pub use pass::Pass;
pub use student::{Form, PARTS, Part, Student};
