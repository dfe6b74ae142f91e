"""The units of systemd, and what they call."""

import os
import re
import shutil
import subprocess

import pytest

from cluster import BIN, SOURCE

UNITS = SOURCE / "deploy" / "systemd"
NAMES = ["strata-coordinator.service", "strata-worker.service", "strata-worker@.service"]
MOST_EXPOSED = 2.0

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_units_verify_without_a_word(name, tmp_path):
    text = (UNITS / name).read_text()
    text = text.replace("/usr/bin/", f"{BIN.resolve()}/").replace("/usr/lib/strata/", f"{UNITS}/")
    # An unknown key is a warning only: any output fails.
    unit = tmp_path / name.replace("@.", "@one.")
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and not said, said


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_units_are_hardened(name):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", UNITS / name],
                          capture_output=True, text=True)
    score = float(re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)[1])
    print(f"{name}: {score}")
    assert score <= MOST_EXPOSED, done.stdout


def test_a_worker_has_what_gpus_need_and_the_coordinator_does_not():
    worker = (UNITS / "strata-worker.service").read_text()
    coordinator = (UNITS / "strata-coordinator.service").read_text()
    assert "LimitMEMLOCK=infinity" in worker and "DeviceAllow=char-nvidia rw" in worker
    assert "MemoryDenyWriteExecute=yes" not in worker  # Kernels of GPUs are compiled at run time.
    assert "MemoryDenyWriteExecute=yes" in coordinator and "PrivateDevices=yes" in coordinator


def test_the_workers_units_differ_in_their_names_alone():
    one, many = ((UNITS / name).read_text() for name in NAMES[1:])
    own = re.compile(r"-%i| %i|^#.*\n|^AssertPathExists=.*\n|^Environment=STRATA_WORKER_NAME=.*\n", re.M)
    assert own.sub("", many) == own.sub("", one)


class Service:
    """What systemd does around a service: runs `restart-delay`, with its sleep written down."""

    def __init__(self, folder):
        self.run_folder = folder / "run"
        self.run_folder.mkdir()
        tools = folder / "bin"
        tools.mkdir()
        self.slept = folder / "slept"
        self.now = folder / "now"
        self.now.write_text("1000")
        (tools / "sleep").write_text(f'#!/bin/sh\necho "$1" >>{self.slept}\n')
        (tools / "date").write_text(f"#!/bin/sh\ncat {self.now}\n")
        for tool in tools.iterdir():
            tool.chmod(0o755)
        self.env = {"PATH": f"{tools}:{os.environ['PATH']}", "RUNTIME_DIRECTORY": str(self.run_folder)}

    def call(self, when, result="success"):
        subprocess.run([UNITS / "restart-delay", when], env={**self.env, "SERVICE_RESULT": result}, check=True,
                       capture_output=True)

    def fails(self, after_s=1):
        self.slept.unlink(missing_ok=True)
        self.call("before")
        self.now.write_text(str(int(self.now.read_text()) + after_s))
        self.call("after", "exit-code")
        return int(self.slept.read_text()) if self.slept.exists() else 0


def test_starts_after_failures_wait_longer_each_time_up_to_a_minute(tmp_path):
    service = Service(tmp_path)
    assert [service.fails() for _ in range(10)] == [0, 0, 2, 4, 8, 16, 32, 60, 60, 60]


def test_what_ran_long_or_was_stopped_starts_at_once_again(tmp_path):
    service = Service(tmp_path)
    for _ in range(5):
        service.fails()
    service.fails(after_s=600)
    assert service.fails() == 0
    for _ in range(5):
        service.fails()
    service.call("before")
    service.call("after", "success")
    assert service.fails() == 0
