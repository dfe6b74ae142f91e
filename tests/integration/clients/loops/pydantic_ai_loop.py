from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check_report, weather)
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))

agent = Agent(model, tools=[weather], instructions="Be brief.")
assert agent.run_sync(QUESTION).output == ANSWER
called()
stream = agent.run_stream_sync(QUESTION)
assert stream.get_output() == ANSWER
called()
assert agent.run_sync(QUESTION_OF_TWO).output == agent.run_stream_sync(QUESTION_OF_TWO).get_output() == ANSWER
called_of_two(2)
for output in (Trip, ToolOutput(Trip, strict=False), NativeOutput(Trip), list[Report], [Report, Trip]):
    agent = Agent(model, output_type=output)
    assert agent.run_sync(QUESTION).output == agent.run_stream_sync(QUESTION).get_output()
for output in (Report, NativeOutput(Report)):
    agent = Agent(model, tools=[weather], output_type=output)
    check_report(agent.run_sync(QUESTION).output)
    called()
    check_report(agent.run_stream_sync(QUESTION).get_output())
    called()
