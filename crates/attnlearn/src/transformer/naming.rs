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

use super::model::ModelFile;
use crate::layer::Mask;
use serde::Serialize;

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
    /// Names in the module, or beginnings of names that end in a dot, that do not change what it computes.
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

    /// Where the biases of queries, keys and values stand if they do not stand apart.
    pub fn usual_biases(&self) -> [String; 3] {
        match self.parts {
            Parts::Three(names) => names.map(|name| format!("{name}.bias")),
            Parts::Fused(name) => [name; 3].map(|name| format!("{name}.bias")),
            Parts::InProj => ["in_proj_bias"; 3].map(str::to_owned),
        }
    }

    /// Why a tensor of the module that is not used changes nothing, if it does not. A name without a final dot is a whole one.
    pub fn harmless(&self, name: &str) -> Option<Harmless> {
        let is = |known: &str| if known.ends_with('.') { name.starts_with(known) } else { name == known };
        self.harmless.iter().find(|(known, _)| is(known)).map(|(_, kind)| *kind)
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

impl ModelFile {
    /// All layers of self-attention, by their prefixes' numbers.
    pub fn layers(&self) -> Vec<Found> {
        let mut found = self.with_known_names();
        found.retain(|found| self.attends_elsewhere(found).is_none());
        found
    }

    /// All layers with names of a family, those that attend elsewhere too.
    pub(super) fn with_known_names(&self) -> Vec<Found> {
        let anchors = SCHEMES.each_ref().map(|scheme| (scheme.name, scheme.anchor()));
        let of = |name: &str| {
            let (family, prefix) = anchors.iter().find_map(|(family, anchor)| Some((*family, at_a_dot(name, anchor)?)))?;
            Some(Found { family, prefix: prefix.to_owned(), layer: last_number(prefix) })
        };
        let mut found: Vec<Found> = self.names().filter_map(of).collect();
        found.sort_by(|a, b| (a.layer, &a.prefix).cmp(&(b.layer, &b.prefix)));
        found
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
