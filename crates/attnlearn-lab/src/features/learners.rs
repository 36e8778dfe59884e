//! Learners by their names.

use attnlearn::features::{KernelSpec, Learner, MapSpec, Mean, Model, Precision};
use serde::{Deserialize, Serialize};

/// A learner whose frozen weights are yet to be drawn. *Biased* heads have the mean `diag(I_d, 0)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Named {
    /// ReLU attention, centred heads.
    Rfa,
    /// ReLU attention, biased heads.
    Brfa,
    /// The perceptron, with as many features.
    Rfmlp,
    /// Softmax attention, centred heads.
    Softmax,
    /// The same with logits four times as large.
    SharpSoftmax,
    /// Softmax attention, biased heads.
    BiasedSoftmax,
    /// ReLU attention whose weights are divided by their sum.
    RowRelu,
    /// The same, biased heads.
    BiasedRowRelu,
    /// RFA with infinitely many heads.
    KernelRfa,
    /// BRFA with infinitely many heads.
    KernelBrfa,
    /// RFMLP with infinitely many neurons.
    KernelRfmlp,
}

impl Named {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rfa => "RFA",
            Self::Brfa => "BRFA",
            Self::Rfmlp => "RFMLP",
            Self::Softmax => "softmax",
            Self::SharpSoftmax => "softmax (β = 4)",
            Self::BiasedSoftmax => "biased softmax",
            Self::RowRelu => "row-ReLU",
            Self::BiasedRowRelu => "biased row-ReLU",
            Self::KernelRfa => "RFA kernel",
            Self::KernelBrfa => "BRFA kernel",
            Self::KernelRfmlp => "RFMLP kernel",
        }
    }

    /// Its limit of infinitely many heads, or itself if it is one; nobody knows those of normalised attention in closed form.
    pub fn kernel(self) -> Option<KernelSpec> {
        match self {
            Self::Rfa | Self::KernelRfa => Some(KernelSpec::Rfa),
            Self::Brfa | Self::KernelBrfa => Some(KernelSpec::Brfa { mean: Mean::Identity { scale: 1.0 } }),
            Self::Rfmlp | Self::KernelRfmlp => Some(KernelSpec::Rfmlp),
            _ => None,
        }
    }

    /// The learner of that name with infinitely many heads, as far as there is one.
    pub fn limit(self) -> Option<Self> {
        match self {
            Self::Rfa | Self::KernelRfa => Some(Self::KernelRfa),
            Self::Brfa | Self::KernelBrfa => Some(Self::KernelBrfa),
            Self::Rfmlp | Self::KernelRfmlp => Some(Self::KernelRfmlp),
            _ => None,
        }
    }

    /// Whether it has infinitely many heads.
    pub fn infinite(self) -> bool {
        matches!(self, Self::KernelRfa | Self::KernelBrfa | Self::KernelRfmlp)
    }

    /// The learner, its heads drawn from `seed`.
    pub fn learner(self, d: usize, keys: usize, heads: usize, precision: Precision, seed: u64) -> Learner {
        if let (true, Some(kernel)) = (self.infinite(), self.kernel()) {
            return Learner::Kernel(kernel);
        }
        let model = match self {
            Self::Rfa | Self::KernelRfa => Model::Rfa,
            Self::Brfa | Self::KernelBrfa => Model::Brfa,
            Self::Rfmlp | Self::KernelRfmlp => Model::Rfmlp,
            Self::Softmax | Self::SharpSoftmax | Self::BiasedSoftmax => Model::Softmax,
            Self::RowRelu | Self::BiasedRowRelu => Model::RowRelu,
        };
        let mut map = MapSpec::new(model, d, keys, heads, seed);
        if matches!(self, Self::BiasedSoftmax | Self::BiasedRowRelu) {
            map.mean = Mean::Identity { scale: 1.0 };
        }
        if self == Self::SharpSoftmax {
            map.inverse_temperature = 4.0;
        }
        Learner::Frozen { map, precision }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on should stop
mod tests {
    use super::*;

    /// Every name is a learner that can be built, and no two are the same.
    #[test]
    fn names_are_learners() {
        use Named::{
            BiasedRowRelu, BiasedSoftmax, Brfa, KernelBrfa, KernelRfa, KernelRfmlp, Rfa, Rfmlp, RowRelu, SharpSoftmax, Softmax,
        };
        let all =
            [Rfa, Brfa, Rfmlp, Softmax, SharpSoftmax, BiasedSoftmax, RowRelu, BiasedRowRelu, KernelRfa, KernelBrfa, KernelRfmlp];
        let learners = all.map(|name| name.learner(3, 4, 5, Precision::F64, 6));
        for (i, (name, learner)) in all.iter().zip(&learners).enumerate() {
            assert!(!learners[..i].contains(learner), "{name:?}");
            assert_eq!(matches!(learner, Learner::Kernel(_)), name.infinite());
            if let Learner::Frozen { map, .. } = learner {
                map.check().unwrap();
            }
        }
    }
}
