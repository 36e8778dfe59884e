//! A layer as the weights of a transformer.

use super::naming::{Parts, SCHEMES, Scheme};
use super::{Projections, overflows};
use crate::files::{Dtype, TensorSpec, layout};
use crate::layer::{AttentionLayer, Mask};
use crate::linalg::{Mat, frobenius};
use crate::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// Singular values below this share of the largest are rounding.
const RANK: f64 = 1e-13;

/// Losses up to this are rounding.
pub const ROUNDING: f64 = 1e-9;

/// What a head lost for want of dimensions: relative errors in the Frobenius norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lost {
    /// Of `Θ`.
    pub theta: f64,
    /// Of `c`; 0 if there is none.
    pub key_bias: f64,
    /// Of `W`.
    pub w: f64,
}

impl Lost {
    /// The largest of the three; infinite if one is not a number.
    pub fn worst(&self) -> f64 {
        self.parts().into_iter().map(|(lost, _)| lost).fold(0.0, f64::max)
    }

    /// Which of the three that is.
    pub fn what(&self) -> &'static str {
        let worst = self.worst();
        self.parts().into_iter().find(|(lost, _)| *lost >= worst).map_or("Θ", |(_, what)| what)
    }

    /// `max` would forget a NaN.
    fn parts(&self) -> [(f64, &'static str); 3] {
        [(self.theta, "Θ"), (self.w, "W"), (self.key_bias, "c")]
            .map(|(lost, what)| (if lost.is_nan() { f64::INFINITY } else { lost }, what))
    }
}

/// Whose names and layout to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Plain factors: `q`, `k`, `v` of `[m, d, r]`, `o` of `[m, r, d_out]`, `q_bias` of `[m, r]`, `bias` of `[d_out]`; scores are `⟨q, k⟩/√r`.
    Factors,
    /// BERT, RoBERTa, MiniLM.
    Bert,
    /// ViT.
    Vit,
    /// DistilBERT.
    DistilBert,
    /// GPT-2.
    Gpt2,
    /// The state of a `torch.nn.MultiheadAttention`.
    Mha,
}

impl Style {
    /// The scheme, and what stands before layer `i`.
    fn scheme(self, layer: usize) -> Option<(&'static Scheme, String)> {
        let (name, prefix) = match self {
            Self::Factors => return None,
            Self::Bert => ("bert", format!("encoder.layer.{layer}.")),
            Self::Vit => ("vit", format!("encoder.layer.{layer}.")),
            Self::DistilBert => ("distilbert", format!("transformer.layer.{layer}.")),
            Self::Gpt2 => ("gpt2", format!("h.{layer}.")),
            Self::Mha => ("mha", String::new()),
        };
        SCHEMES.iter().find(|scheme| scheme.name == name).map(|scheme| (scheme, prefix))
    }
}

impl Projections {
    /// Weights of the layer with heads of dimension `r`, and what each head lost.
    pub fn unfold(layer: &AttentionLayer, r: usize) -> Result<(Self, Vec<Lost>)> {
        layer.require_plain("the models that are written here have no place for it")?;
        let (d, d_out, m) = (layer.d(), layer.d_out(), layer.heads().len());
        if r == 0 {
            return Err(Error::input("head dimension", "it is 0", "give at least 1"));
        }
        if r > d {
            // No head has more to hold: Θ and W have at most d singular values.
            return Err(Error::input("head dimension", format!("it is {r}, more than d = {d}"), format!("give at most {d}")));
        }
        if let Some((h, what)) = layer.heads().iter().enumerate().find_map(|(h, head)| Some((h, overflows(head)?))) {
            return Err(Error::input(format!("head {}", h + 1), format!("{what} is not finite"), "scale the layer down"));
        }
        let scale = 1.0 / (r as f64).sqrt();
        let zeros = |rows, cols| Mat::<f64>::zeros(rows, cols);
        let (mut q, mut k, mut v, mut o) = (zeros(d, m * r), zeros(d, m * r), zeros(d, m * r), zeros(m * r, d_out));
        let mut q_bias = vec![0.0; m * r];
        let mut lost = Vec::with_capacity(m);
        for (h, head) in layer.heads().iter().enumerate() {
            let theta = head.theta.to_dense();
            let [left, right] = factors(&theta, r)?;
            let mut k_h = right * faer::Scale(scale.powf(-0.5));
            let q_h = left * faer::Scale(scale.powf(-0.5));
            let mut key_bias = 0.0;
            if let Some(c) = &head.key_bias {
                let (bias, rest) = query_bias(&mut k_h, c, scale);
                q_bias[h * r..(h + 1) * r].copy_from_slice(&bias);
                key_bias = rest;
            }
            let [values, out] = factors(&head.w, r)?;
            let gap = |wanted: &Mat<f64>, made: Mat<f64>| {
                let (left, size) = (below(&(wanted - made), magnitude(wanted)), below(wanted, magnitude(wanted)));
                let size = frobenius(size.as_ref());
                if size > 0.0 { frobenius(left.as_ref()) / size } else { 0.0 }
            };
            lost.push(Lost {
                theta: gap(&theta, &q_h * k_h.transpose() * faer::Scale(scale)),
                key_bias,
                w: gap(&head.w, &values * out.transpose()),
            });
            q.as_mut().subcols_mut(h * r, r).copy_from(&q_h);
            k.as_mut().subcols_mut(h * r, r).copy_from(&k_h);
            v.as_mut().subcols_mut(h * r, r).copy_from(&values);
            o.as_mut().subrows_mut(h * r, r).copy_from(out.transpose());
        }
        let o_bias = layer.bias().map_or_else(|| vec![0.0; d_out], <[f64]>::to_vec);
        let (k_bias, v_bias) = (vec![0.0; m * r], vec![0.0; m * r]);
        Ok((Self { heads: m, scale, mask: layer.mask(), q, k, v, o, q_bias, k_bias, v_bias, o_bias }, lost))
    }

    /// The least head dimension at which nothing but rounding is lost in this style; none if the style cannot hold the layer.
    pub fn head_dim_for(layer: &AttentionLayer, style: Style) -> Result<Option<usize>> {
        layer.require_plain("the models that are written here have no place for it")?;
        let (d, m) = (layer.d(), layer.heads().len());
        let allowed = |r: usize| style == Style::Factors || (d.is_multiple_of(r) && d / r >= m);
        let mut least = 1;
        for head in layer.heads() {
            let theta = singular(&head.theta.to_dense())?;
            least = least.max(rank(&theta)).max(rank(&singular(&head.w)?));
            if let Some(c) = &head.key_bias {
                least = least.max(room_for(&theta, c));
            }
        }
        Ok((least..=d).find(|r| allowed(*r)))
    }

    /// The contents of a safetensors file in double precision; `layer` is the number that names get. Who reads it divides scores by `√r`: of
    /// another scale, queries take the rest.
    pub fn to_bytes(&self, style: Style, layer: usize) -> Result<Vec<u8>> {
        let usual = 1.0 / (self.head_dim() as f64).sqrt();
        if (self.scale - usual).abs() > 0.0 {
            let rest = self.scale / usual;
            let q_bias = self.q_bias.iter().map(|b| rest * b).collect();
            return Self { scale: usual, q: &self.q * faer::Scale(rest), q_bias, ..self.clone() }.to_bytes(style, layer);
        }
        let mut tensors: Vec<(String, Vec<usize>, Vec<f64>)> = Vec::new();
        if let Some((scheme, prefix)) = style.scheme(layer) {
            let whole = self.whole(style)?;
            let mut matrix = |name: String, w: &Mat<f64>| {
                let (rows, cols) = if scheme.input_first { (w.nrows(), w.ncols()) } else { (w.ncols(), w.nrows()) };
                let at = |i: usize, j: usize| if scheme.input_first { w[(i, j)] } else { w[(j, i)] };
                let numbers = (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect();
                tensors.push((format!("{prefix}{name}"), vec![rows, cols], numbers));
            };
            let mut biases = Vec::new();
            match scheme.parts {
                Parts::Three(names) => {
                    let all = [(&whole.q, &whole.q_bias), (&whole.k, &whole.k_bias), (&whole.v, &whole.v_bias)];
                    for (name, (w, bias)) in names.into_iter().zip(all) {
                        matrix(format!("{name}.weight"), w);
                        biases.push((format!("{prefix}{name}.bias"), bias.clone()));
                    }
                }
                Parts::Fused(_) | Parts::InProj => {
                    let [weight, bias] = match scheme.parts {
                        Parts::Fused(name) => [format!("{name}.weight"), format!("{name}.bias")],
                        _ => ["in_proj_weight".into(), "in_proj_bias".into()],
                    };
                    let width = whole.q.ncols();
                    let part = |j: usize| [&whole.q, &whole.k, &whole.v][j / width];
                    matrix(weight, &Mat::from_fn(whole.q.nrows(), 3 * width, |i, j| part(j)[(i, j % width)]));
                    biases.push((format!("{prefix}{bias}"), [&whole.q_bias[..], &whole.k_bias, &whole.v_bias].concat()));
                }
            }
            matrix(format!("{}.weight", scheme.output), &whole.o);
            biases.push((format!("{prefix}{}.bias", scheme.output), whole.o_bias.clone()));
            tensors.extend(biases.into_iter().map(|(name, bias)| (name, vec![bias.len()], bias)));
        } else {
            let (d, r, m, d_out) = (self.q.nrows(), self.head_dim(), self.heads, self.o.ncols());
            for (name, w) in [("q", &self.q), ("k", &self.k), ("v", &self.v)] {
                let numbers = (0..m * d * r).map(|at| w[(at / r % d, at / (d * r) * r + at % r)]).collect();
                tensors.push((name.into(), vec![m, d, r], numbers));
            }
            let numbers = (0..m * r * d_out).map(|at| self.o[(at / d_out, at % d_out)]).collect();
            tensors.push(("o".into(), vec![m, r, d_out], numbers));
            tensors.push(("q_bias".into(), vec![m, r], self.q_bias.clone()));
            tensors.push(("bias".into(), vec![d_out], self.o_bias.clone()));
        }
        for (name, _, numbers) in &tensors {
            // Programs that read a family's names hold the numbers in single precision.
            let most = if style == Style::Factors { f64::MAX } else { f64::from(f32::MAX) };
            if let Some(v) = numbers.iter().find(|v| v.is_nan() || v.abs() > most) {
                let problem = format!("the tensor {name} would hold {v:.1e}, beyond {most:.1e}");
                return Err(Error::input("export", problem, "scale the layer down, or export plain factors of moderate size"));
            }
        }
        let mask = if self.mask == Mask::Causal { "causal" } else { "none" };
        let heads = if style == Style::Factors { self.heads } else { self.q.nrows() / self.head_dim() };
        let metadata = BTreeMap::from([
            ("format".to_owned(), "pt".to_owned()),
            ("mask".to_owned(), mask.to_owned()),
            ("heads".to_owned(), heads.to_string()),
        ]);
        let specs: Vec<_> = tensors
            .iter()
            .map(|(name, shape, _)| TensorSpec { name: name.clone().into(), dtype: Dtype::F64, shape: shape.clone() })
            .collect();
        let (mut bytes, _) = layout(&specs, &metadata);
        for (_, _, numbers) in &tensors {
            bytes.extend(numbers.iter().flat_map(|v| v.to_le_bytes()));
        }
        Ok(bytes)
    }

    /// With as many heads as `d/r`, the rest of them silent: transformers want `m r = d`.
    fn whole(&self, style: Style) -> Result<Self> {
        let (d, r) = (self.q.nrows(), self.head_dim());
        let bad = |problem: String, remedy: String| Err(Error::input("export", problem, remedy));
        if self.o.ncols() != d {
            let problem = format!("the layer maps {d} numbers to {}, a transformer's to as many", self.o.ncols());
            return bad(problem, "export plain factors".into());
        }
        if !d.is_multiple_of(r) || d / r < self.heads {
            let problem = format!("{} heads of dimension {r} do not make up {d}", self.heads);
            return bad(problem, format!("give a divisor of {d} of at most {}, or export plain factors", d / self.heads));
        }
        match (style, self.mask) {
            (Style::Gpt2, Mask::None) => {
                return bad("GPT-2's layers are causal and this one is not".into(), "choose another".into());
            }
            (Style::Bert | Style::Vit | Style::DistilBert, Mask::Causal) => {
                return bad("this layer is causal and those of that family are not".into(), "export for gpt2 or mha".into());
            }
            _ => {}
        }
        let wide = |w: &Mat<f64>| Mat::from_fn(d, d, |i, j| if j < w.ncols() { w[(i, j)] } else { 0.0 });
        let long = |bias: &[f64]| (0..d).map(|j| bias.get(j).copied().unwrap_or(0.0)).collect::<Vec<f64>>();
        Ok(Self {
            heads: d / r,
            q: wide(&self.q),
            k: wide(&self.k),
            v: wide(&self.v),
            o: Mat::from_fn(d, d, |i, j| if i < self.o.nrows() { self.o[(i, j)] } else { 0.0 }),
            q_bias: long(&self.q_bias),
            k_bias: long(&self.k_bias),
            v_bias: long(&self.v_bias),
            ..self.clone()
        })
    }
}

/// A singular value decomposition: `U`, the values and `V`.
struct Singular {
    u: Mat<f64>,
    values: Vec<f64>,
    v: Mat<f64>,
}

/// A power of two near the largest entry; 1 if there is none.
fn magnitude(a: &Mat<f64>) -> f64 {
    let largest = a.norm_max();
    if largest > 0.0 && largest.is_finite() { largest.log2().floor().exp2() } else { 1.0 }
}

/// `A/s`: squares of enormous or tiny numbers are none.
fn below(a: &Mat<f64>, s: f64) -> Mat<f64> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| a[(i, j)] / s)
}

/// As [`below`], of a vector; and `s`.
fn moderate(v: &[f64]) -> (Vec<f64>, f64) {
    let s = magnitude(&faer::ColRef::from_slice(v).as_mat().to_owned());
    (v.iter().map(|v| v / s).collect(), s)
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn singular(a: &Mat<f64>) -> Result<Singular> {
    let by = magnitude(a);
    let svd = below(a, by).thin_svd().map_err(|_| {
        Error::input("layer", "a matrix has no singular values", "check that its numbers are finite and moderate")
    })?;
    Ok(Singular {
        u: svd.U().to_owned(),
        values: svd.S().column_vector().iter().map(|value| by * value).collect(),
        v: svd.V().to_owned(),
    })
}

impl Singular {
    /// Whether a value is more than rounding.
    fn counts(&self, j: usize) -> bool {
        let largest = self.values.iter().copied().fold(0.0, f64::max);
        self.values.get(j).is_some_and(|value| *value > RANK * largest)
    }
}

/// How many values must be kept for [`ROUNDING`] to be all that is lost.
fn rank(a: &Singular) -> usize {
    let (values, _) = moderate(&a.values);
    let all = norm(&values);
    (0..values.len()).find(|&r| norm(&values[r..]) <= ROUNDING * all).unwrap_or(values.len())
}

/// How many columns of `K` a key bias asks for: those of `V` that make it up, or one more than there are.
fn room_for(theta: &Singular, c: &[f64]) -> usize {
    let (mut rest, _) = moderate(c);
    let all = norm(&rest);
    let mut j = 0;
    loop {
        if norm(&rest) <= ROUNDING * all {
            return j;
        }
        if !theta.counts(j) {
            return j + 1;
        }
        let along: f64 = rest.iter().enumerate().map(|(e, rest)| theta.v[(e, j)] * rest).sum();
        rest.iter_mut().enumerate().for_each(|(e, rest)| *rest -= along * theta.v[(e, j)]);
        j += 1;
    }
}

/// `A ≈ L Rᵀ` with `r` columns each, by the singular values: zeros where `A` has fewer.
fn factors(a: &Mat<f64>, r: usize) -> Result<[Mat<f64>; 2]> {
    let svd = singular(a)?;
    let root = |j: usize| if svd.counts(j) { svd.values[j].sqrt() } else { 0.0 };
    let part = |u: &Mat<f64>| Mat::from_fn(u.nrows(), r, |i, j| if root(j) > 0.0 { u[(i, j)] * root(j) } else { 0.0 });
    Ok([part(&svd.u), part(&svd.v)])
}

/// `b` with `s K b = c`, and what is left of `c`, relatively. The columns of `K` are orthogonal; one that is zero, whose query is zero too,
/// takes what the others leave.
fn query_bias(k: &mut Mat<f64>, c: &[f64], scale: f64) -> (Vec<f64>, f64) {
    let (mut rest, by) = moderate(c);
    let all = norm(&rest);
    let mut bias = vec![0.0; k.ncols()];
    for j in 0..k.ncols() {
        let column = k.subcols(j, 1).to_owned();
        let s = magnitude(&column);
        let column = below(&column, s);
        let size = frobenius(column.as_ref());
        if size > 0.0 {
            let along = rest.iter().enumerate().map(|(e, rest)| column[(e, 0)] * rest).sum::<f64>() / size;
            bias[j] = along / (scale * size) * (by / s);
            for (e, rest) in rest.iter_mut().enumerate() {
                *rest -= along * (column[(e, 0)] / size);
            }
        }
    }
    let left = norm(&rest);
    let free = (0..k.ncols()).find(|&j| (0..k.nrows()).all(|e| k[(e, j)].abs() <= 0.0));
    match free {
        Some(j) if left > 0.0 => {
            for (e, rest) in rest.iter().enumerate() {
                k[(e, j)] = rest / left;
            }
            bias[j] = left / scale * by;
            (bias, 0.0)
        }
        _ => (bias, if all > 0.0 { left / all } else { 0.0 }),
    }
}
