import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check, check_json, weather)
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

tool = create_tool_from_function(weather)


def generator(**more):
    return OpenAIChatGenerator(api_key=Secret.from_token("none"), api_base_url=URL, model=MODEL, max_retries=0, **more)


for more in ({}, {"streaming_callback": lambda chunk: None}, {"tools_strict": True},
             {"generation_kwargs": {"tool_choice": "required"}}):
    message = generator(tools=[tool], **more).run([ChatMessage.from_user(QUESTION)])["replies"][0]
    (call,) = message.tool_calls
    assert (call.tool_name, call.arguments) == ("weather", {"city": "Bern"})
agent = Agent(chat_generator=generator(), tools=[tool])
assert agent.run(messages=[ChatMessage.from_user(QUESTION)])["last_message"].text == ANSWER
called()
for more in ({}, {"streaming_callback": lambda chunk: None}):
    agent = Agent(chat_generator=generator(), tools=[tool], **more)
    assert agent.run(messages=[ChatMessage.from_user(QUESTION_OF_TWO)])["last_message"].text == ANSWER
    called_of_two()
structured = generator(generation_kwargs={"response_format": Trip})
check(Trip, structured.run([ChatMessage.from_user(QUESTION)])["replies"][0].text)
structured = generator(generation_kwargs={"response_format": Report})
check_json(structured.run([ChatMessage.from_user(QUESTION)])["replies"][0].text)
schema = {"type": "json_schema", "json_schema": {"name": "r", "schema": Report.model_json_schema()}}
structured = generator(generation_kwargs={"response_format": schema}, streaming_callback=lambda chunk: None)
check_json(structured.run([ChatMessage.from_user(QUESTION)])["replies"][0].text)
