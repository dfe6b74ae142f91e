"""API keys on a cluster of real processes: who is let in, with what limits, by every way in."""

import json
import os
import pathlib
import subprocess
import threading
import time

import pytest

import python_sdk
from client_environment import LITELLM, LORAX, OPENAI, environment, run
from cluster import BIN, GIVE_UP_S, NEVER, RECALL, Cluster, wait_until
from http_client import begin, connect, request, stream

CLIENTS = pathlib.Path(__file__).parent / "clients"
ASK = ["generate", "recall", "--token-ids", "1,2,3", "--max-tokens", 4, "--ignore-eos", "--seed", 1]
BODY = {"model": "recall", "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True, "seed": 1}
LONG = {**BODY, "max_tokens": 480, "stream": True}


def start(folder):
    # A worker may stand still for as long as a test wants it.
    cluster = Cluster(folder, step_timeout=NEVER, lease=NEVER)
    cluster.start_workers(1)
    cluster.load("recall", RECALL, context=512, sessions=4)
    return cluster


@pytest.fixture
def fresh(tmp_path):
    with start(tmp_path) as c:
        yield c


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with start(tmp_path_factory.mktemp("keys")) as c:
        yield c


@pytest.fixture(scope="module")
def strata():
    python_sdk.import_from(python_sdk.environment())
    import strata as module
    return module


def make(cluster, name="", **limits):
    """A new key, with its secret."""
    arguments = ["--name", name] if name else []
    for limit, value in limits.items():
        arguments += [f"--{limit.replace('_', '-')}", value]
    return cluster.json("key", "create", *arguments)


def command(cluster, secret, *arguments):
    """(the document or None, stderr) with the key in the environment."""
    done = subprocess.run(cluster.command(*arguments, "--json"), capture_output=True, text=True,
                          timeout=GIVE_UP_S, env={**os.environ, "STRATA_API_KEY": secret})
    assert done.returncode in (0, 1)
    assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
    return (json.loads(done.stdout) if done.returncode == 0 else None), done.stderr


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def complete(cluster, secret, **more):
    return request(cluster, "POST", "/v1/completions", {**BODY, **more}, bearer(secret))


ROUTES = [("POST", "/v1/completions", BODY),
          ("POST", "/v1/chat/completions",
           {"model": "recall", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}),
          ("GET", "/v1/models", None), ("GET", "/v1/models/recall", None),
          ("GET", "/tokenizer_info", None),
          ("POST", "/tokenize", {"model": "recall", "prompt": "Hello"}),
          ("POST", "/detokenize", {"model": "recall", "tokens": [1, 2]}),
          ("POST", "/", {"inputs": "Hello", "parameters": {"max_new_tokens": 2}}),
          ("POST", "/generate", {"inputs": "Hello", "parameters": {"max_new_tokens": 2}}),
          ("POST", "/generate_stream", {"inputs": "Hello", "parameters": {"max_new_tokens": 2}}),
          ("GET", "/info", None), ("GET", "/metrics", None)]


def statuses(cluster, secret):
    """{route: (status, headers, text)}"""
    out = {}
    for method, path, body in ROUTES:
        connection = connect(cluster)
        connection.request(method, path, json.dumps(body) if body else None, bearer(secret))
        response = connection.getresponse()
        out[path] = (response.status, response.headers, response.read().decode())
        connection.close()
    return out


def test_from_the_first_key_on_every_way_in_asks_for_one(fresh):
    assert fresh.json("key", "list") == {"keys": []}
    for secret in ("", "anything"):
        assert command(fresh, secret, *ASK)[0]["token_ids"]
        assert {s for s, _, _ in statuses(fresh, secret).values()} == {200}

    made = make(fresh, "alice")
    secret = made["secret"]
    for wrong in ("", "anything", secret[:-1], made["id"]):
        answer, err = command(fresh, wrong, *ASK)
        assert answer is None and "STRATA_API_KEY" in err
        for path, (status, headers, text) in statuses(fresh, wrong).items():
            assert status == 401 and headers["WWW-Authenticate"] == "Bearer", path
            error = json.loads(text)
            if path.startswith("/v1/"):
                assert error["error"]["code"] == "invalid_api_key"
                assert error["error"]["type"] == "authentication_error"
            else:
                assert error["error_type"] == "authentication" and "API key" in error["error"]
    for path in ("/health", "/livez"):
        assert request(fresh, "GET", path)[0] == 200
    assert {s for s, _, _ in statuses(fresh, secret).values()} == {200}
    before = time.time()
    assert command(fresh, secret, *ASK)[0]["token_ids"]
    (listed,) = fresh.json("key", "list")["keys"]
    assert listed["id"] == made["id"] and listed["name"] == "alice" and "secret" not in listed
    assert before - 5 <= listed["last_used"] <= time.time() + 5

    fresh.coordinator.stop()
    # The secret is nowhere on the disk; when it was used is.
    for path in fresh.data_dir.glob("state.db*"):
        assert secret.encode() not in path.read_bytes()
    fresh.start_coordinator(fresh.address)
    (again,) = fresh.json("key", "list")["keys"]
    assert again == listed
    wait_until(lambda: command(fresh, secret, *ASK)[0], "the key is known after a restart")
    assert complete(fresh, "")[0] == 401

    assert fresh.json("key", "revoke", made["id"])["revoked"]
    answer, err = command(fresh, secret, *ASK)
    assert answer is None and "revoked" in err
    assert complete(fresh, secret)[0] == 401
    assert complete(fresh, "")[0] == 401, "the door stays shut"


def test_rates_are_each_keys_own_and_say_when_to_try_again(cluster):
    slow = make(cluster, "slow", requests_per_minute=1)
    short = make(cluster, "short", tokens_per_minute=60)
    free = make(cluster, "free")
    assert complete(cluster, slow["secret"])[0] == 200
    status, headers, answer = complete(cluster, slow["secret"])
    assert status == 429 and answer["error"]["code"] == "rate_limit_exceeded"
    # One is there every 60 seconds.
    wait = int(headers["Retry-After"])
    assert 1 <= wait <= 60
    message = answer["error"]["message"]
    assert slow["id"] in message and "'slow'" in message and "requests_per_minute=1" in message
    assert f"try again in {wait} s" in message
    refused, err = command(cluster, slow["secret"], *ASK)
    assert refused is None and "requests_per_minute=1" in err and "try again in" in err
    status, headers, answer = request(cluster, "POST", "/generate",
                                      {"inputs": "Hello", "parameters": {"max_new_tokens": 2}},
                                      bearer(slow["secret"]))
    assert status == 429 and answer["error_type"] == "overloaded" and headers["Retry-After"]

    # 60 are there and 3 + 5 x 37 are taken: the rest comes back at one a second.
    assert complete(cluster, short["secret"], n=5, max_tokens=37)[0] == 200
    status, headers, answer = complete(cluster, short["secret"])
    assert status == 429 and "tokens_per_minute=60" in answer["error"]["message"]
    assert 60 < int(headers["Retry-After"]) <= 3 + 5 * 37 - 60 + 1
    for _ in range(4):
        assert complete(cluster, free["secret"])[0] == 200


def test_as_many_are_in_flight_as_the_key_may_have(cluster):
    one = make(cluster, "one", requests_in_flight=1)["secret"]
    free = make(cluster)["secret"]
    for _ in range(2):
        with cluster.stalled("w0"):
            held = [begin(cluster, "/v1/completions", LONG, **bearer(one))[0]]
            status, headers, answer = complete(cluster, one)
            assert status == 429 and "requests_in_flight=1" in answer["error"]["message"]
            assert 1 <= int(headers["Retry-After"]) <= 60
            refused, err = command(cluster, one, *ASK)
            assert refused is None and "requests_in_flight=1" in err
            held += [begin(cluster, "/v1/completions", LONG, **bearer(free))[0] for _ in range(2)]
            for connection in held:
                connection.close()
        wait_until(lambda: complete(cluster, one)[0] == 200, "its place is free")
    # Choices are one request; and whoever has its answer has its place back.
    for _ in range(10):
        assert complete(cluster, one, n=3)[0] == 200
        assert stream(cluster, "/v1/completions", {**BODY, "stream": True}, **bearer(one))
        assert command(cluster, one, *ASK)[0]


def test_what_is_at_the_cost_of_others_a_key_has_to_allow(cluster):
    plain = make(cluster, "plain")
    made = cluster.json("key", "create", "--name", "first", "--max-priority", 2, "--guaranteed")
    asked = {"priority": {"X-Strata-Priority": "2"}, "guaranteed": {"X-Strata-Guaranteed": "true"}}
    for what, header in asked.items():
        status, _, answer = request(cluster, "POST", "/v1/completions", BODY,
                                    {**bearer(plain["secret"]), **header})
        assert (status, answer["error"]["code"]) == (403, f"key_{what}")
        assert request(cluster, "POST", "/v1/completions", BODY,
                       {**bearer(made["secret"]), **header})[0] == 200
    assert command(cluster, made["secret"], *ASK, "--priority", 2, "--guaranteed")[0]
    answer, err = command(cluster, plain["secret"], *ASK, "--priority", 1)
    assert answer is None and "max_priority=0" in err


def test_request_ids_are_each_keys_own(cluster):
    alice, bob = make(cluster, "alice"), make(cluster, "bob")
    same = {"X-Strata-Request-Id": "same"}

    def running():
        return {(s["key"], s["request_id"]) for s in cluster.json("session", "list")["sessions"]}

    def hold(key):
        return begin(cluster, "/v1/completions", LONG, **bearer(key["secret"]), **same)

    with cluster.stalled("w0"):
        held = {key["id"]: hold(key) for key in (alice, bob)}
        both = {(alice["id"], "same"), (bob["id"], "same")}
        assert running() == both
        listed = cluster.run("session", "list")[0]
        assert f"alice ({alice['id']})" in listed and f"bob ({bob['id']})" in listed
        status, _, _ = request(cluster, "POST", "/v1/completions", BODY,
                               {**bearer(alice["secret"]), **same})
        assert status == 409
        # A key sees and ends its own requests only; an operator says whose.
        own, _ = command(cluster, alice["secret"], "session", "list")
        assert [s["key_name"] for s in own["sessions"]] == ["alice"]
        _, err, status = cluster.run("session", "cancel", "same", check=False)
        assert status == 1 and "--key" in err
        assert command(cluster, alice["secret"], "session", "cancel", "same")[0]
        assert running() == {(bob["id"], "same")}
        assert command(cluster, alice["secret"], "session", "cancel", "same")[0] is None
        held[alice["id"]] = hold(alice)
        assert running() == both
        cluster.run("session", "cancel", "same", "--key", bob["id"])
        assert running() == {(alice["id"], "same")}
        cluster.run("session", "cancel", "same")
        assert running() == set()
        for connection, _ in held.values():
            connection.close()
    cluster.nothing_is_left()


def test_no_key_is_served_from_what_another_one_computed(cluster):
    keys = [make(cluster, "twin")["secret"] for _ in range(2)]
    prompt = [(5 * i) % 800 for i in range(100)]

    def cached(secret):
        status, _, answer = complete(cluster, secret, prompt=prompt, temperature=0)
        assert status == 200
        return (answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                answer["choices"][0]["text"])

    first = [cached(secret) for secret in keys]
    again = [cached(secret) for secret in keys]
    assert [tokens for tokens, _ in first] == [0, 0]
    assert [tokens for tokens, _ in again] == [96, 96]
    assert len({text for _, text in first + again}) == 1


def test_requests_of_a_revoked_key_end_as_they_would_unless_cancelled(cluster):
    for cancel in (False, True):
        key = make(cluster)
        with cluster.stalled("w0"):
            connection, response = begin(cluster, "/v1/completions", LONG, **bearer(key["secret"]))
            revoked = cluster.json("key", "revoke", key["id"], *(["--cancel"] if cancel else []))
            assert revoked["cancelled"] == (1 if cancel else 0)
            assert complete(cluster, key["secret"])[0] == 401
        text = response.read().decode()
        connection.close()
        assert ('"finish_reason":"length"' in text) != cancel
        assert ("cancelled" in text) == cancel


def test_the_python_library_has_an_error_for_each(cluster, strata):
    key = make(cluster, "python", requests_in_flight=1)
    ask = {"max_tokens": 4, "ignore_eos": True}
    for wrong in ("", "wrong"):
        with strata.Client(cluster.address, api_key=wrong) as client:
            with pytest.raises(strata.UnauthenticatedError) as refused:
                client.generate("recall", [1, 2, 3], **ask)
            assert refused.value.reason == ("KEY_UNKNOWN" if wrong else "KEY_MISSING")
    with strata.Client(cluster.address, api_key=key["secret"]) as client:
        with cluster.stalled("w0"), client.stream("recall", [1, 2, 3], max_tokens=480, ignore_eos=True,
                                             request_id="mine"):
            wait_until(lambda: [s.request_id for s in client.sessions()] == ["mine"],
                       "it is in flight")
            with pytest.raises(strata.ResourceExhaustedError) as refused:
                client.generate("recall", [1, 2, 3], **ask)
            assert refused.value.reason == "KEY_REQUESTS_IN_FLIGHT"
            assert int(refused.value.facts["retry_after_ms"]) >= 1000
            assert [(s.key, s.key_name) for s in client.sessions()] == [(key["id"], "python")]
            with strata.Client(cluster.address) as operator:
                with pytest.raises(strata.NotFoundError):
                    operator.cancel("mine", key="")
                operator.cancel("mine", key=key["id"])
        for _ in range(5):
            assert len(client.generate("recall", [1, 2, 3], **ask).token_ids) == 4


@pytest.mark.parametrize("name,packages", [("openai", OPENAI), ("litellm", LITELLM),
                                           ("lorax", LORAX)])
def test_published_clients_know_the_errors(cluster, name, packages):
    good = make(cluster)["secret"]
    limited = make(cluster, requests_per_minute=1)["secret"]
    run(environment(name, *packages), CLIENTS / f"{name}_key_checks.py", cluster.http, good,
        limited)


def test_keys_made_while_requests_come_are_all_kept(cluster):
    made, wrong = [], []

    def work(number):
        key = make(cluster, f"c{number}")
        made.append(key["id"])
        if complete(cluster, key["secret"])[0] != 200:
            wrong.append(key["id"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(set(made)) == 8
    assert set(made) <= {k["id"] for k in cluster.json("key", "list")["keys"]}


def test_operators_need_an_admin_key_once_there_is_one(fresh):
    alice = make(fresh, "alice")["secret"]
    assert fresh.json("status")["problems"] == []
    admin = fresh.json("key", "create", "--name", "me", "--admin")
    for arguments in (["status"], ["key", "list"], ["key", "create"], ["model", "unload", "recall"],
                      ["node", "drain", "w0"], ["model", "add", RECALL, "--name", "other"]):
        for secret, reason in (("", "wants an API key"), ("wrong", "does not know"),
                               (alice, "not administrate")):
            answer, err = command(fresh, secret, *arguments)
            assert answer is None and reason in err, (arguments, err)
    assert command(fresh, alice, "model", "list")[0]["models"][0]["name"] == "recall"
    assert command(fresh, alice, "session", "list")[0] == {"sessions": []}
    assert command(fresh, alice, *ASK)[0]
    assert command(fresh, admin["secret"], "status")[0]["nodes"][0]["name"] == "w0"
    assert command(fresh, admin["secret"], *ASK)[0]
    answer, err = command(fresh, admin["secret"], "key", "revoke", admin["id"])
    assert answer is None and "last admin key" in err

    # Who has lost it makes another one where the coordinator runs, while it does not.
    offline = [BIN / "strata-coordinator", "new-admin-key", "--data-dir", fresh.data_dir]
    busy = subprocess.run(offline, capture_output=True, text=True, timeout=GIVE_UP_S)
    assert busy.returncode == 1 and str(fresh.data_dir) in busy.stderr and not busy.stdout
    fresh.coordinator.stop()
    done = subprocess.run(offline, capture_output=True, text=True, timeout=GIVE_UP_S, check=True)
    fresh.start_coordinator(fresh.address)
    other = done.stdout.strip()
    assert command(fresh, other, "key", "revoke", admin["id"])[0]["revoked"]
    assert command(fresh, admin["secret"], "status")[0] is None
    assert command(fresh, other, "status")[0]
