import json

import openai
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, TOOL, URL, Report, Trip, called, called_of_two, check_report, weather)

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)


def loop(ask, question=QUESTION, **fields):
    messages = [{"role": "user", "content": question}]
    message = ask(messages=messages, tools=[TOOL], **fields)
    assert message.content is None and len(message.tool_calls) == (1 if question == QUESTION else 2)
    messages += [message.to_dict(), *({"role": "tool", "tool_call_id": call.id, "content": weather(
        **json.loads(call.function.arguments))} for call in message.tool_calls)]
    assert ask(messages=messages, tools=[TOOL]).content == ANSWER


def whole(**fields):
    return client.chat.completions.create(model=MODEL, temperature=0, **fields).choices[0].message


def streamed(**fields):
    with client.chat.completions.stream(model=MODEL, temperature=0, **fields) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].message


TOOL["function"]["strict"] = True
for ask in (whole, streamed):
    for choice in ("auto", "required", {"type": "function", "function": {"name": "weather"}}):
        loop(ask, tool_choice=choice, parallel_tool_calls=False)
        called()
    loop(ask, QUESTION_OF_TWO)
    called_of_two()
loop(whole, tool_choice="required", stop=["Bern"])
called()
messages = [{"role": "user", "content": QUESTION}]
check_report(client.chat.completions.parse(
    model=MODEL, messages=messages, response_format=Report).choices[0].message.parsed)
check_report(streamed(messages=messages, response_format=Report).parsed)
for ask in (whole, streamed):
    call, = ask(messages=messages, tools=[openai.pydantic_function_tool(Trip)], tool_choice="required").tool_calls
    Trip.model_validate_json(call.function.arguments)
assert isinstance(client.chat.completions.parse(
    model=MODEL, messages=messages, response_format=Trip).choices[0].message.parsed, Trip)
assert isinstance(streamed(messages=messages, response_format=Trip).parsed, Trip)
