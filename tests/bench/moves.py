#!/usr/bin/env python3
"""What requests notice of a planned move: the longest gap between two tokens of an answer.

    moves.py [--moves N] [--clients N] [--model PATH] [--json]

A model is on two of three workers of one thread each, and moves to and fro between the second and
the third while clients stream answers: its weights are packed in both caches by then. Of each move
the longest gap that any client saw is divided by the median time between tokens outside of moves; the longest gap of as
many tokens without a move says what the machine does by itself.
When the new stages took the places of the old ones, and how long it was until all had acknowledged their
fence and were linked, is the coordinator's log's. The command runs at the lowest priority, as an operator's is on another machine.
"""
import argparse
import datetime
import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import RECALL, Cluster, cut  # noqa: E402

QUIET_S = 0.5  # Before a move and after it.


class Client(threading.Thread):
    """Streams one answer after another, and notes when its tokens come."""

    def __init__(self, address, tokens):
        super().__init__(daemon=True)
        self.address, self.tokens = address, tokens
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


def stream(address, clients, tokens):
    """Clients until standard input ends; then says when the tokens of each answer came."""
    running = [Client(address, tokens) for _ in range(clients)]
    for client in running:
        client.start()
    sys.stdin.read()
    for client in running:
        client.stops = True
    failed = [repr(client.failed) for client in running if client.failed]
    print(json.dumps({"failed": failed, "answers": [list(a) for client in running for a in list(client.answers)]}))


class Clients:
    """In a process of their own: starting a command there would hold up what they note."""

    def __init__(self, address, clients, tokens):
        self.process = subprocess.Popen([sys.executable, __file__, "--stream", address, "--clients", str(clients),
                                         "--tokens", str(tokens)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self):
        noted = json.loads(self.process.communicate("", timeout=600)[0])
        assert not noted["failed"], noted["failed"]
        return noted["answers"]


def gaps(answers, begin, end):
    """Of tokens of one answer, those that were under way between the two."""
    return [(later - earlier) * 1e3 for answer in answers
            for earlier, later in zip(answer, answer[1:]) if later > begin and earlier < end]


def switches(log):
    """Of each switch in a coordinator's log, by time.monotonic(): when it began, and when all stages were linked."""
    found, began = [], None
    offset = time.time() - time.monotonic()
    for line in log.splitlines():
        at = line.split(" ", 1)[0]
        if "requests go on on other nodes" in line:
            began = at
        elif "the model is ready" in line and began:
            found.append(tuple(datetime.datetime.fromisoformat(t + "+00:00").timestamp() - offset for t in (began, at)))
            began = None
    return found


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(arguments, folder):
    with Cluster(folder, better_after="0s") as cluster:
        names = cluster.start_workers(3)
        model = arguments.model or RECALL
        layers = arguments.layers
        context = arguments.tokens + 64
        places = [cut([names[0], other], layers) for other in names[1:]]
        cluster.load("m", model, cuts=places[0], context=context, sessions=arguments.clients + 1, speculate="off")

        def move(to):
            text = ",".join(f"{name}:{first}-{last}" for name, first, last in places[to])
            command = cluster.command("model", "move", "m", "--layers", text, "--json")
            return json.loads(subprocess.run(["nice", "-n", "19", *command], check=True, capture_output=True, text=True).stdout)

        for to in (1, 0):
            assert move(to)["ready"]  # Both have packed their weights.
        clients = Clients(cluster.http, arguments.clients, arguments.tokens)
        time.sleep(4 * QUIET_S)
        windows = []
        for i in range(arguments.moves):
            calm = time.monotonic()
            time.sleep(QUIET_S)
            begin = time.monotonic()
            assert move((i + 1) % 2)["ready"]
            windows.append((calm, begin, time.monotonic()))
            time.sleep(QUIET_S)
        answers = clients.end()
        moved = [max(gaps(answers, begin, end + QUIET_S)) for _, begin, end in windows]
        before = [gaps(answers, calm, begin - QUIET_S / 10) for calm, begin, _ in windows]
        steady = [gap for calm in before for gap in calm]
        switched = switches(cluster.coordinator.text())[-arguments.moves:]
    step = statistics.median(steady)
    ratios = [gap / step for gap in moved]
    # The log's times are of whole milliseconds.
    at_switch = [max(gaps(answers, began - 1e-3, linked + 2e-3)) / step for began, linked in switched]
    calm_gaps = [max(calm) for calm in before]
    linking = [(linked - began) * 1e3 for began, linked in switched]
    return {"clients": arguments.clients, "moves": arguments.moves, "step_ms": step,
            "gap_ms": {"p50": statistics.median(moved), "p95": percentile(moved, 0.95)},
            "linking_ms": {"p50": statistics.median(linking), "p95": percentile(linking, 0.95)},
            "calm_ms": {"p50": statistics.median(calm_gaps), "p95": percentile(calm_gaps, 0.95)},
            "switch_steps": {"p50": statistics.median(at_switch), "p95": percentile(at_switch, 0.95)},
            "steps": {"p50": statistics.median(ratios), "p95": percentile(ratios, 0.95)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=400, help="of each answer")
    parser.add_argument("--model", help="a checkpoint; default the bundled one")
    parser.add_argument("--layers", type=int, default=8, help="that it has")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--stream", help=argparse.SUPPRESS)  # The clients alone, at this address.
    arguments = parser.parse_args()
    if arguments.stream:
        stream(arguments.stream, arguments.clients, arguments.tokens)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, pathlib.Path(folder))
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['clients']} clients, {result['moves']} moves; a token every {result['step_ms']:.2f} ms between them")
    print(f"longest gap of a move: median {result['gap_ms']['p50']:.1f} ms = {result['steps']['p50']:.1f} steps,"
          f" p95 {result['gap_ms']['p95']:.1f} ms = {result['steps']['p95']:.1f} steps")
    print(f"of those at the switch: median {result['switch_steps']['p50']:.1f} steps, p95 {result['switch_steps']['p95']:.1f} steps")
    print(f"longest gap of half a second without a move: median {result['calm_ms']['p50']:.1f} ms,"
          f" p95 {result['calm_ms']['p95']:.1f} ms")
    print(f"until the stages were linked: median {result['linking_ms']['p50']:.1f} ms, p95 {result['linking_ms']['p95']:.1f} ms")


if __name__ == "__main__":
    main()
