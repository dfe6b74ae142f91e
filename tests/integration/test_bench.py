"""`strata bench`: against a real cluster, and against servers that speak OpenAI's API."""

import contextlib
import http.server
import json
import os
import socket
import subprocess
import threading
import time

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, SLOW, Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("bench")) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512, sessions=12)
        yield c


def test_a_closed_loop_of_mixed_lengths_is_answered_whole(cluster):
    result = cluster.json("bench", "recall", "--clients", 64, "--requests", 200 // SLOW,
                          "--prompt-tokens", "1-100", "--max-tokens", "lognormal:6,0.7,20",
                          "--shared-prefix", 16, "--prefix-groups", 4, "--seed", 9,
                          "--target-ttft", "1h")
    assert result["requests"] == 200 // SLOW and result["failed"] == 0
    assert result["failures"] == [] and result["good"] == result["requests"]
    # What was asked for is what came: each answer has its full length.
    assert result["generated_tokens"] > result["requests"] * 3
    assert result["generated_tokens_per_s"] * result["wall_s"] == pytest.approx(
        result["generated_tokens"], rel=1e-3)
    again = cluster.json("bench", "recall", "--clients", 3, "--requests", 200 // SLOW,
                         "--prompt-tokens", "1-100", "--max-tokens", "lognormal:6,0.7,20",
                         "--shared-prefix", 16, "--prefix-groups", 4, "--seed", 9)
    assert again["generated_tokens"] == result["generated_tokens"]
    assert cluster.all_free()


def test_an_open_loop_sends_at_its_rate_whatever_comes_back(cluster):
    result = cluster.json("bench", "recall", "--rate", 10, "--duration", "3s", "--prompt-tokens",
                          8, "--max-tokens", 4)
    # The same as in every run of this seed: 3 s of a Poisson process of 10 a second.
    assert 15 <= result["requests"] <= 50 and result["failed"] == 0
    assert result["rate"] == 10 and result["wall_s"] > 1.5


def test_what_can_never_fit_is_counted_by_its_reason(cluster):
    out, err, status = cluster.run("bench", "recall", "--requests", 3, "--clients", 1,
                                   "--prompt-tokens", 600, "--json", check=False)
    result = json.loads(out)
    assert status == 1 and result["failed"] == result["requests"] == 3
    assert sum(f["count"] for f in result["failures"]) == 3
    assert err.splitlines()[-1].startswith("strata: 3 requests of 3 failed, the first with")


class FakeOpenAi(http.server.BaseHTTPRequestHandler):
    """Answers completions as a stream, a word a token; `server` holds how, and what came."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            number = len(server.requests)
            server.requests.append((self.path, dict(self.headers), body))
            server.in_flight += 1
            server.most = max(server.most, server.in_flight)
        try:
            server.answer(self, number, body)
        finally:
            with server.lock:
                server.in_flight -= 1

    def refuse(self, status, message):
        data = json.dumps({"error": {"message": message, "type": "some", "code": None}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def write(self, text):
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def event(self, document):
        self.write(f"data: {json.dumps(document)}\n\n")

    def token(self, text, finish=None):
        self.event({"id": "c", "object": "text_completion", "model": "m",
                    "choices": [{"index": 0, "text": text, "finish_reason": finish}]})

    def end(self, body, tokens):
        prompt = body["prompt"]
        prompt_tokens = len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        if body.get("stream_options", {}).get("include_usage"):
            self.event({"choices": [], "usage": {
                "prompt_tokens": prompt_tokens, "completion_tokens": tokens,
                "prompt_tokens_details": {"cached_tokens": 1}}})
        self.write("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def whole(self, body, pace_s=0.0):
        self.begin()
        self.write(": a comment\n\n")
        for i in range(body["max_tokens"]):
            time.sleep(pace_s)
            self.token(f" w{i}")
        self.token("", "length")
        self.end(body, body["max_tokens"])


@contextlib.contextmanager
def openai_server(answer):
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512

    server = Server(("127.0.0.1", 0), FakeOpenAi)
    server.lock, server.requests, server.in_flight, server.most = threading.Lock(), [], 0, 0
    server.answer = answer
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def bench(server, *arguments, env=None, check=True):
    """(the document, stderr) of a run against it."""
    done = subprocess.run([BIN / "strata", "bench", "m", "--openai", server.url, "--json",
                           *map(str, arguments)], capture_output=True, text=True,
                          timeout=GIVE_UP_S, env={**os.environ, **(env or {})})
    assert done.returncode in ((0,) if check else (0, 1)), done.stderr
    return json.loads(done.stdout) if done.stdout else None, done.stderr


def test_hundreds_of_streams_of_another_server_at_once():
    def answer(handler, number, body):
        """Once more than a hundred wait for theirs; the first one is sent alone."""
        while number > 0 and server.most <= 100:
            time.sleep(0.02)
        handler.whole(body, 0.1)

    with openai_server(answer) as server:
        result, _ = bench(server, "--clients", 200, "--requests", 200, "--prompt-tokens", 20,
                          "--max-tokens", 10, "--vocab-size", 50, "--shared-prefix", 5)
        assert result["requests"] == 200 and result["failed"] == 0
        assert result["generated_tokens"] == 2000
        assert result["prompt_tokens_per_s"] * result["wall_s"] == pytest.approx(5000, rel=1e-3)
        assert result["cached_tokens"] == 200
        assert result["inter_token_ms"]["p99"] > 50
        assert result["text_prompts"] is False and "numerics_class" not in result
        path, headers, body = server.requests[-1]
        assert path == "/v1/completions" and "Authorization" not in headers
        assert body["model"] == "m" and body["stream"] is True and body["ignore_eos"] is True
        assert len(body["prompt"]) == 25 and all(0 <= i < 50 for i in body["prompt"])
        begins = {tuple(b["prompt"][:5]) for _, _, b in server.requests[1:]}
        assert len(begins) == 1


def test_a_server_that_takes_neither_ids_nor_extras_is_asked_as_it_likes():
    def answer(handler, _, body):
        if not isinstance(body["prompt"], str):
            return handler.refuse(400, "prompt must be a string")
        if "ignore_eos" in body or "stream_options" in body:
            return handler.refuse(422, "extra fields not permitted")
        return handler.whole(body)

    with openai_server(answer) as server:
        result, _ = bench(server, "--clients", 2, "--requests", 6, "--prompt-tokens", 7,
                          "--max-tokens", 3)
        assert result["failed"] == 0 and result["text_prompts"] is True
        assert result["generated_tokens"] == 18  # Counted here: the server does not say.
        assert all(len(b["prompt"].split()) == 7 for _, _, b in server.requests[-6:])


def test_the_key_comes_from_the_flag_or_the_environment():
    def answer(handler, _, body):
        if handler.headers["Authorization"] != "Bearer right":
            return handler.refuse(401, "no such key")
        return handler.whole(body)

    with openai_server(answer) as server:
        load = ["--clients", 1, "--requests", 1, "--max-tokens", 2]
        assert bench(server, *load, "--api-key", "right")[0]["failed"] == 0
        assert bench(server, *load, env={"OPENAI_API_KEY": "right"})[0]["failed"] == 0
        result, err = bench(server, *load, env={"OPENAI_API_KEY": "wrong"}, check=False)
        assert result is None and "401: no such key" in err and err.count("\n") == 1
        # The cluster's own secret is not for other servers.
        assert bench(server, *load, env={"STRATA_API_KEY": "right"}, check=False)[0] is None


def test_failures_of_a_server_are_told_apart():
    def answer(handler, number, body):
        if number == 1:
            return handler.refuse(429, "too many requests")
        if number == 2:
            handler.begin()
            handler.token(" a")
            handler.event({"error": {"message": "out of memory", "type": "x"}})
            return handler.wfile.write(b"0\r\n\r\n")
        if number == 3:
            handler.begin()
            handler.token(" a")
            handler.close_connection = True
            return handler.connection.shutdown(socket.SHUT_RDWR)
        if number == 4:
            handler.begin()
            handler.token(" a")
            return handler.wfile.write(b"0\r\n\r\n")
        return handler.whole(body)

    with openai_server(answer) as server:
        result, err = bench(server, "--clients", 1, "--requests", 6, "--max-tokens", 2, check=False)
        assert result["requests"] == 6 and result["failed"] == 4 and result["refused"] == 1
        assert {f["reason"]: f["count"] for f in result["failures"]} == {
            "HTTP_429": 1, "STREAM_ERROR": 1, "CONNECTION_LOST": 1, "ANSWER_INCOMPLETE": 1}
        assert "too many requests" in err
        assert "out of memory" in str(result["failures"])


def test_several_tokens_in_a_message_are_counted_by_the_servers_usage():
    def answer(handler, _, body):
        handler.begin()
        for i in range(0, body["max_tokens"], 4):
            handler.token(" a b c d")
            time.sleep(0.08)
        handler.token("", "length")
        handler.end(body, body["max_tokens"])

    with openai_server(answer) as server:
        result, _ = bench(server, "--clients", 1, "--requests", 4, "--max-tokens", 16)
        assert result["generated_tokens"] == 64
        # Of an answer, twelve tokens come after the first message: of all, within the time of all.
        between_ms = result["inter_token_ms"]["p50"]
        assert 10 < between_ms and 4 * 12 * between_ms < 2 * 1000 * result["wall_s"]


def test_stratas_own_http_api_takes_the_same_load(cluster):
    load = ["--clients", 4, "--requests", 12, "--prompt-tokens", "1-40", "--max-tokens", "2-9",
            "--seed", 5]
    over_grpc = cluster.json("bench", "recall", *load)
    over_http = cluster.json("bench", "recall", "--openai", f"http://{cluster.http}",
                             "--vocab-size", 200, *load)
    for result in (over_grpc, over_http):
        assert result["requests"] == 12 and result["failed"] == 0
    assert over_http["text_prompts"] is False
    assert over_http["generated_tokens"] == over_grpc["generated_tokens"]
