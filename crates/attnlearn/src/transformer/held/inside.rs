//! Tensors of the attention module: those that are not used, and biases that stand apart.

use super::marks::Mark;
use super::{EXTRA_KEY, FORM, GLOBAL, NORMED, layer_name};
use crate::transformer::model::ModelFile;
use crate::transformer::naming::{Found, Harmless, SEPARATE, Scheme};
use crate::transformer::request::Request;
use crate::words::{Setting, Wording, quoted};
use crate::{Error, Result};

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
    (Mark::Named("bias_k"), EXTRA_KEY),
    (Mark::Named("bias_v"), EXTRA_KEY),
];

impl ModelFile {
    /// Refuses a layer with a tensor that is not used and not known to change nothing.
    pub(super) fn refuse_unused(&self, scheme: &Scheme, found: &Found, request: &Request) -> Result<()> {
        let prefix = found.prefix.as_str();
        let used = scheme.used();
        for name in self.names_from(prefix) {
            let rest = &name[prefix.len()..];
            if used.iter().any(|used| used == rest) {
                continue;
            }
            let lower = rest.to_lowercase();
            if let Some((_, what)) = INSIDE.iter().find(|(mark, _)| mark.is_on(&lower)) {
                return Err(Error::input(&self.place, format!("{what}; see the tensor {}", quoted(name)), FORM));
            }
            if !rest.starts_with(scheme.module) {
                continue;
            }
            let Some(kind) = scheme.harmless(rest) else {
                let problem = format!("the attention of {} has a tensor that is not used: {}", layer_name(found), quoted(name));
                let remedy = "such a layer is not known to be of the form xᵀΘx′ + cᵀx′; merge the tensor into the weights if that can be done";
                return Err(Error::input(&self.place, problem, remedy));
            };
            self.check_harmless(name, kind, request)?;
        }
        Ok(())
    }

    /// Biases that stand apart and beside their weights; and those of EVA, whose names EVA-02 has, which rotates without a tensor.
    pub(super) fn refuse_separate_biases(&self, scheme: &Scheme, found: &Found) -> Result<()> {
        let Some(start) = scheme.separate_biases else { return Ok(()) };
        let separate = SEPARATE.map(|name| format!("{}{start}{name}", found.prefix));
        let usual = scheme.usual_biases().map(|name| format!("{}{name}", found.prefix));
        let mut pairs = separate.iter().zip(&usual);
        if let Some((name, usual)) = pairs.find(|(name, usual)| self.has(name) && self.has(usual)) {
            let problem = format!("has the same biases twice: {} and {}", quoted(name), quoted(usual));
            return Err(Error::input(&self.place, problem, "give weights of one layer"));
        }
        let eva = self.architecture().is_some_and(|kind| kind.starts_with("eva_giant"));
        match separate.iter().find(|name| self.has(name)) {
            Some(name) if scheme.name == "timm" && !eva => {
                let problem = format!(
                    "has the names of EVA, BEiT and EVA-02, of which only the first is held; see the tensor {}",
                    quoted(name)
                );
                let remedy = "if it is EVA, give its config.json with \"architecture\": \"eva_giant…\"";
                Err(Error::input(&self.place, problem, remedy))
            }
            _ => Ok(()),
        }
    }

    fn check_harmless(&self, name: &str, kind: Harmless, request: &Request) -> Result<()> {
        let place = format!("{}, {}", self.place, quoted(name));
        let bad = |problem: String| Err(Error::input(&place, problem, "such a layer is not held"));
        match kind {
            Harmless::Norm => Ok(()),
            Harmless::Causal => {
                if request.causal == Some(false) {
                    let remedy = Wording::from("leave ").then(Setting::new("causal")).then(" out");
                    return Err(Error::input(place, "is a mask that hides later tokens", remedy));
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
