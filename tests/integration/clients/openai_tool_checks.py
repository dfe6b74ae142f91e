"""What the package openai makes of calls of tools and thoughts: ADDRESS BIASES. Each answer is a token that a bias makes the only one."""

import json
import sys

import openai

address, biases = sys.argv[1], json.loads(sys.argv[2])
client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
tools = [{"type": "function", "function": {
    "name": "weather", "description": "The weather.", "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"], "additionalProperties": False}}}]


def asked(script, **more):
    return {"model": "dummy", "temperature": 0, "max_tokens": 4, "tools": tools, "parallel_tool_calls": False,
            "logit_bias": {str(biases[script]): 100}, **more}


messages = [{"role": "user", "content": "How is it?"}]
message = client.chat.completions.create(messages=messages, **asked("thought")).choices[0].message
assert message.content == "Let me look." and message.reasoning_content == "Hm."
(call,) = message.tool_calls
assert json.loads(call.function.arguments) == {"city": "Z\u00fcrich", "days": 2}
messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "9 degrees"}]
answer = client.chat.completions.create(messages=messages, **asked("answer", max_tokens=1))
assert answer.choices[0].message.content == "It is 9 degrees."
assert answer.usage.completion_tokens_details.reasoning_tokens == 0

with client.chat.completions.stream(messages=messages[:1], **asked("call")) as stream:
    pieces = [e.arguments_delta for e in stream if e.type == "tool_calls.function.arguments.delta"]
    final = stream.get_final_completion().choices[0]
assert final.finish_reason == "tool_calls"
assert final.message.tool_calls[0].function.parsed_arguments == {"city": "Z\u00fcrich", "days": 2}
assert "".join(pieces) == final.message.tool_calls[0].function.arguments

parsed = client.chat.completions.parse(messages=messages[:1], **asked("call")).choices[0].message
assert parsed.tool_calls[0].function.parsed_arguments["days"] == 2
