#!/usr/bin/env python3
"""GGUF's formats beside Strata's own, one worker by itself, in one run.

    formats.py --models DIR [--formats F,…] [--rounds N] [--threads 1,2] [--layers A-B] [--json]

--models is a folder that `make_shape.py tiny6 DIR --formats hf,gguf,kquants,codes` wrote; `--formats
codes` measures what is kept in 4-bit codes, and int4. Each round runs
`strata-worker bench` once with every format, the next round backwards; a ratio is of two runs of the
same round, and the median of all rounds counts. Layers 1-4 are measured and nothing else, so that
embedding and head, which int4 keeps in int8, are the same for all.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]

# Format: its file, what it is quantized to, and Strata's own that it is compared with.
FORMATS = {
    "int8": ("hf", "int8", None),
    "Q8_0": ("q8_0.gguf", "none", "int8"),
    "Q6_K": ("q6_k.gguf", "none", "int8"),
    "Q5_K": ("q5_k.gguf", "none", "int8"),
    "int4": ("hf", "int4", None),
    "Q4_0": ("q4_0.gguf", "none", "int4"),
    "Q4_K": ("q4_k.gguf", "none", "int4"),
    "MXFP4": ("mxfp4.gguf", "none", "int4"),
    "IQ4_NL": ("iq4_nl.gguf", "none", "int4"),
    "IQ4_XS": ("iq4_xs.gguf", "none", "int4"),
    "nvfp4": ("nvfp4", "none", "int4"),
    "nf4": ("nf4", "none", "int4"),
}
CODES = ["int4", "MXFP4", "IQ4_NL", "IQ4_XS", "nvfp4", "nf4"]
# What of int4's speed codes have to generate with, at as many bits a weight.
CODES_TARGET = 0.85
WHAT = {"generation": "generated_tokens_per_s", "prompt": "prompt_tokens_per_s"}
TARGET = 0.8


def bench(worker, models, name, threads, layers, generate):
    file, quantize, _ = FORMATS[name]
    command = [worker, "bench", "--model", models / file, "--quantize", quantize, "--layers", layers,
               "--threads", threads, "--prompt", 512, "--generate", generate, "--batch", 1, "--json"]
    out = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"formats.py: {' '.join(map(str, command))}:\n{out.stderr}")
    return json.loads(out.stdout)


def measure(arguments):
    """{(format, threads): [documents, one a round]}"""
    samples = {}
    for round_ in range(arguments.rounds):
        runs = [(name, threads) for threads in arguments.threads for name in arguments.formats]
        for name, threads in runs if round_ % 2 == 0 else reversed(runs):
            document = bench(arguments.strata / "strata-worker", arguments.models, name, threads,
                             arguments.layers, arguments.generate)
            samples.setdefault((name, threads), []).append(document)
            print(f"round {round_ + 1}: {name}, {threads} threads: "
                  f"{document['generated_tokens_per_s']:.1f} generated, "
                  f"{document['prompt_tokens_per_s']:.0f} of a prompt", file=sys.stderr, flush=True)
    return samples


def rows_of(samples):
    rows = []
    for (name, threads), documents in sorted(samples.items(), key=lambda item: item[0][1]):
        row = {"format": name, "threads": threads, "against": FORMATS[name][2],
               "memory_bytes": documents[0]["memory_bytes"],
               "bandwidth_share": statistics.median(d["bandwidth_share"] for d in documents)}
        for what, key in WHAT.items():
            row[what] = statistics.median(d[key] for d in documents)
            if row["against"]:
                row[f"{what}_ratio"] = statistics.median(
                    ours[key] / own[key]
                    for ours, own in zip(documents, samples[(row["against"], threads)]))
        rows.append(row)
    return rows


def meets(row):
    if row["format"] in CODES:
        return row["generation_ratio"] >= CODES_TARGET
    return min(row[f"{what}_ratio"] for what in WHAT) >= TARGET


def markdown(rows):
    lines = ["| | threads | generation, tokens/s | of the bandwidth | ratio | prompt of 512 | ratio | |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        ratios = [row.get(f"{what}_ratio") for what in WHAT]
        shown = ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        verdict = "" if None in ratios else "met" if meets(row) else "missed"
        name = row["format"] + (f" against {row['against']}" if row["against"] else "")
        lines.append(f"| {name} | {row['threads']} | {row['generation']:.1f} | "
                     f"{row['bandwidth_share']:.0%} | {shown[0]} | {row['prompt']:.0f} | {shown[1]} | "
                     f"{verdict} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--strata", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("STRATA_BIN", TREE / "build/bin")),
                        help="where strata-worker is (default: this tree's build)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 2])
    parser.add_argument("--layers", default="1-4")
    parser.add_argument("--generate", type=int, default=96, help="tokens of an answer")
    parser.add_argument("--json", action="store_true", help="every row as JSON")
    parser.add_argument("--formats", default=list(FORMATS),
                        type=lambda text: CODES if text == "codes" else text.split(","),
                        help="codes, or some of " + ",".join(FORMATS) + ", those compared with too")
    arguments = parser.parse_args()
    for name in arguments.formats:
        if name not in FORMATS or FORMATS[name][2] not in [None, *arguments.formats]:
            parser.error(f"--formats: {name} is none of them, or what it is compared with is missing")
    rows = rows_of(measure(arguments))
    print(json.dumps(rows, indent=1) if arguments.json else markdown(rows))


if __name__ == "__main__":
    main()
