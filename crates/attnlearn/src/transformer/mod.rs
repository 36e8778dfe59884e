//! Attention layers of real transformers: from their query, key, value and output weights to the canonical form, and back.
//!
//! A head of dimension `r` computes, from the rows `x_a` of its input,
//!
//! ```text
//! q = x Q + b_q,   k = x K + b_k,   v = x V + b_v,      p(a) = softmax_b(s ⟨q_a, k_b⟩),   s = 1/√r
//! F(X)_a = Σ_h Σ_b p_h(a)_b v_hb O_h + b_o
//! ```
//!
//! A term of the logit that is the same for all keys cancels in the softmax, and attention rows add up to one, so this is
//!
//! ```text
//! Θ_h = s Q_h K_hᵀ        c_h = s K_h b_q        W_h = V_h O_h        bias = b_o + Σ_h b_v O_h
//! ```
//!
//! and `b_k` is gone. The other way, `Θ_h = U Σ Vᵀ` gives `Q_h = UΣ^½/√s` and `K_h = VΣ^½/√s`, `b_q` solves `s K_h b_q = c_h`, and the singular
//! value decomposition of `W_h` gives `V_h` and `O_h`. What a head dimension has no room for is lost, and measured.
//!
//! [`ModelFile`] reads the tensors of a model, one file or many, and `config` its settings; `naming` knows what tensors are called, `held` which
//! layers are not of this form, `import` puts them together, and `reference` computes what the tensors say, for comparison.

mod config;
mod export;
mod held;
mod import;
mod model;
mod naming;
mod reference;
mod request;

pub use export::{Lost, ROUNDING, Style};
pub use held::Judged;
pub use import::Imported;
pub use model::ModelFile;
pub use naming::Found;
pub use request::Request;

use crate::layer::{AttentionLayer, Head, Mask, Terms, Theta};
use crate::linalg::{Mat, MatRef, frobenius};
use crate::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Query, key, value and output weights of one layer, heads side by side; a row of the input stands on their left.
#[derive(Clone, Debug, PartialEq)]
pub struct Projections {
    /// How many heads.
    pub heads: usize,
    /// `s`.
    pub scale: f64,
    /// Which keys a query may attend to.
    pub mask: Mask,
    /// `Q`, d × mr.
    pub q: Mat<f64>,
    /// `K`, d × mr.
    pub k: Mat<f64>,
    /// `V`, d × mr.
    pub v: Mat<f64>,
    /// `O`, mr × d_out.
    pub o: Mat<f64>,
    /// `b_q`.
    pub q_bias: Vec<f64>,
    /// `b_k`.
    pub k_bias: Vec<f64>,
    /// `b_v`.
    pub v_bias: Vec<f64>,
    /// `b_o`.
    pub o_bias: Vec<f64>,
}

/// Products of norms below this are so near the smallest normal number that entries of the product of matrices may have few digits.
const LEAST: f64 = f64::MIN_POSITIVE / f64::EPSILON;

impl Projections {
    /// `r`.
    pub fn head_dim(&self) -> usize {
        self.q.ncols() / self.heads
    }

    /// The same function in canonical form, attention matrices as their factors.
    pub fn fold(&self) -> Result<AttentionLayer> {
        self.fold_at("weights")
    }

    /// As [`Self::fold`]; errors will call the weights `place`.
    pub(super) fn fold_at(&self, place: &str) -> Result<AttentionLayer> {
        let (d, r) = (self.q.nrows(), self.head_dim());
        let some = |bias: Vec<f64>| bias.iter().any(|b| b.abs() > 0.0).then_some(bias);
        let heads = (0..self.heads).map(|h| {
            let part = |w: &Mat<f64>| w.subcols(h * r, r).to_owned();
            let (b, bias) = (part(&self.k), &self.q_bias[h * r..(h + 1) * r]);
            let key_bias = (0..d).map(|e| self.scale * (0..r).map(|j| b[(e, j)] * bias[j]).sum::<f64>()).collect();
            Head {
                theta: Theta::LowRank { a: part(&self.q) * faer::Scale(self.scale), b },
                key_bias: some(key_bias),
                w: part(&self.v) * self.o.subrows(h * r, r),
                terms: Terms::default(),
            }
        });
        let from_values = |e: usize| self.v_bias.iter().enumerate().map(|(j, b)| b * self.o[(j, e)]).sum::<f64>();
        let bias: Vec<f64> = self.o_bias.iter().enumerate().map(|(e, b)| b + from_values(e)).collect();
        let heads: Vec<Head> = heads.collect();
        for (h, head) in heads.iter().enumerate() {
            if let Some(what) = overflows(head) {
                let problem = format!("{what} is not finite: a product of its weights is beyond 1.8e308");
                return Err(Error::input(format!("{place}, head {}", h + 1), problem, "scale the weights down"));
            }
        }
        // What underflows in a logit moves no weight: `exp` of it is 1 all the same. What underflows in an output is all there is of it.
        let lost = |a: f64, b: f64| a > 0.0 && b > 0.0 && a * b < LEAST;
        let remedy = "scale the weights up, or set them to zero";
        for h in 0..self.heads {
            if lost(frobenius(self.v.subcols(h * r, r)), frobenius(self.o.subrows(h * r, r))) {
                let problem = format!("its W = VO has lost digits: products of its weights are below {LEAST:.0e}");
                return Err(Error::input(format!("{place}, head {}", h + 1), problem, remedy));
            }
        }
        let norm = |v: &[f64]| frobenius(faer::ColRef::from_slice(v).as_mat());
        let silent = heads.iter().all(|head| frobenius(head.w.as_ref()) <= 0.0) && norm(&self.o_bias) <= 0.0;
        if silent && lost(norm(&self.v_bias), frobenius(self.o.as_ref())) {
            let problem = format!("its output bias Σ b_v O has lost digits: products of its weights are below {LEAST:.0e}");
            return Err(Error::input(place, problem, remedy));
        }
        if !bias.iter().all(|b| b.is_finite()) {
            return Err(Error::input(place, "its output bias b_o + Σ b_v O is not finite", "scale the weights down"));
        }
        AttentionLayer::new(heads, some(bias), self.mask)
    }

    /// `F(X)` of one sequence, by the definition: what a transformer computes.
    pub fn forward(&self, x: MatRef<'_, f64>) -> Mat<f64> {
        let (n, r) = (x.nrows(), self.head_dim());
        let affine = |w: &Mat<f64>, bias: &[f64]| {
            let product = x * w;
            Mat::from_fn(n, w.ncols(), |a, j| product[(a, j)] + bias[j])
        };
        let (q, k, v) = (affine(&self.q, &self.q_bias), affine(&self.k, &self.k_bias), affine(&self.v, &self.v_bias));
        let mut pooled = Mat::<f64>::zeros(n, self.heads * r);
        for h in 0..self.heads {
            for a in 0..n {
                let seen = if self.mask == Mask::Causal { a + 1 } else { n };
                let logit = |b: usize| self.scale * (h * r..(h + 1) * r).map(|j| q[(a, j)] * k[(b, j)]).sum::<f64>();
                let logits: Vec<f64> = (0..seen).map(logit).collect();
                let top = logits.iter().copied().fold(f64::MIN, f64::max);
                let weights: Vec<f64> = logits.iter().map(|l| (l - top).exp()).collect();
                let total: f64 = weights.iter().sum();
                for j in h * r..(h + 1) * r {
                    pooled[(a, j)] = (0..seen).map(|b| weights[b] * v[(b, j)]).sum::<f64>() / total;
                }
            }
        }
        let out = pooled * &self.o;
        Mat::from_fn(n, self.o.ncols(), |a, e| out[(a, e)] + self.o_bias[e])
    }

    /// Largest difference between [`Self::forward`] and `layer`, over the largest output, on random sequences; NaN if one is not finite.
    pub fn gap(&self, layer: &AttentionLayer) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let (mut gap, mut size) = (0.0_f64, f64::MIN_POSITIVE);
        for tokens in [1, 2, 5, 9] {
            let x = Mat::from_fn(tokens, self.q.nrows(), |_, _| rng.sample::<f64, _>(StandardNormal));
            let (ours, theirs) = (layer.forward_one(x.as_ref()), self.forward(x.as_ref()));
            // Entry by entry: a maximum would forget a NaN.
            let finite = |y: &Mat<f64>| y.col_iter().all(|column| column.iter().all(|v| v.is_finite()));
            if !finite(&ours) || !finite(&theirs) {
                return f64::NAN;
            }
            gap = gap.max((&ours - &theirs).norm_max());
            size = size.max(theirs.norm_max());
        }
        gap / size
    }

    /// Refuses weights whose sizes do not fit together.
    fn check(&self, place: &str) -> Result<()> {
        let (d, inner, d_out) = (self.q.nrows(), self.q.ncols(), self.o.ncols());
        let bad = |problem: String, remedy: &str| Err(Error::input(place, problem, remedy));
        if self.heads == 0 || inner == 0 || !inner.is_multiple_of(self.heads) {
            let problem = format!("its queries have {inner} numbers, which {} heads cannot share", self.heads);
            return bad(problem, "give the right number with --heads");
        }
        if (self.k.nrows(), self.v.nrows()) != (d, d) {
            return bad("its keys or values are made from other tokens than its queries".into(), "give a self-attention layer");
        }
        if self.k.ncols() < inner || self.v.ncols() < inner {
            let problem =
                format!("its keys have {} numbers and its queries {inner}: several heads share their keys", self.k.ncols());
            return bad(problem, "grouped keys are not of this form");
        }
        if (self.k.ncols(), self.v.ncols(), self.o.nrows()) != (inner, inner, inner) {
            return bad("its queries, keys, values and outputs have different sizes".into(), "give weights of one layer");
        }
        let biases = [(&self.q_bias, inner), (&self.k_bias, inner), (&self.v_bias, inner), (&self.o_bias, d_out)];
        if biases.iter().any(|(bias, len)| bias.len() != *len) {
            return bad("a bias does not fit its weights".into(), "give weights of one layer");
        }
        Ok(())
    }
}

/// What of a head is not finite.
fn overflows(head: &Head) -> Option<&'static str> {
    let finite = |a: &Mat<f64>| a.col_iter().all(|column| column.iter().all(|v| v.is_finite()));
    // No entry of a product is larger than the product of the norms; only where that overflows are the entries looked at.
    let theta = match &head.theta {
        Theta::LowRank { a, b } if (frobenius(a.as_ref()) * frobenius(b.as_ref())).is_finite() => true,
        theta => finite(&theta.to_dense()),
    };
    match () {
        () if !theta => Some("its Θ = sQKᵀ"),
        () if !head.key_bias.iter().flatten().all(|v| v.is_finite()) => Some("its c = sKb_q"),
        () if !finite(&head.w) => Some("its W = VO"),
        () => None,
    }
}
