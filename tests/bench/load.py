#!/usr/bin/env python3
"""A thousand people at once, on a pool for forty: what they get, and that it is theirs.

    load.py [--clients 1000] [--ramp 10s] [--duration 10m] [--pool 40] [--json]

Two workers of one thread each serve the bundled model, in float32 so that answers can be compared,
to as many HTTP streams as --clients, who come over --ramp, each beginning anew when it ends: prompts
of 1 to 1,500 tokens, answers of 1 to 500. One client in twenty draws its tokens by a seed and wants
their logprobs, the others' answers are greedy. The pool holds --pool sequences of the mean length.
Beside them, a few clients a second go away in mid-answer, and one sends what can never fit and takes
the time until that is refused. Every second the ledger, the queue and the coordinator's memory are
looked at. Then every distinct request is sent again, one at a time, to a cluster of one worker
without a prefix cache, and each answer of the load has to be the same.

Exit code 1, with a line for each, when what was wanted is missed: none refused, failed or different,
those included that went away; pages in use while requests wait, at each look from the ramp's end;
memory flat, and its peak bounded; admissions decided in time. That is judged by the coordinator's
own figure, from the request's being read. What the client saw from the last byte that it sent is
shown beside it, and not judged: it has the client's own wait for a core in it.
"""
import argparse
import collections
import contextlib
import hashlib
import http.client
import itertools
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import RECALL, Cluster, cut  # noqa: E402
from http_client import request  # noqa: E402
from metrics_text import quantile, scrape, total  # noqa: E402

PROMPT, ANSWER = "1-1500", "1-500"
MEAN_TOKENS = 1000
DISTINCT = 1000
SAMPLED_SHARE = 1 / 20  # Of the clients.
SAMPLED_DISTINCT = 100
CANCELS_PER_S = 4
# Of the pool's pages, held by requests while any waits.
LEAST_LIVE = 0.8
MOST_ADMISSION_S = 0.005  # Of 99 in 100.
MOST_GROWTH = 1.1         # Of the coordinator's memory, from the first third of the time to the last.
MOST_PEAK_MIB = 128       # Of it.


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
                              "heap_bytes": total(samples, "strata_heap_bytes"),
                              "rss_bytes": self.cluster.coordinator.rss_bytes()})


class Leavers(threading.Thread):
    """Clients that go away in mid-answer."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.left = 0
        self.wrong = []  # First lines of answers other than 200.
        self.over = threading.Event()

    def run(self):
        staying = collections.deque()
        while not self.over.wait(1 / CANCELS_PER_S):
            # A different prompt each, so that none finds another's prefix.
            prompt = [((self.left + len(staying)) * 7919 + i * i) % 1000
                      for i in range(50 + self.left % 900)]
            connection = http.client.HTTPConnection(self.cluster.http, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps(
                {"model": "recall", "prompt": prompt, "max_tokens": 400, "temperature": 0,
                 "stream": True, "ignore_eos": True}), {"Content-Type": "application/json"})
            staying.append(connection)
            # It stays for three seconds, in the queue or beyond.
            if len(staying) > 3 * CANCELS_PER_S:
                self.leave(staying.popleft())
        for connection in staying:
            self.leave(connection)

    def leave(self, connection):
        """Without an answer, or in the midst of one."""
        connection.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            begun = connection.sock.recv(64)
            if not begun.startswith(b"HTTP/1.1 200 "):
                self.wrong.append(begun.split(b"\r\n")[0].decode(errors="replace"))
        connection.close()
        self.left += 1


def sampled_request(index):
    draw = random.Random(index)
    return {"model": "recall", "prompt": [draw.randrange(1000) for _ in range(draw.randint(1, 1500))],
            "max_tokens": draw.randint(1, 500), "temperature": 0.8, "top_p": 0.95, "seed": index,
            "logprobs": 1, "ignore_eos": True}


def sampled_answer(cluster, index):
    """(digest of tokens, logprobs and text, or None; what was wrong)"""
    status, _, answer = request(cluster, "POST", "/v1/completions", sampled_request(index))
    if status != 200:
        return None, f"{status}: {answer}"
    (choice,) = answer["choices"]
    assert choice["logprobs"]["token_logprobs"], answer
    return hashlib.sha256(json.dumps(choice).encode()).hexdigest(), None


class Sampled:
    """Clients whose tokens are drawn by a seed, over --ramp as the others."""

    def __init__(self, cluster, clients, ramp_s):
        self.cluster = cluster
        self.answers = []  # (index, digest, what was wrong)
        self.over = threading.Event()
        self.next = itertools.count()
        self.threads = [threading.Thread(target=self.run, args=(ramp_s * i / clients,), daemon=True)
                        for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, after_s):
        if self.over.wait(after_s):
            return
        while not self.over.is_set():
            index = next(self.next) % SAMPLED_DISTINCT
            try:
                digest, wrong = sampled_answer(self.cluster, index)
            except (OSError, http.client.HTTPException) as error:
                digest, wrong = None, str(error)
            self.answers.append((index, digest, wrong))

    def finish(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Refusals:
    """refusals.py, in a process of its own."""

    def __init__(self, cluster):
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).with_name("refusals.py")), cluster.http,
             "recall"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def finish(self):
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        return json.loads(out)


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
    """What came of it, by name."""
    with Cluster(folder, max_queued_requests=2000) as cluster:
        names = cluster.start_workers(2)
        cluster.load("recall", RECALL, cuts=cut(names, 8), kv_dtype="f32", context=2048,
                     kv_tokens=arguments.pool * MEAN_TOKENS, speculate="off")
        count = max(1, round(arguments.clients * SAMPLED_SHARE))
        watch, leavers, refusals = Watch(cluster), Leavers(cluster), Refusals(cluster)
        watch.start()
        leavers.start()
        sampled = Sampled(cluster, count, seconds(arguments.ramp))
        answers = folder / "crowd.jsonl"
        ramp = ["--ramp", arguments.ramp] if seconds(arguments.ramp) > 0 else []
        result = bench(cluster, answers, "--clients", max(1, arguments.clients - count), *ramp,
                       "--duration", arguments.duration, timeout_s=seconds(arguments.duration) + 900)
        sampled.finish()
        for thread in [leavers, watch]:
            thread.over.set()
            thread.join()
        refused = refusals.finish()
        cluster.nothing_is_left()
        return {"result": result, "answers": answers_of(answers), "sampled": sampled.answers,
                "rows": watch.rows, "left": leavers.left, "left_wrong": leavers.wrong,
                "refusals": refused, "samples": scrape(cluster.http),
                "peak_bytes": cluster.coordinator.peak_rss_bytes()}


def serve_alone(folder, crowd):
    """(answers by request, digests of the sampled ones by index)"""
    with Cluster(folder, prefix_cache="off") as cluster:
        cluster.start_worker("w0", threads=2)
        cluster.load("recall", RECALL, kv_dtype="f32", context=2048, sessions=2)
        answers = folder / "alone.jsonl"
        count = min(DISTINCT, crowd["result"]["requests"])
        bench(cluster, answers, "--clients", 1, "--requests", count, timeout_s=3600)
        return ({a["request"]: a for a in answers_of(answers)},
                {i: sampled_answer(cluster, i)[0] for i in sorted({a[0] for a in crowd["sampled"]})})


def figures(arguments, crowd, alone, sampled_alone):
    result, samples, sampled = crowd["result"], crowd["samples"], crowd["sampled"]
    rows = [row for row in crowd["rows"] if row["at_s"] > seconds(arguments.ramp)]
    busy = [row for row in rows if row["waiting"] > 0]
    least = min(busy, key=lambda row: row["live"], default=None)
    third = max(1, len(rows) // 3)
    differ = [a["request"] for a in crowd["answers"] if "error" not in a and any(
        a[what] != alone[a["request"] % DISTINCT][what] for what in ("text", "generated_tokens"))]
    took = sorted(crowd["refusals"]["seconds"])

    def ended(reason):
        return int(total(samples, "strata_requests_total", finished_reason=reason))

    return {
        "clients": arguments.clients, "duration_s": result["wall_s"],
        "requests": result["requests"] + len(sampled),
        "failed": result["failed"] + sum(wrong is not None for _, _, wrong in sampled),
        "failures": [*result["failures"], *[wrong for _, _, wrong in sampled if wrong][:5]],
        "refused": result["refused"], "went_away": crowd["left"],
        "went_away_wrong": crowd["left_wrong"][:5],
        # By the coordinator's count, which has those that went away.
        "counted_failed": ended("failed"),
        "counted_refused": ended("refused") - len(took),
        "sampled": len(sampled),
        "differ_from_alone": len(differ), "examples": differ[:5],
        "sampled_differ_from_alone": sum(
            wrong is None and digest != sampled_alone[i] for i, digest, wrong in sampled),
        "looks_while_waiting": len(busy),  # One a second, from the ramp's end.
        "least_live_while_waiting": least["live"] if least else None,
        "at_that_moment": least,
        "median_live_while_waiting": statistics.median(row["live"] for row in busy) if busy else None,
        "running": statistics.median(row["running"] for row in rows),
        "waiting": statistics.median(row["waiting"] for row in rows),
        # What it has allocated, and what of that and more is resident.
        **{name: [round(statistics.median(r[of] for r in part) / 2**20, 1)
                  for part in (rows[:third], rows[third:2 * third], rows[2 * third:]) if part]
           for name, of in (("heap_mib", "heap_bytes"), ("rss_mib", "rss_bytes"))},
        "peak_heap_mib": round(max(r["heap_bytes"] for r in rows) / 2**20, 1),
        "peak_rss_mib": round(crowd["peak_bytes"] / 2**20, 1),
        "admission_p99_s": quantile(samples, "strata_admission_seconds", 0.99),
        "admission_parts_p99_s": {
            part: quantile(samples, "strata_admission_part_seconds", 0.99, part=part)
            for part in ("thread", "prepare", "loop", "decide")},
        "refusals_seen": len(took), "refusals_wrong": crowd["refusals"]["wrong"][:5],
        "refusal_seen_s": {f"p{share}": took[min(len(took) - 1, len(took) * share // 100)]
                           for share in (50, 99)} if took else None,
        "preemptions": total(samples, "strata_preemptions_total"),
        "prompt_tokens_per_s": result["prompt_tokens_per_s"],
        "generated_tokens_per_s": result["generated_tokens_per_s"],
        "cached_tokens": result["cached_tokens"],
        "ttft_ms": result["ttft_ms"], "inter_token_ms": result["inter_token_ms"],
    }


def wrong(shown):
    """What was wanted and is not so, however fast the machine is."""
    least = shown["least_live_while_waiting"]
    if shown["failed"] > 0:
        yield f"{shown['failed']} failed, {shown['refused']} of them refused"
    if shown["went_away_wrong"]:
        yield f"clients that went away were answered {shown['went_away_wrong']}"
    if shown["counted_failed"] > 0 or shown["counted_refused"] != 0:
        yield (f"the coordinator counts {shown['counted_failed']} that failed and "
               f"{shown['counted_refused']} that were refused, but for those that never fit")
    if shown["refusals_wrong"]:
        yield f"what can never fit was answered {shown['refusals_wrong']}, not 400"
    if shown["differ_from_alone"] > 0:
        yield f"{shown['differ_from_alone']} answers differ from those alone"
    if shown["sampled"] == 0:
        yield "no answer was drawn by a seed: a longer --duration"
    if shown["sampled_differ_from_alone"] > 0:
        yield (f"{shown['sampled_differ_from_alone']} answers drawn by a seed differ in tokens or "
               "logprobs from those alone")
    if least is None:
        yield "no request ever waited: more --clients, or a smaller --pool"
    elif least < LEAST_LIVE:
        yield f"only {least:.0%} of the pages were in use while requests waited"
    if shown["heap_mib"][-1] > MOST_GROWTH * shown["heap_mib"][0]:
        yield f"the coordinator allocated more and more: {shown['heap_mib']} MiB"
    if shown["peak_heap_mib"] > MOST_PEAK_MIB:
        yield f"the coordinator had allocated {shown['peak_heap_mib']} MiB at its peak"


def missed(shown):
    """What was wanted and is not so."""
    yield from wrong(shown)
    if shown["rss_mib"][-1] > MOST_GROWTH * shown["rss_mib"][0]:
        yield f"the coordinator's memory grew: {shown['rss_mib']} MiB"
    if shown["peak_rss_mib"] > MOST_PEAK_MIB:
        yield f"the coordinator's memory was {shown['peak_rss_mib']} MiB at its peak"
    if shown["admission_p99_s"] > MOST_ADMISSION_S:
        yield f"an admission in a hundred took {shown['admission_p99_s'] * 1000:.3g} ms or longer"


def measure(arguments, folder):
    crowd = serve_crowd(folder / "crowd", arguments)
    return figures(arguments, crowd, *serve_alone(folder / "alone", crowd))


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--ramp", default="10s", help="0s: all at once")
    parser.add_argument("--duration", default="10m")
    parser.add_argument("--pool", type=int, default=40, help="sequences of the mean length")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(argv)


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory() as name:
        shown = measure(arguments, pathlib.Path(name))
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
