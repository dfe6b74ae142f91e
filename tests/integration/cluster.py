"""A cluster of real processes on loopback, for tests."""

import contextlib
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import time
import urllib.request

import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STRATA_BIN", SOURCE / "build" / "bin"))
GOLDEN = SOURCE / "tests" / "golden"
RECALL = SOURCE / "models" / "recall"
# Sanitized builds start and compute more slowly: less is asked of them.
SLOW = 1 if os.environ.get("STRATA_PRESET", "release") == "release" else 5
# After this whoever waits gives up. It is there only so that nothing hangs: what is waited for
# comes far sooner on any machine, however busy, and no test depends on how soon.
GIVE_UP_S = 300
# What a flag of a process gets where its time must not pass in a test.
NEVER = "10h"


def worker_has_mlx():
    """Whether this build has the MLX backend."""
    return "libmlx" in subprocess.run(["ldd", BIN / "strata-worker"], capture_output=True, text=True).stdout


class Failed(Exception):
    """A command's exit status and what it said."""

    def __init__(self, command, status, out, err):
        super().__init__(f"{' '.join(map(str, command))}: exit {status}\n{out}\n{err}")
        self.status, self.out, self.err = status, out, err


def read_safetensors(path):
    """{name: array} of a file with F32 tensors only."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], "<f4").reshape(
            entry["shape"])
    return tensors


def wait_until(condition, what):
    """What `condition()` gives, once that is true."""
    end = time.monotonic() + GIVE_UP_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"after {GIVE_UP_S} s still not: {what}")


class Process:
    """A Strata process and its log."""

    def __init__(self, name, command, folder, env=None):
        self.name = name
        self.killed = False
        # A log for each life of the process.
        lives = len(list(folder.glob(f"{name}.*.log")))
        self.log_path = folder / f"{name}.{lives}.log"
        self.log = open(self.log_path, "wb")
        self.command = [str(c) for c in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, env={**os.environ, **(env or {})})

    def text(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern):
        def found():
            match = re.search(pattern, self.text(), re.M)
            if not match and self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n{self.text()}")
            return match

        try:
            return wait_until(found, f"{pattern!r} in the log of {self.name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def rss_bytes(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGESIZE")

    def peak_rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024

    def kill(self, sig=signal.SIGKILL):
        """A test's deed. After SIGKILL the process has ended; its exit status may be any."""
        self.process.send_signal(sig)
        if sig == signal.SIGKILL:
            self.killed = True
            self.process.wait()

    def terminate(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()

    def wait(self):
        """Its exit status."""
        return self.process.wait(GIVE_UP_S)

    def stop(self):
        """SIGTERM; fails unless it exits 0."""
        stop([self])


def stop(processes):
    """SIGTERM to all. Fails if one that no test killed does not exit 0, or had ended otherwise
    before: a crash, or what a sanitizer found."""
    for process in processes:
        process.terminate()
    end = time.monotonic() + GIVE_UP_S
    wrong = []
    for process in processes:
        try:
            status = process.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.process.kill()
            process.process.wait()
            status = "none: it did not end"
        process.log.close()
        if status != 0 and not process.killed:
            wrong.append(f"{process.name}: exit status {status}\n{process.text()}")
    assert not wrong, "\n".join(wrong)


class Cluster:
    """A coordinator, its workers, and the command line on them."""

    def __init__(self, folder, data_dir=None, tls_dir=None, binaries=BIN, **flags):
        self.folder = pathlib.Path(folder)
        self.binaries = binaries  # Whose coordinator starts next, whose worker and command line.
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir or self.folder / "coordinator"
        self.security = ["--tls-dir", tls_dir] if tls_dir else []
        self.workers = {}
        self.processes = []  # Of all lives.
        # A process that does not get to run for a while is not lost for that.
        self.flags = {"drain_timeout": "1s", "lease": "60s", **flags}
        self.address = None
        self.start_coordinator()

    def on_host(self, name, command):
        """What starts a process's command where it belongs: here."""
        return command

    def start_coordinator(self, listen="127.0.0.1:0", http_listen="127.0.0.1:0"):
        command = [self.binaries / "strata-coordinator", "--listen", listen, "--http-listen", http_listen,
                   "--data-dir", self.data_dir, *self.security]
        for name, value in self.flags.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        self.coordinator = Process("coordinator", self.on_host("coordinator", command), self.folder)
        self.processes.append(self.coordinator)
        self.address = self.coordinator.wait_for(r"^listening on (\S+)").group(1)
        self.http = self.coordinator.wait_for(r"^http listening on (\S+)").group(1)

    def start_worker(self, name, *flags, env=None, wait=True, coordinator=None, drain="1s",
                     data=None, binary=None, threads=1, memory="1GiB"):
        """`wait`: until it has joined."""
        command = [binary or self.binaries / "strata-worker", "--coordinator", coordinator or self.address,
                   "--name", name, "--data-dir", self.folder / (data or name), "--threads", str(threads),
                   "--memory", memory, "--drain-timeout", drain, *self.security, *flags]
        worker = Process(name, self.on_host(name, command), self.folder, env)
        self.processes.append(worker)
        self.workers[name] = worker
        if wait:
            self.wait_node(name)
        return worker

    def heap_bytes(self):
        """What the coordinator and each worker have allocated and not given back, by name: what is
        resident depends on the allocator and the system. Workers need --metrics-listen."""
        def read(address, name):
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=GIVE_UP_S) as page:
                return int(float(re.search(rf"^{name}(?:{{.*}})? (\S+)$", page.read().decode(),
                                           re.M).group(1)))

        heap = {name: read(worker.wait_for(r"^metrics listening on (\S+)").group(1),
                           "strata_worker_heap_bytes") for name, worker in self.workers.items()}
        return {"coordinator": read(self.http, "strata_heap_bytes"), **heap}

    def revive(self):
        """Starts workers again that gave up since a step took longer than the step timeout, as the
        manager of their service would. On a machine that stands still for as long any may."""
        for name, worker in list(self.workers.items()):
            if worker.process.poll() is not None and not worker.killed and (
                    "may never end; giving up" in worker.text()):
                worker.killed = True
                again = Process(name, worker.command, self.folder)
                self.processes.append(again)
                self.workers[name] = again

    def start_workers(self, count, *flags):
        names = [f"w{i}" for i in range(count)]
        for name in names:
            self.start_worker(name, *flags, wait=False)
        for name in names:
            self.wait_node(name)
        return names

    def node(self, name):
        for node in self.json("node", "list")["nodes"]:
            if node["name"] == name:
                return node
        return None

    def wait_node(self, name, states=("ready", "serving", "loading")):
        def there():
            node = self.node(name)
            worker = self.workers.get(name)
            if worker and worker.process.poll() is not None:
                raise AssertionError(f"{name} ended:\n{worker.text()}")
            return node and node["state"] in states

        wait_until(there, f"node {name} in {states}")

    def command(self, *arguments, coordinator=None):
        return [str(self.binaries / "strata"), "--coordinator", coordinator or self.address,
                *map(str, self.security), *map(str, arguments)]

    def run(self, *arguments, stdin=None, timeout_s=GIVE_UP_S, check=True):
        """(stdout, stderr, status) of the command line."""
        command = self.command(*arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True,
                              timeout=timeout_s)
        if check and done.returncode != 0:
            raise Failed(command, done.returncode, done.stdout, done.stderr)
        return done.stdout, done.stderr, done.returncode

    def json(self, *arguments, **options):
        return json.loads(self.run(*arguments, "--json", **options)[0])

    def popen(self, *arguments):
        return subprocess.Popen(self.command(*arguments), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def load(self, model, path=None, cuts=None, **flags):
        """Registers (if `path`) and loads; `cuts`: [(worker, first layer, last layer)]."""
        if path:
            self.run("model", "add", path, "--name", model)
        arguments = ["model", "load", model]
        if cuts:
            arguments += ["--layers", ",".join(f"{w}:{a}-{b}" for w, a, b in cuts)]
        for name, value in flags.items():
            arguments += [f"--{name.replace('_', '-')}", value]
        self.run(*arguments)

    def generate(self, model, *, ids=None, text=None, logits=None, **flags):
        arguments = ["generate", model]
        if text is not None:
            arguments.append(text)
        if ids is not None:
            arguments += ["--token-ids", ",".join(map(str, ids))]
        if logits:
            arguments += ["--logits", logits]
        for name, value in flags.items():
            flag = f"--{name.replace('_', '-')}"
            arguments += [flag] if value is True else [flag, value]
        answer = self.json(*arguments)
        if logits:
            answer["logits"] = read_safetensors(logits)["logits"]
        return answer

    def kv(self):
        return self.json("status")["kv"]

    def all_free(self):
        """Whether no request holds a page; cached prefixes may."""
        kv = self.kv()
        return bool(kv) and all(e["free"] + e["cached"] == e["total"] for e in kv)

    def nothing_is_left(self):
        """Waits until no session is there and no request holds a page."""
        wait_until(lambda: not self.json("session", "list")["sessions"], "no session is left")
        wait_until(self.all_free, "every page is free")

    def wait_ready(self, model):
        def ready():
            return {m["name"]: m["state"] for m in self.json("model", "list")["models"]}.get(
                model) == "ready"

        wait_until(ready, f"model {model} is ready")

    def wait_sessions(self, count):
        wait_until(lambda: len(self.json("session", "list")["sessions"]) == count,
                   f"{count} requests are in flight")

    @contextlib.contextmanager
    def stalled(self, worker):
        """Requests start, and get no token."""
        self.workers[worker].kill(signal.SIGSTOP)
        try:
            yield
        finally:
            self.workers[worker].kill(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, kind, *exception):
        try:
            stop(self.processes)
        except AssertionError:
            if kind is None:
                raise


def cut(names, layers):
    """Layers spread over the named workers: [(worker, first, last)]."""
    cuts, first = [], 0
    for i, name in enumerate(names):
        last = layers * (i + 1) // len(names) - 1
        cuts.append((name, first, last))
        first = last + 1
    return cuts


def golden_cases(model):
    cases = json.loads((GOLDEN / "models" / model / "cases.json").read_text())
    expected = read_safetensors(GOLDEN / "models" / model / "expected.safetensors")
    return cases, expected


def served_cases(model):
    """Those of token ids alone, and that the rule of LongRoPE leads to: the long factors for what
    may exceed 64 tokens."""
    cases, expected = golden_cases(model)
    return [case for case in cases if "embed_scale" not in case and
            "embed_positions" not in case and
            (case.get("rope_factors") != "short" or len(case["prompt_ids"]) + 24 <= 64)], expected


def recall_cases():
    return json.loads((RECALL / "cases.json").read_text())


def tls_commands():
    """The two blocks of commands for TLS in docs/OPERATIONS.md: the authority's, once, and a machine's."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (SOURCE / "docs/OPERATIONS.md").read_text(), re.M | re.S)
    found = [b for b in blocks if "openssl" in b]
    assert len(found) == 2
    return found


def shell(folder, commands):
    subprocess.run(["sh", "-ec", commands], cwd=folder, check=True, capture_output=True)
