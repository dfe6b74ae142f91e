"""Disks that a test can fill."""

import contextlib
import os
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, size):
    """`folder`, made on a disk of its own of `size`, as in "2m"; skips where none can be mounted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "strata-test", folder],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def full(disk):
    """Nothing more fits on it meanwhile."""
    ballast = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(ballast, bytes(4096))
    except OSError:
        os.close(ballast)
    try:
        yield
    finally:
        os.remove(disk / "ballast")
