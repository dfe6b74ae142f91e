#!/usr/bin/env python3
"""What requests notice of a planned move: the longest gap between two tokens of an answer.

    moves.py [--moves N] [--clients N] [--model PATH] [--json]

A model is on two of three workers of one thread each, and moves to and fro between the second and
the third while clients stream answers: its weights are packed in both caches by then. Of each move
the longest gap that any client saw is divided by the median time between tokens outside of moves.
What of it passed until all stages had acknowledged their fence and were linked is the coordinator's
log's; the rest is computing the answers again.
"""
import argparse
import datetime
import http.client
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import RECALL, Cluster, cut  # noqa: E402

QUIET_S = 0.5  # Before a move and after it.


class Client(threading.Thread):
    """Streams one answer after another, and notes when its tokens come."""

    def __init__(self, address, name, tokens):
        super().__init__(daemon=True)
        self.address, self.name_, self.tokens = address, name, tokens
        self.answers = [[]]  # Of each: when its pieces came, by time.monotonic().
        self.failed = None
        self.stops = False

    def run(self):
        try:
            while not self.stops:
                self.ask()
                self.answers.append([])
        except Exception as error:  # Told by the main thread.
            self.failed = error

    def ask(self):
        connection = http.client.HTTPConnection(self.address, timeout=600)
        body = {"model": "m", "prompt": [3 + len(self.answers) % 50, 7, 11, 13], "max_tokens": self.tokens,
                "ignore_eos": True, "temperature": 0, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        for line in response:
            if line.startswith(b"data: {"):
                assert b'"error"' not in line, line
                self.answers[-1].append(time.monotonic())
        connection.close()

    def gaps(self, begin, end):
        """Of tokens of one answer, those that were under way between the two."""
        return [(later - earlier) * 1e3 for answer in list(self.answers)
                for earlier, later in zip(list(answer), list(answer)[1:]) if later > begin and earlier < end]


def linking_ms(log):
    """Of each switch in a coordinator's log: from its beginning until all stages were linked."""
    taken, began = [], None
    for line in log.splitlines():
        if "requests go on on other nodes" in line:
            began = datetime.datetime.fromisoformat(line.split()[0])
        elif "the model is ready" in line and began:
            taken.append((datetime.datetime.fromisoformat(line.split()[0]) - began).total_seconds() * 1e3)
            began = None
    return taken


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(arguments, folder):
    with Cluster(folder, better_after="0s") as cluster:
        names = cluster.start_workers(3)
        model = arguments.model or RECALL
        layers = arguments.layers
        context = arguments.tokens + 64
        places = [cut([names[0], other], layers) for other in names[1:]]
        cluster.load("m", model, cuts=places[0], context=context, sessions=arguments.clients + 1)

        def move(to):
            text = ",".join(f"{name}:{first}-{last}" for name, first, last in places[to])
            return cluster.json("model", "move", "m", "--layers", text)

        for to in (1, 0):
            assert move(to)["ready"]  # Both have packed their weights.
        clients = [Client(cluster.http, f"c{i}", arguments.tokens) for i in range(arguments.clients)]
        for client in clients:
            client.start()
        time.sleep(4 * QUIET_S)
        moved, steady = [], []
        for i in range(arguments.moves):
            calm = time.monotonic()
            time.sleep(QUIET_S)
            begin = time.monotonic()
            assert move((i + 1) % 2)["ready"]
            end = time.monotonic()
            time.sleep(QUIET_S)
            for client in clients:
                if client.failed:
                    raise client.failed
                steady += client.gaps(calm, begin - QUIET_S / 10)
            moved.append(max(gap for client in clients for gap in client.gaps(begin, end + QUIET_S)))
        for client in clients:
            client.stops = True
        linking = linking_ms(cluster.coordinator.text())[-arguments.moves:]
    step = statistics.median(steady)
    ratios = [gap / step for gap in moved]
    return {"clients": arguments.clients, "moves": arguments.moves, "step_ms": step,
            "gap_ms": {"p50": statistics.median(moved), "p95": percentile(moved, 0.95)},
            "linking_ms": {"p50": statistics.median(linking), "p95": percentile(linking, 0.95)},
            "steps": {"p50": statistics.median(ratios), "p95": percentile(ratios, 0.95)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=400, help="of each answer")
    parser.add_argument("--model", help="a checkpoint; default the bundled one")
    parser.add_argument("--layers", type=int, default=8, help="that it has")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, pathlib.Path(folder))
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['clients']} clients, {result['moves']} moves; a token every {result['step_ms']:.2f} ms between them")
    print(f"longest gap of a move: median {result['gap_ms']['p50']:.1f} ms = {result['steps']['p50']:.1f} steps,"
          f" p95 {result['gap_ms']['p95']:.1f} ms = {result['steps']['p95']:.1f} steps")
    print(f"until the stages were linked: median {result['linking_ms']['p50']:.1f} ms, p95 {result['linking_ms']['p95']:.1f} ms")


if __name__ == "__main__":
    main()
