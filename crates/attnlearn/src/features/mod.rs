//! Random-feature attention: layers whose many heads are frozen at random and whose values are trained.
//!
//! An input is a *set*: a query `x_0` and keys `x_1 … x_N`, all in `R^d`; `x̃ = [x; 1]`. With frozen `W_m`,
//!
//! ```text
//! f(x_{0:N}) = Σ_{m≤M} (1/N) Σ_{i≤N} σ(⟨W_m, x̃_0 x̃_iᵀ⟩) ⟨v_m, x̃_i⟩
//! ```
//!
//! is linear in the trained `v`: a [`FeatureMap`] turns a set into `p = M(d+1)` numbers, and fitting is ridge regression.
//! After *What can a Single Attention Layer Learn? A Study Through the Random Features Lens* (Fu, Guo, Bai, Mei).

mod attention;
pub mod compare;
pub mod complexity;
mod evaluate;
pub(crate) mod files;
mod fitting;
mod inputs;
pub mod kernel;
mod map;
mod memory;
mod mlp;
mod model;
pub mod ridge;
mod score;
mod sets;
mod spec;
mod stream;
pub mod target;
#[cfg(test)]
mod tests;

pub use attention::feature_index;
pub use compare::{Experiment, Learner, Paired};
pub use complexity::Complexity;
pub use evaluate::features_of;
#[cfg(feature = "parquet")]
pub use files::{PARQUET_THREAD, ParquetSets};
pub use files::{SetColumns, SetFile, SetWriter, Targets, open_sets};
pub use fitting::{FitDescription, FitSpec, Fitted, How, Kind, NOT_REACHED};
pub use inputs::{SetInputs, Tokens};
pub use kernel::KernelSpec;
pub use map::FeatureMap;
pub use memory::{Presence, SetSlices, SetTokens};
pub use model::{FittedModel, Precision, Prediction, Predictor};
pub use score::{Score, Scores};
pub use sets::{SetBlock, SetShape, SetSource, Sets, check_sets_size};
pub use spec::{MapSpec, Mean, Model};
pub use stream::SetStream;
pub use target::{Target, TargetSpec};
