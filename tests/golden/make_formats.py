#!/usr/bin/env python3
"""Quantizes some of the tiny models in the formats of 2026: compressed-tensors' integers and floats
of a byte, its 4-bit floats, two schemes in one file; FP8 with exponents for scales; bitsandbytes.

Weights are rounded to the nearest by the formats' own packages, which pack them; what they unpack,
with scales in float32, is what transformers computes the expected results with. compressed-tensors
0.20.0, transformers 5.24.0, bitsandbytes 0.50.2. ModelOpt's layouts are those of its export, by
torch's own 8-bit floats and compressed-tensors' packing of 4-bit ones. `formats.safetensors` has a small matrix of each
setting: what is stored, and its values. Run make_models.py first.
"""

import argparse
import dataclasses
import json
import pathlib
import zlib

import bitsandbytes.functional as bnb
import numpy as np
import safetensors.torch
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.nvfp4.helpers import (pack_fp4_to_uint8,
                                                          unpack_fp4_from_uint8)
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam

import reference
import stored_model

SHAPE = (64, 128)  # outputs and inputs of the matrices in formats.safetensors
ACTIVATIONS = QuantizationArgs(num_bits=8, strategy="token", symmetric=True, dynamic=True)


def integers(bits, strategy, group=None, symmetric=True):
    return QuantizationArgs(num_bits=bits, type="int", strategy=strategy, group_size=group,
                            symmetric=symmetric)


def floats(bits, strategy, group, scale=torch.uint8):
    return QuantizationArgs(num_bits=bits, type="float", strategy=strategy, group_size=group,
                            scale_dtype=scale)


INT8 = ("int-quantized", integers(8, "channel"))
NVFP4 = ("nvfp4-pack-quantized", floats(4, "tensor_group", 16, torch.float8_e4m3fn))
MXFP4 = ("mxfp4-pack-quantized", floats(4, "group", 32))
MXFP8 = ("mxfp8-quantized", floats(8, "group", 32))
FP8 = ("float-quantized", QuantizationArgs(num_bits=8, type="float", strategy="channel"))


class Compressed:
    """compressed-tensors: `groups` of targets and how matrices of these are stored."""

    def __init__(self, *groups):
        self.groups = groups

    def group_of(self, path):
        return next(group for group in self.groups if group[0](path))

    def pack(self, path, weight, rng):
        _, _, (name, args) = self.group_of(path)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format=name,
                                    input_activations=ACTIVATIONS if args.type == "int" else None)
        compressor = BaseCompressor.get_value_from_registry(name)
        state = {"weight": weight.bfloat16(), **self.grid(weight.bfloat16(), args)}
        parts = compressor.compress(state, scheme)
        return parts, self.unpack(parts, name, args, compressor, scheme)

    def grid(self, weight, args):
        """Scales and zeros as the library finds them."""
        size = args.group_size or weight.shape[1]
        rows = weight.reshape(weight.shape[0], -1, size)
        low, high = rows.amin(-1), rows.amax(-1)
        state = {}
        if args.strategy == "tensor":
            low, high = low.amin().reshape(1), high.amax().reshape(1)
        if args.strategy == "tensor_group":
            state["weight_global_scale"] = generate_gparam(low.amin(), high.amax()).reshape(1)
        scale, zero = calculate_qparams(low, high, args,
                                        global_scale=state.get("weight_global_scale"))
        state["weight_scale"] = scale if args.type == "float" else scale.bfloat16()
        if not args.symmetric:
            state["weight_zero_point"] = zero.to(torch.int8)
        return state

    def unpack(self, parts, name, args, compressor, scheme):
        scale = parts["weight_scale"]
        if args.scale_dtype == torch.uint8:
            scale = decompress_mx_scale(scale)
        scale = scale.float()
        if "weight_packed" in parts and args.type == "float":
            rows, columns = parts["weight_packed"].shape
            codes = unpack_fp4_from_uint8(parts["weight_packed"], rows, 2 * columns, torch.float32)
            exact = dequantize(codes, scale, None, args, torch.float32,
                               parts.get("weight_global_scale"))
            # The library's own decompress gives these in bfloat16, whatever the model is in.
            values = compressor.decompress(parts, scheme)["weight"].float()
            assert (values == exact.bfloat16().float()).all()
            return values
        elif "weight_packed" in parts:
            return compressor.decompress(parts | {"weight_scale": scale}, scheme)["weight"]
        else:
            codes = parts["weight"].float()
        return dequantize(codes, scale, parts.get("weight_zero_point"), args, torch.float32,
                          parts.get("weight_global_scale"))

    def config(self, plain):
        names = [name for _, _, (name, _) in self.groups]
        groups = {}
        for i, (_, targets, (name, args)) in enumerate(self.groups):
            weights = json.loads(args.model_dump_json())
            inputs = json.loads(ACTIVATIONS.model_dump_json()) if args.type == "int" else None
            groups[f"group_{i}"] = {"format": name, "targets": targets, "weights": weights,
                                    "input_activations": inputs, "output_activations": None}
        return {"config_groups": groups,
                "format": names[0] if len(set(names)) == 1 else "mixed-precision",
                "ignore": [*plain, "lm_head"], "kv_cache_scheme": None,
                "quant_method": "compressed-tensors", "quantization_status": "compressed",
                "sparsity_config": {}, "transform_config": {}, "version": "0.20.0"}


def all_of(stored):
    return Compressed((lambda path: True, ["Linear"], stored))


class Exponents:
    """Blocks of 8-bit floats with exponents for scales; torch converts both. transformers' own
    quantizer makes no blocks that the last one does not fill."""

    block = (32, 48)

    def spread(self, scale, weight):
        rows = scale.float().repeat_interleave(self.block[0], 0)[: weight.shape[0]]
        return rows.repeat_interleave(self.block[1], 1)[:, : weight.shape[1]]

    def pack(self, path, weight, rng):
        rows, columns = (-(-size // block) for size, block in zip(weight.shape, self.block))
        scale = torch.empty(rows, columns)
        for i in range(rows):
            for j in range(columns):
                part = weight[i * self.block[0] :, j * self.block[1] :]
                most = part[: self.block[0], : self.block[1]].abs().max()
                scale[i, j] = torch.exp2(torch.ceil(torch.log2(most / 448)))
        scale = scale.to(torch.float8_e8m0fnu)
        codes = (weight / self.spread(scale, weight)).to(torch.float8_e4m3fn)
        return ({"weight": codes, "weight_scale_inv": scale},
                codes.float() * self.spread(scale, weight))

    def config(self, plain):
        return {"activation_scheme": "dynamic", "dequantize": False, "expert_dtype": "fp8",
                "fmt": "e4m3", "modules_to_convert": None, "modules_to_not_convert": [*plain],
                "quant_method": "fp8", "scale_fmt": "ue8m0",
                "weight_block_size": list(self.block)}


class Blocks:
    """Square blocks of 8-bit floats with a float32 scale, also of experts in one tensor."""

    block = 16

    def pack(self, path, weight, rng):
        def spread(scale):
            rows = scale.repeat_interleave(self.block, -2)[..., : weight.shape[-2], :]
            return rows.repeat_interleave(self.block, -1)[..., : weight.shape[-1]]

        assert not any(size % self.block for size in weight.shape[-2:])
        tiles = weight.unfold(-2, self.block, self.block).unfold(-2, self.block, self.block)
        scale = tiles.abs().amax((-1, -2)) / 448
        codes = (weight / spread(scale)).to(torch.float8_e4m3fn)
        values = codes.float() * spread(scale)
        if weight.dim() == 3:
            return {"": codes, "_scale_inv": scale}, values
        return {".weight": codes, ".weight_scale_inv": scale}, values

    def config(self, plain):
        return {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                "modules_to_not_convert": [*plain], "weight_block_size": [self.block] * 2}


class ModelOpt:
    """`beside`: says how in a file of its own, as older exports do, and has scales of a KV cache."""

    def __init__(self, algorithm, beside=False):
        self.algorithm, self.beside = algorithm, beside

    def pack(self, path, weight, rng):
        parts = {"input_scale": torch.tensor(0.01)}
        if path.endswith(("k_proj", "v_proj")) and self.beside:
            parts[path[-6] + "_scale"] = torch.tensor(0.02)
        if self.algorithm == "FP8":
            scale = weight.abs().max() / 448
            codes = (weight / scale).to(torch.float8_e4m3fn)
            return parts | {"weight": codes, "weight_scale": scale}, codes.float() * scale
        blocks = weight.reshape(weight.shape[0], -1, 32 if self.algorithm == "MXFP8" else 16)
        most = blocks.abs().amax(-1)
        if self.algorithm == "MXFP8":
            power = torch.ceil(torch.log2(most / 448))
            codes = (blocks / torch.exp2(power)[..., None]).to(torch.float8_e4m3fn)
            values = (codes.float() * torch.exp2(power)[..., None]).reshape(weight.shape)
            return parts | {"weight": codes.reshape(weight.shape),
                            "weight_scale": (power + 127).to(torch.uint8)}, values
        of_all = weight.abs().max() / (6 * 448)
        scale = (most / 6 / of_all).to(torch.float8_e4m3fn)
        spread = (scale.float() * of_all)[..., None]
        grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        ratio = blocks / spread
        nearest = grid[(ratio.abs()[..., None] - grid).abs().argmin(-1)] * ratio.sign()
        packed = pack_fp4_to_uint8(nearest.reshape(weight.shape).bfloat16())
        rows, columns = packed.shape
        codes = unpack_fp4_from_uint8(packed, rows, 2 * columns, torch.float32)
        return (parts | {"weight": packed, "weight_scale": scale, "weight_scale_2": of_all},
                (codes.reshape(blocks.shape) * spread).reshape(weight.shape))

    def config(self, plain):
        said = {"quant_algo": self.algorithm, "producer": {"name": "modelopt", "version": "0.40.0"}}
        if self.algorithm == "NVFP4":
            said["group_size"] = 16
        return said | {"ignore": [*plain, "lm_head"], "quant_method": "modelopt",
                       "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}

    def write_beside(self, path):
        """Moves what config.json says into ModelOpt's own file."""
        config = json.loads((path / "config.json").read_text())
        said = config.pop("quantization_config")
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        own = {"producer": said["producer"],
               "quantization": {"quant_algo": said["quant_algo"], "kv_cache_quant_algo": "FP8",
                                "exclude_modules": said["ignore"]}}
        (path / "hf_quant_config.json").write_text(json.dumps(own, indent=4) + "\n")


class BitsAndBytes:
    def __init__(self, kind, nested=False):
        self.kind, self.nested = kind, nested

    def pack(self, path, weight, rng):
        if self.kind == "int8":
            codes, scale, _ = bnb.int8_vectorwise_quant(weight.half())
            return ({"weight": codes, "SCB": scale, "weight_format": torch.tensor(0, dtype=torch.uint8)},
                    bnb.int8_vectorwise_dequant(codes, scale).float())
        # Blocks fill rows: bitsandbytes 0.50.2 dequantizes others wrongly on the CPU.
        assert weight.shape[1] % 64 == 0
        packed, state = bnb.quantize_4bit(weight.bfloat16(), quant_type=self.kind, blocksize=64,
                                          compress_statistics=self.nested)
        parts = {"weight": packed}
        for name, part in state.as_dict(packed=True).items():
            parts[f"weight.{name}"] = part
        return parts, bnb.dequantize_4bit(packed, state).float()

    def config(self, plain):
        eight = self.kind == "int8"
        return {"_load_in_4bit": not eight, "_load_in_8bit": eight,
                "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
                "bnb_4bit_quant_type": "fp4" if eight else self.kind,
                "bnb_4bit_use_double_quant": self.nested,
                "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False,
                "llm_int8_skip_modules": ["lm_head"], "llm_int8_threshold": 6.0,
                "load_in_4bit": not eight, "load_in_8bit": eight, "quant_method": "bitsandbytes"}


@dataclasses.dataclass
class Variant:
    source: str
    packer: object
    plain: tuple = ()  # what ends the paths that stay as they are
    alone: bool = False  # a matrix in formats.safetensors, and no model


MIXED = Compressed(
    (lambda path: "self_attn" in path, [r"re:.*self_attn\.(q|k|v|o)_proj$"], FP8),
    (lambda path: path.endswith("layers.0.mlp.down_proj"), ["model.layers.0.mlp.down_proj"], INT8),
    (lambda path: True, ["Linear"], NVFP4))
BITS = Compressed(
    (lambda path: "down_proj" in path, ["re:.*down_proj"],
     ("pack-quantized", integers(6, "group", 64))),
    (lambda path: "up_proj" in path, ["re:.*up_proj"],
     ("pack-quantized", integers(3, "group", 32, symmetric=False))),
    (lambda path: True, ["Linear"], ("pack-quantized", integers(5, "channel"))))
VARIANTS = {
    "llama31-w8a8": Variant("llama31", all_of(INT8)),
    "qwen2-w8a8-zeros": Variant("qwen2", all_of(("int-quantized",
                                                 integers(8, "channel", symmetric=False))),
                                alone=True),
    "qwen3-w4a8": Variant("qwen3", all_of(("int-quantized", integers(4, "group", 32)))),
    "qwen3-nvfp4": Variant("qwen3", all_of(NVFP4), alone=True),
    "llama31-mxfp4": Variant("llama31", all_of(MXFP4)),
    "qwen2-mxfp8": Variant("qwen2", all_of(MXFP8)),
    "qwen3-packed-bits": Variant("qwen3", BITS),
    "qwen2-fp8-nvfp4": Variant("qwen2", MIXED),
    "mixtral-nvfp4": Variant("mixtral", all_of(NVFP4), ("block_sparse_moe.gate",)),
    "qwen3-fp8-exponents": Variant("qwen3", Exponents()),
    "llama31-nf4": Variant("llama31", BitsAndBytes("nf4")),
    "qwen3-nf4-double": Variant("qwen3", BitsAndBytes("nf4", nested=True), alone=True),
    "qwen3-fp4": Variant("qwen3", BitsAndBytes("fp4", nested=True)),
    "qwen2-bnb8": Variant("qwen2", BitsAndBytes("int8")),
    "qwen3-vl-moe-fp8": Variant("qwen3-vl-moe", Blocks(), ("mlp.gate",)),
    "mixtral-modelopt-nvfp4": Variant("mixtral", ModelOpt("NVFP4"), ("block_sparse_moe.gate",)),
    "qwen2-modelopt-fp8": Variant("qwen2", ModelOpt("FP8", beside=True)),
    "llama31-modelopt-mxfp8": Variant("llama31", ModelOpt("MXFP8")),
}


def quantize(variant, source, rng):
    """The checkpoint's tensors, what they mean under their own names, and what stayed."""
    tensors = {}
    for file in sorted(source.glob("model*.safetensors")):
        tensors |= safetensors.torch.load_file(file)
    stored, values, plain = dict(tensors), {k: x.float() for k, x in tensors.items()}, []
    for name, x in tensors.items():
        path = name.removesuffix(".weight")
        fused = x.dim() == 3 and ".mlp.experts." in name
        if ".layers." not in name or (x.dim() != 2 and not fused):
            continue
        if path.endswith(variant.plain):
            plain.append(path)
            continue
        del stored[name]
        parts, exact = variant.packer.pack(path, x.float(), rng)
        assert exact.dtype == torch.float32
        stored |= {f"{path}{k if k[:1] in '_.' else '.' + k}": part.contiguous()
                   for k, part in parts.items()}
        values[name] = exact.contiguous()
    return stored, values, plain


def make_matrix(name, variant, path, seed):
    """A matrix alone, beside those of the others."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), 7])
    out = safetensors.torch.load_file(path) if path.exists() else {}
    out = {k: x for k, x in out.items() if not k.startswith(name + ".")}
    weight = torch.from_numpy(rng.standard_normal(SHAPE, dtype=np.float32))
    weight[:8], weight[8:16] = weight[:8].abs(), -weight[8:16].abs()
    parts, values = variant.packer.pack("down_proj", weight, rng)
    out |= {f"{name}.{k}": x.contiguous() for k, x in (parts | {"values": values}).items()}
    safetensors.torch.save_file(out, path)


def make(name, out, seed):
    variant = VARIANTS[name]
    if not isinstance(variant.packer, (Blocks, ModelOpt)):
        make_matrix(name, variant, out / "formats.safetensors", seed)
    if variant.alone:
        return
    source, path = out / "models" / variant.source, out / "models" / name
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    stored, values, plain = quantize(variant, source, rng)
    gap = stored_model.write(path, source, stored, values, variant.packer.config(plain), rng)
    if getattr(variant.packer, "beside", False):
        variant.packer.write_beside(path)
    size = sum(f.stat().st_size for f in path.iterdir())
    print(f"{name:24} {size / 1024:5.0f} KiB  gap {gap:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent,
                        help="holds models/ (default: beside this script)")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    args = parser.parse_args()
    reference.quiet()
    for name in args.only:
        make(name, args.out, args.seed)


if __name__ == "__main__":
    main()
