"""A request id is in flight once, whatever model it runs on."""

import json

import pytest

from cluster import GIVE_UP_S, RECALL, Cluster, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("ids")) as c:
        c.start_workers(2)
        c.load("one", RECALL, cuts=[("w0", 0, 7)], context=512)
        c.load("two", RECALL, cuts=[("w1", 0, 7)], context=512)
        yield c


def arguments(model, max_tokens):
    return ["generate", model, "--token-ids", "5,6,7", "--max-tokens", max_tokens, "--ignore-eos",
            "--speculate", "off", "--request-id", "same", "--json"]


def sessions(cluster):
    return [(s["request_id"], s["model"]) for s in cluster.json("session", "list")["sessions"]]


def test_another_model_refuses_an_id_in_flight_and_cancel_ends_one_request(cluster):
    running = cluster.popen(*arguments("one", 500))
    wait_until(lambda: sessions(cluster) == [("same", "one")], "the first one runs")
    _, err, status = cluster.run(*arguments("two", 4), check=False)
    assert status == 1 and "same" in err and "in flight" in err and "'one'" in err
    cluster.run("session", "cancel", "same")
    out, _ = running.communicate(timeout=GIVE_UP_S)
    assert json.loads(out)["finish_reason"] == "cancelled"
    assert cluster.json(*arguments("two", 4))["usage"]["completion_tokens"] == 4
