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
//! Biases that are absent are zero; VideoMAE and EVA have those of queries and values alone, as `q_bias` and `v_bias`. Whatever stands before
//! (`bert.`, `transformer.`, …) is found, not asked for. Names do not say how many heads share the numbers: that stands in `config.json`, or is
//! given. What else a layer must not have is said in `held`.

use super::Projections;
use super::held::layer_name;
use super::model::ModelFile;
use super::reference::gap;
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
    /// What the names of the attention module begin with: every tensor of it must be used.
    pub module: &'static str,
    /// What stands before `q_bias`, `k_bias` and `v_bias`, where biases may stand apart from their weights.
    pub separate_biases: Option<&'static str>,
    /// Names in the module, or their beginnings, that do not change what it computes.
    pub harmless: &'static [(&'static str, Harmless)],
}

/// Why a tensor that is not used changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harmless {
    /// A norm before the layer's input or after its output.
    Norm,
    /// The causal mask: a lower triangle of ones.
    Causal,
    /// The logit of a hidden key.
    Hidden,
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
        module: "attention.",
        separate_biases: None,
        harmless: &[
            ("attention.output.LayerNorm.", Harmless::Norm),
            ("attention.LayerNorm.", Harmless::Norm),
            ("attention.ln.", Harmless::Norm),
            ("attention.self_attn_layer_norm.", Harmless::Norm),
        ],
    },
    Scheme {
        name: "vit",
        parts: Parts::Three(["attention.attention.query", "attention.attention.key", "attention.attention.value"]),
        output: "attention.output.dense",
        input_first: false,
        mask: Mask::None,
        module: "attention.",
        separate_biases: Some("attention.attention."),
        harmless: &[],
    },
    Scheme {
        name: "timm",
        parts: Parts::Fused("attn.qkv"),
        output: "attn.proj",
        input_first: false,
        mask: Mask::None,
        module: "attn.",
        separate_biases: Some("attn."),
        harmless: &[],
    },
    Scheme {
        name: "distilbert",
        parts: Parts::Three(["attention.q_lin", "attention.k_lin", "attention.v_lin"]),
        output: "attention.out_lin",
        input_first: false,
        mask: Mask::None,
        module: "attention.",
        separate_biases: None,
        harmless: &[],
    },
    Scheme {
        name: "gpt2",
        parts: Parts::Fused("attn.c_attn"),
        output: "attn.c_proj",
        input_first: true,
        mask: Mask::Causal,
        module: "attn.",
        separate_biases: None,
        harmless: &[("attn.bias", Harmless::Causal), ("attn.masked_bias", Harmless::Hidden)],
    },
    Scheme {
        name: "mha",
        parts: Parts::InProj,
        output: "out_proj",
        input_first: false,
        mask: Mask::None,
        module: "",
        separate_biases: None,
        harmless: &[],
    },
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

    /// Every tensor that is read, if it is there.
    pub fn used(&self) -> Vec<String> {
        let pair = |name: &str| [format!("{name}.weight"), format!("{name}.bias")];
        let mut used: Vec<String> = match self.parts {
            Parts::Three(names) => names.into_iter().flat_map(pair).collect(),
            Parts::Fused(name) => pair(name).into(),
            Parts::InProj => ["in_proj_weight".into(), "in_proj_bias".into()].into(),
        };
        used.extend(pair(self.output));
        used.extend(self.separate_biases.iter().flat_map(|start| SEPARATE.map(|name| format!("{start}{name}"))));
        used
    }
}

/// Biases that stand apart from their weights.
pub(super) const SEPARATE: [&str; 3] = ["q_bias", "k_bias", "v_bias"];

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

/// A layer out of a model.
#[derive(Clone, Debug)]
pub struct Imported {
    /// In canonical form.
    pub layer: AttentionLayer,
    /// Its weights.
    pub projections: Projections,
    /// Where it was found.
    pub found: Found,
    /// All tensors of the attention module that were used; there are no others but buffers that change nothing.
    pub tensors: Vec<String>,
    /// Largest difference between the canonical form and a forward pass by those tensors as they stand in the file, over the largest output.
    pub gap: f64,
    /// Whether a configuration names a type of model whose attention is of this form. Otherwise only the tensors speak for it.
    pub confirmed: bool,
}

/// Above this the canonical form is not the layer.
const MOST: f64 = 1e-10;

impl ModelFile {
    /// All layers of self-attention, by their prefixes' numbers.
    pub fn layers(&self) -> Vec<Found> {
        let mut found: Vec<Found> = self
            .names()
            .filter_map(|name| {
                let (scheme, prefix) = SCHEMES.iter().find_map(|scheme| Some((scheme, at_a_dot(name, &scheme.anchor())?)))?;
                // A decoder of PyTorch has two attentions; the second one reads its keys elsewhere.
                let across =
                    prefix.strip_suffix("multihead_attn.").is_some_and(|p| self.has(&format!("{p}self_attn.in_proj_weight")));
                (!across).then(|| Found { family: scheme.name, prefix: prefix.to_owned(), layer: last_number(prefix) })
            })
            .collect();
        found.sort_by(|a, b| (a.layer, &a.prefix).cmp(&(b.layer, &b.prefix)));
        found
    }

    /// The layer that is asked for in canonical form, checked against a forward pass by all its tensors.
    pub fn import(&self, request: &Request) -> Result<Imported> {
        let (projections, found, confirmed) = self.attend(request)?;
        let scheme = self.scheme(&found)?;
        let place = format!("{}, layer {}", self.place, found.layer);
        let layer = projections.fold_at(&place)?;
        let gap = gap(self, scheme, &found.prefix, &projections, &layer)?;
        if gap.is_nan() || gap > MOST {
            let problem = format!("its canonical form differs from the original by {gap:.1e}");
            return Err(Error::input(place, problem, "look for weights of enormous size"));
        }
        let used = scheme.used().into_iter().map(|name| format!("{}{name}", found.prefix));
        let tensors = used.filter(|name| self.has(name)).collect();
        Ok(Imported { layer, projections, found, tensors, gap, confirmed })
    }

    /// The weights of the layer that is asked for, and where they were found.
    pub fn attention(&self, request: &Request) -> Result<(Projections, Found)> {
        self.attend(request).map(|(projections, found, _)| (projections, found))
    }

    fn attend(&self, request: &Request) -> Result<(Projections, Found, bool)> {
        let confirmed = self.refuse_other_scores()?;
        let found = self.find(request)?;
        let scheme = self.scheme(&found)?;
        self.refuse_other_layer(scheme, &found, request, confirmed)?;
        let heads = self.heads(request)?;
        let projections = self.read(scheme, &found, heads, request.causal)?;
        let place = format!("{}, layer {}", self.place, found.layer);
        projections.check(&place)?;
        self.refuse_other_sizes(&projections, &found)?;
        Ok((projections, found, confirmed))
    }

    fn scheme(&self, found: &Found) -> Result<&'static Scheme> {
        SCHEMES.iter().find(|scheme| scheme.name == found.family).ok_or_else(|| self.unknown())
    }

    fn find(&self, request: &Request) -> Result<Found> {
        let layers = self.layers();
        if layers.is_empty() {
            return Err(self.unknown());
        }
        let prefixes =
            |layers: &[&Found]| layers.iter().take(8).map(|l| format!("'{}'", quoted(&l.prefix))).collect::<Vec<_>>().join(", ");
        if let Some(prefix) = &request.prefix {
            let trimmed = prefix.trim_end_matches('.');
            return layers.iter().find(|l| l.prefix.trim_end_matches('.') == trimmed).cloned().ok_or_else(|| {
                let all: Vec<&Found> = layers.iter().take(8).collect();
                Error::input(
                    &self.place,
                    format!("no layer has the prefix '{}'", quoted(prefix)),
                    format!("there are {}", prefixes(&all)),
                )
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

    fn heads(&self, request: &Request) -> Result<usize> {
        let keys = ["num_attention_heads", "n_head", "n_heads", "num_heads"];
        let number = keys.iter().find_map(|key| self.setting(key)).and_then(Value::as_u64);
        let stated = number.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        match (request.heads, stated) {
            (Some(given), Some(stated)) if given != stated => {
                let problem = format!("its configuration says that there are {stated} heads, and {given} were asked for");
                Err(Error::input(&self.place, problem, "leave --heads out, or mend config.json"))
            }
            (Some(heads), _) | (None, Some(heads)) => Ok(heads),
            (None, None) => {
                let problem = "the tensors do not say how many heads share them, and no config.json beside them does";
                Err(Error::input(&self.place, problem, "give their number with --heads"))
            }
        }
    }

    /// Refuses weights that the configuration contradicts.
    fn refuse_other_sizes(&self, projections: &Projections, found: &Found) -> Result<()> {
        let (heads, d, r) = (projections.heads, projections.q.nrows(), projections.head_dim());
        let wanted = [
            ("num_key_value_heads", heads),
            ("num_kv_heads", heads),
            ("head_dim", r),
            ("attention_head_size", r),
            ("hidden_size", d),
            ("n_embd", d),
            ("dim", d),
        ];
        for (key, size) in wanted {
            if let Some(stated) = self.setting(key).and_then(Value::as_u64)
                && stated != size as u64
            {
                let problem =
                    format!("its configuration says {key} = {stated}, and the weights of {} say {size}", layer_name(found));
                return Err(Error::input(
                    &self.place,
                    problem,
                    "give the configuration of this model; heads that share keys are not of this form",
                ));
            }
        }
        let pruned = self.setting("pruned_heads").and_then(|pruned| pruned.get(found.layer.to_string()));
        if pruned.and_then(Value::as_array).is_some_and(|heads| !heads.is_empty()) {
            let problem = format!("its configuration says that heads of {} are pruned", layer_name(found));
            return Err(Error::input(
                &self.place,
                problem,
                "give the number of the heads that are left in a config.json without pruned_heads",
            ));
        }
        Ok(())
    }

    fn read(&self, scheme: &Scheme, found: &Found, heads: usize, causal: Option<bool>) -> Result<Projections> {
        let prefix = &found.prefix;
        let weight = |name: &str| -> Result<Mat<f64>> {
            let stored = self.matrix(&format!("{prefix}{name}"))?;
            Ok(if scheme.input_first { stored } else { stored.transpose().to_owned() })
        };
        let bias = |name: &str, w: &Mat<f64>| self.vector(&format!("{prefix}{name}"), w.ncols());
        let ([q, k, v], mut biases) = match scheme.parts {
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
                    let place = format!("{}, {}{}", self.place, quoted(prefix), names[0]);
                    return Err(Error::input(place, problem, "queries, keys and values must have as many each"));
                }
                let third = all.ncols() / 3;
                let part = |i: usize| (all.subcols(i * third, third).to_owned(), biases[i * third..(i + 1) * third].to_vec());
                let [(q, b_q), (k, b_k), (v, b_v)] = [0, 1, 2].map(part);
                ([q, k, v], [b_q, b_k, b_v])
            }
        };
        if let Some(start) = scheme.separate_biases {
            for ((name, w), bias) in SEPARATE.iter().zip([&q, &k, &v]).zip(&mut biases) {
                let name = format!("{prefix}{start}{name}");
                if self.has(&name) {
                    *bias = self.vector(&name, w.ncols())?;
                }
            }
        }
        let [q_bias, k_bias, v_bias] = biases;
        let o = weight(&format!("{}.weight", scheme.output))?;
        let o_bias = bias(&format!("{}.bias", scheme.output), &o)?;
        let head_dim = (q.ncols() / heads.max(1)).max(1) as f64;
        let flag = |key: &str| self.setting(key).and_then(Value::as_bool);
        let mut scale = if flag("scale_attn_weights") == Some(false) { 1.0 } else { 1.0 / head_dim.sqrt() };
        if flag("scale_attn_by_inverse_layer_idx") == Some(true) {
            scale /= found.layer as f64 + 1.0;
        }
        let decoder = ["is_decoder", "is_causal"].iter().any(|key| flag(key) == Some(true));
        let mask = match causal {
            Some(true) => Mask::Causal,
            Some(false) => Mask::None,
            None if decoder => Mask::Causal,
            None => self.mask_of_file().unwrap_or(scheme.mask),
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
