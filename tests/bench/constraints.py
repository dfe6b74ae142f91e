#!/usr/bin/env python3
"""What holding answers to a schema costs: tokens a second of several clients over two workers of one thread, without
a schema, with one, and with one whose strings have bounds, in turn; and the first token behind a schema that is new.

    constraints.py [--folder DIR] [--hidden 2048 --layers 22 --heads 32 --kv-heads 4 --ffn 5632] [--vocab 128000]

--folder keeps the random model (as tiny11, in bf16, with a made-up tokenizer of words and signs) for the next run.
Speeds are medians of --rounds rounds, each second one backwards; a ratio is the median of the ratios within rounds.
"""
import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from checkpoints import make_checkpoint  # noqa: E402
from cluster import Cluster, cut  # noqa: E402
from http_client import begin, events, post  # noqa: E402
from test_constraints import byte_characters  # noqa: E402

SPECIAL = ["<unk>", "<s>", "</s>"]


def make_tokenizer(folder, vocab):
    """Byte-level: all bytes, words of lower-case letters with and without a blank before, some with a sign behind."""
    draw = random.Random(1)
    words = dict.fromkeys(byte_characters().values())
    while len(words) < vocab - len(SPECIAL):
        word = "".join(draw.choices("etaoinshrdlucmfwyp", k=draw.randint(2, 8)))
        kind = draw.random()
        words["\u0120" + word if kind < 0.5 else word + draw.choice("\",:;.}{][") if kind < 0.6 else word] = None
    tokenizer = {
        "version": "1.0", "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in enumerate(SPECIAL)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {word: i for i, word in enumerate([*SPECIAL, *words])}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def schema(text, name="member"):
    """Twenty members: texts as `text` says, and numbers. Other names make another grammar."""
    kinds = [text, text, {"type": "integer"}, {"type": "boolean"}]
    properties = {f"{name}{i}": kinds[i % 4] for i in range(20)}
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


KINDS = {"free": {}, "schema": {"guided_json": schema({"type": "string"})},
         "bounds": {"guided_json": schema({"type": "string", "minLength": 4, "maxLength": 64})}}


def body(seed, tokens, held):
    return {"model": "m", "prompt": "one two three", "seed": seed, "temperature": 1, "max_tokens": tokens,
            "ignore_eos": True, **held}


def speed(cluster, clients, tokens, held, seed):
    """Tokens a second of all."""
    made = [0] * clients

    def ask(i):
        made[i] = post(cluster, "/v1/completions", body(seed + i, tokens, held))["usage"]["completion_tokens"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(clients)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made) / (time.monotonic() - start)


def first_token_ms(cluster, held):
    start = time.monotonic()
    connection, response = begin(cluster, "/v1/completions", body(1, 4, held) | {"stream": True})
    next(events(response))
    took = (time.monotonic() - start) * 1e3
    connection.close()
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path)
    for name, value in (("hidden", 2048), ("layers", 22), ("heads", 32), ("kv-heads", 4), ("ffn", 5632),
                        ("vocab", 128000), ("clients", 8), ("tokens", 100), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strata-bench.") as work:
        model = (args.folder or pathlib.Path(work)) / "model"
        if not model.exists():
            model.parent.mkdir(parents=True, exist_ok=True)
            make_checkpoint(model, layers=args.layers, hidden=args.hidden, ffn=args.ffn, vocab=args.vocab,
                            heads=args.heads, kv_heads=args.kv_heads, context=4096, stored="bf16")
            make_tokenizer(model, args.vocab)
        with Cluster(pathlib.Path(work) / "cluster") as cluster:
            for name in ("w0", "w1"):
                cluster.start_worker(name, memory="6GiB")
            cluster.load("m", model, cuts=cut(["w0", "w1"], args.layers), context=1024, sessions=args.clients,
                         quantize="int8")
            first_token_ms(cluster, {"guided_choice": ["the", "model's", "tokens", "are", "known"]})
            free = [first_token_ms(cluster, {}) for _ in range(args.rounds)]
            new = [first_token_ms(cluster, {"guided_json": schema({"type": "string"}, f"new{i}x")}) for i in range(args.rounds)]
            print(f"first token: {statistics.median(free):.0f} ms, behind a new schema {statistics.median(new):.0f} ms")
            for kind, held in KINDS.items():
                print(f"{kind}: first of all after {first_token_ms(cluster, held):.0f} ms")
            speeds = {kind: [] for kind in KINDS}
            for turn in range(args.rounds):
                for kind in list(KINDS)[::-1 if turn % 2 else 1]:
                    speeds[kind].append(speed(cluster, args.clients, args.tokens, KINDS[kind], 100 * turn))
            for kind, values in speeds.items():
                ratio = statistics.median(a / b for a, b in zip(values, speeds["free"]))
                print(f"{kind}: {statistics.median(values):.1f} tokens/s, {ratio:.2f} of free")


if __name__ == "__main__":
    main()
