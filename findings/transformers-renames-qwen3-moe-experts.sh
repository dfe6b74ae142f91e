#!/usr/bin/env bash
# A Qwen3-MoE's config.json says `num_experts`. transformers 5.24 reads it and saves the number as
# `num_local_experts` alone; mlx-lm 0.32.2 then has no number of experts and refuses the model
# that it loads from the file before. Saving a checkpoint unchanged is not neutral.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  "mlx[cpu]==0.32.4" mlx-lm==0.32.2 transformers==5.24.0
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import json
import mlx_lm
import transformers
from mlx_lm.models import qwen3_moe

old = dict(model_type="qwen3_moe", hidden_size=64, num_hidden_layers=1, intermediate_size=64,
           num_attention_heads=2, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5,
           vocab_size=64, num_experts=6, num_experts_per_tok=2, decoder_sparse_step=1,
           mlp_only_layers=[], moe_intermediate_size=32, rope_theta=10000.0,
           tie_word_embeddings=False, max_position_embeddings=64, norm_topk_prob=True)
new = dict(json.loads(transformers.Qwen3MoeConfig(**old).to_json_string(use_diff=False)),
           rope_theta=10000.0)
print(f"transformers {transformers.__version__}, mlx-lm {mlx_lm.__version__}")
print("saved:", {k: v for k, v in new.items() if k in ("num_experts", "num_local_experts")})
for name, config in (("before", old), ("saved", new)):
    try:
        print(f"mlx-lm, of the file {name}:", qwen3_moe.ModelArgs.from_dict(config).num_experts)
    except TypeError as error:
        print(f"mlx-lm, of the file {name}:", error)
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
transformers 5.24.0, mlx-lm 0.32.2
saved: {'num_local_experts': 6}
mlx-lm, of the file before: 6
mlx-lm, of the file saved: ModelArgs.__init__() missing 1 required positional argument: 'num_experts'
END
echo "as described"
