"""KV memory changed under running requests: they wait, and give the same tokens."""

import json

import pytest

from cluster import GIVE_UP_S, RECALL, Cluster, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("resize")) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512, kv_tokens=1024)
        yield c


def arguments(request_id, max_tokens, speculate="off"):
    """Without drafts an answer lasts until the pool has changed."""
    return ["generate", "recall", "--token-ids", "5,6,7,8,9,10,11,12", "--max-tokens", max_tokens,
            "--temperature", 0, "--ignore-eos", "--logprobs", 1, "--request-id", request_id,
            "--speculate", speculate, "--json"]


def running(cluster, process, request_id, tokens):
    """Waits until the request has so many tokens, or until the command that asked has ended."""
    def there():
        return process.poll() is not None or any(
            s["request_id"] == request_id and s["generated_tokens"] >= tokens
            for s in cluster.json("session", "list")["sessions"])

    wait_until(there, f"{request_id} runs")


def totals(cluster):
    return {entry["total"] for entry in cluster.kv()}


def essence(answer):
    return answer["token_ids"], answer["logprobs"]


# A stage with the weights that it had: none came, and none were read.
READY = 'fetched="0 B" packed_before="0 B"'


@pytest.mark.parametrize("speculate", ["off", "auto"])
def test_requests_in_flight_outlive_a_resize_with_the_same_tokens(cluster, speculate):
    alone = cluster.json(*arguments("alone", 480))
    fetched = [cluster.workers[w].text().count(READY) for w in ("w0", "w1")]
    process = cluster.popen(*arguments("moved", 480, speculate))
    running(cluster, process, "moved", 20)
    plan = cluster.json("model", "resize", "recall", "--kv-tokens", 2048 if speculate == "off" else 2064)
    resized = {stage["kv_tokens"] for stage in plan["stages"]}
    assert min(resized) >= 2048
    out, err = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == 0, err
    assert essence(json.loads(out)) == essence(alone)
    assert totals(cluster) == {tokens // 16 for tokens in resized}
    for worker, before in zip(("w0", "w1"), fetched):
        after = cluster.workers[worker].text().count(READY)
        assert after == before + 1, "the weights stayed where they were"


def test_a_smaller_pool_is_refused_while_a_request_was_promised_more(cluster):
    before = totals(cluster)
    process = cluster.popen(*arguments("promised", 480))
    running(cluster, process, "promised", 1)
    _, err, status = cluster.run("model", "resize", "recall", "--kv-tokens", 64, check=False)
    assert status == 1 and err.count("\n") == 1
    assert "promised 488 tokens" in err, err
    assert process.communicate(timeout=GIVE_UP_S)[0]
    assert process.returncode == 0 and totals(cluster) == before


def test_a_pool_too_small_for_those_that_run_costs_them_time_only(cluster):
    alone = cluster.json(*arguments("alone-again", 480))
    before = totals(cluster)
    for attempt in range(50):  # They may be answered before the pool shrinks.
        processes = [cluster.popen(*arguments(f"{name}-{attempt}", 480))
                     for name in ("first", "second")]
        running(cluster, processes[1], f"second-{attempt}", 20)
        plan = cluster.json("model", "resize", "recall", "--kv-tokens", 512)
        assert totals(cluster) == {stage["kv_tokens"] // 16 for stage in plan["stages"]}
        assert max(totals(cluster)) < min(before)
        for process in processes:
            out, err = process.communicate(timeout=GIVE_UP_S)
            assert process.returncode == 0, err
            assert essence(json.loads(out)) == essence(alone)
        if cluster.json("model", "show", "recall")["preemptions"] > 0:
            return
        cluster.json("model", "resize", "recall", "--kv-tokens", 2048)
    raise AssertionError("one gave way to the other")


def test_what_cannot_be_placed_is_refused_and_changes_nothing(cluster):
    before = totals(cluster)
    _, err, status = cluster.run("model", "resize", "recall", "--kv-tokens", 100_000_000,
                                 check=False)
    assert status == 1 and err.count("\n") == 1, err
    assert totals(cluster) == before
    assert cluster.json(*arguments("after", 4))["usage"]["completion_tokens"] == 4
