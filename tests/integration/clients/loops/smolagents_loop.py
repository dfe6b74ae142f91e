from common import ANSWER, MODEL, QUESTION, TOOL, URL, Report, called, check_json, weather
from smolagents import OpenAIModel, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, MessageRole


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
for stream in (False, True):
    agent = ToolCallingAgent(tools=[Weather()], model=model, max_steps=2, stream_outputs=stream, verbosity_level=0)
    agent.run(QUESTION)
    called(2)  # Results come as the user's messages, which the model takes for new questions.
