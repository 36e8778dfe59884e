//! Layers that are not held are refused by name, whether a tensor, a setting or a type gives them away; those that are held still come in with
//! all that lies about in real checkpoints.

use crate::transformer::{D, HEADS, Raw, Tensor, Tensors, apply, doubles, model, random, refusal, request, same, tokens};
use attnlearn::layer::Mask;
use attnlearn::transformer::{ModelFile, Request, Style};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const R: usize = D / HEADS;

fn some(shape: &[usize]) -> Tensor {
    random(shape, &mut ChaCha8Rng::seed_from_u64(9))
}

/// A layer of a family with more tensors beside or inside it.
fn with(family: &str, prefix: &str, more: &[(&str, &[usize])]) -> Tensors {
    let mut tensors = Raw::new(4).named(family, prefix);
    tensors.extend(more.iter().map(|(name, shape)| (name.to_string(), some(shape))));
    tensors
}

/// A family, the prefix of its layer, tensors beside or inside it, and what the refusal names.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a [usize])], &'a str);

/// Every kind that used to be read as if it were plain attention.
#[test]
fn tensors_that_change_the_scores_are_refused_by_name() {
    let bert = "encoder.layer.0.";
    let cases: &[Case<'_>] = &[
        // RoFormer rotates without a tensor of its own; its table of sines is there.
        (
            "bert",
            "roformer.encoder.layer.0.",
            &[("roformer.embeddings.word_embeddings.weight", &[5, D]), ("roformer.encoder.embed_positions.weight", &[8, R])],
            "roformer.embeddings.word_embeddings.weight",
        ),
        // DINOv3, as published and as in timm.
        ("timm", "blocks.0.", &[("rope_embed.periods", &[R / 2])], "rope_embed.periods"),
        ("timm", "blocks.0.", &[("blocks.0.attn.qkv.bias_mask", &[3 * D])], "blocks.0.attn.qkv.bias_mask"),
        ("timm", "blocks.0.", &[("rope.freqs", &[2, HEADS, R / 2])], "rope.freqs"),
        ("timm", "blocks.0.", &[("patch_embed.proj.weight", &[D, 3, 2, 2])], "patch_embed.proj.weight"),
        // SAM.
        ("timm", "image_encoder.blocks.0.", &[("image_encoder.blocks.0.attn.rel_pos_h", &[7, R])], "attn.rel_pos_h"),
        ("timm", "image_encoder.blocks.0.", &[("image_encoder.blocks.0.attn.rel_pos_w", &[7, R])], "attn.rel_pos_w"),
        // Biases that layers share.
        ("bert", "layoutlmv3.encoder.layer.0.", &[("layoutlmv3.encoder.rel_pos_bias.weight", &[HEADS, 32])], "rel_pos_bias"),
        ("bert", "layoutlmv3.encoder.layer.0.", &[("layoutlmv3.encoder.rel_pos_x_bias.weight", &[HEADS, 64])], "rel_pos_x_bias"),
        ("bert", bert, &[("encoder.relative_attention_bias.weight", &[32, HEADS])], "encoder.relative_attention_bias.weight"),
        // Normalised queries and keys, learned scales.
        ("timm", "blocks.0.", &[("blocks.0.attn.q_norm.weight", &[R])], "blocks.0.attn.q_norm.weight"),
        ("timm", "blocks.0.", &[("blocks.0.attn.k_norm.weight", &[R])], "blocks.0.attn.k_norm.weight"),
        ("timm", "blocks.0.", &[("blocks.0.attn.norm.weight", &[D])], "blocks.0.attn.norm.weight"),
        ("timm", "layers.0.blocks.0.", &[("layers.0.blocks.0.attn.logit_scale", &[HEADS, 1, 1])], "attn.logit_scale"),
        ("bert", bert, &[("encoder.layer.0.attention.self.logit_scale", &[HEADS, 1, 1])], "attention.self.logit_scale"),
        ("timm", "blocks.0.", &[("blocks.0.attn.temperature", &[HEADS, 1, 1])], "blocks.0.attn.temperature"),
        ("timm", "layers.0.blocks.0.", &[("layers.0.blocks.0.attn.relative_position_bias_table", &[9, HEADS])], "bias_table"),
        // Longformer, ALiBi, talking heads.
        ("bert", bert, &[("encoder.layer.0.attention.self.query_global.weight", &[D, D])], "attention.self.query_global.weight"),
        ("bert", bert, &[("encoder.layer.0.attention.self.slopes", &[HEADS])], "attention.self.slopes"),
        ("bert", bert, &[("encoder.alibi", &[HEADS, 4, 4])], "encoder.alibi"),
        ("timm", "blocks.0.", &[("blocks.0.attn.proj_l.weight", &[HEADS, HEADS])], "blocks.0.attn.proj_l.weight"),
        // EVA's biases: of the three models with these names one rotates without a tensor.
        ("timm", "blocks.0.", &[("blocks.0.attn.q_bias", &[D]), ("blocks.0.attn.v_bias", &[D])], "blocks.0.attn.q_bias"),
        // Pieces that are not merged, extra keys, sinks, quantisation.
        ("bert", bert, &[("encoder.layer.0.attention.self.query.lora_A.default.weight", &[2, D])], "query.lora_A.default.weight"),
        ("bert", bert, &[("encoder.layer.0.attention.self.sinks", &[HEADS])], "attention.self.sinks"),
        ("bert", bert, &[("encoder.layer.0.attention.self.query.SCB", &[D])], "query.SCB"),
        (
            "distilbert",
            "transformer.layer.0.",
            &[("transformer.layer.0.attention.gate.weight", &[D, D])],
            "attention.gate.weight",
        ),
        ("mha", "layers.0.self_attn.", &[("layers.0.self_attn.bias_k", &[1, 1, D])], "layers.0.self_attn.bias_k"),
        ("mha", "layers.0.self_attn.", &[("layers.0.self_attn.bias_v", &[1, 1, D])], "layers.0.self_attn.bias_v"),
        ("mha", "", &[("gate", &[HEADS])], "gate"),
        // Names that begin like a buffer's are none.
        ("gpt2", "h.0.", &[("h.0.attn.bias_k", &[1, 1, D])], "extra learned key"),
        ("gpt2", "h.0.", &[("h.0.attn.bias_table", &[4, 4])], "not used: h.0.attn.bias_table"),
        ("gpt2", "h.0.", &[("h.0.attn.rotary.inv_freq", &[R / 2])], "h.0.attn.rotary.inv_freq"),
        ("gpt2", "h.0.", &[("wte.weight", &[5, D])], "wte.weight"),
        // Masks that are not known to be causal ones; a decoder without a word on what it hides.
        // Two sequences at once, as in Stable Diffusion 3; queries and keys with positions and values without, as in DETR.
        (
            "timm",
            "joint_blocks.0.x_block.",
            &[("joint_blocks.0.context_block.attn.qkv.weight", &[3 * D, D])],
            "joint_blocks.0.context_block",
        ),
        ("mha", "transformer.encoder.layers.0.self_attn.", &[("query_embed.weight", &[7, D])], "query_embed.weight"),
        // Moshi and Mimi rotate without a tensor.
        ("mha", "transformer.layers.0.self_attn.", &[("depformer_in.0.weight", &[D, D])], "Moshi's names"),
        (
            "mha",
            "transformer.layers.0.self_attn.",
            &[("encoder_transformer.transformer.layers.0.norm1.weight", &[D])],
            "Mimi's names",
        ),
        ("mha", "encoder.layers.0.self_attn.", &[("word_embeddings.weight", &[5, D])], "word_embeddings.weight"),
        ("timm", "layers.0.blocks.0.", &[("layers.0.blocks.0.attn_mask", &[4, 4, 4])], "attn_mask"),
        ("bert", bert, &[("encoder.layer.0.crossattention.self.query.weight", &[D, D])], "crossattention.self.query.weight"),
        ("mha", "transformer.resblocks.0.attn.", &[("token_embedding.weight", &[5, D])], "CLIP's text model"),
    ];
    for (family, prefix, more, said) in cases {
        let (_folder, path) = model(&with(family, prefix, more), r#"{"num_attention_heads": 3}"#);
        let message = refusal(&path, &request(0));
        assert!(message.contains(said) && !message.contains('\n'), "no {said:?} in {message}");
        if prefix.starts_with("joint_blocks.") {
            continue;
        }
        // Without them the layer comes in.
        let (_folder, path) = model(&with(family, prefix, &[]), r#"{"num_attention_heads": 3}"#);
        ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect("a plain layer");
    }
}

/// Stages of different widths and nothing else: Hiera and Twins attend within windows without a tensor that says so.
#[test]
fn stages_of_different_widths_are_refused() {
    let mut tensors = with("timm", "blocks.0.", &[]);
    for (name, shape) in [("qkv.weight", vec![6 * D, 2 * D]), ("proj.weight", vec![2 * D, 2 * D])] {
        tensors.insert(format!("blocks.1.attn.{name}"), some(&shape));
    }
    let (_folder, path) = model(&tensors, r#"{"num_heads": 3}"#);
    assert!(refusal(&path, &request(0)).contains("differ in width"));
    let (_folder, path) = model(&tensors, r#"{"num_heads": 3, "architecture": "vit_two_towers"}"#);
    assert!(ModelFile::open(&path).and_then(|model| model.import(&request(0))).is_ok());
    // A MAE with its decoder: those are two models, and not two stages of one.
    let mut tensors = with("timm", "blocks.0.", &[("pos_embed", &[1, 5, D])]);
    for (name, shape) in [("qkv.weight", vec![6 * D, 2 * D]), ("proj.weight", vec![2 * D, 2 * D])] {
        tensors.insert(format!("decoder_blocks.1.attn.{name}"), some(&shape));
    }
    let (_folder, path) = model(&tensors, r#"{"num_heads": 3}"#);
    assert!(ModelFile::open(&path).and_then(|model| model.import(&request(0))).is_ok());
}

/// Code of the model's own: LSG has the type, the settings and the tensors of BERT, and attends to some tokens only.
#[test]
fn code_of_its_own_is_refused() {
    let tensors = with("bert", "encoder.layer.0.", &[("embeddings.global_embeddings.weight", &[4, D])]);
    let code = r#""auto_map": {"AutoModel": "modeling_lsg_bert.LSGBertModel"}"#;
    for config in [
        format!(r#"{{"model_type": "bert", "num_attention_heads": 3, {code}}}"#),
        format!(r#"{{"num_attention_heads": 3, {code}}}"#),
        format!(r#"{{"model_type": "encoder-decoder", "encoder": {{"model_type": "bert", "num_attention_heads": 3, {code}}}}}"#),
    ] {
        let (_folder, path) = model(&tensors, &config);
        let message = refusal(&path, &request(0));
        assert!(message.contains("code of its own") && message.contains("modeling_lsg_bert"), "{message}");
    }
    let (_folder, path) = model(&tensors, r#"{"model_type": "bert", "num_attention_heads": 3, "auto_map": null}"#);
    assert!(ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect("a layer").confirmed);
}

/// CLIP's text model hides later tokens, wherever it stands; its image model has the same names and does not.
#[test]
fn text_models_of_clip_are_asked_for_their_mask() {
    for (prefix, token) in [
        ("transformer.resblocks.0.attn.", "token_embedding.weight"),
        ("text.transformer.resblocks.0.attn.", "text.token_embedding.weight"),
        ("cond_stage_model.model.transformer.resblocks.0.attn.", "cond_stage_model.model.token_embedding.weight"),
        ("text_decoder.resblocks.0.attn.", "text.token_embedding.weight"),
    ] {
        let (_folder, path) =
            model(&with("mha", prefix, &[(token, &[5, D]), ("positional_embedding", &[7, D])]), r#"{"num_heads": 3}"#);
        let message = refusal(&path, &request(0));
        assert!(message.contains("CLIP's text model") && message.contains("causal = true"), "{message}");
        for causal in [true, false] {
            let asked = Request { causal: Some(causal), ..Request::default() };
            let imported = ModelFile::open(&path).and_then(|model| model.import(&asked)).expect("a layer");
            assert_eq!(imported.layer.mask() == Mask::Causal, causal);
        }
    }
    let more: &[(&str, &[usize])] = &[("token_embedding.weight", &[5, D]), ("positional_embedding", &[7, D])];
    let (_folder, path) = model(&with("mha", "visual.transformer.resblocks.0.attn.", more), r#"{"num_heads": 3}"#);
    assert_eq!(ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect("a layer").layer.mask(), Mask::None);
}

/// A decoder of PyTorch: its attention to somewhere else is no layer, and its self-attention may hide later tokens.
#[test]
fn decoders_of_pytorch_are_asked_for_their_mask() {
    for cross in ["multihead_attn", "cross_attn", "encoder_attn"] {
        let name = format!("layers.0.{cross}.in_proj_weight");
        let tensors = with("mha", "layers.0.self_attn.", &[(&name, &[3 * D, D])]);
        let (_folder, path) = model(&tensors, r#"{"num_heads": 3, "is_decoder": false}"#);
        assert_eq!(ModelFile::open(&path).expect("a model").layers().len(), 1);
        let message = refusal(&path, &request(0));
        assert!(message.contains("a decoder's layer") && message.contains(&name), "{message}");
        let asked = Request { causal: Some(true), ..Request::default() };
        let imported = ModelFile::open(&path).and_then(|model| model.import(&asked)).expect("a layer");
        assert_eq!(imported.layer.mask(), Mask::Causal);
        let (_folder, path) = model(&tensors, r#"{"num_heads": 3, "causal": true}"#);
        let imported = ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect("a layer");
        assert_eq!(imported.layer.mask(), Mask::Causal);
        let (_folder, path) = model(&tensors, r#"{"num_heads": 3, "is_causal": false}"#);
        let imported = ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect("a layer");
        assert_eq!(imported.layer.mask(), Mask::None);
    }
}

/// Attention to another sequence has the names of self-attention: CoCa, Mask2Former, OneFormer, fairseq, the pooling of SigLIP and CoCa.
#[test]
fn attention_to_other_tokens_is_no_layer() {
    let cases: &[Case<'_>] = &[
        ("mha", "text_decoder.cross_attn.0.attn.", &[("text_decoder.cross_attn.0.ln_1_kv.weight", &[D])], "'cross_attn'"),
        ("mha", "decoder.0.attn.", &[("decoder.0.ln_1_kv.weight", &[D])], "decoder.0.ln_1_kv.weight"),
        ("mha", "transformer_cross_attention_layers.0.multihead_attn.", &[], "'transformer_cross_attention_layers'"),
        ("mha", "layers.0.multihead_attn.", &[], "'multihead_attn'"),
        ("mha", "decoder.layers.0.encoder_attn.", &[], "'encoder_attn'"),
        ("mha", "vision_model.head.attention.", &[("vision_model.head.probe", &[1, 1, D])], "vision_model.head.probe"),
        ("mha", "visual.attn_pool.attn.", &[("visual.attn_pool.query", &[7, D])], "'attn_pool'"),
        ("mha", "pooler.attn.", &[("pooler.query", &[7, D])], "pooler.query"),
    ];
    for (family, prefix, more, said) in cases {
        let (_folder, path) = model(&with(family, prefix, more), r#"{"num_heads": 3}"#);
        assert!(ModelFile::open(&path).expect("a model").layers().is_empty(), "{prefix}");
        for asked in [request(0), Request { prefix: Some((*prefix).into()), causal: Some(false), ..Request::default() }] {
            let message = refusal(&path, &asked);
            assert!(message.contains("other tokens than its own") && message.contains(said), "no {said:?} in {message}");
        }
        // Beside a layer of self-attention it is refused by its own name, and the other one comes in.
        let mut both = with(family, prefix, more);
        both.extend(with("mha", "blocks.0.attn.", &[]));
        let (_folder, path) = model(&both, r#"{"num_heads": 3}"#);
        let opened = ModelFile::open(&path).expect("a model");
        assert_eq!(opened.import(&request(0)).expect("a layer").found.prefix, "blocks.0.attn.");
        let message = refusal(&path, &Request { prefix: Some((*prefix).into()), ..Request::default() });
        assert!(message.contains(said), "{message}");
    }
}

/// Settings of the part that a layer is of, not those of the whole or of another part.
#[test]
fn parts_have_settings_of_their_own() {
    let plain = 1.0 / (R as f64).sqrt();
    // Models of two towers: which is asked for, heads of its part.
    let towers = r#"{"model_type": "vision-encoder-decoder", "num_attention_heads": 6, "is_decoder": false,
        "encoder": {"model_type": "vit", "num_attention_heads": 3, "hidden_size": 12},
        "decoder": {"model_type": "gpt2", "n_head": 3, "n_embd": 12, "scale_attn_by_inverse_layer_idx": true}}"#;
    let bert = r#"{"model_type": "encoder-decoder", "is_decoder": false,
        "encoder": {"model_type": "bert", "num_attention_heads": 3, "is_decoder": false},
        "decoder": {"model_type": "bert", "num_attention_heads": 3, "is_decoder": true}}"#;
    let dual = r#"{"model_type": "vision-text-dual-encoder", "text_config": {"model_type": "bert", "num_attention_heads": 3},
        "vision_config": {"model_type": "vit", "num_attention_heads": 4}}"#;
    let mae = r#"{"model_type": "vit_mae", "num_attention_heads": 4, "hidden_size": 16, "decoder_num_attention_heads": 3,
        "decoder_hidden_size": 12}"#;
    for (family, prefix, config, causal, scale) in [
        ("vit", "encoder.encoder.layer.1.", towers, false, plain),
        ("gpt2", "decoder.transformer.h.1.", towers, true, plain / 2.0),
        ("bert", "encoder.encoder.layer.1.", bert, false, plain),
        ("bert", "decoder.bert.encoder.layer.1.", bert, true, plain),
        ("bert", "model.decoder.bert.encoder.layer.1.", bert, true, plain),
        ("bert", "text_model.encoder.layer.1.", dual, false, plain),
        ("vit", "decoder.decoder_layers.1.", mae, false, plain),
    ] {
        let raw = Raw::new(4);
        let mut tensors = raw.named(family, prefix);
        if prefix.contains("decoder.bert") {
            tensors.insert(format!("{prefix}crossattention.self.query.weight"), some(&[D, D]));
        }
        let (_folder, path) = model(&tensors, config);
        let imported = ModelFile::open(&path).and_then(|model| model.import(&request(1))).expect(prefix);
        assert!(imported.confirmed, "{prefix}");
        assert_eq!(imported.layer.mask() == Mask::Causal, causal, "{prefix}");
        let x = tokens(5, 3);
        same(&apply(&imported.layer, &x), &raw.forward(&x, causal, scale), 1e-12);
        // Another number of heads would divide the numbers as well.
        let asked = Request { heads: Some(4), ..request(1) };
        assert!(refusal(&path, &asked).contains("3 heads, and 4 were asked for"), "{prefix}");
    }
    // Names that do not tell: what parts agree on holds, and what they do not is refused.
    let tensors = Raw::new(4).named("bert", "of_my_own.encoder.layer.0.");
    let two = |decoder: &str| {
        format!(
            r#"{{"model_type": "encoder-decoder", "num_attention_heads": 6, "encoder": {{"num_attention_heads": 3}}, "decoder": {{{decoder}}}}}"#
        )
    };
    let (_folder, path) = model(&tensors, &two(r#""num_attention_heads": 3"#));
    assert!(ModelFile::open(&path).and_then(|model| model.import(&request(0))).is_ok());
    let (_folder, path) = model(&tensors, &two(r#""num_attention_heads": 6"#));
    assert!(refusal(&path, &request(0)).contains("3 or 6 heads") || refusal(&path, &request(0)).contains("6 or 3 heads"));
    let asked = |heads| Request { heads: Some(heads), ..Request::default() };
    assert!(refusal(&path, &asked(4)).contains("4 were asked for"));
    assert!(ModelFile::open(&path).and_then(|model| model.import(&asked(3))).is_ok());
    let flags = two(r#""is_causal": true"#).replace(r#"heads": 3}"#, r#"heads": 3, "is_causal": false}"#);
    let (_folder, path) = model(&tensors, &flags);
    assert!(refusal(&path, &request(0)).contains("is_causal"));
    for (said, of_part) in [("hidden_size = 13", r#""hidden_size": 13"#), ("pruned", r#""pruned_heads": {"0": [1]}"#)] {
        let tensors = Raw::new(4).named("bert", "decoder.bert.encoder.layer.0.");
        let (_folder, path) = model(&tensors, &two(&format!(r#""model_type": "bert", "num_attention_heads": 3, {of_part}"#)));
        assert!(refusal(&path, &request(0)).contains(said), "{}", refusal(&path, &request(0)));
    }
    // What stands around a part is of its layers too, unless the part has a type: then it is a model of its own.
    let tensors = Raw::new(4).named("bert", "text_model.encoder.layer.0.");
    for (config, said) in [
        (r#"{"num_attention_heads": 6, "text_config": {"num_attention_heads": 3}}"#, None),
        (r#"{"num_attention_heads": 3, "text_config": {"hidden_size": 12}}"#, None),
        (r#"{"num_attention_heads": 3, "text_config": {"model_type": "bert"}}"#, Some("give their number with heads")),
    ] {
        let (_folder, path) = model(&tensors, config);
        match said {
            Some(said) => assert!(refusal(&path, &request(0)).contains(said), "{}", refusal(&path, &request(0))),
            None => assert_eq!(
                ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect(config).layer.heads().len(),
                3
            ),
        }
    }
    // A part without a type is not confirmed by that of another.
    let (_folder, path) = model(
        &Raw::new(4).named("bert", "decoder.encoder.layer.0."),
        r#"{"model_type": "encoder-decoder", "encoder": {"model_type": "bert"}, "decoder": {"num_attention_heads": 3}}"#,
    );
    assert!(!ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect("a layer").confirmed);
}

/// The number of heads that an export notes is what it has, whatever is asked for or said beside it.
#[test]
fn heads_stand_in_the_metadata() {
    let (folder, path) = model(&Raw::new(4).named("bert", "encoder.layer.0."), "");
    let asked = Request { heads: Some(HEADS), ..Request::default() };
    let (projections, _) = ModelFile::open(&path).and_then(|model| model.attention(&asked)).expect("a layer");
    std::fs::write(&path, projections.to_bytes(Style::Bert, 0).expect("weights")).expect("a file");
    let (again, _) = ModelFile::open(&path).and_then(|model| model.attention(&request(0))).expect("a layer");
    assert_eq!(again, projections);
    let other = Request { heads: Some(4), ..Request::default() };
    assert!(refusal(&path, &other).contains("its metadata says that there are 3 heads, and 4 were asked for"));
    std::fs::write(folder.path().join("config.json"), r#"{"num_attention_heads": 4}"#).expect("a file");
    assert!(refusal(&path, &request(0)).contains("3 heads, and its configuration 4"));
}

#[test]
fn types_and_settings_are_refused_by_name() {
    for (settings, said) in [
        (r#""model_type": "roformer""#, "roformer, which rotates"),
        (r#""model_type": "dinov3_vit""#, "dinov3_vit, which rotates"),
        (r#""model_type": "sam""#, "sam, which adds a bias"),
        (r#""model_type": "layoutlmv3""#, "layoutlmv3, which adds a bias"),
        (r#""model_type": "mpnet""#, "mpnet, which adds a bias"),
        (r#""model_type": "longformer""#, "longformer, which attends within windows"),
        (r#""model_type": "swinv2""#, "swinv2, which normalises"),
        (r#""model_type": "xcit""#, "xcit, which normalises"),
        (r#""model_type": "yoso""#, "yoso, which approximates"),
        (r#""model_type": "of-my-own""#, "model_type = of-my-own"),
        (
            r#""model_type": "vision-encoder-decoder", "encoder": {"model_type": "vit"}, "decoder": {"model_type": "trocr"}"#,
            "trocr",
        ),
        (r#""architecture": "eva02_tiny_patch14_224""#, "architecture = eva02_tiny"),
        (r#""architecture": "vit_relpos_base_patch16_224""#, "architecture = vit_relpos"),
        (r#""architecture": "beit_base_patch16_224""#, "architecture = beit"),
        (
            r#""model_type": "vision-text-dual-encoder", "vision_config": {"model_type": "timm_wrapper", "architecture": "eva02_tiny"}"#,
            "architecture = eva02_tiny",
        ),
        (r#""position_embedding_type": "relative_key_query""#, "relative_key_query"),
        (r#""position_embedding_type": "rotary""#, "position_embedding_type"),
        (r#""positional_embedding": "rope""#, "positional_embedding"),
        (r#""context": 3000"#, "context = 3000"),
        (r#""architecture": "vit_base_ROPE_224""#, "architecture = vit_base_ROPE"),
        (r#""position_embedding_type": "alibi""#, "alibi"),
        (r#""rope_theta": 10000.0"#, "rope_theta = 10000.0"),
        (r#""rotary_dim": 64"#, "rotary_dim = 64"),
        (r#""alibi": true"#, "alibi = true"),
        (r#""attn_config": {"use_alibi": true}"#, "use_alibi = true"),
        (r#""attention_type": "block_sparse""#, "block_sparse"),
        (r#""attention_window": [4, 4]"#, "attention_window = [4,4]"),
        (r#""sliding_window": 128"#, "sliding_window = 128"),
        (r#""layer_types": ["full_attention", "sliding_attention"]"#, "sliding_attention"),
        (r#""qk_norm": true"#, "qk_norm = true"),
        (r#""attn_logit_softcapping": 50.0"#, "attn_logit_softcapping = 50.0"),
        (r#""multi_query": true"#, "multi_query = true"),
        (r#""num_key_value_heads": 1"#, "num_key_value_heads = 1"),
        (r#""head_dim": 5"#, "head_dim = 5"),
        (r#""hidden_size": 13"#, "hidden_size = 13"),
        (r#""pruned_heads": {"0": [1]}"#, "pruned"),
    ] {
        let tensors = Raw::new(4).named("bert", "encoder.layer.0.");
        let (_folder, path) = model(&tensors, &format!(r#"{{"num_attention_heads": 3, {settings}}}"#));
        let message = refusal(&path, &request(0));
        assert!(message.contains(said) && !message.contains('\n'), "no {said:?} in {message}");
    }
    // What the configuration says of heads stands.
    let (_folder, path) = model(&Raw::new(4).named("bert", "encoder.layer.0."), r#"{"num_attention_heads": 3}"#);
    let asked = Request { heads: Some(4), ..Request::default() };
    assert!(refusal(&path, &asked).contains("3 heads, and 4 were asked for"));
    // The same in the metadata of the file.
    let bytes = doubles(&Raw::new(4).named("bert", "encoder.layer.0."));
    let (_, rest) = bytes.split_at(9);
    let header = r#"{"__metadata__":{"format":"pt","model_type":"roformer"},"#;
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) - 1 + header.len() as u64;
    std::fs::write(&path, [&len.to_le_bytes(), header.as_bytes(), rest].concat()).expect("a file");
    assert!(refusal(&path, &request(0)).contains("roformer"));
}

/// Real checkpoints: embeddings, norms, heads, buffers, settings that change nothing; with and without biases.
#[test]
fn held_models_come_in_with_all_that_is_about_them() {
    let n = 4;
    let triangle =
        Tensor { shape: vec![1, 1, n, n], numbers: (0..n * n).map(|at| f64::from(u8::from(at % n <= at / n))).collect() };
    let number = |v: f64| Tensor { shape: vec![], numbers: vec![v] };
    let bert = r#"{"architectures": ["BertModel"], "model_type": "bert", "num_attention_heads": 3, "hidden_size": 12, "num_hidden_layers": 2,
        "position_embedding_type": "absolute", "pruned_heads": {}, "label2id": {"rotary": 1, "rope_theta": 2}, "is_decoder": false, "use_cache": true}"#;
    let gpt = r#"{"model_type": "gpt2", "n_head": 3, "n_embd": 12, "n_ctx": 4, "n_positions": 4, "reorder_and_upcast_attn": true,
        "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false, "task_specific_params": {"text": {"sliding_window": 5}}}"#;
    let cases: &[Case<'_>] = &[
        (
            "bert",
            "bert.encoder.layer.0.",
            &[
                ("bert.embeddings.position_ids", &[1, 8]),
                ("bert.embeddings.word_embeddings.weight", &[5, D]),
                ("bert.embeddings.position_embeddings.weight", &[8, D]),
                ("bert.embeddings.LayerNorm.gamma", &[D]),
                ("bert.encoder.layer.0.attention.output.LayerNorm.weight", &[D]),
                ("bert.encoder.layer.0.attention.output.LayerNorm.beta", &[D]),
                ("bert.encoder.layer.0.intermediate.dense.weight", &[48, D]),
                ("bert.encoder.layer.0.output.dense.weight", &[D, 48]),
                ("bert.pooler.dense.weight", &[D, D]),
                ("cls.seq_relationship.weight", &[2, D]),
            ],
            bert,
        ),
        (
            "bert",
            "roberta.encoder.layer.0.",
            &[
                ("roberta.embeddings.word_embeddings.weight", &[5, D]),
                ("roberta.embeddings.position_embeddings.weight", &[8, D]),
                ("roberta.encoder.layer.0.attention.output.LayerNorm.bias", &[D]),
                ("lm_head.dense.weight", &[D, D]),
            ],
            r#"{"model_type": "roberta", "num_attention_heads": 3}"#,
        ),
        // MiniLM, as sentence encoders have it.
        (
            "bert",
            "encoder.layer.0.",
            &[
                ("embeddings.position_ids", &[1, 8]),
                ("embeddings.word_embeddings.weight", &[5, D]),
                ("embeddings.position_embeddings.weight", &[8, D]),
            ],
            bert,
        ),
        (
            "vit",
            "vit.encoder.layer.0.",
            &[
                ("vit.embeddings.cls_token", &[1, 1, D]),
                ("vit.embeddings.position_embeddings", &[1, 5, D]),
                ("vit.embeddings.patch_embeddings.projection.weight", &[D, 3, 2, 2]),
                ("vit.encoder.layer.0.layernorm_before.weight", &[D]),
            ],
            r#"{"model_type": "vit", "num_attention_heads": 3, "qkv_bias": true}"#,
        ),
        (
            "timm",
            "blocks.0.",
            &[
                ("cls_token", &[1, 1, D]),
                ("pos_embed", &[1, 5, D]),
                ("patch_embed.proj.weight", &[D, 3, 2, 2]),
                ("blocks.0.norm1.weight", &[D]),
                ("blocks.0.ls1.gamma", &[D]),
                ("blocks.0.mlp.fc1.weight", &[48, D]),
            ],
            r#"{"architecture": "vit_tiny_patch16_224", "num_classes": 10, "num_heads": 3, "pretrained_cfg": {"crop_pct": 0.9}}"#,
        ),
        (
            "distilbert",
            "distilbert.transformer.layer.0.",
            &[
                ("distilbert.embeddings.word_embeddings.weight", &[5, D]),
                ("distilbert.embeddings.position_embeddings.weight", &[8, D]),
                ("distilbert.transformer.layer.0.sa_layer_norm.weight", &[D]),
            ],
            r#"{"model_type": "distilbert", "n_heads": 3, "dim": 12, "sinusoidal_pos_embds": false}"#,
        ),
        (
            "gpt2",
            "transformer.h.0.",
            &[
                ("transformer.wte.weight", &[5, D]),
                ("transformer.wpe.weight", &[4, D]),
                ("transformer.h.0.ln_1.weight", &[D]),
                ("transformer.h.0.mlp.c_fc.weight", &[D, 48]),
            ],
            gpt,
        ),
        ("mha", "layers.0.self_attn.", &[("layers.0.norm1.weight", &[D]), ("logit_scale", &[])], r#"{"num_heads": 3}"#),
        // Words of users, a key that says nothing before one that does.
        (
            "gpt2",
            "h.0.",
            &[("wpe.weight", &[4, D])],
            r#"{"model_type": "imagegpt", "num_attention_heads": null, "n_head": 3, "label_descriptions": {"rotary": "a phone"}}"#,
        ),
        (
            "timm",
            "blocks.0.",
            &[("blocks.1.attn.qkv.weight", &[6 * D, 2 * D])],
            r#"{"architecture": "crossvit_9_240", "num_heads": 3, "pretrained_cfg": {"label_descriptions": {"rotary": "a phone"}}}"#,
        ),
        ("bert", "r_layers.0.", &[], r#"{"model_type": "lxmert", "num_attention_heads": 3}"#),
        ("bert", "ctx_encoder.bert_model.encoder.layer.0.", &[], r#"{"model_type": "dpr", "num_attention_heads": 3}"#),
    ];
    for (family, prefix, more, config) in cases {
        for bias in [true, false] {
            let mut raw = Raw::new(4);
            let mut tensors = raw.named(family, prefix);
            if !bias {
                tensors.retain(|name, _| !name.ends_with("bias"));
                raw.biases.iter_mut().for_each(|bias| bias.numbers.fill(0.0));
            }
            tensors.extend(more.iter().map(|(name, shape)| (name.to_string(), some(shape))));
            if *family == "gpt2" {
                tensors.insert(format!("{prefix}attn.bias"), triangle.clone());
                tensors.insert(format!("{prefix}attn.masked_bias"), number(-1e4));
            }
            let (_folder, path) = model(&tensors, config);
            let opened = ModelFile::open(&path).expect("a model");
            assert_eq!(opened.layers().len(), if config.contains("crossvit") { 2 } else { 1 }, "{family}");
            let imported = opened.import(&request(0)).expect("a layer");
            assert_eq!(imported.confirmed, *family != "mha", "{family}");
            let causal = *family == "gpt2";
            assert_eq!(imported.layer.mask() == Mask::Causal, causal);
            assert_eq!(imported.layer.bias().is_some(), bias, "{family}");
            let x = tokens(5, 3);
            same(&apply(&imported.layer, &x), &raw.forward(&x, causal, 1.0 / (R as f64).sqrt()), 1e-12);
        }
    }
}

/// GPT-2's buffers are looked into: a mask that is no lower triangle, a hidden logit that hides nothing.
#[test]
fn buffers_that_carry_meaning_are_checked() {
    let square =
        |f: fn(usize, usize) -> f64| Tensor { shape: vec![1, 1, 4, 4], numbers: (0..16).map(|at| f(at / 4, at % 4)).collect() };
    let lower = square(|i, j| f64::from(u8::from(j <= i)));
    let band = square(|i, j| f64::from(u8::from(j <= i && i - j < 2)));
    let full = square(|_, _| 1.0);
    let number = |v: f64| Tensor { shape: vec![], numbers: vec![v] };
    let flat = Tensor { shape: vec![16], ..lower.clone() };
    for (name, tensor, said) in [
        ("bias", lower.clone(), None),
        ("bias", band, Some("no lower triangle")),
        ("bias", full, Some("no lower triangle")),
        ("bias", flat, Some("should be a mask")),
        ("masked_bias", number(-1e9), None),
        ("masked_bias", number(0.0), Some("large negative")),
        ("masked_bias", Tensor { shape: vec![2], numbers: vec![-1e4; 2] }, Some("large negative")),
    ] {
        let mut tensors = Raw::new(4).named("gpt2", "h.0.");
        tensors.insert(format!("h.0.attn.{name}"), tensor);
        let (_folder, path) = model(&tensors, r#"{"n_head": 3}"#);
        match said {
            Some(said) => assert!(refusal(&path, &request(0)).contains(said), "{}", refusal(&path, &request(0))),
            None => assert!(ModelFile::open(&path).and_then(|model| model.import(&request(0))).is_ok()),
        }
    }
    let mut tensors = Raw::new(4).named("gpt2", "h.0.");
    tensors.insert("h.0.attn.bias".into(), lower);
    let (_folder, path) = model(&tensors, r#"{"n_head": 3}"#);
    let asked = Request { causal: Some(false), ..Request::default() };
    assert!(refusal(&path, &asked).contains("hides later tokens"));
}

/// Biases of queries and values that stand apart are used: VideoMAE, and EVA where the configuration says that it is EVA.
#[test]
fn separate_biases_are_used() {
    for (family, prefix, start, linear, config) in [
        (
            "vit",
            "videomae.encoder.layer.0.",
            "attention.attention.",
            "query",
            r#"{"model_type": "videomae", "num_attention_heads": 3}"#,
        ),
        ("vit", "encoder.layer.0.", "attention.attention.", "query", r#"{"num_attention_heads": 3}"#),
        ("timm", "blocks.0.", "attn.", "qkv", r#"{"architecture": "EVA_giant_patch14_224", "num_heads": 3}"#),
    ] {
        let mut raw = Raw::new(4);
        let mut tensors = raw.named(family, prefix);
        for linear in [linear, "key", "value"] {
            tensors.remove(&format!("{prefix}{start}{linear}.bias"));
        }
        let twice = Tensors::from_iter(raw.named(family, prefix));
        for (name, which) in [("q_bias", 0), ("v_bias", 2)] {
            tensors.insert(format!("{prefix}{start}{name}"), raw.biases[which].clone());
        }
        raw.biases[1].numbers.fill(0.0);
        let (_folder, path) = model(&tensors, config);
        let imported = ModelFile::open(&path).and_then(|model| model.import(&request(0))).expect("a layer");
        let x = tokens(4, 5);
        same(&apply(&imported.layer, &x), &raw.forward(&x, false, 1.0 / (R as f64).sqrt()), 1e-12);
        assert!(imported.tensors.iter().any(|name| name.ends_with("q_bias")));
        // Two biases of the same queries are one too many, and so are two of the same values.
        let values = format!("{prefix}{start}value.bias");
        if let Some(bias) = twice.get(&values) {
            let mut tensors = tensors.clone();
            tensors.insert(values.clone(), bias.clone());
            let (_folder, path) = model(&tensors, config);
            let message = refusal(&path, &request(0));
            assert!(message.contains("twice") && message.contains(&values), "{message}");
        }
        tensors.extend(twice);
        let (_folder, path) = model(&tensors, config);
        assert!(refusal(&path, &request(0)).contains("twice"));
    }
}

/// Products that overflow name the head.
#[test]
fn enormous_weights_are_refused_by_head() {
    for (which, said) in [(&[0, 1][..], "head 1: its Θ"), (&[2, 3][..], "head 1: its W")] {
        let mut raw = Raw::new(4);
        for &at in which {
            raw.weights[at].numbers.iter_mut().for_each(|v| *v *= 1e160);
        }
        for family in ["bert", "mha"] {
            let prefix = if family == "bert" { "encoder.layer.0." } else { "" };
            let (_folder, path) = model(&raw.named(family, prefix), r#"{"num_attention_heads": 3}"#);
            let said_by = ModelFile::open(&path)
                .and_then(|model| model.import(&request(0)))
                .map(|_| ())
                .expect_err("a refusal")
                .to_string();
            assert!(said_by.contains(said) && said_by.contains("scale the weights down"), "{said_by}");
        }
    }
    // The second head alone.
    let mut raw = Raw::new(4);
    for weights in &mut raw.weights[..2] {
        weights.numbers[R * D..2 * R * D].iter_mut().for_each(|v| *v *= 1e160);
    }
    let (_folder, path) = model(&raw.named("bert", "encoder.layer.0."), r#"{"num_attention_heads": 3}"#);
    let message =
        ModelFile::open(&path).and_then(|model| model.import(&request(0))).map(|_| ()).expect_err("a refusal").to_string();
    assert!(message.contains("head 2: its Θ"), "{message}");
}

/// Products that underflow would be a layer of zeros, which the check by itself does not see: the original underflows too.
#[test]
fn tiny_weights_are_refused_by_head() {
    let message = |raw: &Raw| {
        let (_folder, path) = model(&raw.named("bert", "encoder.layer.0."), r#"{"num_attention_heads": 3}"#);
        ModelFile::open(&path).and_then(|model| model.import(&request(0))).map(|imported| imported.layer)
    };
    for by in [1e-170, 1e-160] {
        let mut raw = Raw::new(4);
        for tensor in raw.weights[2..].iter_mut().chain(&mut raw.biases) {
            tensor.numbers.iter_mut().for_each(|v| *v *= by);
        }
        let said = message(&raw).expect_err("a refusal").to_string();
        assert!(said.contains("head 1: its W") && said.contains("scale the weights up"), "{said}");
        // The biases alone.
        raw.weights[2].numbers.fill(0.0);
        raw.biases[3].numbers.fill(0.0);
        let said = message(&raw).expect_err("a refusal").to_string();
        assert!(said.contains("output bias") && said.contains("scale the weights up"), "{said}");
    }
    // Scores that underflow are no loss, heads that are silent no fault, and numbers that single precision has are not tiny.
    for (which, by) in [(0, 1e-170), (1, 1e-170), (2, 0.0), (3, 0.0), (2, 1e-45), (3, 1e-45)] {
        let mut raw = Raw::new(4);
        raw.weights[which].numbers.iter_mut().for_each(|v| *v *= by);
        raw.biases[3].numbers.fill(0.0);
        let layer = message(&raw).expect("a layer");
        let x = tokens(4, 5);
        same(&apply(&layer, &x), &raw.forward(&x, false, 1.0 / (R as f64).sqrt()), 1e-12);
    }
}

/// Sizes that are absurd are refused before memory is taken for them.
#[test]
fn absurd_sizes_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    let header = r#"{"in_proj_weight":{"dtype":"F32","shape":[1000000000000000,0],"data_offsets":[0,0]}}"#;
    std::fs::write(&path, crate::common::safetensors(header, &[])).expect("a file");
    let asked = Request { heads: Some(1), ..Request::default() };
    assert!(refusal(&path, &asked).contains("at least 1"));
    let (_folder, path) = model(&Raw::new(1).named("mha", ""), "");
    for heads in [0, 5, 99_999_999_999, usize::MAX] {
        let asked = Request { heads: Some(heads), ..Request::default() };
        assert!(refusal(&path, &asked).contains("heads cannot share"), "{heads}");
    }
    // A mask of truth values takes eight times its size in the file; one that is there is a hole in the file.
    let n: u64 = 1 << 18;
    let tensors = Raw::new(4).named("gpt2", "h.0.");
    let bytes = doubles(&tensors);
    let len = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))).expect("small");
    let data = bytes.len() - 8 - len;
    let mask =
        format!(r#"{{"h.0.attn.bias":{{"dtype":"BOOL","shape":[1,1,{n},{n}],"data_offsets":[{data},{}]}},"#, data as u64 + n * n);
    let header = String::from_utf8(bytes[9..8 + len].to_vec()).expect("text");
    let (folder, path) = model(&tensors, r#"{"n_head": 3}"#);
    std::fs::write(&path, crate::common::safetensors(&(mask + &header), &bytes[8 + len..])).expect("a file");
    let file = std::fs::OpenOptions::new().append(true).open(&path).expect("a file");
    file.set_len(file.metadata().expect("a file").len() + n * n).expect("a hole");
    let said = refusal(&path, &request(0));
    assert!(said.contains("of memory are needed") && said.contains("h.0.attn.bias"), "{said}");
    drop(folder);
    // Long names are cut.
    let mut tensors = Raw::new(1).named("bert", "encoder.layer.0.");
    tensors.insert(format!("encoder.layer.0.attention.self.{}", "x".repeat(70_000)), some(&[1]));
    let (_folder, path) = model(&tensors, r#"{"num_attention_heads": 3}"#);
    assert!(refusal(&path, &request(0)).len() < 1000);
}
