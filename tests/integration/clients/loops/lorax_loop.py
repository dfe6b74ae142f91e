import asyncio

from common import ADDRESS, QUESTION, Report, Trip, check, check_json
from lorax import AsyncClient, Client

client = Client(f"http://{ADDRESS}")
held = {"type": "json_object", "schema": Report.model_json_schema()}
check_json(client.generate(QUESTION, response_format=held, max_new_tokens=200).generated_text)
*_, last = client.generate_stream(QUESTION, response_format=held, max_new_tokens=200)
check_json(last.generated_text)
held = {"type": "json_object", "schema": Trip.model_json_schema()}
check(Trip, client.generate(QUESTION, response_format=held, max_new_tokens=400).generated_text)


async def main():
    either = AsyncClient(f"http://{ADDRESS}")
    check(Trip, (await either.generate(QUESTION, response_format=held, max_new_tokens=400)).generated_text)
    async for last in either.generate_stream(QUESTION, response_format=held, max_new_tokens=400):
        pass
    check(Trip, last.generated_text)


asyncio.run(main())
