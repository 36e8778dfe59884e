//! Which layers are held, and what gives the others away.
//!
//! A layer is imported when its scores are of the form `x_aᵀ Θ x_b + cᵀ x_b` and nothing that is known says otherwise. Each of these is a
//! refusal with the name of what was found:
//!
//! | file | looks at | what is refused |
//! |---|---|---|
//! | `types` | `model_type`, `architecture` (timm) of `config.json` or of the file's metadata, in nested parts too | every type that is not held: the known ones with the reason, others as unknown |
//! | `settings` | other settings of `config.json`, nested ones too | code of the model's own (`auto_map`); rotations, biases of positions, windows, shared keys, normalised queries, other scales |
//! | `marks` | names of all tensors of the model | tensors that belong to such scores, wherever they stand; embeddings of tokens without any of positions, and timm's stages of different widths, where no type is held |
//! | `inside` | tensors of the layer | those that belong to such scores; those of the attention module that are neither used nor harmless; biases that stand apart and are there twice, or may be EVA-02's |
//! | `across` | names of PyTorch's layers, and what stands beside them | attention to another sequence |
//! | `masks` | the same, and what a decoder has beside its self-attention | layers that may hide later tokens, while nothing says whether they do |
//!
//! Types, settings and marks are the model's: one tower with a relative bias refuses the other tower too, and the remedy is a file of the layer's
//! part alone. They are judged once for all layers ([`Judged`]).
//!
//! What leaves no tensor (RoFormer's rotation, ALiBi) is seen in one more way: a model that has the embeddings of its tokens and none of their
//! positions must let positions in somewhere else. Names of token embeddings that are not known (`emb`, `tok`) are not seen so. A file without a
//! configuration, or with one that names no type, is imported if its tensors contradict nothing; the result then says that no type confirmed
//! it, and where a model of unknown code rotates its queries without a tensor, that sentence is all there is.
//!
//! **Held types**: BERT and what has its attention (RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, ERNIE, MiniLM, ESM without rotation, LayoutLM 1,
//! RemBERT, X-MOD, DPR, LXMERT, …), ViT (DeiT, DINOv2, MAE, MSN, VideoMAE, ViViT, DPT, AST, …), DistilBERT, GPT, GPT-2, ImageGPT and the Decision
//! Transformer; of timm `vit_…`, `deit…`, `flexivit_…`, `aimv2_…`, `crossvit_…` and `eva_giant…`.
//!
//! **Buffers that change nothing** are known by name: GPT-2's `attn.bias` (a lower triangle, which is checked) and `attn.masked_bias` (a large
//! negative number, which is checked), and the norms of BERT's family, which act before queries are made or after outputs are.

mod across;
mod inside;
mod marks;
mod masks;
mod settings;
mod types;

use super::model::ModelFile;
use super::naming::{Found, Scheme};
use super::request::Request;
use crate::Result;
use crate::words::quoted;
use std::collections::BTreeMap;

pub(super) const ROTATES: &str = "rotates queries and keys by their positions (RoPE)";
pub(super) const BIASES: &str = "adds a bias that depends on positions";
pub(super) const SLOPES: &str = "adds a slope over distances (ALiBi)";
pub(super) const WINDOWS: &str = "attends within windows";
pub(super) const NORMED: &str = "normalises or rescales its scores";
pub(super) const SHARED: &str = "has heads that share keys";
pub(super) const APPROXIMATES: &str = "approximates attention";
pub(super) const SQUEEZES: &str = "makes keys from several tokens";
pub(super) const GLOBAL: &str = "has a second attention over chosen tokens";
pub(super) const MIXES: &str = "adds scores from elsewhere";
pub(super) const EXTRA_KEY: &str = "has an extra learned key (add_bias_kv)";

const FORM: &str = "such scores are not of the form xᵀΘx′ + cᵀx′";

/// A model of which nothing that holds for all its layers speaks against them.
pub struct Judged<'a> {
    pub(super) model: &'a ModelFile,
    pub(super) layers: Vec<Found>,
    positions: marks::Positions<'a>,
    decoders: BTreeMap<&'a str, &'a str>,
}

impl ModelFile {
    /// Looks for what speaks against all layers of the model.
    pub fn judge(&self) -> Result<Judged<'_>> {
        self.refuse_other_types()?;
        self.refuse_other_settings()?;
        let layers = self.layers();
        let positions = self.refuse_marks(&layers)?;
        Ok(Judged { model: self, layers, positions, decoders: self.decoders() })
    }
}

impl Judged<'_> {
    /// All layers of self-attention, by their prefixes' numbers.
    pub fn layers(&self) -> &[Found] {
        &self.layers
    }

    /// Refuses a layer of which something is not held. Whether a type confirms that it is.
    pub(super) fn refuse_other_layer(&self, scheme: &Scheme, found: &Found, request: &Request) -> Result<bool> {
        let confirmed = self.model.confirms(found);
        self.model.refuse_unused(scheme, found, request)?;
        self.model.refuse_separate_biases(scheme, found)?;
        if !confirmed {
            self.model.refuse_hidden_positions(&self.positions, found)?;
        }
        self.model.refuse_unknown_mask(&self.decoders, scheme, found, request)?;
        Ok(confirmed)
    }
}

/// How messages call a layer.
pub(super) fn layer_name(found: &Found) -> String {
    let name = found.prefix.trim_end_matches('.');
    if name.is_empty() { "the layer".into() } else { quoted(name) }
}
