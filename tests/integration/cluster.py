"""A cluster of real processes on loopback, for tests."""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STRATA_BIN", SOURCE / "build" / "bin"))
GOLDEN = SOURCE / "tests" / "golden"
RECALL = SOURCE / "models" / "recall"
# Sanitized builds start and compute more slowly.
SLOW = 1 if os.environ.get("STRATA_PRESET", "release") == "release" else 5


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


def wait_until(condition, timeout_s, what):
    end = time.monotonic() + timeout_s * SLOW
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"after {timeout_s * SLOW} s still not: {what}")


class Process:
    """A Strata process and its log."""

    def __init__(self, name, command, folder, env=None):
        self.name = name
        # A log for each life of the process.
        lives = len(list(folder.glob(f"{name}.*.log")))
        self.log_path = folder / f"{name}.{lives}.log"
        self.log = open(self.log_path, "wb")
        self.command = [str(c) for c in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, env={**os.environ, **(env or {})})

    def text(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern, timeout_s=20):
        def found():
            match = re.search(pattern, self.text(), re.M)
            if not match and self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n{self.text()}")
            return match

        try:
            return wait_until(found, timeout_s, f"{pattern!r} in the log of {self.name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def rss_bytes(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGESIZE")

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)

    def stop(self, timeout_s=15):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(timeout_s * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{self.name} did not stop:\n{self.text()}") from None
            finally:
                self.log.close()
        return self.process.returncode


class Cluster:
    """A coordinator, its workers, and the command line on them."""

    def __init__(self, folder, data_dir=None, **flags):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir or self.folder / "coordinator"
        self.workers = {}
        self.flags = flags
        self.address = None
        self.start_coordinator()

    def start_coordinator(self, listen="127.0.0.1:0"):
        command = [BIN / "strata-coordinator", "--listen", listen, "--http-listen", "127.0.0.1:0",
                   "--data-dir", self.data_dir]
        for name, value in self.flags.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        self.coordinator = Process("coordinator", command, self.folder)
        self.address = self.coordinator.wait_for(r"^listening on (\S+)").group(1)
        self.http = self.coordinator.wait_for(r"^http listening on (\S+)").group(1)

    def start_worker(self, name, *flags, env=None, wait=True, data=None, binary=None):
        worker = Process(name, [binary or BIN / "strata-worker", "--coordinator", self.address, "--name",
                                name, "--data-dir", self.folder / (data or name), "--threads", "1",
                                "--memory", "1GiB", *flags], self.folder, env)
        self.workers[name] = worker
        if wait:
            self.wait_node(name)
        return worker

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

        wait_until(there, 20, f"node {name} in {states}")

    def command(self, *arguments, coordinator=None):
        return [str(BIN / "strata"), "--coordinator", coordinator or self.address,
                *map(str, arguments)]

    def run(self, *arguments, stdin=None, timeout_s=120, check=True):
        """(stdout, stderr, status) of the command line."""
        command = self.command(*arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True,
                              timeout=timeout_s * SLOW)
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

    def stop(self):
        for worker in self.workers.values():
            worker.stop()
        return self.coordinator.stop()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in [*self.workers.values(), self.coordinator]:
            if process.process.poll() is None:
                process.kill(signal.SIGCONT)
                process.kill()
                process.process.wait()


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


def recall_cases():
    return json.loads((RECALL / "cases.json").read_text())
