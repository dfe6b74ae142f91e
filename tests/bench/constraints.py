#!/usr/bin/env python3
"""What holding answers to a schema costs, over two workers of one thread: int8, a vocabulary of 128,000.

    constraints.py [--folder DIR] [--rows R,…] [--llama-cpp DIR] [--rounds N] [--prepare]

--folder keeps the random model (as tiny11, in bf16, with a made-up tokenizer of words and signs) for the next run;
--prepare makes it, and ends. Speeds are medians of --rounds rounds, each second one backwards; a ratio is the median
of the ratios within rounds. Rows, to choose from with --rows:
    cost     tokens a second of 8 clients without a schema, with one, and with one whose strings have bounds, in turn;
             and the first token behind a schema that is new
    gaps     4 clients that generate: the longest gap between tokens of any, alone, beside requests with a schema that
             is kept, and beside as many with schemas never seen, which are compiled meanwhile
    llama    8 clients held to the schema, Strata and llama-server in turn: the same weights in Q8_0, their layers
             split over two RPC servers of one thread, by its own grammar of the schema. It needs --llama-cpp, where
             llama.cpp was built with ggml-rpc-server and llama-server (docs/PERFORMANCE.md says how), and the Python
             package gguf
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

from comparison.clusters import split_llama_server
from constraints_model import make_gguf, make_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from cluster import Cluster, cut  # noqa: E402
from http_client import begin, events, post  # noqa: E402

ROWS = ("cost", "gaps", "llama")
PROMPT = "one two three"
STREAMS = 4  # Whose gaps are looked at.
PACE_S = 0.4  # Between requests beside them.


def schema(text, name="member"):
    """Twenty members: texts as `text` says, and numbers. Other names make another grammar."""
    kinds = [text, text, {"type": "integer"}, {"type": "boolean"}]
    properties = {f"{name}{i}": kinds[i % 4] for i in range(20)}
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


SCHEMA = schema({"type": "string"})
KINDS = {"free": {}, "schema": {"guided_json": SCHEMA},
         "bounds": {"guided_json": schema({"type": "string", "minLength": 4, "maxLength": 64})}}


def say(text):
    print(text, flush=True)


def body(seed, tokens, held):
    return {"model": "m", "prompt": PROMPT, "seed": seed, "temperature": 1, "max_tokens": tokens,
            "ignore_eos": True, **held}


def strata_answer(cluster, seed, tokens, held):
    """(text, tokens)."""
    answer = post(cluster, "/v1/completions", body(seed, tokens, held))
    return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]


def llama_answer(url, seed, tokens, held):
    asked = {"prompt": PROMPT, "seed": seed, "temperature": 1, "top_k": 40, "top_p": 1, "min_p": 0,
             "n_predict": tokens, "ignore_eos": True, "cache_prompt": False, **held}
    request = urllib.request.Request(f"{url}/completion", json.dumps(asked).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=1800) as response:
        answer = json.load(response)
    return answer["content"], answer["tokens_predicted"]


def speed(answer, clients, is_held):
    """Tokens a second of all; `answer(i)` is what a client gets."""
    made = [0] * clients

    def ask(i):
        text, made[i] = answer(i)
        assert not is_held or text.startswith("{"), text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(clients)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(made), made
    return sum(made) / (time.monotonic() - start)


def in_turn(rounds, measures):
    """{name: [a value a round]}, each second round backwards. `measures`: {name: function of the round}."""
    values = {name: [] for name in measures}
    for turn in range(rounds):
        for name in list(measures)[::-1 if turn % 2 else 1]:
            values[name].append(measures[name](turn))
    return values


def ratio(values, others):
    return statistics.median(a / b for a, b in zip(values, others))


def first_token_ms(cluster, held):
    start = time.monotonic()
    connection, response = begin(cluster, "/v1/completions", body(1, 4, held) | {"stream": True})
    next(events(response))
    took = (time.monotonic() - start) * 1e3
    connection.close()
    return took


def new_schema(name):
    return {"guided_json": schema({"type": "string"}, name)}


def measure_cost(cluster, args):
    free = [first_token_ms(cluster, {}) for _ in range(args.rounds)]
    new = [first_token_ms(cluster, new_schema(f"new{i}x")) for i in range(args.rounds)]
    say(f"first token: {statistics.median(free):.0f} ms, behind a new schema {statistics.median(new):.0f} ms")
    for kind, held in KINDS.items():
        say(f"{kind}: first of all after {first_token_ms(cluster, held):.0f} ms")
    speeds = in_turn(args.rounds, {
        kind: lambda turn, held=held: speed(
            lambda i: strata_answer(cluster, 100 * turn + i, args.tokens, held), args.clients, bool(held))
        for kind, held in KINDS.items()})
    for kind, values in speeds.items():
        say(f"{kind}: {statistics.median(values):.1f} tokens/s, {ratio(values, speeds['free']):.2f} of free")


def stream_gaps_ms(cluster, seed, tokens, gaps):
    """Appends the gaps of one answer. Its chunks have logprobs, so that there is one for each token."""
    connection, response = begin(cluster, "/v1/completions",
                                 body(seed, tokens, {"logprobs": 0}) | {"stream": True})
    last = None
    for event in events(response):
        now = time.monotonic()
        if event != "[DONE]" and last is not None:
            gaps.append((now - last) * 1e3)
        last = now
    connection.close()


def gaps_ms(cluster, args, seed, beside):
    """All gaps of streams that run beside requests that `beside(number)` holds; None: alone."""
    gaps, asked = [], 0
    streams = [threading.Thread(target=stream_gaps_ms, args=(cluster, seed + i, args.gap_tokens, gaps))
               for i in range(STREAMS)]
    for thread in streams:
        thread.start()
    while any(thread.is_alive() for thread in streams):
        if beside is None:
            time.sleep(0.05)
            continue
        begun = time.monotonic()
        strata_answer(cluster, asked, 1, beside(asked))
        asked += 1
        time.sleep(max(0.0, PACE_S - (time.monotonic() - begun)))
    return sorted(gaps), asked


def measure_gaps(cluster, args):
    kept = new_schema("kept")
    strata_answer(cluster, 1, 1, kept)
    besides = {"alone": lambda turn: None, "beside a kept schema": lambda turn: lambda number: kept,
               "beside new schemas": lambda turn: lambda number: new_schema(f"gap{turn}x{number}y")}
    measured = in_turn(args.rounds, {name: lambda turn, make=make: gaps_ms(cluster, args, 1000 + 10 * turn, make(turn))
                                     for name, make in besides.items()})
    step = statistics.median(statistics.median(gaps) for gaps, _ in measured["alone"])
    say(f"a step of {STREAMS} clients: {step:.1f} ms")
    longest = {}
    for name, rounds in measured.items():
        longest[name] = [gaps[-1] for gaps, _ in rounds]
        say(f"{name}: gaps of {statistics.median(statistics.median(g) for g, _ in rounds):.1f} ms, 99 of 100 within "
            f"{statistics.median(g[int(0.99 * len(g))] for g, _ in rounds):.1f} ms, the longest "
            f"{statistics.median(longest[name]):.1f} ms (requests beside: {sum(n for _, n in rounds)})")
    for name in ("alone", "beside a kept schema"):
        grown = statistics.median(a - b for a, b in zip(longest["beside new schemas"], longest[name]))
        say(f"the longest gap beside new schemas is {grown:.1f} ms longer than {name}: {grown / step:.2f} steps")


def measure_llama(cluster, args, folder, gguf):
    with split_llama_server(args.llama_cpp, gguf, folder / "llama", args.clients, 256 * args.clients, "on") as url:
        tokens = args.llama_tokens
        for held in ({}, {"json_schema": SCHEMA}):  # Warm.
            speed(lambda i: llama_answer(url, i, 2, held), args.clients, False)
        speeds = in_turn(args.rounds, {
            "Strata": lambda turn: speed(
                lambda i: strata_answer(cluster, 100 * turn + i, tokens, KINDS["schema"]), args.clients, True),
            "llama-server": lambda turn: speed(
                lambda i: llama_answer(url, 100 * turn + i, tokens, {"json_schema": SCHEMA}), args.clients, True),
            "llama-server, free": lambda turn: speed(
                lambda i: llama_answer(url, 100 * turn + i, tokens, {}), args.clients, False)})
    for name, values in speeds.items():
        say(f"{name}: {statistics.median(values):.1f} tokens/s of {args.clients} answers of {tokens} tokens")
    say(f"held to the schema: {ratio(speeds['Strata'], speeds['llama-server']):.2f} times llama-server")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--rows", default=None, help="default: all, llama where --llama-cpp is given")
    parser.add_argument("--llama-cpp", metavar="DIR")
    for name, value in (("hidden", 2048), ("layers", 22), ("heads", 32), ("kv-heads", 4), ("ffn", 5632),
                        ("vocab", 128000), ("clients", 8), ("tokens", 100), ("gap-tokens", 150), ("llama-tokens", 24),
                        ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    rows = args.rows.split(",") if args.rows else [row for row in ROWS if row != "llama" or args.llama_cpp]
    if unknown := [row for row in rows if row not in ROWS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(ROWS)}")
    if "llama" in rows and not args.llama_cpp:
        parser.error("the row llama needs --llama-cpp")
    if args.prepare and args.folder is None:
        parser.error("--prepare needs --folder")
    args.rows = rows
    return args


def main():
    args = parse_arguments()
    shape = {name: getattr(args, name) for name in ("hidden", "layers", "heads", "kv_heads", "ffn", "vocab")}
    with tempfile.TemporaryDirectory(prefix="strata-bench.") as work, contextlib.ExitStack() as stack:
        folder = args.folder or pathlib.Path(work)
        model, gguf = folder / "model", folder / "q8_0.gguf"
        if not (model / "tokenizer.json").exists():
            make_model(model, shape)
        if "llama" in args.rows and not gguf.exists():
            make_gguf(model, gguf, shape)
        if args.prepare:
            return
        cluster = stack.enter_context(Cluster(pathlib.Path(work) / "cluster"))
        for name in ("w0", "w1"):
            cluster.start_worker(name, memory="6GiB")
        cluster.load("m", model, cuts=cut(["w0", "w1"], args.layers), context=1024,
                     sessions=args.clients + STREAMS, quantize="int8", speculate="off")
        first_token_ms(cluster, {"guided_choice": ["the", "model's", "tokens", "are", "known"]})
        for row in args.rows:
            say(f"{row}:")
            if row == "cost":
                measure_cost(cluster, args)
            elif row == "gaps":
                measure_gaps(cluster, args)
            else:
                measure_llama(cluster, args, pathlib.Path(work), gguf)


if __name__ == "__main__":
    main()
