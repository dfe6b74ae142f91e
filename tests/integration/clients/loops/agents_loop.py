import asyncio

from agents import Agent, AgentOutputSchema, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check_report, weather)
from openai import AsyncOpenAI

set_tracing_disabled(True)
model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=URL, api_key="none", max_retries=0))
tool = function_tool(weather)


async def streamed(agent, question=QUESTION):
    run = Runner.run_streamed(agent, question)
    async for _ in run.stream_events():
        pass
    return run.final_output


async def main():
    for choice in (None, "required", "weather"):
        agent = Agent("a", model=model, tools=[tool], model_settings=ModelSettings(tool_choice=choice))
        assert (await Runner.run(agent, QUESTION)).final_output == ANSWER
        called()
        assert await streamed(agent) == ANSWER
        called()
    agent = Agent("a", model=model, tools=[tool])
    assert (await Runner.run(agent, QUESTION_OF_TWO)).final_output == await streamed(agent, QUESTION_OF_TWO) == ANSWER
    called_of_two(2)
    # It takes a dictionary for no strict schema.
    agent = Agent("a", model=model, output_type=AgentOutputSchema(Trip, strict_json_schema=False))
    assert isinstance((await Runner.run(agent, QUESTION)).final_output, Trip)
    assert isinstance(await streamed(agent), Trip)
    agent = Agent("a", model=model, tools=[tool], output_type=Report)
    check_report((await Runner.run(agent, QUESTION)).final_output)
    called()
    check_report(await streamed(agent))
    called()


asyncio.run(main())
