//! A layer out of a model: found, judged, read, folded and checked.

use super::Projections;
use super::held::{Judged, layer_name};
use super::model::ModelFile;
use super::naming::{Found, Parts, SCHEMES, SEPARATE, Scheme};
use super::reference::gap;
use super::request::Request;
use crate::layer::{AttentionLayer, Mask};
use crate::linalg::Mat;
use crate::words::{Setting, Wording, quoted};
use crate::{Error, Result};
use serde_json::Value;

/// A layer out of a model.
#[derive(Clone, Debug)]
pub struct Imported {
    /// In canonical form.
    pub layer: AttentionLayer,
    /// Its weights.
    pub projections: Projections,
    /// Where it was found.
    pub found: Found,
    /// All tensors of the attention module that were used; there are no others but norms and buffers that change nothing.
    pub tensors: Vec<String>,
    /// Largest difference between the canonical form and a forward pass by those tensors as they stand in the file, over the largest output.
    pub gap: f64,
    /// Whether a configuration names a type of model whose attention is of this form. Otherwise only the tensors speak for it.
    pub confirmed: bool,
}

/// Above this the canonical form is not the layer.
const MOST: f64 = 1e-10;

impl ModelFile {
    /// The layer that is asked for in canonical form, checked against a forward pass by all its tensors.
    pub fn import(&self, request: &Request) -> Result<Imported> {
        let judged = self.judge()?;
        judged.import(judged.find(request)?, request)
    }

    /// The weights of the layer that is asked for, and where they were found.
    pub fn attention(&self, request: &Request) -> Result<(Projections, Found)> {
        let judged = self.judge()?;
        let found = judged.find(request)?;
        judged.attend(found, request).map(|(projections, _)| (projections, found.clone()))
    }
}

impl Judged<'_> {
    /// A layer in canonical form, checked against a forward pass by all its tensors. Of the request only heads and mask count.
    pub fn import(&self, found: &Found, request: &Request) -> Result<Imported> {
        let (projections, confirmed) = self.attend(found, request)?;
        let (model, scheme) = (self.model, scheme(self.model, found)?);
        let place = format!("{}, layer {}", model.place, found.layer);
        let layer = projections.fold_at(&place)?;
        let gap = gap(model, scheme, &found.prefix, &projections, &layer)?;
        if gap.is_nan() || gap > MOST {
            let problem = format!("its canonical form differs from the original by {gap:.1e}");
            return Err(Error::input(place, problem, "look for weights of enormous size"));
        }
        let used = scheme.used().into_iter().map(|name| format!("{}{name}", found.prefix));
        let tensors = used.filter(|name| model.has(name)).collect();
        Ok(Imported { layer, projections, found: found.clone(), tensors, gap, confirmed })
    }

    /// The weights of a layer, and whether a type confirms that it is held.
    fn attend(&self, found: &Found, request: &Request) -> Result<(Projections, bool)> {
        let (model, scheme) = (self.model, scheme(self.model, found)?);
        let confirmed = self.refuse_other_layer(scheme, found, request)?;
        let heads = model.heads(found, request)?;
        let projections = model.read(scheme, found, heads, request.causal)?;
        projections.check(&format!("{}, layer {}", model.place, found.layer))?;
        model.refuse_other_sizes(&projections, found)?;
        Ok((projections, confirmed))
    }

    /// The layer that is asked for.
    fn find(&self, request: &Request) -> Result<&Found> {
        let (model, layers) = (self.model, self.layers());
        let trimmed = request.prefix.as_deref().map(|prefix| prefix.trim_end_matches('.'));
        let asked = |found: &Found| match trimmed {
            Some(prefix) => found.prefix.trim_end_matches('.') == prefix,
            None => found.layer == request.layer,
        };
        let matching: Vec<&Found> = layers.iter().filter(|found| asked(found)).collect();
        if let [one] = matching[..] {
            return Ok(one);
        }
        let prefixes =
            |layers: &[&Found]| layers.iter().take(8).map(|l| format!("'{}'", quoted(&l.prefix))).collect::<Vec<_>>().join(", ");
        let refuse = |problem: String, remedy: String| Err(Error::input(&model.place, problem, remedy));
        if !matching.is_empty() {
            let remedy = format!("give one of the prefixes {}", prefixes(&matching));
            return refuse(format!("several layers have the number {}", request.layer), remedy);
        }
        let others = model.with_known_names();
        let mut others = others.iter().filter(|found| layers.is_empty() || asked(found));
        if let Some(problem) = others.find_map(|found| model.attends_elsewhere(found)) {
            return refuse(problem, "give a layer of self-attention; if this is one, rename its tensors".into());
        }
        match (layers, &request.prefix) {
            ([], _) => Err(model.unknown()),
            (_, Some(prefix)) => {
                let all: Vec<&Found> = layers.iter().take(8).collect();
                refuse(format!("no layer has the prefix '{}'", quoted(prefix)), format!("there are {}", prefixes(&all)))
            }
            ([first, ..], None) => {
                let last = layers.last().unwrap_or(first);
                refuse(format!("it has no layer {}", request.layer), format!("its layers are {} to {}", first.layer, last.layer))
            }
        }
    }
}

fn scheme(model: &ModelFile, found: &Found) -> Result<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.name == found.family).ok_or_else(|| model.unknown())
}

impl ModelFile {
    fn unknown(&self) -> Error {
        let names: Vec<&str> = self.names().take(6).collect();
        let more = if self.names().count() > names.len() { ", …" } else { "" };
        let expected: Vec<String> = SCHEMES.iter().map(|scheme| format!("…{} ({})", scheme.anchor(), scheme.name)).collect();
        let found = if names.is_empty() {
            "none".to_owned()
        } else {
            names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
        };
        Error::input(
            &self.place,
            format!("has no attention layer that is known (found: {found}{more})"),
            format!("expected one of {}", expected.join(", ")),
        )
    }

    /// What configuration or metadata say, or else what is given.
    fn heads(&self, found: &Found, request: &Request) -> Result<usize> {
        const KEYS: [&str; 4] = ["num_attention_heads", "n_head", "n_heads", "num_heads"];
        let refuse = |problem: String, remedy: Wording| Err(Error::input(&self.place, problem, remedy));
        let give = || Wording::from("give their number with ").then(Setting::new("heads"));
        let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        let mut stated: Vec<usize> = self.settings_of(found, &KEYS).into_iter().filter_map(number).collect();
        let mut source = "configuration";
        if let Some(heads) = self.heads_of_file() {
            if !stated.is_empty() && !stated.contains(&heads) {
                let problem =
                    format!("its metadata says that there are {heads} heads, and its configuration {}", either(&stated));
                return refuse(problem, "mend config.json".into());
            }
            (stated, source) = (vec![heads], "metadata");
        }
        match (request.heads, &stated[..]) {
            (Some(given), [_, ..]) if !stated.contains(&given) => {
                let problem = format!("its {source} says that there are {} heads, and {given} were asked for", either(&stated));
                refuse(problem, Wording::from("leave ").then(Setting::new("heads")).then(" out, or mend config.json"))
            }
            (Some(heads), _) | (None, &[heads]) => Ok(heads),
            (None, []) => {
                refuse("the tensors do not say how many heads share them, and no config.json beside them does".into(), give())
            }
            (None, _) => {
                let problem = format!(
                    "the parts of its configuration say that there are {} heads, and no name tells of which {} is",
                    either(&stated),
                    layer_name(found)
                );
                refuse(problem, give())
            }
        }
    }

    /// Refuses weights that the configuration contradicts.
    fn refuse_other_sizes(&self, projections: &Projections, found: &Found) -> Result<()> {
        const SHARED: &str = "heads that share keys are not of this form";
        const OTHER: &str = "give the configuration of this model, or of the layer's part alone";
        let (heads, d, r) = (projections.heads, projections.q.nrows(), projections.head_dim());
        let wanted = [
            ("num_key_value_heads", heads, SHARED),
            ("num_kv_heads", heads, SHARED),
            ("head_dim", r, OTHER),
            ("attention_head_size", r, OTHER),
            ("hidden_size", d, OTHER),
            ("n_embd", d, OTHER),
            ("dim", d, OTHER),
        ];
        for (key, size, remedy) in wanted {
            if let Some(stated) = self.own_of(found, key).and_then(Value::as_u64)
                && stated != size as u64
            {
                let problem =
                    format!("its configuration says {key} = {stated}, and the weights of {} say {size}", layer_name(found));
                return Err(Error::input(&self.place, problem, remedy));
            }
        }
        let pruned = self.own_of(found, "pruned_heads").and_then(|pruned| pruned.get(found.layer.to_string()));
        if pruned.and_then(Value::as_array).is_some_and(|heads| !heads.is_empty()) {
            let problem = format!("its configuration says that heads of {} are pruned", layer_name(found));
            return Err(Error::input(
                &self.place,
                problem,
                "give the number of the heads that are left in a config.json without pruned_heads",
            ));
        }
        Ok(())
    }

    fn read(&self, scheme: &Scheme, found: &Found, heads: usize, causal: Option<bool>) -> Result<Projections> {
        let prefix = &found.prefix;
        let weight = |name: &str| -> Result<Mat<f64>> {
            let stored = self.matrix(&format!("{prefix}{name}"))?;
            Ok(if scheme.input_first { stored } else { stored.transpose().to_owned() })
        };
        let bias = |name: &str, w: &Mat<f64>| self.vector(&format!("{prefix}{name}"), w.ncols());
        let ([q, k, v], mut biases) = match scheme.parts {
            Parts::Three(names) => {
                let [q, k, v] = names.map(|name| weight(&format!("{name}.weight")));
                let (q, k, v) = (q?, k?, v?);
                let biases = [(names[0], &q), (names[1], &k), (names[2], &v)].map(|(name, w)| bias(&format!("{name}.bias"), w));
                let [b_q, b_k, b_v] = biases;
                ([q, k, v], [b_q?, b_k?, b_v?])
            }
            Parts::Fused(_) | Parts::InProj => {
                let names = match scheme.parts {
                    Parts::Fused(name) => [format!("{name}.weight"), format!("{name}.bias")],
                    _ => ["in_proj_weight".to_owned(), "in_proj_bias".to_owned()],
                };
                let all = weight(&names[0])?;
                let biases = bias(&names[1], &all)?;
                if !all.ncols().is_multiple_of(3) || biases.len() != all.ncols() {
                    let problem = format!("it has {} columns and {} biases", all.ncols(), biases.len());
                    let place = format!("{}, {}{}", self.place, quoted(prefix), names[0]);
                    return Err(Error::input(place, problem, "queries, keys and values must have as many each"));
                }
                let third = all.ncols() / 3;
                let part = |i: usize| (all.subcols(i * third, third).to_owned(), biases[i * third..(i + 1) * third].to_vec());
                let [(q, b_q), (k, b_k), (v, b_v)] = [0, 1, 2].map(part);
                ([q, k, v], [b_q, b_k, b_v])
            }
        };
        if let Some(start) = scheme.separate_biases {
            for ((name, w), bias) in SEPARATE.iter().zip([&q, &k, &v]).zip(&mut biases) {
                let name = format!("{prefix}{start}{name}");
                if self.has(&name) {
                    *bias = self.vector(&name, w.ncols())?;
                }
            }
        }
        let [q_bias, k_bias, v_bias] = biases;
        let o = weight(&format!("{}.weight", scheme.output))?;
        let o_bias = bias(&format!("{}.bias", scheme.output), &o)?;
        let head_dim = (q.ncols() / heads.max(1)).max(1) as f64;
        let flag = |key: &str| Ok(self.one_of(found, key)?.and_then(Value::as_bool));
        let mut scale = if flag("scale_attn_weights")? == Some(false) { 1.0 } else { 1.0 / head_dim.sqrt() };
        if flag("scale_attn_by_inverse_layer_idx")? == Some(true) {
            scale /= found.layer as f64 + 1.0;
        }
        let mask = match causal {
            Some(true) => Mask::Causal,
            Some(false) => Mask::None,
            None if self.says_causal(found)? == Some(true) => Mask::Causal,
            None => self.mask_of_file().unwrap_or(scheme.mask),
        };
        Ok(Projections { heads, scale, mask, q, k, v, o, q_bias, k_bias, v_bias, o_bias })
    }
}

/// Numbers, of which one holds.
fn either(numbers: &[usize]) -> String {
    numbers.iter().take(4).map(usize::to_string).collect::<Vec<_>>().join(" or ")
}
