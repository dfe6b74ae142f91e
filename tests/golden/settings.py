"""Families of families.py in the newest transformers' style, and with settings that it lacks.

They are small: what they are about is one thing each.
"""

import families
from pieces import (NEW_STYLE, Dims, Model, config_of, dense_decoder, generation_of,
                    gpt_oss_decoder)

NEWEST = NEW_STYLE | {"transformers_version": "5.24.0"}


def qwen3_moe_local(public):
    """The number of experts under the name that transformers 5 writes."""
    d = Dims(48, 2, 2, 1, 16, 48, 97) if public else Dims(64, 3, 4, 2, 16, 32, 91)
    rope = {"rope_theta": 50000.0, "rope_type": "default"}
    fields = NEWEST | {"rope_parameters": rope}
    model = families.qwen3_moe_model("qwen3-moe-local", d, 6, 3, 16, True, **fields)
    model.config["num_local_experts"] = model.config.pop("num_experts")
    return model


def gpt_oss_alpha(public):
    """Another gain in the experts' activation, experts of any width, and no rotation's settings:
    the configuration class has YaRN then."""
    model = families.gpt_oss(public)
    d = Dims(48, 2, 2, 1, 16, 45, 93) if public else Dims(64, 3, 2, 1, 24, 37, 95)
    experts = 4
    weights = gpt_oss_decoder(d, experts)
    eos, pad = d.vocab - 4, d.vocab - 5
    config = {k: v for k, v in model.config.items()
              if k not in ("rope_scaling", "rope_theta", "rope_parameters", "torch_dtype")} | dict(
        head_dim=d.head_dim, hidden_size=d.hidden, intermediate_size=d.ffn, vocab_size=d.vocab,
        num_attention_heads=d.heads, num_key_value_heads=d.kv, num_hidden_layers=d.layers,
        layer_types=["full_attention" if i % 2 else "sliding_attention" for i in range(d.layers)],
        num_experts=experts, num_local_experts=experts, num_experts_per_tok=2,
        experts_per_token=2, dtype="bfloat16", swiglu_alpha=1.2 if public else 0.8,
        swiglu_limit=2.0, eos_token_id=eos, pad_token_id=pad, transformers_version="5.24.0")
    return Model("gpt-oss-alpha", config, generation_of(pad, [eos, eos - 2], pad_token_id=pad),
                 weights)


def yarn(original, factor, **fields):
    return {"factor": factor, "original_max_position_embeddings": original,
            "rope_type": "yarn"} | fields


def qwen2_yarn(public):
    """As Qwen's model cards say: max_position_embeddings stays what the model was trained for."""
    d = Dims(64, 2, 4, 2, 16, 64, 95) if public else Dims(64, 3, 2, 1, 32, 48, 97)
    original = 48 if public else 64
    bos, eos = d.vocab - 6, d.vocab - 4
    config = config_of(
        d, "Qwen2ForCausalLM", "qwen2", bos_token_id=bos, eos_token_id=eos,
        max_position_embeddings=original, max_window_layers=28, rms_norm_eps=1e-06,
        rope_theta=1000000.0, rope_scaling=yarn(original, 4.0), sliding_window=None,
        use_sliding_window=False)
    return Model("qwen2-yarn", config, generation_of(bos, [eos, bos], pad_token_id=bos),
                 dense_decoder(d, bias=True))


def mistral_yarn(public):
    """YaRN's settings as Mistral's newest files have them, without a window."""
    d = Dims(48, 2, 4, 2, 16, 64, 96) if public else Dims(64, 3, 2, 1, 24, 48, 98)
    rope = yarn(64, 8.0, beta_fast=4.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=0.6,
                rope_theta=100000.0)
    fields = NEWEST | {"rope_parameters": rope}
    config = config_of(
        d, "MistralForCausalLM", "mistral", bos_token_id=1, eos_token_id=2, head_dim=d.head_dim,
        max_position_embeddings=512, sliding_window=None, **fields)
    return Model("mistral-yarn", config, generation_of(1, 2), dense_decoder(d))


def pin_dynamic(original, factor):
    """Pins dynamic NTK to the frequencies of one length a case: those of a sequence within the
    original length, or those of the longest."""

    def adjust(cases, rng, model):
        for c in cases:
            c.rope_factors = "long" if len(c.prompt_ids) > original else "short"
            c.note = (f"frequencies of {factor * original} tokens throughout"
                      if c.rope_factors == "long" else "plain rotation throughout")

    return adjust


def llama_dynamic(public):
    d = Dims(64, 2, 4, 2, 16, 64, 94) if public else Dims(64, 3, 2, 1, 32, 48, 90)
    original, factor = (64, 4) if public else (72, 3)
    rope = {"factor": float(factor), "type": "dynamic"}
    config = config_of(
        d, "LlamaForCausalLM", "llama", attention_bias=False, bos_token_id=1, eos_token_id=2,
        max_position_embeddings=original, pretraining_tp=1, rope_scaling=rope, rope_theta=10000.0)
    return Model("llama-dynamic", config, generation_of(1, 2), dense_decoder(d),
                 adjust_cases=pin_dynamic(original, factor))


ALL = {f.__name__.replace("_", "-"): f for f in (
    qwen3_moe_local, gpt_oss_alpha, qwen2_yarn, mistral_yarn, llama_dynamic)}
