#!/usr/bin/env bash
# load_chat of gradio has a parameter for a system message, which its own example uses. The message
# is kept as a text, and the function that makes the conversation takes each message's content for a
# list of parts: every question fails before anything is sent. Without a system message the chat
# works. A list of parts in its place is taken, and sent with the first question alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check gradio==6.31.0 openai==3.57.0
export GRADIO_ANALYTICS_ENABLED=False
"$folder/venv/bin/python" - >"$folder/seen" 2>/dev/null <<'END'
import http.server
import json
import threading

import gradio

ANSWER = json.dumps({
    "id": "1", "created": 0, "model": "m", "object": "chat.completion", "choices": [{
        "index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]}).encode()


class Stub(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print("  the server got", [message["role"] for message in body["messages"]])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)


def ask(chat, history):
    try:
        print("  answer:", chat.fn("Hi", history))
    except Exception as error:
        print("  " + type(error).__name__ + ":", error)


print("gradio", gradio.__version__)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
parts = [{"type": "text", "text": "You are a silly assistant."}]
for message in (None, "You are a silly assistant.", parts):
    print("system_message:", message)
    ask(gradio.load_chat(url, model="m", token="none", system_message=message, streaming=False), [])
print("the second question of that chat")
said = [{"role": role, "content": [{"type": "text", "text": "Hi"}]} for role in ("user", "assistant")]
ask(gradio.load_chat(url, model="m", token="none", system_message=parts, streaming=False), said)
END
cat "$folder/seen"
diff - "$folder/seen" <<'END'
gradio 6.31.0
system_message: None
  the server got ['user']
  answer: Hello.
system_message: You are a silly assistant.
  ValueError: Invalid message format: You are a silly assistant.. Each element must have a type key.
system_message: [{'type': 'text', 'text': 'You are a silly assistant.'}]
  the server got ['system', 'user']
  answer: Hello.
the second question of that chat
  the server got ['user', 'assistant', 'user']
  answer: Hello.
END
echo "as described"
