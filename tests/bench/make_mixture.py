#!/usr/bin/env python3
"""Writes random weights of a mixture of experts as a Hugging Face checkpoint, bfloat16.

    make_mixture.py SHAPE DIR [--seed N]

qwen3-moe has the widths of Qwen3-30B-A3B, deepseek-v2 those of DeepSeek-V2-Lite (latent attention),
both with fewer layers and experts: 5.4 and 3.4 GB. `strata-worker bench --model DIR` measures them.
DIR has to be outside the source tree.
"""
import argparse
import pathlib
import shutil
import sys

import make_shape
from make_shape import Refused, SafetensorsWriter, elements, weights

COMMON = {"hidden_act": "silu", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
          "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-6,
          "vocab_size": 32000, "hidden_size": 2048}
CONFIGS = {
    "qwen3-moe": {
        **COMMON, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
        "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
        "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 40960,
        "rope_theta": 1e6, "rope_scaling": None, "sliding_window": None,
        "use_sliding_window": False},
    "deepseek-v2": {
        **COMMON, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
        "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 16,
        "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 32,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "n_group": 1, "topk_group": 1,
        "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": False,
        "routed_scaling_factor": 1.0, "max_position_embeddings": 40960, "rope_theta": 10000.0,
        "rope_scaling": None},
}


def gated(prefix, hidden, ffn):
    return [(f"{prefix}.gate_proj.weight", [ffn, hidden]), (f"{prefix}.up_proj.weight", [ffn, hidden]),
            (f"{prefix}.down_proj.weight", [hidden, ffn])]


def attention(layer, c):
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    p = f"model.layers.{layer}.self_attn"
    if "kv_lora_rank" in c:
        rank, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
        nope, value = c["qk_nope_head_dim"], c["v_head_dim"]
        return [(f"{p}.q_proj.weight", [heads * (nope + rope), hidden]),
                (f"{p}.kv_a_proj_with_mqa.weight", [rank + rope, hidden]),
                (f"{p}.kv_a_layernorm.weight", [rank]),
                (f"{p}.kv_b_proj.weight", [heads * (nope + value), rank]),
                (f"{p}.o_proj.weight", [hidden, heads * value])]
    head_dim, kv = c["head_dim"], c["num_key_value_heads"]
    return [(f"{p}.q_proj.weight", [heads * head_dim, hidden]),
            (f"{p}.k_proj.weight", [kv * head_dim, hidden]),
            (f"{p}.v_proj.weight", [kv * head_dim, hidden]),
            (f"{p}.o_proj.weight", [hidden, heads * head_dim]),
            (f"{p}.q_norm.weight", [head_dim]), (f"{p}.k_norm.weight", [head_dim])]


def tensors_of(c):
    """[(name, size)]."""
    hidden = c["hidden_size"]
    experts = c.get("num_experts", c.get("n_routed_experts"))
    tensors = [("model.embed_tokens.weight", [c["vocab_size"], hidden])]
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}"
        tensors += [(f"{p}.input_layernorm.weight", [hidden]), *attention(layer, c),
                    (f"{p}.post_attention_layernorm.weight", [hidden])]
        if layer < c.get("first_k_dense_replace", 0):
            tensors += gated(f"{p}.mlp", hidden, c["intermediate_size"])
            continue
        tensors.append((f"{p}.mlp.gate.weight", [experts, hidden]))
        for expert in range(experts):
            tensors += gated(f"{p}.mlp.experts.{expert}", hidden, c["moe_intermediate_size"])
        if "n_shared_experts" in c:
            tensors += gated(f"{p}.mlp.shared_experts", hidden,
                             c["n_shared_experts"] * c["moe_intermediate_size"])
    return tensors + [("model.norm.weight", [hidden]),
                      ("lm_head.weight", [c["vocab_size"], hidden])]


def make(shape, folder, seed, say):
    config = CONFIGS[shape]
    tensors = tensors_of(config)
    folder = pathlib.Path(folder).resolve()
    if folder == make_shape.TREE or make_shape.TREE in folder.parents:
        raise Refused(f"{folder} is in the source tree: name a folder outside it")
    need = 2 * sum(elements(size) for _, size in tensors)
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise Refused(f"{folder} has {free / 1e9:.1f} GB free and {shape} takes {need / 1e9:.1f} GB: "
                      "name a folder with more")
    writer = SafetensorsWriter(folder, config, tensors)
    for i, (name, size) in enumerate(tensors):
        if i % 200 == 0:
            say(f"{i} of {len(tensors)} tensors")
        writer.write(name, weights(seed, name, size))
    writer.close()
    say(f"{shape}, {need / 2e6:.1f} million parameters, is in {folder}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=CONFIGS, help="which")
    parser.add_argument("dir", type=pathlib.Path, help="where to, outside the source tree")
    parser.add_argument("--seed", type=int, default=11, help="of the weights (default 11)")
    arguments = parser.parse_args()
    try:
        make(arguments.shape, arguments.dir, arguments.seed,
             lambda line: print(line, file=sys.stderr, flush=True))
    except (Refused, OSError) as error:
        sys.exit(f"make_mixture.py: {error}")


if __name__ == "__main__":
    main()
