"""What the loops of clients share: ADDRESS. The model calls `weather` once, and answers then."""

import json
import sys
from typing import Literal

from pydantic import BaseModel, Field

ADDRESS = sys.argv[1]
URL = f"http://{ADDRESS}/v1"
MODEL = "caller"
QUESTION = "How is it in Bern?"
ANSWER = "It is 9 degrees."
RESULT = "9 degrees"
asked = []


class Report(BaseModel):
    city: str = Field(max_length=8, description="Where")
    degrees: int = Field(ge=-50, le=60)
    sky: Literal["clear", "cloudy"]
    sunny: bool


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Where.
    """
    asked.append(city)
    return RESULT


TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather in a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}}}


def called(times=1):
    """The tool was called so often since the last time."""
    assert asked == ["Bern"] * times, asked
    asked.clear()


def check_report(report):
    report = Report.model_validate(report.model_dump() if isinstance(report, BaseModel) else report)
    assert len(report.city) <= 8 and -50 <= report.degrees <= 60


def check_json(text):
    check_report(json.loads(text))
