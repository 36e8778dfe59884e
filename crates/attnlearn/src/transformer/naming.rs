//! What transformers call their weights.
//!
//! | family | layer `i` | queries, keys, values | output | stored |
//! |---|---|---|---|---|
//! | BERT, RoBERTa, MiniLM | `encoder.layer.i.` | `attention.self.{query,key,value}` | `attention.output.dense` | `[out, in]` |
//! | ViT | `encoder.layer.i.` | `attention.attention.{query,key,value}` | `attention.output.dense` | `[out, in]` |
//! | ViT (timm) | `blocks.i.` | `attn.qkv`, in one | `attn.proj` | `[out, in]` |
//! | DistilBERT | `transformer.layer.i.` | `attention.{q,k,v}_lin` | `attention.out_lin` | `[out, in]` |
//! | GPT-2 | `h.i.` | `attn.c_attn`, in one | `attn.c_proj` | `[in, out]`, causal |
//! | `torch.nn.MultiheadAttention` | any | `in_proj_weight`, in one | `out_proj` | `[out, in]` |
//!
//! Whatever stands before (`bert.`, `transformer.`, …) is found, not asked for. Names do not say how many heads share the numbers: that stands in
//! `config.json`, or is given.

use super::Projections;
use super::model::ModelFile;
use crate::layer::{AttentionLayer, Mask};
use crate::linalg::Mat;
use crate::words::quoted;
use crate::{Error, Result};
use serde::Serialize;
use serde_json::Value;

/// How a family names and stores the weights of a layer, after the prefix of the layer.
pub(super) struct Scheme {
    pub name: &'static str,
    pub parts: Parts,
    pub output: &'static str,
    /// Whether matrices stand as `[in, out]`.
    pub input_first: bool,
    pub mask: Mask,
}

/// Where queries, keys and values stand.
pub(super) enum Parts {
    /// Each in its own linear map of this name.
    Three([&'static str; 3]),
    /// In one linear map of this name.
    Fused(&'static str),
    /// In one, as PyTorch's own layer has them: the names of weights and biases.
    InProj,
}

pub(super) const SCHEMES: [Scheme; 6] = [
    Scheme {
        name: "bert",
        parts: Parts::Three(["attention.self.query", "attention.self.key", "attention.self.value"]),
        output: "attention.output.dense",
        input_first: false,
        mask: Mask::None,
    },
    Scheme {
        name: "vit",
        parts: Parts::Three(["attention.attention.query", "attention.attention.key", "attention.attention.value"]),
        output: "attention.output.dense",
        input_first: false,
        mask: Mask::None,
    },
    Scheme { name: "timm", parts: Parts::Fused("attn.qkv"), output: "attn.proj", input_first: false, mask: Mask::None },
    Scheme {
        name: "distilbert",
        parts: Parts::Three(["attention.q_lin", "attention.k_lin", "attention.v_lin"]),
        output: "attention.out_lin",
        input_first: false,
        mask: Mask::None,
    },
    Scheme { name: "gpt2", parts: Parts::Fused("attn.c_attn"), output: "attn.c_proj", input_first: true, mask: Mask::Causal },
    Scheme { name: "mha", parts: Parts::InProj, output: "out_proj", input_first: false, mask: Mask::None },
];

impl Scheme {
    /// The tensor by which a layer is found.
    pub fn anchor(&self) -> String {
        match self.parts {
            Parts::Three([query, ..]) => format!("{query}.weight"),
            Parts::Fused(name) => format!("{name}.weight"),
            Parts::InProj => "in_proj_weight".into(),
        }
    }
}

/// Where a layer was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The family whose names it has.
    pub family: &'static str,
    /// What stands before its names.
    pub prefix: String,
    /// The last number in the prefix; 0 if there is none.
    pub layer: usize,
}

/// What is asked of a model.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Which layer, from 0.
    pub layer: usize,
    /// How many heads, if the configuration does not say.
    pub heads: Option<usize>,
    /// What stands before the names of the layer, where several layers have the same number.
    pub prefix: Option<String>,
    /// Whether later tokens are hidden, if not as usual in the family.
    pub causal: Option<bool>,
}

/// Above this the canonical form is not the layer.
const MOST: f64 = 1e-10;

impl ModelFile {
    /// All attention layers, by their prefixes' numbers.
    pub fn layers(&self) -> Vec<Found> {
        let mut found: Vec<Found> = self
            .names()
            .filter_map(|name| {
                let (scheme, prefix) = SCHEMES.iter().find_map(|scheme| Some((scheme, at_a_dot(name, &scheme.anchor())?)))?;
                Some(Found { family: scheme.name, prefix: prefix.to_owned(), layer: last_number(prefix) })
            })
            .collect();
        found.sort_by(|a, b| (a.layer, &a.prefix).cmp(&(b.layer, &b.prefix)));
        found
    }

    /// The layer that is asked for in canonical form, checked against a forward pass by its tensors; those, and where they were found.
    pub fn import(&self, request: &Request) -> Result<(AttentionLayer, Projections, Found)> {
        let (projections, found) = self.attention(request)?;
        let layer = projections.fold()?;
        let gap = projections.gap(&layer);
        if gap.is_nan() || gap > MOST {
            let problem = format!("its canonical form differs from the original by {gap:.1e}");
            return Err(Error::input(&self.place, problem, "look for weights of enormous size"));
        }
        Ok((layer, projections, found))
    }

    /// The weights of the layer that is asked for, and where they were found.
    pub fn attention(&self, request: &Request) -> Result<(Projections, Found)> {
        self.refuse_other_scores()?;
        let found = self.find(request)?;
        let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.name == found.family) else { return Err(self.unknown()) };
        let heads = match request.heads {
            Some(heads) => heads,
            None => self.heads()?,
        };
        let projections = self.read(scheme, &found, heads, request.causal)?;
        let place = format!("{}, layer {}", self.place, found.layer);
        projections.check(&place)?;
        Ok((projections, found))
    }

    fn find(&self, request: &Request) -> Result<Found> {
        let layers = self.layers();
        if layers.is_empty() {
            return Err(self.unknown());
        }
        let prefixes =
            |layers: &[&Found]| layers.iter().map(|l| format!("'{}'", quoted(&l.prefix))).collect::<Vec<_>>().join(", ");
        if let Some(prefix) = &request.prefix {
            let trimmed = prefix.trim_end_matches('.');
            return layers.iter().find(|l| l.prefix.trim_end_matches('.') == trimmed).cloned().ok_or_else(|| {
                let all: Vec<&Found> = layers.iter().take(8).collect();
                Error::input(&self.place, format!("no layer has the prefix '{prefix}'"), format!("there are {}", prefixes(&all)))
            });
        }
        let matching: Vec<&Found> = layers.iter().filter(|l| l.layer == request.layer).collect();
        match matching[..] {
            [one] => Ok(one.clone()),
            [] => {
                let (first, last) = (layers[0].layer, layers[layers.len() - 1].layer);
                let problem = format!("it has no layer {}", request.layer);
                Err(Error::input(&self.place, problem, format!("its layers are {first} to {last}")))
            }
            _ => {
                let problem = format!("several layers have the number {}", request.layer);
                Err(Error::input(&self.place, problem, format!("give one of the prefixes {}", prefixes(&matching))))
            }
        }
    }

    fn unknown(&self) -> Error {
        let names: Vec<&str> = self.names().take(6).collect();
        let more = if self.names().count() > names.len() { ", …" } else { "" };
        let expected: Vec<String> = SCHEMES.iter().map(|scheme| format!("…{} ({})", scheme.anchor(), scheme.name)).collect();
        let found = if names.is_empty() {
            "none".to_owned()
        } else {
            names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
        };
        Error::input(
            &self.place,
            format!("has no attention layer that is known (found: {found}{more})"),
            format!("expected one of {}", expected.join(", ")),
        )
    }

    /// Layers whose scores are not of the form `x_aᵀ Θ x_b + cᵀ x_b` are refused by what gives them away.
    fn refuse_other_scores(&self) -> Result<()> {
        let refuse = |problem: String| Err(Error::input(&self.place, problem, "such scores are not of the form xᵀΘx′ + cᵀx′"));
        for (sign, what) in [
            ("rotary_emb", "rotates queries and keys by their positions (RoPE)"),
            ("self_attn.o_proj.weight", "has LLaMA's names: its scores depend on positions (RoPE)"),
            ("attention.query_key_value.weight", "has GPT-NeoX's or BLOOM's names: its scores depend on positions (RoPE, ALiBi)"),
            ("relative_attention_bias", "adds a bias that depends on positions"),
            ("distance_embedding", "adds scores that depend on distances"),
            ("relative_position", "adds a bias that depends on positions"),
            ("bias_k", "has an extra learned key (add_bias_kv)"),
        ] {
            if let Some(name) = self.names().find(|name| name.contains(sign)) {
                return refuse(format!("{what}; see the tensor {}", quoted(name)));
            }
        }
        match self.setting("position_embedding_type").and_then(Value::as_str) {
            None | Some("absolute") => Ok(()),
            Some(other) => refuse(format!("has position embeddings of type {}", quoted(other))),
        }
    }

    fn heads(&self) -> Result<usize> {
        let keys = ["num_attention_heads", "n_head", "n_heads", "num_heads"];
        let number = keys.iter().find_map(|key| self.setting(key)).and_then(Value::as_u64);
        number.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0).ok_or_else(|| {
            let problem = "the tensors do not say how many heads share them, and no config.json beside them does";
            Error::input(&self.place, problem, "give their number with --heads")
        })
    }

    fn read(&self, scheme: &Scheme, found: &Found, heads: usize, causal: Option<bool>) -> Result<Projections> {
        let prefix = &found.prefix;
        let weight = |name: &str| -> Result<Mat<f64>> {
            let stored = self.matrix(&format!("{prefix}{name}"))?;
            Ok(if scheme.input_first { stored } else { stored.transpose().to_owned() })
        };
        let bias = |name: &str, w: &Mat<f64>| self.vector(&format!("{prefix}{name}"), w.ncols());
        let ([q, k, v], [q_bias, k_bias, v_bias]) = match scheme.parts {
            Parts::Three(names) => {
                let [q, k, v] = names.map(|name| weight(&format!("{name}.weight")));
                let (q, k, v) = (q?, k?, v?);
                let biases = [(names[0], &q), (names[1], &k), (names[2], &v)].map(|(name, w)| bias(&format!("{name}.bias"), w));
                let [b_q, b_k, b_v] = biases;
                ([q, k, v], [b_q?, b_k?, b_v?])
            }
            Parts::Fused(_) | Parts::InProj => {
                let names = match scheme.parts {
                    Parts::Fused(name) => [format!("{name}.weight"), format!("{name}.bias")],
                    _ => ["in_proj_weight".to_owned(), "in_proj_bias".to_owned()],
                };
                let all = weight(&names[0])?;
                let biases = bias(&names[1], &all)?;
                if !all.ncols().is_multiple_of(3) || biases.len() != all.ncols() {
                    let problem = format!("it has {} columns and {} biases", all.ncols(), biases.len());
                    let place = format!("{}, {prefix}{}", self.place, names[0]);
                    return Err(Error::input(place, problem, "queries, keys and values must have as many each"));
                }
                let third = all.ncols() / 3;
                let part = |i: usize| (all.subcols(i * third, third).to_owned(), biases[i * third..(i + 1) * third].to_vec());
                let [(q, b_q), (k, b_k), (v, b_v)] = [0, 1, 2].map(part);
                ([q, k, v], [b_q, b_k, b_v])
            }
        };
        let o = weight(&format!("{}.weight", scheme.output))?;
        let o_bias = bias(&format!("{}.bias", scheme.output), &o)?;
        let head_dim = (q.ncols() / heads.max(1)).max(1) as f64;
        let flag = |key: &str| self.setting(key).and_then(Value::as_bool);
        let mut scale = if flag("scale_attn_weights") == Some(false) { 1.0 } else { 1.0 / head_dim.sqrt() };
        if flag("scale_attn_by_inverse_layer_idx") == Some(true) {
            scale /= (found.layer + 1) as f64;
        }
        let hidden = causal.or_else(|| flag("is_decoder").filter(|decoder| *decoder && scheme.mask == Mask::None));
        let mask = match hidden {
            Some(true) => Mask::Causal,
            Some(false) => Mask::None,
            None => scheme.mask,
        };
        Ok(Projections { heads, scale, mask, q, k, v, o, q_bias, k_bias, v_bias, o_bias })
    }
}

/// What stands before `end` in `name`, if that is nothing or ends in a dot.
fn at_a_dot<'a>(name: &'a str, end: &str) -> Option<&'a str> {
    name.strip_suffix(end).filter(|prefix| prefix.is_empty() || prefix.ends_with('.'))
}

/// The last number between dots or underscores.
fn last_number(prefix: &str) -> usize {
    prefix.rsplit(['.', '_']).find_map(|part| part.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_numbers() {
        for (prefix, number) in
            [("", 0), ("bert.encoder.layer.11.", 11), ("encoder.layers.encoder_layer_3.self_attention.", 3), ("h2.attn.", 0)]
        {
            assert_eq!(last_number(prefix), number, "{prefix}");
        }
        assert_eq!(at_a_dot("h.0.attn.c_attn.weight", "attn.c_attn.weight"), Some("h.0."));
        assert_eq!(at_a_dot("crossattn.c_attn.weight", "attn.c_attn.weight"), None);
    }
}
