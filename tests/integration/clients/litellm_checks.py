"""What the package litellm makes of a cluster's answers: CHECK,CHECK... ADDRESS CASE."""

import asyncio
import concurrent.futures
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Prices, which it would download.

import litellm  # noqa: E402

checks, address, case_path = sys.argv[1:]
case = json.load(open(case_path))
litellm.suppress_debug_info = True
server = {"api_base": f"http://{address}/v1", "api_key": "none", "max_retries": 0,
          "temperature": 0}
chatting = {"model": "openai/recall", "messages": case["messages"], **server}
completing = {"model": "text-completion-openai/recall", "prompt": case["prompt_ids"],
              "max_tokens": 96, **server}
tokens = {"prompt_tokens": len(case["prompt_ids"]), "completion_tokens": len(case["greedy_ids"])}


def usage_of(answer):
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0
    return {name: getattr(usage, name) for name in tokens}


def chat():
    answer = litellm.completion(**chatting, logprobs=True, top_logprobs=1)
    choice = answer.choices[0]
    assert (choice.message.content, choice.message.role) == (case["text"], "assistant")
    assert choice.finish_reason == "stop" and usage_of(answer) == tokens
    assert "".join(bytes(t.bytes).decode() for t in choice.logprobs.content[:-1]) == case["text"]
    several = litellm.completion(**{**chatting, "temperature": 1.5}, n=3, seed=4, max_tokens=20)
    again = litellm.completion(**{**chatting, "temperature": 1.5}, n=3, seed=4, max_tokens=20)
    said = [c.message.content for c in several.choices]
    assert len(said) == 3 and said == [c.message.content for c in again.choices]
    # The name that it has for servers of this kind.
    other = litellm.completion(**{**chatting, "model": "hosted_vllm/recall"})
    assert other.choices[0].message.content == case["text"]
    found = litellm.get_valid_models(check_provider_endpoint=True, custom_llm_provider="openai",
                                     api_base=server["api_base"], api_key="none")
    assert found == ["recall"]


def completions():
    answer = litellm.text_completion(**completing, logprobs=1)
    assert answer.choices[0].text == case["text"]
    assert answer.choices[0].finish_reason == "stop" and usage_of(answer) == tokens
    assert len(answer.choices[0].logprobs.token_logprobs) == len(case["greedy_ids"])
    two = litellm.text_completion(**{**completing, "prompt": [case["prompt_ids"]] * 2})
    assert [c.text for c in two.choices] == [case["text"]] * 2
    long = litellm.text_completion(**completing, extra_body={"top_k": 1, "ignore_eos": True})
    assert long.choices[0].finish_reason == "length"


def streams():
    chunks = list(litellm.completion(**chatting, stream=True,
                                     stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == case["text"]
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert usage_of(chunks[-1]) == tokens
    whole = litellm.stream_chunk_builder(chunks, messages=case["messages"])
    assert whole.choices[0].message.content == case["text"] and usage_of(whole) == tokens
    texts = litellm.text_completion(**completing, stream=True)
    assert "".join(c.choices[0].text or "" for c in texts) == case["text"]


def asynchronous():
    async def ask():
        answers = await asyncio.gather(litellm.acompletion(**chatting),
                                       litellm.atext_completion(**completing))
        assert answers[0].choices[0].message.content == case["text"]
        assert answers[1].choices[0].text == case["text"]
        stream = await litellm.acompletion(**chatting, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == case["text"]
        await expect_later(litellm.NotFoundError, litellm.acompletion(
            **{**chatting, "model": "openai/other"}))

    asyncio.run(ask())


async def expect_later(error, answer):
    try:
        await answer
    except error as raised:
        assert type(raised) is error, raised
        return
    raise AssertionError(f"no {error}")


def expect(error, status, saying, act):
    try:
        act()
    except error as raised:
        assert type(raised) is error and raised.status_code == status, repr(raised)
        assert saying in str(raised), raised
        return
    raise AssertionError(f"no {error}")


def errors():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    refused = [({"tools": tools}, "cannot be given tools"),
               ({"response_format": {"type": "structural_tag"}}, "response_format.type is not supported"),
               ({"temperature": -1}, "temperature")]
    for fields, saying in refused:
        expect(litellm.BadRequestError, 400, saying,
               lambda: litellm.completion(**{**chatting, **fields}))
        expect(litellm.BadRequestError, 400, saying,
               lambda: list(litellm.completion(**{**chatting, **fields}, stream=True)))
    ask = {"chat": lambda **f: litellm.completion(**{**chatting, **f}),
           "text": lambda **f: litellm.text_completion(**{**completing, **f})}
    for kind, act in ask.items():
        provider = "openai" if kind == "chat" else "text-completion-openai"
        expect(litellm.NotFoundError, 404, "other", lambda: act(model=f"{provider}/other"))
        expect(litellm.ServiceUnavailableError, 503, "not loaded",
               lambda: act(model=f"{provider}/idle"))
        expect(litellm.ContextWindowExceededError, 400, "512 tokens",
               lambda: act(max_tokens=5000))
    endless = {**chatting, "max_tokens": 400, "extra_body": {"ignore_eos": True}}
    late = {"X-Strata-Deadline": "5ms"}
    expect(litellm.Timeout, 504, "the deadline passed",
           lambda: litellm.completion(**endless, extra_headers=late))
    # It hangs up itself.
    expect(litellm.Timeout, 408, "timed out",
           lambda: litellm.completion(**endless, n=3, timeout=0.05))


def busy():
    """A full queue is RateLimitError, and the client tries again by itself when it may."""
    long = {**chatting, "max_tokens": 400, "extra_body": {"ignore_eos": True}}

    def ask(number):
        try:
            return litellm.completion(**long)
        except litellm.RateLimitError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(8)))
        refused = [a for a in answers if isinstance(a, Exception)]
        assert 0 < len(refused) < 8, answers
        for error in refused:
            assert error.status_code == 429 and "--max-queued-requests" in str(error), error
        patient = {**chatting, "max_retries": None, "num_retries": 20}
        again = threads.map(lambda _: litellm.completion(**patient), range(8))
        assert [a.choices[0].message.content for a in again] == [case["text"]] * 8


for check in checks.split(","):
    globals()[check]()
