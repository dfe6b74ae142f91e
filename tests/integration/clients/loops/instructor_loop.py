from typing import Iterable

import instructor
import openai
from common import MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, check_report
from pydantic import BaseModel

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
messages = [{"role": "user", "content": QUESTION}]
for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
    asking = instructor.from_openai(client, mode=mode)
    if mode == instructor.Mode.JSON:
        continue  # Any JSON object: it is the model that has to know the schema.
    check_report(asking.create(model=MODEL, messages=messages, response_model=Report, max_retries=0))
    *_, last = asking.create_partial(model=MODEL, messages=messages, response_model=Report, max_retries=0)
    check_report(last)
    # Its partial models take no enumeration.
    assert isinstance(asking.create(model=MODEL, messages=messages, response_model=Trip, max_retries=0), Trip)
    asking.create(model=MODEL, messages=messages, response_model=list[Report], max_retries=0)


class weather(BaseModel):  # By which name the model calls it.
    city: str


asking = instructor.from_openai(client, mode=instructor.Mode.PARALLEL_TOOLS)
messages = [{"role": "user", "content": QUESTION_OF_TWO}]
calls = asking.create(model=MODEL, messages=messages, response_model=Iterable[weather], max_retries=0)
assert [call.city for call in calls] == ["Bern", "Rome"]
