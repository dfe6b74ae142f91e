"""Clients that read their streams slowly: their answers wait for them, and nobody else does."""

import contextlib
import json
import socket
import time

import pytest

import python_sdk
from cluster import GIVE_UP_S, NEVER, RECALL, Cluster, cut, wait_until
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
        return "ended" if ended() else none_goes_on(cluster)
    if wait_until(stay, "all choices wait") == "ended":
        return False
    check_they_wait(cluster)
    return True


def none_goes_on(cluster):
    """All wait for their readers, whether they had to give way to one another or not."""
    made = tokens_made(cluster)
    time.sleep(0.5)
    return set(states(cluster)) == {"paused"} and tokens_made(cluster) == made


def check_they_wait(cluster):
    made = tokens_made(cluster)
    # Some may have ended, whose drafts were right more often.
    assert made and all(0 < n < LARGE["max_tokens"] for n in made), made


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
        if all_wait(cluster, ended=lambda: not states(cluster)):
            break
        connection.close()
        cluster.nothing_is_left()
    wait_until(lambda: states(cluster) == [], "the deadline passed")
    *_, last = events(connection.getresponse())
    connection.close()
    assert json.loads(last)["error"]["code"] == "deadline_exceeded"
    cluster.nothing_is_left()


EIGHT = 8
# Of each some 6 MB: more than sockets hold, long before its end.
CHOICES_OF_EACH = 4
UNREAD = {**LARGE, "n": CHOICES_OF_EACH, "logprobs": 100}


@pytest.fixture
def small(tmp_path):
    """A pool that eight clients who never read fill, and then some."""
    with Cluster(tmp_path, max_http_unread="64KiB", http_send_timeout=NEVER,
                 max_unread="256KiB") as c:
        c.run("model", "add", RECALL, "--name", "recall")
        c.start_workers(2)
        c.load("recall", cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=512, kv_tokens=4096)
        yield c


def others_are_served(cluster, expected):
    """Who needs what is left, and all that the eight have."""
    wanting = {**LARGE, "n": 4, "stream": False, "logprobs": None}
    assert post(cluster, "/v1/completions", wanting)["choices"] == expected["choices"]


@pytest.mark.long
def test_eight_clients_that_never_read_starve_nobody_and_read_on_later(small):
    expected = post(small, "/v1/completions",
                    {**LARGE, "n": 4, "stream": False, "logprobs": None})
    whole = pieces(stream(small, "/v1/completions", UNREAD))
    unread = [begin_unread(small, UNREAD) for _ in range(EIGHT)]

    wait_until(lambda: none_goes_on(small), "none of the eight goes on")
    others_are_served(small, expected)
    for connection in unread:
        *chunks, done = events(connection.getresponse())
        connection.close()
        assert done == "[DONE]"
        assert pieces(json.loads(chunk) for chunk in chunks) == whole
    wait_until(lambda: states(small) == [], "all have ended")
    small.nothing_is_left()


@contextlib.contextmanager
def grpc_readers(folder, **flags):
    """(cluster, what asks for a long answer) for gRPC's clients, whose channels hold 64 KiB for who
    does not read: the SDK's own hold some megabytes."""
    python_sdk.import_from(python_sdk.environment())
    import grpc
    from strata.v1 import inference_pb2, inference_pb2_grpc

    with (Cluster(folder, max_unread="256KiB", **flags) as c,
          grpc.insecure_channel(c.address, options=[("grpc.http2.bdp_probe", 0)]) as channel):
        c.run("model", "add", RECALL, "--name", "recall")
        c.start_workers(2)
        c.load("recall", cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=512, kv_tokens=512)
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        def ask():
            request = inference_pb2.GenerateRequest(model="recall", max_tokens=100, ignore_eos=True,
                                                    logprobs=100, return_logits=True)
            request.tokens.ids.extend([1] * 8)
            request.sampling.seed = 3
            request.sampling.temperature = 1
            return stub.Generate(request)

        yield c, ask


def tokens(answer):
    return [token for message in answer for token in message.token_ids]


def test_grpc_clients_that_never_read_starve_nobody_and_read_on_later(tmp_path):
    with grpc_readers(tmp_path, grpc_send_timeout=NEVER) as (c, ask):
        wanting = {**LARGE, "n": 1, "stream": False, "logprobs": None}
        expected = post(c, "/v1/completions", wanting)
        whole = tokens(ask())
        assert len(whole) == 100
        answers = [ask() for _ in range(EIGHT)]
        for answer in answers:
            next(answer)  # That it has started.
        wait_until(lambda: none_goes_on(c), "none of them goes on")
        assert all(0 < n < 100 for n in tokens_made(c))
        # Who needs all that there is.
        assert post(c, "/v1/completions", wanting)["choices"] == expected["choices"]
        assert set(states(c)) == {"paused"}
        for answer in answers:
            assert tokens(answer) == whole
        c.nothing_is_left()


def test_a_grpc_client_that_never_reads_is_cut_off_after_a_time_and_told_why(tmp_path):
    with grpc_readers(tmp_path, grpc_send_timeout="3s") as (c, ask):
        answers = [ask() for _ in range(2)]
        for answer in answers:
            next(answer)
        wait_until(lambda: states(c) == [], "both are cut off")
        for answer in answers:
            with pytest.raises(Exception) as ended:
                tokens(answer)
            # After the same time again the call is ended at all.
            assert ("SLOW_READER" in str(ended.value.trailing_metadata()) or
                    "CANCELLED" in str(ended.value.code())), ended.value
        c.nothing_is_left()
        # Who reads is not.
        assert len(tokens(ask())) == 100
