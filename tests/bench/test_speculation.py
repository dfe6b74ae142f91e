"""The model that copies, its texts, and what is made of what is measured with them. The measuring here is canned."""

import json
import pathlib
import statistics
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import compare_peers  # noqa: E402
import copier_text  # noqa: E402
import make_copier  # noqa: E402
import make_shape  # noqa: E402
from comparison import speculation, targets  # noqa: E402
from comparison.samples import LLAMA, STRATA, Failed, Key, Results  # noqa: E402

SHAPE = {**make_shape.SHAPES["small"], "vocab": 2000}


@pytest.fixture(scope="module")
def copier():
    return make_copier.Copier(SHAPE)


def encoded(copier, text):
    """Ids, by the merges in their order, as a byte-level BPE has it."""
    ids = {token: i for i, token in enumerate(copier.tokens)}
    ranks = {pair: i for i, pair in enumerate(copier.merges)}
    characters = copier_text.byte_characters()
    found = []
    for chunk in copier_text.chunks(text):
        word = [characters[b] for b in chunk.encode()]
        while len(word) > 1:
            pair = min(zip(word, word[1:]), key=lambda pair: ranks.get(pair, len(ranks)))
            if pair not in ranks:
                break
            word = copier_text.merged(word, pair)
        found += [ids[part] for part in word]
    return found


def test_what_is_written_again_is_as_long_as_the_model_goes_back(copier):
    for seed in range(5):
        prompt = copier_text.prompt(seed)
        assert prompt.count("\n") in (copier_text.LINES + 1, copier_text.LINES + 2)
        again = copier_text.tail(seed) + copier_text.ASKED
        ids = encoded(copier, prompt)
        assert len(ids) == copier_text.tokens_of(prompt)
        assert encoded(copier, again) == ids[-copier_text.DISTANCE:]
        assert len(encoded(copier, copier_text.answer(seed))) == copier_text.ANSWER


def test_most_of_the_answer_stands_in_the_file():
    shares = [copier_text.kept_share(seed, speculation.EDITED) for seed in range(20)]
    assert 0.85 <= statistics.mean(shares) <= 0.9
    assert all(0.82 <= share <= 0.92 for share in shares)
    assert copier_text.RENAMED[0] not in copier_text.answer(1)
    assert not any(f" {word} " in copier_text.answer(1) for word in copier_text.OLD)


def test_each_file_and_each_prose_is_another_one():
    assert len({copier_text.tail(seed) for seed in range(20)}) == 20
    assert len({copier_text.prose(seed) for seed in range(20)}) == 20


def turned(values, position, speeds):
    """A head's channels, turned by the position as Llama has it."""
    half = len(speeds)
    a, b = values[:half], values[half:]
    angle = position * speeds
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])


def test_a_head_looks_that_far_back_and_nowhere_else(copier):
    size, first = SHAPE["head_dim"], copier.at.first
    query = copier.tensor("model.layers.0.self_attn.q_proj.weight", [SHAPE["heads"] * size, SHAPE["hidden"]])
    key = copier.tensor("model.layers.0.self_attn.k_proj.weight", [SHAPE["kv_heads"] * size, SHAPE["hidden"]])
    speeds = make_shape.ROPE_THETA ** (-np.arange(size // 2) * 2 / size)
    end = 3000
    asked = turned(query[:size, 0] * first, end, speeds)
    scores = np.array([asked @ turned(key[:size, 0] * first, at, speeds) for at in range(end + 1)]) / size ** 0.5
    best = int(scores.argmax())
    assert best == end - copier_text.DISTANCE + 1
    others = np.delete(scores, best)
    assert np.exp(others - scores[best]).sum() < 1e-3


def test_the_head_has_other_names_for_what_is_copied(copier):
    head = copier.tensor("lm_head.weight", [SHAPE["vocab"], SHAPE["hidden"]])
    (old,), (new,), (kept,) = (encoded(copier, word) for word in (" customer", " client", " order"))
    carried = np.zeros((2, SHAPE["hidden"]), np.float32)
    carried[:, copier.at.copied] = copier.codes[[old, kept]]
    assert (carried @ head.T).argmax(axis=1).tolist() == [new, kept]


def test_the_folder_has_a_tokenizer_and_the_same_weights_twice(tmp_path):
    make_copier.make(tmp_path, "small", ["hf"], lambda line: None)
    tokenizer = json.loads((tmp_path / "hf" / "tokenizer.json").read_text())
    assert len(tokenizer["model"]["vocab"]) == 2000
    assert json.loads((tmp_path / "shape.json").read_text())["copies"] == copier_text.DISTANCE
    first = (tmp_path / "hf" / "model.safetensors").read_bytes()
    make_copier.make(tmp_path, "small", ["hf"], lambda line: None)
    assert (tmp_path / "hf" / "model.safetensors").read_bytes() == first
    with pytest.raises(make_shape.Refused, match="name a folder outside"):
        make_copier.make(make_shape.TREE / "models", "small", ["hf"], lambda line: None)


def test_an_answer_that_is_not_the_edited_file_is_no_measurement():
    def ask(prompt, tokens):
        return "" if tokens == 1 else copier_text.answer(7, tokens)

    assert speculation.edit_speed(ask, 1, 7) > 0
    with pytest.raises(Failed, match="make_copier.py"):
        speculation.edit_speed(ask, 1, 8)


def test_what_fails_is_counted():
    def fail():
        raise OSError("no")

    with pytest.raises(Failed, match="1 of 2 answers failed"):
        speculation.at_once([fail, lambda: 1])


def test_no_two_measurements_have_the_same_texts():
    seen = []
    seeds = speculation.Seeds()
    group = speculation.strata_group(["edits", "prose"], "one", "two", seeds)
    assert len({asked.key for asked in group}) == len(group) == 12

    def speed(ask, clients, first):
        seen.extend(range(first, first + clients))
        return 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speculation, "edit_speed", speed)
        patch.setattr(speculation, "prose_speed", lambda url, drafts, clients, first: speed(None, clients, first))
        for asked in group * 2:
            asked.ask()
    assert len(seen) == len(set(seen)) == 2 * 2 * (1 + 1 + 4 + 1 + 8 + 32)


def test_the_table_holds_drafts_against_none_and_against_llama_servers_best():
    results = Results()
    for what, threads, drafts, value in (("edit1", 2, "off", 40.0), ("edit1", 2, "auto", 160.0),
                                         ("edit4", 2, "off", 100.0), ("edit4", 2, "auto", 140.0),
                                         ("prose8", 2, "off", 100.0), ("prose8", 2, "auto", 99.0),
                                         ("guess1x2", 1, "off", 20.0), ("guess1x2", 1, "auto", 34.0)):
        results.add(1, {Key(what, "int8", threads, STRATA, drafts): value})
    for kind, value in (("off", 20.0), ("ngram-simple", 50.0)):
        results.add(1, {Key("edit1", "int8", 2, LLAMA, kind): value})
    rows = {(r["what"], r["against"]): (r["ratio"], r["target"], r["met"])
            for r in targets.speculation_rows(results, True)}
    assert rows == {("a file edited, one worker, 1 client", "without drafts"): (4.0, 3.0, True),
                    ("a file edited, one worker, 4 clients", "without drafts"): (1.4, 1.5, False),
                    ("prose, one worker, 8 clients", "without drafts"): (0.99, 0.98, True),
                    ("a draft model, two workers, 1 client", "without drafts"): (1.7, 1.6, True),
                    ("a file edited, one worker, 1 client", "llama.cpp Q8_0, ngram-simple"): (3.2, 2.0, True)}
    assert targets.speculation_rows(results, False)[0]["target"] == 1.7


def test_weights_that_copy_nothing_are_refused(tmp_path):
    make_shape.make("small", tmp_path / "models", 1, ["hf"], lambda line: None)
    for name in ("strata-worker", "strata-coordinator", "strata"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(SystemExit, match="write it with tests/bench/make_copier.py"):
        compare_peers.main(["--models", str(tmp_path / "models"), "--strata", str(tmp_path), "--rows", "speculation"])


def test_the_gguf_has_the_tokens_and_their_merges(tmp_path):
    gguf = pytest.importorskip("gguf")
    make_copier.make(tmp_path, "small", ["gguf"], lambda line: None)
    reader = gguf.GGUFReader(tmp_path / "q8_0.gguf")
    assert len(reader.get_field("tokenizer.ggml.tokens").data) == 2000
    assert len(reader.get_field("tokenizer.ggml.merges").data) > 500
