"""What constraints.py makes of what it measures. The measuring here is canned."""

import argparse
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import constraints  # noqa: E402
import constraints_model  # noqa: E402


def test_rounds_go_forth_and_back_and_ratios_are_of_the_same_round():
    asked = []

    def measure(name, values):
        return lambda turn: asked.append((name, turn)) or values[turn]

    values = constraints.in_turn(3, {"a": measure("a", [4, 6, 90]), "b": measure("b", [2, 2, 30])})
    assert asked == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert constraints.ratio(values["a"], values["b"]) == 3


def test_a_speed_counts_all_tokens_and_wants_held_answers_to_be_json():
    assert constraints.speed(lambda i: ("{", 5), 3, True) > 0
    with pytest.raises(AssertionError):
        constraints.speed(lambda i: ("x", 0), 3, False)


def test_the_growth_of_gaps_is_counted_in_steps(monkeypatch, capsys):
    longest = {"alone": 30.0, "kept": 40.0, "new": 45.0}

    def gaps_ms(cluster, args, seed, beside):
        kind = "alone" if beside is None else "kept" if beside(0) == beside(1) else "new"
        return [10.0, 10.0, 20.0, longest[kind]], 7

    monkeypatch.setattr(constraints, "gaps_ms", gaps_ms)
    monkeypatch.setattr(constraints, "strata_answer", lambda *args: None)
    constraints.measure_gaps(None, argparse.Namespace(rounds=3))
    said = capsys.readouterr().out
    assert "a step of 4 clients: 15.0 ms" in said
    assert "15.0 ms longer than alone: 1.00 steps" in said
    assert "5.0 ms longer than beside a kept schema: 0.33 steps" in said


def test_the_vocabulary_has_all_bytes_and_no_word_twice():
    words = constraints_model.words(1000)
    assert len(words) == len(set(words)) == 1000
    assert words[:3] == constraints_model.SPECIAL


def test_the_gguf_has_the_weights_and_the_tokens(tmp_path):
    gguf = pytest.importorskip("gguf")
    shape = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 96, "vocab": 400}
    constraints_model.make_model(tmp_path / "model", shape)
    constraints_model.make_gguf(tmp_path / "model", tmp_path / "q8_0.gguf", shape)
    reader = gguf.GGUFReader(tmp_path / "q8_0.gguf")
    tokens = reader.get_field("tokenizer.ggml.tokens")
    assert len(tokens.data) == 400
    (norm,) = [t for t in reader.tensors if t.name == "output_norm.weight"]
    assert np.isfinite(norm.data).all() and len(norm.data) == 64
