#!/usr/bin/env python3
"""What many clients get from two workers of one thread, int8, on this machine, in one run.

    serving.py [--models DIR] [--llama-cpp DIR] [--rows R,…] [--rounds N] [--json]

--models is a folder that make_shape.py wrote, for all rows but texts, --llama-cpp where llama.cpp was built with
ggml-rpc-server and llama-server (docs/PERFORMANCE.md says how). Rows, to choose from with --rows:
    clients   1, 2, 4, 8 and 32 clients over HTTP, prompts of 32 tokens and answers of 64, Strata and
              llama-server with the layers split over two RPC servers in turn, medians of --rounds
    busy      32 clients that generate: the share of the time in which the slowest stage computes, and
              tokens/s against what its own steps of 16 rows take alone (strata-worker bench)
    prompt    one client's prompts of 1,500 tokens beside 8 that generate: what either does to the other
    prefix    64 requests with the same 1,000 tokens in front: how much of the prompts is computed, and
              the first token of one that finds them against one that has only the rest
    start     a worker of two threads that comes back and reads what it packed before, from the page
              cache: medians of --rounds
    texts     a small request of one key beside 60 texts of 4 MB of two others that can never fit, on
              the bundled model: its first token against the same alone, medians of 20; and beside 12
              such texts to /tokenize, medians of 5. --models is not needed
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from comparison.clusters import split_llama_server
from comparison.programs import TREE

sys.path.insert(0, str(TREE / "tests" / "integration"))
from metrics_text import scrape, total  # noqa: E402
from texts import measure_texts  # noqa: E402

ROWS = ("clients", "busy", "prompt", "prefix", "start", "texts")
CLIENTS = (1, 2, 4, 8, 32)
LAYERS = 22
CUT = LAYERS // 2


def say(text):
    print(text, file=sys.stderr, flush=True)


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, value, target=None, met=None, unit=""):
        self.rows.append({"what": what, "value": value, "unit": unit, "target": target, "met": met})
        say(f"  {what}: {value:.4g} {unit}" + (f" (target {target})" if target else ""))


def bench(command, *flags):
    """The document of `strata bench`; every request has to be answered."""
    out = subprocess.run([*map(str, command), *map(str, flags), "--json"], capture_output=True,
                         text=True, timeout=1800)
    if out.returncode != 0:
        sys.exit(f"{' '.join(map(str, [*command, *flags]))}:\n{out.stderr}")
    return json.loads(out.stdout)


@contextlib.contextmanager
def strata_cluster(arguments, folder, **load):
    import cluster as module
    flags = {"lease": "60s", "step_timeout": "60s"}  # It is not failures that are measured.
    with module.Cluster(folder, **flags) as cluster:
        for name in ("w0", "w1"):
            cluster.start_worker(name, threads=1, memory="6GiB")
        cluster.run("model", "add", arguments.models / "hf", "--name", "shape", timeout_s=600)
        options = {"context": 2048, "kv_tokens": 40 * 1024, "speculate": "off", **load}
        flat = [x for name, value in options.items() for x in (f"--{name.replace('_', '-')}", value)]
        cluster.run("model", "load", "shape", "--quantize", "int8", "--layers",
                    f"w0:0-{CUT - 1},w1:{CUT}-{LAYERS - 1}", *flat, timeout_s=600)
        yield cluster


def over_http(cluster):
    return cluster.command("bench", "shape", "--openai", f"http://{cluster.http}")


def llama_server(arguments, folder, flash):
    return split_llama_server(arguments.llama_cpp, arguments.models / "q8_0.gguf", folder, max(CLIENTS),
                              128 * max(CLIENTS), flash)


def measure_clients(arguments, folder, table):
    """Engines are all there at once and asked in turn."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(strata_cluster(arguments, folder / "clients"))
        asked = {"Strata": over_http(cluster)}
        if arguments.llama_cpp:
            for flash in ("on", "off"):
                url = stack.enter_context(llama_server(arguments, folder / f"llama-{flash}", flash))
                asked[f"llama-server, flash attention {flash}"] = [
                    *cluster.command("bench", "shape"), "--openai", url]
        # All are warm: llama-server warms up by itself, Strata learns what steps take.
        for name in asked:
            bench(asked[name], "--clients", 8, "--requests", 16, "--prompt-tokens", 32,
                  "--max-tokens", 64)
        results = {}
        for turn in range(arguments.rounds):
            for clients in CLIENTS:
                names = list(asked) if turn % 2 == 0 else list(reversed(asked))
                for name in names:
                    report = bench(asked[name], "--clients", clients, "--requests",
                                   max(2 * clients, 4), "--prompt-tokens", 32, "--max-tokens", 64,
                                   "--seed", 1 + turn)
                    if report["generated_tokens"] != 64 * report["requests"]:
                        sys.exit(f"{name}: {report['generated_tokens']} tokens in "
                                 f"{report['requests']} answers of 64")
                    results.setdefault((name, clients), []).append(report["generated_tokens_per_s"])
    for clients in CLIENTS:
        speed = {name: statistics.median(results[name, clients]) for name in asked}
        for name, value in speed.items():
            table.add(f"{name}, {clients} clients", value, unit="tokens/s")
        theirs = max((v for n, v in speed.items() if n != "Strata"), default=0)
        if theirs:
            ratio = speed["Strata"] / theirs
            met = ratio >= 5 if clients == 8 else None
            table.add(f"Strata to llama-server, {clients} clients", ratio,
                      ">= 5" if clients == 8 else None, met)


def sixteen_rows_ms(arguments, context):
    """The slower half's steps of 16 rows, alone on the machine, around that many tokens."""
    slowest = 0
    for layers in (f"0-{CUT - 1}", f"{CUT}-{LAYERS - 1}"):
        out = subprocess.run([str(pathlib.Path(os.environ["STRATA_BIN"]) / "strata-worker"), "bench",
                              "--model", str(arguments.models / "hf"), "--layers", layers,
                              "--quantize", "int8", "--threads", "1", "--prompt",
                              str(max(1, context - 32)), "--generate", "64", "--batch", "16", "--json"],
                             capture_output=True, text=True, timeout=900, check=True)
        (batch,) = json.loads(out.stdout)["batch"]
        slowest = max(slowest, 1000 * 16 / batch["generated_tokens_per_s"])
    return slowest


def measure_busy(arguments, folder, table):
    with strata_cluster(arguments, folder / "busy") as cluster:
        command = over_http(cluster)
        bench(command, "--clients", 32, "--requests", 32, "--max-tokens", 8)  # Warm.
        warm = scrape(cluster.http)
        running = subprocess.Popen([*map(str, command), "--clients", "32", "--requests", "32",
                                    "--prompt-tokens", "32", "--max-tokens", "900", "--seed", "3"],
                                   stdout=subprocess.DEVNULL)
        time.sleep(15)  # All have begun.
        first, begin = scrape(cluster.http), time.monotonic()
        time.sleep(30)
        last, end = scrape(cluster.http), time.monotonic()
        if total(last, "strata_requests_running") != 32:
            sys.exit("32 clients were not running all the time")
        running.terminate()
        running.wait()
    name = "strata_generation_tokens_total"
    generated = (total(first, name) + total(last, name)) / 2 - total(warm, name)
    context = 32 + round(generated / 32)
    alone = statistics.mean(sixteen_rows_ms(arguments, context) for _ in range(2))

    def rate(name, **labels):
        return (total(last, name, **labels) - total(first, name, **labels)) / (end - begin)

    shares = [rate("strata_stage_compute_seconds_total", stage=str(s)) for s in (0, 1)]
    speed = rate("strata_generation_tokens_total")
    possible = 16 * 1000 / alone
    table.add("busy share of the slowest stage, 32 clients", max(shares), ">= 0.92",
              max(shares) >= 0.92)
    table.add("32 clients that generate", speed, unit="tokens/s")
    table.add(f"its step of 16 rows alone, after {context} tokens", alone, unit="ms")
    table.add("tokens/s to 16 rows by that step", speed / possible, ">= 0.92",
              speed / possible >= 0.92)


def measure_prompt(arguments, folder, table):
    with strata_cluster(arguments, folder / "prompt") as cluster:
        # Over gRPC: without a tokenizer tokens have no text, and HTTP's streams nothing to say.
        command = cluster.command("bench", "shape")

        def decode(seed):
            return bench(command, "--clients", 8, "--requests", 8, "--prompt-tokens", 16,
                         "--max-tokens", 240, "--seed", seed)["inter_token_ms"]["p95"]

        def prompts(count, seed):
            return bench(command, "--clients", 1, "--requests", count, "--prompt-tokens", 1500,
                         "--max-tokens", 1, "--seed", seed)["ttft_ms"]["p50"]

        alone_itl, beside_itl, alone_ttft, beside_ttft, late = [], [], [], [], 0
        decode(50)
        for turn in range(arguments.rounds):
            alone_itl.append(decode(100 + turn))
            alone_ttft.append(prompts(2, 200 + turn))
            both = []
            thread = threading.Thread(target=lambda: both.append(decode(300 + turn)))
            thread.start()
            time.sleep(1)  # They generate.
            first = True
            while thread.is_alive():
                ttft = prompts(1, 400 + 50 * turn + len(beside_ttft))
                # One that began late and ended alone says nothing; a turn's first one that outlasts
                # the answers was faster at its end than beside them, and counts.
                if first or thread.is_alive():
                    beside_ttft.append(ttft)
                    late += not thread.is_alive()
                first = False
            thread.join()
            beside_itl += both
    if late:
        say(f"  {late} of {len(beside_ttft)} prompts outlasted the answers, and count with less than "
            "they would have taken beside them")
    itl = statistics.median(beside_itl) / statistics.median(alone_itl)
    ttft = statistics.median(beside_ttft) / statistics.median(alone_ttft)
    table.add("8 clients, p95 between tokens", statistics.median(alone_itl), unit="ms")
    table.add("the same beside prompts of 1,500", statistics.median(beside_itl), unit="ms")
    table.add("of that alone", itl, "<= 1.5", itl <= 1.5)
    table.add("first token of 1,500", statistics.median(alone_ttft), unit="ms")
    table.add("the same beside 8 that generate", statistics.median(beside_ttft), unit="ms")
    table.add("of that alone", ttft, "<= 2.5", ttft <= 2.5)


def measure_prefix(arguments, folder, table):
    with strata_cluster(arguments, folder / "prefix", kv_tokens=90 * 1024) as cluster:
        command = cluster.command("bench", "shape")
        own = ["--prompt-tokens", 16, "--max-tokens", 1]
        bench(command, "--clients", 1, "--requests", 2, *own, "--seed", 90)  # Warm.
        crowd = bench(command, "--clients", 64, "--requests", 64, "--shared-prefix", 1000, *own,
                      "--seed", 1)
        prompt_tokens = 64 * 1016
        share = 1 - crowd["cached_tokens"] / prompt_tokens
        hit, bare = [], []
        for turn in range(arguments.rounds):
            seed = ["--seed", 500 + turn]
            alone = bench(command, "--clients", 1, "--requests", 8, *own, *seed)
            bare.append(alone["ttft_ms"]["p50"])
            shared = ["--shared-prefix", 1000]
            # Fills the cache for this seed, and is not counted.
            bench(command, "--clients", 1, "--requests", 1, *shared, *own, *seed)
            after = bench(command, "--clients", 1, "--requests", 8, *shared, *own, *seed)
            hit.append(after["ttft_ms"]["p50"])
    ratio = statistics.median(hit) / statistics.median(bare)
    table.add("prompt tokens computed of 64 x (1,000 shared + 16)", share, "<= 0.05", share <= 0.05)
    table.add("first token of 16", statistics.median(bare), unit="ms")
    table.add("first token of 1,000 cached + 16", statistics.median(hit), unit="ms")
    table.add("of that of 16", ratio, "<= 1.3", ratio <= 1.3)


def measure_start(arguments, folder, table):
    import cluster as module
    seconds = []
    with module.Cluster(folder / "start", lease="60s", step_timeout="60s") as cluster:
        cluster.run("model", "add", arguments.models / "hf", "--name", "shape", timeout_s=600)
        for turn in range(arguments.rounds + 1):
            worker = cluster.start_worker("w0", threads=2, memory="6GiB")
            cluster.run("model", "load", "shape", "--quantize", "int8", "--context", 2048,
                        timeout_s=600)
            line = worker.wait_for(r'"?layers are ready.*').group(0)
            if turn > 0:  # The first one packs.
                if re.search(r"packed_before\W+0 B", line):
                    sys.exit(f"nothing was kept: {line}")
                seconds.append(int(re.search(r"took_ms\W+(\d+)", line).group(1)) / 1000)
            cluster.run("model", "unload", "shape")
            worker.stop()
    packed = sum(f.stat().st_size for f in (folder / "start" / "w0").rglob("packed/*/*"))
    target = 0.5 * packed / 1e9
    took = statistics.median(seconds)
    table.add(f"start with {packed / 1e9:.2f} GB packed before, in memory", took,
              f"<= {target:.2f}", took <= target, unit="s")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--llama-cpp", metavar="DIR")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = arguments.rows.split(",")
    if unknown := [row for row in rows if row not in ROWS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(ROWS)}")
    if arguments.models is None and set(rows) != {"texts"}:
        parser.error("--models is needed for all rows but texts")
    os.environ.setdefault("STRATA_BIN", str(TREE / "build" / "bin"))
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        for row, measure in (("clients", measure_clients), ("busy", measure_busy),
                             ("prompt", measure_prompt), ("prefix", measure_prefix),
                             ("start", measure_start), ("texts", measure_texts)):
            if row in rows:
                say(f"{row}:")
                measure(arguments, pathlib.Path(name), table)
    if arguments.json:
        print(json.dumps(table.rows))
        return
    print("| | | target | |\n|---|---|---|---|")
    for row in table.rows:
        verdict = {None: "", True: "met", False: "missed"}[row["met"]]
        print(f"| {row['what']} | {row['value']:.4g} {row['unit']} | {row['target'] or ''} | {verdict} |")


if __name__ == "__main__":
    main()
