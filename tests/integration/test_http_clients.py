"""Published clients of other servers, unmodified, against a cluster."""

import json
import pathlib

import pytest

from client_environment import environment, run
from cluster import RECALL, Cluster, recall_cases

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
