import os
import pathlib
import tempfile

home = tempfile.mkdtemp()
os.environ["LLM_USER_PATH"] = home
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check, check_json, weather)

pathlib.Path(home, "extra-openai-models.yaml").write_text(
    f"- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: {URL}\n  supports_tools: true\n  supports_schema: true\n")
import llm

model = llm.get_model(MODEL)
model.key = "none"
for stream in (False, True):
    assert "".join(model.chain(QUESTION, tools=[weather], stream=stream)) == ANSWER
    called()
    assert "".join(model.chain(QUESTION_OF_TWO, tools=[weather], stream=stream)) == ANSWER
    called_of_two()
    check_json("".join(model.prompt(QUESTION, schema=Report, stream=stream)))
    check(Trip, "".join(model.prompt(QUESTION, schema=Trip, stream=stream)))
