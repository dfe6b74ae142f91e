"""Families of 2025 and after: text decoders, some of them beside a vision tower that is left out.

The same rules as in families.py, which lists all: each function takes `public` and returns a Model.
"""

import math

import torch
import transformers

from pieces import (DROP, NEW_STYLE, OUT_GAIN, Dims, Model, Weights, attention, block_norms,
                    config_of, dense_decoder, embeddings, generation_of, head, mlp)

FROM_HUB_457 = {"torch_dtype": DROP, "dtype": "bfloat16", "transformers_version": "4.57.0"}


def yarn(factor, original, kind="rope_type", **more):
    return {"beta_fast": 32.0, "beta_slow": 1.0, "factor": factor,
            "original_max_position_embeddings": original, kind: "yarn"} | more


def rename_decoder(w, start, head_name="lm_head."):
    """Gives the tensors of `model.` and `lm_head.` the names within a model of several parts."""
    def renamed(name):
        if name.startswith("lm_head."):
            return head_name + name[len("lm_head."):]
        return start + name[len("model."):] if name.startswith("model.") else name
    w.declared = [(renamed(name), *rest) for name, *rest in w.declared]


def add_vision(w, architecture, config, strip):
    """The tensors beside the decoder, as transformers builds them; `strip` begins their names."""
    kind = getattr(transformers, architecture)
    with torch.device("meta"):
        model = kind(kind.config_class.from_dict(config))
    for name, x in model.state_dict().items():
        if "language_model" not in name and not name.startswith("lm_head"):
            w.add(name.removeprefix(strip), *x.shape, std=0.1)


def text_of(config, model_type, *within):
    """Moves all fields into text_config but the few that stand beside it."""
    outside = ("architectures", "torch_dtype", "dtype", "transformers_version", *within)
    text = {k: v for k, v in config.items() if k not in outside} | {"model_type": model_type}
    return {k: v for k, v in config.items() if k in outside} | {"text_config": text}


def image_ids(d):
    return {"image_token_id": d.vocab - 7, "video_token_id": d.vocab - 8,
            "vision_start_token_id": d.vocab - 9, "vision_end_token_id": d.vocab - 10}


QWEN25_VISION = {"depth": 1, "fullatt_block_indexes": [0], "hidden_act": "silu", "hidden_size": 8,
                 "in_chans": 3, "intermediate_size": 8, "num_heads": 2, "patch_size": 4,
                 "spatial_merge_size": 2, "temporal_patch_size": 2, "tokens_per_second": 2,
                 "window_size": 112}


def qwen25_vl(public):
    """Fields of the text at the top level, as on the hub; within text_config, as saved again."""
    d = Dims(64, 3, 4, 2, 16, 64, 110) if public else Dims(96, 4, 6, 3, 16, 48, 115)
    bos, eos = d.vocab - 6, d.vocab - 4
    sections = [2, 3, 3] if public else [4, 2, 2]
    rope = {"rope_scaling": {"type": "mrope", "mrope_section": sections}, "rope_theta": 1000000.0}
    if not public:
        rope = NEW_STYLE | {"rope_parameters": yarn(4.0, 64, mrope_section=sections,
                                                    rope_theta=50000.0)}
    vision = QWEN25_VISION | {"model_type": "qwen2_5_vl", "out_hidden_size": d.hidden}
    config = config_of(
        d, "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", bos_token_id=bos, eos_token_id=eos,
        max_position_embeddings=256, max_window_layers=2, rms_norm_eps=1e-06, sliding_window=32768,
        use_sliding_window=False, **image_ids(d), **rope)
    w = dense_decoder(d, bias=True)
    if not public:
        config = text_of(config, "qwen2_5_vl_text", "tie_word_embeddings", *image_ids(d))
        config |= {"model_type": "qwen2_5_vl"}
        rename_decoder(w, "model.language_model.")
    config["vision_config"] = vision
    add_vision(w, "Qwen2_5_VLForConditionalGeneration", config, "model." if public else "")
    generation = generation_of(bos, [eos, bos], pad_token_id=bos, do_sample=True,
                               repetition_penalty=1.05, temperature=0.000001)
    return Model("qwen25-vl", config, generation, w)


def qwen2_vl(public):
    """All within text_config and `model.language_model.`; with YaRN."""
    d = Dims(64, 3, 4, 1, 16, 64, 101) if public else Dims(80, 3, 5, 5, 16, 48, 127)
    bos, eos = d.vocab - 6, d.vocab - 4
    rope = NEW_STYLE | {"rope_parameters": yarn(4.0, 64, mrope_section=[2, 3, 3],
                                                rope_theta=50000.0)}
    vision = {"depth": 1, "embed_dim": 8, "hidden_act": "quick_gelu", "hidden_size": d.hidden,
              "in_channels": 3, "mlp_ratio": 1, "model_type": "qwen2_vl", "num_heads": 2,
              "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
    config = config_of(
        d, "Qwen2VLForConditionalGeneration", "qwen2_vl", bos_token_id=bos, eos_token_id=eos,
        max_position_embeddings=256, max_window_layers=1, rms_norm_eps=1e-06, sliding_window=18,
        use_sliding_window=not public, tie_word_embeddings=public, **rope)
    config = text_of(config, "qwen2_vl_text", "tie_word_embeddings")
    config |= image_ids(d) | {"model_type": "qwen2_vl", "vision_config": vision}
    w = dense_decoder(d, tied=public, bias=True)
    rename_decoder(w, "model.language_model.")
    add_vision(w, "Qwen2VLForConditionalGeneration", config, "")
    return Model("qwen2-vl", config, generation_of(bos, [eos, bos], pad_token_id=bos), w)


def qwen3_vl(public):
    """Tied; one section of positions in three rows, interleaved."""
    d = Dims(64, 3, 4, 2, 24, 64, 112) if public else Dims(64, 4, 2, 1, 40, 48, 117)
    bos, eos = d.vocab - 6, d.vocab - 4
    sections = [4, 4, 4] if public else [8, 6, 6]
    mrope = {"mrope_interleaved": True, "mrope_section": sections, "rope_type": "default"}
    rope = FROM_HUB_457 | {"rope_scaling": mrope, "rope_theta": 5000000}
    if not public:
        rope = NEW_STYLE | {"rope_parameters": mrope | {"rope_theta": 30000.0}}
    vision = {"deepstack_visual_indexes": [0], "depth": 1, "hidden_act": "gelu_pytorch_tanh",
              "hidden_size": 8, "in_channels": 3, "intermediate_size": 8, "num_heads": 2,
              "model_type": "qwen3_vl", "num_position_embeddings": 4, "out_hidden_size": d.hidden,
              "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
    config = config_of(
        d, "Qwen3VLForConditionalGeneration", "qwen3_vl", attention_bias=False, bos_token_id=bos,
        eos_token_id=eos, head_dim=d.head_dim, max_position_embeddings=262144,
        rms_norm_eps=1e-06, tie_word_embeddings=public, **rope)
    config = text_of(config, "qwen3_vl_text", *(() if public else ("tie_word_embeddings",)))
    config |= image_ids(d) | {"model_type": "qwen3_vl", "vision_config": vision}
    config["tie_word_embeddings"] = public
    w = dense_decoder(d, tied=public, qk_norm="head")
    rename_decoder(w, "model.language_model.")
    add_vision(w, "Qwen3VLForConditionalGeneration", config, "")
    return Model("qwen3-vl", config, generation_of(bos, [eos, bos], pad_token_id=bos), w)


def qwen3_vl_moe(public):
    """Experts in two tensors a layer, inputs first, as on the hub; one layer is dense."""
    d = Dims(64, 3, 4, 2, 24, 48, 103) if public else Dims(80, 4, 2, 1, 40, 48, 126)
    experts, top_k, moe_ffn = (6, 2, 16) if public else (5, 3, 24)
    bos, eos = d.vocab - 6, d.vocab - 4
    mrope = {"mrope_interleaved": True, "mrope_section": [4, 4, 4] if public else [8, 6, 6],
             "rope_type": "default"}
    rope = FROM_HUB_457 | {"rope_scaling": mrope, "rope_theta": 5000000}
    count = {"num_experts": experts}
    if not public:
        rope = NEW_STYLE | {"rope_parameters": mrope | {"rope_theta": 30000.0}}
        count = {"num_local_experts": experts}
    vision = {"deepstack_visual_indexes": [0], "depth": 1, "hidden_act": "gelu_pytorch_tanh",
              "hidden_size": 8, "in_channels": 3, "intermediate_size": 8, "num_heads": 2,
              "model_type": "qwen3_vl_moe", "num_position_embeddings": 4,
              "out_hidden_size": d.hidden, "patch_size": 4, "spatial_merge_size": 2,
              "temporal_patch_size": 2}
    config = config_of(
        d, "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", attention_bias=False,
        bos_token_id=bos, decoder_sparse_step=1, eos_token_id=eos, head_dim=d.head_dim,
        max_position_embeddings=262144, mlp_only_layers=[1], moe_intermediate_size=moe_ffn,
        norm_topk_prob=True, num_experts_per_tok=top_k, rms_norm_eps=1e-06,
        tie_word_embeddings=False, **count, **rope)
    config = text_of(config, "qwen3_vl_moe_text", "tie_word_embeddings")
    config |= image_ids(d) | {"model_type": "qwen3_vl_moe", "vision_config": vision}
    w = Weights()
    embeddings(w, d)
    for i in range(d.layers):
        p = f"model.layers.{i}.mlp."
        attention(w, i, d, qk_norm="head")
        if i == 1:
            mlp(w, p, d.hidden, d.ffn)
        else:
            w.matrix(p + "gate.weight", experts, d.hidden, 2.0)
            w.add(p + "experts.gate_up_proj", experts, d.hidden, 2 * moe_ffn,
                  std=1 / math.sqrt(d.hidden))
            w.add(p + "experts.down_proj", experts, moe_ffn, d.hidden,
                  std=OUT_GAIN / math.sqrt(moe_ffn))
        block_norms(w, i, d)
    head(w, d)
    rename_decoder(w, "model.language_model.")
    add_vision(w, "Qwen3VLMoeForConditionalGeneration", config, "")
    return Model("qwen3-vl-moe", config, generation_of(bos, [eos, bos], pad_token_id=bos), w)


def ministral3_fields(original):
    """YaRN, and queries that grow with every `original` positions."""
    return NEW_STYLE | {
        "max_position_embeddings": 16 * original,
        "rope_parameters": yarn(
            16.0, original, type="yarn", llama_4_scaling_beta=0.3, mscale=1.0, mscale_all_dim=1.0,
            max_position_embeddings=16 * original, rope_theta=1000000.0)}


def ministral3(public):
    d = Dims(64, 3, 3, 1, 32, 64, 111) if public else Dims(80, 4, 4, 2, 24, 48, 114)
    fields = ministral3_fields(32 if public else 24)
    config = config_of(
        d, "Ministral3ForCausalLM", "ministral3", bos_token_id=1, eos_token_id=2,
        head_dim=d.head_dim, pad_token_id=11, sliding_window=None if public else 19, **fields)
    return Model("ministral3", config, generation_of(1, 2, pad_token_id=11), dense_decoder(d))


def mistral3_model(name, d, text_type, old, fields, text):
    """A Mistral or Ministral 3 beside Pixtral's tower."""
    vision = {"head_dim": 4, "hidden_act": "gelu", "hidden_size": 8, "image_size": 16,
              "intermediate_size": 8, "model_type": "pixtral", "num_attention_heads": 2,
              "num_channels": 3, "num_hidden_layers": 1, "patch_size": 4,
              "rope_theta": 10000.0}
    config = config_of(
        d, "Mistral3ForConditionalGeneration", text_type, head_dim=d.head_dim,
        tie_word_embeddings=DROP, **fields)
    config = text_of(config, text_type) | {
        "image_token_index": 10, "model_type": "mistral3", "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu", "spatial_merge_size": 2, "vision_config": vision,
        "vision_feature_layer": -1}
    config |= text
    w = dense_decoder(d)
    if old:
        rename_decoder(w, "language_model.model.", "language_model.lm_head.")
    else:
        rename_decoder(w, "model.language_model.")
    add_vision(w, "Mistral3ForConditionalGeneration", config | {"tie_word_embeddings": False},
               "model." if old else "")
    return Model(name, config, generation_of(1, 2), w)


def mistral3(public):
    """Neither object says whether the head is tied: the tensors do."""
    d = Dims(64, 3, 4, 2, 24, 64, 113) if public else Dims(80, 3, 2, 1, 40, 48, 118)
    fields = {"max_position_embeddings": 131072, "rope_theta": 1000000000.0,
              "sliding_window": None if public else 21, "transformers_version": "4.50.0.dev0"}
    return mistral3_model("mistral3", d, "mistral", public, fields, {})


def devstral(public):
    """mistral3 around ministral3."""
    d = Dims(64, 3, 4, 1, 32, 64, 109) if public else Dims(80, 3, 2, 2, 24, 48, 116)
    fields = ministral3_fields(40 if public else 16) | {"sliding_window": None}
    return mistral3_model("devstral", d, "ministral3", not public, fields,
                          {"tie_word_embeddings": False})


def olmo3(public):
    """OLMo-2's layers; three of four with a window, and YaRN only in the others."""
    d = Dims(64, 4, 4, 4, 16, 64, 108) if public else Dims(80, 4, 4, 2, 20, 48, 121)
    w = Weights()
    embeddings(w, d)
    for i in range(d.layers):
        attention(w, i, d, qk_norm="full")
        mlp(w, f"model.layers.{i}.mlp.", d.hidden, d.ffn)
        block_norms(w, i, d, ("post_attention_layernorm", "post_feedforward_layernorm"))
    head(w, d)
    eos, pad = d.vocab - 3, d.vocab - 2
    kinds = ["full_attention" if i % 4 == (3 if public else 1) else "sliding_attention"
             for i in range(d.layers)]
    scaling = yarn(8.0, 64, attention_factor=1.2079441541679836)
    rope = {"rope_scaling": scaling, "rope_theta": 500000}
    if not public:
        rope = NEW_STYLE | {"rope_parameters": {
            "full_attention": yarn(4.0, 48, rope_theta=90000.0),
            "sliding_attention": {"rope_theta": 20000.0, "rope_type": "default"}}}
    config = config_of(
        d, "Olmo3ForCausalLM", "olmo3", attention_bias=False, bos_token_id=None, eos_token_id=eos,
        layer_types=kinds, max_position_embeddings=512, pad_token_id=pad, rms_norm_eps=1e-06,
        sliding_window=20 if public else 13, **rope)
    return Model("olmo3", config, generation_of(eos, eos, pad_token_id=pad), w)


def seed_oss(public):
    d = Dims(64, 3, 5, 1, 16, 64, 107) if public else Dims(80, 3, 4, 2, 24, 48, 119)
    w = dense_decoder(d, bias=True)
    if not public:
        for i in range(d.layers):
            w.bias(f"model.layers.{i}.self_attn.o_proj.bias", d.hidden)
    rope = {"rope_scaling": {"rope_type": "default"}, "rope_theta": 10000000.0}
    if not public:
        rope = NEW_STYLE | {"rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"}}
    config = config_of(
        d, "SeedOssForCausalLM", "seed_oss", attention_bias=True, attention_dropout=0.1,
        attention_out_bias=not public, bos_token_id=0, eos_token_id=2, head_dim=d.head_dim,
        max_position_embeddings=524288, mlp_bias=False, pad_token_id=1, pretraining_tp=1,
        residual_dropout=0.1, rms_norm_eps=1e-06, **rope)
    return Model("seed-oss", config, generation_of(0, 2, pad_token_id=1), w)


GLM_NORMS = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
             "post_mlp_layernorm")


def glm_model(name, architecture, d, public, norms):
    w = Weights()
    embeddings(w, d)
    for i in range(d.layers):
        p = f"model.layers.{i}."
        attention(w, i, d, bias=public)
        w.matrix(p + "mlp.gate_up_proj.weight", 2 * d.ffn, d.hidden)
        w.matrix(p + "mlp.down_proj.weight", d.hidden, d.ffn, OUT_GAIN)
        block_norms(w, i, d, norms)
    head(w, d)
    rope = {"partial_rotary_factor": 0.5, "rope_theta": 10000.0}
    if not public:
        rope = NEW_STYLE | {"rope_parameters": {
            "partial_rotary_factor": 0.4, "rope_theta": 30000.0, "rope_type": "default"}}
    pad = d.vocab - 10
    stops = [pad, pad + 3, pad + 5]
    config = config_of(
        d, architecture, name, attention_bias=public, eos_token_id=stops,
        head_dim=d.head_dim, max_position_embeddings=32768, pad_token_id=pad, **rope)
    return Model(name, config, generation_of(None, stops, pad_token_id=pad), w)


def glm(public):
    """Neighbours of the first half of each head rotate; biases of q, k and v."""
    d = Dims(64, 3, 4, 2, 24, 64, 100) if public else Dims(80, 3, 4, 1, 20, 48, 128)
    norms = ("input_layernorm", "post_attention_layernorm")
    return glm_model("glm", "GlmForCausalLM", d, public, norms)


def glm4(public):
    """The same with norms behind the branches too."""
    d = Dims(64, 3, 4, 2, 24, 64, 106) if public else Dims(80, 3, 4, 1, 20, 48, 122)
    return glm_model("glm4", "Glm4ForCausalLM", d, public, GLM_NORMS)


def glm4_moe_model(d, public, experts, top_k, moe_ffn, groups, qk_norm):
    """Dense first layer; behind the last one the tensors of a layer that guesses ahead."""
    w = Weights()
    embeddings(w, d)
    for i in range(d.layers):
        p = f"model.layers.{i}.mlp."
        attention(w, i, d, bias=public, qk_norm="head" if qk_norm else None)
        if i == 0:
            mlp(w, p, d.hidden, d.ffn)
        else:
            w.matrix(p + "gate.weight", experts, d.hidden, 2.0)
            w.add(p + "gate.e_score_correction_bias", experts, std=0.1, mean=0.3)
            w.float32.add(p + "gate.e_score_correction_bias")
            for e in range(experts):
                mlp(w, f"{p}experts.{e}.", d.hidden, moe_ffn)
            mlp(w, p + "shared_experts.", d.hidden, moe_ffn)
        block_norms(w, i, d)
    if public:
        p = f"model.layers.{d.layers}."
        for name in ("enorm", "hnorm", "input_layernorm", "shared_head.norm"):
            w.norm(f"{p}{name}.weight", d.hidden)
        w.matrix(p + "self_attn.q_proj.weight", d.heads * d.head_dim, d.hidden)
    head(w, d)
    return w


def glm4_moe(public):
    d = Dims(64, 3, 6, 2, 16, 64, 105) if public else Dims(80, 3, 4, 2, 24, 48, 123)
    experts, top_k, moe_ffn, groups = (6, 3, 16, 1) if public else (8, 2, 16, 4)
    w = glm4_moe_model(d, public, experts, top_k, moe_ffn, groups, qk_norm=True)
    rope = {"partial_rotary_factor": 0.5, "rope_scaling": None, "rope_theta": 1000000}
    if not public:
        rope = NEW_STYLE | {"rope_parameters": {
            "partial_rotary_factor": 0.5, "rope_theta": 30000.0, "rope_type": "default"}}
    pad = d.vocab - 10
    stops = [pad, pad + 3, pad + 5]
    config = config_of(
        d, "Glm4MoeForCausalLM", "glm4_moe", attention_bias=public, eos_token_id=stops,
        first_k_dense_replace=1, head_dim=d.head_dim, max_position_embeddings=131072,
        moe_intermediate_size=moe_ffn, n_group=groups, n_routed_experts=experts,
        n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=top_k,
        num_nextn_predict_layers=1, pad_token_id=pad, routed_scaling_factor=2.5,
        topk_group=min(groups, 2), use_qk_norm=True, **rope)
    return Model("glm4-moe", config, generation_of(None, stops, pad_token_id=pad), w)


def minimax_m2(public):
    """q/k norm over the whole projection; all layers are mixtures; rotary_dim of each head."""
    d = Dims(64, 3, 4, 2, 24, 16, 104) if public else Dims(80, 3, 3, 1, 32, 16, 124)
    experts, top_k = (6, 3) if public else (5, 2)
    w = Weights()
    embeddings(w, d)
    for i in range(d.layers):
        p = f"model.layers.{i}.block_sparse_moe."
        attention(w, i, d, qk_norm="full")
        w.matrix(p + "gate.weight", experts, d.hidden, 2.0)
        w.add(p + "e_score_correction_bias", experts, std=0.1, mean=0.3)
        w.float32.add(p + "e_score_correction_bias")
        for e in range(experts):
            mlp(w, f"{p}experts.{e}.", d.hidden, d.ffn, names=("w1", "w3", "w2"))
        block_norms(w, i, d)
    head(w, d)
    rope = {"rope_theta": 5000000, "rotary_dim": 16}
    own = {"attn_type_list": [1] * d.layers, "layernorm_full_attention_beta": 1.0,
           "mlp_intermediate_size": 64, "mtp_transformer_layers": 1, "num_mtp_modules": 3,
           "qk_norm_type": "per_layer", "scoring_func": "sigmoid", "shared_intermediate_size": 0,
           "shared_moe_mode": "sigmoid", "use_mtp": True, "use_qk_norm": True,
           "use_routing_bias": True, "sliding_window": None}
    if not public:
        own = {"rotary_dim": 8}
        rope = NEW_STYLE | {"rope_parameters": {
            "partial_rotary_factor": 0.25, "rope_theta": 60000.0, "rope_type": "default"}}
    config = config_of(
        d, "MiniMaxM2ForCausalLM", "minimax_m2", bos_token_id=None, eos_token_id=d.vocab - 4,
        head_dim=d.head_dim, max_position_embeddings=196608, num_experts_per_tok=top_k,
        num_local_experts=experts, output_router_logits=False, rms_norm_eps=1e-06,
        router_aux_loss_coef=0.001, router_jitter_noise=0.0, **own, **rope)
    generation = generation_of(d.vocab - 5, d.vocab - 4, do_sample=True, temperature=1.0,
                               top_p=0.95, top_k=40)
    return Model("minimax-m2", config, generation, w)


NAMES = {"qwen2-vl": qwen2_vl, "qwen25-vl": qwen25_vl, "qwen3-vl": qwen3_vl,
         "qwen3-vl-moe": qwen3_vl_moe, "mistral3": mistral3,
         "ministral3": ministral3, "devstral": devstral, "olmo3": olmo3, "seed-oss": seed_oss,
         "glm": glm, "glm4": glm4, "glm4-moe": glm4_moe, "minimax-m2": minimax_m2}
