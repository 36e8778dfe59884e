//! **attnlearn** learns attention layers from examples.
//!
//! A layer with `m` heads maps a sequence `X ∈ R^{k×d}` (k tokens, one per row) to
//!
//! ```text
//! F(X) = Σ_{i=1..m} softmax(X Θ_i Xᵀ) X W_i        softmax over each row
//! ```
//!
//! Given pairs `(X, F(X))`, the learners of this crate return the heads `Θ_i, W_i`:
//!
//! - [`sculpt`]: the six-phase algorithm of Chen and Li, *Provably learning a multi-head attention layer*;
//! - [`descend`]: the practical learner, by descent and variable projection, with the arithmetic of [`engine`];
//! - [`features`]: random-feature attention, many frozen heads with trained values, and its kernels;
//! - [`transformer`]: layers of real transformers, read and written in their own names;
//! - [`degeneracy`]: the conditions of the theory, measured on a layer;
//! - [`certify`]: what can be guaranteed of the result, from examples that no learner has seen;
//! - [`learn`]: the whole job, with these learners in turn.
//!
//! Dependencies run one way, and a test holds that: [`linalg`] → [`files`] → [`data`] → [`layer`] → [`teacher`] → [`convex`], [`certify`],
//! [`degeneracy`], [`transformer`], [`features`] → [`engine`] → [`descend`] → [`sculpt`] → [`learn`] → [`inspect`](mod@inspect).
//! A learner is handed an [`data::ExampleSource`] and nothing else: it cannot see the [`teacher`].
//!
//! ```rust
//! use attnlearn::data::InputDistribution;
//! use attnlearn::sculpt::{Heads, Outcome, Settings, Unwatched, learn};
//! use attnlearn::teacher::{TeacherSpec, TeacherStream};
//! use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
//!
//! fn main() -> attnlearn::Result<()> {
//!     // A random layer with d = 6 and one head of norm 4, and an endless stream of its examples with k = 3 tokens.
//!     let teacher = TeacherSpec::dense(6, 1, 4.0).draw(&mut ChaCha8Rng::seed_from_u64(1))?;
//!     let examples = TeacherStream::new(&teacher, 3, InputDistribution::Boolean, 2, None);
//!     // The learner sees the stream, never the teacher.
//!     let settings = Settings { heads: Heads::Given(1), ..Settings::default() }.check(&examples)?;
//!     let learned = learn(&examples, &settings, &Unwatched)?;
//!     assert_eq!(learned.outcome, Outcome::Recovered);
//!     let found = learned.layer().expect("a recovered run has a layer");
//!     assert!(teacher.distance(found)?.worst_theta() < 1e-8);
//!     Ok(())
//! }
//! ```
//!
//! Examples in files are a [`data::ExampleFile`]; anything that implements [`data::ExampleSource`] will do.

pub mod certify;
pub mod convex;
pub mod data;
pub mod degeneracy;
pub mod descend;
pub mod engine;
mod error;
pub mod features;
pub mod files;
mod hash;
pub mod inspect;
pub mod layer;
pub mod learn;
pub mod linalg;
pub mod memory;
mod parallel;
pub mod scores;
pub mod sculpt;
pub mod teacher;
pub mod transformer;
pub mod words;

pub use error::{Error, Result};
