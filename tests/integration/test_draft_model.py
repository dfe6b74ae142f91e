"""A model that guesses for another, through real processes: the same tokens and log-probabilities as without."""

import json
import shutil
import struct
import threading

import pytest

from cluster import NEVER, RECALL, Cluster, wait_until

PROMPT = [(i * i * 7 + i) % 900 for i in range(60)]  # It does not repeat itself, so that nothing is looked up.
KINDS = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.7, "top_p": 0.9, "seed": 4, "repetition_penalty": 1.05, "frequency_penalty": 0.1},
    "ends": {"temperature": 0, "min_tokens": 20},
}


def changed(folder, alike):
    """A copy of the bundled model under another digest: it says the same, or what nobody expects."""
    shutil.copytree(RECALL, folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    begin, end = (8 + size + at for at in header["lm_head.weight"]["data_offsets"])
    if alike:
        data[begin] ^= 1  # The last bit of one weight.
    else:
        data[begin:end] = data[end - (end - begin) // 3:end] + data[begin:end - (end - begin) // 3]
    path.write_bytes(data)
    return folder


def ask(cluster, kind, **flags):
    options = {"max_tokens": 60, "logprobs": 2, **KINDS[kind], **flags}
    if kind != "ends":
        options["ignore_eos"] = True
    return cluster.generate("recall", ids=PROMPT, **options)


def essence(answer):
    return answer["token_ids"], answer["logprobs"], answer["finish_reason"]


def load(cluster, tmp_path, alike, **flags):
    cluster.run("model", "add", changed(tmp_path / "guesses", alike), "--name", "guesses")
    cluster.load("recall", RECALL, context=512, sessions=8, speculate="model=guesses", **flags)
    cluster.wait_ready("guesses")


@pytest.fixture(scope="module", params=[True, False], ids=["alike", "otherwise"])
def cluster(request, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("guesses")
    with Cluster(tmp_path, step_timeout=NEVER) as cluster:
        cluster.start_workers(2)
        load(cluster, tmp_path, request.param, cuts=[("w0", 0, 3), ("w1", 4, 7)])
        cluster.alike = request.param
        yield cluster


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_without_drafts(cluster, kind):
    without = ask(cluster, kind, speculate="off")
    assert "drafted_tokens" not in without["usage"]
    for _ in range(3):
        drafted = ask(cluster, kind)
        assert essence(drafted) == essence(without)
        usage = drafted["usage"]
        assert usage.get("accepted_tokens", 0) <= usage.get("drafted_tokens", 0)
    cluster.nothing_is_left()


def test_a_model_that_says_the_same_is_right(cluster):
    if not cluster.alike:
        pytest.skip("it says other things")
    # How much is asked for follows from what it costs here, which may be too much at times; the first few are always.
    ask(cluster, "ends")
    model = cluster.json("model", "show", "recall")
    assert model["options"]["speculate"] == "model=guesses"
    assert 0 < model["accepted_tokens"] <= model["drafted_tokens"]


def test_many_at_once_have_their_own_answers(cluster):
    alone = {kind: essence(ask(cluster, kind, speculate="off")) for kind in KINDS}
    found = []
    threads = [threading.Thread(target=lambda kind=kind: found.append((kind, essence(ask(cluster, kind)))))
               for kind in list(KINDS) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads) and all(answer == alone[kind] for kind, answer in found)
    cluster.nothing_is_left()


def test_answers_go_on_without_it(tmp_path):
    with Cluster(tmp_path, recovery_timeout="60s") as cluster:
        cluster.start_workers(1)
        load(cluster, tmp_path, True)
        expected = essence(ask(cluster, "greedy", speculate="off"))
        assert essence(ask(cluster, "greedy")) == expected
        cluster.run("model", "unload", "guesses")
        assert essence(ask(cluster, "greedy")) == expected
        problems = cluster.json("status")["problems"]
        said, = [p for p in problems if "guesses" in p["what"]]
        assert said["what"] == "model recall has no drafts by model guesses, which is not loaded"
        assert "strata model load guesses" in said["do"]
        cluster.run("model", "load", "guesses")
        wait_until(lambda: not any("guesses" in p["what"] for p in cluster.json("status")["problems"]),
                   "it is not missed any more")
        assert essence(ask(cluster, "greedy")) == expected
        cluster.nothing_is_left()


def test_a_model_that_cannot_guess_for_it_is_refused_by_name(tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1)
        cluster.run("model", "add", RECALL, "--name", "recall")
        other = changed(tmp_path / "other", True)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        vocabulary = tokenizer["model"]["vocab"]
        first, second = (text for text, number in vocabulary.items() if number in (300, 301))
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        cluster.run("model", "add", other, "--name", "other")
        for draft, why in (("recall", "they are the same"), ("other", "token id 300 is another text in it"),
                           ("nobody", "nobody")):
            _, said, status = cluster.run("model", "load", "recall", "--speculate", f"model={draft}", check=False)
            assert status != 0 and why in said, said
        _, said, status = cluster.run("model", "load", "recall", "--speculate", "sometimes", check=False)
        assert status != 0 and "model=NAME" in said, said
        assert not any(m["state"] == "ready" for m in cluster.json("model", "list")["models"])
