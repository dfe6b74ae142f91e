"""Published clients, each in a virtual environment of its own, kept until what is wanted changes."""

import fcntl
import shutil
import subprocess
import sys

import pytest

from cluster import BIN

CACHE = BIN.parent / "clients"


def environment(name, *packages):
    """The Python of an environment with these packages; skips if no package index can be asked."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    stamp, home = folder / "made-of", folder / "venv"
    wanted = repr((sys.version, packages))
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run(["/usr/bin/python3", "-m", "venv", home], check=True)
            pip = [home / "bin" / "pip", "--disable-pip-version-check", "-q"]
            done = subprocess.run([*pip, "install", *packages], capture_output=True, text=True)
            if done.returncode != 0:
                probe = subprocess.run([*pip, "download", "--no-deps", "--no-cache-dir", "-d",
                                        folder / "probe", "typing-extensions"],
                                       capture_output=True, text=True)
                if probe.returncode != 0:
                    pytest.skip("no package index is reachable: "
                                f"{probe.stderr.strip().splitlines()[-1]}")
                raise AssertionError(done.stderr)
            stamp.write_text(wanted)
    return home / "bin" / "python"


def run(python, script, *arguments):
    """Runs a script of clients/ in the environment; what it raises fails the test."""
    done = subprocess.run([python, script, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
