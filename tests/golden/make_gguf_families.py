#!/usr/bin/env python3
"""Writes tiny models of further architectures as GGUF v3 with gguf-py: names by its tables, keys
and layouts as llama.cpp's conversion scripts have them.

Files in bfloat16 have the source's weights exactly, and its cases. The expected results of the
others come from transformers on the weights as gguf-py dequantizes them, with what a GGUF file
cannot say as its readers have it (CHANGES). Run make_models.py first.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import zlib

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type

import reference
import stored_model
from make_gguf import load_source, to_interleaved
from pieces import Model

ARCHITECTURES = {"phi3": "phi3", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "mixtral": "llama",
                 "gemma2": "gemma2", "gemma3_text": "gemma3", "gpt_oss": "gpt-oss",
                 "smollm3": "smollm3", "granite": "granite", "olmo2": "olmo2",
                 "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "gemma": "gemma",
                 "ministral3": "mistral3", "olmo3": "olmo2", "glm4": "glm4",
                 "glm4_moe": "glm4moe", "seed_oss": "seed_oss", "minimax_m2": "minimax-m2",
                 "qwen2_5_vl": "qwen2vl", "qwen3_vl_text": "qwen3vl"}
AS_LLAMA = ("mixtral", "smollm3", "granite", "ministral3")  # Converted as llama is.
EXPERTS_APART = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe", "minimax_m2")
FILE_TYPES = {Type.BF16: gguf.LlamaFileType.MOSTLY_BF16, Type.Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0,
              Type.Q4_0: gguf.LlamaFileType.MOSTLY_Q4_0,
              Type.MXFP4: gguf.LlamaFileType.MOSTLY_MXFP4_MOE}

# No key says these: scores are divided by head_dim's root, the clamp is gpt-oss' own.
CHANGES = {"gemma2": {"query_pre_attn_scalar": 24}, "gemma3": {"query_pre_attn_scalar": 24},
           "gpt-oss": {"swiglu_limit": 7.0},
           "qwen3-yarn": {"max_position_embeddings": 256,
                          "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                           "original_max_position_embeddings": 64}}}


@dataclasses.dataclass
class File:
    source: str
    kind: Type
    label: str = ""
    each_expert: bool = False  # A tensor an expert, as files of 2023 have it.
    # Of latent attention: what makes keys and what makes values in one tensor, and heads counted as
    # without it, as files of before 2025 have it.
    kv_in_one: bool = False

    @property
    def name(self):
        return f"{self.label or self.source}-{self.kind.name.lower()}"


FILES = [File("phi3", Type.Q4_0), File("phi3-longrope", Type.BF16), File("phi4-mini", Type.BF16),
         File("mixtral", Type.BF16), File("mixtral", Type.Q4_0, "mixtral-experts", True),
         File("qwen3-moe", Type.Q8_0), File("qwen3", Type.Q8_0, "qwen3-yarn"),
         File("smollm3", Type.BF16), File("granite", Type.BF16), File("olmo2", Type.BF16),
         File("gemma2", Type.Q8_0), File("gemma3", Type.Q8_0), File("gpt-oss", Type.MXFP4),
         File("deepseek-v2", Type.BF16),
         File("deepseek-v2", Type.Q8_0, "deepseek-v2-old", kv_in_one=True),
         File("deepseek-v3", Type.Q8_0)]
FILES += [File(source, Type.BF16) for source in (
    "gemma", "ministral3", "olmo3", "glm4", "glm4-moe", "seed-oss", "minimax-m2", "qwen25-vl",
    "qwen3-vl")]


def heads_of_kv(config, x):
    """kv_b_proj as each head's rows that make keys, and those that make values."""
    heads = x.reshape(config["num_attention_heads"], -1, x.shape[1])
    return np.split(heads, [config["qk_nope_head_dim"]], axis=1)


def layouts(config, tensors, file):
    """The tensors as GGUF has them, under names that gguf-py's tables know: experts stacked, norms
    with Gemma's 1 added, rows of q and k for the rotation of neighbours, what makes keys and values
    of latent vectors apart, the former transposed."""
    kind, out, experts = config["model_type"], {}, {}
    for name, x in tensors.items():
        if name.endswith("kv_b_proj.weight") and not file.kv_in_one:
            keys, values = heads_of_kv(config, x)
            out[name.replace("kv_b_proj", "k_b_proj")] = keys.swapaxes(1, 2)
            out[name.replace("kv_b_proj", "v_b_proj")] = values
        elif name.endswith("e_score_correction_bias"):
            out[name.replace("correction_bias", "correction.bias")] = x
        elif ".experts." in name and kind in EXPERTS_APART:
            before, after = name.split(".experts.")
            number, module = after.split(".", 1)
            experts.setdefault((before, module), {})[int(number)] = x
        elif kind == "gpt_oss" and name.endswith("gate_up_proj"):
            path = name.removesuffix("gate_up_proj")
            out[path + "gate_proj.weight"] = x[:, :, ::2].swapaxes(1, 2)
            out[path + "up_proj.weight"] = x[:, :, 1::2].swapaxes(1, 2)
        elif kind == "gpt_oss" and name.endswith("gate_up_proj_bias"):
            path = name.removesuffix("gate_up_proj_bias")
            out[path + "gate_proj.bias"], out[path + "up_proj.bias"] = x[:, ::2], x[:, 1::2]
        elif kind == "gpt_oss" and name.endswith("experts.down_proj"):
            out[name + ".weight"] = x.swapaxes(1, 2)
        elif kind == "gpt_oss" and name.endswith("down_proj_bias"):
            out[name.replace("_bias", ".bias")] = x
        elif name.endswith("sinks"):
            out[name + ".weight"] = x
        elif kind.startswith("gemma") and name.endswith("norm.weight"):
            out[name] = x + 1
        elif kind in AS_LLAMA and ".q_proj." in name:
            out[name] = to_interleaved(x, config["num_attention_heads"])
        elif kind in AS_LLAMA and ".k_proj." in name:
            out[name] = to_interleaved(x, config["num_key_value_heads"])
        else:
            out[name] = x
    for (before, module), each in experts.items():
        if file.each_expert:
            layer = before.split(".")[2]
            new = {"w1": "gate", "w2": "down", "w3": "up"}[module.split(".")[0]]
            out |= {f"blk.{layer}.ffn_{new}.{e}.weight": x for e, x in each.items()}
        else:
            if "block_sparse_moe" in before:
                before = before.replace("model.layers", "layers")
                before = before.replace("block_sparse_moe", "feed_forward")
            out[f"{before}.experts.{module}"] = np.stack([each[e] for e in range(len(each))])
    return out


def kind_of(name, x, kind):
    """As the converter chooses: small tensors and routers in float32, and what does not fall into
    whole blocks in 16 bits. Of gpt-oss the experts are MXFP4."""
    if x.ndim == 1 or ".bias" in name or "ffn_gate_inp" in name:
        return Type.F32
    if kind == Type.MXFP4 and "_exps" not in name:
        return Type.BF16
    if kind == Type.Q4_0 and name in ("output.weight", "lm_head.weight"):
        return Type.Q8_0  # mixed types, as in published files
    return kind if x.shape[-1] % 32 == 0 else Type.BF16


def rounded(x, kind):
    """What gguf-py dequantizes of what it quantizes."""
    if kind == Type.F32:
        return x
    x = np.ascontiguousarray(x)
    return gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind).reshape(x.shape)


def values_of(config, tensors, file):
    """The source's tensors with the values that the file's have. Blocks are parts of rows."""
    out, kind = {}, file.kind
    for name, x in tensors.items():
        if name.endswith("kv_b_proj.weight") and not file.kv_in_one:
            keys, values = heads_of_kv(config, x)
            keys = rounded(keys.swapaxes(1, 2), kind_of(name, keys.swapaxes(1, 2), kind))
            values = rounded(values, kind_of(name, values, kind))
            x = np.concatenate([keys.swapaxes(1, 2), values], axis=1).reshape(x.shape)
        elif config["model_type"] == "gpt_oss" and name.endswith(("gate_up_proj", "down_proj")):
            x = rounded(x.swapaxes(1, 2), kind).swapaxes(1, 2)
        elif x.ndim >= 2 and not name.endswith(("_bias", "router.weight", ".gate.weight")):
            x = rounded(x, Type.BF16 if kind == Type.MXFP4 else kind_of(name, x, kind))
        out[name] = torch.from_numpy(np.array(x, dtype=np.float32, order="C"))
    return out


def add_rotation(writer, config):
    """Of the architectures whose keys the converter's base class writes."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    writer.add_rope_freq_base((config.get("rope_parameters") or config)["rope_theta"])
    if "rope_local_base_freq" in config:
        writer.add_rope_freq_base_swa(config["rope_local_base_freq"])
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif (scaling.get("rope_type") or scaling.get("type")) == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        if "beta_fast" in scaling:
            writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
        if "attention_factor" in scaling:
            writer.add_rope_scaling_yarn_attn_factor(scaling["attention_factor"])
        if config["model_type"].startswith("deepseek"):
            writer.add_rope_scaling_yarn_log_mul(0.1 * scaling["mscale_all_dim"])
        if config["model_type"] == "ministral3":
            writer.add_rope_scaling_yarn_log_mul(scaling["mscale_all_dim"])
            writer.add_attn_temperature_scale(scaling["llama_4_scaling_beta"])
    if "mrope_section" in scaling:
        writer.add_rope_dimension_sections((scaling["mrope_section"] + [0])[:4])


def add_deepseek(writer, config, file):
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    size = config["qk_nope_head_dim"] + rope
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_head_count_kv(config["num_attention_heads"] if file.kv_in_one else 1)
    writer.add_key_length(size if file.kv_in_one else rank + rope)
    writer.add_value_length(config["v_head_dim"] if file.kv_in_one else rank)
    if not file.kv_in_one:
        writer.add_key_length_mla(size)
        writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(rope)
    add_deepseeks_experts(writer, config)
    if not file.kv_in_one:
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
        writer.add_expert_gating_func(
            gguf.ExpertGatingFuncType.SIGMOID if config["scoring_func"] == "sigmoid"
            else gguf.ExpertGatingFuncType.SOFTMAX)


def add_deepseeks_experts(writer, config):
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config["norm_topk_prob"]:
        writer.add_expert_weights_norm(True)


def add_phi3_rotation(writer, config):
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    original = config["original_max_position_embeddings"]
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(int(config.get("partial_rotary_factor", 1) * hidden) // heads)
    writer.add_rope_scaling_orig_ctx_len(original)
    if config["rope_scaling"]:
        scale = config["max_position_embeddings"] / original
        factor = math.sqrt(1 + math.log(scale) / math.log(original))
        writer.add_rope_scaling_attn_factors(factor)
        for name in ("long", "short"):
            factors = np.array(config["rope_scaling"][f"{name}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{name}.weight", factors)


def add_metadata(writer, config, file):
    kind = file.kind
    heads, family = config["num_attention_heads"], config["model_type"]
    writer.add_name("tiny")
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    guesses = config["num_nextn_predict_layers"] if family == "glm4_moe" else 0
    writer.add_block_count(config["num_hidden_layers"] + guesses)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    if family.startswith("deepseek"):
        add_deepseek(writer, config, file)
    else:
        writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if family == "phi3":
        add_phi3_rotation(writer, config)
    elif family not in ("gemma", "gemma2"):
        add_rotation(writer, config)
    if family in AS_LLAMA:
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    if family in ("phi3", "gemma2", "gemma3_text", "gpt_oss", "olmo3"):
        writer.add_sliding_window(config["sliding_window"] or 0)
    if family == "olmo3":
        writer.add_sliding_window_pattern([one == "sliding_attention"
                                           for one in config["layer_types"]])
    if family in ("glm4", "glm4_moe"):
        share = config["partial_rotary_factor"]
        writer.add_rope_dimension_count(int(config["head_dim"] * share))
    if family == "glm4_moe":
        add_deepseeks_experts(writer, config)
        writer.add_nextn_predict_layers(guesses)
    if family == "minimax_m2":
        writer.add_rope_dimension_count(config["rotary_dim"])
    if family in ("glm4_moe", "minimax_m2"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if family == "qwen3_vl_text":
        writer.add_num_deepstack_layers(len(config["vision_config"]["deepstack_visual_indexes"]))
    if family == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if family == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if "num_experts_per_tok" in config and "n_routed_experts" not in config:
        writer.add_expert_count(config.get("num_local_experts") or config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if family in ("qwen3_moe", "gpt_oss", "minimax_m2"):
        writer.add_expert_feed_forward_length(
            config.get("moe_intermediate_size") or config["intermediate_size"])


def add_tokenizer(writer, config, generation):
    """A piece an id."""
    n, kinds = config["vocab_size"], gguf.TokenType
    eos = generation.get("eos_token_id") or config["eos_token_id"]
    eos = eos if isinstance(eos, list) else [eos]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(["<unk>"] + [f"p{i}" for i in range(1, n)])
    writer.add_token_scores([0.0] * n)
    types = [kinds.UNKNOWN] + [kinds.NORMAL] * (n - 1)
    for i in eos:
        types[i] = kinds.CONTROL
    writer.add_token_types(types)
    if config.get("bos_token_id") is not None:
        writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(eos[0])
    if len(eos) > 1:
        writer.add_eot_token_id(eos[1])
    if len(eos) > 2:
        writer.add_eom_token_id(eos[2])
    writer.add_add_bos_token(False)


def write(path, file, config, generation, tensors):
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config["model_type"]])
    add_metadata(writer, config, file)
    add_tokenizer(writer, config, generation)
    arch = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == writer.arch)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"] + 1)
    for original, x in layouts(config, tensors, file).items():
        name = original
        if not name.startswith("blk."):
            name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert name, original
        own = kind_of(name, x, file.kind)
        x = np.ascontiguousarray(x, dtype=np.float32)
        writer.add_tensor(name, x if own == Type.F32 else gguf.quants.quantize(x, own),
                          raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(file, models, out, seed):
    config = json.loads((models / file.source / "config.json").read_text())
    config |= CHANGES.get(file.label or file.source, {})
    config |= config.get("text_config", {})
    generation = json.loads((models / file.source / "generation_config.json").read_text())
    tensors = {name.replace("language_model.", ""): x
               for name, x in load_source(models / file.source).items() if "visual." not in name}
    path = out / f"{file.name}.gguf"
    write(path, file, config, generation, tensors)
    gap = ""
    if file.kind != Type.BF16:
        hf = reference.load_tensors(config, values_of(config, tensors, file))
        rng = np.random.default_rng([seed, zlib.crc32(file.name.encode())])
        case = stored_model.stable_case(hf, Model(file.source, config, generation, None), rng)
        logits = reference.logits_of(hf, case, case.prompt_ids + case.greedy_ids[:-1])
        reference.write_results([case], {f"{case.name}.logits": logits},
                                out / f"{file.name}.cases.json",
                                out / f"{file.name}.expected.safetensors")
        gap = f"  smallest gap {reference.check_steps(logits, case):.4f}"
    print(f"{path.name:28} {path.stat().st_size / 1024:5.0f} KiB{gap}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent,
                        help="holds models/; gguf/ is written (default: beside this script)")
    parser.add_argument("--only", nargs="+", choices=[f.name for f in FILES])
    args = parser.parse_args()
    reference.quiet()
    for file in FILES:
        if not args.only or file.name in args.only:
            make(file, args.out / "models", args.out / "gguf", args.seed)


if __name__ == "__main__":
    main()
