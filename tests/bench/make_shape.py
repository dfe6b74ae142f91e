#!/usr/bin/env python3
"""Writes random weights of a model's shape, the same ones in the formats of several engines.

    make_shape.py SHAPE DIR [--seed N] [--formats hf,gguf,kquants,codes,dllama]

DIR, which has to be outside the source tree, gets
    hf/                    config.json and model.safetensors, bfloat16: Strata
    f16.gguf q8_0.gguf q4_0.gguf    llama.cpp, ik_llama.cpp
    q4_k.gguf q5_k.gguf q6_k.gguf    not the same weights, but random blocks: gguf-py cannot make them
                                    of floats; only where --formats names kquants
    mxfp4.gguf iq4_nl.gguf iq4_xs.gguf    random blocks likewise, where --formats names codes; and
    nvfp4/ nf4/                           folders as MLX and bitsandbytes write them, whose layers are
                                          random codes
    q40.m dllama.t         distributed-llama
    shape.json             written last: what there is

tiny11 (1.1 billion parameters) takes 7 GB, and less than 1 GB of memory: tensors are made, written
and forgotten one by one. GGUF and distributed-llama's files need the package gguf (pip install gguf).
Every matrix of a quantized file is quantized, embedding and head too, except that distributed-llama
has its embedding in float32.
"""
import argparse
import json
import pathlib
import shutil
import struct
import sys
import zlib

try:
    import numpy as np
except ImportError:
    sys.exit("make_shape.py: the Python package numpy is missing: install it and gguf with "
             "`pip install gguf`")

TREE = pathlib.Path(__file__).resolve().parents[2]

# hidden, layers, heads, kv_heads, head_dim, ffn, vocab. tiny6 is six of tiny11's layers, wide4 four of a
# model of 8 billion parameters; `small` is for trying things out.
FIELDS = ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab")
SHAPES = {name: dict(zip(FIELDS, sizes)) for name, sizes in {
    "tiny11": (2048, 22, 32, 4, 64, 5632, 32000),
    "tiny6": (2048, 6, 32, 4, 64, 5632, 32000),
    "wide4": (4096, 4, 32, 8, 128, 14336, 32000),
    "small": (256, 4, 4, 2, 64, 512, 512),
}.items()}

CONTEXT = 131072  # As `strata-worker bench --shape` has it.
ROPE_THETA = 10000
NORM_EPS = 1e-5
DEFAULT_FORMATS = ("hf", "gguf", "dllama")
FORMATS = (*DEFAULT_FORMATS, "kquants", "codes")


class Refused(Exception):
    """One sentence for the user: what is wrong, and what to do."""


def tensors_of(shape):
    """[(name, GGUF's name, [rows, columns] or [size])], in distributed-llama's order."""
    hidden, ffn, vocab = shape["hidden"], shape["ffn"], shape["vocab"]
    q, kv = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    tensors = [("model.embed_tokens.weight", "token_embd.weight", [vocab, hidden])]
    for layer in range(shape["layers"]):
        for name, gguf_name, size in (
                ("self_attn.q_proj", "attn_q", [q, hidden]),
                ("self_attn.k_proj", "attn_k", [kv, hidden]),
                ("self_attn.v_proj", "attn_v", [kv, hidden]),
                ("self_attn.o_proj", "attn_output", [hidden, q]),
                ("mlp.gate_proj", "ffn_gate", [ffn, hidden]),
                ("mlp.down_proj", "ffn_down", [hidden, ffn]),
                ("mlp.up_proj", "ffn_up", [ffn, hidden]),
                ("input_layernorm", "attn_norm", [hidden]),
                ("post_attention_layernorm", "ffn_norm", [hidden])):
            tensors.append((f"model.layers.{layer}.{name}.weight",
                            f"blk.{layer}.{gguf_name}.weight", size))
    tensors.append(("model.norm.weight", "output_norm.weight", [hidden]))
    tensors.append(("lm_head.weight", "output.weight", [vocab, hidden]))
    return tensors


def elements(size):
    return int(np.prod(size, dtype=np.int64))


def weights(seed, name, size):
    """float32 values that bfloat16 holds exactly: uniform in +-0.03, or ones for a norm."""
    if len(size) == 1:
        return np.ones(size, np.float32)
    random = np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(name.encode())]))
    values = random.random(elements(size), np.float32)
    values -= np.float32(0.5)
    values *= np.float32(0.06)
    bits = values.view(np.uint32)
    bits &= np.uint32(0xFFFF0000)
    return values.reshape(size)


def permuted(values, heads):
    """Hugging Face's rotary halves as the pairs of neighbours that llama.cpp rotates."""
    rows, columns = values.shape
    return (values.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2)
            .reshape(rows, columns))


def vocabulary(size):
    """[(bytes, kind)] of a sentencepiece-like vocabulary: unknown, begin, end, bytes, fillers."""
    tokens = [(b"<unk>", "unknown"), (b"<s>", "control"), (b"</s>", "control")]
    tokens += [(f"<0x{byte:02X}>".encode(), "byte") for byte in range(256)]
    tokens += [(f"<filler{i}>".encode(), "normal") for i in range(size - len(tokens))]
    return tokens[:size]


def llama_config(shape):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "torch_dtype": "bfloat16", "hidden_size": shape["hidden"],
        "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"], "head_dim": shape["head_dim"],
        "intermediate_size": shape["ffn"], "vocab_size": shape["vocab"],
        "max_position_embeddings": CONTEXT, "rms_norm_eps": NORM_EPS,
        "rope_theta": float(ROPE_THETA), "tie_word_embeddings": False,
        "bos_token_id": 1, "eos_token_id": 2}


class SafetensorsWriter:
    """bfloat16, one file. `tensors`: [(name, size)]."""

    def __init__(self, folder, config, tensors):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        header, at = {}, 0
        for name, size in tensors:
            end = at + 2 * elements(size)
            header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [at, end]}
            at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.file = open(folder / "model.safetensors", "wb")
        self.file.write(struct.pack("<Q", len(text)) + text)

    def write(self, name, values):
        (values.view(np.uint32) >> np.uint32(16)).astype("<u2").tofile(self.file)

    def close(self):
        self.file.close()


class CodesWriter:
    """Layers of random 4-bit codes as MLX's nvfp4 or bitsandbytes' nf4 store them; others bfloat16."""

    # bitsandbytes.functional.get_4bit_type("nf4")
    NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
           -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
           0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
           0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
    CONFIG = {"nvfp4": {"quantization": {"group_size": 16, "bits": 4, "mode": "nvfp4"}},
              "nf4": {"quantization_config": {
                  "quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                  "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False,
                  "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
                  "llm_int8_skip_modules": ["lm_head"]}}}

    def __init__(self, folder, shape, kind, tensors):
        self.kind = kind
        folder.mkdir(parents=True, exist_ok=True)
        config = llama_config(shape) | self.CONFIG[kind]
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        header, at = {}, 0
        for name, size in tensors:
            for part, dtype, dimensions, unit in self._parts(name, size):
                end = at + unit * elements(dimensions)
                header[part] = {"dtype": dtype, "shape": dimensions, "data_offsets": [at, end]}
                at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self.file = open(folder / "model.safetensors", "wb")
        self.file.write(struct.pack("<Q", len(text)) + text)

    def _state(self, size):
        return json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16",
                           "shape": size}).encode()

    def _parts(self, name, size):
        """[(name, dtype, shape, bytes of an element)]"""
        if len(size) == 1 or ".layers." not in name:
            return [(name, "BF16", size, 2)]
        rows, inputs = size
        path = name.removesuffix(".weight")
        if self.kind == "nvfp4":
            return [(name, "U32", [rows, inputs // 8], 4), (path + ".scales", "U8",
                                                            [rows, inputs // 16], 1)]
        return [(name, "U8", [rows * inputs // 2, 1], 1),
                (name + ".absmax", "F32", [rows * inputs // 64], 4),
                (name + ".quant_map", "F32", [16], 4),
                (name + ".quant_state.bitsandbytes__nf4", "U8", [len(self._state(size))], 1)]

    def write(self, name, values):
        random = np.random.Generator(np.random.Philox(key=[2, zlib.crc32(name.encode())]))
        for part, dtype, dimensions, unit in self._parts(name, list(values.shape)):
            count = unit * elements(dimensions)
            if dtype == "BF16":
                data = (values.view(np.uint32) >> np.uint32(16)).astype("<u2")
            elif part.endswith(".scales"):
                data = random.integers(4, 10, count, np.uint8)  # 8-bit floats of 2^-7 or so.
            elif part.endswith(".absmax"):
                data = random.uniform(0.02, 0.05, count // 4).astype("<f4")
            elif part.endswith(".quant_map"):
                data = np.array(self.NF4, "<f4")
            elif ".quant_state." in part:
                data = np.frombuffer(self._state(list(values.shape)), np.uint8)
            else:
                data = random.integers(0, 256, count, np.uint8)
            data.tofile(self.file)

    def close(self):
        self.file.close()


class GgufWriter:
    """One GGUF file of one type of matrices; norms are float32."""

    def __init__(self, path, shape, tensors, gguf, kind):
        self.gguf, self.shape = gguf, shape
        self.type = getattr(gguf.GGMLQuantizationType, kind)
        self.writer = gguf.GGUFWriter(path, "llama")
        self._describe(kind)
        for name, gguf_name, size in tensors:
            kind_of = self._type_of(size)
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind_of]
            self.writer.add_tensor_info(gguf_name, size, np.dtype(np.float32),
                                        elements(size) // block * block_bytes, raw_dtype=kind_of)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_ti_data_to_file()

    def _type_of(self, size):
        return self.type if len(size) > 1 else self.gguf.GGMLQuantizationType.F32

    def _describe(self, kind):
        w, shape = self.writer, self.shape
        w.add_name("random")
        file_type = {"Q4_K": "Q4_K_S", "Q5_K": "Q5_K_S", "MXFP4": "MXFP4_MOE"}.get(kind, kind)
        w.add_file_type(getattr(self.gguf.LlamaFileType, f"MOSTLY_{file_type}"))
        w.add_quantization_version(self.gguf.GGML_QUANT_VERSION)
        w.add_context_length(CONTEXT)
        w.add_embedding_length(shape["hidden"])
        w.add_block_count(shape["layers"])
        w.add_feed_forward_length(shape["ffn"])
        w.add_head_count(shape["heads"])
        w.add_head_count_kv(shape["kv_heads"])
        w.add_key_length(shape["head_dim"])
        w.add_value_length(shape["head_dim"])
        w.add_rope_dimension_count(shape["head_dim"])
        w.add_rope_freq_base(float(ROPE_THETA))
        w.add_layer_norm_rms_eps(NORM_EPS)
        w.add_vocab_size(shape["vocab"])
        self._describe_tokenizer()
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_unk_token_id(0)

    def _describe_tokenizer(self):
        w = self.writer
        kinds = {"unknown": self.gguf.TokenType.UNKNOWN, "control": self.gguf.TokenType.CONTROL,
                 "byte": self.gguf.TokenType.BYTE, "normal": self.gguf.TokenType.NORMAL}
        tokens = vocabulary(self.shape["vocab"])
        w.add_tokenizer_model("llama")
        w.add_token_list([text for text, _ in tokens])
        w.add_token_scores([-float(i) for i in range(len(tokens))])
        w.add_token_types([int(kinds[kind]) for _, kind in tokens])

    def write(self, name, values):
        if name.endswith("q_proj.weight"):
            values = permuted(values, self.shape["heads"])
        elif name.endswith("k_proj.weight"):
            values = permuted(values, self.shape["kv_heads"])
        self.writer.write_tensor_data(self._blocks(name, values))

    def _blocks(self, name, values):
        kind = self._type_of(values.shape)
        if kind.name in RANDOM_BLOCKS:
            return random_blocks(kind.name, name, values.shape)
        return self.gguf.quants.quantize(values, kind)

    def close(self):
        self.writer.close()


# Weights and bytes of a block, where its float16 scales are, and what they are: weights have mean
# 0 and stay within +-0.1 or so. Q6_K's 16 scales of int8 are made smaller, so that the float16 is
# no subnormal number.
KQUANTS = {"Q4_K": (256, 144, {0: 6e-5, 2: 4.5e-4}), "Q5_K": (256, 176, {0: 3.1e-5, 2: 4.5e-4}),
           "Q6_K": (256, 210, {208: 1e-4})}
CODES = {"MXFP4": (32, 17, {}), "IQ4_NL": (32, 18, {0: 4e-4}), "IQ4_XS": (256, 136, {0: 2e-5})}
RANDOM_BLOCKS = KQUANTS | CODES


def random_blocks(kind, name, size):
    weights_of, block_bytes, scales = RANDOM_BLOCKS[kind]
    random = np.random.Generator(np.random.Philox(key=[1, zlib.crc32(name.encode())]))
    blocks = random.integers(0, 256, (elements(size) // weights_of, block_bytes), np.uint8)
    if kind == "MXFP4":
        blocks[:, 0] = 120  # Exponents.
    if kind == "Q6_K":
        blocks[:, 192:208] = (blocks[:, 192:208].view(np.int8) >> 3).view(np.uint8)
    for at, scale in scales.items():
        blocks[:, at:at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return blocks.reshape(*size[:-1], size[-1] // weights_of * block_bytes)


class DllamaWriter:
    """distributed-llama's model, whose q40 blocks are those of Q4_0, and a tokenizer for it."""

    Q40 = 2

    def __init__(self, folder, shape, gguf):
        self.gguf, self.shape = gguf, shape
        # Its keys: version, architecture, sizes, no experts, SiLU, base, weights, head, epsilon.
        values = {0: 0, 1: 0xABCD00, 2: shape["hidden"], 3: shape["ffn"], 4: shape["layers"],
                  5: shape["heads"], 6: shape["kv_heads"], 7: 0, 8: 0, 9: shape["vocab"],
                  10: CONTEXT, 11: 1, 12: ROPE_THETA, 13: self.Q40, 19: shape["head_dim"], 20: 5}
        self.file = open(folder / "q40.m", "wb")
        self.file.write(self._header(0xA00ABCD, values))
        self._write_tokenizer(folder / "dllama.t")

    @staticmethod
    def _header(magic, values):
        data = b"".join(struct.pack("<ii", key, value) for key, value in values.items())
        return struct.pack("<ii", magic, 8 + len(data)) + data

    def _write_tokenizer(self, path):
        # What is before <s> is text, the rest is special: a character is a token.
        size = self.shape["vocab"]
        tokens = [bytes([byte]) for byte in range(1, 256)]
        tokens += [f"<filler{i}>".encode() for i in range(size - 2 - len(tokens))]
        tokens += [b"<s>", b"</s>"]
        with open(path, "wb") as file:
            # Version, size, longest token, <s>, how many ends of text, whether to begin with <s>.
            file.write(self._header(0x567124, {
                0: 1, 1: size, 2: max(map(len, tokens)), 3: size - 2, 9: 1, 10: 1}))
            file.write(struct.pack("<i", size - 1))
            for i, token in enumerate(tokens):
                file.write(struct.pack("<fI", -float(i), len(token)) + token)

    def write(self, name, values):
        if name.endswith("q_proj.weight"):
            values = permuted(values, self.shape["heads"])
        elif name.endswith("k_proj.weight"):
            values = permuted(values, self.shape["kv_heads"])
        if values.ndim > 1 and name != "model.embed_tokens.weight":
            values = self.gguf.quants.quantize(values, self.gguf.GGMLQuantizationType.Q4_0)
        values.tofile(self.file)

    def close(self):
        self.file.close()


def load_gguf():
    try:
        import gguf
        import gguf.quants
    except ImportError:
        raise Refused("the Python package gguf is missing: install it with `pip install gguf`, add "
                      "llama.cpp's gguf-py to PYTHONPATH, or write only --formats hf") from None
    return gguf


def make(shape_name, folder, seed, formats, say):
    shape = SHAPES[shape_name]
    tensors = tensors_of(shape)
    folder = pathlib.Path(folder).resolve()
    if folder == TREE or TREE in folder.parents:
        raise Refused(f"{folder} is in the source tree: name a folder outside it")
    gguf = load_gguf() if set(formats) != {"hf"} else None
    parameters = sum(elements(size) for _, _, size in tensors)
    # Bytes a parameter: bfloat16; float16, Q8_0 and Q4_0; q40 and the embedding in float32; Q4_K,
    # Q5_K and Q6_K; five of 4 bits, two of them with an embedding and a head in bfloat16.
    need = parameters * sum({"hf": 2, "gguf": 3.63, "dllama": 0.8, "kquants": 2.1, "codes": 3}[f]
                            for f in formats)
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise Refused(f"{folder} has {free / 1e9:.1f} GB free and {shape_name} takes "
                      f"{need / 1e9:.1f} GB: name a folder with more, or fewer --formats")
    marker = folder / "shape.json"
    marker.unlink(missing_ok=True)
    writers = []
    if "hf" in formats:
        writers.append(SafetensorsWriter(folder / "hf", llama_config(shape),
                                         [(name, size) for name, _, size in tensors]))
    kinds = ("F16", "Q8_0", "Q4_0") if "gguf" in formats else ()
    kinds += tuple(KQUANTS) if "kquants" in formats else ()
    kinds += tuple(CODES) if "codes" in formats else ()
    writers += [GgufWriter(folder / f"{kind.lower()}.gguf", shape, tensors, gguf, kind)
                for kind in kinds]
    if "codes" in formats:
        writers += [CodesWriter(folder / kind, shape, kind,
                                [(name, size) for name, _, size in tensors])
                    for kind in CodesWriter.CONFIG]
    if "dllama" in formats:
        writers.append(DllamaWriter(folder, shape, gguf))
    for i, (name, _, size) in enumerate(tensors):
        if i % 20 == 0:
            say(f"{i} of {len(tensors)} tensors")
        values = weights(seed, name, size)
        for writer in writers:
            writer.write(name, values)
    for writer in writers:
        writer.close()
    marker.write_text(json.dumps({"shape": shape_name, "seed": seed, "formats": sorted(formats),
                                  "parameters": parameters, **shape}) + "\n")
    say(f"{shape_name}, {parameters / 1e6:.1f} million parameters, is in {folder}")


def parse_formats(text):
    formats = text.split(",")
    for one in formats:
        if one not in FORMATS:
            raise argparse.ArgumentTypeError(f"{one!r} is none of {', '.join(FORMATS)}")
    return formats


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES, help="which sizes")
    parser.add_argument("dir", type=pathlib.Path, help="where to, outside the source tree")
    parser.add_argument("--seed", type=int, default=11, help="of the weights (default 11)")
    parser.add_argument("--formats", type=parse_formats, default=list(DEFAULT_FORMATS),
                        help="some of hf,gguf,kquants,codes,dllama (default: all but kquants, codes)")
    arguments = parser.parse_args()
    try:
        make(arguments.shape, arguments.dir, arguments.seed, arguments.formats,
             lambda line: print(line, file=sys.stderr, flush=True))
    except (Refused, OSError) as error:
        sys.exit(f"make_shape.py: {error}")


if __name__ == "__main__":
    main()
