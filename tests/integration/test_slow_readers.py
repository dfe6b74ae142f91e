"""Clients that read their streams slowly: their answers wait for them, and nobody else does."""

import json
import socket
import time

import pytest

from cluster import GIVE_UP_S, RECALL, Cluster, cut, wait_until
from http_client import connect, events, post, stream

CHOICES = 16
# More than sockets hold, which is some two megabytes.
LARGE = {"model": "recall", "prompt": [1] * 8, "max_tokens": 480, "ignore_eos": True, "logprobs": 5,
         "n": CHOICES, "seed": 3, "temperature": 1, "stream": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("slow"), max_http_unread="64KiB") as c:
        c.run("model", "add", RECALL, "--name", "recall")
        c.start_workers(2)
        c.load("recall", cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=512, sessions=16)
        yield c


def begin_unread(cluster, body, headers=None):
    """A connection whose socket takes little, and on which a request was sent."""
    connection = connect(cluster)
    host, port = cluster.http.rsplit(":", 1)
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sock.settimeout(GIVE_UP_S)
    connection.sock.connect((host, int(port)))
    connection.request("POST", "/v1/completions", json.dumps(body), headers or {})
    return connection


def states(cluster):
    return [s["state"] for s in cluster.json("session", "list")["sessions"]]


def tokens_made(cluster):
    return [s["generated_tokens"] for s in cluster.json("session", "list")["sessions"]]


def all_wait(cluster, ended=lambda: False):
    """Until sockets are full, and nothing is computed: while they fill, choices wait now and then.
    Or until `ended()`, then false."""
    def stay():
        if ended():
            return "ended"
        made = tokens_made(cluster)
        time.sleep(0.5)
        return states(cluster) == ["paused"] * CHOICES and tokens_made(cluster) == made
    if wait_until(stay, "all choices wait") == "ended":
        return False
    check_they_wait(cluster)
    return True


def check_they_wait(cluster):
    made = tokens_made(cluster)
    assert len(made) == CHOICES and all(0 < n < LARGE["max_tokens"] for n in made), made


def pieces(chunks):
    """What each choice said, in order: choices may take turns otherwise."""
    said = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            said.setdefault(choice["index"], []).append(
                (choice["text"], choice["logprobs"], choice["finish_reason"]))
    return said


def test_an_answer_waits_for_its_reader_and_comes_whole(cluster):
    expected = pieces(stream(cluster, "/v1/completions", LARGE))
    connection = begin_unread(cluster, LARGE)
    all_wait(cluster)
    # Others are served meanwhile, and it does not go on to its end.
    answer = post(cluster, "/v1/completions", {**LARGE, "n": 1, "stream": False})
    assert answer["usage"]["completion_tokens"] == LARGE["max_tokens"]
    check_they_wait(cluster)
    *chunks, done = events(connection.getresponse())
    connection.close()
    assert done == "[DONE]"
    assert pieces(json.loads(chunk) for chunk in chunks) == expected
    wait_until(lambda: states(cluster) == [], "it has ended")
    cluster.nothing_is_left()


def test_who_goes_while_an_answer_waits_ends_it(cluster):
    connection = begin_unread(cluster, LARGE)
    all_wait(cluster)
    connection.close()
    wait_until(lambda: states(cluster) == [], "it was cancelled")
    cluster.nothing_is_left()


def test_an_answer_that_waits_ends_at_its_deadline(cluster):
    # One that is over before all wait has more time.
    for deadline_s in (8, 60, 600):
        connection = begin_unread(cluster, LARGE, {"X-Strata-Deadline": f"{deadline_s}s"})
        cluster.wait_sessions(CHOICES)
        if all_wait(cluster, ended=lambda: len(states(cluster)) < CHOICES):
            break
        connection.close()
        cluster.nothing_is_left()
    wait_until(lambda: states(cluster) == [], "the deadline passed")
    *_, last = events(connection.getresponse())
    connection.close()
    assert json.loads(last)["error"]["code"] == "deadline_exceeded"
    cluster.nothing_is_left()
