import json

import litellm
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, TOOL, URL, Report, Trip, called, called_of_two, check, check_json, weather)

asking = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none", "num_retries": 0}


def whole(**fields):
    return litellm.completion(**asking, **fields).choices[0].message


def streamed(**fields):
    pieces = list(litellm.completion(**asking, **fields, stream=True))
    return litellm.stream_chunk_builder(pieces, messages=fields["messages"]).choices[0].message


for ask in (whole, streamed):
    for choice in ("auto", "required", {"type": "function", "function": {"name": "weather"}}):
        messages = [{"role": "user", "content": QUESTION}]
        message = ask(messages=messages, tools=[TOOL], tool_choice=choice)
        (call,) = message.tool_calls
        messages += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": weather(
            **json.loads(call.function.arguments))}]
        assert ask(messages=messages, tools=[TOOL]).content == ANSWER
        called()
    check_json(ask(messages=messages[:1], response_format=Report).content)
    check(Trip, ask(messages=messages[:1], response_format=Trip).content)
    messages = [{"role": "user", "content": QUESTION_OF_TWO}]
    message = ask(messages=messages, tools=[TOOL])
    messages += [message, *({"role": "tool", "tool_call_id": call.id, "content": weather(
        **json.loads(call.function.arguments))} for call in message.tool_calls)]
    assert ask(messages=messages).content == ANSWER
    called_of_two()
    # It leaves a content of null out.
    messages = [messages[0], {"role": "assistant", "content": None}, messages[0]]
    assert ask(messages=messages).content == ANSWER
