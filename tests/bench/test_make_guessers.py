"""make_guessers.py: what its models say, by their weights alone."""

import json
import struct

import numpy as np
import pytest

import make_guessers
from make_guessers import GUESSERS, SHAPES, following, guessed, make


@pytest.mark.parametrize("shape", GUESSERS)
def test_no_token_comes_twice_before_all_have_been_there(shape):
    vocab = SHAPES[shape]["vocab"]
    token, seen = 0, np.zeros(vocab, bool)
    for _ in range(vocab):
        assert not seen[token]
        seen[token] = True
        token = int(following(token, vocab))
    assert seen.all() and token == 0


def test_the_guesser_knows_as_much_as_it_is_to_know():
    vocab = SHAPES["tiny11"]["vocab"]
    every = np.arange(vocab)
    for right in (0, 0.3, 0.7, 1):
        share = np.mean(guessed(every, vocab, right) == following(every, vocab))
        assert abs(share - right) < 0.01


def tensors(folder):
    data = (folder / "model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    for name, tensor in json.loads(data[8:8 + size]).items():
        begin, end = (8 + size + at for at in tensor["data_offsets"])
        values = np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16
        yield name, values.view(np.float32).reshape(tensor["shape"])


def test_embedding_and_head_say_what_follows(tmp_path):
    make(tmp_path, "small", 0.5, lambda line: None)
    vocab = SHAPES["small"]["vocab"]
    every = np.arange(vocab)
    for name, said in (("model", following(every, vocab)), ("guesser", guessed(every, vocab, 0.5))):
        of = dict(tensors(tmp_path / name))
        logits = of["model.embed_tokens.weight"] @ of["lm_head.weight"].T
        assert (logits.argmax(axis=1) == said).all(), name
        # With a margin that the layers, which are random, do not come near.
        two = np.sort(logits, axis=1)[:, -2:]
        assert (two[:, 1] > 1.5 * two[:, 0]).all()
        assert any("layers.1." in tensor for tensor in of)
    sizes = json.loads((tmp_path / "shape.json").read_text())
    assert sizes["guesser_parameters"] < sizes["parameters"] / 5


def test_a_folder_in_the_source_tree_is_refused():
    with pytest.raises(make_guessers.Refused, match="source tree"):
        make(make_guessers.TREE / "models" / "x", "small", 0.7, lambda line: None)
