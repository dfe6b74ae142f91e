import json

import openai
from common import ANSWER, MODEL, QUESTION, TOOL, URL, Report, called, check_report, weather

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)


def loop(ask, **fields):
    messages = [{"role": "user", "content": QUESTION}]
    message = ask(messages=messages, tools=[TOOL], **fields)
    (call,) = message.tool_calls
    result = weather(**json.loads(call.function.arguments))
    messages += [message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": result}]
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
loop(whole, tool_choice="required", stop=["Bern"])
called()
messages = [{"role": "user", "content": QUESTION}]
check_report(client.chat.completions.parse(
    model=MODEL, messages=messages, response_format=Report).choices[0].message.parsed)
check_report(streamed(messages=messages, response_format=Report).parsed)
