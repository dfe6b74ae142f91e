#!/usr/bin/env python3
"""Blocks of the types that make_gguf.py leaves out, and what gguf-py dequantizes: Q4_1, Q5_0, Q5_1,
Q2_K, Q3_K, IQ4_NL, IQ4_XS and MXFP4.

Writes gguf/dequant_more.safetensors, laid out as dequant.safetensors is. Needs gguf 0.19.0, numpy, safetensors.
"""

import pathlib

import gguf
import numpy as np
import safetensors.numpy
from gguf import GGMLQuantizationType as Type

BLOCKS = 24  # of each type
# Offsets of the fp16 scales.
SCALES = {Type.Q4_1: (0, 2), Type.Q5_0: (0,), Type.Q5_1: (0, 2), Type.Q2_K: (80, 82),
          Type.Q3_K: (108,), Type.IQ4_NL: (0,), Type.IQ4_XS: (0,), Type.MXFP4: ()}


def half_bytes(rng, n):
    """n finite fp16 values of both signs, a few of them zero or subnormal, as bytes [n, 2]."""
    x = (rng.standard_normal(n) * 0.02).astype(np.float16)
    x[:3] = (0.0, 6e-8, -3e-5)
    return x.view(np.uint8).reshape(n, 2)


def main():
    tensors = {}
    for kind, halves in SCALES.items():
        rng = np.random.default_rng([1, int(kind)])
        _, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        blocks[-1], blocks[-2] = 255, 0
        for at in halves:
            blocks[:, at : at + 2] = half_bytes(rng, BLOCKS)
        if kind == Type.MXFP4:
            blocks[:, 0] %= 250  # Exponents of finite values.
        values = gguf.quants.dequantize(blocks, kind)
        assert np.isfinite(values).all()
        tensors[f"{kind.name.lower()}.blocks"] = blocks
        tensors[f"{kind.name.lower()}.values"] = values.astype(np.float32)
    path = pathlib.Path(__file__).parent / "gguf" / "dequant_more.safetensors"
    safetensors.numpy.save_file(tensors, path)
    print(path.name, {k: v.shape for k, v in tensors.items()})


if __name__ == "__main__":
    main()
