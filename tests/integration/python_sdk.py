"""The Python SDK as users have it: its wheel, built by ./dev, in a virtual environment that is kept
until something of it changes; and what its tests stand on: `strata` is the package, `cluster` two workers
with the model recall."""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from client_environment import blame_the_index
from cluster import BIN, NEVER, RECALL, SOURCE, Cluster

CACHE = BIN.parent / "python-sdk"
# Besides the wheel: what checks its type hints.
CHECKERS = ["mypy", "types-grpcio", "types-protobuf"]


def _fingerprint():
    digest = hashlib.sha256(repr((sys.version, CHECKERS)).encode())
    for folder in (SOURCE / "sdk" / "python", SOURCE / "proto"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix in (".py", ".toml", ".proto", ".md", ".typed"):
                digest.update(str(path.relative_to(SOURCE)).encode() + path.read_bytes())
    return digest.hexdigest()


def _run(*command):
    """A failure of it is one of the test, but for want of a package index."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=SOURCE)
    if done.returncode == 0:
        return
    blame_the_index(CACHE / "venv" / "bin" / "pip", CACHE)
    raise AssertionError(f"{command}\n{done.stdout}\n{done.stderr}")


def environment():
    """The folder of a virtual environment with the wheel in it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp, home = CACHE / "made-of", CACHE / "venv"
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _fingerprint()
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run(["/usr/bin/python3", "-m", "venv", home], check=True)
            _run(SOURCE / "dev", "wheel", CACHE / "wheel")
            (wheel,) = (CACHE / "wheel").glob("*.whl")
            _run(home / "bin" / "pip", "install", "-q", "--disable-pip-version-check", wheel,
                 *CHECKERS)
            stamp.write_text(wanted)
    return home


def import_from(home):
    """Makes `import strata` find the environment's package in this process."""
    (packages,) = pathlib.Path(home).glob("lib/python3*/site-packages")
    if str(packages) not in sys.path:
        sys.path.insert(0, str(packages))


@pytest.fixture(scope="module")
def home():
    folder = environment()
    import_from(folder)
    return folder


@pytest.fixture(scope="module")
def strata(home):
    import strata as module
    return module


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # A worker is halted for a while.
    with Cluster(tmp_path_factory.mktemp("sdk"), step_timeout=NEVER, lease=NEVER) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512, sessions=12)
        yield c


def floats(values):
    return [np.float32(v) for v in values]
