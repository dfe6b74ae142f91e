#!/usr/bin/env python3
"""What two workers of one thread each give one answer, against one of them alone, in one run.

    ranks.py [--models DIR] [--prompts DIR] [--distributed-llama DIR] [--rows R,…] [--rounds N] [--json]

--models is a folder that make_shape.py wrote of a shape at full width, as wide4, and --prompts one whose
layers take long prompts, as tiny6. Without them small random weights are written, which say nothing about
speed. Rows, to choose from with --rows:
    ranks     the tokens a second of one client with int4: all layers over both workers as two ranks, over
              two stages, and on one worker; medians of --rounds, in turn. With --distributed-llama, a folder
              that has its program dllama, that over two nodes of one thread too, and on one
    prompt    the first token behind a prompt of 4,096 tokens with int8: over two stages, whose chunks are
              under way at once, and on one worker; medians of --rounds, in turn
"""
import argparse
import contextlib
import functools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading

from comparison.outputs import parse_dllama
from comparison.programs import TREE
from comparison.samples import DLLAMA

sys.path.insert(0, str(TREE / "tests" / "integration"))
from serving import Table, bench, say  # noqa: E402

ROWS = ("ranks", "prompt")
PROMPT_TOKENS = 4096


@contextlib.contextmanager
def models_on(shape, folder, placements, **load):
    """Of each placement, by name, the command that asks it."""
    import cluster as module
    layers = json.loads((shape / "hf" / "config.json").read_text())["num_hidden_layers"]
    flags = {"lease": "60s", "step_timeout": "60s"}  # It is not failures that are measured.
    with module.Cluster(folder, **flags) as cluster:
        for name in ("w0", "w1"):
            cluster.start_worker(name, threads=1, memory="6GiB")
        for name, place in placements.items():
            cluster.run("model", "add", shape / "hf", "--name", name, timeout_s=600)
            options = {"context": PROMPT_TOKENS + 512, "speculate": "off", **load}
            flat = [x for key, value in options.items() for x in (f"--{key.replace('_', '-')}", value)]
            cluster.run("model", "load", name, "--layers", place(layers), *flat, timeout_s=600)
        yield {name: cluster.command("bench", name) for name in placements}


def alone(layers):
    return f"w0:0-{layers - 1}"


def stages(layers):
    return f"w0:0-{layers // 2 - 1},w1:{layers // 2}-{layers - 1}"


def ranks(layers):
    return f"w0+w1:0-{layers - 1}"


def in_turn(asked, rounds):
    """The median of what each of `asked` gives of a turn, by name; the first round warms up."""
    results = {name: [] for name in asked}
    for turn in range(rounds + 1):
        for name in (list(asked) if turn % 2 else list(reversed(asked))):
            value = asked[name](turn)
            if turn:
                results[name].append(value)
    return {name: statistics.median(values) for name, values in results.items()}


@contextlib.contextmanager
def dllama_worker(program, port):
    """A node of distributed-llama of one thread, which ends with its root: one a run."""
    command = ["stdbuf", "-oL", program, "worker", "--host", "127.0.0.1", "--port", str(port), "--nthreads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            for line in process.stdout:  # "Listening on 127.0.0.1:PORT...", or why it does not.
                if "Listening" in line:
                    break
            else:
                raise RuntimeError(f"{program} worker ended with {process.wait()}")
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield
        finally:
            process.kill()


def ask_dllama(folder, models, nodes):
    """The tokens a second that distributed-llama generates behind 16 tokens on `nodes` nodes of one thread."""
    program = folder / "dllama"
    root = [program, "inference", "--model", models / "q40.m", "--tokenizer", models / "dllama.t",
            "--buffer-float-type", "q80", "--nthreads", "1", "--max-seq-len", "128", "--prompt", "a" * 16,
            "--steps", "80", "--temperature", "0", "--seed", "1"]
    with contextlib.ExitStack() as stack:
        if nodes > 1:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            stack.enter_context(dllama_worker(program, port))
            root += ["--workers", f"127.0.0.1:{port}"]
        return parse_dllama(subprocess.run(root, check=True, capture_output=True, text=True).stdout)[1]


def measure_ranks(arguments, folder, table):
    placements = {"one worker": alone, "two stages": stages, "two ranks": ranks}
    names = {name: name.replace(" ", "-") for name in placements}
    with models_on(arguments.models, folder, {names[n]: p for n, p in placements.items()},
                   quantize="int4") as commands:
        def ask(name, turn):
            return bench(commands[name], "--clients", 1, "--requests", 2, "--prompt-tokens", 16, "--max-tokens", 64,
                         "--seed", turn)["generated_tokens_per_s"]

        asked = {name: functools.partial(ask, name) for name in commands}
        for nodes in (1, 2) if arguments.distributed_llama else ():
            asked[nodes] = lambda _, nodes=nodes: ask_dllama(arguments.distributed_llama, arguments.models, nodes)
        speed = in_turn(asked, arguments.rounds)
    for name in placements:
        table.add(f"one client, {name} of one thread", speed[names[name]], unit="tokens/s")
    ratio = speed["two-ranks"] / speed["one-worker"]
    table.add("two ranks to one worker", ratio, ">= 1.7", ratio >= 1.7)
    if arguments.distributed_llama:
        table.add(f"{DLLAMA}, one node of one thread", speed[1], unit="tokens/s")
        table.add(f"{DLLAMA}, two nodes of one thread", speed[2], unit="tokens/s")
        ratio = speed["two-ranks"] / speed[2]
        table.add(f"two ranks to {DLLAMA}'s two nodes", ratio, ">= 1.4", ratio >= 1.4)


def measure_prompt(arguments, folder, table):
    with models_on(arguments.prompts, folder, {"one-worker": alone, "two-stages": stages}, quantize="int8") as commands:
        def ask(name, turn):
            return bench(commands[name], "--clients", 1, "--requests", 1, "--prompt-tokens", PROMPT_TOKENS,
                         "--max-tokens", 1, "--seed", turn)["ttft_ms"]["p50"]

        first = in_turn({name: functools.partial(ask, name) for name in commands}, arguments.rounds)
    table.add("first token behind 4,096, one worker", first["one-worker"], unit="ms")
    table.add("first token behind 4,096, two stages", first["two-stages"], unit="ms")
    ratio = first["two-stages"] / first["one-worker"]
    table.add("two stages to one worker", ratio, "<= 0.6", ratio <= 0.6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--prompts", type=pathlib.Path)
    parser.add_argument("--distributed-llama", type=pathlib.Path, metavar="DIR", help="has dllama")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one document on standard output")
    arguments = parser.parse_args()
    wanted = arguments.rows.split(",")
    if unknown := set(wanted) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    if arguments.distributed_llama and not (arguments.models and (arguments.models / "q40.m").exists()):
        parser.error("--distributed-llama wants --models with q40.m: make_shape.py writes it")
    if "STRATA_BIN" not in os.environ:
        parser.error("STRATA_BIN is not set: run it as ./dev bench ranks")
    table = Table()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in ("models", "prompts"):
            if getattr(arguments, name) is None:
                say(f"without --{name}: small random weights, which say nothing about speed")
                setattr(arguments, name, scratch / name)
                subprocess.run([sys.executable, pathlib.Path(__file__).with_name("make_shape.py"), "small",
                                scratch / name, "--formats", "hf"], check=True)
        for row, measure in (("ranks", measure_ranks), ("prompt", measure_prompt)):
            if row in wanted:
                say(f"{row}:")
                measure(arguments, scratch / row, table)
    if arguments.json:
        print(json.dumps({"rows": table.rows}))


if __name__ == "__main__":
    main()
