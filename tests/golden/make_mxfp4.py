#!/usr/bin/env python3
"""Stores the experts of the tiny gpt-oss in MXFP4, as the published checkpoints do.

Weights are rounded to the nearest 4-bit float at an exponent for each 32 inputs; transformers
dequantizes what was packed, exactly, and computes the expected results with that in float32. Run
make_models.py first.
"""

import argparse
import pathlib

import numpy as np
import safetensors.torch
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import reference
import stored_model

NAME, SOURCE = "gpt-oss-mxfp4", "gpt-oss"
VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def pack(weight):
    """[experts, inputs, outputs] to blocks [experts, outputs, inputs / 32, 16] and scales."""
    rows = weight.float().transpose(1, 2)
    rows = rows.reshape(*rows.shape[:2], -1, 32)
    exponents = torch.floor(torch.log2(rows.abs().amax(-1))) - 2
    codes = (rows / torch.exp2(exponents)[..., None])[..., None].sub(VALUES).abs().argmin(-1)
    codes = codes.to(torch.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8)


def store(tensors):
    """The checkpoint's tensors, and what they are dequantized to under the source's names."""
    stored, values = dict(tensors), {k: x.float() for k, x in tensors.items()}
    for name, x in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        del stored[name]
        blocks, scales = pack(x)
        stored |= {name + "_blocks": blocks.contiguous(), name + "_scales": scales.contiguous()}
        values[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        assert (values[name] - x.float()).abs().max() <= x.float().abs().max() / 4
    return stored, values


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "models")
    args = parser.parse_args()
    reference.quiet()
    source = args.models / SOURCE
    stored, values = store(safetensors.torch.load_file(source / "model.safetensors"))
    quantization = {"modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
        "quant_method": "mxfp4"}
    gap = stored_model.write(args.models / NAME, source, stored, values, quantization,
                             np.random.default_rng(args.seed))
    print(f"{NAME}: gap {gap:.4f}")


if __name__ == "__main__":
    main()
