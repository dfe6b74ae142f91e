"""A server with Hugging Face's HTTP layout."""

import http.server
import json
import threading


class Hub:
    """Over a folder: redirects, ranges, and one break (`breaks`) or a wait for release() (`hold`)
    in the middle of a file of weights."""

    def __init__(self, folder, breaks=True, hold=False):
        hub = self
        self.folder = folder
        self.breaks = breaks
        self.broken = False
        self.resumed = []
        self.held = threading.Event()
        self.released = threading.Event()
        if not hold:
            self.released.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_GET(self):
                if self.path.startswith("/api/models/org/name/revision/"):
                    names = sorted(p.name for p in hub.folder.iterdir()) + ["pickle.bin"]
                    body = json.dumps({"sha": "0" * 40,
                                       "siblings": [{"rfilename": n} for n in names]}).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                elif "/resolve/" in self.path:
                    self.send_response(302)
                    self.send_header("Location", "/cdn/" + self.path.rsplit("/", 1)[1])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif self.path.startswith("/cdn/"):
                    self.serve((hub.folder / self.path[5:]).read_bytes(), self.path[5:])
                else:
                    self.send_error(404)

            def serve(self, data, name):
                begin = 0
                if self.headers.get("Range"):
                    begin = int(self.headers["Range"].split("=")[1].rstrip("-").split("-")[0])
                    hub.resumed.append((name, begin))
                self.send_response(206 if begin else 200)
                if begin:
                    self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
                self.send_header("Content-Length", str(len(data) - begin))
                self.send_header("ETag", f'"{name}-1"')
                self.send_header("Accept-Ranges", "bytes")
                self.end_headers()
                end = len(data)
                if name.endswith(".safetensors") and not hub.released.is_set():
                    half = len(data) // 2
                    self.wfile.write(data[begin:half])
                    self.wfile.flush()
                    begin = half
                    hub.held.set()
                    hub.released.wait()
                if name.endswith(".safetensors") and hub.breaks and not hub.broken:
                    hub.broken = True
                    end = len(data) // 2
                try:
                    self.wfile.write(data[begin:end])
                except OSError:
                    pass  # The client went away.
                if end < len(data):
                    self.wfile.flush()
                    self.connection.close()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def release(self):
        self.released.set()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
