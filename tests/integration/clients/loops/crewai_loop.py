import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, TOOL, URL, Report, Trip, called, called_of_two, check, check_json,
    check_report, weather)
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

for stream in (False, True):
    model = LLM(model=f"openai/{MODEL}", base_url=URL, api_key="none", temperature=0, max_tokens=200, stream=stream)
    model.call(QUESTION, tools=[TOOL], available_functions={"weather": weather})
    called()
    report = model.call(QUESTION, response_model=Report)
    check_json(report) if isinstance(report, str) else check_report(report)
    check(Trip, model.call(QUESTION, response_model=Trip))
    agent = Agent(role="r", goal="g", backstory="b", llm=model, tools=[tool("weather")(weather)], max_iter=3)
    task = Task(description=QUESTION_OF_TWO, expected_output="A text.", agent=agent)
    assert str(Crew(agents=[agent], tasks=[task]).kickoff()) == ANSWER
    called_of_two()
    task = Task(description=QUESTION, expected_output="A report.", agent=agent, output_pydantic=Report)
    check_report(Crew(agents=[agent], tasks=[task]).kickoff().pydantic)
    called()
