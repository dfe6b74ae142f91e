from common import ADDRESS, QUESTION, Report, check_json
from lorax import Client

client = Client(f"http://{ADDRESS}")
held = {"type": "json_object", "schema": Report.model_json_schema()}
check_json(client.generate(QUESTION, response_format=held, max_new_tokens=200).generated_text)
*_, last = client.generate_stream(QUESTION, response_format=held, max_new_tokens=200)
check_json(last.generated_text)
