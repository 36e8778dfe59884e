//! What is learned: a multi-head attention layer
//!
//! ```text
//! F(X)_a = Σ_i Σ_b p_i(a)_b x_bᵀ W_i + bias,     p_i(a) = softmax_b(x_aᵀ Θ_i x_b + c_iᵀ x_b)
//! ```
//!
//! with `X ∈ R^{k×d}`, tokens `x_a` its rows, and `b ≤ a` only under the causal mask.

mod canonical;
mod distance;
mod file;
mod forward;
pub(crate) mod residual;
mod tiles;

pub use canonical::Canonical;
pub use distance::{HeadDistance, LayerDistance};
pub use forward::Evaluator;

use crate::linalg::{Mat, frobenius};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Which keys a query may attend to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    /// All of them.
    #[default]
    None,
    /// Itself and those before it.
    Causal,
}

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
}

impl Head {
    /// A head with a dense attention matrix and no key bias.
    pub fn dense(theta: Mat<f64>, w: Mat<f64>) -> Self {
        Self { theta: Theta::Dense(theta), key_bias: None, w }
    }
}

/// A multi-head attention layer.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionLayer {
    d: usize,
    d_out: usize,
    heads: Vec<Head>,
    bias: Option<Vec<f64>>,
    mask: Mask,
}

impl AttentionLayer {
    /// A layer from its heads; at least one head, all of the same shape, every number finite.
    pub fn new(heads: Vec<Head>, bias: Option<Vec<f64>>, mask: Mask) -> Result<Self> {
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
        }
        if let Some(b) = &bias
            && (b.len() != d_out || !b.iter().all(|v| v.is_finite()))
        {
            return bad(format!("output bias is not {d_out} finite numbers"));
        }
        Ok(Self { d, d_out, heads, bias, mask })
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

    /// Which keys a query may attend to.
    pub fn mask(&self) -> Mask {
        self.mask
    }
}
