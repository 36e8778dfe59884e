//! How far a layer is from a reference, both in canonical form.

use crate::console::{Console, error, plural};
use attnlearn::Result;
use attnlearn::layer::{AttentionLayer, Canonical, LayerDistance};

/// Heads closer than this, relatively, are one head; weaker than this, none.
pub const SAME_HEAD: f64 = 1e-9;

/// Two layers in canonical form and the distance between them.
pub struct Comparison {
    /// The reference.
    pub reference: Canonical,
    /// The layer that is measured.
    pub other: Canonical,
    /// How far it is.
    pub distance: LayerDistance,
}

impl Comparison {
    /// Brings both layers into canonical form and matches their heads, by what sequences of `k` tokens show of them.
    pub fn new(reference: &AttentionLayer, other: &AttentionLayer, tolerance: f64, k: usize) -> Result<Self> {
        let (reference, other) = (reference.canonical(tolerance), other.canonical(tolerance));
        let distance = reference.layer.distance_within(&other.layer, k)?;
        Ok(Self { reference, other, distance })
    }

    /// The measured layer's head that stands for head `i` of the reference.
    pub fn partner(&self, i: usize) -> Option<usize> {
        self.distance.heads.iter().find(|head| head.reference == i).map(|head| head.other)
    }

    /// Heads that one of them has and the other has not.
    pub fn say_unmatched(&self, console: &Console) {
        for (heads, whose) in [(&self.distance.missing, "missing"), (&self.distance.extra, "too many")] {
            if !heads.is_empty() {
                console.say(console.bad(&format!("  {} {whose}", plural(heads.len(), "head"))));
            }
        }
    }
}

/// Prints the errors of every head of the reference, before and after the polish side by side.
pub fn say_heads(console: &Console, before: Option<&Comparison>, after: Option<&Comparison>) {
    let heads = before.or(after).map_or(0, |c| c.reference.layer.heads().len());
    let of = |comparison: Option<&Comparison>, i: usize| {
        let found = comparison.and_then(|c| c.distance.heads.iter().find(|head| head.reference == i));
        (error(found.map(|head| head.theta)), error(found.map(|head| head.w)))
    };
    let rows: Vec<[String; 5]> = (0..heads)
        .map(|i| {
            let ((theta, w), (theta_after, w_after)) = (of(before, i), of(after, i));
            [format!("head {}", i + 1), theta, w, theta_after, w_after]
        })
        .collect();
    console.table(["", "Θ before", "W before", "Θ after polish", "W after polish"], &rows);
    for (comparison, when) in [(before, "before the polish:"), (after, "after the polish:")] {
        if let Some(c) = comparison.filter(|c| !c.distance.missing.is_empty() || !c.distance.extra.is_empty()) {
            console.say(format!("  {when}"));
            c.say_unmatched(console);
        }
    }
}
