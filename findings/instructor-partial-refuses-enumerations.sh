#!/usr/bin/env bash
# create_partial of instructor streams a model's fields as they come. Its last object is checked as
# Python values, and strictly unless `strict=False` is given: a member of an enumeration, a date or a
# tuple is in JSON a string or a list, which strictness refuses there. So an answer that `create`
# takes, which checks the JSON itself, fails as a stream at its end, after all parts but the last
# were shown.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check instructor==1.17.0
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import datetime
import enum
import http.server
import importlib.metadata
import json
import re
import threading

import instructor
import openai
import pydantic

HEAD = {"id": "1", "created": 0, "model": "m"}
ANSWERS = {"Painted": '{"colour": "red"}', "Dated": '{"day": "2026-11-29"}', "Placed": '{"at": [1, 2]}'}


class Stub(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = ANSWERS[body["response_format"]["json_schema"]["name"].removeprefix("Partial")]
        if body.get("stream"):
            kind, answer = "text/event-stream", "data: " + json.dumps({
                **HEAD, "object": "chat.completion.chunk", "choices": [{
                    "index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}) + (
                        "\n\ndata: [DONE]\n\n")
        else:
            kind, answer = "application/json", json.dumps({
                **HEAD, "object": "chat.completion", "choices": [{
                    "index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]})
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())


class Colour(enum.Enum):
    RED = "red"


class Painted(pydantic.BaseModel):
    colour: Colour


class Dated(pydantic.BaseModel):
    day: datetime.date


class Placed(pydantic.BaseModel):
    at: tuple[int, int]


print("instructor", importlib.metadata.version("instructor"))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = instructor.from_openai(
    openai.OpenAI(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none", max_retries=0),
    mode=instructor.Mode.JSON_SCHEMA)
for model in (Painted, Dated, Placed):
    asked = {"model": "m", "messages": [{"role": "user", "content": "?"}], "response_model": model, "max_retries": 0}
    print(model.__name__, "whole:", repr(client.create(**asked)))
    try:
        *_, last = client.create_partial(**asked)
        print(model.__name__, "streamed:", repr(last))
    except Exception as error:
        print(model.__name__, "streamed:", re.search(r"Input should be[^\[]*\[type=\w+", str(error)).group() + "]")
    *_, last = client.create_partial(**asked, strict=False)
    print(model.__name__, "streamed, strict=False:", repr(last))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
instructor 1.17.0
Painted whole: Painted(colour=<Colour.RED: 'red'>)
Painted streamed: Input should be an instance of Colour [type=is_instance_of]
Painted streamed, strict=False: Painted(colour=<Colour.RED: 'red'>)
Dated whole: Dated(day=datetime.date(2026, 11, 29))
Dated streamed: Input should be a valid date [type=date_type]
Dated streamed, strict=False: Dated(day=datetime.date(2026, 11, 29))
Placed whole: Placed(at=(1, 2))
Placed streamed: Input should be a valid tuple [type=tuple_type]
Placed streamed, strict=False: Placed(at=(1, 2))
END
echo "as described"
