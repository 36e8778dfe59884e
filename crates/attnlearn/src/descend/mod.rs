//! The practical learner.
//!
//! `units` whitens tokens and balances outputs. `optimise` descends: Adam, then Gauss–Newton. `pairs` sees to rotary heads, `sharp` to heads that hide
//! their logits. `search` starts, judges, draws heads anew and chooses among forms.

pub(crate) mod optimise;
pub(crate) mod pairs;
pub(crate) mod search;
pub(crate) mod sharp;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod units;

pub use optimise::adam::{Adam, AdamSettings, Scaling};
pub use optimise::levenberg::Stop;
pub use optimise::newton::{Newton, NewtonSettings, Seen};
pub use search::learner::{Choice, HeadCount, Learner, Outcome, Prepared, Rank, Try, Wanted};
pub use search::plan::StrategySettings;
pub use search::state::{Chain, End, Found, Stage, State};
pub use search::strategy::Run;
pub use units::whitening::Whitening;
