import dspy
from common import ANSWER, MODEL, QUESTION, URL, Report, check_json

model = dspy.LM(f"openai/{MODEL}", api_base=URL, api_key="none", cache=False, temperature=0, max_tokens=200, num_retries=0)
assert model(QUESTION)[0] == ANSWER
check_json(model(QUESTION, response_format=Report)[0])
