//! Layers that examples come from: recipes for random ones, endless streams of their examples, and how far another layer is from one as a
//! function.
//!
//! No learner sees any of this: it is handed an [`ExampleSource`](crate::data::ExampleSource). So nothing that learns uses this room outside
//! its tests.

mod functional;
mod spec;
mod stream;

pub use functional::FunctionalError;
pub use spec::{Family, TeacherSpec, parity_teacher};
pub use stream::TeacherStream;
