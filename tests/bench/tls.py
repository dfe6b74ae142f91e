#!/usr/bin/env python3
"""What certificates cost: the same model on two workers of one thread each, in plain text and with mutual TLS.

    tls.py --model DIR [--rounds N] [--clients N] [--requests N]

DIR is a folder with weights as make_shape.py writes them (docs/PERFORMANCE.md). Both clusters are there at the same
time, by loopback, and are asked in turn, each second round the other way round. Clients speak gRPC, with a
certificate of their own where the cluster has them. Speeds and first tokens are medians of the rounds, a ratio is the
median of the ratios within rounds.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from cluster import BIN, Cluster, cut  # noqa: E402

KINDS = ("plain", "tls")


def make_clusters(folder, model, layers):
    subprocess.run([BIN / "strata", "cluster", "init", "--dir", folder / "pki", "--hosts", "127.0.0.1,localhost"],
                   check=True, stdout=subprocess.DEVNULL)
    for kind in KINDS:
        cluster = Cluster(folder / kind, tls_dir=folder / "pki" / "coordinator" if kind == "tls" else None)
        yield kind, cluster
        names = []
        for name in ("w0", "w1"):
            cluster.start_worker(name, memory="4GiB")
            names.append(name)
        cluster.load("m", model, cuts=cut(names, layers), quantize="int8", context=2048, sessions=8, speculate="off")


def ask(cluster, args):
    result = cluster.json("bench", "m", "--clients", args.clients, "--requests", args.requests, "--prompt-tokens", 32,
                          "--max-tokens", 64)
    assert result["failed"] == 0, result
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=22, help="that the model has")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=16)
    args = parser.parse_args()
    clusters = {}
    with tempfile.TemporaryDirectory(prefix="strata-bench.") as folder:
        try:
            for kind, cluster in make_clusters(pathlib.Path(folder), args.model, args.layers):
                clusters[kind] = cluster
            for cluster in clusters.values():
                ask(cluster, args)  # Warm.
            speed = {kind: [] for kind in KINDS}
            first = {kind: [] for kind in KINDS}
            for turn in range(args.rounds):
                for kind in KINDS[::-1 if turn % 2 else 1]:
                    result = ask(clusters[kind], args)
                    speed[kind].append(result["generated_tokens_per_s"])
                    first[kind].append(result["ttft_ms"]["p50"])
        finally:
            for cluster in clusters.values():
                cluster.__exit__(None, None, None)
    for kind in KINDS:
        print(f"{kind:5}  {statistics.median(speed[kind]):7.1f} tokens/s  first token after "
              f"{statistics.median(first[kind]):7.1f} ms")
    more = statistics.median(tls / plain for tls, plain in zip(speed["tls"], speed["plain"]))
    sooner = statistics.median(plain / tls for tls, plain in zip(first["tls"], first["plain"]))
    print(f"TLS: {more:.3f} of the tokens/s, {sooner:.3f} of the speed to the first token")


if __name__ == "__main__":
    main()
