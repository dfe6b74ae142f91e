"""SIGTERM: what is in flight ends in good order, and nobody waits longer than was said."""

import json
import signal
import threading
import urllib.error
import urllib.request

import pytest

from cluster import GIVE_UP_S, NEVER, RECALL, Cluster, Failed, wait_until

LONG = ["generate", "recall", "--token-ids", "1,2,3", "--max-tokens", 300, "--temperature", 0,
        "--ignore-eos", "--json"]


def http_status(cluster, route):
    try:
        with urllib.request.urlopen(f"http://{cluster.http}/{route}",
                                    timeout=GIVE_UP_S) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def start(folder, **flags):
    # Workers are halted for a while.
    cluster = Cluster(folder, step_timeout=NEVER, lease=NEVER, **flags)
    for name in ("w0", "w1"):
        cluster.start_worker(name, drain=NEVER)
    cluster.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
    return cluster


def in_flight(cluster, frozen, count=2):
    """Requests that stay in flight until `frozen` is let go on, and their right answer."""
    right = cluster.json(*LONG)["token_ids"]
    cluster.workers[frozen].kill(signal.SIGSTOP)
    requests = [cluster.popen(*LONG) for _ in range(count)]
    cluster.wait_sessions(count)
    return requests, right


def check_answered(requests, right):
    for request in requests:
        out, err = request.communicate(timeout=GIVE_UP_S)
        assert request.returncode == 0, err
        assert json.loads(out)["token_ids"] == right


def check_refused(cluster, *words, during=()):
    """And at once, while others still wait."""
    _, err, status = cluster.run("generate", "recall", "--token-ids", "1", check=False)
    assert status == 1 and err.count("\n") == 1
    for word in words:
        assert word in err
    assert all(request.poll() is None for request in during)


def test_a_coordinator_drains(tmp_path):
    with start(tmp_path, drain_timeout=NEVER) as c:
        requests, right = in_flight(c, "w1")
        c.coordinator.terminate()
        wait_until(lambda: http_status(c, "health") == 503, "/health says so")
        assert http_status(c, "livez") == 200
        check_refused(c, "stopping", "send the request again", during=requests)
        c.workers["w1"].kill(signal.SIGCONT)
        check_answered(requests, right)
        assert c.coordinator.wait() == 0


def test_a_coordinator_whose_drain_timeout_passes_ends_requests_with_an_error(tmp_path):
    with start(tmp_path, drain_timeout="300ms") as c:
        requests, _ = in_flight(c, "w1")
        c.coordinator.terminate()
        assert c.coordinator.wait() == 0
        for request in requests:
            _, err = request.communicate(timeout=GIVE_UP_S)
            assert request.returncode == 1 and err.count("\n") == 1
            assert "stopping" in err


def test_a_second_signal_ends_a_coordinator_at_once(tmp_path):
    with start(tmp_path, drain_timeout=NEVER) as c:
        requests, _ = in_flight(c, "w1", count=1)
        c.coordinator.terminate()
        wait_until(lambda: http_status(c, "health") == 503, "it drains")
        c.coordinator.killed = True
        c.coordinator.terminate()
        assert c.coordinator.wait() == 128 + signal.SIGTERM
        requests[0].kill()
        requests[0].communicate()


def test_a_worker_drains_and_the_model_returns_with_it(tmp_path):
    with start(tmp_path) as c:
        requests, right = in_flight(c, "w0")
        c.workers["w1"].terminate()
        c.wait_node("w1", ("draining",))
        wait_until(lambda: http_status(c, "health") == 503, "/health says so")
        check_refused(c, "w1", "being stopped", "model load recall", during=requests)
        assert any("w1" in p["what"] and p["do"] for p in c.json("status")["problems"])
        c.workers["w0"].kill(signal.SIGCONT)
        check_answered(requests, right)
        assert c.workers["w1"].wait() == 0
        check_refused(c, "w1")
        c.start_worker("w1")
        c.wait_ready("recall")
        assert c.json(*LONG)["token_ids"] == right


def test_a_worker_whose_drain_timeout_passes_ends_requests_with_an_error_that_names_it(tmp_path):
    with start(tmp_path) as c:
        c.start_worker("w2", drain="300ms")
        c.run("model", "unload", "recall")
        c.load("recall", cuts=[("w0", 0, 3), ("w2", 4, 7)], context=512)
        requests, _ = in_flight(c, "w0")
        c.workers["w2"].stop()
        for request in requests:
            _, err = request.communicate(timeout=GIVE_UP_S)
            assert request.returncode == 1 and "w2" in err and err.count("\n") == 1


def test_a_worker_that_stops_under_traffic_spoils_no_answer(tmp_path):
    with start(tmp_path) as c:
        right = c.json(*LONG)["token_ids"]
        answered, refused, wrong = [], [], []
        stopping = threading.Event()

        def client():
            while not refused and not wrong:
                try:
                    ids = c.json(*LONG)["token_ids"]
                    (answered if ids == right else wrong).append(ids)
                except Failed as error:
                    # What was accepted is answered; only what came later is refused.
                    named = "w1" in error.err and "send the request again" in error.err
                    (refused if named and stopping.is_set() else wrong).append(error)

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) >= 4, "requests are answered")
        stopping.set()
        c.workers["w1"].stop()
        for thread in threads:
            thread.join()
        assert refused and not wrong, wrong


@pytest.mark.parametrize("first", ["coordinator", "worker"])
def test_processes_with_nothing_to_do_stop_at_once(tmp_path, first):
    with start(tmp_path, drain_timeout=NEVER) as c:
        order = [c.coordinator, c.workers["w0"]][:: 1 if first == "coordinator" else -1]
        for process in order:
            process.stop()
