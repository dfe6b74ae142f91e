import asyncio

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from common import ANSWER, MODEL, QUESTION, URL, Report, called, check_report, weather
from openai import AsyncOpenAI

set_tracing_disabled(True)
model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=URL, api_key="none", max_retries=0))
tool = function_tool(weather)


async def streamed(agent):
    run = Runner.run_streamed(agent, QUESTION)
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
    agent = Agent("a", model=model, tools=[tool], output_type=Report)
    check_report((await Runner.run(agent, QUESTION)).final_output)
    called()
    check_report(await streamed(agent))
    called()


asyncio.run(main())
