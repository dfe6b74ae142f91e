import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"
from common import ANSWER, MODEL, QUESTION, URL, Report, TOOL, called, check_json, check_report, weather
from crewai import LLM

for stream in (False, True):
    model = LLM(model=f"openai/{MODEL}", base_url=URL, api_key="none", temperature=0, max_tokens=200, stream=stream)
    model.call(QUESTION, tools=[TOOL], available_functions={"weather": weather})
    called()
    report = model.call(QUESTION, response_model=Report)
    check_json(report) if isinstance(report, str) else check_report(report)
