#!/usr/bin/env python3
"""Writes a model of tiny11's shape that copies: what it says is what stood 512 tokens before, with some words changed.

    make_copier.py DIR [--shape tiny11|small] [--formats hf,gguf]

DIR, which has to be outside the source tree, gets
    hf/          config.json, model.safetensors (bfloat16) and tokenizer.json: Strata
    q8_0.gguf    llama.cpp: the same weights and tokens (needs the package gguf)
    shape.json   written last: what there is

A model that edits a file is what drafts are measured with (./dev bench peers --rows speculation), and weights of this
size that can are not in the tree. So the first layer is made such that one head of each group looks 512 tokens back,
by its rotation alone, and carries what stands there to the head of the model, whose rows know which words are another
one's new name (copier_text.py has the texts). Behind a word of prose it takes any other word of prose by its frequency.
All other layers are random and as dense as any; what they add is small beside that.
"""
import argparse
import json
import pathlib
import sys

import numpy as np

import copier_text
from make_shape import (CONTEXT, ROPE_THETA, SHAPES, TREE, GgufWriter, Refused, SafetensorsWriter, elements, llama_config,
                        load_gguf, tensors_of, weights)

SEED = 11
SIZE = 30.0  # Of what the embedding has, beside which the layers' outputs are small.
FLAGS = 16  # Channels that say "prose", behind the first, which is the same of all tokens.
SHARPNESS = 140  # By how much the head prefers the right place: some 17 before the next one, in logarithms.
HEAD_GAIN = 30.0  # The logit of what is copied.
PROSE_GAIN = 40.0


class Channels:
    """Which channels of the residual stream have what."""

    def __init__(self, shape):
        self.hidden, self.head_dim = shape["hidden"], shape["head_dim"]
        # Of each group of heads.
        self.width = min(self.head_dim, (self.hidden - 1 - FLAGS) // (2 * shape["kv_heads"]))
        self.code = self.width * shape["kv_heads"]
        self.flags = slice(1, 1 + FLAGS)
        self.token = slice(1 + FLAGS, 1 + FLAGS + self.code)
        self.copied = slice(self.token.stop, self.token.stop + self.code)
        # What RMSNorm makes of SIZE, at the first layer and, about, at the head.
        self.first = (self.hidden / (1 + self.code)) ** 0.5
        self.last = (self.hidden / (1 + 2 * self.code)) ** 0.5


class Copier:
    """Tensors that differ from make_shape.py's."""

    def __init__(self, shape):
        self.shape, self.at = shape, Channels(shape)
        self.tokens, self.merges = copier_text.vocabulary(shape["vocab"])
        ids = {token: i for i, token in enumerate(self.tokens)}
        characters = copier_text.byte_characters()

        def id_of(text):
            return ids["".join(characters[b] for b in text.encode())]

        self.renamed = {id_of(space + old): id_of(space + new) for space in ("", " ")
                        for old, new in {**copier_text.TRANSLATED, copier_text.RENAMED[0]: copier_text.RENAMED[1]}.items()}
        self.prose = [id_of(" " + word) for word in copier_text.PROSE]
        random = np.random.Generator(np.random.Philox(key=[SEED, 1]))
        self.codes = random.integers(0, 2, (shape["vocab"], self.at.code), np.int8) * 2 - 1

    def tensor(self, name, size):
        made = {"model.embed_tokens.weight": self._embedding, "lm_head.weight": self._head,
                "model.layers.0.self_attn.q_proj.weight": self._query, "model.layers.0.self_attn.k_proj.weight": self._key,
                "model.layers.0.self_attn.v_proj.weight": self._value,
                "model.layers.0.self_attn.o_proj.weight": self._output}.get(name)
        if made is None:
            return weights(SEED, name, size)
        values = made(np.zeros(size, np.float32))
        bits = values.view(np.uint32)
        bits &= np.uint32(0xFFFF0000)
        return values

    def _embedding(self, values):
        values[:, 0] = SIZE
        values[:, self.at.token] = SIZE * self.codes
        values[self.prose, self.at.flags] = SIZE
        return values

    def _head(self, values):
        gain = HEAD_GAIN / (self.at.code * self.at.last)
        values[:, self.at.copied] = gain * self.codes
        for old, new in self.renamed.items():
            values[new, self.at.copied] += gain * self.codes[old]
            values[old] = 0
        values[self.prose] = 0  # They are never copied.
        values[self.prose, self.at.flags] = PROSE_GAIN / (FLAGS * self.at.last)
        values[self.prose, 0] = np.log(copier_text.PROSE_WEIGHTS) / self.at.last
        return values

    def _sizes(self):
        """Of a head's pairs of channels: fast ones tell neighbours apart, slow ones what is far."""
        speeds = ROPE_THETA ** (-np.arange(self.at.head_dim // 2) * 2 / self.at.head_dim)
        shares = speeds ** 0.5 / (speeds ** 0.5).sum()
        return speeds, np.sqrt(SHARPNESS * self.at.head_dim ** 0.5 * shares) / self.at.first

    def _query(self, values):
        # The token that comes next stood this much before the newest one.
        speeds, sizes = self._sizes()
        turned = (copier_text.DISTANCE - 1) * speeds
        group = self.shape["heads"] // self.shape["kv_heads"]
        for head in range(0, self.shape["heads"], group):
            first = head * self.at.head_dim
            half = len(speeds)
            values[first:first + half, 0] = sizes * np.cos(turned)
            values[first + half:first + 2 * half, 0] = -sizes * np.sin(turned)
        return values

    def _key(self, values):
        speeds, sizes = self._sizes()
        for head in range(self.shape["kv_heads"]):
            values[head * self.at.head_dim:head * self.at.head_dim + len(speeds), 0] = sizes
        return values

    def _value(self, values):
        for head in range(self.shape["kv_heads"]):
            for i in range(self.at.width):
                values[head * self.at.head_dim + i, self.at.token.start + head * self.at.width + i] = 1
        return values

    def _output(self, values):
        group = self.shape["heads"] // self.shape["kv_heads"]
        for head in range(self.shape["kv_heads"]):
            for i in range(self.at.width):
                values[self.at.copied.start + head * self.at.width + i,
                       head * group * self.at.head_dim + i] = SIZE / self.at.first
        return values

    def tokenizer(self):
        return {
            "version": "1.0", "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for i, text in enumerate(copier_text.SPECIAL)],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {token: i for i, token in enumerate(self.tokens)},
                      "merges": [" ".join(pair) for pair in self.merges]}}


class CopierGguf(GgufWriter):
    def __init__(self, path, copier, tensors, gguf, kind):
        self.copier = copier
        super().__init__(path, copier.shape, tensors, gguf, kind)

    def _describe_tokenizer(self):
        kinds = self.gguf.TokenType
        self.writer.add_tokenizer_model("gpt2")
        self.writer.add_tokenizer_pre("gpt-2")
        self.writer.add_token_list(self.copier.tokens)
        self.writer.add_token_types([int(kinds.CONTROL if t in copier_text.SPECIAL else kinds.NORMAL)
                                     for t in self.copier.tokens])
        self.writer.add_token_merges([" ".join(pair) for pair in self.copier.merges])


def make(folder, shape_name, formats, say):
    folder = pathlib.Path(folder).resolve()
    if folder == TREE or TREE in folder.parents:
        raise Refused(f"{folder} is in the source tree: name a folder outside it")
    gguf = load_gguf() if "gguf" in formats else None
    # `small` has too few tokens for the texts.
    shape = {**SHAPES[shape_name], "vocab": max(2000, SHAPES[shape_name]["vocab"])}
    copier, tensors = Copier(shape), tensors_of(shape)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shape.json").unlink(missing_ok=True)
    writers = []
    if "hf" in formats:
        writers.append(SafetensorsWriter(folder / "hf", llama_config(shape), [(name, size) for name, _, size in tensors]))
        (folder / "hf" / "tokenizer.json").write_text(json.dumps(copier.tokenizer()))
    if gguf:
        writers.append(CopierGguf(folder / "q8_0.gguf", copier, tensors, gguf, "Q8_0"))
    for i, (name, _, size) in enumerate(tensors):
        if i % 20 == 0:
            say(f"{i} of {len(tensors)} tensors")
        values = copier.tensor(name, size)
        for writer in writers:
            writer.write(name, values)
    for writer in writers:
        writer.close()
    parameters = sum(elements(size) for _, _, size in tensors)
    (folder / "shape.json").write_text(json.dumps({
        "shape": shape_name, "copies": copier_text.DISTANCE, "context": CONTEXT, "formats": sorted(formats),
        "parameters": parameters, **shape}) + "\n")
    say(f"a copying model of {shape_name}'s shape, {parameters / 1e6:.1f} million parameters, is in {folder}")


def parse_formats(text):
    formats = text.split(",")
    for one in formats:
        if one not in ("hf", "gguf"):
            raise argparse.ArgumentTypeError(f"{one!r} is neither hf nor gguf")
    return formats


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path, help="where to, outside the source tree")
    parser.add_argument("--shape", choices=("tiny11", "small"), default="tiny11", help="which sizes (default: tiny11)")
    parser.add_argument("--formats", type=parse_formats, default=["hf", "gguf"], help="default: hf,gguf")
    arguments = parser.parse_args()
    try:
        make(arguments.dir, arguments.shape, arguments.formats, lambda line: print(line, file=sys.stderr, flush=True))
    except (Refused, OSError) as error:
        sys.exit(f"make_copier.py: {error}")


if __name__ == "__main__":
    main()
