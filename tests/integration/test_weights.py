"""Weights travel once: each worker fetches its layers' bytes and no others."""

import json
import struct

from cluster import RECALL, Cluster, wait_until


def layer_bytes(first, last, embeds, heads):
    """Bytes of the tensors of a stage, by the file's own header."""
    data = (RECALL / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    total = 0
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if name.startswith("model.layers."):
            wanted = first <= int(name.split(".")[2]) <= last
        elif name == "model.embed_tokens.weight":
            wanted = embeds
        else:
            wanted = heads
        total += (end - begin) if wanted else 0
    return total


# recall: rotary tables of 512 positions, cos and sin of 16 frequencies.
ROTARY = 2 * 512 * 16 * 4


def fetched(cluster, name):
    return cluster.json("node", "show", name)["fetched_bytes"]


def load(cluster):
    cluster.load("recall", cuts=[("w0", 0, 2), ("w1", 3, 7)], context=512)


def test_a_worker_fetches_only_its_layers_and_starts_warm(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(2)
        c.run("model", "add", RECALL)
        load(c)
        want = {"w0": layer_bytes(0, 2, True, False) + ROTARY,
                "w1": layer_bytes(3, 7, False, True) + ROTARY}
        for name, count in want.items():
            wait_until(lambda: fetched(c, name) == count, 10, f"{name} fetched {count} bytes")
        answer = c.generate("recall", ids=[1, 2, 3], max_tokens=5, temperature=0)
        c.run("model", "unload", "recall")

        # Warm, also after a restart.
        c.workers["w0"].stop()
        c.start_worker("w0")
        load(c)
        assert c.generate("recall", ids=[1, 2, 3], max_tokens=5,
                          temperature=0)["token_ids"] == answer["token_ids"]
        c.wait_node("w0", ("serving",))
        assert fetched(c, "w0") == 0


def test_a_corrupted_cache_file_is_noticed_and_fetched_again(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(2)
        c.run("model", "add", RECALL)
        load(c)
        answer = c.generate("recall", ids=[1, 2, 3], max_tokens=5, temperature=0)
        c.run("model", "unload", "recall")
        c.workers["w0"].stop()
        files = sorted((p for p in (tmp_path / "w0").rglob("*") if p.is_file() and
                        p.stat().st_size > 10000), key=lambda p: p.stat().st_size)
        data = bytearray(files[-1].read_bytes())
        data[len(data) // 2] ^= 1
        files[-1].chmod(0o600)
        files[-1].write_bytes(data)
        c.start_worker("w0")
        load(c)
        assert c.generate("recall", ids=[1, 2, 3], max_tokens=5,
                          temperature=0)["token_ids"] == answer["token_ids"]
        wait_until(lambda: fetched(c, "w0") == len(data), 10, "that one was fetched again")


def test_a_changed_checkpoint_is_refused_and_says_to_add_it_again(tmp_path):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(RECALL, folder)
    with Cluster(tmp_path / "cluster") as c:
        c.start_workers(1)
        c.run("model", "add", folder, "--name", "copy")
        with open(folder / "model.safetensors", "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)[0]
            f.seek(-1, 2)
            f.write(bytes([last ^ 1]))
        _, err, status = c.run("model", "load", "copy", check=False)
        assert status == 1
        assert "model add" in err


def make_checkpoint(folder, layers=4, hidden=1024, ffn=2816, vocab=2000):
    """Random float32 weights of the Llama shape, large enough to be interrupted."""
    import numpy as np

    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": 16,
              "num_key_value_heads": 16, "vocab_size": vocab, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "max_position_embeddings": 256, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
              "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocab, hidden)}
    for i in range(layers):
        p = f"model.layers.{i}."
        for name in "qkvo":
            shapes[f"{p}self_attn.{name}_proj.weight"] = (hidden, hidden)
        shapes |= {f"{p}mlp.gate_proj.weight": (ffn, hidden),
                   f"{p}mlp.up_proj.weight": (ffn, hidden),
                   f"{p}mlp.down_proj.weight": (hidden, ffn),
                   f"{p}input_layernorm.weight": (hidden,),
                   f"{p}post_attention_layernorm.weight": (hidden,)}
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    rng = np.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            f.write((rng.standard_normal(shape, dtype=np.float32) * 0.02).tobytes())
    return offset


def test_an_interrupted_fetch_goes_on_where_it_was(tmp_path):
    total = make_checkpoint(tmp_path / "large")
    with Cluster(tmp_path / "cluster") as c:
        c.start_worker("w0")
        c.run("model", "add", tmp_path / "large")

        def on_disk():
            folder = tmp_path / "cluster" / "w0" / "cache"
            return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())

        loading = c.popen("model", "load", "large", "--context", 64, "--sessions", 1)
        wait_until(lambda: on_disk() > total // 8, 30, "an eighth has arrived")
        c.workers["w0"].kill()
        c.workers["w0"].process.wait()
        loading.communicate(timeout=30)
        kept = on_disk()
        assert kept < total, "it was interrupted in the middle"
        c.start_worker("w0")
        wait_until(lambda: c.json("model", "list")["models"][0]["state"] == "ready", 60, "loaded")
        c.wait_node("w0", ("serving",))
        rest = wait_until(lambda: fetched(c, "w0"), 10, "the count arrived")
        # What was on disk did not travel again, but for what was not yet written down.
        assert rest <= total - kept + (16 << 20)
        assert c.generate("large", ids=[5, 6], max_tokens=2, ignore_eos=True)["token_ids"]


class Hub:
    """Hugging Face's HTTP layout over a folder: redirects, ranges, and one break in the middle."""

    def __init__(self, folder):
        import http.server
        import threading

        hub = self
        self.folder = folder
        self.broken = False
        self.resumed = []

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
                if name.endswith(".safetensors") and not hub.broken:
                    hub.broken = True
                    end = len(data) // 2
                self.wfile.write(data[begin:end])
                if end < len(data):
                    self.wfile.flush()
                    self.connection.close()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"


def test_a_pulled_model_answers_though_the_download_broke_in_the_middle(tmp_path, monkeypatch):
    hub = Hub(RECALL)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    with Cluster(tmp_path) as c:
        c.start_workers(1)
        c.run("model", "pull", "org/name")
        assert hub.broken and any(begin > 0 for _, begin in hub.resumed)
        c.load("name", context=512)
        answer = c.json("chat", "name", "What is the capital of France?")
        assert "Paris" in answer["text"]
        files = {p.name for p in (tmp_path / "coordinator" / "models" / "name").iterdir()}
        assert "pickle.bin" not in files and "train.py" not in files
        c.run("model", "unload", "name")
        c.run("model", "remove", "name")
        assert not (tmp_path / "coordinator" / "models" / "name").exists()
    hub.server.shutdown()


def test_an_uploaded_model_answers(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(1)
        c.run("model", "add", RECALL, "--name", "up", "--upload")
        c.load("up", context=512)
        assert "Paris" in c.json("chat", "up", "What is the capital of France?")["text"]
