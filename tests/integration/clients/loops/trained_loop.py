"""A loop of OpenAI's client with a model that was taught to call tools, whole and as a stream: ADDRESS MODEL ANSWER."""
import json

import openai
from common import ANSWER, MODEL, QUESTION, TOOL, URL, called, weather

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)


def whole(**fields):
    return client.chat.completions.create(model=MODEL, temperature=0, **fields).choices[0].message


def streamed(**fields):
    with client.chat.completions.stream(model=MODEL, temperature=0, **fields) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].message


for ask in (whole, streamed):
    for choice in ("auto", "required"):
        messages = [{"role": "user", "content": QUESTION}]
        message = ask(messages=messages, tools=[TOOL], tool_choice=choice)
        (call,) = message.tool_calls
        messages += [message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": weather(**json.loads(call.function.arguments))}]
        assert ask(messages=messages, tools=[TOOL]).content == ANSWER
        called()
