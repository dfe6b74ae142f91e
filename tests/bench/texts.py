"""What large texts of some do to a small request of another: the row "texts" of serving.py, on the
bundled model."""

import http.client
import json
import multiprocessing
import pathlib
import socket
import statistics
import sys
import threading
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
RECALL = TREE / "models" / "recall"
TEXT_BYTES = 4_000_000
TARGET = 3


def send_all(address, keys, path, texts, started, ended):
    """A process of its own: `texts` bodies at once, as fast as they are taken, whenever it is told to."""
    host, port = address.rsplit(":", 1)
    field = "inputs" if path == "/tokenize" else "prompt"
    text = ("The quick brown fox jumps over the lazy dog. " * (TEXT_BYTES // 45 + 1))[:TEXT_BYTES]
    body = json.dumps({"model": "recall", field: text}).encode()

    def one(connection, head):
        connection.sendall(head + body)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        answer.read()
        connection.close()
        statuses.append(answer.status)

    while started.get():
        statuses = []
        threads = []
        for i in range(texts):
            head = (f"POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
                    f"Authorization: Bearer {keys[i % len(keys)]}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n").encode()
            connection = socket.create_connection((host, int(port)))
            threads.append(threading.Thread(target=one, args=(connection, head)))
        for thread in threads:
            thread.start()
        ended.put("sending")
        for thread in threads:
            thread.join()
        ended.put(sorted(statuses))


def first_token_s(address, key):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=600)
    body = json.dumps({"model": "recall", "prompt": "What is the capital of France?",
                       "max_tokens": 4, "temperature": 0, "stream": True})
    begun = time.monotonic()
    connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"the small request was refused: {response.read()}")
    for line in response:
        if line.startswith(b"data:") and json.loads(line[5:])["choices"]:
            took = time.monotonic() - begun
            break
    response.read()
    connection.close()
    return took


def measure_path(cluster, path, keys, small, wanted, table, *, texts, rounds):
    started, ended = multiprocessing.Queue(), multiprocessing.Queue()
    sender = multiprocessing.Process(target=send_all,
                                     args=(cluster.http, keys, path, texts, started, ended))
    sender.start()
    alone, beside, all_of_them = [], [], []
    try:
        for _ in range(rounds):
            alone.append(first_token_s(cluster.http, small))
            started.put(True)
            ended.get()
            begun = time.monotonic()
            beside.append(first_token_s(cluster.http, small))
            statuses = ended.get()
            all_of_them.append(time.monotonic() - begun)
            if set(statuses) != {wanted}:
                sys.exit(f"{path} answered {statuses}, not {wanted}")
    finally:
        started.put(False)
        sender.join()
    times = statistics.median(beside) / statistics.median(alone)
    target = TARGET if wanted == 400 else None
    what = f"beside {texts} texts of 4 MB at {path} ({wanted})"
    table.add("first token alone", 1000 * statistics.median(alone), unit="ms")
    table.add(f"first token {what}", 1000 * statistics.median(beside), unit="ms")
    table.add(f"the same, the longest of {rounds}", 1000 * max(beside), unit="ms")
    table.add(f"first token {what}, times alone", times, target and f"<= {target}",
              target and times <= target)
    table.add("until the texts are answered", statistics.median(all_of_them), unit="s")


def measure_texts(arguments, folder, table):
    """Texts that can never fit, to be answered and to be counted."""
    import cluster as module
    with module.Cluster(folder / "texts") as cluster:
        for name in ("w0", "w1"):
            cluster.start_worker(name, threads=1)
        cluster.run("model", "add", RECALL, "--name", "recall")
        cluster.load("recall", cuts=module.cut(["w0", "w1"], 8), context=512, sessions=16, speculate="off")
        keys = [cluster.json("key", "create", "--name", name)["secret"] for name in "abc"]
        for _ in range(3):
            first_token_s(cluster.http, keys[2])
        measure_path(cluster, "/v1/completions", keys[:2], keys[2], 400, table, texts=60, rounds=20)
        measure_path(cluster, "/tokenize", keys[:2], keys[2], 422, table, texts=12, rounds=5)
