"""Drafted tokens through real processes: fewer steps, and the same tokens and log-probabilities."""

import json
import threading

import pytest

from cluster import NEVER, RECALL, SOURCE, Cluster, cut, wait_until
from http_client import post, request

# What repeats itself, and what does not.
PROMPTS = {"repeats": [5, 6, 7, 8, 9, 10] * 12 + [5, 6, 7], "varies": [(i * i * 7 + i) % 900 for i in range(60)]}
KINDS = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.7, "top_p": 0.9, "seed": 4, "repetition_penalty": 1.05,
                "frequency_penalty": 0.1},
    "ends": {"temperature": 0, "min_tokens": 20},
}


def ask(cluster, prompt, kind, **flags):
    options = {"max_tokens": 80, "logprobs": 2, **KINDS[kind], **flags}
    if kind != "ends":
        options["ignore_eos"] = True
    return cluster.generate("recall", ids=PROMPTS[prompt], **options)


def essence(answer):
    return answer["token_ids"], answer["logprobs"], answer["finish_reason"]


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long), 4])
def cluster(request, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("drafts"), step_timeout=NEVER) as cluster:
        stages = request.param
        cluster.start_workers(stages)
        cuts = [(f"w{i}", 8 * i // stages, 8 * (i + 1) // stages - 1) for i in range(stages)]
        cluster.load("recall", RECALL, cuts=cuts, context=512, sessions=8)
        yield cluster


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_answers_are_those_without_drafts(cluster, prompt, kind):
    without = ask(cluster, prompt, kind, speculate="off")
    assert "drafted_tokens" not in without["usage"]
    drafted = ask(cluster, prompt, kind)
    assert essence(drafted) == essence(without)
    cluster.nothing_is_left()


def test_many_at_once_have_their_own_answers(cluster):
    asked = [(prompt, kind) for prompt in PROMPTS for kind in KINDS]
    alone = {one: essence(ask(cluster, *one, speculate="off")) for one in asked}
    found = {}
    threads = [threading.Thread(target=lambda one=one: found.update({one: essence(ask(cluster, *one))}))
               for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone
    cluster.nothing_is_left()


def test_what_was_drafted_is_said(cluster):
    answer = ask(cluster, "repeats", "greedy")
    # Whether there are any follows from what rows cost here; what is said of them fits together.
    drafted, accepted = (answer["usage"].get(f"{what}_tokens", 0) for what in ("drafted", "accepted"))
    assert 0 <= accepted <= drafted
    model = cluster.json("model", "show", "recall")
    assert model["options"]["speculate"] == "auto"  # By default.
    assert model["drafted_tokens"] >= drafted and model["accepted_tokens"] >= accepted
    body = {"model": "recall", "prompt": PROMPTS["repeats"], "max_tokens": 40, "temperature": 0,
            "ignore_eos": True}
    details = post(cluster, "/v1/completions", body)["usage"].get("completion_tokens_details", {})
    assert all(details[name] >= 0 for name in details)
    status, _, refused = request(cluster, "POST", "/v1/completions", {**body, "speculate": "model=x"})
    assert status == 400 and "model=x" in refused["error"]["message"]


def test_a_stop_string_ends_an_answer_in_the_midst_of_a_step(cluster):
    whole = ask(cluster, "repeats", "greedy", speculate="off")
    text = whole["text"]
    stops = {text[len(text) * part // 8:][:3] for part in range(1, 8)}
    stops = [stop for stop in sorted(stops) if not stop.startswith("-") and "\ufffd" not in stop]
    assert stops, text
    for stop in stops:
        said = [essence(ask(cluster, "repeats", "greedy", stop=stop, **flags)) for flags in ({"speculate": "off"}, {}, {})]
        assert said[0][2] == "stop" and said[1:] == [said[0]] * 2, stop
    cluster.nothing_is_left()


# What leaves one token for long stretches, a few, or many; what ends the answer, and what does not.
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "tags", "done"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "tags": {"type": "array", "items": {"enum": ["a", "bc", "bd"]}, "maxItems": 9},
    "done": {"type": "boolean"}}}
HELD = {"pattern": {"guided_regex": "(ab|cd){30}"}, "text": {"guided_regex": "(the rest of it is known, ){8}[a-z ]*"},
        "schema": {"guided_json": SCHEMA}, "grammar": {"guided_grammar": 'root ::= ("one, " | "two, " [0-9]) root | "three"'}}


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("held", HELD)
def test_answers_that_are_held_are_those_without_drafts(cluster, held, kind):
    said = {}
    for speculate in ["off", "lookup", "auto"]:
        answer = post(cluster, "/v1/completions", {
            "model": "recall", "prompt": PROMPTS["repeats"], "max_tokens": 90, "logprobs": 2, "speculate": speculate,
            **KINDS[kind], **HELD[held]})
        (said[speculate],) = answer["choices"]
    assert said["lookup"] == said["off"]
    assert said["auto"] == said["off"]
    assert said["off"]["text"]
    cluster.nothing_is_left()


def test_calls_of_tools_are_those_without_drafts(tmp_path):
    folder = SOURCE / "models" / "recall-tools"
    cases = [case for case in json.loads((folder / "cases.json").read_text()) if case["kind"] == "call"][:4]
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(2)
        cluster.load("recall-tools", folder, cuts=cut(["w0", "w1"], 8), sessions=4, speculate="auto")
        for case in cases:
            for choice in ["auto", "required"]:
                for temperature in [0, 0.8]:
                    asked = {"messages": case["messages"], "tools": case["tools"], "tool_choice": choice, "seed": 3,
                             "temperature": temperature, "max_tokens": 96, "logprobs": True, "top_logprobs": 2}
                    said = []
                    for speculate in ["off", "auto"]:
                        (answer,) = post(cluster, "/v1/chat/completions", {**asked, "speculate": speculate})["choices"]
                        for call in answer["message"].get("tool_calls") or []:
                            del call["id"]
                        said.append(answer)
                    assert said[0] == said[1], (case["name"], choice, temperature)
        cluster.nothing_is_left()


def test_a_killed_worker_changes_nothing(tmp_path):
    with Cluster(tmp_path, recovery_timeout="60s") as cluster:
        cluster.start_workers(2)
        cluster.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512, sessions=4,
                     speculate="auto", recovery="wait")
        asked = {"max_tokens": 400, "logprobs": 1, "temperature": 0, "ignore_eos": True}
        expected = essence(cluster.generate("recall", ids=PROMPTS["repeats"], speculate="off", **asked))
        found = []
        thread = threading.Thread(target=lambda: found.append(
            essence(cluster.generate("recall", ids=PROMPTS["repeats"], **asked))))
        thread.start()
        wait_until(lambda: any(s["generated_tokens"] > 3 for s in
                               cluster.json("session", "list")["sessions"]) or not thread.is_alive(),
                   "the answer has begun")
        cluster.workers["w1"].kill()
        cluster.start_worker("w1", wait=False)
        thread.join()
        assert found == [expected]
        cluster.nothing_is_left()
