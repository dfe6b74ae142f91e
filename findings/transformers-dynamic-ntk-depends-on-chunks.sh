#!/usr/bin/env bash
# What a model computes for a text does not depend on how the text is cut into calls, as long as the
# cache of keys and values is kept; to a rounding. In transformers 5.24 it does for `rope_type`
# dynamic: each call turns its keys by the base of the length so far, and keys in the cache stay
# turned by another one. So a prompt in one call and the same prompt token by token differ by a
# thousand times the rounding, from the original context on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check torch==2.15.0 transformers==5.24.0 numpy==2.4.6
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import torch
import transformers

print("transformers", transformers.__version__)


def difference(tokens, **rope):
    """Between the last logits of one call and of a call a token."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, num_hidden_layers=2, intermediate_size=64, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=64, max_position_embeddings=32,
        rope_parameters=dict(rope_theta=10000.0, **rope))
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 64, (1, tokens))
    cache = None
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits[0, -1]
        for i in range(tokens):
            out = model(ids[:, i:i + 1], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
    return (whole - out.logits[0, -1]).abs().max().item()


for tokens in (24, 48):
    for rope in ({"rope_type": "default"}, {"rope_type": "dynamic", "factor": 4.0}):
        same = difference(tokens, **rope) < 1e-5
        print(f"{tokens} tokens of an original context of 32, {rope['rope_type']}:",
              "the same" if same else "differs")
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
transformers 5.24.0
24 tokens of an original context of 32, default: the same
24 tokens of an original context of 32, dynamic: the same
48 tokens of an original context of 32, default: the same
48 tokens of an original context of 32, dynamic: differs
END
echo "as described"
