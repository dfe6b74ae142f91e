"""What the loops of clients share: ADDRESS [MODEL ANSWER]. The model calls `weather` once, or of two towns where it is asked for
both, and answers then."""

import json
import sys
from enum import Enum
from typing import Annotated, Literal, Optional, Union

from pydantic import BaseModel, Field

ADDRESS = sys.argv[1]
URL = f"http://{ADDRESS}/v1"
MODEL, ANSWER = sys.argv[2:] or ("caller", "It is 9 degrees.")
QUESTION = "How is it in Bern?"
QUESTION_OF_TWO = "How is it in Bern and Rome, both of them?"
RESULT = "9 degrees"
asked = []


class Report(BaseModel):
    city: str = Field(max_length=8, description="Where")
    degrees: int = Field(ge=-50, le=60)
    sky: Literal["clear", "cloudy"]
    sunny: bool


class Town(Enum):
    BERN = "Bern"
    ROME = "Rome"


class Stay(BaseModel):
    kind: Literal["stay"]
    town: Town
    days: int = Field(gt=0, lt=10)


class Flight(BaseModel):
    kind: Literal["flight"]
    number: str = Field(pattern="^[A-Z]{2}[0-9]{3}$")


class Trip(BaseModel):
    """What schemas have: objects within others, lists, choices of models, values that may be missing."""
    parts: list[Annotated[Union[Stay, Flight], Field(discriminator="kind")]] = Field(min_length=1, max_length=2)
    report: Report
    budget: Optional[float] = Field(default=None, ge=0)
    prices: dict[str, int] = Field(max_length=1)


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


def called_of_two(times=1):
    assert sorted(asked) == ["Bern"] * times + ["Rome"] * times, asked
    asked.clear()


def check(model, answer):
    """A text, an object or a model's instance."""
    if isinstance(answer, str):
        answer = json.loads(answer)
    model.model_validate(answer.model_dump() if isinstance(answer, BaseModel) else answer)


def check_report(report):
    report = Report.model_validate(report.model_dump() if isinstance(report, BaseModel) else report)
    assert len(report.city) <= 8 and -50 <= report.degrees <= 60


def check_json(text):
    check_report(json.loads(text))
