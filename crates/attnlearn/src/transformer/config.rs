//! Settings: what `config.json` and the metadata of a file say, and of which layers.
//!
//! A configuration may have parts, as objects in it: `encoder` and `decoder`, `text_config` and `vision_config`. The names of a layer begin with
//! the part that it is of (`encoder.`, `text_model.`). A part that names a `model_type` is a configuration of its own, and what stands around it
//! is not of its layers; nor is what stands in a composite model beside its parts. Where names do not tell, the parts must agree.

use super::model::ModelFile;
use super::naming::Found;
use crate::words::quoted;
use crate::{Error, Result};
use serde_json::Value;

/// Settings that are dictionaries of users' own words.
const WORDS: &[&str] = &["id2label", "label2id", "label_descriptions", "task_specific_params"];

/// Types of models that are made of others: what they say beside them is of no layer.
pub(super) const COMPOSITE: &[&str] = &["encoder-decoder", "vision-encoder-decoder", "vision-text-dual-encoder"];

/// What programs put before all names of a model.
const WRAPPERS: &[&str] = &["_orig_mod", "model", "module"];

impl ModelFile {
    /// A setting of the whole model, or else one that stands in the metadata of a file.
    pub(super) fn setting(&self, key: &str) -> Option<&Value> {
        let sources = self.config.iter().chain([&self.metadata]);
        sources.filter_map(|source| source.get(key)).find(|value| !value.is_null())
    }

    /// Every value that the configuration, its nested parts and the metadata give a setting.
    pub(super) fn settings(&self, key: &str) -> Vec<&Value> {
        let mut found = Vec::new();
        for source in self.config.iter().chain([&self.metadata]) {
            everywhere(source, key, &mut found);
        }
        found
    }

    /// The configurations that speak of a layer, the innermost first, and whether it is of a part.
    pub(super) fn parts(&self, found: &Found) -> (Vec<&Value>, bool) {
        let Some(whole) = &self.config else { return (Vec::new(), false) };
        let mut parts = if is_composite(whole) { Vec::new() } else { vec![whole] };
        let (mut config, mut within) = (whole, false);
        for name in found.prefix.split('.').skip_while(|name| WRAPPERS.contains(name)) {
            let Some(part) = part(config, name) else { break };
            if part.get("model_type").is_some_and(Value::is_string) {
                parts.clear();
            }
            parts.push(part);
            (config, within) = (part, true);
        }
        parts.reverse();
        (parts, within)
    }

    /// What is said of a layer under the first of the keys that is there; several values where parts contradict and no name tells of which
    /// the layer is.
    pub(super) fn settings_of(&self, found: &Found, keys: &[&str]) -> Vec<&Value> {
        let (parts, within) = self.parts(found);
        for key in keys {
            if let Some(value) = parts.iter().find_map(|part| own(part, found, key)) {
                return vec![value];
            }
        }
        let mut values = Vec::new();
        if let Some(whole) = self.config.as_ref().and_then(Value::as_object).filter(|_| !within) {
            let nested = whole.iter().filter(|(name, _)| !WORDS.contains(&name.as_str()));
            nested.for_each(|(_, part)| keys.iter().for_each(|key| everywhere(part, key, &mut values)));
        }
        values.retain(|value| !value.is_null());
        let mut different: Vec<&Value> = Vec::new();
        for value in values {
            if !different.contains(&value) {
                different.push(value);
            }
        }
        different
    }

    /// A setting of a layer, refused where parts contradict and no name tells of which it is.
    pub(super) fn one_of(&self, found: &Found, key: &str) -> Result<Option<&Value>> {
        match self.settings_of(found, &[key])[..] {
            [] => Ok(None),
            [value] => Ok(Some(value)),
            [one, other, ..] => {
                let [one, other] = [one, other].map(|value| quoted(&value.to_string()));
                let problem =
                    format!("the parts of its configuration say {key} = {one} and {other}, and no name tells of which it is");
                let place = format!("{}, layer {}", self.place, found.layer);
                Err(Error::input(place, problem, "give the config.json of the layer's part alone"))
            }
        }
    }

    /// A setting of a layer, where the configurations that speak of it give one.
    pub(super) fn own_of(&self, found: &Found, key: &str) -> Option<&Value> {
        self.parts(found).0.iter().find_map(|part| own(part, found, key))
    }
}

/// Whether a configuration says nothing of layers but where its parts do.
pub(super) fn is_composite(config: &Value) -> bool {
    config.get("model_type").and_then(Value::as_str).is_some_and(|kind| COMPOSITE.contains(&kind))
}

/// The part of a configuration that names call so.
fn part<'a>(config: &'a Value, name: &str) -> Option<&'a Value> {
    let stem = name.strip_suffix("_model").unwrap_or(name);
    [name, &format!("{name}_config"), &format!("{stem}_config")]
        .iter()
        .find_map(|key| config.get(key).filter(|part| part.is_object()))
}

/// What a configuration says of a layer itself: MAE and VideoMAE have settings of their decoders beside those of their encoders.
fn own<'a>(config: &'a Value, found: &Found, key: &str) -> Option<&'a Value> {
    let decoder = found.prefix.split('.').any(|part| part == "decoder" || part == "decoder_blocks");
    let special = decoder.then(|| config.get(format!("decoder_{key}"))).flatten();
    special.into_iter().chain(config.get(key)).find(|value| !value.is_null())
}

/// Whether a setting is switched on.
pub(super) fn is_set(value: &Value) -> bool {
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
fn everywhere<'a>(config: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    let Some(settings) = config.as_object() else { return };
    found.extend(settings.get(key));
    for (name, value) in settings {
        if !WORDS.contains(&name.as_str()) {
            everywhere(value, key, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_begin_with_the_part_of_their_layer() {
        let config = json!({
            "text_config": {"heads": 1}, "vision_config": {"heads": 2}, "encoder": {"heads": 3, "inner": {"heads": 4}}, "layer": 5,
            "decoder_heads": 6,
        });
        for (name, heads) in [("text_model", 1), ("vision", 2), ("text_config", 1), ("encoder", 3)] {
            assert_eq!(part(&config, name).map(|part| part["heads"].clone()), Some(heads.into()), "{name}");
        }
        assert!(part(&config, "layer").is_none() && part(&config, "other").is_none());
        let found = |prefix: &str| Found { family: "bert", prefix: prefix.into(), layer: 0 };
        assert_eq!(own(&config, &found("decoder.layer.0."), "heads"), Some(&json!(6)));
        assert_eq!(own(&config, &found("encoder.layer.0."), "heads"), None);
    }

    #[test]
    fn what_is_switched_off_is_not_set() {
        for off in [json!(null), json!(false), json!(0), json!(-1), json!(""), json!("None"), json!([]), json!({})] {
            assert!(!is_set(&off), "{off}");
        }
        for on in [json!(true), json!(0.5), json!("rope"), json!([0]), json!({"a": null})] {
            assert!(is_set(&on), "{on}");
        }
        // Words of users are no settings.
        let config = json!({"a": 1, "part": {"a": 2}, "label_descriptions": {"a": 3}});
        let mut found = Vec::new();
        everywhere(&config, "a", &mut found);
        assert_eq!(found, [&json!(1), &json!(2)]);
    }
}
