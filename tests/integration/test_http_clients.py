"""Published clients of other servers, unmodified, against a cluster."""

import json
import pathlib

import pytest

from client_environment import environment, run
from cluster import RECALL, Cluster, recall_cases
from http_client import begin

CLIENTS = pathlib.Path(__file__).parent / "clients"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("clients"), max_sessions=2,
                 max_queued_requests=1) as c:
        c.start_workers(1)
        c.load("recall", RECALL, kv_dtype="f32", context=512, sessions=2)
        c.case = tmp_path_factory.mktemp("case") / "case.json"
        c.case.write_text(json.dumps(next(
            case for case in recall_cases() if case["right"] and len(case["text"].split()) > 4)))
        yield c


@pytest.mark.parametrize("check", ["completions", "chat", "streams", "asynchronous", "errors",
                                   "busy"])
def test_openai(cluster, check):
    python = environment("openai", "openai==3.54.0")
    run(python, CLIENTS / "openai_checks.py", check, cluster.http, cluster.case)


@pytest.mark.parametrize("check", ["generate", "stream", "errors"])
def test_lorax(cluster, check):
    python = environment("lorax", "lorax-client==0.6.3")
    run(python, CLIENTS / "lorax_checks.py", check, cluster.http, cluster.case)


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
    openai = environment("openai", "openai==3.54.0")
    for check in ("streams", "asynchronous"):
        run(openai, CLIENTS / "openai_checks.py", check, talkative.http, talkative.case)
    lorax = environment("lorax", "lorax-client==0.6.3")
    run(lorax, CLIENTS / "lorax_checks.py", "stream", talkative.http, talkative.case)
