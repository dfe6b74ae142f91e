from common import ANSWER, MODEL, QUESTION, URL, Report, called, check_report, weather
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))

agent = Agent(model, tools=[weather], instructions="Be brief.")
assert agent.run_sync(QUESTION).output == ANSWER
called()
stream = agent.run_stream_sync(QUESTION)
assert stream.get_output() == ANSWER
called()
for output in (Report, NativeOutput(Report)):
    agent = Agent(model, tools=[weather], output_type=output)
    check_report(agent.run_sync(QUESTION).output)
    called()
    check_report(agent.run_stream_sync(QUESTION).get_output())
    called()
