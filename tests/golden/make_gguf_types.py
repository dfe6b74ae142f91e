#!/usr/bin/env python3
"""GGUF files of the types that make_gguf.py leaves out.

llama in Q4_1, Q5_0 and Q5_1, to which gguf-py quantizes. It only dequantizes K-quants and IQ4, so
`llama-kquants` and `llama-lowbits` have random blocks: 256 inputs a matrix, a layer each in Q4_K,
Q5_K and Q6_K, or in Q2_K, Q3_K and IQ4_XS, where matrices of fewer inputs are IQ4_NL, and types
mixed as in published files. Expected results as in make_gguf.py, which this imports:
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

make_gguf.FILE_TYPES |= {Type.Q4_1: gguf.LlamaFileType.MOSTLY_Q4_1,
                         Type.Q5_0: gguf.LlamaFileType.MOSTLY_Q5_0,
                         Type.Q5_1: gguf.LlamaFileType.MOSTLY_Q5_1,
                         Type.Q4_K: gguf.LlamaFileType.MOSTLY_Q4_K_M,
                         Type.Q2_K: gguf.LlamaFileType.MOSTLY_Q2_K}
# Scales, at their offsets, that make random blocks weights of a standard deviation of about 1/16.
SCALES = {Type.Q4_K: {0: 3e-4, 2: 2e-3}, Type.Q5_K: {0: 1.5e-4, 2: 2e-3}, Type.Q6_K: {208: 4e-5},
          Type.Q2_K: {80: 4.5e-3, 82: 6.7e-3}, Type.Q3_K: {108: 1.5e-3}, Type.IQ4_XS: {0: 5e-5},
          Type.IQ4_NL: {0: 9e-4}}
# By name: sizes; the types of the embedding, by layer, and of the head.
MIXTURES = {
    "llama-kquants": (Dims(256, 3, 8, 1, 32, 256, 259), Type.Q4_K,
                      (Type.Q4_K, Type.Q5_K, Type.Q6_K), Type.Q6_K),
    "llama-lowbits": (Dims(256, 3, 2, 1, 32, 64, 259), Type.Q2_K,
                      (Type.Q2_K, Type.Q3_K, Type.IQ4_XS), Type.Q3_K),
}


def random_matrix(kind, shape, gain, rng):
    """Random blocks, as the bytes of each row."""
    inputs, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // inputs, size), dtype=np.uint8)
    for at, scale in SCALES[kind].items():
        halves = (scale * gain * rng.uniform(0.5, 1.5, blocks.shape[:2])).astype("<f2")
        blocks[..., at : at + 2] = halves[..., None].view(np.uint8)
    return blocks.reshape(shape[0], -1)


def tensor(mixture, name, shape, rng):
    """Bytes or floats, and the type."""
    _, embedding, kinds, head = mixture
    if len(shape) == 1:
        return (1 + 0.3 * rng.standard_normal(shape)).astype(np.float32), Type.F32
    if name == "model.embed_tokens.weight":
        return random_matrix(embedding, shape, 16, rng), embedding
    if name == "lm_head.weight":
        return random_matrix(head, shape, 4, rng), head
    kind = kinds[int(name.split(".")[2])] if shape[1] % 256 == 0 else Type.IQ4_NL
    gain = 2 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
    return random_matrix(kind, shape, gain, rng), kind


def make_mixture(name, out, seed):
    mixture = MIXTURES[name]
    dims = mixture[0]
    config = config_of(dims, "LlamaForCausalLM", "llama", attention_bias=False, bos_token_id=1,
                       eos_token_id=2, head_dim=dims.head_dim)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    path = out / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    make_gguf.add_metadata(writer, config, mixture[1])
    make_gguf.add_tokenizer(writer, config)
    names = []
    for tensor_name, shape, _, _ in dense_decoder(dims).declared:
        data, kind = tensor(mixture, tensor_name, shape, rng)
        writer.add_tensor(make_gguf.gguf_name(tensor_name), data, raw_dtype=kind)
        names.append(tensor_name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    hf = reference.load_tensors(config, make_gguf.read(path, config, names))
    case = stored_model.stable_case(hf, Model(name, config, generation_of(1, 2), None), rng)
    logits = reference.logits_of(hf, case, case.prompt_ids + case.greedy_ids[:-1])
    gap = reference.check_steps(logits, case)
    reference.write_results([case], {f"{case.name}.logits": logits}, out / f"{name}.cases.json",
                            out / f"{name}.expected.safetensors")
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
    for name in MIXTURES:
        make_mixture(name, args.out / "gguf", args.seed)


if __name__ == "__main__":
    main()
