"""The bundled model that calls tools, through two workers: it chooses what to call by itself."""

import json
import re
import subprocess

import pytest

from client_environment import environment, run
from cluster import BIN, GIVE_UP_S, SOURCE, Cluster, cut
from http_client import post, stream
from test_client_loops import CLIENTS, LOOPS

FOLDER = SOURCE / "models" / "recall-tools"
CASES = json.loads((FOLDER / "cases.json").read_text())
# Closer than this two logits may change places where sums are added up in another order.
CLEAR_GAP = 0.001
CLEAR = [case for case in CASES if case["right"] and case["smallest_gap"] > CLEAR_GAP]
CALLS = [case for case in CLEAR if case["kind"] == "call"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("recall-tools")) as c:
        c.start_workers(2)
        c.load("recall-tools", FOLDER, cuts=cut(["w0", "w1"], 8), kv_dtype="f32", sessions=4)
        yield c


def written_calls(case):
    """[(name, arguments)] of what it writes."""
    found = re.findall(r"<tool_call>\n(.*?)\n</tool_call>", case["text"], re.S)
    return [(call["name"], call["arguments"]) for call in map(json.loads, found)]


def asking(case, **fields):
    return {"messages": case["messages"], "tools": case["tools"], "temperature": 0, "max_tokens": 96, **fields}


def ask(cluster, case, **fields):
    (choice,) = post(cluster, "/v1/chat/completions", asking(case, **fields))["choices"]
    return choice["message"], choice["finish_reason"]


def calls_of(message):
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", ())]


def streamed(cluster, case, **fields):
    """(message, finish_reason) that the deltas of a stream make."""
    message, reason = {"content": "", "tool_calls": []}, None
    for event in stream(cluster, "/v1/chat/completions", asking(case, stream=True, **fields)):
        for choice in event["choices"]:
            reason = choice["finish_reason"] or reason
            message["content"] += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls", ()):
                if piece["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"function": {"name": piece["function"]["name"], "arguments": ""}})
                message["tool_calls"][piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return message, reason


def offline(command, lines):
    done = subprocess.run([BIN / "strata-coordinator", command, FOLDER, "--jsonl"], capture_output=True, text=True,
                          input="".join(json.dumps(line) + "\n" for line in lines), timeout=GIVE_UP_S)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_prompts_are_those_of_transformers():
    assert len(CASES) == 60
    rendered = offline("template", [{"input": {"messages": c["messages"], "tools": c["tools"],
                                               "add_generation_prompt": True}} for c in CASES])
    assert [r["output"] for r in rendered] == [c["prompt"] for c in CASES]
    ids = offline("tokenize", [{"text": c["prompt"], "add_special_tokens": False} for c in CASES])
    assert [r["ids"] for r in ids] == [c["prompt_ids"] for c in CASES]


def test_the_model_calls_and_answers_as_in_transformers(cluster):
    assert len(CLEAR) >= 35 and {case["kind"] for case in CLEAR} == {"call", "answer", "plain"}
    for case in CLEAR:
        wanted = written_calls(case)
        for message, reason in (ask(cluster, case), streamed(cluster, case)):
            assert calls_of(message) == wanted, case["name"]
            assert (message["content"] or "") == ("" if wanted else case["text"]), case["name"]
            assert reason == ("tool_calls" if wanted else "stop"), case["name"]


def test_a_choice_of_tools_holds(cluster):
    for case in CALLS[:6]:
        wanted = written_calls(case)
        name = wanted[0][0]
        for fields in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": name}}}):
            for message, _ in (ask(cluster, case, **fields, parallel_tool_calls=False),
                               streamed(cluster, case, **fields, parallel_tool_calls=False)):
                assert calls_of(message) == wanted[:1], (case["name"], fields)
        message, reason = ask(cluster, case, tool_choice="none")
        assert "tool_calls" not in message and message["content"] and reason == "stop"


def test_one_call_at_a_time(cluster):
    several = [case for case in CALLS if len(written_calls(case)) > 1]
    assert several
    for case in several:
        message, reason = ask(cluster, case, parallel_tool_calls=False)
        assert (calls_of(message), reason) == (written_calls(case)[:1], "tool_calls")


def test_a_client_has_its_loop_with_a_model_that_was_trained(cluster):
    run(environment("loops-openai", *CLIENTS["openai"]), LOOPS / "trained_loop.py", cluster.http, "recall-tools", "It is 9 degrees in Bern.")
