from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check_report, weather)
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=MODEL, base_url=URL, api_key="none", temperature=0, max_retries=0)


def streamed(bound, messages):
    message = None
    for piece in bound.stream(messages):
        message = piece if message is None else message + piece
    return message


for ask in (lambda bound, messages: bound.invoke(messages), streamed):
    for fields in ({}, {"tool_choice": "required"}, {"tool_choice": "weather", "strict": True}):
        messages = [HumanMessage(QUESTION)]
        message = ask(model.bind_tools([weather], **fields), messages)
        (call,) = message.tool_calls
        messages += [message, ToolMessage(weather(**call["args"]), tool_call_id=call["id"])]
        assert ask(model.bind_tools([weather]), messages).content == ANSWER
        called()
    messages = [HumanMessage(QUESTION_OF_TWO)]
    message = ask(model.bind_tools([weather]), messages)
    messages += [message, *(ToolMessage(weather(**c["args"]), tool_call_id=c["id"]) for c in message.tool_calls)]
    assert ask(model.bind_tools([weather]), messages).content == ANSWER
    called_of_two()
    assert len(ask(model.bind_tools([weather], parallel_tool_calls=False), messages[:1]).tool_calls) == 1
for method in ("json_schema", "function_calling"):
    structured = model.with_structured_output(Report, method=method)
    check_report(structured.invoke(QUESTION))
    *_, last = structured.stream(QUESTION)
    check_report(last)
    structured = model.with_structured_output(Trip, method=method)
    *_, last = structured.stream(QUESTION)
    assert structured.invoke(QUESTION) == last and isinstance(last, Trip)
agent = create_agent(model, tools=[weather], response_format=Trip)
assert isinstance(agent.invoke({"messages": [("user", QUESTION)]})["structured_response"], Trip)
called()
agent = create_agent(model, tools=[weather])
assert agent.invoke({"messages": [("user", QUESTION)]})["messages"][-1].content == ANSWER
called()
