import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check, check_json, check_report,
    weather)


def client():
    return OpenAIChatCompletionClient(model=MODEL, base_url=URL, api_key="none", max_retries=0, model_info={
        "vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"})


async def main():
    for stream in (False, True):
        agent = AssistantAgent("a", client(), tools=[weather], reflect_on_tool_use=True, model_client_stream=stream)
        assert (await agent.run(task=QUESTION)).messages[-1].content == ANSWER
        called()
        await agent.on_reset(CancellationToken())
        assert (await agent.run(task=QUESTION_OF_TWO)).messages[-1].content == ANSWER
        called_of_two()
    message = [UserMessage(content=QUESTION, source="user")]
    check_json((await client().create(message, json_output=Report)).content)
    async for last in client().create_stream(message, json_output=Report):
        pass
    check_json(last.content)
    check(Trip, (await client().create(message, json_output=Trip)).content)
    agent = AssistantAgent("a", client(), output_content_type=Report)
    check_report((await agent.run(task=QUESTION)).messages[-1].content)


asyncio.run(main())
