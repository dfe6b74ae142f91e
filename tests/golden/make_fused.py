#!/usr/bin/env python3
"""Saves some of the tiny mixtures with their experts fused, as transformers computes with them:
`save_pretrained(save_original_format=False)` of transformers 5.24.0, in the configuration of the
source. The weights are the source's, and so are the results. Run make_models.py first.
"""

import argparse
import pathlib
import tempfile

import numpy as np
import safetensors.torch
import transformers

import reference
import stored_model

VARIANTS = {"mixtral-fused": "mixtral", "deepseek-v3-fused": "deepseek-v3",
            "minimax-m2-fused": "minimax-m2"}


def fused(source):
    """The tensors that transformers saves of the folder `source`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, save_original_format=False)
        return safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "models")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    args = parser.parse_args()
    reference.quiet()
    for name in args.only:
        source = args.models / VARIANTS[name]
        stored = fused(source)
        assert any(k.endswith("mlp.experts.gate_up_proj") for k in stored)
        values = safetensors.torch.load_file(source / "model.safetensors")
        gap = stored_model.write(args.models / name, source, stored,
                                 {k: x.float() for k, x in values.items()}, None,
                                 np.random.default_rng(args.seed))
        print(f"{name:20} gap {gap:.4f}", flush=True)


if __name__ == "__main__":
    main()
