"""The bundled model through two workers: text in, the right text out."""

import json

import numpy as np
import pytest

from cluster import GIVE_UP_S, RECALL, Cluster, read_safetensors, recall_cases


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("recall")) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], kv_dtype="f32")
        yield c


def test_all_conversations_give_their_prompt_and_greedy_ids(cluster):
    cases = recall_cases()
    assert len(cases) == 200
    requests = "".join(json.dumps({"input": {"messages": c["messages"], "add_generation_prompt": True,
                                             "bos_token": "<|begin_of_text|>",
                                             "eos_token": "<|eot_id|>"}}) + "\n" for c in cases)
    rendered = offline("template", requests)
    assert [r["output"] for r in rendered] == [c["prompt"] for c in cases]
    texts = "".join(json.dumps({"text": c["prompt"], "add_special_tokens": False}) + "\n"
                    for c in cases)
    assert [r["ids"] for r in offline("tokenize", texts)] == [c["prompt_ids"] for c in cases]
    pending = []
    answers = {}

    def collect():
        name, process = pending.pop(0)
        out, err = process.communicate(timeout=GIVE_UP_S)
        assert process.returncode == 0, err
        answers[name] = json.loads(out)

    for case in cases:
        ids = ",".join(map(str, case["prompt_ids"]))
        pending.append((case["name"], cluster.popen("generate", "recall", "--token-ids", ids,
                                                    "--max-tokens", 96, "--temperature", 0,
                                                    "--json")))
        if len(pending) == 8:
            collect()
    while pending:
        collect()
    for case in cases:
        assert answers[case["name"]]["token_ids"] == case["greedy_ids"], case["name"]
        assert answers[case["name"]]["text"] == case["text"], case["name"]


def offline(command, lines):
    import subprocess

    from cluster import BIN

    done = subprocess.run([BIN / "strata-coordinator", command, RECALL, "--jsonl"], input=lines,
                          capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_logits_are_within_tolerance(cluster, tmp_path):
    expected = read_safetensors(RECALL / "expected.safetensors")
    for case in recall_cases()[:12]:
        answer = cluster.generate("recall", ids=case["prompt_ids"], max_tokens=96, temperature=0,
                                  logits=tmp_path / "logits.safetensors")
        want = expected[f"{case['name']}.logits"]
        assert answer["logits"].shape == want.shape
        assert np.abs(answer["logits"] - want).max() <= 5e-4


def test_chat_answers_from_what_it_is_told(cluster):
    for case in [c for c in recall_cases() if c["right"] and len(c["messages"]) == 1][:10]:
        answer = cluster.json("chat", "recall", case["messages"][0]["content"])
        assert answer["text"] == case["text"]
        assert answer["finish_reason"] == "stop"


def test_stop_strings_end_the_text_before_them(cluster):
    case = next(c for c in recall_cases() if c["right"] and len(c["text"].split()) > 4)
    word = case["text"].split()[3]
    answer = cluster.generate("recall", ids=case["prompt_ids"], temperature=0, stop=word)
    assert answer["text"] == case["text"][: case["text"].index(word)]
    assert answer["finish_reason"] == "stop"


def test_a_seed_gives_the_same_sampled_answer_and_a_drawn_one_is_reported(cluster):
    ids = recall_cases()[7]["prompt_ids"]
    first = cluster.generate("recall", ids=ids, temperature=1.5, max_tokens=40, ignore_eos=True)
    again = cluster.generate("recall", ids=ids, temperature=1.5, max_tokens=40, ignore_eos=True,
                             seed=first["seed"])
    other = cluster.generate("recall", ids=ids, temperature=1.5, max_tokens=40, ignore_eos=True,
                             seed=first["seed"] + 1)
    assert again["token_ids"] == first["token_ids"]
    assert other["token_ids"] != first["token_ids"]
