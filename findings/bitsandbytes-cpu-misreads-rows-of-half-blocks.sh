#!/usr/bin/env bash
# bitsandbytes quantizes a matrix to nf4 in blocks of 64 weights that run over the ends of rows.
# Where rows are no multiple of a block long, its CPU code dequantizes other values than it stored:
# codes and scales, read as one flat row of blocks, give the weights back within a quantization
# step, and the library's own function does not. (On GPUs it was not run.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  torch==2.15.0 bitsandbytes==0.50.2 numpy==2.4.6
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import bitsandbytes
import bitsandbytes.functional as functional
import torch

print("bitsandbytes", bitsandbytes.__version__)
for inputs in (128, 96):
    torch.manual_seed(0)
    weights = torch.randn(inputs, inputs)
    packed, state = functional.quantize_4bit(weights, blocksize=64, quant_type="nf4")
    pairs = packed.flatten()
    codes = torch.stack([pairs >> 4, pairs & 15], 1).flatten().long()
    flat = (state.code[codes] * state.absmax.repeat_interleave(64)).view(inputs, inputs)
    by_library = functional.dequantize_4bit(packed, state)
    for name, read in (("read flat", flat), ("dequantize_4bit", by_library)):
        error = (read - weights).abs().max().item()
        print(f"rows of {inputs}, {name}: {'within' if error < 0.7 else 'beyond'} a step of the weights")
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
bitsandbytes 0.50.2
rows of 128, read flat: within a step of the weights
rows of 128, dequantize_4bit: within a step of the weights
rows of 96, read flat: within a step of the weights
rows of 96, dequantize_4bit: beyond a step of the weights
END
echo "as described"
