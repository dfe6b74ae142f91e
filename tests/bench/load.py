#!/usr/bin/env python3
"""A thousand people at once, on a pool for forty: what they get, and that it is theirs.

    load.py [--clients 1000] [--ramp 10s] [--duration 10m] [--pool 40] [--json]

Two workers of one thread each serve the bundled model, in float32 so that answers can be compared,
to as many HTTP streams as --clients, who come over --ramp, each beginning anew when it ends: prompts
of 1 to 1,500 tokens, answers of 1 to 500. The pool holds --pool sequences of the mean length. Beside them, a few clients a
second go away in mid-answer. Every second the ledger, the queue and the coordinator's memory are
looked at. Then every distinct request is sent again, one at a time, to a cluster of one worker
without a prefix cache, and each answer of the load has to be the same.

Exit code 1, with a line for each, when what was wanted is missed: none refused, failed or different;
pages in use while requests wait; memory flat; admissions decided in time.
"""
import argparse
import collections
import http.client
import json
import pathlib
import re
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import RECALL, Cluster, cut  # noqa: E402
from metrics_text import quantile, scrape, total  # noqa: E402

PROMPT, ANSWER = "1-1500", "1-500"
MEAN_TOKENS = 1000
DISTINCT = 1000
CANCELS_PER_S = 4
# Of the pool's pages, held by requests while any waits.
LEAST_LIVE = 0.8
MOST_ADMISSION_S = 0.005  # Of 99 in 100.
MOST_GROWTH = 1.1         # Of the coordinator's memory, from the first third of the time to the last.


def seconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m|h)", text).groups()
    return float(number) * {"ms": 1e-3, "s": 1, "m": 60, "h": 3600}[unit]


class Watch(threading.Thread):
    """Looks at a cluster every second."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.rows = []
        self.over = threading.Event()

    def run(self):
        begin = time.monotonic()
        while not self.over.wait(1):
            samples = scrape(self.cluster.http)
            pages = {state: total(samples, "strata_kv_pages", state=state)
                     for state in ["live", "free", "cached", "fenced"]}
            self.rows.append({"at_s": time.monotonic() - begin,
                              "running": total(samples, "strata_requests_running"),
                              "waiting": total(samples, "strata_requests_waiting"),
                              **{state: count / sum(pages.values()) for state, count in pages.items()},
                              "rss_bytes": self.cluster.coordinator.rss_bytes()})


class Leavers(threading.Thread):
    """Clients that go away in mid-answer."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.left = 0
        self.over = threading.Event()

    def run(self):
        gone = collections.deque()
        while not self.over.wait(1 / CANCELS_PER_S):
            # A different prompt each, so that none finds another's prefix.
            prompt = [(self.left * 7919 + i * i) % 1000 for i in range(50 + self.left % 900)]
            connection = http.client.HTTPConnection(self.cluster.http, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps(
                {"model": "recall", "prompt": prompt, "max_tokens": 400, "temperature": 0,
                 "stream": True, "ignore_eos": True}), {"Content-Type": "application/json"})
            gone.append(connection)
            # It stays for three seconds, in the queue or beyond.
            if len(gone) > 3 * CANCELS_PER_S:
                gone.popleft().close()
                self.left += 1
        for connection in gone:
            connection.close()
            self.left += 1


def answers_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def bench(cluster, path, *flags, timeout_s):
    out, err, status = cluster.run(
        "bench", "recall", "--openai", f"http://{cluster.http}", "--vocab-size", 1000,
        "--prompt-tokens", PROMPT, "--max-tokens", ANSWER, "--distinct", DISTINCT, "--seed", 5,
        "--answers", path, "--json", *flags, timeout_s=timeout_s, check=False)
    if not out:
        raise SystemExit(err)
    return json.loads(out)


def serve_crowd(folder, arguments):
    """(bench's figures, its answers, what was seen meanwhile, the metrics at the end)"""
    with Cluster(folder, max_queued_requests=2000) as cluster:
        names = cluster.start_workers(2)
        cluster.load("recall", RECALL, cuts=cut(names, 8), kv_dtype="f32", context=2048,
                     kv_tokens=arguments.pool * MEAN_TOKENS)
        watch, leavers = Watch(cluster), Leavers(cluster)
        watch.start()
        leavers.start()
        answers = folder / "crowd.jsonl"
        ramp = ["--ramp", arguments.ramp] if seconds(arguments.ramp) > 0 else []
        result = bench(cluster, answers, "--clients", arguments.clients, *ramp, "--duration",
                       arguments.duration, timeout_s=seconds(arguments.duration) + 900)
        for thread in [leavers, watch]:
            thread.over.set()
            thread.join()
        cluster.nothing_is_left()
        return result, answers_of(answers), watch.rows, scrape(cluster.http), leavers.left


def serve_alone(folder, count):
    with Cluster(folder, prefix_cache="off") as cluster:
        cluster.start_worker("w0", threads=2)
        cluster.load("recall", RECALL, kv_dtype="f32", context=2048, sessions=2)
        answers = folder / "alone.jsonl"
        bench(cluster, answers, "--clients", 1, "--requests", count, timeout_s=3600)
        return {a["request"]: a for a in answers_of(answers)}


def figures(arguments, result, answers, rows, samples, left, alone):
    busy = [row for row in rows
            if row["waiting"] > 0 and row["at_s"] > seconds(arguments.ramp) + 5]
    least = min(busy, key=lambda row: row["live"], default=None)
    third = max(1, len(rows) // 3)
    differ = [a["request"] for a in answers
              if "error" not in a and a["text"] != alone[a["request"] % DISTINCT]["text"]]
    return {
        "clients": arguments.clients, "duration_s": result["wall_s"],
        "requests": result["requests"], "failed": result["failed"],
        "failures": result["failures"], "refused": result["refused"], "went_away": left,
        "differ_from_alone": len(differ), "examples": differ[:5],
        "least_live_while_waiting": least["live"] if least else None,
        "at_that_moment": least,
        "median_live_while_waiting": statistics.median(row["live"] for row in busy) if busy else None,
        "running": statistics.median(row["running"] for row in rows),
        "waiting": statistics.median(row["waiting"] for row in rows),
        "rss_mib": [round(statistics.median(r["rss_bytes"] for r in part) / 2**20, 1)
                    for part in (rows[:third], rows[third:2 * third], rows[2 * third:]) if part],
        "admission_p99_s": quantile(samples, "strata_admission_seconds", 0.99),
        "admission_parts_p99_s": {
            part: quantile(samples, "strata_admission_part_seconds", 0.99, part=part)
            for part in ("thread", "prepare", "loop", "decide")},
        "preemptions": total(samples, "strata_preemptions_total"),
        "prompt_tokens_per_s": result["prompt_tokens_per_s"],
        "generated_tokens_per_s": result["generated_tokens_per_s"],
        "cached_tokens": result["cached_tokens"],
        "ttft_ms": result["ttft_ms"], "inter_token_ms": result["inter_token_ms"],
    }


def missed(shown):
    """What was wanted and is not so."""
    least = shown["least_live_while_waiting"]
    if shown["failed"] > 0:
        yield f"{shown['failed']} failed, {shown['refused']} of them refused"
    if shown["differ_from_alone"] > 0:
        yield f"{shown['differ_from_alone']} answers differ from those alone"
    if least is None:
        yield "no request ever waited: more --clients, or a smaller --pool"
    elif least < LEAST_LIVE:
        yield f"only {least:.0%} of the pages were in use while requests waited"
    if shown["rss_mib"][-1] > MOST_GROWTH * shown["rss_mib"][0]:
        yield f"the coordinator's memory grew: {shown['rss_mib']} MiB"
    if shown["admission_p99_s"] > MOST_ADMISSION_S:
        yield f"an admission in a hundred took {shown['admission_p99_s'] * 1000:.3g} ms or longer"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--ramp", default="10s", help="0s: all at once")
    parser.add_argument("--duration", default="10m")
    parser.add_argument("--pool", type=int, default=40, help="sequences of the mean length")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result, answers, rows, samples, left = serve_crowd(folder / "crowd", arguments)
        count = min(DISTINCT, result["requests"])
        alone = serve_alone(folder / "alone", count)
    shown = figures(arguments, result, answers, rows, samples, left, alone)
    if arguments.json:
        print(json.dumps(shown))
    else:
        for name, value in shown.items():
            print(f"{name:26} {value}")
    lines = list(missed(shown))
    for line in lines:
        print(f"missed: {line}", file=sys.stderr)
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
