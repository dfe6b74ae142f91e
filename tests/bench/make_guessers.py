#!/usr/bin/env python3
"""Writes two models of one vocabulary, of which the small one guesses what the large one says.

    make_guessers.py DIR [--shape tiny11|small] [--right 0.7]

DIR, which has to be outside the source tree, gets
    model/       config.json and model.safetensors, bfloat16: the one that answers
    guesser/     the same of a tenth of its parameters
    shape.json   written last: what there is

A draft model is measured with them (./dev bench peers --rows speculation). What follows a token is another one of the
vocabulary, the same at every place, and no token comes twice before all have been there: nothing can be looked up. The
guesser knows it of as many tokens as --right says, and says the one behind it of the others. That is in embedding and
head; layers are random and as dense as any, and what they add is small beside it.
"""
import argparse
import json
import pathlib
import sys

import numpy as np

from make_shape import (FIELDS, SHAPES, TREE, Refused, SafetensorsWriter, elements, llama_config, tensors_of, weights)

SEED = 12
SIZE = 30.0  # Of what the embedding has, beside which the layers' outputs are small.
HEAD_GAIN = 30.0  # The logit of what follows.
# A tenth of the parameters, by the name of the shape.
GUESSERS = {"tiny11": dict(zip(FIELDS, (768, 10, 12, 4, 64, 2048, 32000))),
            "small": dict(zip(FIELDS, (128, 2, 2, 2, 64, 128, 512)))}
# x -> (FACTOR x + STEP) mod vocabulary goes through all of it: FACTOR - 1 has its prime factors, and 4; STEP none of them.
FACTOR, STEP = 12341, 7919


def following(tokens, vocab):
    """What follows each of the tokens."""
    return (np.asarray(tokens, np.int64) * FACTOR + STEP) % vocab


def guessed(tokens, vocab, right):
    """What the guesser says: of the tokens drawn for it another one."""
    drawn = np.random.Generator(np.random.Philox(key=[SEED, 2])).random(vocab)
    right_ones = following(tokens, vocab)
    return np.where(drawn[np.asarray(tokens)] < right, right_ones, (right_ones + 1) % vocab)


class Follower:
    """Tensors that differ from make_shape.py's: `next_of` is what follows each token."""

    def __init__(self, shape, seed, next_of):
        self.shape, self.seed, self.next_of = shape, seed, next_of
        random = np.random.Generator(np.random.Philox(key=[seed, 1]))
        self.codes = random.integers(0, 2, (shape["vocab"], shape["hidden"]), np.int8) * 2 - 1

    def tensor(self, name, size):
        if name == "model.embed_tokens.weight":
            values = SIZE * self.codes.astype(np.float32)
        elif name == "lm_head.weight":
            values = np.zeros(size, np.float32)
            np.add.at(values, self.next_of, HEAD_GAIN / self.shape["hidden"] * self.codes.astype(np.float32))
        else:
            return weights(self.seed, name, size)
        values.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
        return values


def write(folder, follower, say):
    tensors = tensors_of(follower.shape)
    writer = SafetensorsWriter(folder, llama_config(follower.shape), [(name, size) for name, _, size in tensors])
    for i, (name, _, size) in enumerate(tensors):
        if i % 20 == 0:
            say(f"{folder.name}: {i} of {len(tensors)} tensors")
        writer.write(name, follower.tensor(name, size))
    writer.close()
    return sum(elements(size) for _, _, size in tensors)


def make(folder, shape_name, right, say):
    folder = pathlib.Path(folder).resolve()
    if folder == TREE or TREE in folder.parents:
        raise Refused(f"{folder} is in the source tree: name a folder outside it")
    shape, small = SHAPES[shape_name], GUESSERS[shape_name]
    vocab = shape["vocab"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shape.json").unlink(missing_ok=True)
    every = np.arange(vocab)
    large = write(folder / "model", Follower(shape, SEED, following(every, vocab)), say)
    tenth = write(folder / "guesser", Follower(small, SEED + 1, guessed(every, vocab, right)), say)
    (folder / "shape.json").write_text(json.dumps(
        {"shape": shape_name, "right": right, "parameters": large, "guesser_parameters": tenth, **shape}) + "\n")
    say(f"a model of {large / 1e6:.1f} million parameters and one of {tenth / 1e6:.1f} million that guesses for it are in "
        f"{folder}")


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path, help="where to, outside the source tree")
    parser.add_argument("--shape", choices=tuple(GUESSERS), default="tiny11", help="which sizes (default: tiny11)")
    parser.add_argument("--right", type=share, default=0.7, help="of the guesses (default: 0.7)")
    arguments = parser.parse_args()
    try:
        make(arguments.dir, arguments.shape, arguments.right, lambda line: print(line, file=sys.stderr, flush=True))
    except (Refused, OSError) as error:
        sys.exit(f"make_guessers.py: {error}")


if __name__ == "__main__":
    main()
