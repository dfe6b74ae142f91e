#!/usr/bin/env python3
"""Quantizes some of the tiny models in the formats of AutoAWQ, GPTQModel, compressed-tensors and
transformers' FP8.

Weights are rounded to the nearest; the formats' own packages pack them and dequantize what they
packed: AutoAWQ 0.2.9 (awq/modules/linear/gemm.py and awq/utils/packing_utils.py of its source
distribution, whose other modules want an older transformers), GPTQModel 7.7.0, compressed-tensors
0.20.0 and transformers 5.23.0. Scales are upcast to float32 first, so that dequantized weights are
exact, and transformers computes the expected results with these in float32. Run make_models.py
first; then, with the two unpacked source distributions (and what GPTQModel imports) on PYTHONPATH,
this script. compressed-tensors 0.20.0 has no groups out of order any more: "qwen3-packed4-actorder"
alone is made (--only) with compressed-tensors 0.12.2.
"""

import argparse
import dataclasses
import functools
import importlib
import importlib.util
import json
import pathlib
import sys
import types
import zlib

import numpy as np
import safetensors.torch
import torch
import transformers

import reference
import stored_model

DEQUANT_SHAPE = (64, 128)  # outputs and inputs of the matrices in quantized.safetensors
LAYERS = 3  # of each mixture


@functools.cache
def awq_linear():
    """AutoAWQ's packer, without the package's __init__."""
    def load(name):
        return importlib.import_module(name)

    folder = pathlib.Path(importlib.util.find_spec("awq").origin).parent
    for name in ("awq", "awq.utils", "awq.modules", "awq.modules.linear"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    utils = types.ModuleType("awq.utils.utils")  # Asks for devices that are not here.
    utils.get_best_device = lambda: "cpu"
    sys.modules["awq.utils.utils"] = utils
    return load("awq.modules.linear.gemm").WQLinear_GEMM, load("awq.utils.packing_utils")


@dataclasses.dataclass
class Settings:
    source: str
    method: str
    bits: int = 4
    group: int = 32
    sym: bool = False
    desc_act: bool = False
    version: str = "gptq"  # of GPTQ's zeros
    plain: tuple = ()  # paths that stay as they are
    strategy: str = "group"  # of compressed-tensors
    block: tuple = ()  # outputs and inputs to a scale

    def plain_names(self):
        """Of `plain`, without their layers."""
        return sorted({path.split(".", 3)[-1] for path in self.plain})


def routers(name, layers=range(LAYERS)):
    return tuple(f"model.layers.{i}.{name}" for i in layers)


MIXTRAL = routers("block_sparse_moe.gate")
QWEN3_MOE = routers("mlp.gate")
DEEPSEEK = routers("mlp.gate", range(1, LAYERS))
# Mixtures of experts, whose routers tools leave as they are. Each format has its matrix in
# quantized.safetensors from a dense model.
MIXTURES = {
    "mixtral-awq": Settings("mixtral", "awq", group=64, plain=MIXTRAL),
    "qwen3-moe-awq": Settings("qwen3-moe", "awq", plain=QWEN3_MOE),
    # In order of activation, in groups of all inputs: their order says nothing.
    "mixtral-gptq4": Settings("mixtral", "gptq", group=-1, sym=True, desc_act=True, plain=MIXTRAL),
    "mixtral-gptq4-actorder": Settings("mixtral", "gptq", sym=True, desc_act=True, plain=MIXTRAL),
    "qwen3-moe-gptq4": Settings("qwen3-moe", "gptq", sym=True, plain=QWEN3_MOE),
    "qwen3-moe-gptq8": Settings("qwen3-moe", "gptq", bits=8, plain=QWEN3_MOE),
    "mixtral-packed8": Settings("mixtral", "packed", bits=8, sym=True, strategy="channel",
                                plain=MIXTRAL),
    "qwen3-moe-packed4": Settings("qwen3-moe", "packed", sym=True, plain=QWEN3_MOE),
    # What latent vectors become keys and values by is quantized too.
    "deepseek-v2-awq": Settings("deepseek-v2", "awq", plain=DEEPSEEK),
    "deepseek-v2-packed4": Settings("deepseek-v2", "packed", plain=DEEPSEEK),
}
VARIANTS = MIXTURES | {
    "llama31-awq": Settings("llama31", "awq"),
    "phi3-awq": Settings("phi3", "awq", plain=("model.layers.1.mlp.down_proj",)),
    "qwen2-gptq4": Settings("qwen2", "gptq"),
    "qwen3-gptq4-v2": Settings("qwen3", "gptq", group=64, version="gptq_v2"),
    "llama31-gptq4-sym": Settings("llama31", "gptq", sym=True),
    "llama31-gptq8": Settings("llama31", "gptq", bits=8, group=-1),
    "llama31-gptq4-actorder": Settings("llama31", "gptq", desc_act=True),
    "qwen2-packed4": Settings("qwen2", "packed", sym=True),
    "qwen3-packed4-zeros": Settings("qwen3", "packed", group=64),
    "llama31-packed8": Settings("llama31", "packed", bits=8, sym=True, strategy="channel"),
    "llama31-packed8-zeros": Settings("llama31", "packed", bits=8, strategy="channel"),
    "qwen3-packed4-actorder": Settings("qwen3", "packed-0.12", desc_act=True, sym=True),
    "llama31-fp8": Settings("llama31", "float", bits=8, sym=True, strategy="tensor"),
    "qwen2-fp8-channel": Settings("qwen2", "float", bits=8, sym=True, strategy="channel"),
    "qwen3-fp8-block": Settings("qwen3", "fp8", bits=8, sym=True, block=(32, 64)),
    # As DeepSeek publishes it: the router is no part of it.
    "deepseek-v3-fp8": Settings("deepseek-v3", "fp8", bits=8, sym=True, block=(8, 16),
                                plain=DEEPSEEK),
}


def grid(weight, settings, g_idx):
    """A scale (that float16 has) and a zero for each group: [outputs, groups]."""
    most = 2**settings.bits - 1
    scales, zeros = [], []
    for g in range(int(g_idx.max()) + 1):
        part = weight[:, g_idx == g]
        low, high = part.min(1).values.clamp(max=0), part.max(1).values.clamp(min=0)
        if settings.sym:
            scale = torch.maximum(-low, high) * 2 / (most - 1)
            zero = torch.full_like(scale, (most + 1) // 2)
        else:
            scale = (high - low) / (most - 1)
            zero = torch.round(-low / scale.half().float())
        scales.append(scale.half().float())
        zeros.append(zero)
    return torch.stack(scales, 1), torch.stack(zeros, 1)


def linear_of(weight):
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight.data = weight.clone()
    return linear


class Awq:
    def __init__(self):
        self.linear, self.packing = awq_linear()

    def pack(self, weight, settings, rng):
        group = weight.shape[1] if settings.group == -1 else settings.group
        g_idx = torch.arange(weight.shape[1]) // group
        # AutoAWQ makes words for 32 outputs at once: the first ones again, to be dropped.
        outputs = weight.shape[0]
        weight = weight[torch.arange(outputs + -outputs % 32) % outputs]
        scales, zeros = grid(weight, settings, g_idx)
        packed = self.linear.from_linear(linear_of(weight), 4, group, scales=scales.T.contiguous(),
                                         zeros=zeros.T.contiguous())
        parts = {"qweight": packed.qweight[:, : outputs // 8],
                 "qzeros": packed.qzeros[:, : outputs // 8], "scales": packed.scales[:, :outputs]}
        values = self.packing.dequantize_gemm(parts["qweight"], parts["qzeros"],
                                              parts["scales"].float(), 4, group)
        return parts, values.T

    def config(self, settings):
        return {"bits": 4, "group_size": settings.group,
                "modules_to_not_convert": settings.plain_names() or None,
                "quant_method": "awq", "version": "gemm", "zero_point": True}


class Gptq:
    def __init__(self):
        self.linear = importlib.import_module("gptqmodel.nn_modules.qlinear.torch").TorchLinear
        self.convert = importlib.import_module("gptqmodel.utils.model")

    def pack(self, weight, settings, rng):
        outputs, inputs = weight.shape
        group = inputs if settings.group == -1 else settings.group
        g_idx = torch.arange(inputs, dtype=torch.int32) // group
        if settings.desc_act:
            g_idx = g_idx[torch.from_numpy(rng.permutation(inputs))]
        scales, zeros = grid(weight, settings, g_idx)
        packed = self.linear(bits=settings.bits, group_size=settings.group, sym=settings.sym,
                             desc_act=settings.desc_act, in_features=inputs, out_features=outputs,
                             bias=False)
        packed.pack_original(linear_of(weight), scales, zeros, g_idx)
        if settings.version == "gptq":
            types_ = types.SimpleNamespace(bits=settings.bits, pack_dtype=torch.int32)
            self.convert.convert_gptq_v2_to_v1_format_module(packed, types_)
        parts = {k: getattr(packed, k).clone() for k in ("qweight", "qzeros", "scales", "g_idx")}
        # As it is loaded: back to version 2, and dequantized.
        if settings.version == "gptq":
            self.convert.convert_gptq_v1_to_v2_format_module(packed, settings.bits, torch.int32)
        packed.scales = packed.scales.float()
        packed._init_wf_unsqueeze_buffers()
        return parts, super(self.linear, packed).dequantize_weight().T

    def config(self, settings):
        fields = {"bits": settings.bits, "group_size": settings.group, "sym": settings.sym,
                  "desc_act": settings.desc_act, "quant_method": "gptq",
                  "checkpoint_format": settings.version, "pack_dtype": "int32", "lm_head": False,
                  "meta": {"quantizer": ["gptqmodel:7.7.0"]}}
        dynamic = {f"-:.*{name}$": {} for name in settings.plain_names()}
        return fields | {"dynamic": dynamic} if dynamic else fields


class Compressed:
    """compressed-tensors: packed integers, or floats of 8 bits."""

    def __init__(self, kind):
        self.kind = kind
        self.library = importlib.import_module("compressed_tensors.quantization")
        self.helpers = importlib.import_module("compressed_tensors.quantization.utils.helpers")
        compressors = importlib.import_module("compressed_tensors.compressors")
        name = {"packed": "pack-quantized", "float": "float-quantized"}[kind]
        self.format = name
        self.compressor = compressors.BaseCompressor.get_value_from_registry(name)

    def args(self, settings):
        return self.library.QuantizationArgs(
            num_bits=settings.bits, type="float" if self.kind == "float" else "int",
            symmetric=settings.sym, strategy=settings.strategy,
            group_size=settings.group if settings.strategy == "group" else None)

    def grid(self, weight, args):
        """Scales and zeros as the library finds them, of bfloat16 and int8."""
        inputs = weight.shape[1]
        size = {"group": args.group_size, "channel": inputs, "tensor": inputs}[args.strategy]
        parts = weight.reshape(weight.shape[0], -1, size)
        low, high = parts.amin(-1), parts.amax(-1)
        if args.strategy == "tensor":
            low, high = low.amin().reshape(1), high.amax().reshape(1)
        scales, zeros = self.helpers.calculate_qparams(low, high, args)
        return scales.bfloat16(), zeros.to(torch.int8)

    def pack(self, weight, settings, rng):
        args = self.args(settings)
        scheme = self.library.QuantizationScheme(targets=["Linear"], weights=args)
        scales, zeros = self.grid(weight, args)
        state = {"weight": weight.bfloat16(), "weight_scale": scales}
        if not settings.sym:
            state["weight_zero_point"] = zeros
        parts = self.compressor.compress(state, scheme)
        exact = self.compressor.decompress(parts | {"weight_scale": scales.float()}, scheme)
        return parts, exact["weight"]

    def config(self, settings):
        weights = json.loads(self.args(settings).model_dump_json())
        return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                              "input_activations": None,
                                              "output_activations": None}},
                "format": self.format, "ignore": [*settings.plain, "lm_head"],
                "kv_cache_scheme": None,
                "quant_method": "compressed-tensors", "quantization_status": "compressed"}


class OldPacked:
    """compressed-tensors 0.12, whose groups may be out of order."""

    def __init__(self):
        self.library = importlib.import_module("compressed_tensors.quantization")
        self.helpers = importlib.import_module("compressed_tensors.quantization.utils.helpers")
        compressors = importlib.import_module("compressed_tensors.compressors")
        self.compressor = compressors.PackedQuantizationCompressor()

    def args(self, settings):
        return self.library.QuantizationArgs(num_bits=settings.bits, symmetric=settings.sym,
                                             strategy="group", group_size=settings.group,
                                             actorder="group")

    def pack(self, weight, settings, rng):
        args = self.args(settings)
        inputs = weight.shape[1]
        g_idx = torch.arange(inputs, dtype=torch.int32) // settings.group
        g_idx = g_idx[torch.from_numpy(rng.permutation(inputs))]
        groups = [weight[:, g_idx == g] for g in range(int(g_idx.max()) + 1)]
        low = torch.stack([x.amin(1) for x in groups], 1)
        high = torch.stack([x.amax(1) for x in groups], 1)
        scales, zeros = self.helpers.calculate_qparams(low, high, args)
        scales = scales.bfloat16()
        parts = self.compressor.compress_weight(weight.bfloat16(), scales, args,
                                                zero_point=zeros.to(torch.int8), g_idx=g_idx)
        parts |= {"weight_scale": scales, "weight_g_idx": g_idx}
        exact = self.compressor.decompress_weight(parts | {"weight_scale": scales.float()}, args)
        return parts, exact

    def config(self, settings):
        return Compressed.config(self, settings)

    format = "pack-quantized"


class Fp8:
    """transformers' blocks of 8-bit floats with a scale."""

    def __init__(self):
        self.library = importlib.import_module("transformers.integrations.finegrained_fp8")

    def pack(self, weight, settings, rng):
        config = transformers.FineGrainedFP8Config(weight_block_size=settings.block)
        quantizer = types.SimpleNamespace(quantization_config=config)
        out = self.library.Fp8Quantize(quantizer).convert({"m.weight": weight})
        values = self.library._dequantize_fp8_weight(out["m.weight"], out["m.weight_scale_inv"],
                                                     list(settings.block), torch.float32)
        return {k.removeprefix("m."): x for k, x in out.items()}, values

    def config(self, settings):
        return {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                "weight_block_size": list(settings.block)}


PACKERS = {"awq": Awq, "gptq": Gptq, "packed": lambda: Compressed("packed"),
           "float": lambda: Compressed("float"), "packed-0.12": OldPacked, "fp8": Fp8}


def matrices(tensors):
    """Paths of the layers' projections."""
    return [name.removesuffix(".weight") for name, x in tensors.items()
            if ".layers." in name and x.dim() == 2]


def quantize(packer, source, settings, rng):
    """The checkpoint's tensors, and what they are dequantized to under their own names."""
    tensors = {}
    for file in sorted(source.glob("model*.safetensors")):
        tensors |= safetensors.torch.load_file(file)
    stored, values = dict(tensors), {k: x.float() for k, x in tensors.items()}
    for path in matrices(tensors):
        if path in settings.plain:
            continue
        parts, dequantized = packer.pack(tensors[path + ".weight"].float(), settings, rng)
        del stored[path + ".weight"]
        stored |= {f"{path}.{k}": x.contiguous() for k, x in parts.items()}
        assert dequantized.dtype == torch.float32
        values[path + ".weight"] = dequantized.contiguous()
    return stored, values


def make(name, packer, models, seed):
    settings = VARIANTS[name]
    source, path = models / settings.source, models / name
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    stored, values = quantize(packer, source, settings, rng)
    gap = stored_model.write(path, source, stored, values, packer.config(settings), rng)
    size = sum(f.stat().st_size for f in path.iterdir())
    print(f"{name:24} {size / 1024:5.0f} KiB  gap {gap:.4f}", flush=True)


def make_values(name, packer, path, seed):
    """A matrix alone, with all that zeros and scales may be: what is stored, and its values, beside
    those of the others."""
    settings = VARIANTS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), 7])
    out = safetensors.torch.load_file(path) if path.exists() else {}
    out = {k: x for k, x in out.items() if not k.startswith(name + ".")}
    weight = torch.from_numpy(rng.standard_normal(DEQUANT_SHAPE, dtype=np.float32))
    # Groups of one sign, whose zeros are the first and the last that there are.
    weight[:8], weight[8:16] = weight[:8].abs(), -weight[8:16].abs()
    settings = dataclasses.replace(settings, group=min(settings.group, 32))
    parts, values = packer.pack(weight, settings, rng)
    out |= {f"{name}.{k}": x.contiguous() for k, x in (parts | {"values": values}).items()}
    safetensors.torch.save_file(out, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent,
                        help="holds models/ (default: beside this script)")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=[v for v, s in VARIANTS.items() if s.method != "packed-0.12"])
    args = parser.parse_args()

    reference.quiet()
    for name in args.only:
        packer = PACKERS[VARIANTS[name].method]()
        if name not in MIXTURES:
            make_values(name, packer, args.out / "quantized.safetensors", args.seed)
        make(name, packer, args.out / "models", args.seed)


if __name__ == "__main__":
    main()
