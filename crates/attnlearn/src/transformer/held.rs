//! Which layers are held, and what gives the others away.
//!
//! A layer is imported when its scores are of the form `x_aᵀ Θ x_b + cᵀ x_b` and nothing that is known says otherwise. Four things are looked
//! at, and each is a refusal with the name of what was found:
//!
//! | where | what is refused |
//! |---|---|
//! | `model_type`, `architecture` (timm) of `config.json` or of the file's metadata | every type that is not in [`HELD`]: the known ones with the reason, others as unknown |
//! | settings of `config.json`, nested ones too | [`SETTINGS`]: rotations, biases of positions, windows, shared keys, normalised queries, other scales |
//! | names of all tensors of the model | [`MARKS`]: tensors that belong to such scores, wherever they stand |
//! | tensors of the attention module | every one that is neither used nor in [`Scheme::harmless`](super::naming::Scheme::harmless) |
//!
//! What leaves no tensor (RoFormer's rotation, ALiBi) is seen in one more way: a model that has the embeddings of its tokens and none of their
//! positions must let positions in somewhere else. Without a `model_type` that is held, that is refused, and so are vision transformers whose
//! stages differ in width: those attend within windows.
//!
//! **Held types**: BERT and what has its attention (RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, ERNIE, MiniLM, ESM without rotation, LayoutLM 1, …),
//! ViT (DeiT, DINOv2, MAE, MSN, VideoMAE, AST, …), DistilBERT, GPT and GPT-2; of timm `vit_…`, `deit…` and `eva_giant…`. A file without a
//! configuration, or with one that names no type, is imported if its tensors contradict nothing; the result then says that no type confirmed it.
//!
//! **Buffers that change nothing** are known by name: GPT-2's `attn.bias` (a lower triangle, which is checked) and `attn.masked_bias` (a large
//! negative number, which is checked), and the norms of BERT's family, which act before queries are made or after outputs are.

use super::Request;
use super::model::ModelFile;
use super::naming::{Found, Harmless, Scheme};
use crate::layer::Mask;
use crate::words::quoted;
use crate::{Error, Result};
use serde_json::Value;

/// Model types whose attention is of this form.
const HELD: &[&str] = &[
    "audio-spectrogram-transformer",
    "bert",
    "bert-generation",
    "camembert",
    "data2vec-text",
    "deit",
    "dinov2",
    "dinov2_with_registers",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "gpt2",
    "ijepa",
    "layoutlm",
    "markuplm",
    "megatron-bert",
    "openai-gpt",
    "roberta",
    "roberta-prelayernorm",
    "splinter",
    "tapas",
    "videomae",
    "vilt",
    "visual_bert",
    "vit",
    "vit_mae",
    "vit_msn",
    "xlm-roberta",
    "xlm-roberta-xl",
    "yolos",
];

/// Types of models that are made of others, each of which has its own type.
const COMPOSITE: &[&str] = &["encoder-decoder", "timm_wrapper", "vision-encoder-decoder", "vision-text-dual-encoder"];

const ROTATES: &str = "rotates queries and keys by their positions (RoPE)";
const BIASES: &str = "adds a bias that depends on positions";
const SLOPES: &str = "adds a slope over distances (ALiBi)";
const WINDOWS: &str = "attends within windows";
const NORMED: &str = "normalises or rescales its scores";
const SHARED: &str = "has heads that share keys";
const APPROXIMATES: &str = "approximates attention";
const SQUEEZES: &str = "makes keys from several tokens";
const GLOBAL: &str = "has a second attention over chosen tokens";
const MIXES: &str = "adds scores from elsewhere";

/// Model types that are known and not held, and why.
const OTHERS: &[(&str, &str)] = &[
    ("beit", BIASES),
    ("big_bird", WINDOWS),
    ("bloom", SLOPES),
    ("canine", WINDOWS),
    ("convbert", MIXES),
    ("data2vec-vision", BIASES),
    ("deberta", BIASES),
    ("deberta-v2", BIASES),
    ("dinat", WINDOWS),
    ("dinov3_vit", ROTATES),
    ("donut-swin", BIASES),
    ("falcon", ROTATES),
    ("funnel", BIASES),
    ("gemma", ROTATES),
    ("gemma2", ROTATES),
    ("gemma3", ROTATES),
    ("gpt_bigcode", SHARED),
    ("gpt_neo", WINDOWS),
    ("gpt_neox", ROTATES),
    ("gptj", ROTATES),
    ("hiera", WINDOWS),
    ("layoutlmv2", BIASES),
    ("layoutlmv3", BIASES),
    ("led", WINDOWS),
    ("lilt", MIXES),
    ("llama", ROTATES),
    ("longformer", WINDOWS),
    ("longt5", BIASES),
    ("luke", MIXES),
    ("mistral", ROTATES),
    ("mixtral", ROTATES),
    ("modernbert", ROTATES),
    ("mpnet", BIASES),
    ("mpt", SLOPES),
    ("mra", APPROXIMATES),
    ("mt5", BIASES),
    ("nat", WINDOWS),
    ("nezha", BIASES),
    ("nomic_bert", ROTATES),
    ("nystromformer", APPROXIMATES),
    ("phi", ROTATES),
    ("phi3", ROTATES),
    ("pvt", SQUEEZES),
    ("qwen2", ROTATES),
    ("qwen3", ROTATES),
    ("reformer", APPROXIMATES),
    ("roformer", ROTATES),
    ("sam", BIASES),
    ("sam_vision_model", BIASES),
    ("segformer", SQUEEZES),
    ("swin", BIASES),
    ("swinv2", NORMED),
    ("t5", BIASES),
    ("vitdet", BIASES),
    ("xcit", NORMED),
    ("xlnet", BIASES),
    ("yoso", APPROXIMATES),
];

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
    ("add_bias_kv", Against::Set, "has an extra learned key (add_bias_kv)"),
    ("add_zero_attn", Against::Set, "has an extra key of zeros (add_zero_attn)"),
    ("quantization_config", Against::Set, "has quantised weights"),
];

/// How a name gives itself away.
enum Mark {
    /// It has this in it.
    Within(&'static str),
    /// Cut at dots and underscores, this is one of its parts.
    Part(&'static str),
    /// Cut at dots, this is one of its parts.
    Named(&'static str),
    /// It ends like this.
    End(&'static str),
}

impl Mark {
    fn is_on(&self, name: &str) -> bool {
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

/// Names, in small letters, that mean something only within a layer, or within its attention module.
const INSIDE: &[(Mark, &str)] = &[
    (Mark::Named("q_norm"), NORMED),
    (Mark::Named("k_norm"), NORMED),
    (Mark::Named("qk_norm"), NORMED),
    (Mark::Named("q_layernorm"), NORMED),
    (Mark::Named("k_layernorm"), NORMED),
    (Mark::Named("query_norm"), NORMED),
    (Mark::Named("key_norm"), NORMED),
    (Mark::Named("logit_scale"), NORMED),
    (Mark::Named("temperature"), NORMED),
    (Mark::Within("query_global"), GLOBAL),
    (Mark::Within("key_global"), GLOBAL),
    (Mark::Within("value_global"), GLOBAL),
    (Mark::Named("sinks"), "has a key that nothing is read from"),
    (Mark::Named("bias_k"), "has an extra learned key (add_bias_kv)"),
    (Mark::Named("bias_v"), "has an extra learned key (add_bias_kv)"),
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

/// Settings that are dictionaries of users' own words.
const WORDS: &[&str] = &["id2label", "label2id", "task_specific_params"];

const REMEDY: &str = "such scores are not of the form xᵀΘx′ + cᵀx′";

impl ModelFile {
    /// Refuses models whose type, settings or tensors say that their scores are others. Whether a type confirms the form.
    pub(super) fn refuse_other_scores(&self) -> Result<bool> {
        let confirmed = self.refuse_other_types()?;
        for (key, against, what) in SETTINGS {
            let speaks = |value: &Value| match against {
                Against::Set => is_set(value),
                Against::Other(words) => !value.is_null() && !value.as_str().is_some_and(|value| words.contains(&value)),
            };
            if let Some(value) = self.settings(key).into_iter().find(|value| speaks(value)) {
                return self.refuse(format!("{what}; see the setting {key} = {}", quoted(&value.to_string())));
            }
        }
        if let Some(value) = self.settings("sliding_window").into_iter().find(|value| is_set(value))
            && self.setting("use_sliding_window").and_then(Value::as_bool) != Some(false)
        {
            return self.refuse(format!("{WINDOWS}; see the setting sliding_window = {}", quoted(&value.to_string())));
        }
        let full = |kinds: &Value| kinds.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "full_attention"));
        if let Some(kinds) = self.settings("layer_types").into_iter().find(|kinds| is_set(kinds) && !full(kinds)) {
            return self.refuse(format!("{WINDOWS}; see the setting layer_types = {}", quoted(&kinds.to_string())));
        }
        for (mark, what) in MARKS {
            if let Some(name) = self.names().find(|name| mark.is_on(&name.to_lowercase())) {
                return self.refuse(format!("{what}; see the tensor {}", quoted(name)));
            }
        }
        Ok(confirmed)
    }

    fn refuse<T>(&self, problem: String) -> Result<T> {
        Err(Error::input(&self.place, problem, REMEDY))
    }

    fn refuse_other_types(&self) -> Result<bool> {
        let mut confirmed = false;
        for value in self.settings("model_type") {
            let Some(kind) = value.as_str() else { continue };
            if HELD.contains(&kind) {
                confirmed = true;
            } else if let Some((_, what)) = OTHERS.iter().find(|(other, _)| *other == kind) {
                return self.refuse(format!("is of type {kind}, which {what}"));
            } else if !COMPOSITE.contains(&kind) {
                return self.unknown_type("model_type", kind);
            }
        }
        if let Some(kind) = self.setting("architecture").and_then(Value::as_str) {
            let lower = kind.to_lowercase();
            let other = ["rope", "rot", "relpos", "dinov3", "_pe_"].iter().any(|sign| lower.contains(sign));
            if other || !["vit_", "deit", "eva_giant"].iter().any(|start| lower.starts_with(start)) {
                return self.unknown_type("architecture", kind);
            }
            confirmed = true;
        }
        Ok(confirmed)
    }

    fn unknown_type<T>(&self, key: &str, kind: &str) -> Result<T> {
        let problem =
            format!("is of a type whose scores are not known to be of this form; see the setting {key} = {}", quoted(kind));
        Err(Error::input(
            &self.place,
            problem,
            format!("if they are, give a config.json with the {key} of a model that it has the attention of"),
        ))
    }

    /// Refuses a layer of which something is not held.
    pub(super) fn refuse_other_layer(&self, scheme: &Scheme, found: &Found, request: &Request, confirmed: bool) -> Result<()> {
        let prefix = &found.prefix;
        let module = format!("{prefix}{}", scheme.module);
        let used: Vec<String> = scheme.used().into_iter().map(|name| format!("{prefix}{name}")).collect();
        for name in self.names().filter(|name| name.starts_with(prefix.as_str()) && !used.iter().any(|used| used == name)) {
            let rest = name[prefix.len()..].to_lowercase();
            let reason = INSIDE.iter().find(|(mark, _)| mark.is_on(&rest)).map(|(_, what)| *what);
            let inside = name.starts_with(&module);
            let harmless = scheme.harmless.iter().find(|(known, _)| inside && name[prefix.len()..].starts_with(known));
            match (harmless, reason) {
                (Some((_, kind)), _) => self.check_harmless(name, *kind, request)?,
                (None, Some(what)) => return self.refuse(format!("{what}; see the tensor {}", quoted(name))),
                (None, None) if inside => {
                    let problem =
                        format!("the attention of {} has a tensor that is not used: {}", layer_name(found), quoted(name));
                    let remedy = "such a layer is not known to be of the form xᵀΘx′ + cᵀx′; merge the tensor into the weights if that can be done";
                    return Err(Error::input(&self.place, problem, remedy));
                }
                (None, None) => {}
            }
        }
        self.refuse_separate_biases(scheme, found)?;
        self.refuse_hidden_positions(found, confirmed)?;
        self.refuse_unknown_mask(scheme, found, request)
    }

    /// timm's EVA-02 has EVA's names and rotates, which no tensor shows.
    fn refuse_separate_biases(&self, scheme: &Scheme, found: &Found) -> Result<()> {
        let Some(start) = scheme.separate_biases else { return Ok(()) };
        let separate = ["q_bias", "k_bias", "v_bias"].map(|name| format!("{}{start}{name}", found.prefix));
        let Some(name) = separate.iter().find(|name| self.has(name)) else { return Ok(()) };
        let usual = scheme.used().into_iter().find(|used| used.ends_with(".bias") && !used.starts_with(scheme.output));
        if let Some(usual) = usual.map(|usual| format!("{}{usual}", found.prefix)).filter(|usual| self.has(usual)) {
            let problem = format!("has biases of queries twice: {} and {}", quoted(name), quoted(&usual));
            return Err(Error::input(&self.place, problem, "give weights of one layer"));
        }
        let eva = self.setting("architecture").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("eva_giant"));
        if scheme.name == "timm" && !eva {
            let problem = format!(
                "has the names of EVA, BEiT and EVA-02, of which only the first is held; see the tensor {}",
                quoted(name)
            );
            return Err(Error::input(
                &self.place,
                problem,
                "if it is EVA, give its config.json with \"architecture\": \"eva_giant…\"",
            ));
        }
        Ok(())
    }

    /// Where no type confirms the form: signs that positions enter the scores without a tensor.
    fn refuse_hidden_positions(&self, found: &Found, confirmed: bool) -> Result<()> {
        if confirmed || found.family == "mha" {
            return Ok(());
        }
        let with = |marks: &[Mark]| {
            self.names().find(|name| {
                let name = name.to_lowercase();
                marks.iter().any(|mark| mark.is_on(&name))
            })
        };
        if let (Some(tokens), None) = (with(TOKENS), with(POSITIONS)) {
            let problem =
                format!("has embeddings of tokens ({}) and none of positions, which must then enter the scores", quoted(tokens));
            return Err(Error::input(&self.place, problem, "if they do not, give its config.json, whose model_type says so"));
        }
        if found.family == "timm" {
            let widths = |layer: &Found| self.shape(&format!("{}attn.qkv.weight", layer.prefix)).map(<[usize]>::to_vec);
            let mine = widths(found);
            if let Some(other) = self.layers().iter().find(|layer| layer.family == "timm" && widths(layer) != mine) {
                let problem = format!(
                    "its stages differ in width ({} and {}), as in models that attend within windows",
                    layer_name(found),
                    layer_name(other)
                );
                return Err(Error::input(
                    &self.place,
                    problem,
                    "if all tokens attend to all, give its config.json with the architecture",
                ));
            }
        }
        Ok(())
    }

    /// Layers of which the tensors do not say whether later tokens are hidden, though others like them hide them.
    fn refuse_unknown_mask(&self, scheme: &Scheme, found: &Found, request: &Request) -> Result<()> {
        if request.causal.is_some() || scheme.mask == Mask::Causal || self.mask_of_file().is_some() {
            return Ok(());
        }
        let problem = if self.setting("is_decoder").is_none()
            && let Some(cross) = self
                .names()
                .find(|name| name.strip_prefix(found.prefix.as_str()).is_some_and(|rest| rest.starts_with("crossattention.")))
        {
            format!("may be a decoder's layer, which hides later tokens; see the tensor {}", quoted(cross))
        } else if scheme.name == "mha" && found.prefix.starts_with("transformer.resblocks.") && self.has("token_embedding.weight")
        {
            "has the names of CLIP's text model, which hides later tokens".into()
        } else {
            return Ok(());
        };
        Err(Error::input(&self.place, problem, "say whether it does with --causal true or --causal false"))
    }

    fn check_harmless(&self, name: &str, kind: Harmless, request: &Request) -> Result<()> {
        let place = format!("{}, {}", self.place, quoted(name));
        let bad = |problem: String| Err(Error::input(&place, problem, "such a layer is not held"));
        match kind {
            Harmless::Norm => Ok(()),
            Harmless::Causal => {
                if request.causal == Some(false) {
                    return Err(Error::input(place, "is a mask that hides later tokens", "leave --causal out"));
                }
                let (shape, numbers) = self.any_numbers(name)?;
                let (rows, cols) = match shape[..] {
                    [.., rows, cols] if shape[..shape.len() - 2].iter().all(|n| *n == 1) => (rows, cols),
                    _ => return bad(format!("has shape {shape:?} and should be a mask")),
                };
                // One before and at the query, zero after it.
                let lower = |at: usize| if at % cols <= at / cols { 1.0 } else { 0.0 };
                if rows == cols && numbers.iter().enumerate().all(|(at, v)| (v - lower(at)).abs() <= 0.0) {
                    Ok(())
                } else {
                    bad("is a mask that is no lower triangle of ones".into())
                }
            }
            Harmless::Hidden => {
                let (_, numbers) = self.any_numbers(name)?;
                // Logits of hidden keys become this: their weights must vanish.
                if numbers.len() == 1 && numbers[0] <= -1e3 { Ok(()) } else { bad("should be one large negative number".into()) }
            }
        }
    }
}

/// Whether a setting is switched on.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 0.0),
        Value::String(text) => !matches!(text.to_lowercase().as_str(), "" | "none" | "false" | "0"),
        Value::Array(items) => !items.is_empty(),
        Value::Object(items) => !items.is_empty(),
    }
}

/// Every value of a setting in a configuration, that of the model first.
pub(super) fn everywhere<'a>(config: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    let Some(settings) = config.as_object() else { return };
    found.extend(settings.get(key));
    for (name, value) in settings {
        if !WORDS.contains(&name.as_str()) {
            everywhere(value, key, found);
        }
    }
}

/// How messages call a layer.
pub(super) fn layer_name(found: &Found) -> String {
    let name = found.prefix.trim_end_matches('.');
    if name.is_empty() { "the layer".into() } else { quoted(name) }
}
