#!/usr/bin/env python3
"""Strata and other engines on the same random weights, on this machine, in one run.

    compare_peers.py --models DIR [--llama-cpp DIR] [--ik-llama DIR] [--distributed-llama DIR]

--models is a folder that make_shape.py wrote, the others are where peers were built for this machine
(docs/PERFORMANCE.md says how); one that is not named is left out. Everything is run in turn, --rounds
times, each second round backwards, and medians are compared, so that whatever else the machine does
meets all alike. llama.cpp and ik_llama.cpp run with flash attention off and on; what was faster
counts. ik_llama.cpp repacks its weights at the start (-rtr 1).

Rows, to choose from with --rows:
    prompt       a prompt of --prompt tokens: int8, int4 and bf16 (peers: Q8_0, Q4_0 and F16)
    generation   --generate tokens after a short prompt, and the share of the read bandwidth
    batch        8 sequences that generate at once against one, int8
    context      generation after --context tokens, int8, and the share of the read bandwidth
    cluster      two workers of one thread serving 8 clients, int8, against llama.cpp's split of
                 layers over two RPC servers, and against one worker of two threads serving 4 clients;
                 that worker with one client against `strata-worker bench`

The read bandwidth is what `strata-worker bench` measures in each of its runs. tokens/s of a cluster
are generated tokens over the time of prompts and answers. Ctrl-C ends the run early, with a table of
what there is.
"""
import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[2]

ROWS = ("prompt", "generation", "batch", "context", "cluster")
STRATA, LLAMA, IK, DLLAMA = "Strata", "llama.cpp", "ik_llama.cpp", "distributed-llama"


@dataclasses.dataclass(frozen=True)
class Format:
    quantize: str  # strata-worker bench --quantize
    file: str      # GGUF
    theirs: str


FORMATS = {"int8": Format("int8", "q8_0.gguf", "Q8_0"),
           "int4": Format("int4", "q4_0.gguf", "Q4_0"),
           "bf16": Format("none", "f16.gguf", "F16")}

# Least ratios of Strata's speed to theirs, and least shares of the read bandwidth.
GENERATION_TARGETS = {"int8": {LLAMA: 1.8, IK: 1.25, "share": 0.88},
                      "int4": {LLAMA: 1.75, IK: 1.35, "share": 0.75},
                      "bf16": {LLAMA: 1.06, "share": 0.90}}
# With instructions for int8 dot products; without, against the better of the two.
PROMPT_TARGETS = {"int8": {LLAMA: 3.0, IK: 1.5}, "int4": {LLAMA: 2.2, IK: 1.5}, "bf16": {}}
PROMPT_TARGET_NO_DOT = 1.3
DOT_ISAS = ("avx512vnni", "amx", "neondot")
BATCH_TARGET, BATCH_TARGET_NO_DOT = 5.5, 4.0
CONTEXT_TARGET = 1 / 1.15  # Within 15 % of the bytes over the bandwidth.
RPC_TARGET = 5.0
ONE_WORKER_TARGET = 0.9
ALONE_TARGET = 0.95

SHORT_PROMPT = 16  # Before generation, so that it has hardly any context to read.
CLIENT_PROMPT, CLIENT_ANSWER = 32, 64


class Failed(Exception):
    """One sentence for the user: what went wrong with what, and what to do."""


@dataclasses.dataclass(frozen=True)
class Key:
    """What a sample is of."""
    what: str     # prompt, generation, steps, share, batch8, batch8_ratio, bandwidth, ...
    weights: str  # of FORMATS
    threads: int
    who: str
    variant: str = ""


@dataclasses.dataclass
class Run:
    """One command of one engine, and how to read what it prints."""
    title: str
    who: str
    command: list
    parse: object  # (stdout, stderr) -> {Key: value}


class Results:
    """Samples, and what is known about who gave them."""

    def __init__(self):
        self.samples = collections.defaultdict(list)
        self.commands = {}  # (title, who): command line
        self.commits = {}
        self.isa = ""
        self.left_out = []

    def add(self, samples):
        for key, value in samples.items():
            self.samples[key].append(value)

    def median(self, key):
        values = self.samples.get(key)
        return statistics.median(values) if values else None

    def best(self, what, weights, threads, who):
        """(median, variant) of the variant with the highest median; (None, "") without samples."""
        found = [(self.median(key), key.variant) for key in list(self.samples)
                 if (key.what, key.weights, key.threads, key.who) == (what, weights, threads, who)]
        return max(found, default=(None, ""))


# ---- What the engines print


def parse_json(text):
    """Strata's one JSON document."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failed(f"{STRATA} printed no JSON ({error}): rebuild it with ./dev build") from None


def parse_objects(text, needed, who):
    """The flat JSON objects in `text` that have the field `needed`. llama.cpp and ik_llama.cpp print
    other lines too, some of them within the list of results."""
    found = []
    for match in re.finditer(r"\{[^{}]*\}", text):
        with contextlib.suppress(ValueError):
            found.append(json.loads(match.group()))
    found = [one for one in found if needed in one]
    if not found:
        raise Failed(f"{who} printed no result with {needed}: run its command line by hand and look")
    return found


def parse_llama_bench(text, who):
    """{(n_prompt, n_gen, flash attention on): tokens/s}, commit."""
    speeds, commit = {}, ""
    for test in parse_objects(text, "avg_ts", who):
        key = (test["n_prompt"], test["n_gen"], int(test["flash_attn"]) != 0)
        speeds[key] = test["avg_ts"]
        commit = test.get("build_commit", "")
    return speeds, commit


def parse_batched_bench(text):
    """Generated tokens over the time of prompts and answers."""
    test = parse_objects(text, "t_pp", LLAMA)[-1]
    return test["pl"] * test["tg"] / (test["t_pp"] + test["t_tg"])


def parse_dllama(text):
    """(prompt, generation) in tokens/s."""
    match = re.search(r"^Evaluation$.*?tokens/s:\s*([\d.]+).*?^Prediction$.*?tokens/s:\s*([\d.]+)",
                      text, re.M | re.S)
    if not match:
        raise Failed("distributed-llama printed no tokens/s: run its command line by hand and look")
    return float(match.group(1)), float(match.group(2))


# ---- Who there is


def find_program(folder, names, who, flag):
    for name in names:
        for place in ("", "bin", "build/bin", "build"):
            path = pathlib.Path(folder) / place / name
            if path.is_file() and os.access(path, os.X_OK):
                return path.resolve()
    raise Failed(f"{flag} {folder} has no program {names[0]}: build {who}'s target {names[0]} there, "
                 f"or leave {flag} out")


def git_commit(folder, ours=False):
    """Of the checkout that `folder` is in; "" if none, or if it is this one and not `ours`."""
    def git(*arguments):
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    top = git("rev-parse", "--show-toplevel")
    if not top or (pathlib.Path(top) == TREE and not ours):
        return ""
    return git("rev-parse", "--short=9", "HEAD")


class Peers:
    """The programs to run, and their model files."""

    def __init__(self, arguments, results):
        self.models = arguments.models
        self.strata = pathlib.Path(arguments.strata).resolve()
        self.programs = {}
        self.rpc_server = self.batched_bench = None
        self._shape()
        for name in ("strata-worker", "strata-coordinator", "strata"):
            if not os.access(self.strata / name, os.X_OK):
                raise Failed(f"--strata {self.strata} has no {name}: run ./dev build")
        results.commits[STRATA] = git_commit(self.strata, ours=True)
        for who, flag, folder, names in (
                (LLAMA, "--llama-cpp", arguments.llama_cpp, ["llama-bench"]),
                (IK, "--ik-llama", arguments.ik_llama, ["llama-bench"]),
                (DLLAMA, "--distributed-llama", arguments.distributed_llama, ["dllama"])):
            if not folder:
                results.left_out.append(f"{who}: no {flag} was given")
                continue
            self.programs[who] = find_program(folder, names, who, flag)
            results.commits[who] = git_commit(folder)
        if LLAMA in self.programs:
            self._find_rpc(arguments.llama_cpp, results)
        self._check_files(arguments)
        results.commits.update(arguments.commit)

    def _shape(self):
        try:
            self.shape = json.loads((self.models / "shape.json").read_text())
        except (OSError, ValueError):
            raise Failed(f"--models {self.models} holds no weights: write them with "
                         f"tests/bench/make_shape.py tiny11 {self.models}") from None

    def _find_rpc(self, folder, results):
        try:
            self.rpc_server = find_program(folder, ["ggml-rpc-server", "rpc-server"], LLAMA,
                                           "--llama-cpp")
            self.batched_bench = find_program(folder, ["llama-batched-bench"], LLAMA, "--llama-cpp")
        except Failed as error:
            self.rpc_server = self.batched_bench = None
            results.left_out.append(f"{LLAMA} RPC: {error}")

    def _check_files(self, arguments):
        needed = [("hf/config.json", "hf")]
        if LLAMA in self.programs or IK in self.programs:
            needed += [(FORMATS[weights].file, "gguf") for weights in arguments.weights]
        if DLLAMA in self.programs:
            needed += [("q40.m", "dllama"), ("dllama.t", "dllama")]
        for name, kind in needed:
            if not (self.models / name).exists():
                raise Failed(f"--models {self.models} has no {name}: write it with "
                             f"tests/bench/make_shape.py {self.shape['shape']} {self.models}, "
                             f"--formats {kind} among others")


# ---- What to run


def strata_run(peers, results, title, weights, threads, take, prompt, generate, batch="1"):
    """`take`: (parsed JSON) -> {(what): value} of what is wanted beside the bandwidth."""
    def parse(out, _):
        report = parse_json(out)
        results.isa = report["isa"]
        samples = {"bandwidth": report["read_bandwidth_bytes_per_s"], **take(report)}
        return {Key(what, weights, threads, STRATA): value for what, value in samples.items()}

    return Run(title, STRATA,
               [peers.strata / "strata-worker", "bench", "--model", peers.models / "hf",
                "--quantize", FORMATS[weights].quantize, "--threads", threads, "--prompt", prompt,
                "--generate", generate, "--batch", batch, "--json"], parse)


def llama_run(peers, results, title, who, what, weights, threads, prompt, generate):
    def parse(out, _):
        speeds, commit = parse_llama_bench(out, who)
        if commit and commit != "unknown" and not results.commits.get(who):
            results.commits[who] = commit
        return {Key(what, weights, threads, who, f"flash attention {'on' if flash else 'off'}"): speed
                for (_, _, flash), speed in speeds.items()}

    command = [peers.programs[who], "-m", peers.models / FORMATS[weights].file, "-t", threads,
               "-p", prompt, "-n", generate, "-fa", "0,1", "-r", 1, "-o", "json"]
    return Run(title, who, command + (["-rtr", 1] if who == IK else []), parse)


def dllama_run(peers, title, what, threads, prompt, generate):
    """A character of the prompt is a token; <s> is one more, which is what generation begins with."""
    def parse(out, _):
        speeds = dict(zip(("prompt", "generation"), parse_dllama(out)))
        return {Key(what, "int4", threads, DLLAMA): speeds[what]}

    return Run(title, DLLAMA,
               [peers.programs[DLLAMA], "inference", "--model", peers.models / "q40.m",
                "--tokenizer", peers.models / "dllama.t", "--buffer-float-type", "q80",
                "--nthreads", threads, "--max-seq-len", prompt + generate + 8, "--prompt",
                "a" * prompt, "--steps", prompt + generate, "--temperature", 0, "--seed", 1], parse)


def generated(report):
    batches = {batch["batch"]: batch["generated_tokens_per_s"] for batch in report["batch"]}
    values = {"generation": report["generated_tokens_per_s"], "share": report["bandwidth_share"],
              "steps": 1000 / report["batch"][0]["step_ms"]}  # By the median step.
    if 8 in batches:
        values["batch8"] = batches[8]
        values["batch8_ratio"] = batches[8] / batches[1]
    return values


def groups_of(peers, results, arguments):
    """Lists of runs that are compared with each other, all but the cluster's."""
    groups = []
    for threads in arguments.threads:
        on = f"{threads} thread{'s' if threads > 1 else ''}"
        for weights in arguments.weights if "prompt" in arguments.rows else ():
            title = f"{weights} prompt of {arguments.prompt}, {on}"
            group = [strata_run(peers, results, title, weights, threads,
                                lambda report: {"prompt": report["prompt_tokens_per_s"]},
                                arguments.prompt, 1)]
            group += [llama_run(peers, results, title, who, "prompt", weights, threads,
                                arguments.prompt, 0)
                      for who in (LLAMA, IK) if who in peers.programs and
                      (who == LLAMA or weights != "bf16")]
            if weights == "int4" and DLLAMA in peers.programs:
                group.append(dllama_run(peers, title, "prompt", threads, arguments.prompt, 1))
            groups.append(group)
        rows = {"generation", "batch"} & set(arguments.rows)
        for weights in arguments.weights if rows else ():
            eight = weights == "int8" and "batch" in rows
            if not eight and "generation" not in rows:
                continue
            title = f"{weights} generation{' and batch 8' if eight else ''}, {on}"
            group = [strata_run(peers, results, title, weights, threads, generated, SHORT_PROMPT,
                                arguments.generate, "1,8" if eight else "1")]
            if "generation" in rows:
                group += [llama_run(peers, results, title, who, "generation", weights, threads, 0,
                                    arguments.generate)
                          for who in (LLAMA, IK) if who in peers.programs and
                          (who == LLAMA or weights != "bf16")]
                if weights == "int4" and DLLAMA in peers.programs:
                    group.append(dllama_run(peers, title, "generation", threads, SHORT_PROMPT,
                                            arguments.generate))
            groups.append(group)
        if "context" in arguments.rows and "int8" in arguments.weights:
            title = f"int8 generation after {arguments.context}, {on}"
            groups.append([strata_run(
                peers, results, title, "int8", threads,
                lambda report: {"context": report["generated_tokens_per_s"],
                                "context_share": report["bandwidth_share"]},
                arguments.context, min(arguments.generate, 32))])
    return groups


# ---- Running


def say(line):
    print(line, file=sys.stderr, flush=True)


def shown(command):
    """A command line without this machine's folders."""
    words = []
    for word in command:
        if isinstance(word, pathlib.Path):
            word = word.name
        words.append("aaa..." if re.fullmatch("aaaa+", str(word)) else str(word))
    return " ".join(shlex.quote(word) for word in words)


def execute(run, results, timeout_s):
    results.commands.setdefault((run.title, run.who), shown(run.command))
    command = [str(word) for word in run.command]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{run.who} took more than {timeout_s} s for {run.title}: raise --timeout, or "
                     f"choose other --rows; it was {shlex.join(command)}") from None
    except OSError as error:
        raise Failed(f"{run.who} cannot be run: {error}; build it for this machine") from None
    if done.returncode != 0:
        raise Failed(f"{run.who} ended with {done.returncode} for {run.title}: "
                     f"{(done.stderr or done.stdout).strip()[-500:]}; it was {shlex.join(command)}")
    return run.parse(done.stdout, done.stderr)


def measure(groups, results, rounds, run_one):
    """A peer that fails is left out of that group from then on; Strata's failure ends the run."""
    given_up = set()
    for number in range(rounds):
        for group in groups:
            for run in group if number % 2 == 0 else reversed(group):
                if (run.title, run.who) in given_up:
                    continue
                try:
                    samples = run_one(run)
                except Failed as error:
                    if run.who == STRATA:
                        raise
                    given_up.add((run.title, run.who))
                    results.left_out.append(str(error))
                    say(f"left out: {error}")
                    continue
                results.add(samples)
                values = ", ".join(f"{key.variant or key.what} {value:.4g}"
                                   for key, value in samples.items() if key.what != "bandwidth")
                say(f"round {number + 1}/{rounds}: {run.title}: {run.who}: {values}")


# ---- The cluster


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def rpc_servers(program, folder, count):
    """Addresses of servers of one thread."""
    servers, addresses = [], []
    try:
        for i in range(count):
            port = free_port()
            with open(pathlib.Path(folder) / f"rpc-server.{i}.log", "wb") as log:
                servers.append(subprocess.Popen(
                    [str(program), "-H", "127.0.0.1", "-p", str(port), "-t", "1"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            addresses.append(f"127.0.0.1:{port}")
            end = time.monotonic() + 30
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if servers[-1].poll() is not None or time.monotonic() > end:
                    raise Failed(f"{LLAMA}'s {program.name} does not listen: run it by hand, or "
                                 "leave it out with --rows without cluster")
                time.sleep(0.05)
        yield addresses
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()


def strata_cluster(module, folder, peers, workers, threads):
    """A running cluster of `workers`, with the model on it."""
    memory = f"{(2 * peers.shape['parameters'] >> 20) + 2048}MiB"
    cluster = None
    try:
        # Patient, since it is not failures that are measured.
        cluster = module.Cluster(folder, lease="60s", step_timeout="60s")
        names = [f"w{i}" for i in range(workers)]
        for name in names:
            cluster.start_worker(name, threads=threads, memory=memory)
        cluster.run("model", "add", peers.models / "hf", "--name", "shape", timeout_s=600)
        cuts = ",".join(f"{w}:{a}-{b}" for w, a, b in module.cut(names, peers.shape["layers"]))
        cluster.run("model", "load", "shape", "--quantize", "int8", "--context", 256, "--sessions",
                    8, "--layers", cuts, timeout_s=600)
    except BaseException as error:
        if cluster:
            cluster.__exit__(type(error), error, None)
        if isinstance(error, (AssertionError, module.Failed, subprocess.TimeoutExpired)):
            raise Failed(f"a cluster of {workers} x {threads} threads did not come up: {error}; try "
                         "./dev quickstart, or --rows without cluster") from None
        raise
    return cluster


def strata_cluster_run(cluster, title, clients, answer):
    def parse(out, _):
        report = parse_json(out)
        if report["failed"]:
            raise Failed(f"{report['failed']} of {report['requests']} requests failed for {title}: "
                         "run ./dev test, or choose --rows without cluster")
        # One client: by the median step, as `steps` of strata-worker bench.
        speed = (report["generated_tokens_per_s"] if clients > 1 else
                 1000 / report["inter_token_ms"]["p50"])
        return {Key(f"cluster{clients}", "int8", 2, STRATA): speed}

    command = cluster.command("bench", "shape", "--clients", clients, "--requests", 2 * clients,
                              "--prompt-tokens", CLIENT_PROMPT if clients > 1 else SHORT_PROMPT,
                              "--max-tokens", answer, "--json")
    return Run(title, STRATA, [pathlib.Path(command[0]), *command[1:]], parse)


def rpc_run(peers, title, addresses, flash, answer):
    def parse(out, err):
        variant = f"flash attention {flash}"
        return {Key("cluster8", "int8", 2, LLAMA, variant): parse_batched_bench(out + "\n" + err)}

    return Run(title, LLAMA,
               [peers.batched_bench, "-m", peers.models / FORMATS["int8"].file, "--rpc",
                ",".join(addresses), "-ngl", 99, "-sm", "layer", "-ts", "1,1", "-t", 1, "-c", 2048,
                "-npp", CLIENT_PROMPT, "-ntg", answer, "-npl", 8, "-fa", flash,
                "--output-format", "jsonl"], parse)


def measure_cluster(peers, results, arguments):
    os.environ["STRATA_BIN"] = str(peers.strata)
    sys.path.insert(0, str(TREE / "tests" / "integration"))
    import cluster as module
    answer = min(CLIENT_ANSWER, arguments.generate)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        group = []
        # All are there at once, and asked in turn.
        for workers, threads, all_clients in ((2, 1, (8,)), (1, 2, (4, 1))):
            say(f"starting a cluster of {workers} x {threads} threads")
            cluster = stack.enter_context(strata_cluster(
                module, pathlib.Path(folder) / f"{workers}x{threads}", peers, workers, threads))
            for clients in all_clients:
                title = (f"cluster: {workers} x {threads} threads, {clients} "
                         f"client{'s' if clients > 1 else ''}")
                group.append(strata_cluster_run(
                    cluster, title, clients, answer if clients > 1 else arguments.generate))
        if peers.rpc_server:
            addresses = stack.enter_context(rpc_servers(peers.rpc_server, folder, 2))
            group += [rpc_run(peers, f"cluster: RPC, flash attention {flash}", addresses, flash,
                              answer) for flash in ("off", "on")]
        for run in group:
            if run.who == STRATA:
                execute(run, results, arguments.timeout)  # Warm.
        measure([group], results, arguments.rounds,
                lambda run: execute(run, results, arguments.timeout))


# ---- The table


def row(what, threads, strata, against, theirs, ratio, target, unit="tokens/s"):
    return {"what": what, "threads": threads, "strata": strata, "unit": unit, "against": against,
            "theirs": theirs, "ratio": ratio, "target": target,
            "met": None if target is None else ratio >= target}


def share_row(results, what, weights, threads, strata, share, target):
    bandwidth = results.median(Key("bandwidth", weights, threads, STRATA))
    return row(what, threads, strata, f"read bandwidth, {bandwidth / 1e9:.1f} GB/s", None, share,
               target)


def speed_rows(results, what, weights, threads, targets):
    """Strata's speed at `what` against each peer that was measured."""
    name = f"{weights} {what}"
    strata = results.median(Key(what, weights, threads, STRATA))
    rows, best = [], (None, None)
    for who in (LLAMA, IK, DLLAMA):
        theirs, variant = results.best(what, weights, threads, who)
        if theirs is None:
            continue
        kind = "q40" if who == DLLAMA else FORMATS[weights].theirs
        against = f"{who} {kind}" + (f", {variant}" if variant else "")
        rows.append(row(name, threads, strata, against, theirs, strata / theirs, targets.get(who)))
        if who in (LLAMA, IK) and (best[0] is None or theirs > best[0]):
            best = (theirs, against)
    if "best" in targets and best[0] is not None:
        rows.append(row(name, threads, strata, f"the better: {best[1]}", best[0], strata / best[0],
                        targets["best"]))
    return rows or [row(name, threads, strata, "", None, None, None)]


def rows_of(results, threads_list, prompt, context):
    dot = results.isa in DOT_ISAS
    rows = []

    def median(what, weights, threads):
        return results.median(Key(what, weights, threads, STRATA))

    for weights in FORMATS:
        for threads in threads_list:
            generation = median("generation", weights, threads)
            if generation is None:
                continue
            rows += [r for r in speed_rows(results, "generation", weights, threads,
                                           GENERATION_TARGETS[weights]) if r["against"]]
            rows.append(share_row(results, f"{weights} generation", weights, threads, generation,
                                  median("share", weights, threads),
                                  GENERATION_TARGETS[weights]["share"]))
    for weights in FORMATS:
        for threads in threads_list:
            if median("prompt", weights, threads) is None:
                continue
            targets = PROMPT_TARGETS[weights]
            if targets and not dot:
                targets = {"best": PROMPT_TARGET_NO_DOT}
            rows += [{**r, "what": f"{r['what']} of {prompt}"}
                     for r in speed_rows(results, "prompt", weights, threads, targets)]
    for threads in threads_list:
        if median("batch8", "int8", threads) is not None:
            rows.append(row("int8 generation, batch of 8", threads,
                            median("batch8", "int8", threads), "its own batch of 1",
                            median("generation", "int8", threads),
                            median("batch8_ratio", "int8", threads),
                            BATCH_TARGET if dot else BATCH_TARGET_NO_DOT))
    for threads in threads_list:
        if median("context", "int8", threads) is not None:
            rows.append(share_row(results, f"int8 generation after {context}", "int8", threads,
                                  median("context", "int8", threads),
                                  median("context_share", "int8", threads), CONTEXT_TARGET))
    return rows + cluster_rows(results)


def cluster_rows(results):
    def clients(count):
        return results.median(Key(f"cluster{count}", "int8", 2, STRATA))

    name, on = "int8, two workers, 8 clients", "2 x 1"
    two, one, alone = clients(8), clients(4), clients(1)
    rows = []
    if None in (two, one, alone):
        return rows
    theirs, variant = results.best("cluster8", "int8", 2, LLAMA)
    if theirs is not None:
        rows.append(row(name, on, two, f"{LLAMA} Q8_0, RPC layer split, {variant}", theirs,
                        two / theirs, RPC_TARGET))
    rows.append(row(name, on, two, "one worker x 2 threads, 4 clients", one, two / one,
                    ONE_WORKER_TARGET))
    steps = results.median(Key("steps", "int8", 2, STRATA))
    if steps is not None:
        rows.append(row("int8, one worker, 1 client", 2, alone,
                        "strata-worker bench, by the median step", steps, alone / steps,
                        ALONE_TARGET))
    return rows


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def markdown(head, lines):
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    out = [head, ["-" * width for width in widths], *lines]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
                     for line in out)


def table(rows):
    lines = []
    for r in rows:
        share = r["against"].startswith("read bandwidth")
        as_text = (lambda x: f"{100 * x:.0f} %") if share else (lambda x: f"{x:.2f}")
        lines.append([r["what"], str(r["threads"]), number(r["strata"]), r["against"],
                      number(r["theirs"]), "" if r["ratio"] is None else as_text(r["ratio"]),
                      "" if r["target"] is None else "≥ " + as_text(r["target"]),
                      {None: "", True: "met", False: "missed"}[r["met"]]])
    return markdown(["tokens/s", "threads", "Strata", "against", "theirs", "ratio", "target", ""],
                    lines)


def cpu_name():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return os.uname().machine


def report(document):
    machine = document["machine"]
    text = [f"{machine['cpu']}, {machine['cores']} usable cores; Strata's instruction set: "
            f"{machine['isa'] or 'not known'}; shape {document['shape']}; median of "
            f"{document['rounds']} rounds", "", table(document["rows"]), "", "Commits: " + ", ".join(
                f"{who} {commit or 'not known (name it with --commit)'}"
                for who, commit in document["commits"].items())]
    if document["left_out"]:
        text += ["", "Left out:"] + [f"- {line}" for line in document["left_out"]]
    text += ["", "Command lines:"]
    seen = set()
    for one in document["commands"]:
        line = f"- {one['who']}: {one['command']}"
        if line not in seen:
            text.append(line)
        seen.add(line)
    return "\n".join(text)


def document_of(peers, results, arguments):
    return {
        "machine": {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "isa": results.isa},
        "shape": peers.shape["shape"], "rounds": arguments.rounds, "commits": results.commits,
        "left_out": results.left_out,
        "rows": rows_of(results, arguments.threads, arguments.prompt, arguments.context),
        "commands": [{"title": title, "who": who, "command": command}
                     for (title, who), command in results.commands.items()],
        "samples": [{**dataclasses.asdict(key), "values": values}
                    for key, values in results.samples.items()]}


# ---- The command line


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
    parser.add_argument("--rows", type=some_of(ROWS), default=list(ROWS),
                        help="what to measure (default: all)")
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
