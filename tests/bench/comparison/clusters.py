"""Clusters of Strata, and llama.cpp over RPC servers: started, asked in turn, and stopped."""
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from .commands import SHORT_PROMPT, Run, strata_run
from .outputs import parse_batched_bench, parse_json
from .programs import TREE
from .runner import execute, measure, say
from .samples import FORMATS, LLAMA, STRATA, Failed, Key

CLIENT_PROMPT, CLIENT_ANSWER = 32, 64


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cluster_module(peers):
    """The module of the tests on real processes, with the programs that are measured."""
    os.environ["STRATA_BIN"] = str(peers.strata)
    sys.path.insert(0, str(TREE / "tests" / "integration"))
    import cluster
    return cluster


@contextlib.contextmanager
def started_workers(peers, folder, workers, threads, layers):
    """A cluster of so many workers, and the cuts of a model's layers over them."""
    module = cluster_module(peers)
    with module.Cluster(folder, binaries=peers.strata) as cluster:
        names = [f"w{i}" for i in range(workers)]
        for name in names:
            cluster.start_worker(name, threads=threads, memory="6GiB")
        yield cluster, module.cut(names, layers)


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


@contextlib.contextmanager
def split_llama_server(build, model, folder, slots, context, flash):
    """The URL of llama-server, with the layers of `model` split over two RPC servers of one thread. `build` is where
    llama.cpp was built; `context` is that of all slots."""
    programs = pathlib.Path(build) / "bin"
    rpc = next(p for p in (programs / "ggml-rpc-server", programs / "rpc-server") if p.exists())
    folder.mkdir()
    with rpc_servers(rpc, folder, 2) as addresses, open(folder / "log", "wb") as log:
        port = free_port()
        server = subprocess.Popen(
            [str(programs / "llama-server"), "-m", str(model), "--rpc", ",".join(addresses), "-ngl", "99", "-sm",
             "layer", "-ts", "1,1", "-t", "1", "-np", str(slots), "-c", str(context), "-fa", flash, "--host",
             "127.0.0.1", "--port", str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for_health(url, server, folder / "log")
            yield url
        finally:
            server.terminate()
            server.wait()


def wait_for_health(url, server, log):
    end = time.monotonic() + 300
    while True:
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(f"{url}/health", timeout=5).status == 200:
                return
        if server.poll() is not None or time.monotonic() > end:
            sys.exit(f"llama-server does not serve: see the end of its log:\n"
                     f"{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.5)


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
        # As users do, by the planner, which knows that the head is as much work as some layers.
        load = ("shape", "--quantize", "int8", "--context", 256, "--sessions", 8, "--goal",
                "throughput", "--speculate", "off")
        stages = cluster.json("plan", *load)["stages"]
        say("placed: " + ", ".join(f"{s['node']} {s['first_layer']}-{s['last_layer']}"
                                   for s in stages))
        if len(stages) != workers:
            raise Failed(f"the planner takes {len(stages)} of {workers} workers, so there is "
                         "nothing to compare: leave it out with --rows without cluster")
        cluster.run("model", "load", *load, timeout_s=600)
    except BaseException as error:
        if cluster:
            cluster.__exit__(type(error), error, None)
        if isinstance(error, (AssertionError, module.Failed, subprocess.TimeoutExpired)):
            raise Failed(f"a cluster of {workers} x {threads} threads did not come up: {error}; "
                         "try ./dev quickstart, or --rows without cluster") from None
        raise
    return cluster


def strata_cluster_run(cluster, title, clients, answer):
    def parse(out, _):
        report = parse_json(out)
        if report["failed"]:
            raise Failed(f"{report['failed']} of {report['requests']} requests failed for {title}: "
                         "run ./dev test, or choose --rows without cluster")
        # One client: by the median step, as bench_run's.
        speed = (report["generated_tokens_per_s"] if clients > 1 else
                 1000 / report["inter_token_ms"]["p50"])
        return {Key(f"cluster{clients}", "int8", 2, STRATA): speed}

    command = cluster.command("bench", "shape", "--clients", clients, "--requests", 2 * clients,
                              "--prompt-tokens", CLIENT_PROMPT if clients > 1 else SHORT_PROMPT,
                              "--max-tokens", answer, "--json")
    return Run(title, STRATA, [pathlib.Path(command[0]), *command[1:]], parse)


def bench_run(peers, results, generate):
    """What a cluster's one worker with one client has to compute, and nothing around it."""
    def take(report):
        return {"steps": 1000 / report["batch"][0]["step_ms"]}  # By the median step.

    return strata_run(peers, results, "cluster: strata-worker bench, 2 threads", "int8", 2, take,
                      SHORT_PROMPT, generate)


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
    module = cluster_module(peers)
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
        for run in group:
            execute(run, results, arguments.timeout)  # Warm.
        group.append(bench_run(peers, results, arguments.generate))
        if peers.rpc_server:
            addresses = stack.enter_context(rpc_servers(peers.rpc_server, folder, 2))
            group += [rpc_run(peers, f"cluster: RPC, flash attention {flash}", addresses, flash,
                              answer) for flash in ("off", "on")]
        measure([group], results, arguments.rounds,
                lambda run: execute(run, results, arguments.timeout))
