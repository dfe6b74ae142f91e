#!/usr/bin/env python3
"""GGUF files of the types that make_gguf.py leaves out.

llama in Q4_1, Q5_0 and Q5_1, to which gguf-py quantizes. It only dequantizes K-quants, so
`llama-kquants` has random blocks: 256 inputs a matrix, a layer each in Q4_K, Q5_K and Q6_K, and
types mixed as in published files. Expected results as in make_gguf.py, which this imports:
transformers on what gguf-py dequantizes. Run make_models.py first.
"""

import argparse
import pathlib
import zlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

import make_gguf
import reference
import stored_model
from pieces import Dims, Model, config_of, dense_decoder, generation_of

NAME = "llama-kquants"
make_gguf.FILE_TYPES |= {Type.Q4_1: gguf.LlamaFileType.MOSTLY_Q4_1,
                         Type.Q5_0: gguf.LlamaFileType.MOSTLY_Q5_0,
                         Type.Q5_1: gguf.LlamaFileType.MOSTLY_Q5_1,
                         Type.Q4_K: gguf.LlamaFileType.MOSTLY_Q4_K_M}
# Scales, at their offsets, that make random blocks weights of a standard deviation of about 1/16.
SCALES = {Type.Q4_K: {0: 3e-4, 2: 2e-3}, Type.Q5_K: {0: 1.5e-4, 2: 2e-3}, Type.Q6_K: {208: 4e-5}}
KINDS = (Type.Q4_K, Type.Q5_K, Type.Q6_K)  # By layer.


def random_matrix(kind, shape, gain, rng):
    """Random blocks, as the bytes of each row."""
    inputs, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // inputs, size), dtype=np.uint8)
    for at, scale in SCALES[kind].items():
        halves = (scale * gain * rng.uniform(0.5, 1.5, blocks.shape[:2])).astype("<f2")
        blocks[..., at : at + 2] = halves[..., None].view(np.uint8)
    return blocks.reshape(shape[0], -1)


def tensor(name, shape, rng):
    """Bytes or floats, and the type."""
    if len(shape) == 1:
        return (1 + 0.3 * rng.standard_normal(shape)).astype(np.float32), Type.F32
    if name == "model.embed_tokens.weight":
        return random_matrix(Type.Q4_K, shape, 16, rng), Type.Q4_K
    if name == "lm_head.weight":
        return random_matrix(Type.Q6_K, shape, 4, rng), Type.Q6_K
    kind = KINDS[int(name.split(".")[2])]
    gain = 2 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
    return random_matrix(kind, shape, gain, rng), kind


def make_kquants(out, seed):
    dims = Dims(256, len(KINDS), 8, 1, 32, 256, 259)
    config = config_of(dims, "LlamaForCausalLM", "llama", attention_bias=False, bos_token_id=1,
                       eos_token_id=2, head_dim=dims.head_dim)
    rng = np.random.default_rng([seed, zlib.crc32(NAME.encode())])
    path = out / f"{NAME}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    make_gguf.add_metadata(writer, config, Type.Q4_K)
    make_gguf.add_tokenizer(writer, config)
    names = []
    for name, shape, _, _ in dense_decoder(dims).declared:
        data, kind = tensor(name, shape, rng)
        writer.add_tensor(make_gguf.gguf_name(name), data, raw_dtype=kind)
        names.append(name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    hf = reference.load_tensors(config, make_gguf.read(path, config, names))
    case = stored_model.stable_case(hf, Model(NAME, config, generation_of(1, 2), None), rng)
    logits = reference.logits_of(hf, case, case.prompt_ids + case.greedy_ids[:-1])
    gap = reference.check_steps(logits, case)
    reference.write_results([case], {f"{case.name}.logits": logits}, out / f"{NAME}.cases.json",
                            out / f"{NAME}.expected.safetensors")
    print(f"{path.name} {path.stat().st_size / 1024:.0f} KiB  smallest gap {gap:.4f}, logits of "
          f"{logits.std():.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    args = parser.parse_args()
    reference.quiet()
    for kind in (Type.Q4_1, Type.Q5_0, Type.Q5_1):
        make_gguf.make("llama", kind, args.out / "models", args.out / "gguf", args.seed)
    make_kquants(args.out / "gguf", args.seed)


if __name__ == "__main__":
    main()
