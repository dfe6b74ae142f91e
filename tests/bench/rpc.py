#!/usr/bin/env python3
"""What requests pay for being served by several processes, on this machine and loopback.

    rpc.py [--rounds N] [--json]

The bundled model is cut into 1, 2, 4 and 8 stages, each a worker of one thread; all of them run at
the same time and are asked in turn, so that whatever else the machine does meets all alike. One
client at a time generates: one token is one step through every stage and back to the coordinator,
which is one hop more than stages. A hop is the step's round trip less what the stages computed, by
the hops; a stage more is what a token takes more for each stage more, the same layers computed.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import RECALL, Cluster, cut  # noqa: E402

STAGES = [1, 2, 4, 8]


def ask(cluster, requests):
    return cluster.json("bench", "recall", "--clients", 1, "--requests", requests,
                        "--prompt-tokens", 16, "--max-tokens", 32)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="times each cluster is asked")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    clusters = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for stages in STAGES:
                cluster = clusters[stages] = Cluster(pathlib.Path(folder) / str(stages))
                names = cluster.start_workers(stages)
                cluster.load("recall", RECALL, cuts=cut(names, 8), context=512, speculate="off")
                ask(cluster, 4)  # Warm.
            first = {stages: [] for stages in STAGES}
            token = {stages: [] for stages in STAGES}
            hop = {stages: [] for stages in STAGES}
            for _ in range(arguments.rounds):
                for stages in STAGES:
                    result = ask(clusters[stages], 8)
                    assert result["failed"] == 0, result
                    first[stages].append(result["ttft_ms"]["p50"])
                    token[stages].append(result["inter_token_ms"]["p50"])
                    shown = clusters[stages].json("model", "show", "recall")
                    hop[stages].append(1000 * shown["hop_ms"])
        finally:
            for cluster in clusters.values():
                cluster.__exit__(None, None, None)
    rows = [{"stages": stages, "ttft_ms": statistics.median(first[stages]),
             "inter_token_ms": statistics.median(token[stages]),
             "hop_us": statistics.median(hop[stages])} for stages in STAGES]
    more = [1000 * (row["inter_token_ms"] - rows[0]["inter_token_ms"]) / (row["stages"] - 1)
            for row in rows[1:]]
    for row, us in zip(rows[1:], more):
        row["stage_more_us"] = us
    result = {"clusters": rows}
    if arguments.json:
        print(json.dumps(result))
        return
    print("stages   first token   each token       a hop   a stage more")
    for row in rows:
        print(f"{row['stages']:6}   {row['ttft_ms']:8.2f} ms   {row['inter_token_ms']:7.3f} ms"
              f"   {row['hop_us']:6.1f} us"
              + (f"   {row['stage_more_us']:9.1f} us" if "stage_more_us" in row else ""))


if __name__ == "__main__":
    main()
