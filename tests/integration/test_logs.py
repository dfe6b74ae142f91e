"""One request, followed by its id through the logs of all processes."""

import json
import re

import pytest

from cluster import RECALL, Cluster, cut, recall_cases, wait_until
from http_client import begin, post, request

CASE = next(c for c in recall_cases() if c["right"] and len(c["text"].split()) > 4)
JSON_DEBUG = ("--log-format", "json", "--log-level", "debug")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("logs"), log_format="json", log_level="debug") as c:
        c.run("model", "add", RECALL, "--name", "recall")
        c.start_workers(2, *JSON_DEBUG)
        c.load("recall", cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=512, sessions=4)
        yield c


def lines(process):
    """Every line of its log; but for the addresses, each is a JSON object."""
    text = process.text()
    whole = text[:text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines() if "listening on" not in line]


def about(process, request_id):
    return [line for line in lines(process) if line.get("request_id") == request_id]


def messages(process, request_id):
    return [line["message"] for line in about(process, request_id)]


def ended(process, request_id):
    wait_until(lambda: "a request ended" in messages(process, request_id), "its last line")
    return next(line for line in about(process, request_id)
                if line["message"] == "a request ended")


def test_a_request_leaves_its_way_and_its_sum_under_its_id(cluster):
    answer = post(cluster, "/v1/completions",
                  {"model": "recall", "prompt": CASE["prompt_ids"], "temperature": 0,
                   "max_tokens": 4, "ignore_eos": True, "speculate": "off"}, X_Strata_Request_Id="follow me")
    last = ended(cluster.coordinator, "follow me")
    assert messages(cluster.coordinator, "follow me") == [
        "a request starts", "a request was accepted", "a request's first token",
        "a request ended"]
    usage = answer["usage"]
    assert last["level"] == "info"
    assert last["model"] == "recall"
    assert last["reason"] == "length"
    assert (last["prompt_tokens"], last["generated_tokens"]) == (
        usage["prompt_tokens"], usage["completion_tokens"])
    assert last["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert last["steps"] >= 4 and last["preemptions"] == 0
    assert last["deployment"] > 0 and last["epoch"] > 0
    spent = last["compute_ms"] + last["wait_ms"] + last["hop_ms"]
    assert 0 < last["compute_ms"] < spent <= last["total_ms"] - last["queue_ms"] + 1
    assert 0 < last["first_token_ms"] <= last["total_ms"]
    for stage, name in enumerate(["w0", "w1"]):
        worker = cluster.workers[name]
        wait_until(lambda: messages(worker, "follow me"), f"a line of {name}")
        for line in about(worker, "follow me"):
            assert (line["node"], line["stage"], line["model"]) == (name, stage, "recall")
            assert line["deployment"] == last["deployment"] and line["epoch"] == last["epoch"]
        assert messages(worker, "follow me")[0] in ("a sequence begins",
                                                    "a sequence begins with a prefix")


def test_a_request_that_is_refused_or_cancelled_says_so_under_its_id(cluster):
    status, _, _ = request(cluster, "POST", "/v1/completions",
                           {"model": "recall", "prompt": [1], "max_tokens": 100000},
                           {"X-Strata-Request-Id": "too-long"})
    assert status == 400
    wait_until(lambda: about(cluster.coordinator, "too-long"), "its line")
    line = about(cluster.coordinator, "too-long")[-1]
    assert line["level"] == "debug" and "refused" in line["message"], line
    assert line["reason"] in ("CONTEXT_EXCEEDED", "KV_NEVER_FITS")
    connection, response = begin(cluster, "/v1/completions",
                                 {"model": "recall", "prompt": [1] * 8, "max_tokens": 400,
                                  "ignore_eos": True, "speculate": "off", "stream": True})
    request_id = response.headers["X-Strata-Request-Id"]
    response.readline()
    connection.close()
    assert ended(cluster.coordinator, request_id)["reason"] == "cancelled"


def pool(cluster):
    """What the ledger holds at most in one sequence, and the first stage, as all hold the same."""
    [total] = {entry["total"] for entry in cluster.kv()}
    return 16 * total, "w0"


def test_lines_about_the_cluster_name_node_deployment_and_epoch(cluster):
    of_coordinator = lines(cluster.coordinator)
    joined = [line["node"] for line in of_coordinator if line["message"] == "a node joined"]
    assert sorted(joined) == ["w0", "w1"]
    ready = next(line for line in of_coordinator if line["message"] == "the model is ready")
    assert ready["model"] == "recall" and ready["deployment"] > 0 and ready["epoch"] > 0
    assert (ready["kv_tokens"], ready["limiting_node"]) == pool(cluster)
    for name in ["w0", "w1"]:
        of_worker = lines(cluster.workers[name])
        assert {line["node"] for line in of_worker} == {name}
        loaded = next(line for line in of_worker if line["message"] == "layers are ready")
        assert loaded["deployment"] == ready["deployment"]


def test_what_limits_the_pool_is_said_again_after_a_restart_and_a_resize(tmp_path):
    def said(cluster, message):
        wait_until(lambda: message in cluster.coordinator.text(), message)
        [line] = [line for line in lines(cluster.coordinator) if line["message"] == message]
        return line["kv_tokens"], line["limiting_node"]

    with Cluster(tmp_path, log_format="json") as c:
        c.start_worker("w0")
        c.load("recall", RECALL, kv_dtype="f32", context=64, sessions=2)
        c.coordinator.stop()
        c.start_coordinator(c.address)
        small = said(c, "the model is ready")
        assert small == pool(c)
        c.run("model", "resize", "recall", "--kv-tokens", 512)
        large = said(c, "the model goes on with its new KV")
        assert large == pool(c) and large[0] > small[0]


@pytest.mark.parametrize("log_requests", ["on", "off"])
def test_text_lines_have_the_same_and_ends_can_be_left_out(tmp_path, log_requests):
    with Cluster(tmp_path, log_requests=log_requests) as c:
        c.start_worker("w0")
        c.load("recall", path=RECALL, kv_dtype="f32", context=64, sessions=2)
        post(c, "/v1/completions", {"model": "recall", "prompt": [1] * 8, "max_tokens": 2},
             X_Strata_Request_Id="as-text")
        # The line is there before its answer is.
        found = [line for line in c.coordinator.text().splitlines() if "as-text" in line]
        assert not [line for line in c.workers["w0"].text().splitlines() if "as-text" in line]
        if log_requests == "off":
            assert not found
        else:
            [line] = found
            assert re.search(r" I a request ended request_id=as-text model=recall deployment=\d+ "
                             r"epoch=\d+ reason=length prompt_tokens=8 generated_tokens=2 ", line)
