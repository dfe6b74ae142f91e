import dspy
from common import ANSWER, MODEL, QUESTION, URL, Report, Trip, check, check_json

model = dspy.LM(f"openai/{MODEL}", api_base=URL, api_key="none", cache=False, temperature=0, max_tokens=200, num_retries=0)
assert model(QUESTION)[0] == ANSWER
check_json(model(QUESTION, response_format=Report)[0])
check(Trip, model(QUESTION, response_format=Trip)[0])


class Known(dspy.LM):
    """It sends schemas and tools to models that it knows; of others somebody has to say so."""
    supports_response_schema = supports_function_calling = True
    supported_params = {"response_format", "tools", "tool_choice", "temperature", "max_tokens"}


class Asked(dspy.Signature):
    question: str = dspy.InputField()
    report: Report = dspy.OutputField()


known = Known(f"openai/{MODEL}", api_base=URL, api_key="none", cache=False, temperature=0, max_tokens=400, num_retries=0)
with dspy.context(lm=known, adapter=dspy.JSONAdapter()):
    check(Report, dspy.Predict(Asked)(question=QUESTION).report)
    check(Report, dspy.ChainOfThought(Asked)(question=QUESTION).report)
