//! Attention to another sequence, which PyTorch's layers of self-attention share their names with.

use super::layer_name;
use crate::transformer::model::ModelFile;
use crate::transformer::naming::Found;
use crate::words::quoted;
use std::collections::BTreeMap;

/// What a module is called that makes its keys from other tokens, besides what has "cross" in it: PyTorch's decoders, fairseq's, pooling.
const NAMES: &[&str] = &["multihead_attn", "encoder_attn", "enc_attn", "src_attn", "attn_pool", "attnpool", "attention_pool"];

/// What stands beside such a module: norms of the other sequence, learned queries.
const BESIDE: &[&str] = &["ln_1_kv.weight", "ln_kv.weight", "ln_k.weight", "probe", "query", "latent", "latents"];

/// Whether a part of a name is that of such a module.
fn names_it(part: &str) -> bool {
    let part = part.to_lowercase();
    part.contains("cross") || NAMES.contains(&part.as_str())
}

impl ModelFile {
    /// Why a layer with PyTorch's names is not one of self-attention, if it is not.
    pub(in crate::transformer) fn attends_elsewhere(&self, found: &Found) -> Option<String> {
        if found.family != "mha" {
            return None;
        }
        let module = found.prefix.strip_suffix('.')?;
        if let Some(part) = module.split('.').find(|part| names_it(part)) {
            return Some(format!(
                "{} attends to other tokens than its own; see '{}' in its name",
                layer_name(found),
                quoted(part)
            ));
        }
        let parent = &module[..module.rfind('.').map_or(0, |dot| dot + 1)];
        let beside = BESIDE.iter().map(|name| format!("{parent}{name}")).find(|name| self.has(name))?;
        Some(format!("{} attends to other tokens than its own; see the tensor {}", layer_name(found), quoted(&beside)))
    }

    /// The modules with a part that attends elsewhere, and a tensor of that part: decoders.
    pub(super) fn decoders(&self) -> BTreeMap<&str, &str> {
        let mut decoders = BTreeMap::new();
        for name in self.names() {
            let mut at = 0;
            for part in name.split('.') {
                if names_it(part) {
                    decoders.entry(&name[..at]).or_insert(name);
                }
                at += part.len() + 1;
            }
        }
        decoders
    }
}
