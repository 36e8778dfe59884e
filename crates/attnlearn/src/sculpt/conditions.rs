//! What the phases ask of examples and layer, as far as it shows in the moments of the examples and in `Ŝ`:
//!
//! - the tokens span `R^d`: smallest over largest eigenvalue of `Σ = E[x xᵀ]`;
//! - the projections do not cancel: `(E‖xᵀŜ‖² / E‖Y_a‖²)^{1/2}`, the size of the outputs if all heads attended to one token, over that of
//!   the outputs there are. With `S = 0` agreement gives `Y_a = 0`, whatever the tokens, and no row has odds to read;
//! - `S` is not singular: smallest over largest singular value of `Ŝ`. Else agreement does not show in every direction of the tokens.
//!
//! They explain why a run failed; none of them keeps a run from succeeding.

use super::crude::Moments;
use crate::linalg::{Mat, inner, spread};

/// Spread of `Σ` below which the tokens are taken not to span `R^d`: sums in single precision show no smaller one.
const FLAT: f64 = 1e-6;
/// Size of `Ŝ` below which the projections are taken to cancel.
const FAINT: f64 = 0.05;
/// Conditioning below which `Ŝ` is taken to be singular.
const SINGULAR: f64 = 1e-3;

/// How well the conditions are met; 0 is worst.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions {
    tokens: f64,
    size: f64,
    conditioning: f64,
}

impl Conditions {
    /// Of these examples and this `Ŝ`.
    pub fn of(moments: &Moments, s: &Mat<f64>) -> Self {
        let values = s.singular_values().unwrap_or_default();
        let conditioning = match (values.first(), values.last()) {
            (Some(high), Some(low)) if *high > 0.0 => low / high,
            _ => 0.0,
        };
        let square = inner((&moments.tokens * s).as_ref(), s.as_ref()).max(0.0);
        Self { tokens: spread(moments.tokens.as_ref()), size: (square / moments.y_square).sqrt(), conditioning }
    }

    /// The condition, if one fails, without which more examples are of no use.
    pub fn hopeless(&self) -> Option<String> {
        if self.tokens < FLAT {
            Some("the tokens do not span R^d".into())
        } else if self.size < FAINT {
            Some(format!("Σ W_i vanishes: {:.0e} of the size of the outputs", self.size))
        } else {
            None
        }
    }

    /// The condition, if it fails, without which the rows may be in error.
    pub fn doubtful(&self) -> Option<String> {
        (self.conditioning < SINGULAR).then(|| format!("Σ W_i is singular to {:.0e}", self.conditioning))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{examples, teacher, true_sum};
    use super::*;
    use crate::layer::{AttentionLayer, Head, Mask};

    /// The conditions with the true sum of projections, the second head's being a changed copy of the first one's.
    fn with(seed: u64, change: impl Fn(&Mat<f64>) -> Mat<f64>) -> Conditions {
        let layer = teacher(6, 2, 6.0, seed);
        let (first, second) = (&layer.heads()[0], &layer.heads()[1]);
        let second = Head::dense(second.theta.to_dense(), change(&first.w));
        let layer = AttentionLayer::new(vec![first.clone(), second], None, Mask::None).expect("finite");
        let moments = Moments::gather(&examples(&layer, 3), 0..16).expect("a stream never fails");
        Conditions::of(&moments, &true_sum(&layer))
    }

    #[test]
    fn each_condition_is_told_from_the_others() {
        for seed in 0..5 {
            let good = with(seed, |w| w.clone());
            assert!(good.hopeless().is_none() && good.doubtful().is_none() && good.size > 0.5, "seed {seed}: {good:?}");
            let cancelled = with(seed, |w| w * faer::Scale(-0.999));
            assert!(cancelled.hopeless().is_some_and(|c| c.contains("vanishes")), "seed {seed}: {cancelled:?}");
            let mirrored = with(seed, |w| Mat::from_fn(6, 6, |e, o| if e == 0 { -w[(e, o)] } else { w[(e, o)] }));
            assert!(mirrored.hopeless().is_none(), "seed {seed}: {mirrored:?}");
            assert!(mirrored.doubtful().is_some_and(|c| c.contains("singular")), "seed {seed}: {mirrored:?}");
        }
    }
}
