import asyncio

from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check_report, weather)
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

tool = FunctionTool.from_defaults(fn=weather)


def model(**more):
    return OpenAILike(model=MODEL, api_base=URL, api_key="none", is_chat_model=True, is_function_calling_model=True,
                      max_retries=0, temperature=0, context_window=2048, max_tokens=200, **more)


for required in (False, True):
    answer = model().chat_with_tools([tool], user_msg=QUESTION, tool_required=required)
    (call,) = model().get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("weather", {"city": "Bern"})
*_, last = model().stream_chat_with_tools([tool], user_msg=QUESTION)
assert model().get_tool_calls_from_response(last)[0].tool_kwargs == {"city": "Bern"}
# It reads one call of a chunk.
*_, last = model().stream_chat_with_tools([tool], user_msg=QUESTION_OF_TWO, allow_parallel_tool_calls=True)
assert len(model().get_tool_calls_from_response(last)) == 2


async def main():
    for streaming in (False, True):
        agent = FunctionAgent(tools=[tool], llm=model(), streaming=streaming, allow_parallel_tool_calls=True)
        assert str(await agent.run(QUESTION_OF_TWO)) == ANSWER
        called_of_two()
    agent = FunctionAgent(tools=[tool], llm=model(), streaming=False)
    assert str(await agent.run(QUESTION)) == ANSWER
    called()
    agent = FunctionAgent(tools=[tool], llm=model(), streaming=True)
    assert str(await agent.run(QUESTION)) == ANSWER
    called()


asyncio.run(main())
for more in ({}, {"should_use_structured_outputs": True}):
    check_report(model(**more).structured_predict(Report, PromptTemplate(QUESTION)))
    assert isinstance(model(**more).structured_predict(Trip, PromptTemplate(QUESTION)), Trip)
# With tools its stream leaves the choice to the model.
*_, last = model(should_use_structured_outputs=True).stream_structured_predict(Report, PromptTemplate(QUESTION))
check_report(last)
