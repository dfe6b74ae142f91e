"""What the package litellm makes of API keys: ADDRESS GOOD LIMITED, the latter for one request a minute."""

import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Prices, which it would download.

import litellm  # noqa: E402

address, good, limited = sys.argv[1:]
litellm.suppress_debug_info = True
messages = [{"role": "user", "content": "Hello!"}]


def chat(key):
    return litellm.completion(model="openai/recall", messages=messages, max_tokens=4,
                              api_base=f"http://{address}/v1", api_key=key, max_retries=0)


def complete(key):
    return litellm.text_completion(model="text-completion-openai/recall", prompt="Hello!",
                                   max_tokens=4, api_base=f"http://{address}/v1", api_key=key,
                                   max_retries=0)


def expect(error, status, act, key):
    try:
        act(key)
    except error as raised:
        assert type(raised) is error and raised.status_code == status, repr(raised)
        return
    raise AssertionError(f"no {error}")


for ask in (chat, complete):
    assert ask(good).usage.completion_tokens <= 4
    expect(litellm.AuthenticationError, 401, ask, "wrong")
chat(limited)
for ask in (chat, complete):
    expect(litellm.RateLimitError, 429, ask, limited)
