"""Made-up checkpoints."""

import json
import struct

import numpy as np


def make_checkpoint(folder, layers=4, hidden=1024, ffn=2816, vocab=2000, heads=16, kv_heads=16,
                    context=256, sparse=False, stored="f32"):
    """Random weights of the Llama shape, large enough to be interrupted, or zeros that take no room
    on the disk. Their bytes. `stored`: "f32", "bf16", or "mlx4" or "mlx8" in groups of 64."""
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "intermediate_size": ffn, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "max_position_embeddings": context, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
              "torch_dtype": "float32"}
    if stored.startswith("mlx"):
        config["quantization"] = {"group_size": 64, "bits": int(stored[3:])}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocab, hidden)}
    for i in range(layers):
        p = f"model.layers.{i}."
        for name in "qo":
            shapes[f"{p}self_attn.{name}_proj.weight"] = (hidden, hidden)
        for name in "kv":
            shapes[f"{p}self_attn.{name}_proj.weight"] = (hidden // heads * kv_heads, hidden)
        shapes |= {f"{p}mlp.gate_proj.weight": (ffn, hidden),
                   f"{p}mlp.up_proj.weight": (ffn, hidden),
                   f"{p}mlp.down_proj.weight": (hidden, ffn),
                   f"{p}input_layernorm.weight": (hidden,),
                   f"{p}post_attention_layernorm.weight": (hidden,)}
    return write_weights(folder, shapes, sparse, stored=stored)


def make_phi3(folder, layers=4, hidden=64, ffn=96, vocab=128, heads=2, **fields):
    """A Phi-3 of random float32 weights; `fields` are more of config.json's."""
    folder.mkdir()
    config = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": hidden,
              "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": heads, "vocab_size": vocab, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
              "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32", **fields}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocab, hidden)}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes |= {f"{p}self_attn.qkv_proj.weight": (3 * hidden, hidden),
                   f"{p}self_attn.o_proj.weight": (hidden, hidden),
                   f"{p}mlp.gate_up_proj.weight": (2 * ffn, hidden),
                   f"{p}mlp.down_proj.weight": (hidden, ffn),
                   f"{p}input_layernorm.weight": (hidden,),
                   f"{p}post_attention_layernorm.weight": (hidden,)}
    return write_weights(folder, shapes, scale=0.2)


def tensors_of(shapes, stored):
    """(name, dtype, shape) of what a checkpoint has for matrices and vectors of these shapes."""
    for name, shape in shapes.items():
        if not stored.startswith("mlx"):
            yield name, stored.upper(), shape
        elif len(shape) == 1:
            yield name, "BF16", shape
        else:
            outputs, inputs = shape
            yield name, "U32", (outputs, inputs * int(stored[3:]) // 32)
            for part in ("scales", "biases"):
                yield name.removesuffix("weight") + part, "BF16", (outputs, inputs // 64)


def write_weights(folder, shapes, sparse=False, scale=0.02, stored="f32"):
    tensors = list(tensors_of(shapes, stored))
    header, offset = {}, 0
    for name, dtype, shape in tensors:
        size = {"F32": 4, "BF16": 2, "U32": 4}[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    rng = np.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            f.truncate(f.tell() + offset)
            return offset
        for _, dtype, shape in tensors:
            if dtype == "U32":
                f.write(rng.integers(0, 1 << 32, shape, dtype=np.uint32).tobytes())
                continue
            values = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
            if dtype == "BF16":
                values = (values.view(np.uint32) >> 16).astype(np.uint16)
            f.write(values.tobytes())
    return offset
