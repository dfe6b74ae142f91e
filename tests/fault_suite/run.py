#!/usr/bin/env python3
"""Faults drawn from a seed, over real processes in network namespaces, under sixteen streams whose answers are known.

    run.py [--count 200] [--seed S] [--kinds K,...] [--out FILE] [--keep FOLDER]

A coordinator and four workers, each on a host of its own (a network namespace), and a model of random weights that needs
three of them. Sixteen clients, half over gRPC and half over HTTP, ask for answers of drawn lengths, greedy and drawn by a
seed, and compare each with what was answered before the first fault, log probabilities included. One fault at a time
befalls one node; the next begins once all nodes are back. Exit code 1, with a line for each, when a request was lost, an
answer was wrong, a client or the cluster hung, or a page was not given back at the end; the logs are kept then.

Written to --out (build/faults.csv), a row for each fault, in seconds:
    sign_s         until the coordinator noticed anything
    verdict_s      until the model left for other nodes, or else the same as sign_s
    first_token_s  from the verdict until any client got a token again
    all_tokens_s   from the verdict until all that waited had one
    silence_s      the longest time within which no client got a token
    pause_s        the longest time that one client waited for a token
    waiting        clients that waited; tokens_again: of their prompts and answers, where the model moved
    back_s         from the end of the fault until all nodes were back
"""

import argparse
import contextlib
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import clients  # noqa: E402
import faults  # noqa: E402
import hosts as networks  # noqa: E402
import measure  # noqa: E402
import python_sdk  # noqa: E402
from checkpoints import make_checkpoint  # noqa: E402
from cluster import RECALL, Cluster, Failed, Process, cut  # noqa: E402
from metrics_text import scrape, total  # noqa: E402
from relay import Relay  # noqa: E402

WORKERS = ("w0", "w1", "w2", "w3")
NUMBERS = {"coordinator": 1, **{name: 11 + i for i, name in enumerate(WORKERS)}}
RELAYED = ("w1", "w3")
DISK = "256m"  # Of each worker; it has the model's weights once as they are stored, and once packed.
PORT = 7071
STREAMS = 16
# Of a worker: two of them have no room for the model, three have.
MEMORY = "235MiB"
CONTEXT, SESSIONS = 512, 16
LAYERS = 6
# Whatever takes longer than this hangs. No fault is as long, nor a recovery from it.
HANGS_S = 150


def say(text):
    print(text, file=sys.stderr, flush=True)


class Hung(Exception):
    pass


class FaultCluster(Cluster):
    """A cluster whose processes are on hosts."""

    def __init__(self, folder, hosts, **flags):
        self.hosts = hosts
        super().__init__(folder, **flags)

    def on_host(self, name, command):
        return self.hosts.command(name, command)

    def start_coordinator(self, listen=f"{networks.address(1)}:7070", http_listen=f"{networks.address(1)}:8080"):
        super().start_coordinator(listen, http_listen)

    def start_again(self, name):
        """A worker that has ended, as the manager of its service would."""
        old = self.workers[name]
        assert old.process.poll() is not None
        old.killed = True  # Whatever it ended for was a test's deed, or is said below.
        self.workers[name] = Process(name, old.command, self.folder)
        self.processes.append(self.workers[name])

    def revive(self):
        """Starts those again that gave up since a step took too long."""
        ended = [name for name, worker in self.workers.items() if worker.process.poll() is not None]
        for name in ended:
            if "may never end; giving up" not in self.workers[name].text():
                raise Hung(f"{name} ended by itself:\n{self.workers[name].text()[-3000:]}")
            self.start_again(name)


@contextlib.contextmanager
def disk(folder, size):
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "strata-faults", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class World:
    """Hosts, cluster and streams."""

    def __init__(self, folder, flags, seed, strata, hasty=False):
        """`hasty`: a fault does not wait until what the last one brought about is over."""
        self.folder, self.seed, self.hasty = folder, seed, hasty
        self.streams = []
        with contextlib.ExitStack() as self.ends:
            self._start(flags, strata)
            self.ends = self.ends.pop_all()

    def _start(self, flags, strata):
        folder = self.folder
        self.hosts = networks.Hosts(NUMBERS)
        self.ends.callback(self.hosts.close)
        self.hosts.enter_switch()
        for name in WORKERS:
            self.ends.enter_context(disk(folder / "cluster" / name, DISK))
        make_checkpoint(folder / "model", layers=LAYERS, hidden=768, ffn=2048, heads=12, kv_heads=12, vocab=1024,
                        context=1024, stored="bf16")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(RECALL / name, folder / "model" / name)
        os.environ["STRATA_COORDINATOR_INSECURE"] = os.environ["STRATA_WORKER_INSECURE"] = "1"
        self.cluster = FaultCluster(folder / "cluster", self.hosts, **flags)
        self.ends.push(self.cluster)
        self.relays = {}
        for name in WORKERS:
            own = f"{networks.address(NUMBERS[name])}:{PORT}"
            advertised = ["--listen", own]
            if name in RELAYED:
                relay = Relay(own, host=networks.address(NUMBERS[name] + networks.RELAYS), port=PORT)
                self.relays[name] = self.ends.enter_context(relay)
                advertised += ["--advertise", relay.address]
            self.cluster.start_worker(name, *advertised, memory=MEMORY)
        self.load(folder / "model")
        self.transports = clients.Transports(strata, self.cluster.address, self.cluster.http, HANGS_S)
        self.ends.callback(self.transports.close)

    def load(self, path):
        """Every worker has had each third of the layers before, so that it has them in its cache."""
        self.cluster.run("model", "add", path, "--name", clients.MODEL)
        options = {"context": CONTEXT, "sessions": SESSIONS}
        flags = ["--context", CONTEXT, "--sessions", SESSIONS, "--nodes", ",".join(WORKERS[:2])]
        assert self.cluster.run("plan", clients.MODEL, *flags, check=False)[2] != 0, "two workers have room for the model"
        for first in range(len(WORKERS)):
            names = [WORKERS[(first + i) % len(WORKERS)] for i in range(3)]
            self.cluster.load(clients.MODEL, cuts=cut(names, LAYERS), **options)
            self.cluster.run("model", "unload", clients.MODEL)
        self.cluster.load(clients.MODEL, **options)

    def begin(self):
        right = clients.right_answers(self.transports)
        self.streams = [clients.Stream(i, self.seed, self.transports, right) for i in range(STREAMS)]
        for stream in self.streams:
            stream.start()

    def end(self):
        """No more requests; those in flight are waited for."""
        for stream in self.streams:
            stream.over.set()
        for stream in self.streams:
            stream.join(HANGS_S)
            if stream.is_alive():
                raise Hung(f"{stream.name} still waits for the end of its answer")

    def stages(self):
        return [s["node"] for s in self.cluster.json("model", "show", clients.MODEL)["plan"]["stages"]]

    def node_of(self, role, relayed):
        """The node that a drawn role means now."""
        stages = self.stages()
        spare = [name for name in WORKERS if name not in stages]
        if role != "spare":
            name = stages[int(role.split()[1]) % len(stages)]
        else:
            name = spare[0] if spare else stages[-1]
        if relayed and name not in self.relays:
            # Of those behind relays the one that serves, if one does.
            name = next((s for s in stages if s in self.relays), RELAYED[0])
        return name

    def link_beside(self, name, turn):
        """(sender, receiver) of one of the links between a node's stage and the ones beside it."""
        stages = self.stages()
        links = [link for link in zip(stages, stages[1:]) if name in link] or [tuple(stages[:2])]
        return links[turn % len(links)]

    def all_back(self):
        try:
            nodes = self.cluster.json("node", "list", timeout_s=30)["nodes"]
            model = self.cluster.json("model", "list", timeout_s=30)["models"][0]
        except (Failed, subprocess.TimeoutExpired):
            return False
        return (sorted(n["name"] for n in nodes) == sorted(WORKERS) and
                all(n["state"] in ("ready", "serving") for n in nodes) and model["state"] == "ready")

    def check_alive(self):
        late = [s for s in self.streams if s.asked_at and time.time() - max(s.asked_at, s.last_at) > HANGS_S]
        if late:
            raise Hung(f"{len(late)} clients have waited for a token for {HANGS_S} s")
        dead = [s for s in self.streams if not s.is_alive()]
        if dead:
            raise Hung(f"{dead[0].name} ended")
        if self.cluster.coordinator.process.poll() is not None:
            raise Hung(f"the coordinator ended:\n{self.cluster.coordinator.text()[-3000:]}")

    def wait(self, condition, what):
        end = time.time() + HANGS_S
        while True:
            self.cluster.revive()
            self.check_alive()
            if condition():
                return
            if time.time() > end:
                raise Hung(f"after {HANGS_S} s still not: {what}\n{self.cluster.run('status', check=False)[0]}\n"
                           f"{self.cluster.run('node', 'list', check=False)[0]}")
            time.sleep(0.1)

    def flowing(self, since):
        """Whether each stream has seen a token since."""
        return all(stream.token_at > since for stream in self.streams)

    def strike(self, number, fault):
        """Its row."""
        time.sleep(fault.settle_s)
        kind = faults.KINDS[fault.kind]
        node = "coordinator" if fault.kind.startswith("coordinator") else self.node_of(fault.role, kind.relayed)
        stages = self.stages()
        where = f"stage {stages.index(node)}" if node in stages else "spare" if node in WORKERS else node
        log_path, skip = self.cluster.coordinator.log_path, self.cluster.coordinator.log_path.stat().st_size
        self.begun = time.time()
        with kind.begin(self, node, fault):
            time.sleep(fault.away_s)
        begin, undone = self.begun, time.time()
        if self.hasty:
            self.wait(lambda: True, "")
            back = time.time()
        else:
            self.wait(self.all_back, "all nodes are back, and the model is ready")
            back = time.time()
            self.wait(lambda: self.flowing(back), "every stream goes on")
        end = time.time()
        with open(log_path, "rb") as log:
            log.seek(skip)
            lines = log.read().decode(errors="replace").splitlines()
        row = measure.measure(lines, [s.since(begin) for s in self.streams], begin, end)
        wrong = [what for s in self.streams for when, what in s.wrong if begin <= when < end]
        row |= {"number": number, "kind": fault.kind, "where": f"{node} ({where})", "away_s": fault.away_s,
                "back_s": back - undone, "lost": sum(w.startswith("lost") for w in wrong),
                "wrong": sum(not w.startswith("lost") for w in wrong), "load_average": os.getloadavg()[0]}
        text = measure.text
        say(f"{number:4} {fault.kind:16} {row['where']:18} {fault.away_s:4.1f} s  verdict {text(row['verdict_s']) or '-':>6} s"
            f"{' moved' if row['moved'] else '':6}  then {text(row['all_tokens_s']) or '-':>6} s  "
            f"pause {row['pause_s']:6.2f} s  back {row['back_s']:5.1f} s")
        for what in wrong:
            say(f"     {what}")
        return row

    def close(self):
        self.ends.close()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many faults (200)")
    parser.add_argument("--seed", type=int, help="what draws them; default: a new one")
    parser.add_argument("--kinds", default="", help=f"some of: {', '.join(faults.KINDS)}")
    parser.add_argument("--lease", default="3s", help="the coordinator's (3s)")
    parser.add_argument("--step-timeout", default="5s", help="the coordinator's (5s)")
    parser.add_argument("--stall-timeout", default="2s", help="the coordinator's (2s)")
    parser.add_argument("--hasty", action="store_true",
                        help="begin a fault while the cluster still recovers from the last one: nothing may be lost all the same")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/faults.csv"), help="the data file")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for logs, which stay")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE", help="print the table of a data file, and end")
    return parser.parse_args(arguments)


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return f"{os.cpu_count()} cores of {model}"


def commit():
    done = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "--short=8", "HEAD"], capture_output=True,
                          text=True)
    return done.stdout.strip() or "?"


def run(options, folder, strata):
    """(rows, what was wrong, what the data file says of the run)"""
    rows, wrong = [], []
    flags = {"lease": options.lease, "heartbeat": "500ms", "step_timeout": options.step_timeout,
             "stall_timeout": options.stall_timeout, "log_requests": "off"}
    drawn = list(faults.draw(options.seed, options.count, options.kinds))
    world = World(folder, flags, options.seed, strata, options.hasty)
    try:
        if not world.hosts.has_rates:
            say("this kernel has no tc-tbf: «slow» is left out")
            drawn = [f for f in drawn if f.kind != "slow"]
        say("what is answered while nothing is wrong")
        world.begin()
        say(f"{len(drawn)} faults of seed {options.seed}")
        for number, fault in enumerate(drawn, 1):
            rows.append(world.strike(number, fault))
        world.end()
        world.cluster.nothing_is_left()
        mismatches = total(scrape(world.cluster.http), "strata_kv_ledger_mismatches_total")
        if mismatches:
            wrong.append(f"the ledger and the stages disagreed {mismatches:.0f} times")
    except (Hung, Failed, AssertionError) as error:
        wrong.append(f"{type(error).__name__}: {error}")
    finally:
        wrong += [f"{s.name}: {what}" for s in world.streams for _, what in s.wrong]
        answered = sum(s.answered for s in world.streams), sum(s.tokens for s in world.streams)
        say(f"{len(rows)} faults, {answered[0]} answers of {answered[1]} tokens, {len(wrong)} findings")
        try:
            world.close()
        except AssertionError as error:  # A process did not end well.
            wrong.append(str(error))
    note = (f"{len(rows)} faults, {answered[0]} right answers of {answered[1]} tokens in all, {len(wrong)} findings; "
            f"--lease {options.lease}, --heartbeat 500ms, --step-timeout {options.step_timeout}, --stall-timeout "
            f"{options.stall_timeout}; load_average is of the machine")
    return rows, wrong, note


def main(arguments):
    options = parse(arguments)
    if options.table:
        print("\n".join(measure.table(measure.read(options.table))))
        return 0
    missing = networks.what_is_missing()
    if missing:
        say(f"the fault suite {missing}")
        return 2
    try:
        python_sdk.import_from(python_sdk.environment())
    except pytest.skip.Exception as why:
        say(f"the fault suite needs the Python SDK: {why}")
        return 2
    import strata
    options.kinds = [kind.strip() for kind in options.kinds.split(",") if kind.strip()]
    if unknown := set(options.kinds) - set(faults.KINDS):
        say(f"there is no kind {', '.join(sorted(unknown))}; there are {', '.join(faults.KINDS)}")
        return 2
    if options.seed is None:
        options.seed = random.randrange(1_000_000)
    folder = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="strata-faults."))
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = f"./dev test --faults --count {options.count} --seed {options.seed}" + (
        f" --kinds {shlex.quote(','.join(options.kinds))}" if options.kinds else "") + (" --hasty" if options.hasty else "")
    what = commit()
    rows, wrong, note = run(options, folder, strata)
    head = [("title", "Faults drawn from a seed, over real processes in network namespaces"),
            ("date", time.strftime("%Y-%m-%d")), ("machine", machine()), ("commits", what), ("command", command),
            ("note", note)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    measure.write(options.out, head, rows)
    if rows:
        print("\n".join(measure.table(measure.read(options.out))))
    say(f"written to {options.out}")
    if wrong:
        say(f"{len(wrong)} findings; logs are in {folder}; again: {command}")
        for what in wrong:
            say(f"  {what}")
        return 1
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
