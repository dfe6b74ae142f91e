"""What the package openai makes of API keys: ADDRESS GOOD LIMITED, the latter for one request a minute."""

import sys

import openai

address, good, limited = sys.argv[1:]
ask = {"model": "recall", "prompt": [1, 2, 3], "max_tokens": 4}


def client(key):
    return openai.OpenAI(base_url=f"http://{address}/v1", api_key=key, max_retries=0)


def expect(error, act):
    try:
        act()
    except error as raised:
        assert type(raised) is error, raised
        return raised
    raise AssertionError(f"no {error}")


assert [m.id for m in client(good).models.list()] == ["recall"]
assert client(good).completions.create(**ask).usage.completion_tokens <= 4
for act in (lambda: client("wrong").models.list(), lambda: client("wrong").completions.create(**ask),
            lambda: client("wrong").completions.create(**ask, stream=True)):
    assert expect(openai.AuthenticationError, act).code == "invalid_api_key"
first = {"X-Strata-Priority": "1"}
denied = expect(openai.PermissionDeniedError,
                lambda: client(good).completions.create(**ask, extra_headers=first))
assert denied.code == "key_priority" and denied.type == "permission_error"
client(limited).completions.create(**ask)
over = expect(openai.RateLimitError, lambda: client(limited).completions.create(**ask))
assert over.code == "rate_limit_exceeded"
assert 1 <= int(over.response.headers["Retry-After"]) <= 60
over = expect(openai.RateLimitError, lambda: client(limited).completions.create(**ask, stream=True))
assert over.code == "rate_limit_exceeded"
