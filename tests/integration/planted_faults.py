"""Faults to plant in a cluster of real processes, for what `strata doctor` says of them. Each is a context manager that
is given a World, and leaves it as it was."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import shutil
import subprocess
import time

from cluster import BIN, SLOW, Cluster, Process, wait_until
from small_disk import full
from test_cluster_certificates import made

MEMORY = "256MiB" if SLOW == 1 else "768MiB"  # A sanitizer has more.
FAKETIME = next(iter(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


class World:
    """A coordinator and the workers a and b, with certificates, and a file of flags for b. Where they are is up to
    `places`: {name: (address, [command that enters its host])}."""

    def __init__(self, folder, places=None):
        self.folder = pathlib.Path(folder)
        self.places = places or dict.fromkeys(("coordinator", "a", "b"), ("127.0.0.1", []))
        made(folder, "cluster", "init", "--hosts", ",".join(dict.fromkeys([self.address("coordinator"), "127.0.0.1"])))
        self.tls = self.folder / "strata-cluster"
        for name in ("a", "b"):
            self.certificate(name)
        self.config = self.folder / "b.toml"
        self.config.write_text(f'tls-dir = "{self.tls / "b"}"\nnice = 4\n')
        self.cluster = HostedCluster(self)
        self.start("a")
        self.start("b")

    def address(self, name):
        return self.places[name][0]

    def certificate(self, name, hosts=None, days=300, age_days=0, out=None):
        """Makes the worker's certificate anew, as it would have been so long ago."""
        command = [BIN / "strata", "cluster", "certificate", "worker", name, "--hosts", hosts or self.address(name), "--days", days,
                   *(["--out", out] if out else [])]
        env = {**os.environ, "LD_PRELOAD": str(FAKETIME), "FAKETIME": f"-{age_days}d"} if age_days else None
        subprocess.run(list(map(str, command)), cwd=self.folder, env=env, check=True, capture_output=True)

    def start(self, name, *flags, env=None, binary=None, memory=MEMORY, on=None, tls=None, wait=True):
        on = on or name
        security = ["--config", self.config] if name == "b" else ["--tls-dir", tls or self.tls / name]
        listen = f"{self.address(on)}:0"
        prefix = self.places[on][1]
        command = [*prefix, binary or BIN / "strata-worker", "--coordinator", self.cluster.address, "--name", name, "--listen", listen,
                   "--data-dir", self.folder / "data" / name, "--threads", 1, "--memory", memory, *security, *flags]
        worker = Process(name, command, self.folder, env)
        self.cluster.processes.append(worker)
        self.cluster.workers[name] = worker
        if wait:
            worker.wait_for("joined the cluster")
        return worker

    def end(self, name):
        worker = self.cluster.workers.pop(name)
        worker.kill(signal.SIGKILL)
        wait_until(lambda: self.state(name) == "lost", f"{name} is lost")

    def state(self, name):
        return (self.cluster.node(name) or {}).get("state")

    def again(self, name, *flags, **options):
        self.end(name)
        self.start(name, *flags, **options)

    def doctor(self, *arguments):
        """(exit status, findings, all that was said)"""
        out, err, status = self.cluster.run("doctor", "--json", *arguments, check=False)
        document = json.loads(out) if out else {"findings": []}
        return status, document["findings"], out + err

    def local(self):
        return self.doctor("--config", self.config)

    def close(self):
        for worker in self.cluster.workers.values():
            worker.killed = True
        for process in self.cluster.processes:
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGCONT)
                process.process.kill()
                process.process.wait()


class HostedCluster(Cluster):
    def __init__(self, world):
        self.world = world
        super().__init__(world.folder / "cluster", tls_dir=world.tls / "coordinator", lease="30s")
        self.security = ["--tls-dir", world.tls / "operator"]

    def on_host(self, name, command):
        return [*self.world.places[name][1], *command]

    def start_coordinator(self):
        super().start_coordinator(f"{self.world.address('coordinator')}:0", "127.0.0.1:0")

    def command(self, *arguments, coordinator=None):
        return [*map(str, self.world.places["coordinator"][1]), *super().command(*arguments, coordinator=coordinator)]


# ---- Faults of one process and its machine: anywhere.


@contextlib.contextmanager
def node_is_lost(world):
    world.end("b")
    yield
    world.start("b")


@contextlib.contextmanager
def node_stands_still(world):
    world.cluster.workers["b"].kill(signal.SIGSTOP)
    yield
    world.cluster.workers["b"].kill(signal.SIGCONT)


def restarted(*flags, **options):
    @contextlib.contextmanager
    def fault(world):
        world.again("b", *flags, **options)
        yield
        world.again("b")

    return fault


def memory_that_is_not_there():
    (total,) = re.findall(r"MemTotal: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    return restarted(memory=f"{int(total) * 2}KiB")


@contextlib.contextmanager
def workers_share_too_much(world):
    (available,) = re.findall(r"MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    share = f"{int(available) * 7 // 10}KiB"
    world.again("a", memory=share)
    world.again("b", memory=share)
    yield
    world.again("a")
    world.again("b")


@contextlib.contextmanager
def other_version(world):
    """A worker that says that it is of another patch release, which may join."""
    program = world.folder / "strata-worker-older"
    code = (BIN / "strata-worker").read_bytes()
    version = subprocess.run([BIN / "strata-worker", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    was, is_now = (b"\0" + text.encode() + b"\0" for text in (version, version[:-1] + "9"))
    assert was in code
    program.write_bytes(code.replace(was, is_now))
    program.chmod(0o755)
    world.again("b", binary=program)
    yield
    world.again("b")
    program.unlink()


@contextlib.contextmanager
def clock_is_off(world):
    world.again("b", env={"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    yield
    world.again("b")


def files_of_certificates(change):
    """Of b, changed while it runs; `change` is given the world and the folder."""
    @contextlib.contextmanager
    def fault(world):
        folder = world.tls / "b"
        kept = world.folder / "kept"
        shutil.copytree(folder.resolve(), kept)
        mode = os.stat(folder.resolve()).st_mode
        change(world, folder)
        yield
        target = folder.resolve()
        for path in kept.iterdir():
            shutil.copy2(path, target / path.name)
        os.chmod(target, mode)
        shutil.rmtree(kept)

    return fault


def lapsed(world, folder):
    world.certificate("b", days=1, age_days=10)


def ends_soon(world, folder):
    world.certificate("b", days=310, age_days=300)


def wrong_name(world, folder):
    world.certificate("b", hosts="192.0.2.7")


def wrong_authority(world, folder):
    other = world.folder / "other"
    shutil.rmtree(other, ignore_errors=True)
    other.mkdir()
    made(other, "cluster", "init", "--hosts", "127.0.0.1")
    made(other, "cluster", "certificate", "worker", "b", "--hosts", world.address("b"))
    for name in ("cert.pem", "key.pem"):
        shutil.copy(other / "strata-cluster" / "b" / name, folder.resolve() / name)


def key_of_another(world, folder):
    shutil.copy(world.tls / "a" / "key.pem", folder.resolve() / "key.pem")


def key_is_readable(world, folder):
    os.chmod(folder.resolve(), 0o755)
    os.chmod(folder.resolve() / "key.pem", 0o644)


def file_is_missing(world, folder):
    (folder.resolve() / "cert.pem").unlink()


def file_of_flags(text):
    @contextlib.contextmanager
    def fault(world):
        before = world.config.read_text()
        world.config.write_text(before + text)
        yield
        world.config.write_text(before)

    return fault


# ---- Those that want a disk of b's own.


@contextlib.contextmanager
def _disk(world, size):
    """b has its data on a disk of its own."""
    world.end("b")
    data = world.folder / "data" / "b"
    shutil.rmtree(data)
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "strata-test", data], check=True)
    try:
        world.start("b")
        yield data
        world.end("b")
    finally:
        subprocess.run(["umount", "-l", data], check=True)
    world.start("b")


@contextlib.contextmanager
def disk_is_full(world):
    with _disk(world, "8m") as data, full(data):
        yield


# ---- Swap.

PIDFD_OPEN, PROCESS_MADVISE, MADV_PAGEOUT = 434, 440, 21


class _Range(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _page_out(pid):
    """Has the system put what is in the process's private memory out to swap."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(PIDFD_OPEN, pid, 0)
    assert pidfd >= 0, os.strerror(ctypes.get_errno())
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, rights, _, _, inode, *_ = line.split()
        if rights.startswith("rw") and inode == "0":
            begin, end = (int(x, 16) for x in span.split("-"))
            one = _Range(begin, end - begin)
            libc.syscall(PROCESS_MADVISE, pidfd, ctypes.byref(one), ctypes.c_size_t(1), MADV_PAGEOUT, 0)
    os.close(pidfd)


def _swapped_kib(pid):
    return int(re.search(r"VmSwap:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


@contextlib.contextmanager
def swap_is_in_use(world):
    file = world.folder / "swap"
    with open(file, "wb") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(bytes(64 << 20))
    subprocess.run(["mkswap", file], check=True, capture_output=True)
    subprocess.run(["swapon", file], check=True, capture_output=True)
    try:
        pid = world.cluster.workers["b"].process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pid = int(children[0]) if children else pid
        # What it does brings some of it back.
        for _ in range(5):
            _page_out(pid)
            if _swapped_kib(pid) >= 6 << 10:
                break
            time.sleep(0.1)
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)
        file.unlink()


# (what, the fault, the kind that the doctor finds, of whom, a part of the remedy)
ANYWHERE = [
    ("a lost node", node_is_lost, "NODE_LOST", "b", "systemctl restart strata-worker"),
    ("a node that stands still", node_stands_still, "NODE_SILENT", "b", "systemctl restart strata-worker"),
    ("a missing instruction set", restarted(env={"STRATA_CPU_ISA": "scalar"}), "ISA_SLOWER", "b", "unset STRATA_CPU_ISA"),
    ("a cache larger than its disk", restarted("--cache-limit", "100TiB"), "CACHE_LIMIT_TOO_LARGE", "b", "--cache-limit"),
    ("memory that is not there", memory_that_is_not_there(), "MEMORY_SHORT", "b", "--memory"),
    ("workers that share too much memory", workers_share_too_much, "MEMORY_OVERCOMMITTED", "a", "--memory"),
    ("another version", other_version, "VERSION_SKEW", "b", "Upgrade"),
    ("a certificate with another name", files_of_certificates(wrong_name), "CERTIFICATE_WRONG_NAME", "b", "strata cluster certificate worker b"),
    ("a certificate of another authority", files_of_certificates(wrong_authority), "CERTIFICATE_WRONG_AUTHORITY", "b",
     "strata cluster certificate worker b"),
    ("a key of another certificate", files_of_certificates(key_of_another), "KEY_OF_ANOTHER", "b", "strata cluster certificate worker b"),
    ("a missing certificate", files_of_certificates(file_is_missing), "CERTIFICATE_UNUSABLE", "b", "strata cluster certificate worker b"),
    ("a key that all may read", files_of_certificates(key_is_readable), "KEY_READABLE", "b", "chmod o-rwx"),
    ("a file of flags that was changed", file_of_flags("threads = 7\ncache-limit = \"1GiB\"\n"), "CONFIG_DIFFERS", "b", "systemctl restart"),
    ("a file of flags that does not parse", file_of_flags("no-such-flag = 1\n"), "CONFIG_BROKEN", "b", "--help"),
]

# With libfaketime of Debian's package of that name.
WITH_FAKED_TIME = [
    ("a clock that is an hour off", clock_is_off, "CLOCK_OFF", "b", "timedatectl set-ntp true"),
    ("a lapsed certificate", files_of_certificates(lapsed), "CERTIFICATE_LAPSED", "b", "strata cluster certificate worker b"),
    ("a certificate that ends soon", files_of_certificates(ends_soon), "CERTIFICATE_ENDS_SOON", "b", "strata cluster certificate worker b"),
]

# As root.
OF_THE_SYSTEM = [
    ("a full disk", disk_is_full, "DISK_FULL", "b", "--cache-limit"),
    ("swap in use", swap_is_in_use, "SWAP_IN_USE", "b", "swapoff -a"),
]


def check(world, fault):
    """The doctor finds just that, and nothing once it is gone."""
    what, plant, kind, node, remedy = fault
    with plant(world):
        status, findings, said = world.doctor()
    assert status == 1, (what, said)
    assert [(f["kind"], f["node"]) for f in findings] == [(kind, node)], (what, said)
    assert remedy in findings[0]["remedy"], (what, findings)


def check_healthy(world):
    status, findings, said = world.doctor()
    assert status == 0 and not findings, said
