#!/usr/bin/env python3
"""What each field of a config.json does to a model's logits, by Hugging Face transformers.

Writes config_fields.json: for each golden model that stands for a family, single changes of its
config.json (a field set, also one that is not there, dropped, or set within the object of its
rotation), and the last row's first logits of a prompt of PROMPT tokens after it; null where they
are those of the file as it is. The fields are those of all families' configuration classes, with
the names of transformers 4. What transformers refuses, or would fill with random weights, is left
out.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import pathlib
import tempfile

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

MODELS = ("llama", "llama31", "mistral", "qwen2", "qwen3", "smollm3", "granite", "olmo2", "phi3",
          "phi4-mini", "gemma", "gemma2", "gemma3", "mixtral", "qwen3-moe", "gpt-oss",
          "deepseek-v2", "deepseek-v3", "olmo3", "seed-oss", "glm4", "glm4-moe", "minimax-m2",
          "ministral3", "glm", "glm4-moe-lite")
PROMPT = 24
KEPT = 4  # logits of a change
SAME = 1e-7  # relative; the order of sums alone moves a logit by more

# What changes no arithmetic of a decoder, or is of other parts: not tried.
SKIPPED = {
    "model_type", "architectures", "transformers_version", "dtype", "torch_dtype", "id2label",
    "label2id", "problem_type", "output_hidden_states", "return_dict", "vocab_size", "hidden_size",
    "num_attention_heads", "intermediate_size", "quantization_config", "tie_last_hidden_states",
    "tie_word_embeddings",  # a head that is there all the same is a matter of tensors
}
# Names that classes of transformers 4 had, that code reads without a class having them, and that
# attribute maps lead elsewhere.
OTHER_NAMES = {
    "rope_theta": 5e5, "partial_rotary_factor": 0.5, "rope_local_base_freq": 5e3,
    "original_max_position_embeddings": 16, "sliding_window_pattern": 3,
    "_sliding_window_pattern": 3, "rms_norm_eps": 0.05, "num_experts": 2, "num_local_experts": 2, "n_routed_experts": 2,
    "is_causal": False, "attention_chunk_size": 8, "num_nextn_predict_layers": 1,
    "max_window_layers": 1, "head_dim": 16, "experts_per_token": 1, "use_qk_norm": True,
    "aux_loss_alpha": 0.1, "seq_aux": False, "scoring_func": "sigmoid", "moe_layer_freq": 2,
    "topk_method": "group_limited_greedy", "use_sliding_window": True, "rope_interleave": False,
    "swiglu_alpha": 1.2, "swiglu_limit": 1.5, "logits_scaling": 2.0, "residual_multiplier": 0.5,
    "embedding_multiplier": 2.0, "attention_multiplier": 0.5, "final_logit_softcapping": 5.0,
    "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 100, "no_rope_layer_interval": 2,
    "norm_topk_prob": False, "routed_scaling_factor": 3.0, "is_decoder": True,
    "use_bidirectional_attention": True, "clip_qkv": 0.1, "pretraining_tp": 2,
    "per_layer_config": {"0": {"rms_norm_eps": 0.5}},
}
ROPES = (
    {"rope_type": "default"}, {"type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 16},
)
ROPE_KEYS = {
    "rope_theta": 777.0, "partial_rotary_factor": 0.5, "factor": 3.0, "attention_factor": 1.7,
    "beta_fast": 4.0, "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 0.9, "truncate": False,
    "low_freq_factor": 2.0, "high_freq_factor": 8.0, "original_max_position_embeddings": 128,
    "llama_4_scaling_beta": 0.3,
}


def fields_of_classes():
    """Name to (type as text, default) of all families' configuration classes."""
    found = {}
    kinds = {json.loads((golden() / "models" / m / "config.json").read_text())["model_type"]
             for m in MODELS}
    for kind in sorted(kinds):
        for field in dataclasses.fields(CONFIG_MAPPING[kind]):
            if field.name not in SKIPPED and not field.name.startswith("_"):
                found.setdefault(field.name, []).append((str(field.type), field.default))
    return found


def golden():
    return pathlib.Path(__file__).parent


def values_for(name, kinds, now):
    """Values to try for a field that is `now` (None: absent or null)."""
    if name == "layer_types":
        n = len(now) if now else 3
        return [["full_attention"] * n, ["sliding_attention"] * n,
                ["sliding_attention"] + ["full_attention"] * (n - 1)]
    if name == "hidden_act" or name == "hidden_activation":
        return ["silu", "gelu", "gelu_pytorch_tanh"]
    if name == "mlp_only_layers":
        return [[0], []]
    if name == "no_rope_layers":
        return [[0] * len(now)] if now else [[1, 0, 1], [0, 1, 1, 1]]
    if name == "sliding_window":
        return [5, 4096]
    if name == "topk_method":
        return ["greedy", "group_limited_greedy", "noaux_tc"]
    text = " ".join(kind for kind, _ in kinds)
    known = [now] + [default for _, default in kinds]
    example = next((v for v in known if isinstance(v, (bool, int, float))), None)
    if isinstance(example, bool) or "bool" in text:
        return [not now] if isinstance(now, bool) else [True, False]
    if "float" in text or isinstance(example, float):
        return [1.5 * example if example else 0.5]
    if "int" in text:
        return [now + 1, 5] if isinstance(now, int) else [5]
    return []


def changes_of(config, classes):
    """(what for people, field, the config after it)"""
    for name in sorted(set(classes) | set(OTHER_NAMES)):
        if name == "rope_parameters":
            continue
        now = config.get(name)
        values = values_for(name, classes[name], now) if name in classes else []
        if name in OTHER_NAMES:
            values.append(OTHER_NAMES[name])
        for value in values:
            if value != now or type(value) is not type(now):
                yield [name], value, config | {name: value}
    for name in sorted(config):
        if name not in SKIPPED or name in ("intermediate_size",):
            yield [name], "DROP", {k: v for k, v in config.items() if k != name}
            if config[name] is not None:
                yield [name], None, config | {name: None}
    plain = {k: v for k, v in config.items() if k not in ("rope_scaling", "rope_parameters")}
    nested = any(isinstance(v, dict) for v in (config.get("rope_parameters") or {}).values())
    for name in ("rope_scaling", "rope_parameters"):
        for rope in ROPES:
            yield [name], rope, plain | {name: rope}
        rope = config.get(name)
        if rope and not nested:
            for key, value in ROPE_KEYS.items():
                yield [name, key], value, config | {name: rope | {key: value}}
            for key in rope:
                yield [name, key], "DROP", config | {
                    name: {k: v for k, v in rope.items() if k != key}}


class Reference:
    def __init__(self, folder):
        self.folder = folder
        self.prompt = None

    def logits(self, config):
        """The last row's, or None where transformers has no model of this."""
        with tempfile.TemporaryDirectory() as made:
            made = pathlib.Path(made)
            for path in self.folder.glob("model*"):
                (made / path.name).symlink_to(path.resolve())
            (made / "config.json").write_text(json.dumps(config))
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    model, info = transformers.AutoModelForCausalLM.from_pretrained(
                        made, dtype=torch.float32, attn_implementation="eager",
                        experts_implementation="eager", output_loading_info=True)
                    if info["missing_keys"] or info["mismatched_keys"]:
                        return None
                    with torch.no_grad():
                        rows = model.eval()(input_ids=self.prompt, use_cache=False).logits[0]
            except Exception:  # whatever transformers says of a file that it does not take
                return None
            return rows[-1] if torch.isfinite(rows).all() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--out", type=pathlib.Path, default=golden() / "config_fields.json")
    args = parser.parse_args()
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    classes = fields_of_classes()
    out = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in args.only:
        reference = Reference(golden() / "models" / name)
        config = json.loads((reference.folder / "config.json").read_text())
        ids = [(7 * i + 3) % min(config["vocab_size"], 200) for i in range(PROMPT)]
        reference.prompt = torch.tensor([ids])
        base = reference.logits(config)
        lines, refused = [], 0
        for path, value, changed in changes_of(config, classes):
            row = reference.logits(changed)
            if row is None:
                refused += 1
                continue
            same = row.shape == base.shape and (row - base).abs().max() <= SAME * base.abs().max()
            lines.append([path, value, None if same else
                          [round(x, 4) for x in row[:KEPT].tolist()]])
        out[name] = lines
        print(f"{name:12} {len(lines)} changes, {sum(l[2] is not None for l in lines)} of them "
              f"move logits, {refused} refused", flush=True)
    text = ",\n".join(f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(l) for l in out[name]) + "]"
                      for name in MODELS if name in out)
    args.out.write_text("{" + text + "}\n")


if __name__ == "__main__":
    main()
