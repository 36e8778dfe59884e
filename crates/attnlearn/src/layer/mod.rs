//! What is learned: a multi-head attention layer
//!
//! ```text
//! F(X)_a = Σ_i Σ_b p_i(a)_b x_bᵀ W_i + bias,     p_i(a) = softmax_b(x_aᵀ Θ_i x_b + c_iᵀ x_b)
//! ```
//!
//! with `X ∈ R^{k×d}`, tokens `x_a` its rows, and only those `b` that the mask lets `a` see. How scores are made beyond that (rotary positions, query/key
//! norms, relative biases) is [`crate::scores`]'s to say: a layer has the [`Scores`] that all heads share, a head its own [`Terms`].
//! Heads share keys (and so form a group) if their key factors are the same.

mod attends;
mod canonical;
mod distance;
mod file;
mod forward;
pub(crate) mod residual;
mod tiles;

pub use attends::DISTANCES;
pub use canonical::Canonical;
pub use distance::{HeadDistance, LayerDistance};
pub use forward::Evaluator;

pub use crate::scores::{Mask, Relative, Rotation, Scores};

use crate::linalg::{Mat, frobenius};
use crate::{Error, Result};

/// An attention matrix `Θ`.
#[derive(Clone, Debug, PartialEq)]
pub enum Theta {
    /// All d×d entries.
    Dense(Mat<f64>),
    /// `Θ = A Bᵀ` with `A, B ∈ R^{d×r}`.
    LowRank {
        /// Query factor.
        a: Mat<f64>,
        /// Key factor.
        b: Mat<f64>,
    },
}

impl Theta {
    /// Token dimension d.
    pub fn d(&self) -> usize {
        match self {
            Self::Dense(theta) => theta.nrows(),
            Self::LowRank { a, .. } => a.nrows(),
        }
    }

    /// All d×d entries.
    pub fn to_dense(&self) -> Mat<f64> {
        match self {
            Self::Dense(theta) => theta.clone(),
            Self::LowRank { a, b } => a * b.transpose(),
        }
    }
}

/// One head: where it looks (`Θ`, `c`) and what it says (`W`).
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Attention matrix `Θ`, d×d.
    pub theta: Theta,
    /// Key bias `c`, in R^d: adds `cᵀ x_b` to the logit of key b.
    pub key_bias: Option<Vec<f64>>,
    /// Projection `W`, d×d_out.
    pub w: Mat<f64>,
    /// What else its scores are made of.
    pub terms: Terms,
}

/// What the scores of a head are made of beyond `Θ` and `c`; nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// `a°`, added to queries before they are normalised and turned.
    pub query: Option<Vec<f64>>,
    /// `b°`, added to keys likewise.
    pub key: Option<Vec<f64>>,
    /// `γ` and `κ`, the weights of coordinates of normalised queries and keys; 1 where they are absent.
    pub gains: Option<[Vec<f64>; 2]>,
    /// `β`.
    pub relative: Option<Relative>,
}

impl Head {
    /// A head with a dense attention matrix and no key bias.
    pub fn dense(theta: Mat<f64>, w: Mat<f64>) -> Self {
        Self { theta: Theta::Dense(theta), key_bias: None, w, terms: Terms::default() }
    }
}

impl Head {
    /// A head of factors, `Θ = ABᵀ`, and no biases.
    pub fn factored(a: Mat<f64>, b: Mat<f64>, w: Mat<f64>) -> Self {
        Self { theta: Theta::LowRank { a, b }, key_bias: None, w, terms: Terms::default() }
    }

    /// Refuses what does not fit scores of this kind.
    fn check(&self, scores: &Scores, place: &str) -> Result<()> {
        let bad = |problem: &str, remedy: &str| Err(Error::input(place, problem, remedy));
        if scores.distances.is_some() {
            return bad("its scores are free in the distance", "a layer has a rotation: take it from the student first");
        }
        let Terms { query, key, gains, relative } = &self.terms;
        relative.as_ref().map_or(Ok(()), |relative| relative.check(place))?;
        let of_factors = query.is_some() || key.is_some() || gains.is_some();
        match &self.theta {
            Theta::LowRank { a, .. } if !scores.is_bilinear() => {
                let r = a.ncols();
                scores.check(r, place)?;
                let gains = gains.iter().flatten();
                if !query.iter().chain(key).chain(gains).all(|v| v.len() == r && v.iter().all(|v| v.is_finite())) {
                    return bad(
                        "its biases or gains are not a finite number for every coordinate",
                        "give as many as the head's dimension",
                    );
                }
                if scores.norm.is_none() && self.terms.gains.is_some() {
                    return bad("gains without a norm", "leave them out, or give the norm's ε");
                }
                Ok(())
            }
            Theta::Dense(_) if !scores.is_bilinear() => {
                bad("rotation and norms act on factors, Θ is given as it is", "give A and B")
            }
            _ if of_factors => bad(
                "biases of queries and keys without rotation or norm",
                "fold the query's into the key bias, and drop the key's",
            ),
            _ => scores.check(usize::MAX, place),
        }
    }
}

/// A multi-head attention layer.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionLayer {
    d: usize,
    d_out: usize,
    heads: Vec<Head>,
    bias: Option<Vec<f64>>,
    scores: Scores,
}

impl AttentionLayer {
    /// A layer from its heads; at least one head, all of the same shape, every number finite. A [`Mask`] will do for scores that are bilinear.
    pub fn new(heads: Vec<Head>, bias: Option<Vec<f64>>, scores: impl Into<Scores>) -> Result<Self> {
        let scores = scores.into();
        let bad = |problem: String| Err(Error::input("layer", problem, "give heads of one common shape with finite entries"));
        let Some(first) = heads.first() else { return bad("has no heads".into()) };
        let (d, d_out) = (first.w.nrows(), first.w.ncols());
        if d == 0 || d_out == 0 {
            return bad(format!("W has shape {d}×{d_out}"));
        }
        let finite = |a: &Mat<f64>| frobenius(a.as_ref()).is_finite();
        for (i, head) in heads.iter().enumerate() {
            let shapes = match &head.theta {
                Theta::Dense(t) => t.nrows() == d && t.ncols() == d && finite(t),
                Theta::LowRank { a, b } => a.nrows() == d && b.nrows() == d && a.ncols() == b.ncols() && finite(a) && finite(b),
            };
            if !shapes {
                return bad(format!("Θ of head {i} is not a finite {d}×{d} matrix"));
            }
            if (head.w.nrows(), head.w.ncols()) != (d, d_out) || !finite(&head.w) {
                return bad(format!("W of head {i} is not a finite {d}×{d_out} matrix"));
            }
            if let Some(c) = &head.key_bias
                && (c.len() != d || !c.iter().all(|v| v.is_finite()))
            {
                return bad(format!("key bias of head {i} is not {d} finite numbers"));
            }
            head.check(&scores, &format!("head {i}"))?;
        }
        if let Some(b) = &bias
            && (b.len() != d_out || !b.iter().all(|v| v.is_finite()))
        {
            return bad(format!("output bias is not {d_out} finite numbers"));
        }
        Ok(Self { d, d_out, heads, bias, scores })
    }

    /// Token dimension d.
    pub fn d(&self) -> usize {
        self.d
    }

    /// Output dimension.
    pub fn d_out(&self) -> usize {
        self.d_out
    }

    /// The heads.
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// Output bias, in R^{d_out}.
    pub fn bias(&self) -> Option<&[f64]> {
        self.bias.as_deref()
    }

    /// How the scores of all heads are made.
    pub fn scores(&self) -> &Scores {
        &self.scores
    }

    /// Refuses a layer whose scores are not `x_a Θ_i x_b + ⟨c_i, x_b⟩` over all keys or those before: what is asked of it has no room for more. `remedy` says what to do.
    pub fn require_plain(&self, remedy: &str) -> Result<()> {
        let Scores { mask, rotation, norm, .. } = &self.scores;
        let relative = self.heads.iter().any(|head| head.terms.relative.is_some());
        let more = [
            (rotation.is_some(), "rotary positions"),
            (norm.is_some(), "query/key norms"),
            (relative, "relative biases"),
            (matches!(mask, Mask::Window(_)), "a window"),
        ];
        match more.iter().find(|(there, _)| *there) {
            Some((_, what)) => Err(Error::input("layer", format!("has {what}"), remedy)),
            None => Ok(()),
        }
    }

    /// Which keys a query may attend to.
    pub fn mask(&self) -> Mask {
        self.scores.mask
    }

    /// The number of every head's key group: heads of one group have the same keys. Groups are numbered as they come.
    pub fn groups(&self) -> Vec<usize> {
        let shared = |one: &Head, other: &Head| {
            matches!((&one.theta, &other.theta), (Theta::LowRank { b, .. }, Theta::LowRank { b: theirs, .. }) if b == theirs)
                && one.terms.key == other.terms.key
        };
        let mut first: Vec<usize> = Vec::new();
        let group = |head: &Head, first: &mut Vec<usize>, i: usize| {
            first.iter().position(|f| shared(&self.heads[*f], head)).unwrap_or_else(|| {
                first.push(i);
                first.len() - 1
            })
        };
        self.heads.iter().enumerate().map(|(i, head)| group(head, &mut first, i)).collect()
    }
}
