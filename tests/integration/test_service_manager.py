"""What a service manager (systemd) hears of the processes."""

import contextlib
import ctypes
import os
import pathlib
import re
import socket
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, Cluster, wait_until

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="systemd is Linux's")

WATCHDOG_S = 40


class Manager:
    """The socket that a process tells its state to, and what it said."""

    def __init__(self, folder, watchdog_s=0):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.said = []  # (name, value)
        self.env = {"NOTIFY_SOCKET": self.path}
        if watchdog_s:
            self.env["WATCHDOG_USEC"] = str(watchdog_s * 1_000_000)

    def hear(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                for line in self.socket.recv(65536).decode().splitlines():
                    self.said.append(tuple(line.split("=", 1)))
        return self.said

    def values(self, name):
        return [value for said, value in self.hear() if said == name]

    def wait(self, name, pattern="."):
        return wait_until(lambda: [v for v in self.values(name) if re.search(pattern, v)], f"{name}={pattern}")[0]

    def life_after(self, count):
        wait_until(lambda: len(self.values("WATCHDOG")) > count, "a sign of life")


@contextlib.contextmanager
def managed_coordinator(folder, monkeypatch, **options):
    manager = Manager(folder, **options)
    for name, value in manager.env.items():
        monkeypatch.setenv(name, value)
    cluster = Cluster(folder / "cluster")
    for name in manager.env:
        monkeypatch.delenv(name)
    with cluster:
        yield manager, cluster


def test_a_coordinator_says_that_it_is_ready_what_it_does_and_that_it_stops(tmp_path, monkeypatch):
    with managed_coordinator(tmp_path, monkeypatch) as (manager, cluster):
        assert manager.wait("READY") == "1"
        cluster.run("status")  # It listens, and its store is open.
        assert "no model is loaded; nodes: 0" in manager.wait("STATUS", "nodes:")
        cluster.start_worker("w0")
        manager.wait("STATUS", "nodes: 1")
        assert manager.values("WATCHDOG") == [], "nobody asked for it"
        cluster.coordinator.stop()
        assert manager.values("STOPPING") == ["1"]
        # A drain of 1 s, and time to end.
        assert int(manager.values("EXTEND_TIMEOUT_USEC")[0]) >= 2_000_000
        assert [name for name, _ in manager.said].index("READY") < [
            name for name, _ in manager.said].index("STOPPING")


def test_a_worker_is_ready_once_it_has_joined(tmp_path):
    manager = Manager(tmp_path, watchdog_s=WATCHDOG_S)
    with Cluster(tmp_path / "cluster") as cluster:
        address = cluster.address
        cluster.coordinator.stop()
        worker = cluster.start_worker("w0", env=manager.env, wait=False)
        assert address in manager.wait("STATUS", "cannot join")
        assert manager.values("READY") == []
        cluster.start_coordinator(listen=address)
        manager.wait("READY")
        cluster.wait_node("w0")
        manager.wait("STATUS", "joined .*; holds no layers")
        manager.life_after(len(manager.values("WATCHDOG")))
        worker.stop()
        assert manager.values("STOPPING") == ["1"]


@contextlib.contextmanager
def halted(pid, thread_name):
    """A thread of the process stands still, as a debugger has it."""
    tasks = pathlib.Path(f"/proc/{pid}/task")
    (tid,) = [int(t.name) for t in tasks.iterdir() if (t / "comm").read_text().strip() == thread_name]
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request):
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(tid), None, None) != 0:
            return ctypes.get_errno()
        return 0

    seize, interrupt, detach = 0x4206, 0x4207, 17
    if error := ptrace(seize):
        pytest.skip(f"ptrace is not allowed here: {os.strerror(error)}")
    assert ptrace(interrupt) == 0
    os.waitpid(tid, 0x40000000)  # __WALL: it has stopped.
    try:
        yield
    finally:
        assert ptrace(detach) == 0


def test_no_sign_of_life_comes_while_the_event_loop_stands_still(tmp_path, monkeypatch):
    with managed_coordinator(tmp_path, monkeypatch, watchdog_s=WATCHDOG_S) as (manager, cluster):
        manager.life_after(0)
        with halted(cluster.coordinator.process.pid, "event loop"):
            before = len(manager.values("WATCHDOG"))
            cluster.coordinator.wait_for("no sign of life from the event loop;")
            # What all had answered before may still have been on its way.
            assert len(manager.values("WATCHDOG")) <= before + 1
        cluster.coordinator.wait_for("all threads give signs of life again")
        manager.life_after(len(manager.values("WATCHDOG")))


def test_without_a_manager_nobody_is_told(tmp_path):
    done = subprocess.run([BIN / "strata-coordinator", "--version"], capture_output=True, timeout=GIVE_UP_S,
                          env={"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert done.returncode == 0
