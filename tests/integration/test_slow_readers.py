"""Clients that read their streams slowly: their answers wait for them, and nobody else does."""

import json
import socket
import time

import pytest

from cluster import RECALL, SLOW, Cluster, cut, wait_until
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
    connection.sock.settimeout(60)
    connection.sock.connect((host, int(port)))
    connection.request("POST", "/v1/completions", json.dumps(body), headers or {})
    return connection


def states(cluster):
    return [s["state"] for s in cluster.json("session", "list")["sessions"]]


def tokens_made(cluster):
    return [s["generated_tokens"] for s in cluster.json("session", "list")["sessions"]]


def all_wait(cluster):
    """Sockets are full, and nothing is computed: while they fill, choices wait now and then."""
    def stay():
        made = tokens_made(cluster)
        time.sleep(0.5)
        return states(cluster) == ["paused"] * CHOICES and tokens_made(cluster) == made
    wait_until(stay, 60, "all choices wait")
    made = tokens_made(cluster)
    assert all(0 < n < LARGE["max_tokens"] for n in made), made
    return made


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
    made = all_wait(cluster)
    # Others are served meanwhile, and it stays where it is.
    answer = post(cluster, "/v1/completions", {**LARGE, "n": 1, "stream": False})
    assert answer["usage"]["completion_tokens"] == LARGE["max_tokens"]
    assert tokens_made(cluster) == made
    *chunks, done = events(connection.getresponse())
    connection.close()
    assert done == "[DONE]"
    assert pieces(json.loads(chunk) for chunk in chunks) == expected
    wait_until(lambda: states(cluster) == [], 10, "it has ended")
    cluster.nothing_is_left()


def test_who_goes_while_an_answer_waits_ends_it(cluster):
    connection = begin_unread(cluster, LARGE)
    all_wait(cluster)
    connection.close()
    wait_until(lambda: states(cluster) == [], 10, "it was cancelled")
    cluster.nothing_is_left()


def test_an_answer_that_waits_ends_at_its_deadline(cluster):
    connection = begin_unread(cluster, LARGE, {"X-Strata-Deadline": f"{8 * SLOW}s"})
    all_wait(cluster)
    wait_until(lambda: states(cluster) == [], 20, "the deadline passed")
    *_, last = events(connection.getresponse())
    connection.close()
    assert json.loads(last)["error"]["code"] == "deadline_exceeded"
    cluster.nothing_is_left()
