//! Types of models: those that are held, and those that are known and are not.

use super::{APPROXIMATES, BIASES, FORM, MIXES, NORMED, ROTATES, SHARED, SLOPES, SQUEEZES, WINDOWS};
use crate::transformer::config::COMPOSITE;
use crate::transformer::model::ModelFile;
use crate::transformer::naming::Found;
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
    "decision_transformer",
    "deit",
    "dinov2",
    "dinov2_with_registers",
    "distilbert",
    "dpr",
    "dpt",
    "electra",
    "ernie",
    "esm",
    "gpt2",
    "ijepa",
    "imagegpt",
    "layoutlm",
    "lxmert",
    "markuplm",
    "megatron-bert",
    "openai-gpt",
    "rembert",
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
    "vivit",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
    "yolos",
];

/// Beginnings of the architectures of timm whose attention is of this form.
const ARCHITECTURES: &[&str] = &["vit_", "deit", "eva_giant", "flexivit_", "aimv2_", "crossvit_"];

/// What in such an architecture's name says that it is another one.
const UNLIKE: &[&str] = &["rope", "rot", "relpos", "dinov3", "_pe_"];

/// The type of models whose architecture says what they are.
const WRAPPER: &str = "timm_wrapper";

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

fn is_held(kind: &Value) -> bool {
    kind.as_str().is_some_and(|kind| HELD.contains(&kind))
}

impl ModelFile {
    pub(super) fn refuse_other_types(&self) -> Result<()> {
        for kind in self.settings("model_type").into_iter().filter_map(Value::as_str) {
            if let Some((_, what)) = OTHERS.iter().find(|(other, _)| *other == kind) {
                return Err(Error::input(&self.place, format!("is of type {kind}, which {what}"), FORM));
            }
            if ![HELD, COMPOSITE, &[WRAPPER]].iter().any(|known| known.contains(&kind)) {
                return Err(self.unknown_type("model_type", kind));
            }
        }
        for kind in self.settings("architecture").into_iter().filter_map(Value::as_str) {
            let lower = kind.to_lowercase();
            let held = ARCHITECTURES.iter().any(|start| lower.starts_with(start));
            if !held || UNLIKE.iter().any(|sign| lower.contains(sign)) {
                return Err(self.unknown_type("architecture", kind));
            }
        }
        Ok(())
    }

    fn unknown_type(&self, key: &str, kind: &str) -> Error {
        let problem =
            format!("is of a type whose scores are not known to be of this form; see the setting {key} = {}", quoted(kind));
        let remedy = format!("if they are, give a config.json with the {key} of a model that it has the attention of");
        Error::input(&self.place, problem, remedy)
    }

    /// timm's name of the model, in small letters.
    pub(super) fn architecture(&self) -> Option<String> {
        self.setting("architecture").and_then(Value::as_str).map(str::to_lowercase)
    }

    /// Whether the part of the configuration that speaks of a layer names a type that is held. Models of other types have been refused.
    pub(super) fn confirms(&self, found: &Found) -> bool {
        let (parts, within) = self.parts(found);
        if within {
            let kind = parts.iter().find_map(|part| part.get("model_type"));
            return kind.is_some_and(is_held) || parts.iter().any(|part| part.get("architecture").is_some_and(Value::is_string));
        }
        self.architecture().is_some() || self.settings("model_type").into_iter().any(is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transformer::config::is_composite;

    #[test]
    fn types_are_of_one_kind() {
        let others: Vec<&str> = OTHERS.iter().map(|(kind, _)| *kind).collect();
        for list in [HELD, &others, COMPOSITE] {
            assert!(list.is_sorted_by(|a, b| a < b), "{list:?}");
        }
        assert!(!HELD.iter().any(|kind| others.contains(kind) || COMPOSITE.contains(kind) || *kind == WRAPPER));
        for part in ["text_config", "decoder"] {
            let config = serde_json::json!({"model_type": "encoder-decoder", part: {"model_type": "bert"}});
            assert!(is_composite(&config) && !is_composite(&config[part]));
        }
    }
}
