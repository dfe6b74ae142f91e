from common import MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, check, check_json, weather
from pydantic import BaseModel
from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, MessageRole, agglomerate_stream_deltas


class CodeStep(BaseModel):
    thought: str
    code: str


class Weather(Tool):
    name = "weather"
    description = "The weather in a city."
    inputs = {"city": {"type": "string", "description": "Where"}}
    output_type = "string"

    def forward(self, city: str):
        return weather(city)


model = OpenAIModel(model_id=MODEL, api_base=URL, api_key="none", temperature=0, max_tokens=200)
question = [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": QUESTION}])]
# tool_choice is "required" with tools, and stop strings are sent along.
message = model.generate(question, tools_to_call_from=[Weather()], stop_sequences=["Observation:"])
assert message.tool_calls[0].function.name == "weather"
pieces = list(model.generate_stream(question, tools_to_call_from=[Weather()]))
assert any(piece.tool_calls for piece in pieces)
schema = {"type": "json_schema", "json_schema": {"name": "r", "schema": Report.model_json_schema(), "strict": True}}
check_json(model.generate(question, response_format=schema).content)
schema = {"type": "json_schema", "json_schema": {"name": "t", "schema": Trip.model_json_schema()}}
check(Trip, model.generate(question, response_format=schema).content)
check(Trip, agglomerate_stream_deltas(list(model.generate_stream(question, response_format=schema))).content)
question = [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": QUESTION_OF_TWO}])]
assert len(model.generate(question, tools_to_call_from=[Weather()]).tool_calls) == 2
pieces = list(model.generate_stream(question, tools_to_call_from=[Weather()]))
assert len(agglomerate_stream_deltas(pieces).tool_calls) == 2
# A code agent that has its thought and its code as JSON.
agent = CodeAgent(tools=[Weather()], model=model, max_steps=1, use_structured_outputs_internally=True, verbosity_level=0)
agent.run(QUESTION)
check(CodeStep, agent.memory.steps[1].model_output)
for stream in (False, True):
    agent = ToolCallingAgent(tools=[Weather()], model=model, max_steps=2, stream_outputs=stream, verbosity_level=0)
    agent.run(QUESTION)
    called(2)  # Results come as the user's messages, which the model takes for new questions.
