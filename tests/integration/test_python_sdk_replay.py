"""What the Python SDK does with a coordinator that misbehaves: one of this process, by a script."""

import asyncio
import queue
import struct
from concurrent import futures

import pytest

from python_sdk import home, strata  # noqa: F401 (fixtures)


class FakeCoordinator:
    """Answers Generate by the scripts given, one a call: lists of messages, of which the last may
    be (gRPC code, message, ErrorDetail or None) that ends the call."""

    def __init__(self, *scripts):
        import grpc
        from strata.v1 import inference_pb2_grpc

        self.scripts = list(scripts)
        self.requests = queue.SimpleQueue()
        self.metadata = []
        fake = self

        class Service(inference_pb2_grpc.InferenceServiceServicer):
            def Generate(self, request, context):
                fake.requests.put(request)
                fake.metadata.append(dict(context.invocation_metadata()))
                for entry in fake.scripts.pop(0):
                    if not isinstance(entry, tuple):
                        yield entry
                        continue
                    code, message, detail = entry
                    if detail is not None:
                        context.set_trailing_metadata(
                            (("grpc-status-details-bin", detail.SerializeToString()),))
                    context.abort(code, message)

        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(Service(), self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.server.stop(None).wait()


def started(seed=5, numerics="cpu-2", max_tokens=9):
    from strata.v1 import inference_pb2 as pb
    return pb.GenerateResponse(request_id="r", started=pb.Started(
        seed=seed, numerics_class=numerics, prompt_tokens=2, max_tokens=max_tokens))


def tokens(ids, text, logprobs=()):
    from strata.v1 import inference_pb2 as pb
    from strata.v1 import types_pb2
    return pb.GenerateResponse(token_ids=ids, text=text, logprobs=[
        types_pb2.TokenLogprob(token_id=t, logprob=v) for t, v in logprobs])


def logits(rows):
    import array

    from strata.v1 import inference_pb2 as pb
    from strata.v1 import types_pb2
    return pb.GenerateResponse(logits=types_pb2.FloatRows(
        rows=len(rows), columns=2, values=array.array("f", sum(rows, [])).tobytes()))


def finish():
    from strata.v1 import inference_pb2 as pb
    return pb.GenerateResponse(finish=pb.Finish(reason="stop", prompt_tokens=2))


def lost(code=None):
    import grpc
    return (code or grpc.StatusCode.UNAVAILABLE, "Socket closed", None)


def typed(code, reason):
    from strata.v1 import types_pb2
    return (code, "why", types_pb2.ErrorDetail(
        code=code.value[0], reason=reason, message="why", node="w7", limit="kv_tokens=8",
        hint="wait", request_id="r", facts={"position": "3"}))


def both_ways(strata, scripts, **options):
    """What the synchronous client gives on such a coordinator; the asyncio one gives the same."""
    outcomes = []
    with FakeCoordinator(*scripts) as fake, strata.Client(fake.address) as client:
        try:
            outcomes.append(client.generate("m", [1, 2], **options))
        except strata.StrataError as error:
            outcomes.append(error)
        requests = [fake.requests.get() for _ in range(fake.requests.qsize())]

    async def ask(address):
        async with strata.AsyncClient(address) as client:
            try:
                return await client.generate("m", [1, 2], **options)
            except strata.StrataError as error:
                return error

    with FakeCoordinator(*scripts) as fake:
        outcomes.append(asyncio.run(ask(fake.address)))
    if isinstance(outcomes[0], strata.StrataError):
        assert vars(outcomes[0]) == vars(outcomes[1])
    else:
        assert outcomes[0] == outcomes[1]
    return outcomes[0], requests


def test_a_lost_answer_goes_on_where_it_stopped_however_it_is_cut_into_messages(strata):
    answer, requests = both_ways(strata, [
        [started(), logits([[1, 2], [3, 4]]), tokens([1, 2], "a", [(1, -0.5), (2, -1.5)]), lost()],
        [started(), logits([[1, 2]]), logits([[3, 4], [5, 6]]),
         tokens([1], "a", [(1, -0.5)]), tokens([2, 3], "bc", [(2, -1.5), (3, -2.5)]),
         tokens([4], "d", [(4, 0)]), finish()],
    ], request_id="r", logprobs=0)
    assert answer.token_ids == [1, 2, 3, 4] and answer.text == "abcd"
    assert [p.logprob for p in answer.logprobs] == [-0.5, -1.5, -2.5, 0]
    assert list(answer.logits) == [1, 2, 3, 4, 5, 6] and answer.logits_columns == 2
    assert answer.finish_reason == "stop" and answer.replays == 1
    first, second = requests
    assert not first.replace and not first.sampling.HasField("seed") and first.max_tokens == 0
    assert second.replace and second.request_id == first.request_id == "r"
    assert second.sampling.seed == 5 and second.max_tokens == 9


def test_a_server_that_is_shut_down_is_a_lost_connection(strata):
    import grpc
    answer, _ = both_ways(strata, [
        [started(), tokens([1], "a"), lost(grpc.StatusCode.CANCELLED)],
        [started(), tokens([1, 2], "ab"), finish()]])
    assert answer.text == "ab" and answer.replays == 1


def test_a_replay_waits_until_the_model_is_back(strata):
    import grpc
    answer, _ = both_ways(strata, [
        [started(), tokens([1], "a"), lost()],
        [typed(grpc.StatusCode.UNAVAILABLE, "WAITING_FOR_NODES")],
        [started(), tokens([1, 2], "ab"), finish()]])
    assert answer.text == "ab" and answer.replays == 2


@pytest.mark.parametrize("second, said", [
    (lambda: [started(), tokens([1, 7], "ab")], "token 1 is 7, it was 2"),
    (lambda: [started(), tokens([1, 2], "xb")], "the text differs"),
    (lambda: [started(numerics="cuda-1")], "runs as cuda-1, it was cpu-2"),
    (lambda: [started(seed=6)], "seed or prompt length changed"),
    (lambda: [started(), tokens([1, 2], "ab", [(1, -0.25)])], "log-probabilities differ"),
    (lambda: [started(), tokens([1], "a", [(1, -0.5)]), finish()], "shorter than what"),
])
def test_a_replay_that_differs_is_an_error_not_an_answer(strata, second, said):
    error, _ = both_ways(strata, [
        [started(), tokens([1, 2], "ab", [(1, -0.5), (2, -1.5)]), lost()], second()])
    assert isinstance(error, strata.AbortedError) and error.reason == "REPLAY_DIVERGED"
    assert said in str(error)


def test_no_replay_after_an_answer_of_the_coordinator(strata):
    import grpc
    error, requests = both_ways(strata, [
        [started(), tokens([1], "a"), typed(grpc.StatusCode.UNAVAILABLE, "NODE_LOST")]])
    assert isinstance(error, strata.UnavailableError) and len(requests) == 1
    assert (error.code, error.reason, error.message) == (grpc.StatusCode.UNAVAILABLE, "NODE_LOST",
                                                         "why")
    assert (error.node, error.limit, error.hint, error.request_id, error.facts) == (
        "w7", "kv_tokens=8", "wait", "r", {"position": "3"})
    assert str(error) == "why (node w7) [kv_tokens=8]; wait"


def test_an_answer_that_ends_without_a_reason_is_incomplete(strata):
    error, _ = both_ways(strata, [[started(), tokens([1], "a")]])
    assert isinstance(error, strata.InternalError) and error.reason == "ANSWER_INCOMPLETE"


def test_logits_of_a_wrong_size_are_refused(strata):
    bad = logits([[1, 2]])
    bad.logits.rows = 2
    error, _ = both_ways(strata, [[started(), bad]])
    assert isinstance(error, strata.InternalError) and error.reason == "BAD_LOGITS"


def test_every_parameter_travels_and_unset_ones_stay_unset(strata):
    options = dict(max_tokens=3, temperature=0.5, top_k=4, top_p=0.25, min_p=0.125, typical_p=0.75,
                   repetition_penalty=1.5, frequency_penalty=-0.5, presence_penalty=0.5,
                   logit_bias={7: -2.0}, seed=8, stop=["x", "y"], ignore_eos=True, logprobs=2,
                   prompt_logprobs=1, return_logits=True, request_id="id", replace=True,
                   input_embeddings={3: [0.5, -1.0], 1: [2.0, 0.0]})
    _, (wire,) = both_ways(strata, [[started(), finish()]], **options)
    for name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
                 "frequency_penalty", "presence_penalty", "seed"):
        assert getattr(wire.sampling, name) == options[name], name
    for name in ("max_tokens", "ignore_eos", "logprobs", "prompt_logprobs", "return_logits",
                 "request_id", "replace"):
        assert getattr(wire, name) == options[name], name
    assert dict(wire.sampling.logit_bias) == {7: -2.0} and list(wire.stop) == ["x", "y"]
    assert [(row.position, struct.unpack("<2f", row.values)) for row in wire.input_embeddings] == [
        (1, (2.0, 0.0)), (3, (0.5, -1.0))]

    _, (wire,) = both_ways(strata, [[started(), finish()]], temperature=None)
    assert not wire.HasField("sampling") and not wire.HasField("logprobs")
    assert wire.request_id.startswith("sdk-") and list(wire.tokens.ids) == [1, 2]


def test_the_key_travels_with_each_call(strata, monkeypatch):
    monkeypatch.setenv("STRATA_API_KEY", "of-the-environment")
    for given, sent in (("given", "Bearer given"), (None, "Bearer of-the-environment"), ("", None)):
        with FakeCoordinator([started(), finish()]) as fake:
            with strata.Client(fake.address, api_key=given) as client:
                client.generate("m", "p")
            assert fake.metadata[0].get("authorization") == sent
