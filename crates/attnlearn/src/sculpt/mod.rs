//! The six-phase learner of Chen and Li, *Provably learning a multi-head attention layer*.
//!
//! From examples `(X, Y)`, `Y_a = Σ_i Σ_b p_i(a)_b x_bᵀ W_i`, `p_i(a) = softmax_b(x_aᵀ Θ_i x_b)`:
//!
//! 1. `crude`: correlate inputs and outputs for a first estimate of `S = Σ_i W_i`;
//! 2. `body`: find rows where all heads attend alike (`agreement`); each is a slab that holds every `Θ_i`: the body K;
//! 3. `proxy`, `sharpen`: the minimum-norm point of K, and with its help `S` to several digits;
//! 4. `body` again, with the sharp `S` and many more examples;
//! 5. `span`: where K stays wide is `span{Θ_i − Θ_j}`; with the minimum-norm point it gives the span of the heads;
//! 6. `search`: search m-tuples in the span, regress the projections, keep what explains fresh examples best.
//!
//! Phases 4–6 repeat on four times as many examples until the search explains the validation examples, the examples end, or more of
//! them no longer sharpen the rows. Where input space is too small for
//! enough rows to agree, the projections that the search finds without a span serve to certify rows head by head, and phases 4–6 run
//! once more on those. Then comes the polish over all parameters, which is not part of the paper's algorithm: errors are
//! reported before and after it.

mod agreement;
mod body;
mod conditions;
mod crude;
mod fit;
mod proxy;
mod record;
mod run;
mod search;
mod settings;
mod sharpen;
mod span;
#[cfg(test)]
mod testing;

pub use record::{Learned, Outcome, Phase, Quantiles, Record, Round, Stage, Unwatched, Watch, Widths};
pub use settings::{FEWEST_EXAMPLES, Heads, Settings, ValidSettings};

use crate::Result;
use crate::data::ExampleSource;
use run::Run;

/// Examples of one shape for three purposes.
#[derive(Clone, Copy)]
pub struct Purposes<'a> {
    /// To learn from.
    pub learn: &'a dyn ExampleSource,
    /// To choose among what was found.
    pub choose: &'a dyn ExampleSource,
    /// For the certificate, which alone reads them.
    pub certify: &'a dyn ExampleSource,
}

/// Runs the six phases, the polish and the certificate. The last blocks of a source that has an end serve to choose and to certify, so its order should
/// mean nothing; [`crate::learn`] draws examples for each purpose instead.
pub fn learn(source: &dyn ExampleSource, settings: &ValidSettings, watch: &dyn Watch) -> Result<Learned> {
    all(Run::new(source, settings, watch), settings)
}

/// The same on examples that have been shared out; all three sources have an end.
pub fn learn_apart(examples: Purposes<'_>, settings: &ValidSettings, watch: &dyn Watch) -> Result<Learned> {
    all(Run::apart(examples, settings, watch), settings)
}

fn all(mut run: Run<'_>, settings: &ValidSettings) -> Result<Learned> {
    // Phase 1: the crude sum of projections.
    let (moments, crude) = run.crude_sum()?;
    // Phase 2: rows that agree as far as the crude sum can tell, and the body of their slabs.
    let quarry = run.sculpt(&crude)?;
    // Phase 3: the minimum-norm proxy, and with it the sum of projections to several digits.
    let sum = run.proxy_and_sharpen(&moments, &crude, quarry)?;
    // Phases 4–6, on ever more examples.
    let mut answer = run.agreement_rounds(&sum)?;
    // Too few rows agree: certify them head by head instead.
    if settings.separate && !run.good(&answer) {
        answer = run.separated_round(answer)?;
    }
    // Beyond the paper: all parameters at once.
    let polished = run.polish(&answer)?;
    // What can be guaranteed of the result.
    run.finish(answer, polished)
}
