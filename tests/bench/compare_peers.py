#!/usr/bin/env python3
"""Strata and other engines on the same random weights, on this machine, in one run.

    compare_peers.py --models DIR [--llama-cpp DIR] [--ik-llama DIR] [--distributed-llama DIR]

--models is a folder that make_shape.py wrote, the others are where peers were built for this
machine (docs/PERFORMANCE.md says how); one that is not named is left out. Everything is run in
turn, --rounds times, each second round backwards, so that whatever else the machine does meets all
alike. Speeds are medians; a ratio is the median of the ratios within each round that measured both.
llama.cpp and ik_llama.cpp run with flash attention off and on; what has the higher median counts.
ik_llama.cpp repacks its weights at the start (-rtr 1).

Rows, to choose from with --rows:
    prompt       a prompt of --prompt tokens: int8, int4 and bf16 (peers: Q8_0, Q4_0 and F16)
    generation   --generate tokens after a short prompt, and the share of the read bandwidth
    batch        8 sequences that generate at once against one, int8
    context      generation after --context tokens, int8, and the share of the read bandwidth
    cluster      two workers of one thread serving 8 clients, int8, against llama.cpp's split of
                 layers over two RPC servers, and against one worker of two threads serving 4
                 clients; that worker with one client against `strata-worker bench`, by the median
                 step of each
    speculation  not among those that are measured unless it is named, since it takes the weights of
                 make_copier.py: an answer that edits a file of 300 lines and has 87 % of its tokens
                 from there, with drafts and without, by one client of one worker of two threads and
                 of two of one, and by four clients; prose in which nothing is to be found, by 1, 8
                 and 32 clients; with --guessers, a draft model of a tenth of the size that is right
                 seven times of ten, where nothing can be looked up; and llama-server with its own
                 speculation by n-grams. --speculation chooses among these

The read bandwidth is what `strata-worker bench` measures in each of its runs. tokens/s of a cluster
are generated tokens over the time of prompts and answers. Ctrl-C ends the run early, with a table
of what there is. STRATA_CPU_ISA chooses Strata's instruction set; what peers use is chosen when
they are built, and printed from their CMakeCache.txt.
"""
import argparse
import json
import os
import pathlib
import sys

from comparison.clusters import measure_cluster
from comparison.commands import groups_of
from comparison.programs import TREE, Peers
from comparison.report import document_of, report
from comparison.runner import execute, measure, say
from comparison.samples import DLLAMA, FORMATS, IK, LLAMA, STRATA, Failed, Results
from comparison.speculation import PARTS, measure_speculation

ROWS = ("prompt", "generation", "batch", "context", "cluster")


def some_of(known):
    def parse(text):
        chosen = text.split(",")
        for one in chosen:
            if one not in known:
                raise argparse.ArgumentTypeError(f"{one!r} is none of {', '.join(known)}")
        return chosen
    return parse


def at_least_one(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def thread_counts(text):
    return [at_least_one(one) for one in text.split(",")]


def named_commit(text):
    who, _, commit = text.partition("=")
    if who not in (STRATA, LLAMA, IK, DLLAMA) or not commit:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMIT with a NAME of "
                                         f"{STRATA}, {LLAMA}, {IK} or {DLLAMA}")
    return who, commit


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR",
                        help="what make_shape.py wrote")
    parser.add_argument("--strata", default=os.environ.get("STRATA_BIN", TREE / "build" / "bin"),
                        metavar="DIR", help="Strata's programs (default: STRATA_BIN, or build/bin)")
    parser.add_argument("--llama-cpp", metavar="DIR", help="has llama-bench; for the cluster also "
                        "ggml-rpc-server (or rpc-server) and llama-batched-bench")
    parser.add_argument("--ik-llama", metavar="DIR", help="has ik_llama.cpp's llama-bench")
    parser.add_argument("--distributed-llama", metavar="DIR", help="has dllama")
    parser.add_argument("--commit", type=named_commit, action="append", default=[],
                        metavar="NAME=COMMIT", help="of a peer that does not know its own")
    parser.add_argument("--rows", type=some_of((*ROWS, "speculation")), default=list(ROWS),
                        help="what to measure (default: all but speculation)")
    parser.add_argument("--speculation", type=some_of(PARTS), default=list(PARTS),
                        help="of speculation (default: edits,prose,guesses,peers)")
    parser.add_argument("--guessers", type=pathlib.Path, metavar="DIR",
                        help="for speculation: what make_guessers.py wrote")
    parser.add_argument("--weights", type=some_of(FORMATS), default=list(FORMATS),
                        help="of prompt and generation (default: int8,int4,bf16)")
    parser.add_argument("--threads", type=thread_counts, default=[1, 2], metavar="N,...",
                        help="default: 1,2")
    parser.add_argument("--rounds", type=at_least_one, default=5, help="default: 5")
    parser.add_argument("--prompt", type=at_least_one, default=512, help="tokens (default: 512)")
    parser.add_argument("--generate", type=at_least_one, default=64, help="tokens (default: 64)")
    parser.add_argument("--context", type=at_least_one, default=8192, help="tokens (default: 8192)")
    parser.add_argument("--timeout", type=at_least_one, default=1800,
                        help="seconds that one command may take (default: 1800)")
    parser.add_argument("--json", action="store_true", help="one JSON document with all samples on "
                        "stdout; the table goes to stderr")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse_arguments(argv)
    cores = len(os.sched_getaffinity(0))
    results, failure = Results(), None
    try:
        peers = Peers(arguments, results)
        for threads in [t for t in arguments.threads if t > cores]:
            arguments.threads.remove(threads)
            results.left_out.append(f"{threads} threads: there are {cores} usable cores")
        for line in results.left_out:
            say(f"left out: {line}")
    except Failed as error:
        sys.exit(f"compare_peers.py: {error}")
    try:
        measure(groups_of(peers, results, arguments), results, arguments.rounds,
                lambda run: execute(run, results, arguments.timeout))
        if "cluster" in arguments.rows:
            measure_cluster(peers, results, arguments)
        if "speculation" in arguments.rows:
            measure_speculation(peers, results, arguments)
    except KeyboardInterrupt:
        failure = "the run was ended early"
    except Failed as error:  # What was measured before is worth a table.
        failure = str(error)
    if failure:
        results.left_out.append(failure)
    document = document_of(peers, results, arguments)
    if arguments.json:
        say(report(document))
        print(json.dumps(document))
    else:
        print(report(document))
    if failure:
        sys.exit(f"compare_peers.py: {failure}")


if __name__ == "__main__":
    main()
