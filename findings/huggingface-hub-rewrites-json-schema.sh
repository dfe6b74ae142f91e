#!/usr/bin/env bash
# chat_completion of huggingface_hub's client speaks OpenAI's route, and passes what it is given,
# but for response_format: OpenAI's {"type": "json_schema", ...} becomes the form of Hugging Face's
# own server, {"type": "json_object", "value": SCHEMA}, whatever server answers; name and strict are
# lost. A server that knows OpenAI's API alone sees a request for any JSON object.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check huggingface_hub==2.4.0
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import http.server
import json
import threading

import huggingface_hub

ANSWER = json.dumps({
    "id": "1", "created": 0, "model": "m", "object": "chat.completion", "system_fingerprint": "",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "{}"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}).encode()


class Recorder(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(self.path, "got", json.dumps(body["response_format"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)


print("huggingface_hub", huggingface_hub.__version__)
server = http.server.HTTPServer(("127.0.0.1", 0), Recorder)
threading.Thread(target=server.serve_forever, daemon=True).start()
wanted = {"type": "json_schema",
          "json_schema": {"name": "city", "strict": True, "schema": {"type": "object"}}}
print("asked for", json.dumps(wanted))
client = huggingface_hub.InferenceClient(base_url=f"http://127.0.0.1:{server.server_port}")
client.chat_completion([{"role": "user", "content": "Where?"}], response_format=wanted)
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
huggingface_hub 2.4.0
asked for {"type": "json_schema", "json_schema": {"name": "city", "strict": true, "schema": {"type": "object"}}}
/v1/chat/completions got {"type": "json_object", "value": {"type": "object"}}
END
echo "as described"
