"""Consecutive and concurrent requests: none ever meets another's KV state."""

import json
import random
import signal
import time

import pytest

from cluster import GIVE_UP_S, NEVER, RECALL, SLOW, Cluster, wait_until


def start(folder):
    # A worker is halted for a while.
    cluster = Cluster(folder, step_timeout=NEVER, lease=NEVER)
    cluster.start_workers(3)
    cluster.load("recall", RECALL, cuts=[("w0", 0, 2), ("w1", 3, 5), ("w2", 6, 7)], context=512,
                 sessions=12)
    return cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with start(tmp_path_factory.mktemp("requests")) as c:
        yield c


def prompts(count):
    """A 39-token prompt, a 38-token one that shares its first 20 tokens, then mixed ones."""
    rng = random.Random(3)
    first = [rng.randrange(1000) for _ in range(39)]
    second = first[:20] + [rng.randrange(1000) for _ in range(18)]
    out = [first, second]
    while len(out) < count:
        length = rng.choice([1, 2, 15, 16, 17, 33, 64, 100, 150])
        shared = rng.choice(out)[: rng.randrange(0, 30)]
        out.append((shared + [rng.randrange(1000) for _ in range(length)])[: max(1, length)])
    return out


def arguments(prompt, request_id, max_tokens):
    return ["generate", "recall", "--token-ids", ",".join(map(str, prompt)), "--max-tokens",
            max_tokens, "--temperature", 0, "--ignore-eos", "--logprobs", 1, "--request-id",
            request_id, "--json"]


def essence(answer):
    return answer["token_ids"], [entry["logprob"] for entry in answer["logprobs"]]


def test_each_of_many_equals_its_answer_on_a_fresh_cluster(cluster, tmp_path):
    count = 202 if SLOW == 1 else 42
    rng = random.Random(5)
    requests = [(p, f"id-{rng.randrange(12)}", rng.choice([1, 3, 8, 20])) for p in prompts(count)]
    alone = {}
    with start(tmp_path / "fresh") as fresh:
        for prompt, _, max_tokens in requests[:2]:
            answer = fresh.json(*arguments(prompt, "fresh", max_tokens))
            alone[tuple(prompt), max_tokens] = essence(answer)

    # One after another: the answers that the others are held to, the first two against the fresh
    # cluster's.
    for prompt, request_id, max_tokens in requests:
        got = essence(cluster.json(*arguments(prompt, request_id, max_tokens)))
        assert alone.setdefault((tuple(prompt), max_tokens), got) == got

    # Ten at a time, ids reused, some clients killed.
    running = []

    def finish(entry):
        process, prompt, request_id, max_tokens, killed = entry
        out, err = process.communicate(timeout=GIVE_UP_S)
        if killed:
            return 0
        if process.returncode != 0:
            # Its id was still in flight: said so, at once.
            assert request_id in err and "in flight" in err and "frames" not in err, err
            return 0
        assert essence(json.loads(out)) == alone[tuple(prompt), max_tokens]
        return 1

    answered = 0
    for prompt, request_id, max_tokens in requests:
        process = cluster.popen(*arguments(prompt, request_id, max_tokens))
        killed = rng.random() < 0.1
        running.append((process, prompt, request_id, max_tokens, killed))
        if killed:
            # Somewhere between connecting and the last token.
            time.sleep(rng.random() * 0.06)
            process.send_signal(signal.SIGKILL)
        if len(running) == 10:
            answered += finish(running.pop(0))
    for entry in running:
        answered += finish(entry)
    assert answered > count // 2

    cluster.nothing_is_left()


@pytest.mark.long
def test_every_one_equals_its_answer_on_a_freshly_loaded_model(cluster, tmp_path):
    requests = [(p, f"id-{i % 12}", 8) for i, p in enumerate(prompts(202))]
    shared = [essence(cluster.json(*arguments(*request))) for request in requests]
    with start(tmp_path / "fresh") as fresh:
        for request, got in zip(requests, shared):
            # Nothing is left of the request before: other runners, other pages.
            fresh.run("model", "unload", "recall")
            fresh.load("recall", cuts=[("w0", 0, 2), ("w1", 3, 5), ("w2", 6, 7)], context=512,
                       sessions=12)
            assert essence(fresh.json(*arguments(*request))) == got


def test_a_request_that_can_never_fit_is_refused_at_once_with_both_numbers(cluster):
    _, err, status = cluster.run("generate", "recall", "--token-ids", "1,2,3", "--max-tokens",
                                 "100000", check=False)
    assert status == 1
    assert "100000" in err and "512" in err
    assert err.count("\n") == 1


def test_an_id_in_flight_is_refused_and_free_again_after_its_end(cluster):
    worker = next(iter(cluster.workers.values()))
    worker.kill(signal.SIGSTOP)  # Requests start, and get no token.
    try:
        long = cluster.popen(*arguments([5] * 20, "twice", 400))
        wait_until(lambda: any(s["request_id"] == "twice"
                               for s in cluster.json("session", "list")["sessions"]),
                   "the first one runs")
        _, err, status = cluster.run(*arguments([5] * 20, "twice", 4), check=False)
        assert status == 1 and "twice" in err
        cluster.run("session", "cancel", "twice")
    finally:
        worker.kill(signal.SIGCONT)
    out, _ = long.communicate(timeout=GIVE_UP_S)
    assert json.loads(out)["finish_reason"] == "cancelled"
    assert cluster.json(*arguments([5] * 20, "twice", 4))["usage"]["completion_tokens"] == 4


def test_a_deadline_ends_the_request_and_frees_its_pages(cluster):
    _, err, status = cluster.run("generate", "recall", "--token-ids", "1,2,3", "--max-tokens", 450,
                                 "--ignore-eos", "--speculate", "off", "--deadline", "50ms", check=False)
    assert status == 1 and "deadline" in err.lower()
    wait_until(cluster.all_free, "every page is free")


def test_a_lost_worker_gives_a_typed_error_that_names_it_and_the_model_returns_with_it(tmp_path):
    with Cluster(tmp_path, step_timeout="2s") as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        before = essence(c.json(*arguments([7] * 30, "a", 8)))
        long = c.popen("generate", "recall", "--token-ids", "1,2", "--max-tokens", 450,
                       "--ignore-eos", "--speculate", "off")
        wait_until(lambda: c.json("session", "list")["sessions"], "it runs")
        c.workers["w1"].kill()
        _, err = long.communicate(timeout=GIVE_UP_S)
        assert long.returncode == 1 and "w1" in err
        _, err, status = c.run("generate", "recall", "--token-ids", "1", check=False)
        assert status == 1 and "w1" in err
        problems = c.json("status")["problems"]
        assert any("w1" in p["what"] and p["do"] for p in problems)
        c.start_worker("w1")
        wait_until(lambda: c.json("model", "list")["models"][0]["state"] == "ready",
                   "the model is back")
        assert essence(c.json(*arguments([7] * 30, "b", 8))) == before


def test_a_restarted_coordinator_loads_again_and_answers_the_same(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        before = essence(c.json(*arguments([9] * 40, "a", 8)))
        address = c.address
        c.coordinator.kill()
        c.start_coordinator(listen=address)
        wait_until(lambda: c.json("model", "list")["models"][0]["state"] == "ready",
                   "the model is back")
        assert essence(c.json(*arguments([9] * 40, "a", 8))) == before
