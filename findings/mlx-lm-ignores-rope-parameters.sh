#!/usr/bin/env bash
# mlx-lm 0.32.2 reads a Llama's rotary base from `rope_theta` alone. transformers 5 writes it into
# `rope_parameters` and nowhere else, so the same checkpoint, saved again, turns by the default base
# of 10,000 there: without an error or a warning, and with other tokens.
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
from mlx_lm.models import llama

shape = dict(hidden_size=64, num_hidden_layers=1, intermediate_size=64, num_attention_heads=2,
             num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=64)
old = dict(shape, model_type="llama", rope_theta=500000.0)
new = json.loads(transformers.LlamaConfig(**old).to_json_string(use_diff=False))
print(f"transformers {transformers.__version__}, mlx-lm {mlx_lm.__version__}")
print("saved: rope_theta", new.get("rope_theta"), "rope_parameters", new["rope_parameters"])
print("mlx-lm, of the file before:", llama.ModelArgs.from_dict(old).rope_theta)
print("mlx-lm, of the file saved:", llama.ModelArgs.from_dict(new).rope_theta)
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
transformers 5.24.0, mlx-lm 0.32.2
saved: rope_theta None rope_parameters {'rope_theta': 500000.0, 'rope_type': 'default'}
mlx-lm, of the file before: 500000.0
mlx-lm, of the file saved: 10000
END
echo "as described"
