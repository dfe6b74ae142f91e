"""The HTTP API on real processes, with a plain client."""

import json
import threading
import time

import pytest

from cluster import NEVER, RECALL, Cluster, cut, recall_cases, wait_until
from http_client import begin, connect, events, post, request, stream
from metrics_text import scrape, total

CASE = next(c for c in recall_cases() if c["right"] and len(c["text"].split()) > 4)
LONG = {"model": "recall", "prompt": [1] * 8, "max_tokens": 500, "ignore_eos": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # A worker is halted for a while.
    with Cluster(tmp_path_factory.mktemp("http"), max_sessions=4, max_queued_requests=2,
                 step_timeout=NEVER, lease=NEVER) as c:
        assert request(c, "GET", "/health")[0] == 503
        assert request(c, "GET", "/livez")[0] == 200
        c.run("model", "add", RECALL, "--name", "recall")
        status, _, answer = request(c, "POST", "/v1/completions", LONG)
        assert (status, answer["error"]["code"]) == (503, "model_not_loaded")
        c.start_workers(2)
        c.load("recall", cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=512, sessions=4)
        yield c


def completion(**fields):
    return {"model": "recall", "prompt": CASE["prompt_ids"], "max_tokens": 96, "temperature": 0,
            **fields}


def chat(**fields):
    return {"model": "recall", "messages": CASE["messages"], "temperature": 0, **fields}


def refused(cluster, path, body, **headers):
    status, _, answer = request(cluster, "POST", path, body,
                                {k.replace("_", "-"): v for k, v in headers.items()})
    return status, answer["error"]["code"], answer["error"]["param"]


def test_it_is_healthy_and_lists_the_model(cluster):
    assert request(cluster, "GET", "/health")[0] == 200
    status, _, models = request(cluster, "GET", "/v1/models")
    assert status == 200
    (model,) = models["data"]
    assert (model["id"], model["max_model_len"]) == ("recall", 512)
    assert request(cluster, "GET", "/v1/models/recall")[2] == model
    assert request(cluster, "GET", "/v1/models/other")[0] == 404


def test_a_completion_of_ids_or_text_is_the_golden_one(cluster):
    for prompt in [CASE["prompt_ids"], [CASE["prompt_ids"]], [CASE["prompt"]]]:
        answer = post(cluster, "/v1/completions", completion(prompt=prompt))
        (choice,) = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == (CASE["text"], "stop")
        assert answer["usage"]["completion_tokens"] == len(CASE["greedy_ids"])
        assert answer["object"] == "text_completion"
    # A text that has its special tokens already needs none.
    answer = post(cluster, "/v1/completions",
                  completion(prompt=CASE["prompt"], add_special_tokens=False, echo=True))
    assert answer["choices"][0]["text"] == CASE["prompt"] + CASE["text"]
    assert answer["usage"]["prompt_tokens"] == len(CASE["prompt_ids"])


def test_a_chat_answer_is_the_same_whole_and_streamed(cluster):
    post(cluster, "/v1/chat/completions", chat(max_tokens=1))  # From here on as much of the prompt is cached each time.
    # How much is drafted follows from how long steps take, and would be another part of the usage.
    answer = post(cluster, "/v1/chat/completions", chat(speculate="off"))
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": CASE["text"]}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] == len(CASE["prompt_ids"])
    chunks = stream(cluster, "/v1/chat/completions",
                    chat(stream=True, stream_options={"include_usage": True}, speculate="off"))
    assert len({(c["id"], c["created"], c["model"]) for c in chunks}) == 1
    *content, last = chunks
    assert content[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in content) == CASE["text"]
    assert [c["choices"][0]["finish_reason"] for c in content][-1] == "stop"
    assert last["choices"] == [] and last["usage"] == answer["usage"]


def test_several_prompts_and_choices_are_numbered_and_each_is_its_own_answer(cluster):
    others = [c for c in recall_cases()[:3]]
    answer = post(cluster, "/v1/completions",
                  completion(prompt=[c["prompt_ids"] for c in others], n=2))
    assert [c["index"] for c in answer["choices"]] == list(range(6))
    assert [c["text"] for c in answer["choices"]] == [c["text"] for c in others for _ in range(2)]
    assert answer["usage"]["prompt_tokens"] == sum(len(c["prompt_ids"]) for c in others)
    sampled = completion(temperature=1.5, n=3, seed=11, max_tokens=20, ignore_eos=True)
    first = [c["text"] for c in post(cluster, "/v1/completions", sampled)["choices"]]
    assert len(set(first)) == 3
    chunks = stream(cluster, "/v1/completions", {**sampled, "stream": True})
    texts = ["", "", ""]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == first
    best = post(cluster, "/v1/completions", {**sampled, "n": 1, "best_of": 3})
    assert best["choices"][0]["text"] in first


def test_logprobs_are_those_of_the_command_line(cluster):
    want = cluster.generate("recall", ids=CASE["prompt_ids"], temperature=0, logprobs=2,
                            prompt_logprobs=0)
    answer = post(cluster, "/v1/completions", completion(logprobs=2, echo=True))
    (choice,) = answer["choices"]
    got = choice["logprobs"]
    prompt = [None if p is None else p["logprob"] for p in want["prompt_logprobs"]]
    assert got["token_logprobs"] == prompt + [p["logprob"] for p in want["logprobs"]]
    assert len(got["tokens"]) == len(got["text_offset"]) == len(got["top_logprobs"])
    assert "".join(got["tokens"]).startswith(choice["text"])
    assert choice["text"] == CASE["prompt"] + CASE["text"]
    assert got["tokens"][-1] == "<|eot_id|>"
    only_prompt = post(cluster, "/v1/completions", completion(logprobs=1, echo=True, max_tokens=0))
    assert only_prompt["choices"][0]["text"] == CASE["prompt"]
    assert only_prompt["choices"][0]["logprobs"]["token_logprobs"] == prompt
    entry = post(cluster, "/v1/chat/completions",
                 chat(logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"][0]
    assert entry["logprob"] == want["logprobs"][0]["logprob"]
    assert bytes(entry["bytes"]).decode() == entry["token"]
    assert [t["logprob"] for t in entry["top_logprobs"]] == [
        t[1] for t in want["logprobs"][0]["top"]]


def test_stop_strings_defaults_and_limits(cluster):
    word = CASE["text"].split()[3]
    answer = post(cluster, "/v1/completions", completion(stop=["never", word]))
    assert answer["choices"][0]["text"] == CASE["text"][: CASE["text"].index(word)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    body = completion(ignore_eos=True)
    del body["max_tokens"]
    answer = post(cluster, "/v1/completions", body)
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["choices"][0]["finish_reason"] == "length"
    assert refused(cluster, "/v1/completions", completion(max_tokens=5000)) == (
        400, "context_length_exceeded", None)


def test_min_tokens_bars_end_tokens_and_stop_strings(cluster):
    short = len(CASE["greedy_ids"])
    want = cluster.generate("recall", ids=CASE["prompt_ids"], temperature=0, max_tokens=short + 20,
                            min_tokens=short + 10)
    assert len(want["token_ids"]) > short + 10
    assert want["token_ids"][: short - 1] == CASE["greedy_ids"][:-1]
    assert CASE["greedy_ids"][-1] not in want["token_ids"][: short + 10]
    body = completion(max_tokens=short + 20, min_tokens=short + 10)
    answer = post(cluster, "/v1/completions", body)
    assert answer["choices"][0]["text"] == want["text"]
    assert answer["usage"]["completion_tokens"] == len(want["token_ids"])
    messages = chat(max_tokens=short + 20, min_tokens=short + 10)
    assert post(cluster, "/v1/chat/completions", messages)["choices"][0]["message"]["content"] == (
        want["text"])
    # Exactly as many: then the end token, or the next stop string, may come.
    answer = post(cluster, "/v1/completions", completion(min_tokens=short - 1))
    assert answer["choices"][0]["text"] == CASE["text"]
    word = CASE["text"].split()[3]
    answer = post(cluster, "/v1/completions", completion(stop=word, min_tokens=short - 1))
    assert answer["choices"][0]["text"] == CASE["text"]
    # What is not said of max_tokens gives room for them.
    body = completion(min_tokens=short + 10)
    del body["max_tokens"]
    answer = post(cluster, "/v1/completions", body)
    assert answer["usage"]["completion_tokens"] >= short + 10


def test_what_is_wrong_is_refused_by_name(cluster):
    cases = [
        (completion(model="other"), 404, "model_not_found", "model"),
        (completion(tools=[{"type": "function"}]), 400, "not_supported", "tools"),
        (completion(response_format={"type": "structural_tag"}), 400, "not_supported",
         "response_format.type"),
        (completion(temperature=-1), 400, "sampling_parameter", "temperature"),
        (completion(min_tokens=97), 400, "min_tokens", "min_tokens"),
        (completion(max_tokens=None, min_tokens=5000), 400, "context_length_exceeded", None),
        (completion(prompt=[10**6]), 400, "bad_token_id", "prompt"),
        (completion(stream=False, stream_options={}), 400, "bad_field", "stream_options"),
        (b"{", 400, "bad_json", None),
    ]
    for body, *want in cases:
        assert refused(cluster, "/v1/completions", body) == tuple(want)
    assert refused(cluster, "/v1/completions", completion(),
                   X_Strata_Deadline="soon") == (400, "bad_field", "X-Strata-Deadline")
    assert request(cluster, "GET", "/v1/nothing")[0] == 404
    # What clients ask for that speak another API unless they are told not to.
    for path in ("/v1/responses", "/v1/messages/count_tokens"):
        status, _, answer = request(cluster, "POST", path, b"{}")
        assert status == 404 and "/v1/chat/completions" in answer["error"]["message"]
    status, headers, answer = request(cluster, "GET", "/v1/completions")
    assert (status, headers["Allow"]) == (405, "POST")
    assert (answer["error"]["type"], answer["error"]["code"]) == (
        "invalid_request_error", "method_not_allowed")
    for name in ["Priority", "Guaranteed", "Replace"]:
        assert refused(cluster, "/v1/completions", completion(), **{f"X_Strata_{name}": "much"}) == (
            400, "bad_field", f"X-Strata-{name}")
    assert "Access-Control-Allow-Origin" not in headers
    # What nobody knows is left alone.
    post(cluster, "/v1/completions", completion(no_such_thing={"a": 1}, user="u"))


def test_pages_of_other_origins_are_refused(cluster):
    origin = {"Origin": "http://elsewhere.example", "Content-Type": "application/json"}
    asks = {**origin, "Access-Control-Request-Method": "POST"}
    rebound = {"Host": "elsewhere.example", "Content-Type": "application/json"}
    for method, headers, code in [("OPTIONS", asks, "origin_not_allowed"),
                                  ("POST", origin, "origin_not_allowed"),
                                  ("POST", rebound, "host_not_allowed")]:
        status, got, answer = request(cluster, method, "/v1/completions",
                                      completion() if method == "POST" else None, headers)
        assert (status, answer["error"]["code"]) == (403, code)
        assert not [name for name in got if name.lower().startswith("access-control-")]
    assert request(cluster, "GET", "/metrics", None, origin)[0] == 403


def test_pages_of_this_machine_are_served_and_told_so(cluster):
    page = {"Origin": "http://localhost:3000", "Content-Type": "application/json"}
    status, headers, _ = request(cluster, "OPTIONS", "/v1/completions", headers={
        **page, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, x-stainless-lang"})
    assert status == 200
    assert headers["Access-Control-Allow-Methods"] == "POST"
    assert headers["Access-Control-Allow-Headers"] == "authorization, x-stainless-lang"
    for stream_it in [False, True]:
        connection = connect(cluster)
        connection.request("POST", "/v1/completions", json.dumps(completion(stream=stream_it)), page)
        response = connection.getresponse()
        assert response.status == 200 and response.read()
        assert response.headers["Access-Control-Allow-Origin"] == page["Origin"]
        connection.close()


def test_a_model_is_found_by_its_name_in_percents_and_by_head(cluster):
    for path in ["/v1/models/recall", "/v1/models/%72ecal%6C",
                 f"http://{cluster.http}/v1/models/recall"]:
        status, headers, model = request(cluster, "GET", path)
        assert (status, model["id"]) == (200, "recall")
        status, head, nothing = request(cluster, "HEAD", path)
        assert (status, nothing) == (200, None)
        assert head["Content-Length"] == headers["Content-Length"]
    assert request(cluster, "GET", "/tokenizer_info?model=r%65call")[0] == 200


def test_what_is_refused_has_its_request_id_too(cluster):
    for path, body in [("/v1/completions", completion(model="other")), ("/v1/completions", b"{"),
                       ("/generate", {"inputs": "a", "parameters": {"best_of": 2}})]:
        status, headers, _ = request(cluster, "POST", path, body, {"X-Strata-Request-Id": "mine"})
        assert (status // 100, headers["X-Strata-Request-Id"]) == (4, "mine")
        assert request(cluster, "POST", path, body)[1]["X-Strata-Request-Id"].startswith("req-")
    # The choices of a request are named after it.
    longest = "x" * 128
    assert request(cluster, "POST", "/v1/completions", completion(max_tokens=1),
                   {"X-Strata-Request-Id": longest})[0] == 200
    assert refused(cluster, "/v1/completions", completion(n=2), X_Strata_Request_Id=longest) == (
        400, "bad_field", "X-Strata-Request-Id")


def test_an_answer_too_large_to_be_held_is_refused_and_streams(tmp_path):
    with Cluster(tmp_path, max_http_answer="100KiB") as cluster:
        cluster.start_worker("w0")
        cluster.load("recall", RECALL, context=512, sessions=4)
        body = {**LONG, "max_tokens": 100, "logprobs": 2}
        assert refused(cluster, "/v1/completions", body) == (400, "answer_too_large", None)
        cluster.wait_sessions(0)
        told = [e["choices"][0]["logprobs"]
                for e in stream(cluster, "/v1/completions", {**body, "stream": True})]
        assert sum(len(logprobs["tokens"]) for logprobs in told if logprobs) == 100
        assert len(post(cluster, "/v1/completions", {**body, "max_tokens": 60})["choices"]) == 1


def test_a_forced_unload_is_not_blamed_on_the_client(tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.start_worker("w0")
        cluster.load("recall", RECALL, context=512, sessions=4)
        with cluster.stalled("w0"):
            whole = connect(cluster)
            whole.request("POST", "/v1/completions", json.dumps(LONG))
            connection, response = begin(cluster, "/v1/completions", {**LONG, "stream": True})
            cluster.wait_sessions(2)
            cluster.run("model", "unload", "recall", "--force")
        assert json.loads(list(events(response))[-1])["error"]["code"] == "unloaded"
        connection.close()
        answer = whole.getresponse()
        error = json.loads(answer.read())["error"]
        assert (answer.status, error["type"], error["code"]) == (503, "server_error", "unloaded")
        assert int(answer.headers["Retry-After"]) >= 1
        whole.close()
        samples = scrape(cluster.http)
        assert total(samples, "strata_requests_total", finished_reason="failed") == 2
        assert total(samples, "strata_requests_total", finished_reason="cancelled") == 0


def test_what_headers_say_reaches_the_scheduler(cluster):
    with cluster.stalled("w1"):
        first, _ = begin(cluster, "/v1/completions", {**LONG, "stream": True},
                         X_Strata_Request_Id="again", X_Strata_Priority="3")
        cluster.wait_sessions(1)
        second, response = begin(cluster, "/v1/completions", {**LONG, "stream": True},
                                 X_Strata_Request_Id="again", X_Strata_Replace="true")
        cluster.wait_sessions(1)
    assert len(list(events(response))) > 400
    for connection in (first, second):
        connection.close()
    # More than the pool holds can never be guaranteed; unguaranteed it stops at what there is.
    assert refused(cluster, "/v1/completions", {**LONG, "max_tokens": 5000},
                   X_Strata_Guaranteed="true")[0] == 400


def test_a_client_that_goes_ends_its_request(cluster):
    def cancelled():
        return total(scrape(cluster.http), "strata_requests_total", finished_reason="cancelled")

    for streaming in (True, False):
        before = cancelled()
        with cluster.stalled("w1"):
            connection = connect(cluster)
            connection.request("POST", "/v1/completions", json.dumps({**LONG, "stream": streaming}))
            if streaming:
                connection.getresponse().close()
            cluster.wait_sessions(1)
            connection.close()
            # While nothing can be computed: it does not end by itself.
            cluster.wait_sessions(0)
        assert cancelled() == before + 1


def test_a_request_id_in_flight_is_refused_and_its_session_can_be_cancelled(cluster):
    with cluster.stalled("w1"):
        connection, response = begin(cluster, "/v1/completions", {**LONG, "stream": True},
                                     X_Strata_Request_Id="mine")
        assert response.headers["X-Strata-Request-Id"] == "mine"
        assert refused(cluster, "/v1/completions", completion(), X_Strata_Request_Id="mine") == (
            409, "request_in_flight", None)
        cluster.run("session", "cancel", "mine")
    assert json.loads(list(events(response))[-1])["error"]["code"] == "cancelled"
    connection.close()


def test_a_deadline_ends_a_request_before_and_in_its_stream(cluster):
    with cluster.stalled("w1"):
        assert refused(cluster, "/v1/completions", LONG, X_Strata_Deadline="50ms")[:2] == (
            504, "deadline_exceeded")
        connection, response = begin(cluster, "/v1/completions", {**LONG, "stream": True},
                                     X_Strata_Deadline="1s")
        assert json.loads(list(events(response))[-1])["error"]["code"] == "deadline_exceeded"
    connection.close()
    cluster.wait_sessions(0)


def test_a_full_queue_is_said_with_when_to_try_again(cluster):
    with cluster.stalled("w1"):
        held = [begin(cluster, "/v1/completions", {**LONG, "stream": True})[0] for _ in range(4)]
        waiting = [connect(cluster) for _ in range(2)]
        for connection in waiting:
            connection.request("POST", "/v1/completions", json.dumps(LONG))
        cluster.wait_sessions(6)
        status, headers, answer = request(cluster, "POST", "/v1/completions", LONG)
        for connection in held + waiting:
            connection.close()
    assert (status, answer["error"]["code"]) == (429, "queue_full")
    assert answer["error"]["type"] == "rate_limit_error"
    assert headers["Retry-After"] == "1"
    cluster.wait_sessions(0)


def test_tokens_and_back(cluster):
    tokens = post(cluster, "/tokenize", {"model": "recall", "prompt": CASE["prompt"],
                                         "add_special_tokens": False, "return_token_strs": True})
    assert tokens["tokens"] == CASE["prompt_ids"]
    assert tokens["count"] == len(CASE["prompt_ids"])
    assert tokens["max_model_len"] == 512
    assert "".join(tokens["token_strs"]) == CASE["prompt"]
    assert post(cluster, "/tokenize", {"messages": CASE["messages"]})["tokens"] == tokens["tokens"]
    assert post(cluster, "/detokenize", {"tokens": tokens["tokens"]})["prompt"] == CASE["prompt"]
    lorax = post(cluster, "/tokenize", {"inputs": "a key", "add_special_tokens": False})
    assert [t["start"] for t in lorax[1:]] == [t["stop"] for t in lorax[:-1]]
    assert "".join(t["text"] for t in lorax) == "a key"
    status, _, info = request(cluster, "GET", "/tokenizer_info")
    config = json.loads((RECALL / "tokenizer_config.json").read_text())
    assert status == 200 and info["model_max_length"] == 512
    for name in ("bos_token", "eos_token", "chat_template"):
        assert info[name] == config[name]


def test_lorax_routes(cluster):
    body = {"inputs": CASE["prompt"], "parameters": {"max_new_tokens": 96, "details": True,
                                                         "seed": 1}}
    status, headers, answer = request(cluster, "POST", "/generate", body)
    assert status == 200
    assert answer["generated_text"] == CASE["text"]
    assert answer["details"]["finish_reason"] == "eos_token"
    assert [t["id"] for t in answer["details"]["tokens"]] == CASE["greedy_ids"]
    assert answer["details"]["tokens"][-1]["special"]
    assert headers["x-generated-tokens"] == str(len(CASE["greedy_ids"]))
    assert post(cluster, "/", body) == [answer]
    for path, extra in (("/generate_stream", {}), ("/", {"stream": True})):
        chunks = stream(cluster, path, {**body, **extra})
        assert [c["token"]["id"] for c in chunks] == CASE["greedy_ids"]
        assert [c["generated_text"] for c in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert chunks[-1]["generated_text"] == CASE["text"]
    prefill = post(cluster, "/generate", {"inputs": "a key", "parameters": {
        "max_new_tokens": 1, "decoder_input_details": True}})["details"]["prefill"]
    assert prefill[0]["logprob"] is None and prefill[1]["logprob"] < 0
    assert int(headers["x-validation-time"]) >= 0
    for parameters in ({"adapter_id": "x"}, {"temperature": -1}, {"watermark": True},
                       {"best_of": 2}, {"max_new_tokens": 3, "min_tokens": 4}):
        status, _, answer = request(cluster, "POST", "/generate",
                                    {"inputs": "a", "parameters": parameters})
        assert (status, answer["error_type"]) == (422, "validation")
    info = request(cluster, "GET", "/info")[2]
    assert (info["model_id"], info["max_total_tokens"]) == ("recall", 512)


def lorax(cluster, inputs, **parameters):
    return post(cluster, "/generate", {"inputs": inputs, "parameters": parameters})


def test_lorax_best_of_shows_the_likeliest_and_the_others_as_details(cluster):
    sampled = dict(temperature=1.5, seed=11, max_new_tokens=20, ignore_eos_token=True,
                   details=True)
    best = lorax(cluster, "Once", best_of=3, **sampled)
    others = best["details"]["best_of_sequences"]
    assert len(others) == 2

    def likelihood(details):
        return sum(t["logprob"] for t in details["tokens"]) / len(details["tokens"])

    assert all(likelihood(best["details"]) >= likelihood(o) for o in others)
    same = post(cluster, "/v1/completions", completion(
        prompt="Once", temperature=1.5, seed=11, max_tokens=20, ignore_eos_token=True, n=3))
    assert {c["text"] for c in same["choices"]} == {
        best["generated_text"], *(o["generated_text"] for o in others)}
    for path, extra in (("/generate_stream", {}), ("/", {"stream": True})):
        status, _, answer = request(cluster, "POST", path, {
            "inputs": "Once", "parameters": {"best_of": 2, "do_sample": True}, **extra})
        assert (status, answer["error_type"]) == (422, "validation")
        assert "parameters.best_of" in answer["error"]
    assert request(cluster, "GET", "/info")[2]["max_best_of"] == 128


def test_lorax_truncate_keeps_the_prompts_last_tokens(cluster):
    def prompt(text, **parameters):
        details = lorax(cluster, text, max_new_tokens=1, decoder_input_details=True,
                        **parameters)["details"]
        return [t["id"] for t in details["prefill"]], details["prompt_tokens"]

    whole, _ = prompt(CASE["prompt"])
    front = len(post(cluster, "/tokenize", {"model": "recall", "prompt": ""})["tokens"])
    for truncate in (front + 1, len(whole) // 2, len(whole) - 1):
        ids, count = prompt(CASE["prompt"], truncate=truncate)
        assert ids == whole[:front] + whole[-(truncate - front):] and count == truncate
    assert prompt(CASE["prompt"], truncate=len(whole) + 5)[0] == whole


def test_lorax_chat_templates_are_those_of_the_chat_route(cluster):
    answer = lorax(cluster, json.dumps(CASE["messages"]), apply_chat_template=True,
                   max_new_tokens=96, details=True)
    assert answer["generated_text"] == CASE["text"]
    assert answer["details"]["prompt_tokens"] == len(CASE["prompt_ids"])
    short = lorax(cluster, json.dumps(CASE["messages"]), apply_chat_template=True,
                  max_new_tokens=1, truncate=7, decoder_input_details=True)
    assert [t["id"] for t in short["details"]["prefill"]] == CASE["prompt_ids"][-7:]
    status, _, answer = request(cluster, "POST", "/generate", {
        "inputs": "Hello", "parameters": {"apply_chat_template": True}})
    assert (status, answer["error_type"]) == (422, "validation")


def test_a_stream_that_waits_hears_comments(tmp_path):
    with Cluster(tmp_path, max_sessions=1, http_keepalive="50ms", step_timeout=NEVER,
                 lease=NEVER) as c:
        c.start_workers(1)
        c.load("recall", RECALL, context=512)
        alone = post(c, "/v1/completions", completion())["choices"][0]["text"]
        with c.stalled("w0"):
            running, first = begin(c, "/v1/completions", {**LONG, "stream": True})
            c.wait_sessions(1)
            # In the queue; the head comes with the first comment.
            waiting = [begin(c, "/v1/completions", completion(stream=True)),
                       begin(c, "/generate_stream", {"inputs": CASE["prompt"], "parameters": {
                           "max_new_tokens": 96}})]
            for _, response in [(running, first), *waiting]:
                for _ in range(3):
                    assert response.readline() == b": keep-alive\n"
                    assert response.readline() == b"\n"
            # A deadline in the queue is an error in the stream then.
            late, response = begin(c, "/v1/completions", completion(stream=True),
                                   X_Strata_Deadline="3s")
            assert json.loads(list(events(response))[-1])["error"]["code"] == "deadline_exceeded"
            late.close()
        running.close()
        (_, completions), (_, native) = waiting
        *chunks, done = events(completions)
        assert done == "[DONE]"
        assert "".join(json.loads(e)["choices"][0]["text"] for e in chunks) == alone
        assert json.loads(list(events(native))[-1])["generated_text"] == alone
        for connection, _ in waiting:
            connection.close()


def test_many_streams_at_once_each_have_their_own_answer(cluster):
    cases = recall_cases()[:24]
    got = [None] * len(cases)

    def run(i):
        while True:  # More than the queue takes: refused ones come again.
            status, _, answer = request(cluster, "POST", "/v1/completions",
                                        completion(prompt=cases[i]["prompt_ids"]))
            if status == 200:
                got[i] = answer["choices"][0]["text"]
                return
            assert status == 429, answer
            time.sleep(0.02)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [c["text"] for c in cases]


def test_streams_end_with_the_coordinator(tmp_path):
    with Cluster(tmp_path, drain_timeout="10ms") as c:
        c.start_workers(1)
        c.load("recall", RECALL, context=512)
        connection, response = begin(c, "/v1/completions", {**LONG, "n": 32, "stream": True})
        c.wait_sessions(32)
        c.coordinator.terminate()
        last = json.loads(list(events(response))[-1])
        assert last["error"]["code"] == "stopping"
        connection.close()
        wait_until(lambda: c.coordinator.process.poll() is not None, "it has ended")
        assert c.coordinator.wait() == 0
