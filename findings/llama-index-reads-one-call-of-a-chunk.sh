#!/usr/bin/env bash
# A chunk of a streamed chat has a list of calls of tools. llama-index' reader of OpenAI's streams
# takes the first of the list, and leaves out the others: of two calls that a server completes in one
# step, and sends together, the agent runs one. The same answer, whole, has both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
  llama-index-llms-openai-like==0.8.1 llama-index-llms-openai==0.8.3
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import http.server
import importlib.metadata
import json
import threading

from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

HEAD = {"id": "1", "created": 0, "model": "m"}
CALLS = [{"index": i, "id": f"call_{i}", "type": "function", "function": {
    "name": "weather", "arguments": json.dumps({"city": city})}} for i, city in enumerate(["Bern", "Rome"])]
MESSAGE = {"role": "assistant", "content": None, "tool_calls": CALLS}
APART = False


class Stub(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = "text/event-stream" if body.get("stream") else "application/json"
        if body.get("stream"):
            deltas = [{**MESSAGE, "tool_calls": [call]} for call in CALLS] if APART else [MESSAGE]
            events = [{**HEAD, "object": "chat.completion.chunk", "choices": [
                {"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
            events[-1]["choices"][0]["finish_reason"] = "tool_calls"
            answer = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        else:
            answer = json.dumps({**HEAD, "object": "chat.completion", "choices": [
                {"index": 0, "message": MESSAGE, "finish_reason": "tool_calls"}]})
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())


def weather(city: str) -> str:
    return "9 degrees"


def calls(answer):
    return [call.tool_kwargs["city"] for call in model.get_tool_calls_from_response(answer)]


print("llama-index-llms-openai", importlib.metadata.version("llama-index-llms-openai"))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
threading.Thread(target=server.serve_forever, daemon=True).start()
model = OpenAILike(model="m", api_base=f"http://127.0.0.1:{server.server_port}/v1", api_key="none",
                   is_chat_model=True, is_function_calling_model=True, max_retries=0)
asked = {"tools": [FunctionTool.from_defaults(fn=weather)], "user_msg": "?", "allow_parallel_tool_calls": True}
print("whole:", calls(model.chat_with_tools(**asked)))
*_, last = model.stream_chat_with_tools(**asked)
print("streamed, both in one chunk:", calls(last))
APART = True
*_, last = model.stream_chat_with_tools(**asked)
print("streamed, a chunk each:", calls(last))
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
llama-index-llms-openai 0.8.3
whole: ['Bern', 'Rome']
streamed, both in one chunk: ['Bern']
streamed, a chunk each: ['Bern', 'Rome']
END
echo "as described"
