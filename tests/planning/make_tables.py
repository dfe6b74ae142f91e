#!/usr/bin/env python3
"""What `strata plan --machines` says of this folder's machines and models, beside splits in
proportion to memory, as tables of docs/PLANNING.md.

    make_tables.py [--check]

Writes them between their marks in that document; with --check it says whether they stand there.

Splits in proportion to memory are those of exo (src/exo/master/placement_utils.py of its
repository, read at 027f237): as few machines as together have the memory of the weights, of those
sets the one with the most memory; each gets its share of the layers by its memory, rounded down,
and what is left goes to the largest remainders, one each. Both splits are judged by the same model
of time, Strata's planner: the other one is handed to it as --layers.
"""
import argparse
import itertools
import pathlib
import re
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from cluster import SOURCE, Cluster, Failed  # noqa: E402

DOCUMENT = SOURCE / "docs" / "PLANNING.md"
CASES = [("macs-at-home", "llama-3.3-70b", "int4"), ("macs-at-home", "llama-3.3-70b", "int8"),
         ("macs-of-a-studio", "llama-3.3-70b", "int8"), ("macs-of-a-studio", "qwen3-235b-a22b", "int8"),
         ("gpu-boxes", "llama-3.3-70b", "int4"), ("gpu-boxes", "qwen3-30b-a3b", "int8"),
         ("boxes-and-macs", "llama-3.3-70b", "int4"), ("boxes-and-macs", "qwen3-235b-a22b", "int4")]
UNITS = {"GiB": 2**30, "MiB": 2**20}


def memory_bytes(machine):
    number, unit = re.fullmatch(r"([0-9.]+)(GiB|MiB)", machine["memory"]).groups()
    return float(number) * UNITS[unit]


def by_memory(machines, layers, weight_bytes):
    """[(name, first layer, last layer)] in proportion to memory, or None where no set has room. Of
    machines of different kinds only those of one are a set: such a ring has one framework."""
    sets = []
    for kind in {m.get("device", "cpu") for m in machines.values()}:
        alike = [name for name, m in machines.items() if m.get("device", "cpu") == kind]
        for count in range(1, len(alike) + 1):
            for names in itertools.combinations(alike, count):
                total = sum(memory_bytes(machines[name]) for name in names)
                if total >= weight_bytes:
                    sets.append((count, -total, names))
    if not sets:
        return None
    _, total, names = min(sets)
    raw = [memory_bytes(machines[name]) / -total * layers for name in names]
    given = [int(share) for share in raw]
    by_remainder = sorted(range(len(names)), key=lambda i: raw[i] - given[i], reverse=True)
    for i in by_remainder[:layers - sum(given)]:
        given[i] += 1
    first, split = 0, []
    for name, count in zip(names, given):
        if count > 0:
            split.append((name, first, first + count - 1))
        first += count
    return split


def planned(cluster, machines, model, quantize, *flags):
    return cluster.json("plan", HERE / "models" / f"{model}.json", "--machines", HERE / "machines" / f"{machines}.toml",
                        "--quantize", quantize, "--context", "8192", "--sessions", "1", *flags)


def stages(plan):
    return [(s["node"], s["first_layer"], s["last_layer"]) for s in plan["stages"]]


def told(split):
    return ", ".join(f"{name} {last - first + 1}" for name, first, last in split)


def speed(plan):
    return plan["predicted_tokens_per_s"]


def rounded(value):
    return f"{value:.3g}"


def rows(cluster):
    for machines, model, quantize in CASES:
        inventory = tomllib.loads((HERE / "machines" / f"{machines}.toml").read_text())["machines"]
        what = f"{machines} | {model} {quantize}"
        try:
            best = planned(cluster, machines, model, quantize)
        except Failed as error:
            yield f"| {what} | no room: {error.err.splitlines()[0]} | | | | |"
            continue
        weights = sum(s["weight_bytes"] for s in best["stages"])
        layers = best["stages"][-1]["last_layer"] + 1
        split = by_memory(inventory, layers, weights)
        ours = f"{told(stages(best))} | {rounded(speed(best))}"
        if split is None:
            yield f"| {what} | {ours} | none has room | | |"
            continue
        try:
            other = planned(cluster, machines, model, quantize, "--layers", ",".join(f"{n}:{a}-{b}" for n, a, b in split))
            yield f"| {what} | {ours} | {told(split)} | {rounded(speed(other))} | {speed(best) / speed(other):.2f} |"
        except Failed:
            yield f"| {what} | {ours} | {told(split)} | no room for KV and buffers | |"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true")
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(folder) as cluster:
        table = "\n".join(["| machines | model | Strata's layers | tokens/s | in proportion to memory | tokens/s | ratio |",
                           "|---|---|---|---|---|---|---|", *rows(cluster)])
    text = DOCUMENT.read_text()
    made = re.sub(r"(<!-- begin splits -->\n).*?(<!-- end splits -->)", lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.S)
    if arguments.check:
        if made != text:
            sys.exit(f"docs/PLANNING.md has other tables than this makes; run tests/planning/make_tables.py\n{table}")
        return
    DOCUMENT.write_text(made)
    print(table)


if __name__ == "__main__":
    main()
