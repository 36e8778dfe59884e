//! What names of tensors give away, wherever in a model they stand.

use super::{BIASES, ROTATES, SLOPES, layer_name};
use crate::transformer::model::ModelFile;
use crate::transformer::naming::Found;
use crate::words::quoted;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// How a name gives itself away.
pub(super) enum Mark {
    /// It has this in it.
    Within(&'static str),
    /// Cut at dots, underscores and slashes, this is one of its parts.
    Part(&'static str),
    /// Cut at dots, this is one of its parts.
    Named(&'static str),
    /// It ends like this.
    End(&'static str),
}

impl Mark {
    pub fn is_on(&self, name: &str) -> bool {
        match self {
            Self::Within(sign) => name.contains(sign),
            Self::Part(sign) => name.split(['.', '_', '/']).any(|part| part == *sign),
            Self::Named(sign) => name.split('.').any(|part| part == *sign),
            Self::End(sign) => name.ends_with(sign),
        }
    }
}

/// Names, in small letters, of tensors that belong to other scores, wherever in a model they stand.
const MARKS: &[(Mark, &str)] = &[
    (Mark::Within("rotary"), ROTATES),
    (Mark::Part("rope"), ROTATES),
    (Mark::Within("inv_freq"), ROTATES),
    (Mark::Within("freqs_cis"), ROTATES),
    (Mark::Within("freqs_cos"), ROTATES),
    (Mark::Within("freqs_sin"), ROTATES),
    (Mark::End("self_attn.o_proj.weight"), "has LLaMA's names: its scores depend on positions (RoPE)"),
    (
        Mark::End("attention.query_key_value.weight"),
        "has GPT-NeoX's or BLOOM's names: its scores depend on positions (RoPE, ALiBi)",
    ),
    (Mark::Within("encoder_transformer.transformer.layers."), "has Mimi's names: its scores depend on positions (RoPE)"),
    (Mark::Within("depformer"), "has Moshi's names: its scores depend on positions (RoPE)"),
    // The encoder of DETR hides no tensor of its own either: its positions are sines.
    (Mark::Named("query_embed"), "adds positions to queries and keys and not to values, as DETR does"),
    (Mark::Named("joint_blocks"), "attends to two sequences at once (MM-DiT)"),
    (Mark::Within("distance_embedding"), "adds scores that depend on distances"),
    (Mark::Within("relative"), BIASES),
    (Mark::Within("rel_pos"), BIASES),
    (Mark::Within("relpos"), BIASES),
    (Mark::Within("rel_bias"), BIASES),
    (Mark::Within("rel_embeddings"), BIASES),
    (Mark::Within("position_bias"), BIASES),
    (Mark::Within("pos_bias"), BIASES),
    (Mark::Within("attention_bias"), BIASES),
    (Mark::Part("rpe"), BIASES),
    (Mark::Part("rpb"), BIASES),
    (Mark::Within("alibi"), SLOPES),
    (Mark::Part("slopes"), SLOPES),
    (Mark::Within("attn_mask"), "has a mask of its own"),
    (Mark::Within("attention_mask"), "has a mask of its own"),
];

/// Embeddings of tokens, and of positions: a whole model that has the first has the second, or positions come in elsewhere.
const TOKENS: &[Mark] =
    &[Mark::Within("word_embeddings"), Mark::End("wte.weight"), Mark::Within("tokens_embed"), Mark::Within("patch_embed")];
const POSITIONS: &[Mark] = &[
    Mark::Within("position_embedding"),
    Mark::End("wpe.weight"),
    Mark::Within("positions_embed"),
    Mark::Within("pos_embed"),
    Mark::Within("positional_embedding"),
];

const REMEDY: &str = "such scores are not of the form xᵀΘx′ + cᵀx′, unless the tensor is of another part of the model: then give the layer's part alone";

/// What the names of all tensors say of the positions of tokens.
#[derive(Default)]
pub(super) struct Positions<'a> {
    /// Embeddings of tokens in a model that has none of positions.
    missing: Option<&'a str>,
    /// Two layers of different widths, by what their prefixes are without digits.
    uneven: BTreeMap<String, [String; 2]>,
}

impl ModelFile {
    /// Refuses models with a marked tensor. Every name is made small once.
    pub(super) fn refuse_marks(&self, layers: &[Found]) -> Result<Positions<'_>> {
        let (mut tokens, mut positions) = (None, false);
        for name in self.names() {
            let lower = name.to_lowercase();
            if let Some((_, what)) = MARKS.iter().find(|(mark, _)| mark.is_on(&lower)) {
                return Err(Error::input(&self.place, format!("{what}; see the tensor {}", quoted(name)), REMEDY));
            }
            tokens = tokens.or_else(|| TOKENS.iter().any(|mark| mark.is_on(&lower)).then_some(name));
            positions |= POSITIONS.iter().any(|mark| mark.is_on(&lower));
        }
        Ok(Positions { missing: tokens.filter(|_| !positions), uneven: self.uneven(layers) })
    }

    /// Stages whose layers differ in width. Layers whose prefixes differ in more than numbers are no stages of one model, but two models.
    fn uneven(&self, layers: &[Found]) -> BTreeMap<String, [String; 2]> {
        let mut first: BTreeMap<String, &Found> = BTreeMap::new();
        let mut uneven = BTreeMap::new();
        let width = |layer: &Found| self.shape(&format!("{}attn.qkv.weight", layer.prefix));
        for layer in layers.iter().filter(|layer| layer.family == "timm") {
            let before = *first.entry(kind(layer)).or_insert(layer);
            if width(before) != width(layer) {
                uneven.entry(kind(layer)).or_insert_with(|| [before, layer].map(layer_name));
            }
        }
        uneven
    }

    /// Where no type confirms the form: signs that positions enter the scores without a tensor.
    pub(super) fn refuse_hidden_positions(&self, positions: &Positions<'_>, found: &Found) -> Result<()> {
        if let Some(tokens) = positions.missing {
            let problem =
                format!("has embeddings of tokens ({}) and none of positions, which must then enter the scores", quoted(tokens));
            let remedy = "if they do not, give a config.json with the model_type of a model that it has the attention of";
            return Err(Error::input(&self.place, problem, remedy));
        }
        if let Some([one, other]) = positions.uneven.get(&kind(found)).filter(|_| found.family == "timm") {
            let problem = format!("its stages differ in width ({one} and {other}), as in models that attend within windows");
            let remedy = "if all tokens attend to all, give its config.json with the architecture";
            return Err(Error::input(&self.place, problem, remedy));
        }
        Ok(())
    }
}

/// A prefix without its digits.
fn kind(found: &Found) -> String {
    found.prefix.chars().filter(|c| !c.is_ascii_digit()).collect()
}
