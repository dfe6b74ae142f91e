"""What the package lorax-client makes of a cluster's answers: CHECK ADDRESS CASE."""

import asyncio
import concurrent.futures
import json
import sys

from expecting import expect
from lorax import AsyncClient, Client
from lorax.errors import (GenerationError, IncompleteGenerationError, OverloadedError, UnknownError,
                          ValidationError)

check, address, case_path = sys.argv[1:]
case = json.load(open(case_path))
url = f"http://{address}"
client = Client(url)
long = {"max_new_tokens": 400, "ignore_eos_token": True}
late = {"X-Strata-Deadline": "5ms"}


def generate():
    answer = client.generate(case["prompt"], max_new_tokens=96)
    assert answer.generated_text == case["text"]
    assert [t.id for t in answer.details.tokens] == case["greedy_ids"]
    assert answer.details.finish_reason.value == "eos_token"
    full = client.generate(case["prompt"], max_new_tokens=96, return_full_text=True,
                           decoder_input_details=True)
    assert full.generated_text == case["prompt"] + case["text"]
    assert len(full.details.prefill) == full.details.prompt_tokens
    sampled = [client.generate(case["prompt"], max_new_tokens=20, do_sample=True, temperature=1.5,
                               seed=3).generated_text for _ in range(2)]
    assert sampled[0] == sampled[1]
    best = client.generate(case["prompt"], max_new_tokens=20, do_sample=True, temperature=1.5,
                           best_of=3)
    assert len(best.details.best_of_sequences) == 2
    short = client.generate(case["prompt"], max_new_tokens=2, truncate=5)
    assert short.details.prompt_tokens == 5


def stream():
    events = list(client.generate_stream(case["prompt"], max_new_tokens=96))
    assert [e.token.id for e in events] == case["greedy_ids"]
    assert events[-1].generated_text == case["text"]
    assert events[-1].details.finish_reason.value == "eos_token"
    assert "".join(e.token.text for e in events if not e.token.special) == case["text"]


def errors():
    for name, value in (("adapter_id", "someone/else"), ("watermark", True)):
        for act in (lambda **f: client.generate(case["prompt"], **f),
                    lambda **f: list(client.generate_stream(case["prompt"], **f))):
            try:
                act(**{name: value})
            except ValidationError as error:
                assert f"parameters.{name} is not supported" in str(error), error
                continue
            raise AssertionError(f"{name} was accepted")


def deadline():
    asking = Client(url, headers=late)
    expect(GenerationError, "deadline", lambda: asking.generate(case["prompt"], **long))
    expect(GenerationError, "deadline",
           lambda: list(asking.generate_stream(case["prompt"], **long)))


def in_a_stream():
    """An error in a stream that has begun is raised where it is read."""
    named = {"X-Strata-Request-Id": "streamed"}
    events = Client(url, headers=named).generate_stream(case["prompt"], **long)
    assert next(events).token.text is not None
    newer = Client(url, headers={**named, "X-Strata-Replace": "true"})
    assert newer.generate(case["prompt"], max_new_tokens=2).details.generated_tokens == 2
    expect(GenerationError, "took its place", lambda: list(events))


def failing():
    """A stage fails at what the answer makes; in a stream, where it is read."""
    expect(IncompleteGenerationError, "stage",
           lambda: client.generate(case["prompt"], max_new_tokens=96))
    events = client.generate_stream(case["prompt"], max_new_tokens=96)
    assert next(events).token.id == case["greedy_ids"][0]
    expect(IncompleteGenerationError, "stage", lambda: list(events))


def unloaded():
    """The package has no class for what is `unhealthy`, and says what it got."""
    expect(UnknownError, "model", lambda: client.generate(case["prompt"]))
    expect(UnknownError, "model", lambda: list(client.generate_stream(case["prompt"])))


def overloaded(answers):
    """Of more than may run and wait some are answered, and the others are refused by type."""
    refused = [a for a in answers if isinstance(a, Exception)]
    assert 0 < len(refused) < len(answers), answers
    for error in refused:
        assert type(error) is OverloadedError and "--max-queued-requests" in str(error), repr(error)


def busy():
    def ask(_):
        try:
            return Client(url).generate(case["prompt"], **long)
        except Exception as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        overloaded(list(threads.map(ask, range(8))))


def asynchronous():
    async def ask():
        asking = AsyncClient(url)
        answer = await asking.generate(case["prompt"], max_new_tokens=96)
        assert answer.generated_text == case["text"]
        events = [e async for e in asking.generate_stream(case["prompt"], max_new_tokens=96)]
        assert [e.token.id for e in events] == case["greedy_ids"]
        assert events[-1].generated_text == case["text"]
        await refused(ValidationError, asking.generate(case["prompt"], watermark=True))
        tardy = AsyncClient(url, headers=late)
        await refused(GenerationError, tardy.generate(case["prompt"], **long))
        named = {"X-Strata-Request-Id": "streamed"}
        events = AsyncClient(url, headers=named).generate_stream(case["prompt"], **long)
        await anext(events)
        newer = AsyncClient(url, headers={**named, "X-Strata-Replace": "true"})
        await newer.generate(case["prompt"], max_new_tokens=2)
        await refused(GenerationError, read(events))
        overloaded(await asyncio.gather(*(asking.generate(case["prompt"], **long)
                                          for _ in range(8)), return_exceptions=True))

    async def read(events):
        async for _ in events:
            pass

    async def refused(error, answer):
        try:
            await answer
        except error as raised:
            assert type(raised) is error, repr(raised)
            return
        raise AssertionError(f"no {error}")

    asyncio.run(ask())


globals()[check]()
