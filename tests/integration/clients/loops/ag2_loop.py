import asyncio

from ag2 import Agent
from ag2.config import OpenAIConfig
from common import (
    ANSWER, MODEL, QUESTION, QUESTION_OF_TWO, URL, Report, Trip, called, called_of_two, check_report, weather)


async def main():
    for streaming in (False, True):
        config = OpenAIConfig(model=MODEL, base_url=URL, api_key="none", streaming=streaming, max_retries=0)
        reply = await Agent("a", config=config, tools=[weather]).ask(QUESTION)
        assert reply.body == ANSWER, reply.body
        called()
        reply = await Agent("a", config=config, tools=[weather]).ask(QUESTION_OF_TWO)
        assert reply.body == ANSWER, reply.body
        called_of_two()
        for schema in (Trip, list[Report], int):
            await (await Agent("a", config=config, response_schema=schema).ask(QUESTION)).content()
        reply = await Agent("a", config=config, response_schema=Report).ask(QUESTION)
        check_report(await reply.content())


asyncio.run(main())
