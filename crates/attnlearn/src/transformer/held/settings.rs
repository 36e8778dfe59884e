//! Settings that say that scores are not of this form.

use super::{BIASES, EXTRA_KEY, NORMED, ROTATES, SHARED, SLOPES, WINDOWS};
use crate::transformer::config::is_set;
use crate::transformer::model::ModelFile;
use crate::words::quoted;
use crate::{Error, Result};
use serde_json::Value;

/// When a setting speaks against a layer.
enum Against {
    /// When it is anything but null, false, zero, a negative number or empty.
    Set,
    /// When it is none of these words, and not null.
    Other(&'static [&'static str]),
}

/// Settings that say that scores are not of this form.
const SETTINGS: &[(&str, Against, &str)] = &[
    (
        "position_embedding_type",
        Against::Other(&["absolute", "learned", "learned_absolute", "sinusoidal"]),
        "has position embeddings of another type",
    ),
    // Moshi has "rope" and "sin_rope" too.
    (
        "positional_embedding",
        Against::Other(&["learned", "sin", "sinusoidal", "absolute", "none"]),
        "has position embeddings of another type",
    ),
    ("rope_theta", Against::Set, ROTATES),
    ("rope_scaling", Against::Set, ROTATES),
    ("rope_parameters", Against::Set, ROTATES),
    ("rope_type", Against::Set, ROTATES),
    ("use_rope", Against::Set, ROTATES),
    ("use_rot_pos_emb", Against::Set, ROTATES),
    ("rotary", Against::Set, ROTATES),
    ("rotary_dim", Against::Set, ROTATES),
    ("rotary_pct", Against::Set, ROTATES),
    ("rotary_emb_base", Against::Set, ROTATES),
    ("rotary_emb_fraction", Against::Set, ROTATES),
    ("partial_rotary_factor", Against::Set, ROTATES),
    ("alibi", Against::Set, SLOPES),
    ("use_alibi", Against::Set, SLOPES),
    ("alibi_starting_size", Against::Set, SLOPES),
    ("relative_attention", Against::Set, BIASES),
    ("use_relative_position_bias", Against::Set, BIASES),
    ("use_shared_relative_position_bias", Against::Set, BIASES),
    ("use_rel_pos", Against::Set, BIASES),
    ("use_rel_pos_bias", Against::Set, BIASES),
    ("use_shared_rel_pos_bias", Against::Set, BIASES),
    ("has_relative_attention_bias", Against::Set, BIASES),
    ("has_spatial_attention_bias", Against::Set, BIASES),
    ("attention_window", Against::Set, WINDOWS),
    ("window_size", Against::Set, WINDOWS),
    ("context", Against::Set, WINDOWS),
    ("local_attention", Against::Set, WINDOWS),
    ("global_attn_every_n_layers", Against::Set, WINDOWS),
    ("attention_type", Against::Other(&["original_full", "full", "full_attention"]), WINDOWS),
    ("qk_norm", Against::Set, NORMED),
    ("use_qk_norm", Against::Set, NORMED),
    ("qk_layernorm", Against::Set, NORMED),
    ("attn_logit_softcapping", Against::Set, NORMED),
    ("attention_multiplier", Against::Set, NORMED),
    ("query_pre_attn_scalar", Against::Set, NORMED),
    ("attn_scale", Against::Set, NORMED),
    ("attention_scale", Against::Set, NORMED),
    ("multi_query", Against::Set, SHARED),
    ("multi_query_attention", Against::Set, SHARED),
    ("add_bias_kv", Against::Set, EXTRA_KEY),
    ("add_zero_attn", Against::Set, "has an extra key of zeros (add_zero_attn)"),
    ("quantization_config", Against::Set, "has quantised weights"),
];

const REMEDY: &str = "such scores are not of the form xᵀΘx′ + cᵀx′, unless the model leaves the setting unused: then remove it";

impl ModelFile {
    pub(super) fn refuse_other_settings(&self) -> Result<()> {
        let refuse = |what: &str, key: &str, value: &Value| {
            let problem = format!("{what}; see the setting {key} = {}", quoted(&value.to_string()));
            Err(Error::input(&self.place, problem, REMEDY))
        };
        // Such a model may say that it is a BERT, have the tensors of one and attend to anything.
        if let Some(value) = self.settings("auto_map").into_iter().find(|value| is_set(value)) {
            let problem = format!("has code of its own; see the setting auto_map = {}", quoted(&value.to_string()));
            let remedy = "if that code attends as the model_type does, remove auto_map from config.json";
            return Err(Error::input(&self.place, problem, remedy));
        }
        for (key, against, what) in SETTINGS {
            let speaks = |value: &Value| match against {
                Against::Set => is_set(value),
                Against::Other(words) => !value.is_null() && !value.as_str().is_some_and(|value| words.contains(&value)),
            };
            if let Some(value) = self.settings(key).into_iter().find(|value| speaks(value)) {
                return refuse(what, key, value);
            }
        }
        if let Some(value) = self.settings("sliding_window").into_iter().find(|value| is_set(value))
            && self.setting("use_sliding_window").and_then(Value::as_bool) != Some(false)
        {
            return refuse(WINDOWS, "sliding_window", value);
        }
        let full = |kinds: &Value| kinds.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "full_attention"));
        match self.settings("layer_types").into_iter().find(|kinds| is_set(kinds) && !full(kinds)) {
            Some(kinds) => refuse(WINDOWS, "layer_types", kinds),
            None => Ok(()),
        }
    }
}
