import instructor
import openai
from common import MODEL, QUESTION, URL, Report, check_report

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
messages = [{"role": "user", "content": QUESTION}]
for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
    asking = instructor.from_openai(client, mode=mode)
    if mode == instructor.Mode.JSON:
        continue  # Any JSON object: it is the model that has to know the schema.
    check_report(asking.create(model=MODEL, messages=messages, response_model=Report, max_retries=0))
    *_, last = asking.create_partial(model=MODEL, messages=messages, response_model=Report, max_retries=0)
    check_report(last)
