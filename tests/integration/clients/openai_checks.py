"""What the package openai makes of a cluster's answers: CHECK ADDRESS CASE."""

import asyncio
import json
import queue
import sys
import threading

import openai

check, address, case_path = sys.argv[1:]
case = json.load(open(case_path))
options = {"base_url": f"http://{address}/v1", "api_key": "none", "max_retries": 0}
client = openai.OpenAI(**options)
prompt = {"model": "recall", "prompt": case["prompt_ids"], "max_tokens": 96, "temperature": 0}
chatting = {"model": "recall", "messages": case["messages"], "temperature": 0}


def completions():
    assert [m.id for m in client.models.list()] == ["recall"]
    answer = client.completions.create(**prompt, logprobs=2)
    assert answer.choices[0].text == case["text"]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == len(case["prompt_ids"])
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(case["greedy_ids"])
    several = client.completions.create(**{**prompt, "temperature": 1.5}, n=3, seed=4)
    assert [c.index for c in several.choices] == [0, 1, 2]
    extra = client.completions.create(**prompt, extra_body={"top_k": 1, "ignore_eos": True})
    assert extra.choices[0].finish_reason == "length"


def chat():
    answer = client.chat.completions.create(**chatting, logprobs=True, top_logprobs=1)
    assert answer.choices[0].message.content == case["text"]
    assert answer.choices[0].message.role == "assistant"
    token = answer.choices[0].logprobs.content[0]
    assert bytes(token.bytes).decode() == token.token
    assert token.top_logprobs[0].logprob == token.logprob


def streams():
    with client.completions.create(**prompt, stream=True) as stream:
        assert "".join(c.choices[0].text for c in stream) == case["text"]
    chunks = list(client.chat.completions.create(**chatting, stream=True,
                                                 stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == case["text"]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == len(case["greedy_ids"])
    whole = client.chat.completions.with_raw_response.create(
        **chatting, extra_headers={"X-Strata-Request-Id": "mine"})
    assert whole.headers["X-Strata-Request-Id"] == "mine"
    assert whole.parse().id == "chatcmpl-mine"


def asynchronous():
    async def ask():
        async with openai.AsyncOpenAI(**options) as asking:
            answers = await asyncio.gather(*(asking.completions.create(**prompt)
                                             for _ in range(2)))
            assert [a.choices[0].text for a in answers] == [case["text"]] * 2
            stream = await asking.chat.completions.create(**chatting, stream=True)
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
            assert text == case["text"]

    asyncio.run(ask())


def expect(error, act, **fields):
    try:
        act()
    except error as raised:
        assert type(raised) is error, raised
        got = {name: getattr(raised, name) for name in fields}
        assert got == fields, got
        return raised
    raise AssertionError(f"no {error}")


def errors():
    create = client.completions.create
    expect(openai.NotFoundError, lambda: create(**{**prompt, "model": "other"}),
           code="model_not_found", param="model")
    unavailable = expect(openai.InternalServerError, lambda: create(**{**prompt, "model": "idle"}),
                         code="model_not_loaded", status_code=503)
    assert int(unavailable.response.headers["Retry-After"]) >= 1
    expect(openai.BadRequestError, lambda: create(**{**prompt, "temperature": -1}),
           param="temperature", type="invalid_request_error")
    expect(openai.BadRequestError, lambda: create(**{**prompt, "max_tokens": 5000}),
           code="context_length_exceeded")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    expect(openai.BadRequestError,
           lambda: client.chat.completions.create(**chatting, tools=tools), param="tools")
    late = {"X-Strata-Deadline": "5ms"}
    expect(openai.InternalServerError,
           lambda: create(**{**prompt, "max_tokens": 400}, extra_headers=late,
                          extra_body={"ignore_eos": True}), code="deadline_exceeded")
    held = create(**{**prompt, "max_tokens": 450}, stream=True,
                  extra_headers={"X-Strata-Request-Id": "twice"}, extra_body={"ignore_eos": True})
    next(iter(held))
    expect(openai.ConflictError,
           lambda: create(**prompt, extra_headers={"X-Strata-Request-Id": "twice"}),
           code="request_in_flight")
    held.close()
    # In a stream that has begun an error is raised where it is read. One that is out of time before
    # has more.
    for deadline_ms in (200, 1000, 5000):
        try:
            stream = create(**{**prompt, "max_tokens": 450}, n=3, stream=True,
                            extra_headers={"X-Strata-Deadline": f"{deadline_ms}ms"},
                            extra_body={"ignore_eos": True})
        except openai.InternalServerError as error:
            assert error.code == "deadline_exceeded", error
            continue
        break
    expect(openai.APIError, lambda: list(stream), code="deadline_exceeded")


def failing():
    """A stage fails at what the answer makes: beside it the same request fails as a stream."""
    expect(openai.InternalServerError, lambda: client.completions.create(**prompt), status_code=500,
           type="server_error")
    stream = client.completions.create(**prompt, stream=True)
    next(iter(stream))
    expect(openai.APIError, lambda: list(stream), type="server_error")


def busy():
    """A full queue is RateLimitError, and the client tries again by itself when it may."""
    long = {**prompt, "max_tokens": 450, "extra_body": {"ignore_eos": True}}
    held = [client.completions.create(**long, stream=True) for _ in range(2)]
    for stream in held:
        next(iter(stream))
    refusals = queue.Queue()

    def ask():
        try:
            client.completions.create(**prompt)
        except openai.RateLimitError as error:
            refusals.put(error)

    # More than may run and wait.
    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    error = refusals.get(timeout=1800)
    assert error.code == "queue_full"
    assert error.response.headers["Retry-After"] == "1"
    for stream in held:
        stream.close()
    for thread in asking:
        thread.join()
    again = openai.OpenAI(**{**options, "max_retries": 5})
    assert again.completions.create(**prompt).choices[0].text == case["text"]


globals()[check]()
