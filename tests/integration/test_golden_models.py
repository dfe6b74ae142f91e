"""The golden models through real processes, cut in every way."""

import hashlib
import json

import numpy as np
import pytest

from cluster import GOLDEN, Cluster, cut, golden_cases

MODELS = ["llama", "llama31", "llama2-mha-f32"]
LAYERS = 3
TOLERANCE = 5e-4  # tests/golden/README.md


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("golden")) as c:
        c.start_workers(3)
        for model in MODELS:
            c.run("model", "add", GOLDEN / "models" / model)
        yield c


def check(cluster, model, folder):
    """Runs every case; the SHA-256 of the logits of each."""
    cases, expected = golden_cases(model)
    digests = {}
    for case in cases:
        answer = cluster.generate(model, ids=case["prompt_ids"], max_tokens=24, temperature=0,
                                  ignore_eos=True, logits=folder / f"{case['name']}.safetensors")
        assert answer["token_ids"] == case["greedy_ids"], case["name"]
        assert answer["finish_reason"] == "length"
        assert answer["usage"] == {"prompt_tokens": len(case["prompt_ids"]),
                                   "completion_tokens": 24, "cached_tokens": 0}
        want = expected[f"{case['name']}.logits"]
        assert answer["logits"].shape == want.shape
        assert np.abs(answer["logits"] - want).max() <= TOLERANCE, case["name"]
        digests[f"{model}/{case['name']}"] = hashlib.sha256(
            answer["logits"].tobytes()).hexdigest()
    return answer["numerics_class"], digests


@pytest.mark.parametrize("model", MODELS)
def test_logits_are_right_and_the_same_bits_for_every_partition(cluster, model, tmp_path):
    names = ["w0", "w1", "w2"]
    bits = json.loads((GOLDEN / "bits.json").read_text())
    for stages in (1, 2, 3):
        cluster.load(model, cuts=cut(names[:stages], LAYERS), kv_dtype="f32")
        numerics_class, digests = check(cluster, model, tmp_path)
        for case, digest in digests.items():
            assert bits[numerics_class][case] == digest, (case, stages)
        plan = cluster.json("model", "show", model)["plan"]
        assert len(plan["stages"]) == stages
        cluster.run("model", "unload", model)


def test_prompt_and_generated_logprobs_are_the_logits_log_softmax(cluster, tmp_path):
    cluster.load("llama", cuts=cut(["w0", "w1"], LAYERS), kv_dtype="f32")
    cases, expected = golden_cases("llama")
    case = next(c for c in cases if c["name"] == "p39")
    answer = cluster.generate("llama", ids=case["prompt_ids"], max_tokens=24, temperature=0,
                              ignore_eos=True, logprobs=3, prompt_logprobs=2)
    cluster.run("model", "unload", "llama")
    logits = expected["p39.logits"].astype(np.float64)
    want = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) \
        - logits.max(-1, keepdims=True)
    ids = case["prompt_ids"] + case["greedy_ids"]
    prompt = len(case["prompt_ids"])
    assert answer["prompt_logprobs"][0] is None
    assert len(answer["prompt_logprobs"]) == prompt
    assert len(answer["logprobs"]) == 24
    for position in range(1, len(ids)):
        entry = (answer["prompt_logprobs"][position] if position < prompt
                 else answer["logprobs"][position - prompt])
        row = want[position - 1]
        assert entry["token_id"] == ids[position]
        assert abs(entry["logprob"] - row[ids[position]]) < 1e-3
        top = entry["top"]
        assert [t[0] for t in top] == list(np.argsort(-row, kind="stable")[: len(top)])
        assert len(top) == (2 if position < prompt else 3)
