"""Published clients of other servers, unmodified, against a cluster."""

import json
import pathlib
import subprocess

import pytest

from client_environment import LITELLM, LORAX, OPENAI, environment, example, run
from cluster import BIN, GIVE_UP_S, RECALL, Cluster, recall_cases
from http_client import begin

CLIENTS = pathlib.Path(__file__).parent / "clients"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("clients"), max_sessions=2,
                 max_queued_requests=1) as c:
        c.start_workers(1)
        # Long answers last until something happens to them.
        c.load("recall", RECALL, kv_dtype="f32", context=512, sessions=2, speculate="off")
        c.run("model", "add", RECALL, "--name", "idle")
        c.case = tmp_path_factory.mktemp("case") / "case.json"
        c.case.write_text(json.dumps(next(
            case for case in recall_cases() if case["right"] and len(case["text"].split()) > 4)))
        yield c


@pytest.mark.parametrize("check", ["completions", "chat", "streams", "asynchronous", "errors",
                                   "busy"])
def test_openai(cluster, check):
    python = environment("openai", *OPENAI)
    run(python, CLIENTS / "openai_checks.py", check, cluster.http, cluster.case)


@pytest.mark.parametrize("check", ["generate", "stream", "errors", "deadline", "in_a_stream",
                                   "busy", "asynchronous"])
def test_lorax(cluster, check):
    python = environment("lorax", *LORAX)
    run(python, CLIENTS / "lorax_checks.py", check, cluster.http, cluster.case)


# It takes seconds to start.
@pytest.mark.parametrize("checks", ["chat,completions,streams,asynchronous", "errors,busy"])
def test_litellm(cluster, checks):
    python = environment("litellm", *LITELLM)
    run(python, CLIENTS / "litellm_checks.py", checks, cluster.http, cluster.case)


@pytest.mark.parametrize("name,packages", [("openai", OPENAI), ("litellm", LITELLM)])
def test_the_documents_example(cluster, name, packages, tmp_path):
    program = tmp_path / "example.py"
    program.write_text(example(cluster, "python", f"import {name}"))
    said = run(environment(name, *packages), program)
    if name == "litellm":
        assert "Paris" in said and "512 tokens" in said
    else:
        assert said


def test_the_documents_example_of_curl(cluster):
    answer = json.loads(subprocess.run(example(cluster, "", "curl"), shell=True, check=True,
                                       capture_output=True, text=True, timeout=GIVE_UP_S).stdout)
    assert "Paris" in answer["choices"][0]["message"]["content"], answer


def test_what_fails_on_a_worker_is_raised_by_type(tmp_path):
    case = next(case for case in recall_cases() if case["right"] and len(case["text"].split()) > 4)
    poison = next(token for token in case["greedy_ids"][2:-1]
                  if token not in case["prompt_ids"] + case["greedy_ids"][:2])
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    with Cluster(tmp_path) as c:
        c.start_worker("w0", binary=BIN.parent / "tests" / "strata-worker-poison",
                       env={"STRATA_POISON": f"fail:{poison}"})
        c.load("recall", RECALL, kv_dtype="f32", context=512, sessions=2)
        run(environment("openai", *OPENAI), CLIENTS / "openai_checks.py", "failing", c.http, path)
        lorax = environment("lorax", *LORAX)
        run(lorax, CLIENTS / "lorax_checks.py", "failing", c.http, path)
        c.run("model", "unload", "recall")
        run(lorax, CLIENTS / "lorax_checks.py", "unloaded", c.http, path)


@pytest.fixture(scope="module")
def talkative(cluster, tmp_path_factory):
    """A cluster whose streams are full of comments."""
    with Cluster(tmp_path_factory.mktemp("talkative"), http_keepalive="1ms") as c:
        c.start_workers(1)
        c.load("recall", RECALL, kv_dtype="f32", context=512, sessions=2)
        c.case = cluster.case
        connection, response = begin(c, "/v1/completions", {
            "model": "recall", "prompt": [1] * 400, "max_tokens": 20, "stream": True})
        assert b": keep-alive\n" in response.read()
        connection.close()
        yield c


def test_comments_disturb_no_client(talkative):
    openai = environment("openai", *OPENAI)
    for check in ("streams", "asynchronous"):
        run(openai, CLIENTS / "openai_checks.py", check, talkative.http, talkative.case)
    lorax = environment("lorax", *LORAX)
    run(lorax, CLIENTS / "lorax_checks.py", "stream", talkative.http, talkative.case)
    litellm = environment("litellm", *LITELLM)
    run(litellm, CLIENTS / "litellm_checks.py", "streams", talkative.http, talkative.case)
