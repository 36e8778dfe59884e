//! Layers of which the tensors do not say whether later tokens are hidden, though others like them hide them.

use crate::layer::Mask;
use crate::transformer::model::ModelFile;
use crate::transformer::naming::{Found, Scheme};
use crate::transformer::request::Request;
use crate::words::{Setting, Wording, quoted};
use crate::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;

impl ModelFile {
    /// Whether the configuration says that a layer hides later tokens.
    pub(in crate::transformer) fn says_causal(&self, found: &Found) -> Result<Option<bool>> {
        let mut said = None;
        for key in ["is_decoder", "is_causal", "causal"] {
            let flag = self.one_of(found, key)?.and_then(Value::as_bool);
            // Old configurations have `is_decoder: false` of whatever is no decoder of BERT's kind.
            let flag = flag.filter(|&flag| flag || key != "is_decoder" || found.family != "mha");
            said = if said == Some(true) { said } else { flag.or(said) };
        }
        Ok(said)
    }

    /// Refuses a layer that may hide later tokens where nothing says whether it does.
    pub(super) fn refuse_unknown_mask(
        &self,
        decoders: &BTreeMap<&str, &str>,
        scheme: &Scheme,
        found: &Found,
        request: &Request,
    ) -> Result<()> {
        if request.causal.is_some()
            || scheme.mask == Mask::Causal
            || self.mask_of_file().is_some()
            || self.says_causal(found)?.is_some()
        {
            return Ok(());
        }
        // BERT's prefix ends before its two modules, PyTorch's after one of them.
        let layer = if scheme.name == "mha" { parent(&found.prefix) } else { &found.prefix };
        let problem = if let Some(cross) = decoders.get(layer) {
            format!("may be a decoder's layer, which hides later tokens; see the tensor {}", quoted(cross))
        } else if scheme.name == "mha" && self.is_clips_text(&found.prefix) {
            "has the names of CLIP's text model, which hides later tokens".into()
        } else {
            return Ok(());
        };
        let [yes, no] = [true, false].map(|causal| Setting::to("causal", causal));
        Err(Error::input(&self.place, problem, Wording::from("say whether it does with ").then(yes).then(" or ").then(no)))
    }

    /// CLIP's image model has the same names, and no tokens of words beside them. CoCa's decoder has its own.
    fn is_clips_text(&self, prefix: &str) -> bool {
        let before = |module: &str| {
            let at = prefix.find(module)?;
            Some(&prefix[..at]).filter(|before| before.is_empty() || before.ends_with('.'))
        };
        before("text_decoder.resblocks.").is_some()
            || before("transformer.resblocks.").is_some_and(|before| self.has(&format!("{before}token_embedding.weight")))
    }
}

/// What stands before the last part of a prefix.
fn parent(prefix: &str) -> &str {
    let module = prefix.trim_end_matches('.');
    &module[..module.rfind('.').map_or(0, |dot| dot + 1)]
}
