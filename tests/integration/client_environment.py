"""Published clients, each in a virtual environment of its own, kept until what is wanted changes."""

import fcntl
import os
import re
import shutil
import subprocess
import sys

import pytest

from cluster import BIN, GIVE_UP_S, SOURCE

CACHE = BIN.parent / "clients"
OPENAI = ["openai==3.57.0"]
LORAX = ["lorax-client==0.6.3"]
# It refuses tools by itself where the extra is missing.
LITELLM = ["litellm[mcp]==1.110.2"]


def blame_the_index(pip, folder):
    """After pip failed: skips the test if no package index can be asked, and fails it where CI=true
    says that all tests are to run. Returns if there is one."""
    probe = subprocess.run([pip, "-q", "--disable-pip-version-check", "download", "--no-deps",
                            "--no-cache-dir", "-d", folder / "probe", "typing-extensions"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up(f"no package index is reachable: {probe.stderr.strip().splitlines()[-1]}")


def environment(name, *packages):
    """The Python of an environment with these packages; without a package index, see above."""
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
            pip = home / "bin" / "pip"
            done = subprocess.run([pip, "--disable-pip-version-check", "-q", "install", *packages],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                blame_the_index(pip, folder)
                raise AssertionError(done.stderr)
            stamp.write_text(wanted)
    return home / "bin" / "python"


def run(python, script, *arguments):
    """What a script prints, in the environment; what it raises fails the test."""
    done = subprocess.run([python, script, *map(str, arguments)], capture_output=True, text=True,
                          timeout=GIVE_UP_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def example(cluster, language, first):
    """The block of docs/API.md that begins so, for this cluster."""
    text = (SOURCE / "docs" / "API.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    (found,) = [block for of, block in blocks if of == language and block.startswith(first)]
    assert "localhost:8080" in found
    return found.replace("localhost:8080", cluster.http)
