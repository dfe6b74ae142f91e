import json

from common import (
    ADDRESS, ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, TOOL, URL, Report, Trip, called, called_of_two, check, check_json,
    weather)
from huggingface_hub import InferenceClient

client = InferenceClient(base_url=URL, api_key="none")
schema = {"type": "json_schema", "json_schema": {"name": "Report", "schema": Report.model_json_schema(), "strict": True}}
for choice in ("auto", "required"):
    messages = [{"role": "user", "content": QUESTION}]
    message = client.chat_completion(messages, model=MODEL, tools=[TOOL], tool_choice=choice).choices[0].message
    (call,) = message.tool_calls
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": weather(
        **json.loads(call.function.arguments))}]
    assert client.chat_completion(messages, tools=[TOOL]).choices[0].message.content == ANSWER
    called()
messages = [{"role": "user", "content": QUESTION_OF_TWO}]
message = client.chat_completion(messages, model=MODEL, tools=[TOOL]).choices[0].message
messages += [message, *({"role": "tool", "tool_call_id": call.id, "content": weather(
    **json.loads(call.function.arguments))} for call in message.tool_calls)]
assert client.chat_completion(messages).choices[0].message.content == ANSWER
called_of_two()
for kind in ({"type": "json", "value": Trip.model_json_schema()},
             {"type": "json_schema", "json_schema": {"name": "trip", "schema": Trip.model_json_schema()}}):
    check(Trip, client.chat_completion(messages[:1], response_format=kind).choices[0].message.content)
messages = [{"role": "user", "content": QUESTION}]
pieces = [p.choices[0].delta for p in client.chat_completion(messages[:1], tools=[TOOL], stream=True) if p.choices]
arguments = "".join(c.function.arguments for d in pieces for c in d.tool_calls or [])
assert json.loads(arguments) == {"city": "Bern"}
check_json(client.chat_completion(messages[:1], response_format=schema).choices[0].message.content)
check_json("".join(p.choices[0].delta.content or "" for p in client.chat_completion(
    messages[:1], response_format=schema, stream=True) if p.choices))
plain = InferenceClient(model=f"http://{ADDRESS}/")
grammar = {"type": "json", "value": Report.model_json_schema()}
check_json(plain.text_generation(QUESTION, grammar=grammar, max_new_tokens=200))
check_json("".join(plain.text_generation(QUESTION, grammar=grammar, max_new_tokens=200, stream=True)))
