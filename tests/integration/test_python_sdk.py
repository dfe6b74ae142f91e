"""The Python SDK: its wheel in an environment of its own, on a cluster of real processes. What
becomes of its connections is test_python_sdk_connections.py's."""

import asyncio
import gc
import os
import re
import signal
import subprocess
import threading
import zipfile

import numpy as np
import pytest

import python_sdk
from cluster import GIVE_UP_S, NEVER, RECALL, SOURCE, Cluster, recall_cases
from python_sdk import cluster, floats, home, strata  # noqa: F401 (fixtures)


@pytest.fixture
def client(strata, cluster):
    with strata.Client(cluster.address) as c:
        yield c


# ---- Packaging


def test_the_wheel_has_its_stubs_and_hints_and_its_version_is_stratas(home):
    (path,) = (python_sdk.CACHE / "wheel").glob("strata_sdk-*-py3-none-any.whl")
    names = zipfile.ZipFile(path).namelist()
    for name in ("__init__.py", "py.typed", "client.py", "aio.py", "v1/inference_pb2.py",
                 "v1/inference_pb2.pyi", "v1/inference_pb2_grpc.py", "v1/admin_pb2_grpc.py"):
        assert f"strata/{name}" in names
    version = re.search(r"project\(strata VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())
    assert path.name.split("-")[1] == version.group(1)


def test_what_is_committed_is_not_generated():
    committed = subprocess.run(["git", "ls-files", "sdk/python"], cwd=SOURCE, text=True,
                               capture_output=True).stdout
    if not committed:
        pytest.skip("not a git checkout")
    assert "client.py" in committed and "_pb2" not in committed


def test_type_hints_hold(home, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import strata
client = strata.Client("127.0.0.1:7070")
text: str = client.generate("m", "p", max_tokens=3, temperature=0.5, stop=["x"]).text
text = client.generate("m", "p", min_tokens=3, priority=-1, guaranteed=True).text
ids: list[int] = client.tokenize("m", [strata.ChatMessage("user", "hello")]).ids
""")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("""
import strata
strata.Client().generate("m", "p", max_token=3)
strata.Client().generate("m", "p", temperature="hot")
""")
    mypy = [home / "bin" / "python", "-m", "mypy", "--cache-dir", tmp_path / "cache"]
    done = subprocess.run([*mypy, "--config-file", SOURCE / "sdk" / "python" / "pyproject.toml",
                           "-p", "strata"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([*mypy, "--strict", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([*mypy, "--strict", wrong], capture_output=True, text=True)
    assert "Found 2 errors" in done.stdout, done.stdout


# ---- Answers


def test_answers_are_those_of_the_command_line(strata, cluster, client):
    case = recall_cases()[0]
    for options in ({"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.9, "top_k": 50},
                    {"temperature": 0.8, "min_p": 0.02, "repetition_penalty": 1.1}):
        expected = cluster.generate("recall", ids=case["prompt_ids"], max_tokens=24, seed=11,
                                    logprobs=2, prompt_logprobs=1, ignore_eos=True, **options)
        arguments = dict(max_tokens=24, seed=11, logprobs=2, prompt_logprobs=1, ignore_eos=True,
                         **options)

        async def answer():
            async with strata.AsyncClient(cluster.address) as c:
                return await c.generate("recall", case["prompt_ids"], **arguments)

        for got in (client.generate("recall", case["prompt_ids"], **arguments),
                    asyncio.run(answer())):
            assert got.token_ids == expected["token_ids"] and len(got.token_ids) == 24
            assert got.text == expected["text"] and got.text
            assert got.finish_reason == expected["finish_reason"] == "length"
            assert got.seed == expected["seed"] == 11
            assert got.numerics_class == expected["numerics_class"]
            assert got.plan_epoch == expected["plan_epoch"]
            assert got.prompt_tokens == expected["usage"]["prompt_tokens"]
            assert (floats(p.logprob for p in got.logprobs)
                    == floats(p["logprob"] for p in expected["logprobs"]))
            assert ([[t for t, _ in p.top] for p in got.logprobs]
                    == [[t for t, _ in p["top"]] for p in expected["logprobs"]])
            assert (floats(p.logprob for p in got.prompt_logprobs)
                    == floats(p["logprob"] for p in expected["prompt_logprobs"][1:]))
            assert got.replays == 0 and got.total_ms >= got.ttft_ms > 0


def test_a_conversation_takes_the_models_template(strata, cluster, client):
    question = "What is the capital of France?"
    expected = cluster.json("chat", "recall", question, "--temperature", 0)
    assert "Paris" in expected["text"]
    for got in (client.chat("recall", question, temperature=0),
                client.chat("recall", [strata.ChatMessage("user", question)], temperature=0),
                client.generate("recall", [strata.ChatMessage("user", question)], temperature=0)):
        assert got.text == expected["text"] and got.finish_reason == "stop"
    with_system = client.tokenize("recall", [strata.ChatMessage("system", "Be brief."),
                                             strata.ChatMessage("user", question)])
    assert client.chat("recall", question, system="Be brief.",
                       max_tokens=1).prompt_tokens == len(with_system.ids)


def test_pieces_make_up_the_answer_as_they_are_made(strata, cluster, client):
    case = recall_cases()[1]
    whole = client.generate("recall", case["prompt_ids"], temperature=0, max_tokens=40,
                            ignore_eos=True)
    with client.stream("recall", case["prompt_ids"], temperature=0, max_tokens=40,
                       ignore_eos=True) as stream:
        pieces = list(stream)
    assert len(pieces) > 10
    assert [t for p in pieces for t in p.token_ids] == whole.token_ids == stream.result.token_ids
    assert "".join(p.text for p in pieces) == whole.text == stream.result.text
    assert stream.result.finish_reason == "length"
    assert list(stream) == []  # It stays at its end.

    async def gather():
        async with strata.AsyncClient(cluster.address) as c:
            return [p async for p in c.stream("recall", case["prompt_ids"], temperature=0,
                                              max_tokens=40, ignore_eos=True)]

    assert [t for p in asyncio.run(gather()) for t in p.token_ids] == whole.token_ids


def test_logits_are_the_command_lines(cluster, client, tmp_path):
    case = recall_cases()[2]
    expected = cluster.generate("recall", ids=case["prompt_ids"], max_tokens=5, temperature=0,
                                ignore_eos=True, logits=tmp_path / "logits")["logits"]
    got = client.generate("recall", case["prompt_ids"], max_tokens=5, temperature=0,
                          ignore_eos=True, return_logits=True)
    logits = np.asarray(got.logits, np.float32).reshape(-1, got.logits_columns)
    assert np.array_equal(logits, expected)


def test_text_becomes_tokens_and_text_again(strata, cluster, client):
    case = recall_cases()[3]
    messages = [strata.ChatMessage(m["role"], m["content"]) for m in case["messages"]]
    chat = client.tokenize("recall", messages)
    assert chat.ids == case["prompt_ids"] and chat.prompt == case["prompt"]
    plain = client.tokenize("recall", "Where does Maya live?", add_special_tokens=False)
    assert client.detokenize("recall", plain.ids) == "Where does Maya live?"

    async def both():
        async with strata.AsyncClient(cluster.address) as c:
            ids = (await c.tokenize("recall", "Where does Maya live?",
                                    add_special_tokens=False)).ids
            return ids, await c.detokenize("recall", ids)

    assert asyncio.run(both()) == (plain.ids, "Where does Maya live?")


def test_the_cluster_is_told_as_the_command_line_tells_it(strata, cluster, client):
    status = cluster.json("status")
    got = client.status()
    assert [n.name for n in got.nodes] == [n["name"] for n in status["nodes"]]
    assert {n.state for n in got.nodes} == {"serving"} and got.problems == []
    assert [(k.stage, k.group, k.total) for k in got.kv] == [
        (k["stage"], k["group"], k["total"]) for k in status["kv"]]
    assert [n.address for n in client.nodes()] == [n["address"] for n in status["nodes"]]
    (model,) = client.models()
    assert (model.name, model.state, model.family, model.digest) == tuple(
        status["models"][0][k] for k in ("name", "state", "family", "digest"))
    assert client.model("recall") == model and model.vocab_size == 1024

    async def ask():
        async with strata.AsyncClient(cluster.address) as c:
            return (await c.models(), await c.model("recall"), await c.nodes(),
                    (await c.status()).version, await c.sessions())

    models, one, nodes, version, sessions = asyncio.run(ask())
    assert models == [model] and one == model and len(nodes) == 2 and sessions == []
    assert version == got.version


def test_many_at_once_each_have_their_own_answer(strata, cluster, client):
    cases = recall_cases()[:64]
    alone = [client.generate("recall", c["prompt_ids"], temperature=0, max_tokens=12).token_ids
             for c in cases]
    assert len({tuple(ids) for ids in alone}) > 10

    async def ask_all():
        async with strata.AsyncClient(cluster.address) as c:
            return await asyncio.gather(*(
                c.generate("recall", case["prompt_ids"], temperature=0, max_tokens=12)
                for case in cases))

    answers = asyncio.run(ask_all())
    assert [a.token_ids for a in answers] == alone
    assert len({a.request_id for a in answers}) == len(cases)
    cluster.nothing_is_left()


def test_threads_share_a_client(cluster, client):
    cases = recall_cases()[:8]
    alone = [client.generate("recall", c["prompt_ids"], temperature=0).text for c in cases]
    texts = [None] * len(cases)

    def ask(i):
        texts[i] = client.generate("recall", cases[i]["prompt_ids"], temperature=0).text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == alone


# ---- Ends before the end


# Without drafts it lasts until somebody ends it.
LONG = dict(max_tokens=480, ignore_eos=True, temperature=0, speculate="off")


def test_leaving_the_iterator_ends_the_request_on_every_worker(strata, cluster, client):
    with client.stream("recall", [1, 2, 3], **LONG) as stream:
        for piece in stream:
            break
    assert piece.token_ids and len(stream.result.token_ids) < 480
    with pytest.raises(strata.CancelledError):
        next(stream)
    cluster.nothing_is_left()

    for _ in client.stream("recall", [1, 2, 3], **LONG):
        break
    gc.collect()
    cluster.nothing_is_left()

    async def leave():
        async with strata.AsyncClient(cluster.address) as c:
            async with c.stream("recall", [1, 2, 3], **LONG) as stream:
                async for _ in stream:
                    break
            with pytest.raises(strata.CancelledError):
                await stream.__anext__()
            task = asyncio.ensure_future(c.generate("recall", [1, 2, 3], **LONG))
            while not await c.sessions():
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(leave())
    cluster.nothing_is_left()


def test_cancel_ends_a_stream_from_another_thread_and_a_request_by_its_id(strata, cluster, client):
    stream = client.stream("recall", [1, 2, 3], **LONG)
    next(stream)
    with cluster.stalled("w1"):
        threading.Timer(0.02, stream.cancel).start()
        with pytest.raises(strata.CancelledError) as caught:
            list(stream)
    assert caught.value.reason == "CANCELLED"

    with client.stream("recall", [1, 2, 3], request_id="by-id", **LONG) as stream:
        next(stream)
        assert [s.request_id for s in client.sessions()] == ["by-id"]
        client.cancel("by-id")
        list(stream)
    assert stream.result.finish_reason == "cancelled"
    with pytest.raises(strata.NotFoundError) as caught:
        client.cancel("by-id")
    assert caught.value.reason == "SESSION_NOT_FOUND"
    cluster.nothing_is_left()


def test_closing_the_client_ends_what_runs(strata, cluster):
    with strata.Client(cluster.address) as client:
        stream = client.stream("recall", [1, 2, 3], **LONG)
        next(stream)
    with pytest.raises(strata.CancelledError):
        list(stream)
    with pytest.raises(strata.CancelledError):
        client.models()
    cluster.nothing_is_left()


# ---- Errors


def test_a_deadline_ends_the_request_with_its_own_error(strata, cluster, client):
    with pytest.raises(strata.DeadlineExceededError) as caught:
        client.generate("recall", [1, 2, 3], timeout=0.03, **LONG)
    assert caught.value.reason == "DEADLINE_EXCEEDED" and "deadline" in str(caught.value)

    async def late():
        async with strata.AsyncClient(cluster.address) as c:
            await c.generate("recall", [1, 2, 3], timeout=0.03, **LONG)

    with pytest.raises(strata.DeadlineExceededError):
        asyncio.run(late())
    cluster.nothing_is_left()


def test_errors_carry_what_the_command_line_says(strata, cluster, client):
    with pytest.raises(strata.NotFoundError) as caught:
        client.generate("no-such-model", "hello")
    assert caught.value.reason == "MODEL_NOT_FOUND"
    _, said, _ = cluster.run("generate", "no-such-model", "hello", check=False)
    assert str(caught.value) in said

    with pytest.raises(strata.InvalidArgumentError) as caught:
        client.generate("recall", [1, 2, 3], max_tokens=100000, request_id="too-long")
    error = caught.value
    assert error.reason == "CONTEXT_EXCEEDED" and error.limit and error.hint
    assert error.limit in str(error) and error.hint in str(error)

    async def refused():
        async with strata.AsyncClient(cluster.address) as c:
            await c.generate("recall", [1, 2, 3], max_tokens=100000, request_id="too-long")

    with pytest.raises(strata.InvalidArgumentError) as caught:
        asyncio.run(refused())
    assert str(caught.value) == str(error)


def test_an_id_in_flight_is_refused_unless_it_is_to_be_replaced(strata, cluster, client):
    with client.stream("recall", [1, 2, 3], request_id="same", **LONG) as first:
        next(first)
        with pytest.raises(strata.AlreadyExistsError) as caught:
            client.generate("recall", [4], max_tokens=1, request_id="same")
        assert caught.value.reason == "REQUEST_IN_FLIGHT"
        assert client.generate("recall", [4], max_tokens=1, request_id="same",
                               replace=True).request_id == "same"
        with pytest.raises(strata.AbortedError) as caught:
            list(first)
        assert caught.value.reason == "REPLACED"
    cluster.nothing_is_left()


def test_answers_are_held_to_what_is_given(strata, client):
    for held in ({"choices": ["true", "false"]}, {"regex": "true|false"}, {"json_schema": {"type": "boolean"}},
                 {"json_schema": '{"type": "boolean"}', "strict": True}, {"grammar": 'root ::= "true" | "false"'}):
        answer = client.generate("recall", "Is it?", temperature=1.5, max_tokens=20, **held)
        assert answer.text in ("true", "false") and answer.finish_reason == "stop", held
    for wrong in ({"regex": "a", "json_object": True}, {"strict": True}, {"choices": "yes"}):
        with pytest.raises(TypeError):
            client.generate("recall", "Is it?", **wrong)
    with pytest.raises(strata.InvalidArgumentError, match="NOT_SUPPORTED|not known to think"):
        client.chat("recall", "Is it?", thought_budget_tokens=5)


def test_min_tokens_are_those_of_the_command_line(strata, cluster, client):
    case = recall_cases()[0]
    short = len(case["greedy_ids"])
    options = dict(temperature=0.0, max_tokens=short + 12, min_tokens=short + 5)
    expected = cluster.generate("recall", ids=case["prompt_ids"], **options)

    async def answer():
        async with strata.AsyncClient(cluster.address) as c:
            return await c.generate("recall", case["prompt_ids"], **options)

    for got in (client.generate("recall", case["prompt_ids"], **options), asyncio.run(answer())):
        assert got.token_ids == expected["token_ids"] and len(got.token_ids) > short + 5
    with pytest.raises(strata.InvalidArgumentError) as refused:
        client.generate("recall", case["prompt_ids"], max_tokens=3, min_tokens=4)
    assert refused.value.reason == "MIN_TOKENS"


def test_higher_priorities_start_first_and_guaranteed_ones_are_answered(strata, tmp_path):
    with Cluster(tmp_path, max_sessions=1, step_timeout=NEVER, lease=NEVER) as c:
        c.start_workers(1)
        c.load("recall", RECALL, context=512)
        ended = []

        async def ask(client, name, **options):
            answer = await client.generate("recall", [1] * 8, ignore_eos=True, temperature=0,
                                           request_id=name, **options)
            ended.append(name)
            return answer.token_ids

        async def all_of_them():
            async with strata.AsyncClient(c.address) as client:
                c.workers["w0"].kill(signal.SIGSTOP)  # Requests start, and get no token.
                first = asyncio.create_task(ask(client, "first", max_tokens=8))
                await asyncio.to_thread(c.wait_sessions, 1)
                others = []
                for name, priority in (("low", -1), ("middle", None), ("high", 2**31 - 1)):
                    others.append(asyncio.create_task(
                        ask(client, name, max_tokens=20, priority=priority, guaranteed=True)))
                    await asyncio.to_thread(c.wait_sessions, 1 + len(others))
                c.workers["w0"].kill(signal.SIGCONT)
                answers = await asyncio.gather(*others)
                await first
                return answers

        answers = asyncio.run(all_of_them())
        assert ended == ["first", "high", "middle", "low"]
        with strata.Client(c.address) as client:
            alone = client.generate("recall", [1] * 8, ignore_eos=True, temperature=0,
                                    max_tokens=20, priority=3, guaranteed=True)
        assert answers == [alone.token_ids] * 3


def test_wrong_options_are_refused_before_any_call(strata):
    client = strata.Client("127.0.0.1:1")
    for options in ({"max_token": 3}, {"temperature": "hot"}, {"stop": "x"}):
        with pytest.raises(TypeError):
            client.generate("m", "p", **options)
    for number in ({"max_tokens": -1}, {"min_tokens": -1}, {"priority": 2**31}):
        with pytest.raises(ValueError):
            client.generate("m", "p", **number)
    for address in ("nowhere", "host:port", "::1:7070", "host:99999"):
        with pytest.raises(strata.InvalidArgumentError) as caught:
            strata.Client(address)
        assert caught.value.reason == "BAD_ADDRESS" and address in str(caught.value)


def test_an_absent_coordinator_is_reported_at_once(strata):
    with strata.Client("127.0.0.1:1") as client:
        for call in (client.models, lambda: client.generate("recall", "hello")):
            with pytest.raises(strata.UnavailableError) as caught:
                call()
            assert caught.value.reason == "COORDINATOR_UNREACHABLE"
            assert "127.0.0.1:1" in str(caught.value) and "refused" in str(caught.value)

    async def ask():
        async with strata.AsyncClient("127.0.0.1:1") as c:
            await c.generate("recall", "hello")

    with pytest.raises(strata.UnavailableError):
        asyncio.run(ask())


# ---- The documents


def examples(path, *sections):
    """The Python blocks of a document, of the sections named."""
    text = path.read_text()
    if sections:
        parts = re.split(r"^## ", text, flags=re.M)
        text = "\n".join(p for p in parts if p.splitlines()[0] in sections)
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def test_the_documents_examples_run(home, cluster, tmp_path):
    found = examples(SOURCE / "docs" / "API.md", "gRPC", "Python")
    assert len(found) >= 4
    found += examples(SOURCE / "sdk" / "python" / "README.md")
    said = []
    for i, code in enumerate(found):
        program = tmp_path / f"example{i}.py"
        program.write_text(code.replace("127.0.0.1:7070", cluster.address))
        done = subprocess.run([home / "bin" / "python", program], capture_output=True, text=True,
                              timeout=GIVE_UP_S,
                              env={**os.environ, "STRATA_COORDINATOR": cluster.address})
        assert done.returncode == 0, code + done.stderr
        assert done.stdout, code
        said.append(done.stdout)
    assert "Paris" in "".join(said) and "MODEL_NOT_FOUND" in "".join(said)
