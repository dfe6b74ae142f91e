"""The Python SDK as users have it: its wheel, built by ./dev, in a virtual environment that is kept
until something of it changes."""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys

import pytest

from cluster import BIN, SOURCE

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
    """Skips the test if there is no package index to ask; that apart, a failure is one."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=SOURCE)
    if done.returncode == 0:
        return
    probe = subprocess.run([CACHE / "venv" / "bin" / "pip", "download", "-q", "--no-deps",
                            "--no-cache-dir", "-d", CACHE / "probe", "typing-extensions"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"no package index is reachable: {probe.stderr.strip().splitlines()[-1]}")
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
